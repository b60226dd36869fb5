// The CUDA C++ that our kernels use, for a plain C++17 compiler. Included in front of a kernel file by build.rs.
#pragma once
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "device.h"

#define __SOFTGPU__ 1

// ---- the language

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
// Internal linkage comes from the nameless namespace around the file; `static` may stand in front in the source.
#define __constant__ __attribute__((unused))
// In a section of its own, so that every block finds it poisoned.
#define __shared__ static __attribute__((section(SG_SHARED_SECTION)))
#define DYN_SHARED(T, name) T *name = reinterpret_cast<T *>(::sg::block.dynamic)

#define threadIdx (::sg::thread->index)
#define blockIdx (::sg::block.index)
#define blockDim (::sg::block.threads)
#define gridDim (::sg::block.grid)
#define warpSize 32
#define SG_LINE int sg_line = __builtin_LINE() // as a default argument: the line of the caller

// ---- vector types, with the alignment that CUDA gives them

#define SG_VECTOR2(T, name, bytes) \
    struct alignas(bytes) name##2 { T x, y; }; \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }
#define SG_VECTOR4(T, name, bytes) \
    struct alignas(bytes) name##4 { T x, y, z, w; }; \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
SG_VECTOR2(signed char, char, 2)
SG_VECTOR4(signed char, char, 4)
SG_VECTOR2(unsigned char, uchar, 2)
SG_VECTOR4(unsigned char, uchar, 4)
SG_VECTOR2(short, short, 4)
SG_VECTOR4(short, short, 8)
SG_VECTOR2(unsigned short, ushort, 4)
SG_VECTOR4(unsigned short, ushort, 8)
SG_VECTOR2(int, int, 8)
SG_VECTOR4(int, int, 16)
SG_VECTOR2(unsigned, uint, 8)
SG_VECTOR4(unsigned, uint, 16)
SG_VECTOR2(long long, longlong, 16)
SG_VECTOR4(long long, longlong, 16)
SG_VECTOR2(unsigned long long, ulonglong, 16)
SG_VECTOR4(unsigned long long, ulonglong, 16)
SG_VECTOR2(float, float, 8)
SG_VECTOR4(float, float, 16)
SG_VECTOR2(double, double, 16)
SG_VECTOR4(double, double, 16)

// ---- barriers, votes, shuffles

static inline void __syncthreads(SG_LINE) { sg::block_barrier(sg_line); }
static inline int __syncthreads_count(int vote, SG_LINE) { return (int)sg::block_count(sg_line, vote != 0); }
static inline int __syncthreads_or(int vote, SG_LINE) { return sg::block_count(sg_line, vote != 0) != 0; }
static inline int __syncthreads_and(int vote, SG_LINE) { return sg::block_count(sg_line, vote == 0) == 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu, SG_LINE) { sg::warp_barrier(mask, sg::SYNC, sg_line); }
static inline unsigned __ballot_sync(unsigned mask, int vote, SG_LINE) { return sg::warp_ballot(mask, vote != 0, sg_line); }
static inline int __any_sync(unsigned mask, int vote, SG_LINE) { return sg::warp_ballot(mask, vote != 0, sg_line) != 0; }
static inline int __all_sync(unsigned mask, int vote, SG_LINE) { return sg::warp_ballot(mask, vote == 0, sg_line) == 0; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __trap() { sg::trap(); }

template <class T> static inline T sg_shuffle(unsigned mask, T value, unsigned lane, int line) {
    static_assert(sizeof(T) <= 8, "shuffle of a wide type");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = sg::warp_exchange(mask, bits, lane, line);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
// In segments of `width` lanes; a source outside the segment gives the caller's own value, as the PTX manual says.
static inline unsigned sg_lane() { return sg::thread->number & 31u; }
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, SG_LINE) {
    unsigned first = sg_lane() & ~(unsigned)(width - 1);
    return sg_shuffle(mask, value, first + ((unsigned)source & (unsigned)(width - 1)), sg_line);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SG_LINE) {
    unsigned lane = sg_lane(), source = lane ^ (unsigned)bits, end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
    return sg_shuffle(mask, value, source < end ? source : lane, sg_line);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SG_LINE) {
    unsigned lane = sg_lane(), source = lane + delta, end = (lane & ~(unsigned)(width - 1)) + (unsigned)width;
    return sg_shuffle(mask, value, source < end ? source : lane, sg_line);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SG_LINE) {
    unsigned lane = sg_lane(), first = lane & ~(unsigned)(width - 1);
    return sg_shuffle(mask, value, lane >= first + delta ? lane - delta : lane, sg_line);
}

// ---- atomics: threads run one after another, so plain reads and writes are atomic

template <class T> using sg_same = std::common_type_t<T>; // keeps the second argument out of the deduction, as in CUDA
#define SG_ATOMIC(name, expression) \
    template <class T> static inline T name(T *p, sg_same<T> v) { \
        T old = *p; \
        *p = (expression); \
        return old; \
    }
SG_ATOMIC(atomicAdd, (T)(old + v))
SG_ATOMIC(atomicSub, (T)(old - v))
SG_ATOMIC(atomicMax, old < v ? v : old)
SG_ATOMIC(atomicMin, v < old ? v : old)
SG_ATOMIC(atomicOr, (T)(old | v))
SG_ATOMIC(atomicAnd, (T)(old & v))
SG_ATOMIC(atomicXor, (T)(old ^ v))
SG_ATOMIC(atomicExch, v)
template <class T> static inline T atomicCAS(T *p, sg_same<T> expected, sg_same<T> v) {
    T old = *p;
    if (old == expected) *p = v;
    return old;
}

// ---- memory

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldca(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, sg_same<T> v) { *p = v; }
template <class T> static inline void __stcg(T *p, sg_same<T> v) { *p = v; }
template <class T> static inline void __stwt(T *p, sg_same<T> v) { *p = v; }

#include "cuda_math.h"

// ---- the table of entry points

namespace sg {
template <class T> bool bind(void *argument) {
    if constexpr (std::is_pointer_v<T>) {
        uint64_t device;
        std::memcpy(&device, argument, 8);
        if (device == 0) return true;
        void *host = host_address(device);
        std::memcpy(argument, &host, 8);
        return host != nullptr;
    }
    return true;
}
template <class T> T argument(void *p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}
template <auto F> struct Entry;
template <class... A, void (*F)(A...)> struct Entry<F> {
    static constexpr uint32_t sizes[sizeof...(A) + 1] = {(uint32_t)sizeof(A)..., 0};
    template <size_t... I> static bool bind_all(void **p, std::index_sequence<I...>) { return (sg::bind<A>(p[I]) && ...); }
    template <size_t... I> static void call_with(void **p, std::index_sequence<I...>) { F(argument<A>(p[I])...); }
    static bool bind(void **p) { return bind_all(p, std::index_sequence_for<A...>{}); }
    static void call(void **p) { call_with(p, std::index_sequence_for<A...>{}); }
};
} // namespace sg
#define SG_KERNEL(f) {#f, &sg::Entry<&f>::bind, &sg::Entry<&f>::call, sg::Entry<&f>::sizes, \
                      (uint32_t)(sizeof(sg::Entry<&f>::sizes) / 4 - 1)}

// The last macro: the headers above use the word as an attribute.
#define __noinline__ __attribute__((noinline))

// A model of the PTX instructions that kernels/product_*.cu use, for the CPU: included in front of a kernel file in place of its
// own wrappers. It checks addresses, swizzles, fragments, barriers and the order of tiles. It knows PTX as its manual describes it: a
// place that is read wrongly there passes here, and speed is no subject. What is asynchronous happens as early or as late as allowed.
#pragma once

#define __PTX_MODEL__
#define __global__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define DYN_SHARED(T, name) T* name = model::dynamic_shared()

struct Index {
    unsigned x;
};
extern Index threadIdx, blockIdx, gridDim;

namespace model {

// How a grid runs.
struct Launch {
    int blocks, threads, cluster;
    int shared;            // bytes
    bool early_copies;     // TMA and cp.async at once, or as late as their waits allow
    bool early_products;   // wgmma the same
    bool reverse;          // the order in which threads get their turn
};
void run(const Launch& launch, void (*kernel)(void*), void* arguments);
// Global memory that copies may read.
void reset_readable();
void add_readable(const void* address, unsigned long long bytes);
// Says what is wrong and ends the process.
[[noreturn]] void fail(const char* what, unsigned value = 0);

unsigned char* dynamic_shared();
void copy_box(unsigned to, const unsigned long long* map, int element, int line, int plane, unsigned barrier, unsigned blocks);
void wait_copies(int left);
void wait_products(int left);
void multiply64(int rows, int* d, unsigned long long x, unsigned long long y, int add);

}   // namespace model

void __syncthreads();
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
inline int min(int a, int b) { return a < b ? a : b; }

unsigned shared_address(const void* at);
void copy16(unsigned to, const void* from, bool inside);
void commit_copies();
template <int left>
void wait_copies() { model::wait_copies(left); }
void load_matrices(unsigned (&m)[4], unsigned address);
void multiply16x8(int (&sums)[4], const unsigned (&x)[4], unsigned y0, unsigned y1);

void barrier_init(unsigned barrier, int arrivals);
inline void barrier_init_fence() {}
void barrier_expect(unsigned barrier, int bytes);
void barrier_arrive(unsigned barrier);
void barrier_arrive_at(unsigned barrier, unsigned block);
void barrier_wait(unsigned barrier, unsigned parity);
void cluster_barrier();
unsigned rank_in_cluster();
template <class Map>
void copy_box(unsigned to, const Map* map, int element, int line, int plane, unsigned barrier) {
    model::copy_box(to, map->opaque, element, line, plane, barrier, 1u << rank_in_cluster());
}
template <class Map>
void copy_box_to(unsigned to, const Map* map, int element, int line, int plane, unsigned barrier, unsigned short blocks) {
    model::copy_box(to, map->opaque, element, line, plane, barrier, blocks);
}
template <int count>
void give_registers() {}
template <int count>
void take_registers() {}
void products_fence();
void commit_products();
template <int left>
void wait_products() { model::wait_products(left); }
template <int ROWS>
void multiply64(int (&d)[ROWS / 2], unsigned long long x, unsigned long long y, int add) { model::multiply64(ROWS, d, x, y, add); }

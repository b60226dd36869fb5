// Step product with the reduction inside, for compute capability 9.0: TMA, mbarrier, wgmma, clusters. What it computes, and why the
// lines of A are permuted, is said in kernels/product_mma.cu; docs/gpu.md has the layouts.
//
// A block stays on its multiprocessor and takes tile after tile. Warpgroup 0 brings operands into a ring in shared memory (one of
// its threads does it all), warpgroups 1 and 2 multiply, 64 columns each. With clusters, two blocks take two tiles side by side:
// both need the same lines of A, and each brings one half of them to both.

#ifndef DYN_SHARED
#define DYN_SHARED(T, name) extern __shared__ __align__(128) T name[]
#endif

constexpr int MAX_MODULI = 20;
constexpr int COLUMNS = 128;   // of a tile; its rows, 128 or 256, are a parameter of the templates
constexpr int DEPTH = 128;     // elements of the inner dimension in a step: the bytes of a swizzled row
constexpr int THREADS = 384;   // three warpgroups

// The ring for tiles of this many rows. The kernel is launched with `bytes` of dynamic shared memory.
template <int ROWS>
struct Ring {
    static constexpr int stages = ROWS == 256 ? 4 : 6;
    static constexpr int b = COLUMNS * DEPTH, a = ROWS * DEPTH, stage = b + a;
    static constexpr int bytes = 1024 + stages * stage + 256;   // to align, the ring, the barriers
};
static_assert(Ring<256>::bytes <= 227 << 10 && Ring<128>::bytes <= 227 << 10, "the shared memory of a block");

// ---- what both product kernels share (kernels/product_mma.cu repeats it: every file stands alone)

// A modulus, negated, and 2^38 / p to the nearest integer.
struct Modulus {
    int minus_p, reciprocal;
};

struct Moduli {
    Modulus of[MAX_MODULI];
};

__device__ constexpr Moduli make_moduli() {
    constexpr int P[MAX_MODULI] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173};
    Moduli out{};
    for (int l = 0; l < MAX_MODULI; l++) out.of[l] = {-P[l], (int)(((1ll << 38) + P[l] / 2) / P[l])};
    return out;
}

__device__ constexpr Moduli MODULI = make_moduli();

// The canonical residue of a sum of at most 2^16 products and an earlier residue. The quotient is sum / p + d, rounded to the
// nearest integer, ties up. p reciprocal = 2^38 + e with |e| <= (p-1)/2 <= 127, and |sum| < 2^30 for odd p, so |p d| = |sum e| / 2^38
// < 1/2: the remainder lies strictly between -(p+1)/2 and (p+1)/2. For p = 256, e = 0: the remainder is in -128..127.
__device__ inline int residue(int sum, Modulus m) { return sum + ((__mulhi(sum, m.reciprocal) + 32) >> 6) * m.minus_p; }

// Sixteen neighbours of the result.
struct alignas(16) Bytes {
    unsigned of[4];
};

// Sums of four neighbours to residues, a byte each, added to the earlier ones.
__device__ inline unsigned four_residues(int s0, int s1, int s2, int s3, unsigned earlier, Modulus m) {
    const int r0 = residue(s0 + (signed char)earlier, m), r1 = residue(s1 + (signed char)(earlier >> 8), m);
    const int r2 = residue(s2 + (signed char)(earlier >> 16), m), r3 = residue(s3 + (signed char)(earlier >> 24), m);
    return __byte_perm(__byte_perm((unsigned)r0, (unsigned)r1, 0x0040), __byte_perm((unsigned)r2, (unsigned)r3, 0x0040), 0x5410);
}

struct Tile {
    int plane, column, row;   // counted in tiles
};

// The place of a tile: plane after plane; in a plane bands of `band` tiles along the columns of C, in a band one row of tiles after
// the other, so that the tiles in work at a time share their operands in the L2 cache.
__device__ inline Tile tile_at(int number, int across, int down, int band) {
    const int plane = number / (across * down), in_plane = number - plane * across * down;
    const int first = in_plane / (band * down) * band, width = min(band, across - first), in_band = in_plane - first * down;
    return {plane, first + in_band % width, in_band / width};
}

// CUtensorMap: a 3-D array of bytes (elements, lines, planes) and the box of it that a copy takes. The host makes it.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

// ---- the instructions. tests/ptx_model has a model of each, for the CPU.

#if !defined(__SOFTGPU__) && !defined(__PTX_MODEL__)
__device__ inline unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// A barrier of `arrivals`. It is passed, and its parity changes, when all have arrived and all expected bytes are there.
__device__ inline void barrier_init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier of the same address in another block of the cluster. Release at the scope of the block is enough: all that it says
// is that a stage has been read, by wgmma, which has been waited for, and what writes next is TMA. (With .release.cluster
// every step had a memory barrier.)
__device__ inline void barrier_arrive_at(unsigned barrier, unsigned block) {
    asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at];\n}\n" ::"r"(barrier), "r"(block)
                 : "memory");
}
// Waits until the phase of this parity has ended. A fresh barrier is in phase 0; the phase before it counts as ended.
__device__ inline void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra.uni DONE;\nbra.uni WAIT;\nDONE:\n}\n" ::"r"(barrier), "r"(parity)
                 : "memory");
}
__device__ inline void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ inline unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// A box to shared memory, swizzled, with zeros for what is outside of the array; its bytes are counted at the barrier.
__device__ inline void copy_box(unsigned to, const TensorMap* map, int element, int line, int plane, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(element), "r"(line), "r"(plane), "r"(barrier)
                 : "memory");
}
// The same to the same address in every block of the cluster whose bit is set, counted at the barrier of each.
__device__ inline void copy_box_to(unsigned to, const TensorMap* map, int element, int line, int plane, unsigned barrier,
                                   unsigned short blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(element), "r"(line), "r"(plane), "r"(barrier), "h"(blocks)
                 : "memory");
}
template <int count>
__device__ inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `left` of the groups are in work.
template <int left>
__device__ inline void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// d (64 x ROWS) = x (64 x 32) y (ROWS x 32)^T, or += if add is not 0. x and y are descriptors. The sums wrap.
#define OZ2_D8(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7])
#define OZ2_D32(i) OZ2_D8(i), OZ2_D8(i + 8), OZ2_D8(i + 16), OZ2_D8(i + 24)
template <int ROWS>
__device__ inline void multiply64(int (&d)[ROWS / 2], unsigned long long x, unsigned long long y, int add);
template <>
__device__ inline void multiply64<128>(int (&d)[64], unsigned long long x, unsigned long long y, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
                 "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, p;\n}\n"
                 : OZ2_D32(0), OZ2_D32(32)
                 : "l"(x), "l"(y), "r"(add));
}
template <>
__device__ inline void multiply64<256>(int (&d)[128], unsigned long long x, unsigned long long y, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
                 "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, "
                 "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "
                 "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "
                 "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "
                 "%124, %125, %126, %127"
                 "}, %128, %129, p;\n}\n"
                 : OZ2_D32(0), OZ2_D32(32), OZ2_D32(64), OZ2_D32(96)
                 : "l"(x), "l"(y), "r"(add));
}
#endif

// The descriptor of an operand in shared memory as TMA leaves it, lines of 128 bytes, 128-byte swizzle:
//   bits 0-13   address / 16
//   bits 16-29  leading offset / 16: not used for swizzled lines of 128 bytes, 1
//   bits 32-45  stride offset / 16: from eight lines to the next eight, 1024 bytes
//   bits 49-51  base offset: 0, since every operand starts at a multiple of 1024
//   bits 62-63  swizzle: 1 is 128 bytes
// 32 elements further on inside of a line is 2 more: bits 4-6 of an address are XORed with its bits 7-9, here as in TMA.
__device__ inline unsigned long long descriptor(unsigned address) {
    return (unsigned long long)((address & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// ---- the kernel

struct Problem {
    const TensorMap *map_a, *map_b;
    int rows, columns, pitch, planes;
    const int* modulus_of;
    signed char* out;
    bool add;
    int band;
};

#ifdef __SOFTGPU__

// What the software device puts into a tensor map (tests/softgpu/src/api/tensor.rs).
struct SoftMap {
    unsigned long long address, sizes[3], strides[2], box[3];
};

// The twin for the software device, without the instructions: what TMA would find, tile by tile.
template <int ROWS, int CLUSTER>
__device__ inline void product(const Problem& p) {
    SoftMap maps[2];
    memcpy(&maps[0], p.map_a, sizeof(SoftMap));
    memcpy(&maps[1], p.map_b, sizeof(SoftMap));
    const unsigned long long box_lines[2] = {ROWS / CLUSTER, COLUMNS};
    for (int n = 0; n < 2; n++) {
        if (maps[n].box[0] != DEPTH || maps[n].box[1] != box_lines[n] || maps[n].box[2] != 1) __trap();
        if ((int)maps[n].sizes[0] != p.pitch || (int)maps[n].sizes[2] != p.planes) __trap();
    }
    if (threadIdx.x >= COLUMNS) return;
    const signed char* operands[2];
    for (int n = 0; n < 2; n++) operands[n] = (const signed char*)sg::host_address(maps[n].address);
    // A line of an operand, null outside of it.
    auto line = [&](int n, int plane, long long number) {
        const SoftMap& map = maps[n];
        return number < (long long)map.sizes[1] ? operands[n] + plane * map.strides[1] + number * map.strides[0] : nullptr;
    };
    const int across = (p.columns + COLUMNS * CLUSTER - 1) / (COLUMNS * CLUSTER), down = (p.rows + ROWS - 1) / ROWS;
    for (int number = blockIdx.x / CLUSTER; number < p.planes * across * down; number += gridDim.x / CLUSTER) {
        const Tile tile = tile_at(number, across, down, p.band);
        const int column = (tile.column * CLUSTER + (int)blockIdx.x % CLUSTER) * COLUMNS + (int)threadIdx.x;
        const signed char* b = line(1, tile.plane, column);
        if (column >= p.columns) continue;
        for (int row = tile.row * ROWS; row < min(p.rows, (tile.row + 1) * ROWS); row++) {
            const signed char* a = line(0, tile.plane, (row & ~63) | (row >> 1 & 7) << 3 | (row >> 4 & 3) << 1 | (row & 1));
            int sum = 0;
            for (int h = 0; a != nullptr && b != nullptr && h < p.pitch; h++) sum += a[h] * b[h];
            signed char* out = p.out + ((long long)tile.plane * p.columns + column) * p.rows + row;
            *out = (signed char)residue(sum + (p.add ? *out : 0), MODULI.of[p.modulus_of[tile.plane]]);
        }
    }
}

#else

// Sums to residues, and out. Lane 4 g + q of a warp has the columns g and g + 8 of its 16, and for each 16 neighbours of every 64 rows.
template <int ROWS>
__device__ inline void store(const Problem& p, const int (&d)[ROWS / 2], int plane, int first_column, int first_row) {
    const Modulus m = MODULI.of[p.modulus_of[plane]];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int row = first_row + lane % 4 * 16;
#pragma unroll
    for (int block = 0; block < ROWS / 64; block++) {
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int column = first_column + 16 * warp + 8 * high + lane / 4;
            if (row + 64 * block >= p.rows || column >= p.columns) continue;
            Bytes* out = reinterpret_cast<Bytes*>(p.out + ((long long)plane * p.columns + column) * p.rows + row + 64 * block);
            Bytes bytes{};
            if (p.add) bytes = *out;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int at = 4 * (8 * block + 2 * n) + 2 * high;
                bytes.of[n] = four_residues(d[at], d[at + 1], d[at + 4], d[at + 5], bytes.of[n], m);
            }
            *out = bytes;
        }
    }
}

template <int ROWS, int CLUSTER>
__device__ inline void product(const Problem& p) {
    using R = Ring<ROWS>;
    DYN_SHARED(unsigned char, memory);
    const unsigned ring = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = ring + R::stages * R::stage, empty = full + 8 * R::stages;
    const int warpgroup = threadIdx.x / 128;
    unsigned rank = 0;
    if constexpr (CLUSTER > 1) rank = rank_in_cluster();
    const int steps = (p.pitch + DEPTH - 1) / DEPTH;
    const int across = (p.columns + COLUMNS * CLUSTER - 1) / (COLUMNS * CLUSTER), down = (p.rows + ROWS - 1) / ROWS;
    const int tiles = p.planes * across * down, first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < R::stages; stage++) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, 8 * CLUSTER);   // every warp that multiplies, of every block of the cluster
        }
        barrier_init_fence();
    }
    if constexpr (CLUSTER > 1) cluster_barrier();
    else __syncthreads();

    int stage = 0;
    unsigned parity = 0;   // of the round through the ring
    auto next_stage = [&] {
        stage = stage + 1 == R::stages ? 0 : stage + 1;
        parity ^= stage == 0;
    };
    if (warpgroup == 0) {
        give_registers<40>();
        for (int number = first; threadIdx.x == 0 && number < tiles; number += stride) {
            const Tile tile = tile_at(number, across, down, p.band);
            const int column = (tile.column * CLUSTER + (int)rank) * COLUMNS, row = tile.row * ROWS;
            for (int step = 0; step < steps; step++) {
                barrier_wait(empty + 8 * stage, parity ^ 1);
                const unsigned barrier = full + 8 * stage, at_b = ring + stage * R::stage, at_a = at_b + R::b;
                barrier_expect(barrier, R::stage);
                copy_box(at_b, p.map_b, step * DEPTH, column, tile.plane, barrier);
                if constexpr (CLUSTER > 1) {
                    constexpr int SHARE = ROWS / CLUSTER;
                    const int mine = (int)rank * SHARE;
                    copy_box_to(at_a + mine * DEPTH, p.map_a, step * DEPTH, row + mine, tile.plane, barrier, (1 << CLUSTER) - 1);
                } else {
                    copy_box(at_a, p.map_a, step * DEPTH, row, tile.plane, barrier);
                }
                next_stage();
            }
        }
    } else {
        take_registers<232>();
        const unsigned lane = threadIdx.x % 32;
        // The stage has been read, in every block of the cluster that brought a part of it.
        auto release = [&](unsigned barrier) {
            if constexpr (CLUSTER > 1) {
                if (lane < CLUSTER) barrier_arrive_at(barrier, lane);
            } else {
                if (lane == 0) barrier_arrive(barrier);
            }
        };
        int d[ROWS / 2];
        for (int number = first; number < tiles; number += stride) {
            const Tile tile = tile_at(number, across, down, p.band);
            unsigned before = 0;
            for (int step = 0; step < steps; step++) {
                barrier_wait(full + 8 * stage, parity);
                const unsigned at_b = ring + stage * R::stage;
                const unsigned long long x = descriptor(at_b + (warpgroup - 1) * 64 * DEPTH), y = descriptor(at_b + R::b);
                products_fence();
#pragma unroll
                for (int part = 0; part < DEPTH / 32; part++) multiply64<ROWS>(d, x + 2 * part, y + 2 * part, step > 0 || part > 0);
                commit_products();
                wait_products<1>();   // those of the step before
                if (step > 0) release(before);
                before = empty + 8 * stage;
                next_stage();
            }
            wait_products<0>();
            release(before);
            store<ROWS>(p, d, tile.plane, (tile.column * CLUSTER + (int)rank) * COLUMNS + (warpgroup - 1) * 64, tile.row * ROWS);
        }
    }
    if constexpr (CLUSTER > 1) cluster_barrier();   // nobody leaves while the other block may write to it
}

#endif

// The product as kernels/product_mma.cu has it, with the operands in tensor maps: sizes (pitch, lines, planes); a box of 128 elements,
// 128 lines of B or (rows of a tile) / (blocks of a cluster) lines of A, and 1 plane; 128-byte swizzle, zeros outside.
// Launch: block 384; dynamic shared memory Ring::bytes; grid x: blocks of a cluster times 1 to the number of tiles.
// Entries: rows of a tile, blocks of a cluster.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
oz2_product_wgmma_256_1(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, int rows, int columns, int pitch,
                        int planes, const int* __restrict__ modulus_of, signed char* __restrict__ out, int add, int band)
{
    product<256, 1>({&map_a, &map_b, rows, columns, pitch, planes, modulus_of, out, add != 0, band});
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1)
oz2_product_wgmma_256_2(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, int rows, int columns, int pitch,
                        int planes, const int* __restrict__ modulus_of, signed char* __restrict__ out, int add, int band)
{
    product<256, 2>({&map_a, &map_b, rows, columns, pitch, planes, modulus_of, out, add != 0, band});
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
oz2_product_wgmma_128_1(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, int rows, int columns, int pitch,
                        int planes, const int* __restrict__ modulus_of, signed char* __restrict__ out, int add, int band)
{
    product<128, 1>({&map_a, &map_b, rows, columns, pitch, planes, modulus_of, out, add != 0, band});
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1)
oz2_product_wgmma_128_2(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, int rows, int columns, int pitch,
                        int planes, const int* __restrict__ modulus_of, signed char* __restrict__ out, int add, int band)
{
    product<128, 2>({&map_a, &map_b, rows, columns, pitch, planes, modulus_of, out, add != 0, band});
}

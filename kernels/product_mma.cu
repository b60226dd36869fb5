// Step product with the reduction inside, for every GPU from compute capability 8.0 on: cp.async, ldmatrix, mma.sync m16n8k32.
// One launch multiplies for all moduli and leaves residues: no 32-bit sum goes through memory. docs/gpu.md has the layouts.
//
// C is column-major, so the first operand of the instruction is B, its lines the columns of C, and the second is A, its lines
// the rows of C. The lines of A are permuted inside blocks of 64 (kernels/residues.cu, place): then the 16 sums of 64 rows that a
// lane holds for one column are 16 neighbours of the result, and leave as one store.

constexpr int MAX_MODULI = 20;
constexpr int SIDE = 128;              // rows and columns of a tile, the work of a block of four warps, 64 x 64 each
constexpr int DEPTH = 64;              // elements of the inner dimension in a step
constexpr int STAGES = 3;              // steps that are in shared memory or on the way: 48 KB, so that two blocks fit anywhere
constexpr int OPERAND = SIDE * DEPTH;  // bytes of an operand in a stage: B, then A
constexpr int STAGE = 2 * OPERAND;

// ---- what both product kernels share (kernels/product_wgmma.cu repeats it: every file stands alone)

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

// The operands: for every plane `columns` lines of B and `rows` lines of A, permuted, of `pitch` elements, without gaps; and the
// result: for every plane `columns` columns of `rows` residues.
struct Problem {
    const signed char *a, *b;
    int rows, columns, pitch;
    signed char* out;
    bool add;   // to the residues that are there, those of earlier parts of the inner dimension
};

// ---- the instructions. tests/ptx_model has a model of each, for the CPU.

#if !defined(__SOFTGPU__) && !defined(__PTX_MODEL__)
__device__ inline unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// Sixteen bytes to shared memory, zeros unless `inside`; done when wait_copies says so.
__device__ inline void copy16(unsigned to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` of the groups of this thread are on their way.
template <int left>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
// Four matrices of 8 rows of 16 bytes: lane 8 i + r gives the address of row r of matrix i.
__device__ inline void load_matrices(unsigned (&m)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}
// sums (16 x 8) += x (16 x 32) y (8 x 32)^T.
__device__ inline void multiply16x8(int (&sums)[4], const unsigned (&x)[4], unsigned y0, unsigned y1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
}
#endif

// ---- a tile

#ifdef __SOFTGPU__

// The twin for the software device, without the instructions: a thread takes a column of the tile.
__device__ inline void multiply(const Problem& p, Tile tile, Modulus m) {
    const long long column = (long long)tile.column * SIDE + threadIdx.x;
    if (column >= p.columns) return;
    const signed char* b = p.b + ((long long)tile.plane * p.columns + column) * p.pitch;
    signed char* out = p.out + ((long long)tile.plane * p.columns + column) * p.rows;
    for (int row = tile.row * SIDE; row < min(p.rows, (tile.row + 1) * SIDE); row++) {
        const int place = (row & ~63) | (row >> 1 & 7) << 3 | (row >> 4 & 3) << 1 | (row & 1);
        const signed char* a = p.a + ((long long)tile.plane * p.rows + place) * p.pitch;
        int sum = 0;
        for (int h = 0; h < p.pitch; h++) sum += a[h] * b[h];
        out[row] = (signed char)residue(sum + (p.add ? out[row] : 0), m);
    }
}

#else

// Where chunk c, of 16 bytes, of a line lies in an operand of a stage. Eight lines that follow each other have chunk c in eight
// different groups of four banks: no conflicts for ldmatrix and for the copies.
__device__ inline int chunk_at(int line, int c) { return line * DEPTH + ((c ^ (line >> 1 & 3)) << 4); }

// One operand of a step: 128 lines from `first` on, of `count`, as far as they are there; 32 lines at a time, four threads a line.
__device__ inline void load_operand(unsigned to, const signed char* lines, int first, int count, int pitch, int step) {
    const int chunk = threadIdx.x % 4, h = step * DEPTH + 16 * chunk;
#pragma unroll
    for (int i = 0; i < SIDE; i += 32) {
        const int line = i + threadIdx.x / 4;
        const bool inside = h < pitch && first + line < count;
        copy16(to + chunk_at(line, chunk), inside ? lines + (long long)(first + line) * pitch + h : lines, inside);
    }
}

__device__ inline void multiply(const Problem& p, Tile tile, Modulus m) {
    __shared__ __align__(128) unsigned char stages[STAGES * STAGE];
    const unsigned ring = shared_address(stages);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_column = tile.column * SIDE, first_row = tile.row * SIDE;
    const signed char* b = p.b + (long long)tile.plane * p.columns * p.pitch;
    const signed char* a = p.a + (long long)tile.plane * p.rows * p.pitch;
    const int steps = (p.pitch + DEPTH - 1) / DEPTH;
    auto load = [&](int step, int stage) {
        load_operand(ring + stage * STAGE, b, first_column, p.columns, p.pitch, step);
        load_operand(ring + stage * STAGE + OPERAND, a, first_row, p.rows, p.pitch, step);
    };
    // The lines and chunks whose addresses this lane gives. x, 16 lines: (0..7, first half) (8..15, first) (0..7, second) (8..15,
    // second). y, twice 8 lines: (0..7, first) (0..7, second) (8..15, first) (8..15, second).
    const int x_line = warp / 2 * 64 + lane % 16, x_chunk = lane / 16;
    const int y_line = warp % 2 * 64 + lane % 8 + lane / 16 * 8, y_chunk = lane / 8 % 2;
    int sums[4][8][4] = {};

    __syncthreads();   // the tile before has been read
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        if (step < steps) load(step, step);
        commit_copies();
    }
    int stage = 0, free = STAGES - 1;
    for (int step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();   // everyone's copies to this stage are there, and everyone has read the one that is free
        if (step + STAGES - 1 < steps) load(step + STAGES - 1, free);
        commit_copies();
        const unsigned at_b = ring + stage * STAGE, at_a = at_b + OPERAND;
#pragma unroll
        for (int half = 0; half < DEPTH / 32; half++) {
            unsigned x[4][4], y[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) load_matrices(x[i], at_b + chunk_at(x_line + 16 * i, 2 * half + x_chunk));
#pragma unroll
            for (int j = 0; j < 4; j++) load_matrices(y[j], at_a + chunk_at(y_line + 16 * j, 2 * half + y_chunk));
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) multiply16x8(sums[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        free = free + 1 == STAGES ? 0 : free + 1;
    }
    // Lane 4 g + q has the columns g and g + 8 of every 16, and for each the rows 16 q .. 16 q + 15.
    const int row = first_row + warp % 2 * 64 + lane % 4 * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int high = 0; high < 2; high++) {
            const int column = first_column + warp / 2 * 64 + 16 * i + 8 * high + lane / 4;
            if (row >= p.rows || column >= p.columns) continue;
            Bytes* out = reinterpret_cast<Bytes*>(p.out + ((long long)tile.plane * p.columns + column) * p.rows + row);
            Bytes bytes{};
            if (p.add) bytes = *out;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int *even = &sums[i][2 * n][2 * high], *odd = &sums[i][2 * n + 1][2 * high];
                bytes.of[n] = four_residues(even[0], even[1], odd[0], odd[1], bytes.of[n], m);
            }
            *out = bytes;
        }
    }
}

#endif

// out[(plane * columns + j) * rows + i] = the canonical residue of sum_h A_i[h] B_j[h] (+ what is there if `add` is not 0) modulo
// p_(modulus_of[plane]), for all planes, i < rows and j < columns. A_i lies at a + (plane * rows + place(i)) * pitch, B_j at
// b + (plane * columns + j) * pitch.
// rows must be a multiple of 64, pitch one of 16 and at most 65536; a, b and out aligned to 16. band: of tile_at, from 1 on.
// Launch: block 128; grid x from 1 to the number of tiles, planes ceil(rows / 128) ceil(columns / 128).
extern "C" __global__ void __launch_bounds__(128, 2)
oz2_product_mma(const signed char* __restrict__ a, const signed char* __restrict__ b, int rows, int columns, int pitch, int planes,
                const int* __restrict__ modulus_of, signed char* __restrict__ out, int add, int band)
{
    const Problem problem{a, b, rows, columns, pitch, out, add != 0};
    const int across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    for (int number = blockIdx.x; number < planes * across * down; number += gridDim.x) {
        const Tile tile = tile_at(number, across, down, band);
        multiply(problem, tile, MODULI.of[modulus_of[tile.plane]]);
    }
}

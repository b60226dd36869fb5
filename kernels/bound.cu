// Step bound: 7-bit magnitudes, and what the plan needs from their integer product G (src/ozaki/bound.rs and plan.rs).
// Lines as in scan.cu. Every sum is an exact integer and no logarithm is taken, so nothing depends on the order of the threads.

// ---- magnitudes

constexpr int LINES = 16;    // lines of a tile
constexpr int DEPTH = 128;   // elements of a line in a tile: a warp writes 32 words of four bytes
constexpr int WARPS = 8;

// Two neighbours that are loaded as one.
struct alignas(16) Pair {
    double of[2];
};

// A tile of doubles that were read line by line next to each other and are used element by element. Element h lies at
// (h % 4) * 33 + h / 4: a warp that takes four neighbours a lane then reads without bank conflicts, and the odd length of a
// line keeps the writes without.
constexpr int TILE_LINE = 4 * 33 + 1;

// The four elements from h on of a line, zeros behind its end.
__device__ inline void load_four(const double* line, long long h, int length, bool aligned, double (&out)[4]) {
    if (aligned && h + 4 <= length) {
        const Pair low = *reinterpret_cast<const Pair*>(line + h), high = *reinterpret_cast<const Pair*>(line + h + 2);
        out[0] = low.of[0], out[1] = low.of[1], out[2] = high.of[0], out[3] = high.of[1];
    } else {
#pragma unroll
        for (int n = 0; n < 4; n++) out[n] = h + n < length ? line[h + n] : 0.0;
    }
}

// floor(|x| 2^(7-e)), in 0..127 for |x| < 2^e.
__device__ inline unsigned magnitude(double x, int e) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x) & 0x7FFFFFFFFFFFFFFFull;
    const int biased = (int)(bits >> 52);
    const unsigned long long m = (bits & 0xFFFFFFFFFFFFFull) | (biased == 0 ? 0 : 1ull << 52);
    const int q = max(biased, 1) - 1075;
    // Seven bits are put below m first because a subnormal m may have fewer.
    return (unsigned)((m << 7) >> min(max(e - q, 0), 63)) & 0xFF;
}

// out[line * pitch + h] = magnitude, with zeros for h in length..pitch and for lines in lines..padded_lines. Adds to each line's
// sums and squares, which the host sets to 0 before; either may be null.
// pitch must be a multiple of 4 and out be aligned to 4 (cuBLAS asks for both too).
// Launch: block 256; grid x = ceil(padded_lines / 16), y = min(65535, ceil(pitch / 512)).
extern "C" __global__ void oz2_magnitudes(const double* __restrict__ x, long long line_stride, long long element_stride, int lines,
                                          int length, int padded_lines, const int* __restrict__ exponents,
                                          signed char* __restrict__ out, long long pitch, unsigned long long* __restrict__ sums,
                                          unsigned long long* __restrict__ squares)
{
    __shared__ double tile[LINES * TILE_LINE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_line = blockIdx.x * LINES;
    const bool aligned = ((unsigned long long)x % 16 == 0) && line_stride % 2 == 0;
    unsigned long long sum[LINES / WARPS] = {}, square[LINES / WARPS] = {};
    for (long long first = (long long)blockIdx.y * DEPTH; first < pitch; first += (long long)gridDim.y * DEPTH) {
        if (element_stride != 1) {
            __syncthreads();   // the tile before has been used
            const int line = first_line + threadIdx.x % LINES;
            for (int at = threadIdx.x / LINES; at < DEPTH; at += 256 / LINES) {
                const long long h = first + at;
                const double value = line < lines && h < length ? x[line * line_stride + h * element_stride] : 0.0;
                tile[threadIdx.x % LINES * TILE_LINE + at % 4 * 33 + at / 4] = value;
            }
            __syncthreads();
        }
        const long long h = first + 4 * lane;
#pragma unroll
        for (int r = 0; r < LINES / WARPS; r++) {
            const int in_tile = warp + WARPS * r, line = first_line + in_tile;
            if (line >= padded_lines || h >= pitch) continue;
            unsigned packed = 0;
            if (line < lines) {
                double values[4];
                if (element_stride == 1) {
                    load_four(x + line * line_stride, h, length, aligned, values);
                } else {
#pragma unroll
                    for (int n = 0; n < 4; n++) values[n] = tile[in_tile * TILE_LINE + n * 33 + lane];
                }
                const int e = exponents[line];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const unsigned a = magnitude(values[n], e);
                    packed |= a << (8 * n);
                    sum[r] += a;
                    square[r] += values[n] == 0.0 ? 0 : (a + 1) * (a + 1);
                }
            }
            *reinterpret_cast<unsigned*>(out + line * pitch + h) = packed;
        }
    }
    if (sums == nullptr && squares == nullptr) return;
#pragma unroll
    for (int r = 0; r < LINES / WARPS; r++) {
        for (int distance = 16; distance > 0; distance /= 2) {
            sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], distance);
            square[r] += __shfl_xor_sync(0xFFFFFFFFu, square[r], distance);
        }
        const int line = first_line + warp + WARPS * r;
        if (lane != 0 || line >= lines) continue;
        if (sums != nullptr && sum[r] != 0) atomicAdd(sums + line, sum[r]);
        if (squares != nullptr && square[r] != 0) atomicAdd(squares + line, square[r]);
    }
}

// ---- the bound product

// g[i] = sums[i] for the first block of the inner dimension, g[i] += sums[i] for the others.
// Launch: block 256; grid x = min(2^31 - 1, ceil(count / 256)).
extern "C" __global__ void oz2_add_bounds(const int* __restrict__ sums, long long* __restrict__ g, long long count, int first)
{
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        g[i] = sums[i] + (first ? 0 : g[i]);
    }
}

// ---- the plan: walks over the entries of G, which is column-major with the leading dimension ld
//
// A thread has one row and walks along 32 columns, so a warp reads neighbours. What belongs to a row stays in registers; what
// belongs to a column is first collected for the block in shared memory, where the maximum so far is looked at before an
// atomic operation is spent. An entry takes part only if its row and its column have a nonzero.

constexpr int COLUMNS = 32;   // columns that a block takes at a time

// What the plan looks at in a line.
struct Line {
    unsigned nonzeros;
    unsigned long long sum;

    __device__ bool is_zero() const { return nonzeros == 0; }
};

__device__ inline Line line_at(const unsigned* nonzeros, const unsigned long long* sums, int at, int count) {
    return at < count ? Line{nonzeros[at], sums[at]} : Line{0, 0};
}

// A positive number u 2^x: 2^(bits-1) <= u 2^x < 2^bits, and the leading 64 bits. Ordered as the numbers are.
struct Magnitude {
    int bits;
    unsigned long long leading;

    __device__ Magnitude(unsigned long long u, int x) {
        const int zeros = __clzll((long long)u);
        bits = 64 - zeros + x;
        leading = u << zeros;
    }

    // The least integer c with this number <= 2^c other.
    __device__ int ceil_log2_ratio(const Magnitude& other) const { return bits - other.bits + (leading > other.leading ? 1 : 0); }
};

// U: an upper bound of sum_h |a b| 2^(14-e-f).
__device__ inline unsigned long long upper(long long g, const Line& row, const Line& column) {
    return (unsigned long long)g + row.sum + column.sum + min(row.nonzeros, column.nonzeros);
}

// floor(lg T) for n >= 1 nonzeros, the accuracy T of NUMERICS section 3.
__device__ inline int floor_lg_t(int accuracy, unsigned n) {
    if (accuracy == 0) return 1 + (31 - __clz((int)n)) / 2;
    if (accuracy == 1) return 31 - __clz((int)max(n - 1, 1u));
    return 0;
}

// Raises *to where that does anything; a look costs less than an atomic operation.
template <class T> __device__ inline void raise(T* to, T value) {
    if (*const_cast<volatile T*>(to) < value) atomicMax(to, value);
}

// Calls take(c, column, G) for the entries of this thread's row in the columns first..first + 32 that take part. `of_column` holds
// these columns, zero behind the last one. Four entries are on their way at a time.
template <class Take>
__device__ inline void for_each(const long long* g, int ld, const Line& row, int i, long long first, int columns,
                                const Line* of_column, Take take) {
    if (row.is_zero()) return;
    const long long* from = g + first * ld + i;
    for (int c = 0; c < COLUMNS; c += 4) {
        long long entries[4];
#pragma unroll
        for (int n = 0; n < 4; n++) entries[n] = first + c + n < columns ? from[(long long)(c + n) * ld] : 0;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const Line column = of_column[c + n];
            if (!column.is_zero()) take(c + n, column, entries[n]);
        }
    }
}

constexpr int UNPROVABLE = 10000;   // the need of an entry whose lower bound is zero: more than any N has

// Mode auto, step 1: raises the needs, which the host sets to 0 before. accuracy: 0 fp64, 1 textbook, 2 high. An entry with
// G = 0 sets nothing here but is counted in *zeros (which stops counting somewhere above 2^31): oz2_meet decides about it.
// Launch: block 256; grid x = ceil(rows / 256), y = min(65535, ceil(columns / 32)).
extern "C" __global__ void oz2_needs(const long long* __restrict__ g, int ld, int rows, int columns,
                                     const unsigned int* __restrict__ row_nonzeros, const unsigned long long* __restrict__ row_sums,
                                     const unsigned int* __restrict__ column_nonzeros,
                                     const unsigned long long* __restrict__ column_sums, int accuracy, int* __restrict__ row_needs,
                                     int* __restrict__ column_needs, unsigned int* __restrict__ zeros)
{
    __shared__ Line of_column[COLUMNS];
    __shared__ int needs[COLUMNS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const Line row = line_at(row_nonzeros, row_sums, i, rows);
    const Magnitude row_total(max(row.sum + row.nonzeros, 1ull), 0);
    int row_need = 0;
    unsigned found_zeros = 0;
    for (long long first = (long long)blockIdx.y * COLUMNS; first < columns; first += (long long)gridDim.y * COLUMNS) {
        if (threadIdx.x < COLUMNS) {
            of_column[threadIdx.x] = line_at(column_nonzeros, column_sums, (int)first + threadIdx.x, columns);
            needs[threadIdx.x] = 0;
        }
        __syncthreads();
        for_each(g, ld, row, i, first, columns, of_column, [&](int c, const Line& column, long long entry) {
            if (entry <= 0) {
                found_zeros++;
                return;
            }
            const int bits = 53 - floor_lg_t(accuracy, min(row.nonzeros, column.nonzeros));
            const Magnitude lower((unsigned long long)entry, 0), column_total(column.sum + column.nonzeros, 0);
            row_need = max(row_need, bits + column_total.ceil_log2_ratio(lower));
            raise(&needs[c], bits + row_total.ceil_log2_ratio(lower));
        });
        __syncthreads();   // from here to the next barrier each of the first threads looks only at its own column
        if (threadIdx.x < COLUMNS && needs[threadIdx.x] > 0) raise(column_needs + first + threadIdx.x, needs[threadIdx.x]);
    }
    if (row_need > 0) raise(row_needs + i, row_need);
    if (found_zeros > 0 && *const_cast<volatile unsigned*>(zeros) < 1u << 31) atomicAdd(zeros, found_zeros);
}

// Mode accurate: raises R_i = max_j U_ij and K_j = max_i U_ij, which the host sets to 0 before.
// Launch: as oz2_needs.
extern "C" __global__ void oz2_maxima(const long long* __restrict__ g, int ld, int rows, int columns,
                                      const unsigned int* __restrict__ row_nonzeros, const unsigned long long* __restrict__ row_sums,
                                      const unsigned int* __restrict__ column_nonzeros,
                                      const unsigned long long* __restrict__ column_sums, unsigned long long* __restrict__ row_maxima,
                                      unsigned long long* __restrict__ column_maxima)
{
    __shared__ Line of_column[COLUMNS];
    __shared__ unsigned long long maxima[COLUMNS];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const Line row = line_at(row_nonzeros, row_sums, i, rows);
    unsigned long long row_maximum = 0;
    for (long long first = (long long)blockIdx.y * COLUMNS; first < columns; first += (long long)gridDim.y * COLUMNS) {
        if (threadIdx.x < COLUMNS) {
            of_column[threadIdx.x] = line_at(column_nonzeros, column_sums, (int)first + threadIdx.x, columns);
            maxima[threadIdx.x] = 0;
        }
        __syncthreads();
        for_each(g, ld, row, i, first, columns, of_column, [&](int c, const Line& column, long long entry) {
            const unsigned long long u = upper(entry, row, column);
            row_maximum = max(row_maximum, u);
            raise(&maxima[c], u);
        });
        __syncthreads();   // as in oz2_needs
        if (threadIdx.x < COLUMNS && maxima[threadIdx.x] > 0) raise(column_maxima + first + threadIdx.x, maxima[threadIdx.x]);
    }
    if (row_maximum > 0) raise(row_maxima + i, row_maximum);
}

// Calls take(2^(row need + column need) U) for each entry of this thread's row in the block's columns. The two arrays are shared
// memory of the block; the block has met at a barrier when this returns.
template <class Take>
__device__ inline void for_each_scaled(const long long* g, int ld, int rows, int columns, const unsigned* row_nonzeros,
                                       const unsigned long long* row_sums, const unsigned* column_nonzeros,
                                       const unsigned long long* column_sums, const int* row_needs, const int* column_needs,
                                       Line* of_column, int* need_of_column, Take take) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const Line row = line_at(row_nonzeros, row_sums, i, rows);
    const int row_need = i < rows ? row_needs[i] : 0;
    for (long long first = (long long)blockIdx.y * COLUMNS; first < columns; first += (long long)gridDim.y * COLUMNS) {
        __syncthreads();   // the columns before are done with
        if (threadIdx.x < COLUMNS) {
            const int j = (int)first + threadIdx.x;
            of_column[threadIdx.x] = line_at(column_nonzeros, column_sums, j, columns);
            need_of_column[threadIdx.x] = j < columns ? column_needs[j] : 0;
        }
        __syncthreads();
        for_each(g, ld, row, i, first, columns, of_column, [&](int c, const Line& column, long long entry) {
            take(Magnitude(upper(entry, row, column), row_need + need_of_column[c]));
        });
    }
    __syncthreads();
}

// Mode auto, steps 3 and 4, the largest 2^(need_i + need_j) U_ij, part one: its bits. The host sets every byte of *bits to 0x80.
// Launch: as oz2_needs.
extern "C" __global__ void oz2_largest_bits(const long long* __restrict__ g, int ld, int rows, int columns,
                                            const unsigned int* __restrict__ row_nonzeros,
                                            const unsigned long long* __restrict__ row_sums,
                                            const unsigned int* __restrict__ column_nonzeros,
                                            const unsigned long long* __restrict__ column_sums, const int* __restrict__ row_needs,
                                            const int* __restrict__ column_needs, int* __restrict__ bits)
{
    __shared__ Line of_column[COLUMNS];
    __shared__ int need_of_column[COLUMNS];
    __shared__ int of_block;
    constexpr int NONE = -2147483647 - 1;
    int largest = NONE;
    if (threadIdx.x == 0) of_block = NONE;
    for_each_scaled(g, ld, rows, columns, row_nonzeros, row_sums, column_nonzeros, column_sums, row_needs, column_needs, of_column,
                    need_of_column, [&](const Magnitude& entry) { largest = max(largest, entry.bits); });
    raise(&of_block, largest);
    __syncthreads();
    if (threadIdx.x == 0 && of_block != NONE) raise(bits, of_block);
}

// Part two: the largest leading bits among the entries that have *bits. The host sets *leading to 0 before.
// Launch: as oz2_needs.
extern "C" __global__ void oz2_largest_leading(const long long* __restrict__ g, int ld, int rows, int columns,
                                               const unsigned int* __restrict__ row_nonzeros,
                                               const unsigned long long* __restrict__ row_sums,
                                               const unsigned int* __restrict__ column_nonzeros,
                                               const unsigned long long* __restrict__ column_sums, const int* __restrict__ row_needs,
                                               const int* __restrict__ column_needs, const int* __restrict__ bits,
                                               unsigned long long* __restrict__ leading)
{
    __shared__ Line of_column[COLUMNS];
    __shared__ int need_of_column[COLUMNS];
    __shared__ unsigned long long of_block;
    const int largest_bits = *bits;
    unsigned long long largest = 0;
    if (threadIdx.x == 0) of_block = 0;
    for_each_scaled(g, ld, rows, columns, row_nonzeros, row_sums, column_nonzeros, column_sums, row_needs, column_needs, of_column,
                    need_of_column, [&](const Magnitude& entry) {
                        if (entry.bits == largest_bits) largest = max(largest, entry.leading);
                    });
    raise(&of_block, largest);
    __syncthreads();
    if (threadIdx.x == 0 && of_block != 0) raise(leading, of_block);
}

// ---- supports that meet

constexpr int SIDE = 64;   // rows and columns of a tile of entries
constexpr int STEP = 64;   // elements of a line at a time: two words of bits

// Which of up to 32 elements from h on are not zero, for 32 neighbouring lines: one word for each. All lanes of the warp take
// part.
__device__ inline void support(const double* x, long long line_stride, long long element_stride, int first_line, int lines,
                               long long h, int length, unsigned* words) {
    const int lane = threadIdx.x % 32;
    if (element_stride == 1) {
#pragma unroll 8
        for (int l = 0; l < 32; l++) {
            const int line = first_line + l;
            const bool nonzero = line < lines && h + lane < length && x[line * line_stride + h + lane] != 0.0;
            const unsigned word = __ballot_sync(0xFFFFFFFFu, nonzero);
            if (lane == 0) words[l] = word;
        }
    } else {
        const int line = first_line + lane;
        unsigned word = 0;
#pragma unroll 8
        for (int n = 0; n < 32; n++) {
            const bool nonzero = line < lines && h + n < length && x[line * line_stride + (h + n) * element_stride] != 0.0;
            word |= (unsigned)nonzero << n;
        }
        words[lane] = word;
    }
}

// Where G = 0 although row and column both have nonzeros: if they have one at the same h, nothing can be proved, and both
// needs become 10000. A product of bit masks, which ends as soon as each such entry of the tile has met.
// Launch: block 256; grid x = ceil(rows / 64), y = min(65535, ceil(columns / 64)).
extern "C" __global__ void oz2_meet(const double* __restrict__ a, long long a_line_stride, long long a_element_stride,
                                    const double* __restrict__ b, long long b_line_stride, long long b_element_stride, int length,
                                    const long long* __restrict__ g, int ld, int rows, int columns,
                                    const unsigned int* __restrict__ row_nonzeros, const unsigned int* __restrict__ column_nonzeros,
                                    int* __restrict__ row_needs, int* __restrict__ column_needs)
{
    constexpr int OWN = SIDE * SIDE / 256;   // entries of a thread: one row, these columns
    __shared__ unsigned of_row[STEP / 32][SIDE], of_column[STEP / 32][SIDE];
    const int warp = threadIdx.x / 32;
    const int first_row = blockIdx.x * SIDE, in_rows = threadIdx.x % SIDE, in_columns = threadIdx.x / SIDE * OWN;
    const int i = first_row + in_rows;
    for (long long first_column = (long long)blockIdx.y * SIDE; first_column < columns; first_column += (long long)gridDim.y * SIDE) {
        unsigned open = 0, met = 0;   // by bits: the entries to decide, and those that met
        for (int n = 0; n < OWN; n++) {
            const long long j = first_column + in_columns + n;
            if (i < rows && j < columns && row_nonzeros[i] != 0 && column_nonzeros[j] != 0 && g[j * ld + i] == 0) open |= 1u << n;
        }
        for (long long h = 0; h < length && __syncthreads_or((int)open); h += STEP) {
            // Each of the eight warps finds the words of 32 lines: two halves of the rows and two of the columns, two words each.
            const int half = warp / 2 % 2 * 32, word = warp % 2;
            if (warp < 4) {
                support(a, a_line_stride, a_element_stride, first_row + half, rows, h + 32 * word, length, &of_row[word][half]);
            } else {
                support(b, b_line_stride, b_element_stride, (int)first_column + half, columns, h + 32 * word, length,
                        &of_column[word][half]);
            }
            __syncthreads();
            const unsigned low = of_row[0][in_rows], high = of_row[1][in_rows];
            for (int n = 0; n < OWN; n++) {
                const int c = in_columns + n;
                if (((low & of_column[0][c]) | (high & of_column[1][c])) != 0) met |= (open >> n & 1) << n;
            }
            open &= ~met;
        }
        for (int n = 0; n < OWN; n++) {
            if ((met >> n & 1) == 0) continue;
            raise(row_needs + i, UNPROVABLE);
            raise(column_needs + first_column + in_columns + n, UNPROVABLE);
        }
    }
}

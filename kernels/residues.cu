// Step residues: scaling by a power of two, rounding to an integer, residues modulo every modulus (src/ozaki/residues.rs).
// Lines as in scan.cu.

constexpr int MAX_MODULI = 20;
constexpr int MAX_SHIFT = 9; // M 2^9 still fits eight digits

// Two neighbours that are loaded as one.
struct alignas(16) Pair {
    double of[2];
};

// How a block works with so many levels of Strassen's form: it takes a tile of every part of its operand.
template <int LEVELS>
struct Shape {
    static constexpr int side = 1 << LEVELS;             // parts along the lines, and along the inner dimension
    static constexpr int width = LEVELS == 2 ? 2 : 4;    // neighbours that a thread takes of a line: 16 parts fill its registers
    static constexpr int depth = 32 * width;             // elements of a line in a tile: a warp takes them
    static constexpr int lines = 16 / side;              // of a tile
    static constexpr int threads = LEVELS == 2 ? 128 : 256;
    // A tile of doubles that were read line by line next to each other and are used element by element. Element h lies at
    // (h % width) * 33 + h / width: a warp then reads without bank conflicts, and the odd length of a line keeps the writes without.
    static constexpr int tile_line = 33 * width + 1;
    static_assert(side * side * lines * tile_line * 8 <= 48 << 10, "the shared memory of a block");
};

// The elements from h on of a line, zeros behind its end.
template <int WIDTH>
__device__ inline void load(const double* line, long long h, int length, bool aligned, double (&out)[WIDTH]) {
    if (aligned && h + WIDTH <= length) {
#pragma unroll
        for (int n = 0; n < WIDTH; n += 2) {
            const Pair pair = *reinterpret_cast<const Pair*>(line + h + n);
            out[n] = pair.of[0], out[n + 1] = pair.of[1];
        }
    } else {
#pragma unroll
        for (int n = 0; n < WIDTH; n++) out[n] = h + n < length ? line[h + n] : 0.0;
    }
}

// ---- constants of the moduli, computed by the compiler

struct Modulus {
    int p;
    unsigned reciprocal;   // 2^32 / p, rounded up
    int low, high;         // the canonical residues of 256^0..3 and of 256^4..7, a byte each
    signed char powers[20];   // the canonical residues of 256^b
};

struct Moduli {
    Modulus of[MAX_MODULI];
};

__device__ constexpr Moduli make_moduli() {
    constexpr int P[MAX_MODULI] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173};
    Moduli out{};
    for (int l = 0; l < MAX_MODULI; l++) {
        const int p = P[l];
        Modulus& m = out.of[l];
        m.p = p;
        m.reciprocal = (unsigned)(((1ull << 32) + p - 1) / p);
        unsigned words[2] = {};
        int power = 1;
        for (int b = 0; b < 20; b++) {
            const int canonical = power > (p - 1) / 2 ? power - p : power;
            m.powers[b] = (signed char)canonical;
            if (b < 8) words[b / 4] |= (unsigned)(canonical & 0xFF) << (8 * (b % 4));
            power = power * 256 % p;
        }
        m.low = (int)words[0];
        m.high = (int)words[1];
    }
    return out;
}

__device__ constexpr Moduli MODULI = make_moduli();

// ---- one element

// Four products of signed bytes added to c. NVRTC 12.0 declares __dp4a but leaves it an unresolved call.
__device__ inline int dot4(int a, int b, int c) {
#ifdef __SOFTGPU__
    return __dp4a(a, b, c);
#else
    int sum;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
#endif
}

// a' = RN_int(x 2^s) as sum of d_b 256^(b + bytes), b = 0..7, with digits of -128..127.
struct Digits {
    int low, high;   // d_0..3 and d_4..7
};

// `bytes`: 0 unless a' takes more than 62 bits.
__device__ inline Digits scaled(double x, int s, int& bytes) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x);
    const int biased = (int)(bits >> 52) & 0x7FF;
    unsigned long long m = (bits & 0xFFFFFFFFFFFFFull) | (biased == 0 ? 0 : 1ull << 52);
    const int shift = max(biased, 1) - 1075 + s;
    bytes = 0;
    if (shift < 0) {
        // Half of the last kept bit, less one if that bit is even, so that a tie goes to the even neighbour. From 55 bits on
        // nothing is left of m < 2^53.
        const int drop = min(-shift, 55);
        m = (m + (1ull << (drop - 1)) - 1 + (m >> drop & 1)) >> drop;
    } else if (shift <= MAX_SHIFT) {
        m <<= shift;
    } else if (m != 0) {
        m <<= shift % 8;
        bytes = min(shift / 8, 19);   // a plan keeps |a'| below 2^156: the bound only guards the table
    }
    if ((long long)bits < 0) m = 0 - m;
    // Adding 128 to every byte with carries, and taking it off again without, makes signed digits of the bytes.
    constexpr unsigned long long HALVES = 0x8080808080808080ull;
    const unsigned long long digits = (m + HALVES) ^ HALVES;
    return {(int)(unsigned)digits, (int)(unsigned)(digits >> 32)};
}

// What canonical() wants added to its t.
__device__ constexpr int lift(int p) { return 1024 * p; }

// The canonical residue of t, |t| <= 2^17, in the low byte, from lifted = t + lift(p), which is positive. The quotient
// floor((lifted + (p-1)/2) / p) is exact: the error of the reciprocal adds less than 2^19 / 2^32 < 1/p.
// (Modulo 256 the byte is right whatever the quotient.)
__device__ inline int canonical(int lifted, const Modulus& m) {
    const unsigned long long half = (unsigned long long)((m.p - 1) / 2) * m.reciprocal;
    const unsigned quotient = (unsigned)(((unsigned long long)(unsigned)lifted * m.reciprocal + half) >> 32);
    return lifted - (int)quotient * m.p;
}

// Where a line of A lies for the product kernels (kernels/product_mma.cu): in every block of 64, line 16 q + 2 j + b at 8 j + 2 q + b.
__device__ inline int place(int line) { return (line & ~63) | (line >> 1 & 7) << 3 | (line >> 4 & 3) << 1 | (line & 1); }

// An operand: its lines, and where their residues go.
struct Operand {
    const double* x;
    long long line_stride, element_stride;
    int lines, padded_lines;
    const int* scales;
    signed char* out;
    bool permuted;
};

// ---- Strassen's form (docs/gpu.md)
//
// An operand is cut in halves by its lines and by its inner dimension. Of each of the four quarters the residues are taken once, and
// combined to the seven operands of the products M1 .. M7:
//   A: A11, A12, S4, A22, S1, S2, S3 with S1 = A21 + A22, S2 = S1 - A11, S3 = A11 - A21, S4 = A12 - S2
//   B: B11, B21, B22, T4, T1, T2, T3 with T1 = B12 - B11, T2 = B22 - T1, T3 = B22 - B12, T4 = T2 - B21
// With two levels each of the seven is cut and combined in the same way.

constexpr int PRODUCTS = 7;

// The canonical residue of a sum or a difference of two. Modulo 256 any byte is one.
__device__ inline int wrapped(int x, int p) { return x > (p - 1) / 2 ? x - p : x < -(p / 2) ? x + p : x; }

// of[line half][inner half]: the lines of B are its columns.
__device__ inline void combine(const int (&of)[2][2], bool is_a, int p, int (&out)[PRODUCTS]) {
    out[0] = of[0][0];
    out[1] = of[0][1];
    if (is_a) {
        out[3] = of[1][1];
        out[4] = wrapped(of[1][0] + of[1][1], p);
        out[5] = wrapped(out[4] - of[0][0], p);
        out[6] = wrapped(of[0][0] - of[1][0], p);
        out[2] = wrapped(of[0][1] - out[5], p);
    } else {
        out[2] = of[1][1];
        out[4] = wrapped(of[1][0] - of[0][0], p);
        out[5] = wrapped(of[1][1] - out[4], p);
        out[6] = wrapped(of[1][1] - of[1][0], p);
        out[3] = wrapped(out[5] - of[0][1], p);
    }
}

// The operands of all products, of SIDE x SIDE parts of WIDTH neighbours each; `take` gets them one by one.
template <int SIDE, int WIDTH, typename Take>
__device__ inline void combine_all(const int (&of)[SIDE][SIDE][WIDTH], bool is_a, int p, const Take& take) {
    if constexpr (SIDE == 1) {
        take(of[0][0]);
    } else {
        constexpr int HALF = SIDE / 2;
        int combined[PRODUCTS][HALF][HALF][WIDTH];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
#pragma unroll
            for (int j = 0; j < HALF; j++) {
#pragma unroll
                for (int n = 0; n < WIDTH; n++) {
                    const int quarters[2][2] = {{of[i][j][n], of[i][j + HALF][n]}, {of[i + HALF][j][n], of[i + HALF][j + HALF][n]}};
                    int out[PRODUCTS];
                    combine(quarters, is_a, p, out);
#pragma unroll
                    for (int c = 0; c < PRODUCTS; c++) combined[c][i][j][n] = out[c];
                }
            }
        }
#pragma unroll
        for (int c = 0; c < PRODUCTS; c++) combine_all<HALF, WIDTH>(combined[c], is_a, p, take);
    }
}

// ---- a tile

// Neighbouring residues, a byte each, to memory.
__device__ inline void write(signed char* to, const int (&r)[4]) {
    const unsigned low = __byte_perm((unsigned)r[0], (unsigned)r[1], 0x0040), high = __byte_perm((unsigned)r[2], (unsigned)r[3], 0x0040);
    *reinterpret_cast<unsigned*>(to) = __byte_perm(low, high, 0x5410);
}

__device__ inline void write(signed char* to, const int (&r)[2]) {
    *reinterpret_cast<unsigned short*>(to) = (unsigned short)__byte_perm((unsigned)r[0], (unsigned)r[1], 0x0040);
}

// Residues of the corresponding lines and elements of all parts of an operand. Every element is read once, for all moduli.
template <int LEVELS>
__device__ inline void residues(const Operand& a, bool is_a, int first_line, int length, int moduli, long long pitch) {
    using S = Shape<LEVELS>;
    __shared__ double tile[S::side][S::side][S::lines * S::tile_line];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool aligned = ((unsigned long long)a.x % 16 == 0) && a.line_stride % 2 == 0;
    const long long plane = a.padded_lines * pitch;
    for (long long first = (long long)blockIdx.y * S::depth; first < pitch; first += (long long)gridDim.y * S::depth) {
        if (a.element_stride != 1) {
            __syncthreads();   // the tile before has been used
            const int in_tile = threadIdx.x % S::lines;
#pragma unroll
            for (int part = 0; part < S::side * S::side; part++) {
                const int line = part / S::side * a.padded_lines + first_line + in_tile;
                for (int at = threadIdx.x / S::lines; at < S::depth; at += S::threads / S::lines) {
                    const long long h = part % S::side * pitch + first + at;
                    const bool inside = first_line + in_tile < a.padded_lines && first + at < pitch && line < a.lines && h < length;
                    const double value = inside ? a.x[line * a.line_stride + h * a.element_stride] : 0.0;
                    tile[part / S::side][part % S::side][in_tile * S::tile_line + at % S::width * 33 + at / S::width] = value;
                }
            }
            __syncthreads();
        }
        const long long in_pitch = first + S::width * lane;
        for (int in_tile = warp; in_tile < S::lines; in_tile += S::threads / 32) {
            const int in_part = first_line + in_tile;
            if (in_part >= a.padded_lines || in_pitch >= pitch) continue;
            Digits digits[S::side][S::side][S::width];
            // The bytes of each, four of a line in a word: they are seldom wanted, and would take as many registers as they are.
            unsigned bytes[S::side][S::side * S::width / 4] = {}, any_bytes = 0;
#pragma unroll
            for (int i = 0; i < S::side; i++) {
                const int line = i * a.padded_lines + in_part;
                const int scale = line < a.lines ? a.scales[line] : 0;
#pragma unroll
                for (int j = 0; j < S::side; j++) {
                    double values[S::width] = {};
                    if (line < a.lines) {
                        if (a.element_stride == 1) {
                            load(a.x + line * a.line_stride, j * pitch + in_pitch, length, aligned, values);
                        } else {
#pragma unroll
                            for (int n = 0; n < S::width; n++) values[n] = tile[i][j][in_tile * S::tile_line + n * 33 + lane];
                        }
                    }
#pragma unroll
                    for (int n = 0; n < S::width; n++) {
                        int own;
                        digits[i][j][n] = scaled(values[n], scale, own);
                        any_bytes |= (unsigned)own;
                        bytes[i][(j * S::width + n) / 4] |= (unsigned)own << (8 * ((j * S::width + n) % 4));
                    }
                }
            }
            signed char* to = a.out + (a.permuted ? place(in_part) : in_part) * pitch + in_pitch;
            auto write_all = [&](const Modulus& m) {
                int r[S::side][S::side][S::width];
#pragma unroll
                for (int i = 0; i < S::side; i++) {
#pragma unroll
                    for (int j = 0; j < S::side; j++) {
#pragma unroll
                        for (int n = 0; n < S::width; n++) {
                            const Digits& d = digits[i][j][n];
                            int x = canonical(dot4(d.low, m.low, dot4(d.high, m.high, lift(m.p))), m);
                            if (any_bytes != 0) {
                                const unsigned own = bytes[i][(j * S::width + n) / 4] >> (8 * ((j * S::width + n) % 4)) & 0xFF;
                                x = canonical((signed char)x * m.powers[own] + lift(m.p), m);
                            }
                            r[i][j][n] = (signed char)x;
                        }
                    }
                }
                combine_all(r, is_a, m.p, [&](const int (&combined)[S::width]) {
                    write(to, combined);
                    to += plane;
                });
            };
            if constexpr (LEVELS == 0) {
#pragma unroll
                for (int l = 0; l < MAX_MODULI; l++) {
                    if (l >= moduli) break;
                    write_all(MODULI.of[l]);
                }
            } else {
                // A modulus is work enough here, and the code of all of them too much.
#pragma unroll 1
                for (int l = 0; l < moduli; l++) write_all(MODULI.of[l]);
            }
        }
    }
}

// The part of a block of both operands in one launch.
template <int LEVELS>
__device__ inline void residues_of_both(const Operand& a, const Operand& b, int length, int moduli, long long pitch) {
    constexpr int LINES = Shape<LEVELS>::lines;
    const int blocks_a = (a.padded_lines + LINES - 1) / LINES, block = blockIdx.x;
    const bool is_a = block < blocks_a;
    // Field by field: a choice between two structures would put both into local memory.
    const Operand of{is_a ? a.x : b.x,
                     is_a ? a.line_stride : b.line_stride,
                     is_a ? a.element_stride : b.element_stride,
                     is_a ? a.lines : b.lines,
                     is_a ? a.padded_lines : b.padded_lines,
                     is_a ? a.scales : b.scales,
                     is_a ? a.out : b.out,
                     is_a && a.permuted};
    residues<LEVELS>(of, is_a, (is_a ? block : block - blocks_a) * LINES, length, moduli, pitch);
}

// Both operands of a product in one launch; padded lines of 0 leave one out. For l < moduli, with the names of either operand:
// out[(l * padded_lines + line) * pitch + h] = the canonical residue of RN_int(x 2^scale) modulo p_l, with zeros for h in
// length..pitch and for lines in lines..padded_lines. x must be finite. If permuted is not 0, place(line) stands for line in A.
// pitch must be a multiple of 4 and out be aligned to 4 (cuBLAS asks for these too), with `permuted` padded_a one of 64.
// Launch: block 256; grid x = ceil(padded_a / 16) + ceil(padded_b / 16), y = min(65535, ceil(pitch / 128)).
extern "C" __global__ void oz2_residues(const double* __restrict__ a, long long line_stride_a, long long element_stride_a, int lines_a,
                                        int padded_a, const int* __restrict__ scales_a, signed char* __restrict__ out_a,
                                        const double* __restrict__ b, long long line_stride_b, long long element_stride_b, int lines_b,
                                        int padded_b, const int* __restrict__ scales_b, signed char* __restrict__ out_b, int length,
                                        int moduli, long long pitch, int permuted)
{
    residues_of_both<0>({a, line_stride_a, element_stride_a, lines_a, padded_a, scales_a, out_a, permuted != 0},
                        {b, line_stride_b, element_stride_b, lines_b, padded_b, scales_b, out_b, false}, length, moduli, pitch);
}

// The operands of Strassen's form: padded_a, padded_b and pitch are those of a half, at least half of the lines and of the length, and
// plane 7 l + c has the operand of the product number c (from 0) modulo p_l.
// Launch: block 256; grid x = ceil(padded_a / 8) + ceil(padded_b / 8), y = min(65535, ceil(pitch / 128)).
extern "C" __global__ void oz2_residues_strassen_1(const double* __restrict__ a, long long line_stride_a, long long element_stride_a,
                                                   int lines_a, int padded_a, const int* __restrict__ scales_a,
                                                   signed char* __restrict__ out_a, const double* __restrict__ b,
                                                   long long line_stride_b, long long element_stride_b, int lines_b, int padded_b,
                                                   const int* __restrict__ scales_b, signed char* __restrict__ out_b, int length,
                                                   int moduli, long long pitch, int permuted)
{
    residues_of_both<1>({a, line_stride_a, element_stride_a, lines_a, padded_a, scales_a, out_a, permuted != 0},
                        {b, line_stride_b, element_stride_b, lines_b, padded_b, scales_b, out_b, false}, length, moduli, pitch);
}

// Those of two levels: padded_a, padded_b and pitch are those of a quarter, and plane 49 l + 7 c + d has the operand of the product
// number d of that number c.
// Launch: block 128; grid x = ceil(padded_a / 4) + ceil(padded_b / 4), y = min(65535, ceil(pitch / 64)).
extern "C" __global__ void __launch_bounds__(128, 3)
oz2_residues_strassen_2(const double* __restrict__ a, long long line_stride_a, long long element_stride_a, int lines_a, int padded_a,
                        const int* __restrict__ scales_a, signed char* __restrict__ out_a, const double* __restrict__ b,
                        long long line_stride_b, long long element_stride_b, int lines_b, int padded_b, const int* __restrict__ scales_b,
                        signed char* __restrict__ out_b, int length, int moduli, long long pitch, int permuted)
{
    residues_of_both<2>({a, line_stride_a, element_stride_a, lines_a, padded_a, scales_a, out_a, permuted != 0},
                        {b, line_stride_b, element_stride_b, lines_b, padded_b, scales_b, out_b, false}, length, moduli, pitch);
}

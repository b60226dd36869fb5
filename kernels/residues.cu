// Step residues: scaling by a power of two, rounding to an integer, residues modulo every modulus (src/ozaki/residues.rs).
// Lines as in scan.cu.

constexpr int LINES = 16;    // lines of a tile
constexpr int DEPTH = 128;   // elements of a line in a tile: a warp writes 32 words of four residues
constexpr int WARPS = 8;
constexpr int MAX_MODULI = 20;
constexpr int MAX_SHIFT = 9; // M 2^9 still fits eight digits

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
    int bytes;       // 0 unless a' takes more than 62 bits
};

__device__ inline Digits scaled(double x, int s) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x);
    const int biased = (int)(bits >> 52) & 0x7FF;
    unsigned long long m = (bits & 0xFFFFFFFFFFFFFull) | (biased == 0 ? 0 : 1ull << 52);
    const int shift = max(biased, 1) - 1075 + s;
    int bytes = 0;
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
    return {(int)(unsigned)digits, (int)(unsigned)(digits >> 32), bytes};
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

// Residues of the lines of a tile. Every element is read once, for all moduli.
__device__ inline void residues(const Operand& a, int first_line, int length, int moduli, long long pitch) {
    __shared__ double tile[LINES * TILE_LINE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool aligned = ((unsigned long long)a.x % 16 == 0) && a.line_stride % 2 == 0;
    const long long plane = a.padded_lines * pitch;
    for (long long first = (long long)blockIdx.y * DEPTH; first < pitch; first += (long long)gridDim.y * DEPTH) {
        if (a.element_stride != 1) {
            __syncthreads();   // the tile before has been used
            const int line = first_line + threadIdx.x % LINES;
            for (int at = threadIdx.x / LINES; at < DEPTH; at += 256 / LINES) {
                const long long h = first + at;
                const double value = line < a.lines && h < length ? a.x[line * a.line_stride + h * a.element_stride] : 0.0;
                tile[threadIdx.x % LINES * TILE_LINE + at % 4 * 33 + at / 4] = value;
            }
            __syncthreads();
        }
        const long long h = first + 4 * lane;
        for (int in_tile = warp; in_tile < LINES; in_tile += WARPS) {
            const int line = first_line + in_tile;
            if (line >= a.padded_lines || h >= pitch) continue;
            double values[4] = {};
            int scale = 0;
            if (line < a.lines) {
                scale = a.scales[line];
                if (a.element_stride == 1) {
                    load_four(a.x + line * a.line_stride, h, length, aligned, values);
                } else {
#pragma unroll
                    for (int n = 0; n < 4; n++) values[n] = tile[in_tile * TILE_LINE + n * 33 + lane];
                }
            }
            Digits digits[4];
            int bytes = 0;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                digits[n] = scaled(values[n], scale);
                bytes |= digits[n].bytes;
            }
            signed char* to = a.out + (a.permuted ? place(line) : line) * pitch + h;
#pragma unroll
            for (int l = 0; l < MAX_MODULI; l++) {
                if (l >= moduli) break;
                const Modulus& m = MODULI.of[l];
                int r[4];
#pragma unroll
                for (int n = 0; n < 4; n++) r[n] = canonical(dot4(digits[n].low, m.low, dot4(digits[n].high, m.high, lift(m.p))), m);
                if (bytes != 0) {
#pragma unroll
                    for (int n = 0; n < 4; n++) r[n] = canonical((signed char)r[n] * m.powers[digits[n].bytes] + lift(m.p), m);
                }
                const unsigned low = __byte_perm((unsigned)r[0], (unsigned)r[1], 0x0040);
                const unsigned high = __byte_perm((unsigned)r[2], (unsigned)r[3], 0x0040);
                *reinterpret_cast<unsigned*>(to) = __byte_perm(low, high, 0x5410);
                to += plane;
            }
        }
    }
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
    const int blocks_a = (padded_a + LINES - 1) / LINES, block = blockIdx.x;
    const bool is_a = block < blocks_a;
    // Field by field: a choice between two structures would put both into local memory.
    const Operand of{is_a ? a : b,
                     is_a ? line_stride_a : line_stride_b,
                     is_a ? element_stride_a : element_stride_b,
                     is_a ? lines_a : lines_b,
                     is_a ? padded_a : padded_b,
                     is_a ? scales_a : scales_b,
                     is_a ? out_a : out_b,
                     is_a && permuted != 0};
    residues(of, (is_a ? block : block - blocks_a) * LINES, length, moduli, pitch);
}

// Step reconstruct: from the residues of C'_ij to the correctly rounded result (src/ozaki/reconstruct.rs, NUMERICS section 4).
//
// C' is the residue of smallest magnitude of S = sum_l W_l r_l modulo P, W_l = (P / p_l) q_l mod P. S is summed in limbs of 32
// bits, exactly; the quotient of S and P, found in doubles, is certain because |C'| <= H_N keeps 2^-32 away from a tie.

constexpr int MAX_MODULI = 20;
constexpr int MAX_LIMBS = 5;
constexpr int COLUMNS = 8;    // columns that a block takes at a time

constexpr double TWO_32 = 4294967296.0;

// ---- what the product kernels have too (kernels/product_mma.cu: every file stands alone)

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

// The canonical residue of a sum of at most 2^30.
__device__ inline int residue(int sum, Modulus m) { return sum + ((__mulhi(sum, m.reciprocal) + 32) >> 6) * m.minus_p; }

// ---- an entry

// The constants of the call, made by every block from the table of the host. Limbs are signed, lowest first, so that a product
// with a residue is one multiplication of 32-bit integers.
struct Constants {
    int weights[MAX_MODULI][MAX_LIMBS + 3];   // rows of 32 bytes
    int product[MAX_LIMBS + 3];
    double reciprocals[MAX_LIMBS];            // 2^(32 j) / P
};

// factor times the number with these limbs of 40 bits, below 2^159, in signed limbs of 32 bits.
__device__ inline void to_signed_limbs(const long long* limbs, long long factor, int* out) {
    constexpr unsigned long long LIMB = (1ull << 40) - 1;
    unsigned long long digits[4], carry = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned long long t = (unsigned long long)limbs[i] * (unsigned long long)factor + carry;
        digits[i] = t & LIMB;
        carry = t >> 40;
    }
    const unsigned long long words[3] = {digits[0] | digits[1] << 40, digits[1] >> 24 | digits[2] << 16 | digits[3] << 56,
                                         digits[3] >> 8};
    long long over = 0;
    for (int j = 0; j < MAX_LIMBS; j++) {
        over += (long long)(words[j / 2] >> (32 * (j % 2)) & 0xFFFFFFFF);
        out[j] = (int)over;
        over = (over - out[j]) >> 32;
    }
}

// The double nearest to +-(leading + s) 2^exponent, ties to even, where 0 <= s < 1 and s > 0 exactly if `sticky`; also into the
// subnormal range, to zero and to infinity. `leading` has its top bit set or is zero, with `sticky` false.
__device__ inline double round_to_double(bool negative, unsigned long long leading, bool sticky, int exponent) {
    const unsigned long long sign = negative ? 1ull << 63 : 0;
    // The value lies in [2^top, 2^(top+1)); its last bit in a double has the weight 2^last.
    const int top = exponent + 63, last = max(top - 52, -1074), drop = last - exponent;
    unsigned long long bits = 0;   // zero, or below half of the smallest subnormal
    if (leading != 0 && top > 1023) {
        bits = 0x7FFull << 52;
    } else if (leading != 0 && drop <= 64) {
        // 64 bits are dropped when the value lies between half and all of the smallest subnormal.
        const unsigned long long kept = drop == 64 ? 0 : leading >> drop, rest = drop == 64 ? leading : leading << (64 - drop);
        constexpr unsigned long long HALF = 1ull << 63;
        const bool up = rest > HALF || (rest == HALF && (sticky || (kept & 1) == 1));
        // kept holds the implicit bit of a normal result, which adds the one that is missing in the exponent field; a carry out
        // of the fraction moves into that field too, up to infinity.
        bits = ((unsigned long long)(last + 1074) << 52) + kept + (up ? 1 : 0);
    }
    return __longlong_as_double((long long)(sign | bits));
}

// RN(C' 2^exponent) for P below 2^(32 LIMBS - 1), and C' / P, exact to 2^-36. The residues are `stride` apart.
template <int LIMBS>
__device__ inline double product(const signed char* residues, long long stride, int moduli, const Constants& constants, int exponent,
                                 double& fraction) {
    long long sums[LIMBS] = {};
#pragma unroll 4
    for (int l = 0; l < moduli; l++) {
        const int r = residues[l * stride];
#pragma unroll
        for (int j = 0; j < LIMBS; j++) sums[j] += (long long)r * constants.weights[l][j];
    }
    // The three highest limbs give S / P to 2^-36 and better: |S| < 2^12 P, and what is rounded is below 2^-38.
    double ratio = 0.0;
#pragma unroll
    for (int j = LIMBS > 3 ? LIMBS - 3 : 0; j < LIMBS; j++) ratio = __fma_rn((double)sums[j], constants.reciprocals[j], ratio);
    const int quotient = __double2int_rn(ratio);
    fraction = ratio - quotient;
    unsigned words[LIMBS];
    long long carry = 0;
#pragma unroll
    for (int j = 0; j < LIMBS; j++) {
        carry += sums[j] - (long long)quotient * constants.product[j];
        words[j] = (unsigned)carry;
        carry >>= 32;
    }
    const bool negative = (int)words[LIMBS - 1] < 0;
    if (negative) {
        unsigned long long one = 1;
#pragma unroll
        for (int j = 0; j < LIMBS; j++) {
            one += (unsigned)~words[j];
            words[j] = (unsigned)one;
            one >>= 32;
        }
    }
    // The highest word that is not zero, the two below it, and whether anything is left below them.
    unsigned high = 0, middle = 0, low = 0, below[LIMBS] = {};
    int top = 0;
#pragma unroll
    for (int j = 3; j < LIMBS; j++) below[j] = below[j - 1] | words[j - 3];
    unsigned rest = 0;
#pragma unroll
    for (int j = 0; j < LIMBS; j++) {
        if (words[j] == 0) continue;
        high = words[j];
        middle = j >= 1 ? words[j >= 1 ? j - 1 : 0] : 0;
        low = j >= 2 ? words[j >= 2 ? j - 2 : 0] : 0;
        rest = below[j];
        top = j;
    }
    const int shift = __clz((int)high) & 31;
    const unsigned long long leading = (unsigned long long)__funnelshift_l(middle, high, shift) << 32 | __funnelshift_l(low, middle, shift);
    const bool sticky = ((low << shift) | rest) != 0;
    return round_to_double(negative, leading, sticky, exponent + 32 * (top - 1) - shift);
}

// |C'| / P above this is a fault where the self-check keeps room (src/ozaki/moduli.rs).
constexpr double LEGAL = 1.0 / 512.0;

// What the self-check leaves for the host: the bits of the largest |C'| / P, the number of entries out of range, and of the first of
// them its place, j * rows + i, above the 24 bits of C' / P in units of 2^-24.
struct Check {
    unsigned long long peak, flagged, first;
};

__device__ inline void flag(Check* check, unsigned long long place, double fraction) {
    atomicAdd(&check->flagged, 1ull);
    const unsigned long long bits = (unsigned)__double2int_rn(fraction * (1 << 24)) & 0xFFFFFF;
    atomicMin(&check->first, place << 24 | bits);
}

// What does not depend on the entry.
struct Call {
    const signed char* residues;
    long long plane;
    int ld, rows, columns;
    const int *row_scales, *column_scales;
    int moduli;
    double mu;
    int nu;
    double beta;
    bool read_c;
    double* c;
    long long ldc;
    Check* check;
};

// ---- Strassen's form (docs/gpu.md)
//
// C11 = M1 + M2, C12 = M1 + M6 + M5 + M3, C21 = M1 + M6 + M7 - M4, C22 = M1 + M6 + M7 + M5; with two levels each M is made so of seven.

constexpr int PRODUCTS = 7;

// How a block works with so many levels: a thread makes the corresponding entries of all parts of C.
template <int LEVELS>
struct Shape {
    static constexpr int side = 1 << LEVELS, parts = side * side;
    static constexpr int products = LEVELS == 0 ? 1 : LEVELS == 1 ? PRODUCTS : PRODUCTS * PRODUCTS;
    static constexpr int threads = LEVELS == 2 ? 128 : 256;
};

// The residues of corresponding entries of all parts from those of the products, a plane each; not canonical.
template <int LEVELS>
__device__ inline void combine(const signed char* of, long long plane, int (&out)[Shape<LEVELS>::side][Shape<LEVELS>::side]) {
    if constexpr (LEVELS == 0) {
        out[0][0] = *of;
    } else {
        constexpr int HALF = Shape<LEVELS>::side / 2;
        int m[PRODUCTS][HALF][HALF];
#pragma unroll
        for (int c = 0; c < PRODUCTS; c++) combine<LEVELS - 1>(of + c * Shape<LEVELS - 1>::products * plane, plane, m[c]);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
#pragma unroll
            for (int j = 0; j < HALF; j++) {
                const int u2 = m[0][i][j] + m[5][i][j], u3 = u2 + m[6][i][j];
                out[i][j] = m[0][i][j] + m[1][i][j];
                out[i][j + HALF] = u2 + m[4][i][j] + m[2][i][j];
                out[i + HALF][j] = u3 - m[3][i][j];
                out[i + HALF][j + HALF] = u3 + m[4][i][j];
            }
        }
    }
}

// For each modulus the canonical residues of corresponding entries of all parts, at to[(modulus * parts + part) * threads], in words of
// four parts so that no two threads of a warp meet in a bank. They are the thread's own: nobody waits.
template <int LEVELS>
__device__ inline void combine_all(const signed char* of, long long plane, int moduli, unsigned* to) {
    using S = Shape<LEVELS>;
#pragma unroll 1
    for (int l = 0; l < moduli; l++, of += S::products * plane) {
        int r[S::side][S::side];
        combine<LEVELS>(of, plane, r);
#pragma unroll
        for (int word = 0; word < S::parts / 4; word++, to += S::threads) {
            unsigned bytes = 0;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int part = 4 * word + n;
                bytes |= (unsigned)(residue(r[part / S::side][part % S::side], MODULI.of[l]) & 0xFF) << (8 * n);
            }
            *to = bytes;
        }
    }
}

// ---- the entries of a block

template <int LIMBS, int LEVELS>
__device__ inline void entries(const Call& call, const Constants& constants, unsigned* combined) {
    using S = Shape<LEVELS>;
    const int i = blockIdx.x * blockDim.x + threadIdx.x, part_columns = (int)(call.plane / call.ld);
    if (i >= (LEVELS == 0 ? call.rows : call.ld)) return;
    const int columns = LEVELS == 0 ? call.columns : part_columns;
    double peak = 0.0;
    for (long long first = (long long)blockIdx.y * COLUMNS; first < columns; first += (long long)gridDim.y * COLUMNS) {
        const long long end = first + COLUMNS < columns ? first + COLUMNS : columns;
        for (long long j = first; j < end; j++) {
            const signed char* residues = call.residues + j * call.ld + i;
            long long stride = call.plane;
            if constexpr (LEVELS > 0) {
                combine_all<LEVELS>(residues, call.plane, call.moduli, combined);
                residues = reinterpret_cast<const signed char*>(combined);
                stride = S::parts * S::threads;
            }
#pragma unroll 1
            for (int part = 0; part < S::parts; part++) {
                const int row = i + part / S::side * call.ld;
                const long long column = j + part % S::side * part_columns;
                if (LEVELS > 0 && (row >= call.rows || column >= call.columns)) continue;
                const signed char* of = residues + part / 4 * 4 * S::threads + part % 4;
                double* to = call.c + column * call.ldc + row;
                const int exponent = call.nu - call.row_scales[row] - call.column_scales[column];
                double fraction;
                double value = product<LIMBS>(of, stride, call.moduli, constants, exponent, fraction);
                peak = fmax(peak, fabs(fraction));
                if (call.check != nullptr && fabs(fraction) > LEGAL) {
                    flag(call.check, (unsigned long long)column * call.rows + row, fraction);
                }
                if (call.read_c) {
                    value = __fma_rn(call.mu, value, __dmul_rn(call.beta, *to));
                } else if (call.mu != 1.0) {
                    value = __fma_rn(call.mu, value, 0.0);
                }
                *to = value;
            }
        }
    }
    if (call.check == nullptr) return;
    // The bits of doubles from 0 on are in the order of the doubles. A look costs less than an atomic operation.
    const unsigned long long bits = (unsigned long long)__double_as_longlong(peak);
    if (*const_cast<volatile unsigned long long*>(&call.check->peak) < bits) atomicMax(&call.check->peak, bits);
}

// Makes the constants from the table of the host, for the whole block.
__device__ inline void make(Constants& constants, const long long* crt, int moduli) {
    if ((int)threadIdx.x < moduli) {
        const long long* own = crt + 4 + 5 * threadIdx.x;
        to_signed_limbs(own + 1, own[0], constants.weights[threadIdx.x]);
    } else if (threadIdx.x == 32) {
        to_signed_limbs(crt, 1, constants.product);
        double whole = 0.0;
        for (int j = MAX_LIMBS - 1; j >= 0; j--) whole = __fma_rn(whole, TWO_32, (double)constants.product[j]);
        double reciprocal = 1.0 / whole;
        for (int j = 0; j < MAX_LIMBS; j++) {
            constants.reciprocals[j] = reciprocal;
            reciprocal *= TWO_32;
        }
    }
    __syncthreads();
}

template <int LEVELS>
__device__ inline void reconstruct(const Call& call, const long long* crt) {
    using S = Shape<LEVELS>;
    __shared__ Constants constants;
    // What combine_all makes for the entries in work.
    __shared__ unsigned words[LEVELS == 0 ? 1 : MAX_MODULI * S::parts / 4 * S::threads];
    unsigned* combined = words + (LEVELS == 0 ? 0 : threadIdx.x);
    make(constants, crt, call.moduli);
    // P takes 24 bits with 3 moduli, 56 with 7, 95 with 12, 126 with 16, 156 with 20.
    if (call.moduli <= 3) {
        entries<1, LEVELS>(call, constants, combined);
    } else if (call.moduli <= 7) {
        entries<2, LEVELS>(call, constants, combined);
    } else if (call.moduli <= 12) {
        entries<3, LEVELS>(call, constants, combined);
    } else if (call.moduli <= 16) {
        entries<4, LEVELS>(call, constants, combined);
    } else {
        entries<5, LEVELS>(call, constants, combined);
    }
}

// c[j * ldc + i] = mu 2^nu C' 2^-(row scale + column scale) + beta c, from the residues of C' at l * plane + j * ld + i.
// C' 2^(nu - scales) is rounded once, then mu x + RN(beta c) once. c is read only if read_c is not 0.
// crt is made by the host for this number of moduli: 4 limbs of 40 bits of P, then for each l five numbers: q_l and the 4 limbs
// of P / p_l, lowest first. check: null, or what the self-check leaves there; (0, 0, ~0) before. Its verdict does not change c.
// Launch: block 256; grid x = ceil(rows / 256), y = min(65535, ceil(columns / 8)).
extern "C" __global__ void __launch_bounds__(256, 4)
oz2_reconstruct(const signed char* __restrict__ residues, long long plane, int ld, int rows, int columns,
                const int* __restrict__ row_scales, const int* __restrict__ column_scales, int moduli,
                const long long* __restrict__ crt, double mu, int nu, double beta, int read_c, double* __restrict__ c, long long ldc, Check* check)
{
    reconstruct<0>({residues, plane, ld, rows, columns, row_scales, column_scales, moduli, mu, nu, beta, read_c != 0, c, ldc, check}, crt);
}

// The same from the seven products of Strassen's form, that of number n modulo p_l in plane 7 l + n: ld rows and plane / ld columns are
// those of a half.
// Launch: block 256; grid x = ceil(ld / 256), y = min(65535, ceil(plane / ld / 8)).
extern "C" __global__ void __launch_bounds__(256, 3)
oz2_reconstruct_strassen_1(const signed char* __restrict__ residues, long long plane, int ld, int rows, int columns,
                           const int* __restrict__ row_scales, const int* __restrict__ column_scales, int moduli,
                           const long long* __restrict__ crt, double mu, int nu, double beta, int read_c, double* __restrict__ c,
                           long long ldc, Check* check)
{
    reconstruct<1>({residues, plane, ld, rows, columns, row_scales, column_scales, moduli, mu, nu, beta, read_c != 0, c, ldc, check}, crt);
}

// And from the 49 of two levels, in plane 49 l + n: ld rows and plane / ld columns are those of a quarter.
// Launch: block 128; grid x = ceil(ld / 128), y = min(65535, ceil(plane / ld / 8)).
extern "C" __global__ void __launch_bounds__(128)
oz2_reconstruct_strassen_2(const signed char* __restrict__ residues, long long plane, int ld, int rows, int columns,
                           const int* __restrict__ row_scales, const int* __restrict__ column_scales, int moduli,
                           const long long* __restrict__ crt, double mu, int nu, double beta, int read_c, double* __restrict__ c,
                           long long ldc, Check* check)
{
    reconstruct<2>({residues, plane, ld, rows, columns, row_scales, column_scales, moduli, mu, nu, beta, read_c != 0, c, ldc, check}, crt);
}

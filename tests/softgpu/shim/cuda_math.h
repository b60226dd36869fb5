// The arithmetic of CUDA that our kernels use. Exact by definition, so equal to the GPU's; functions that a GPU only
// approximates (exp, log, pow, ...) are left out, and a kernel that calls one does not compile.
#pragma once

using std::abs;
using std::ceil;
using std::copysign;
using std::fabs;
using std::floor;
using std::fma;
using std::fmax;
using std::fmin;
using std::frexp;
using std::ilogb;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::llabs;
using std::ldexp;
using std::nearbyint;
using std::rint;
using std::round;
using std::scalbn;
using std::signbit;
using std::sqrt;
using std::trunc;

// min and max: the overloads of CUDA, mixed signs included (the result is then unsigned); NaN loses, as fmin and fmax have it.
#define SG_MINMAX(R, A, B) \
    static inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
    static inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
SG_MINMAX(int, int, int)
SG_MINMAX(unsigned, unsigned, unsigned)
SG_MINMAX(unsigned, int, unsigned)
SG_MINMAX(unsigned, unsigned, int)
SG_MINMAX(long, long, long)
SG_MINMAX(unsigned long, unsigned long, unsigned long)
SG_MINMAX(long long, long long, long long)
SG_MINMAX(unsigned long long, unsigned long long, unsigned long long)
SG_MINMAX(unsigned long long, long long, unsigned long long)
SG_MINMAX(unsigned long long, unsigned long long, long long)
static inline float min(float a, float b) { return std::fmin(a, b); }
static inline float max(float a, float b) { return std::fmax(a, b); }
static inline double min(double a, double b) { return std::fmin(a, b); }
static inline double max(double a, double b) { return std::fmax(a, b); }

// ---- bits of a double

static inline long long __double_as_longlong(double d) {
    long long bits;
    std::memcpy(&bits, &d, 8);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double d;
    std::memcpy(&d, &bits, 8);
    return d;
}
static inline int __double2hiint(double d) { return (int)(__double_as_longlong(d) >> 32); }
static inline int __double2loint(double d) { return (int)__double_as_longlong(d); }
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}
static inline int __float_as_int(float f) {
    int bits;
    std::memcpy(&bits, &f, 4);
    return bits;
}
static inline float __int_as_float(int bits) {
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

// ---- rounded operations (the device sets rounding to nearest around a launch)

static inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __drcp_rn(double a) { return 1.0 / a; }
static inline double __dsqrt_rn(double a) { return std::sqrt(a); }

// ---- operations rounded down and up. The operands come back from memory after the change of the mode: the compiler, which does
// not know of it, cannot compute before.

template <class F> static inline double sg_rounded(int mode, double a, double b, F operation) {
    volatile double x = a, y = b, result;
    std::fesetround(mode);
    result = operation(x, y);
    std::fesetround(FE_TONEAREST);
    return result;
}
#define SG_DIRECTED(name, operation) \
    static inline double name##_rd(double a, double b) { return sg_rounded(FE_DOWNWARD, a, b, operation); } \
    static inline double name##_ru(double a, double b) { return sg_rounded(FE_UPWARD, a, b, operation); }
SG_DIRECTED(__dadd, [](double x, double y) { return x + y; })
SG_DIRECTED(__dmul, [](double x, double y) { return x * y; })

// ---- double to integer, saturating, and a NaN gives what the PTX manual says for a double: only the highest bit set

template <class I> static inline I sg_saturate(double whole) {
    using L = std::numeric_limits<I>;
    constexpr I indefinite = (I)(1ull << (sizeof(I) * 8 - 1));
    if (std::isnan(whole)) return indefinite;
    const double above = std::ldexp(1.0, L::digits); // the first value that does not fit
    if (whole >= above) return L::max();
    if (whole < (double)L::min()) return L::min();
    return (I)whole;
}
#define SG_FROM_DOUBLE(I, name) \
    static inline I __double2##name##_rn(double d) { return sg_saturate<I>(std::nearbyint(d)); } \
    static inline I __double2##name##_rz(double d) { return sg_saturate<I>(std::trunc(d)); } \
    static inline I __double2##name##_ru(double d) { return sg_saturate<I>(std::ceil(d)); } \
    static inline I __double2##name##_rd(double d) { return sg_saturate<I>(std::floor(d)); }
SG_FROM_DOUBLE(int, int)
SG_FROM_DOUBLE(unsigned, uint)
SG_FROM_DOUBLE(long long, ll)
SG_FROM_DOUBLE(unsigned long long, ull)
static inline double __int2double_rn(int i) { return (double)i; }
static inline double __uint2double_rn(unsigned i) { return (double)i; }
static inline double __ll2double_rn(long long i) { return (double)i; }
static inline double __ull2double_rn(unsigned long long i) { return (double)i; }

// ---- integers

static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1u) << (31 - i);
    return r;
}
static inline unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> (4 * i) & 15u;
        unsigned byte = (unsigned)(bytes >> (8 * (s & 7u))) & 0xffu;
        if (s & 8u) byte = byte & 0x80u ? 0xffu : 0; // the sign, replicated
        r |= byte << (8 * i);
    }
    return r;
}
// Four products of bytes added to c, which wraps.
static inline int __dp4a(int a, int b, int c) {
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 32; i += 8) sum += (unsigned)((int)(signed char)(a >> i) * (int)(signed char)(b >> i));
    return (int)sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xffu) * (b >> i & 0xffu);
    return c;
}
static inline int __dp4a(char4 a, char4 b, int c) {
    return (int)((unsigned)c + (unsigned)(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w));
}

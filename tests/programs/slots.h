/* What the test of the jump slots (slots.c) and its native library (slots_native.c) agree on. */
#ifndef SLOTS_H
#define SLOTS_H
#include <complex.h>
#include <immintrin.h>
#include <stdint.h>

/* Everything that a call may carry in registers, and the first words of the stack. */
struct registers {
    uint64_t rdi, rsi, rdx, rcx, r8, r9, rax, r10, rbx, rbp, r12, r13, r14, r15;
    uint64_t stack[4];
    uint64_t k[8];         /* at 144 */
    uint8_t vector[32][64]; /* at 208: zmm0..31, or ymm0..15 */
    uint32_t mxcsr;        /* at 2256 */
    uint16_t x87;          /* at 2260 */
};

struct large {
    double d[4];
    int i;
};

/* The names are those of the BLAS, the arguments are not. */
double dgemv_(int, double, const void *, float, long, double, unsigned char, const void *, double, float, short, double,
              long, double, float, const void *, double, int, double, float, long, double, const void *, double);
struct large dger_(const double *, int, double);
float complex cdotc_(float complex, int);
double complex zdotu_(double complex, int);
long double dsdot_(long double, int);
int cblas_xerbla(int, const char *, const char *, ...);
double dtrsm_(__m256d, int, __m256d, __m256d, __m256d, __m256d, __m256d, __m256d, __m256d, __m256d, __m256d);
double dsyrk_(__m512d, int, __m512d, __m512d, __m512d, __m512d, __m512d, __m512d, __m512d, __m512d, __m512d);
void drot_(void);
int dnrm2_(int);
/* What drot_ found in the registers. */
extern struct registers *slots_found;
/* How often dnrm2_ was called. */
extern int slots_calls;
#endif

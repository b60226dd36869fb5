/* A native BLAS for slots.c: functions with names of the BLAS that tell what they received. */
#include "slots.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Each argument with a weight of its own, so that a swap is seen. Small integers: exact. */
double dgemv_(int a, double b, const void *c, float d, long e, double f, unsigned char g, const void *h, double i, float j,
              short k, double l, long m, double n, float o, const void *p, double q, int r, double s, float t, long u,
              double v, const void *w, double x)
{
    return a + 2 * b + 3 * (double)(intptr_t)c + 4 * d + 5 * (double)e + 6 * f + 7 * g + 8 * (double)(intptr_t)h + 9 * i +
           10 * j + 11 * k + 12 * l + 13 * (double)m + 14 * n + 15 * o + 16 * (double)(intptr_t)p + 17 * q + 18 * r +
           19 * s + 20 * t + 21 * (double)u + 22 * v + 23 * (double)(intptr_t)w + 24 * x;
}

struct large dger_(const double *x, int i, double y)
{
    struct large result = {{x[0], x[1], y, -y}, i};
    return result;
}

float complex cdotc_(float complex z, int i)
{
    return z * i;
}

double complex zdotu_(double complex z, int i)
{
    return z * i;
}

long double dsdot_(long double x, int i)
{
    return x * i;
}

int cblas_xerbla(int at, const char *name, const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%d %s %s\n", at, name, text);
    return at;
}

#define SUM(wide, lanes) \
    { \
        const wide all[] = {a, b, c, d, e, f, g, h, j, k}; \
        double sum = i; \
        for (int at = 0; at < 10; at++) \
            for (int lane = 0; lane < lanes; lane++) \
                sum += (1 + at + 10 * lane) * all[at][lane]; \
        return sum; \
    }

__attribute__((target("avx2")))
double dtrsm_(__m256d a, int i, __m256d b, __m256d c, __m256d d, __m256d e, __m256d f, __m256d g, __m256d h, __m256d j,
              __m256d k)
SUM(__m256d, 4)

__attribute__((target("avx512f")))
double dsyrk_(__m512d a, int i, __m512d b, __m512d c, __m512d d, __m512d e, __m512d f, __m512d g, __m512d h, __m512d j,
              __m512d k)
SUM(__m512d, 8)

static struct registers found;
struct registers *slots_found = &found;
int slots_level; /* 0 SSE, 1 AVX, 2 AVX-512 */

/* Loading this library, which happens inside of the first call through a slot, changes what it can: all registers that a function
 * may change, errno, and the floating-point environment, as libraries compiled with -ffast-math do. */
__attribute__((constructor))
static void spoil(void)
{
    slots_level = __builtin_cpu_supports("avx512bw") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
    if (slots_level == 2)
        __asm__ volatile(".irp n,0,1,2,3,4,5,6,7\n kxnorq %%k\\n, %%k\\n, %%k\\n\n .endr\n"
                         ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
                         "vpternlogd $255, %%zmm\\n, %%zmm\\n, %%zmm\\n\n .endr\n" ::: "memory");
    else if (slots_level == 1)
        __asm__ volatile(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vpcmpeqd %%ymm\\n, %%ymm\\n, %%ymm\\n\n .endr\n" ::: "memory");
    _mm_setcsr(0x9FC0);
    __asm__ volatile("fldcw %0" : : "m"((unsigned short){0x0F7F}));
    __asm__ volatile("mov $99, %%eax\n mov %%eax, %%ecx\n mov %%eax, %%edx\n mov %%eax, %%esi\n mov %%eax, %%edi\n"
                     "mov %%eax, %%r8d\n mov %%eax, %%r9d\n mov %%eax, %%r10d\n mov %%eax, %%r11d"
                     ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
    errno = 5;
}

/* Stores everything as it is at the first instruction. */
__asm__(".text\n.globl drot_\n.type drot_, @function\ndrot_:\n"
        "push %r11\n"
        "mov slots_found@GOTPCREL(%rip), %r11\n mov (%r11), %r11\n"
        "mov %rdi, 0(%r11)\n mov %rsi, 8(%r11)\n mov %rdx, 16(%r11)\n mov %rcx, 24(%r11)\n mov %r8, 32(%r11)\n"
        "mov %r9, 40(%r11)\n mov %rax, 48(%r11)\n mov %r10, 56(%r11)\n mov %rbx, 64(%r11)\n mov %rbp, 72(%r11)\n"
        "mov %r12, 80(%r11)\n mov %r13, 88(%r11)\n mov %r14, 96(%r11)\n mov %r15, 104(%r11)\n"
        "stmxcsr 2256(%r11)\n fnstcw 2260(%r11)\n"
        "mov 16(%rsp), %rax\n mov %rax, 112(%r11)\n mov 24(%rsp), %rax\n mov %rax, 120(%r11)\n"
        "mov 32(%rsp), %rax\n mov %rax, 128(%r11)\n mov 40(%rsp), %rax\n mov %rax, 136(%r11)\n"
        "mov slots_level@GOTPCREL(%rip), %rax\n mov (%rax), %eax\n"
        "cmp $1, %eax\n jb 1f\n je 2f\n"
        ".irp n,0,1,2,3,4,5,6,7\n kmovq %k\\n, 144+8*\\n(%r11)\n .endr\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "vmovdqu64 %zmm\\n, 208+64*\\n(%r11)\n .endr\n jmp 3f\n"
        "2:\n .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovdqu %ymm\\n, 208+64*\\n(%r11)\n .endr\n jmp 3f\n"
        "1:\n .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu %xmm\\n, 208+64*\\n(%r11)\n .endr\n"
        "3:\n pop %r11\n ret\n.size drot_, . - drot_\n");

int slots_calls;

int dnrm2_(int i)
{
    __atomic_add_fetch(&slots_calls, 1, __ATOMIC_RELAXED);
    return i + 1;
}

/* Further names, each with a number of its own: slots_names.h is made by the test. */
#ifdef NAMES
#define NAME(number, name) \
    long name(void); \
    long name(void) \
    { \
        return number; \
    }
#include NAMES
#endif

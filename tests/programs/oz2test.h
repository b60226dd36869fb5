/* What the C test programs share: products with known results, and questions
 * to the library. Everything is static so that a program stays one file.
 *
 * The programs also run without the library ("plain"), which shows that a test
 * is right about DGEMM itself before it says anything about oz2blas. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b,
            const int *ldb, const double *beta, double *c, const int *ldc,
            size_t length_ta, size_t length_tb);

/* _exit, because a forked child or a thread must not run the handlers of others. */
__attribute__((noreturn, format(printf, 1, 2), unused))
static void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(1);
}

/* One counter of oz2_get_stats, or -1 where the library is not loaded. */
__attribute__((unused))
static long counter(const char *name)
{
    size_t (*get)(char *, size_t) = (size_t (*)(char *, size_t))dlsym(RTLD_DEFAULT, "oz2_get_stats");
    char text[8192], key[64];
    if (!get)
        return -1;
    if (get(text, sizeof text) >= sizeof text)
        fail("the statistics do not fit into %zu bytes", sizeof text);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(text, key);
    if (!at)
        fail("no %s in the statistics: %s", name, text);
    return strtol(at + strlen(key), NULL, 10);
}

/* Fails unless at least this many calls of this process were emulated. Compiled
 * with -DANY_ROUTE, a program is content with native calls. */
__attribute__((unused))
static void need_emulated(long least)
{
    long count = counter("emulated");
#ifdef ANY_ROUTE
    least = 0;
#endif
    if (count < 0)
        printf("plain\n");
    else if (count < least)
        fail("%ld calls emulated, not %ld", count, least);
}

__attribute__((unused))
static void *memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        fail("the test has no memory of its own");
    return p;
}

/* A small integer that depends on everything. */
static int small(unsigned seed, int row, int column)
{
    uint32_t x = seed * 2654435761u ^ (uint32_t)row * 40503u ^ (uint32_t)column * 2246822519u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (int)(x % 19) - 9;
}

/* Data of one product C = A B, column-major and without gaps. */
struct product {
    int m, n, k;
    unsigned seed;
    double *a, *b, *c;
};

/* Small integers times a power of two. Everything that a caller may need is
 * taken here, so that the multiplication itself runs in a tight corner. */
__attribute__((unused))
static struct product integers(int m, int n, int k, unsigned seed, int exponent_a, int exponent_b)
{
    struct product p = {m, n, k, seed, memory(8 * (size_t)m * k), memory(8 * (size_t)k * n),
                        memory(8 * (size_t)m * n)};
    for (int h = 0; h < k; h++)
        for (int i = 0; i < m; i++)
            p.a[i + (size_t)h * m] = ldexp(small(seed, i, h), exponent_a);
    for (int j = 0; j < n; j++)
        for (int h = 0; h < k; h++)
            p.b[h + (size_t)j * k] = ldexp(small(seed + 1, h, j), exponent_b);
    return p;
}

/* Numbers of (-1/2, 1/2) with 53 bits. */
__attribute__((unused))
static struct product fractions(int m, int n, int k, unsigned seed)
{
    struct product p = integers(m, n, k, seed, 0, 0);
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    double *parts[2] = {p.a, p.b};
    size_t sizes[2] = {(size_t)m * k, (size_t)k * n};
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < sizes[which]; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            parts[which][i] = ldexp((double)(int64_t)(x >> 11) - 0x1p52, -53);
        }
    return p;
}

/* Calls DGEMM. C is full of NaN before, which beta = 0 must not read. */
__attribute__((unused))
static void multiply(struct product *p)
{
    double one = 1, zero = 0;
    for (size_t i = 0; i < (size_t)p->m * p->n; i++)
        p->c[i] = NAN;
    dgemm_("N", "N", &p->m, &p->n, &p->k, &one, p->a, &p->m, p->b, &p->k, &zero, p->c, &p->m, 1, 1);
}

/* Compares the product of two matrices made by integers(), entry by entry.
 * The sums are small integers, so every order of summation is exact. */
__attribute__((unused))
static void check_integers(const struct product *p, int exponent)
{
    for (int j = 0; j < p->n; j++)
        for (int i = 0; i < p->m; i++) {
            long sum = 0;
            for (int h = 0; h < p->k; h++)
                sum += small(p->seed, i, h) * small(p->seed + 1, h, j);
            double want = ldexp((double)sum, exponent), got = p->c[i + (size_t)j * p->m];
            if (got != want)
                fail("C(%d,%d) = %a, want %a", i, j, got, want);
        }
}

/* FNV-1a over the bits of C. */
__attribute__((unused))
static uint64_t hash(const struct product *p)
{
    const unsigned char *bytes = (const unsigned char *)p->c;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < 8 * (size_t)p->m * p->n; i++)
        h = (h ^ bytes[i]) * 0x100000001B3u;
    return h;
}

__attribute__((unused))
static void done(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

/* One complete exact product: make, multiply, compare. */
__attribute__((unused))
static void exact(int m, int n, int k, unsigned seed)
{
    struct product p = integers(m, n, k, seed, 0, 0);
    multiply(&p);
    check_integers(&p, 0);
    done(&p);
}

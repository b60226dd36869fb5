/* A library with BLAS names that are led on to another BLAS, which it opens when it is loaded: compiled with -DLBT in the way of
 * libblastrampoline, else in the way of FlexiBLAS. BACKEND in the environment is "file" or "file!suffix".
 *
 * Both ask the other BLAS by trial calls what it is, and say "suffix '', 32-bit integers, complex results by value, CBLAS". */
#include <complex.h>
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LBT
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
int lbt_forward(void) { return 0; } /* tells oz2blas that this is such a library */
#else
#define FLAGS (RTLD_NOW | RTLD_LOCAL)
int flexiblas_switch(void) { return 0; }
#endif

static void *backend;
static char suffix[16];

static void *look(const char *name, const char *end)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s", name, end);
    return dlsym(backend, whole);
}

static void find_suffix(const char *wanted)
{
    const char *ends[] = {wanted ? wanted : "", "", "_", "__", "64", "_64", "64_", "_64_"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (look("isamax_", ends[i])) {
            strcpy(suffix, ends[i]);
            return;
        }
    puts("no isamax_ with any suffix");
    exit(1);
}

/* A length of 3 in 32 bits that is negative in 64. */
static int bits(void)
{
    int64_t n = -INT64_C(0xFFFFFFFD), one = 1;
    float x[] = {1, 2, 1};
    int place = ((int (*)(int64_t *, float *, int64_t *))look("isamax_", suffix))(&n, x, &one);
    return place == 0 ? 64 : place == 2 ? 32 : 0;
}

/* A function that returns through a first argument takes it from here, and its length from the second: none. */
static int complex_by_value(void)
{
    void *zdotc = look("zdotc_", suffix);
    int64_t zero = 0;
    double complex result = I, nothing = 0;
    ((void (*)(double complex *, int64_t *, double complex *, int64_t *, double complex *, int64_t *))zdotc)(
        &result, &zero, &nothing, &zero, &nothing, &zero);
    if (result != I)
        return 0;
    result = ((double complex(*)(int64_t *, double complex *, int64_t *, double complex *, int64_t *))zdotc)(
        &zero, &nothing, &zero, &nothing, &zero);
    return result == 0;
}

__attribute__((constructor)) static void start(void)
{
    char file[4096];
    const char *given = getenv("BACKEND");
    if (!given)
        return; /* of no use to the shells and compilers of a test */
    snprintf(file, sizeof file, "%s", given);
    char *mark = strchr(file, '!');
    if (mark)
        *mark = 0;
    backend = dlopen(file, FLAGS);
    if (!backend) {
        puts(dlerror());
        exit(1);
    }
    find_suffix(mark ? mark + 1 : NULL);
#ifndef LBT
    if (look("flexiblas_info", "") || look("flexiblas_init", "") || look("flexiblas_exit", ""))
        puts("a backend that was made for FlexiBLAS");
#endif
    printf("suffix '%s', %d-bit integers, complex results %s, %s\n", suffix, bits(),
           complex_by_value() ? "by value" : "in an argument", look("cblas_zdotc_sub", suffix) ? "CBLAS" : "no CBLAS");
    fflush(stdout);
}

/* The names that lead on. Integers by value fit into 64 bits, whatever they are. */
#define FORTRAN(name, end)                                                                                                    \
    void name##end(const char *ta, const char *tb, void *m, void *n, void *k, void *alpha, void *a, void *lda, void *b,      \
                   void *ldb, void *beta, void *c, void *ldc, size_t length_ta, size_t length_tb)                            \
    {                                                                                                                          \
        static __typeof__(&name##end) to;                                                                                    \
        if (!to)                                                                                                               \
            to = (__typeof__(to))look(#name, suffix);                                                                        \
        to(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_ta, length_tb);                                      \
    }
#define CBLAS(name, end)                                                                                                      \
    void name##end(int layout, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, void *a, int64_t lda, void *b, \
                   int64_t ldb, double beta, void *c, int64_t ldc)                                                           \
    {                                                                                                                          \
        static __typeof__(&name##end) to;                                                                                    \
        if (!to)                                                                                                               \
            to = (__typeof__(to))look(#name, suffix);                                                                        \
        to(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                                    \
    }
FORTRAN(dgemm_, )
FORTRAN(dgemm_, 64_)
CBLAS(cblas_dgemm, )
CBLAS(cblas_dgemm, 64_)

#ifndef LBT
/* libblastrampoline has none. This one must not be led in a circle. */
void xerbla_(const char *name, const int *info, size_t length)
{
    static __typeof__(&xerbla_) to;
    static int depth;
    if (!to)
        to = (__typeof__(to))look("xerbla_", suffix);
    if (++depth > 1) {
        puts("comes back");
        exit(1);
    }
    to(name, info, length);
    depth--;
}
#endif

/* The library with a fault in it, for the test of scripts/soak: every seventh call of dgemm_ and cblas_dgemm is right and then
 * spoilt. OZ2_FAULT says how. Linked to the library, whose other functions are found through this one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

/* m x n of C by columns. */
static void spoil(const double *a, int m, int n, double *c, int ldc)
{
    const char *fault = getenv("OZ2_FAULT");
    if (!fault || atomic_fetch_add(&calls, 1) % 7 != 3 || m < 1 || n < 1)
        return;
    if (!strcmp(fault, "entry"))
        /* Some 2^-45: within no bound, and nothing that one would see. */
        c[m / 2 + (size_t)(n / 2) * (size_t)ldc] *= 1 + 0x1p-45;
    else if (!strcmp(fault, "gap"))
        c[m + (size_t)(n - 1) * (size_t)ldc] = 0;
    else if (!strcmp(fault, "input"))
        *(double *)(size_t)a += 1;
    else if (!strcmp(fault, "crash"))
        abort();
    else if (!strcmp(fault, "say"))
        (void)!write(2, "something\n", 10);
}

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k, const double *alpha, const double *a,
            const int *lda, const double *b, const int *ldb, const double *beta, double *c, const int *ldc, size_t x, size_t y)
{
    void (*real)() = (void (*)())dlsym(RTLD_NEXT, "dgemm_");
    real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, x, y);
    spoil(a, *m, *n, c, *ldc);
}

void cblas_dgemm(int layout, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda, const double *b, int ldb,
                 double beta, double *c, int ldc)
{
    void (*real)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int) =
        (void (*)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int))dlsym(
            RTLD_NEXT, "cblas_dgemm");
    real(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    spoil(a, layout == 102 ? m : n, layout == 102 ? n : m, c, ldc);
}

/* A native BLAS that is wrong in one entry, C(2,1), by its last bits; compiled
 * with -DRIGHT, one that is right. For OZ2_NATIVE. Only what the tests call:
 * no checks, any transposes. With -DINT=int64_t it has wide integers; with
 * -DISAMAX=-1 no isamax by which it could be asked for them, and with
 * -DISAMAX=0 and more one that always returns that. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef INT
#define INT int
#endif

static int is_n(const char *t)
{
    return *t == 'N' || *t == 'n';
}

void dgemm_(const char *ta, const char *tb, const INT *m, const INT *n, const INT *k,
            const double *alpha, const double *a, const INT *lda, const double *b,
            const INT *ldb, const double *beta, double *c, const INT *ldc,
            size_t length_ta, size_t length_tb)
{
    (void)length_ta;
    (void)length_tb;
    for (INT j = 0; j < *n; j++)
        for (INT i = 0; i < *m; i++) {
            double sum = 0, *to = c + i + (size_t)j * (size_t)*ldc;
            for (INT h = 0; h < *k; h++)
                sum += (is_n(ta) ? a[i + (size_t)h * (size_t)*lda] : a[h + (size_t)i * (size_t)*lda]) *
                       (is_n(tb) ? b[h + (size_t)j * (size_t)*ldb] : b[j + (size_t)h * (size_t)*ldb]);
            *to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);
#ifndef RIGHT
            if (i == 2 && j == 1)
                *to += ldexp(*to, -40);
#endif
        }
}

void cblas_dgemm(int layout, int ta, int tb, INT m, INT n, INT k, double alpha, const double *a,
                 INT lda, const double *b, INT ldb, double beta, double *c, INT ldc)
{
    const char *letter_a = ta == 111 ? "N" : "T", *letter_b = tb == 111 ? "N" : "T";
    if (layout == 102)
        dgemm_(letter_a, letter_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
    else
        dgemm_(letter_b, letter_a, &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc, 1, 1);
}

#ifndef ISAMAX
/* The place of the largest, from 1. */
INT isamax_(const INT *n, const float *x, const INT *incx)
{
    INT best = 0;
    for (INT i = 0; i < *n; i++)
        if (!best || fabsf(x[i * *incx]) > fabsf(x[(best - 1) * *incx]))
            best = i + 1;
    return best;
}

size_t cblas_isamax(INT n, const float *x, INT incx)
{
    INT place = isamax_(&n, x, &incx);
    return (size_t)(place ? place - 1 : 0);
}
#elif ISAMAX >= 0
INT isamax_(void)
{
    return ISAMAX;
}

size_t cblas_isamax(void)
{
    return ISAMAX;
}
#endif

/* A native BLAS that is wrong in one entry, C(2,1), by its last bits; compiled
 * with -DRIGHT, one that is right. For OZ2_NATIVE. Only what the tests call:
 * no checks, any transposes. */
#include <math.h>
#include <stddef.h>

static int is_n(const char *t)
{
    return *t == 'N' || *t == 'n';
}

void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b,
            const int *ldb, const double *beta, double *c, const int *ldc,
            size_t length_ta, size_t length_tb)
{
    (void)length_ta;
    (void)length_tb;
    for (int j = 0; j < *n; j++)
        for (int i = 0; i < *m; i++) {
            double sum = 0, *to = c + i + (size_t)j * (size_t)*ldc;
            for (int h = 0; h < *k; h++)
                sum += (is_n(ta) ? a[i + (size_t)h * (size_t)*lda] : a[h + (size_t)i * (size_t)*lda]) *
                       (is_n(tb) ? b[h + (size_t)j * (size_t)*ldb] : b[j + (size_t)h * (size_t)*ldb]);
            *to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);
#ifndef RIGHT
            if (i == 2 && j == 1)
                *to += ldexp(*to, -40);
#endif
        }
}

void cblas_dgemm(int layout, int ta, int tb, int m, int n, int k, double alpha, const double *a,
                 int lda, const double *b, int ldb, double beta, double *c, int ldc)
{
    const char *letter_a = ta == 111 ? "N" : "T", *letter_b = tb == 111 ? "N" : "T";
    if (layout == 102)
        dgemm_(letter_a, letter_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
    else
        dgemm_(letter_b, letter_a, &n, &m, &k, &alpha, b, &ldb, a, &lda, &beta, c, &ldc, 1, 1);
}

/* A program as there are many: it multiplies two matrices with the DGEMM of its BLAS, checks the result, and knows nothing of
 * oz2blas. */
#include <stdio.h>
#include <stdlib.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *);

enum { N = 200 };

int main(void)
{
    double *a = malloc(sizeof(double) * N * N), *b = malloc(sizeof(double) * N * N), *c = malloc(sizeof(double) * N * N);
    if (!a || !b || !c)
        return 2;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            a[i + j * N] = (i + 2 * j) % 19 - 9;
            b[i + j * N] = (3 * i + j) % 17 - 8;
        }
    const int n = N;
    const double one = 1, zero = 0;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);

    /* Small integers: every sum is exact. */
    int wrong = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int h = 0; h < N; h++)
                sum += a[i + h * N] * b[h + j * N];
            wrong += c[i + j * N] != sum;
        }
    printf("%d entries, %d wrong\n", N * N, wrong);
    free(a);
    free(b);
    free(c);
    return wrong != 0;
}

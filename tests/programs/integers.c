/* integers: dgemm_ and cblas_dgemm with integers of the type INT (compiled with -DINT=int64_t or -DINT=int32_t), on exact data.
 *
 * Wide integers also go where narrow ones cannot: matrices of one column have a leading dimension of 2^32, of which whoever
 * reads 32 bits sees 0. After narrow ones there is garbage in the upper half, which whoever reads 64 bits would see. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 30, N = 20, K = 25 };

struct integer {
    INT value;
    char after[8 - sizeof(INT) + 1];
};

void dgemm_(const char *ta, const char *tb, const struct integer *m, const struct integer *n, const struct integer *k,
            const double *alpha, const double *a, const struct integer *lda, const double *b, const struct integer *ldb,
            const double *beta, double *c, const struct integer *ldc, size_t length_ta, size_t length_tb);
void cblas_dgemm(int layout, int ta, int tb, INT m, INT n, INT k, double alpha, const double *a, INT lda, const double *b,
                 INT ldb, double beta, double *c, INT ldc);

static double a[M * K], b[K * N], c[M * N];

static struct integer integer(INT value)
{
    struct integer made = {value, {0}};
    for (size_t i = 0; i < sizeof made.after; i++)
        made.after[i] = 0x5A;
    return made;
}

/* One product of the first n columns, by both interfaces. */
static void multiply(INT n, INT k, INT lda, INT ldb, INT ldc)
{
    struct integer im = integer(M), in = integer(n), ik = integer(k);
    struct integer ilda = integer(lda), ildb = integer(ldb), ildc = integer(ldc);
    double one = 1, zero = 0;
    for (int cblas = 0; cblas < 2; cblas++) {
        for (int i = 0; i < M * N; i++)
            c[i] = NAN;
        if (cblas)
            cblas_dgemm(102, 111, 111, M, n, k, 1, a, lda, b, ldb, 0, c, ldc);
        else
            dgemm_("N", "N", &im, &in, &ik, &one, a, &ilda, b, &ildb, &zero, c, &ildc, 1, 1);
        for (int j = 0; j < n; j++)
            for (int i = 0; i < M; i++) {
                double sum = 0;
                for (int h = 0; h < k; h++)
                    sum += a[i + h * M] * b[h + j * K];
                if (c[i + j * M] != sum) {
                    printf("%s: C(%d,%d) = %g, want %g\n", cblas ? "cblas_dgemm" : "dgemm_", i, j, c[i + j * M], sum);
                    exit(1);
                }
            }
    }
}

int main(void)
{
    for (int i = 0; i < M * K; i++)
        a[i] = i % 7 - 3;
    for (int i = 0; i < K * N; i++)
        b[i] = i % 5 - 2;
    multiply(N, K, M, K, M);
    if (sizeof(INT) == 8) {
        INT far = (INT)((int64_t)1 << 32);
        multiply(1, 1, far, far, far);
    }
    puts("good");
    return 0;
}

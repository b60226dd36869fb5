/* product M N K: four products with known results, and the hash of a fifth
 * whose bits must not depend on threads, engine or surroundings. */
#include "oz2test.h"

int main(int argc, char **argv)
{
    if (argc != 4)
        fail("usage: product M N K");
    int m = atoi(argv[1]), n = atoi(argv[2]), k = atoi(argv[3]);
    alarm(120);

    /* C full of NaN, beta = 0 */
    exact(m, n, k, 1);

    /* A and B are the same memory */
    struct product p = integers(k, k, k, 2, 0, 0);
    double one = 1, zero = 0, two = 2, minus = -1;
    dgemm_("n", "transpose", &k, &k, &k, &one, p.a, &k, p.a, &k, &zero, p.c, &k, 1, 9);
    for (int j = 0; j < k; j++)
        for (int i = 0; i < k; i++) {
            double sum = 0;
            for (int h = 0; h < k; h++)
                sum += p.a[i + (size_t)h * k] * p.a[j + (size_t)h * k];
            if (p.c[i + (size_t)j * k] != sum)
                fail("A A^T (%d,%d) = %a, want %a", i, j, p.c[i + (size_t)j * k], sum);
        }
    done(&p);

    /* both transposed, gaps in every matrix, alpha and beta */
    int lda = k + 3, ldb = n + 1, ldc = m + 2;
    double *a = memory(8 * (size_t)lda * m), *b = memory(8 * (size_t)ldb * k), *c = memory(8 * (size_t)ldc * n);
    for (size_t i = 0; i < (size_t)lda * m; i++)
        a[i] = NAN;
    for (size_t i = 0; i < (size_t)ldb * k; i++)
        b[i] = NAN;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < ldc; i++)
            c[i + (size_t)j * ldc] = i < m ? small(5, i, j) : 12345;
    for (int i = 0; i < m; i++)
        for (int h = 0; h < k; h++)
            a[h + (size_t)i * lda] = small(3, i, h);
    for (int h = 0; h < k; h++)
        for (int j = 0; j < n; j++)
            b[j + (size_t)h * ldb] = small(4, h, j);
    dgemm_("T", "c", &m, &n, &k, &two, a, &lda, b, &ldb, &minus, c, &ldc, 1, 1);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < ldc; i++) {
            long sum = 0;
            for (int h = 0; h < k; h++)
                sum += i < m ? small(3, i, h) * small(4, h, j) : 0;
            double want = i < m ? 2.0 * sum - small(5, i, j) : 12345;
            if (c[i + (size_t)j * ldc] != want)
                fail("2 A^T B^T - C (%d,%d) = %a, want %a", i, j, c[i + (size_t)j * ldc], want);
        }
    free(a);
    free(b);
    free(c);

    /* subnormal A, huge B */
    p = integers(m, n, k, 6, -1074, 1000);
    multiply(&p);
    check_integers(&p, -74);
    done(&p);

    p = fractions(m, n, k, 7);
    multiply(&p);
    printf("hash %016llx\n", (unsigned long long)hash(&p));
    done(&p);

    need_emulated(5);
    printf("good\n");
    return 0;
}

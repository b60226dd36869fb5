/* short: A is one element shorter than its sizes say, which is the fault of this program. */
#include "oz2test.h"

int main(void)
{
    int n = 20;
    double one = 1, zero = 0, *a = memory(8 * (size_t)(n * n - 1)), *b = memory(8 * (size_t)(n * n)), *c = memory(8 * (size_t)(n * n));
    for (int i = 0; i < n * n; i++) {
        b[i] = 1;
        a[i % (n * n - 1)] = 1;
    }
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
    printf("%g\n", c[0]);
    free(a);
    free(b);
    free(c);
    return 0;
}

/* handlers call|blas|cblas: an error handler of the BLAS, called by the program itself or by the native BLAS for a wrong argument.
 *
 * With -DOWN the program brings handlers; with -DOWN -DLIBRARY -shared it is the library that does. */
#include "oz2test.h"

void dgemv_(const char *t, const int *m, const int *n, const double *alpha, const double *a, const int *lda,
            const double *x, const int *incx, const double *beta, double *y, const int *incy, size_t length);
void cblas_dgemv(int order, int t, int m, int n, double alpha, const double *a, int lda, const double *x, int incx,
                 double beta, double *y, int incy);
void xerbla_(const char *name, const int *info, size_t length);
int lsame_(const char *a, const char *b, size_t length_a, size_t length_b);

#ifdef OWN
void xerbla_(const char *name, const int *info, size_t length)
{
    (void)length;
    printf("own %.5s %d\n", name, *info);
}

void cblas_xerbla(int info, const char *name, const char *format, ...)
{
    (void)format;
    printf("own %s %d\n", name, info);
}
#endif

#ifndef LIBRARY
int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int wrong = -1, one = 1;
    double x = 1;
    if (!lsame_("a", "A", 1, 1) || lsame_("a", "b", 1, 1))
        fail("lsame_");
    setvbuf(stdout, NULL, _IONBF, 0); /* the handler of the reference BLAS ends the program */
    if (!strcmp(mode, "call"))
        xerbla_("DGEMV ", &one, 6);
    else if (!strcmp(mode, "blas"))
        dgemv_("N", &wrong, &one, &x, &x, &one, &x, &one, &x, &x, &one, 1);
    else
        cblas_dgemv(99, 111, 1, 1, 1, &x, 1, &x, 1, 1, &x, 1);
    printf("good\n");
    return 0;
}
#endif

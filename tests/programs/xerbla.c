/* xerbla number|jump: a program with an error handler of its own, as the BLAS
 * standard allows. It must get the number that reference BLAS gives. */
#include "oz2test.h"
#include <setjmp.h>

static int called, number, fortran_number, jump;
static jmp_buf back;

void xerbla_(const char *name, const int *info, size_t length)
{
    (void)length;
    if (strncmp(name, "DGEMM", 5))
        fail("xerbla_ for %.6s", name);
    called++;
    number = *info;
    fortran_number = 1;
    if (jump)
        longjmp(back, 1);
}

void cblas_xerbla(int info, const char *name, const char *format, ...)
{
    (void)format;
    if (strcmp(name, "cblas_dgemm"))
        fail("cblas_xerbla for %s", name);
    called++;
    number = info;
    fortran_number = 0;
    if (jump)
        longjmp(back, 1);
}

void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                 const double *b, int ldb, double beta, double *c, int ldc);

/* The arguments of a legal 4 x 3 x 2 product, in the order of DGEMM. */
struct call {
    const char *ta, *tb;
    int m, n, k, lda, ldb, ldc;
};
static const struct call legal = {"N", "N", 4, 3, 2, 4, 2, 4};

static double a[64], b[64], c[64];

static void fortran(const struct call *x)
{
    double one = 1, zero = 0;
    dgemm_(x->ta, x->tb, &x->m, &x->n, &x->k, &one, a, &x->lda, b, &x->ldb, &zero, c, &x->ldc, 1, 1);
}

static int letter(const char *t)
{
    return *t == 'N' ? 111 : *t == 'T' ? 112 : 999;
}

static void cblas(const struct call *x, int order)
{
    cblas_dgemm(order, letter(x->ta), letter(x->tb), x->m, x->n, x->k, 1, a, x->lda, b, x->ldb, 0, c, x->ldc);
}

/* cblas_xerbla gets the number of the CBLAS argument. Reference BLAS passes most
 * wrong CBLAS arguments on to dgemm_, so there xerbla_ gets the Fortran number. */
static void expect(const char *what, int fortran, int cblas)
{
    int want = fortran_number ? fortran : cblas;
    if (called != 1 || number != want)
        fail("%s: %d calls of the handler, last number %d, want %d", what, called, number, want);
    for (int i = 0; i < 64; i++)
        if (c[i] != i)
            fail("%s: C changed", what);
    called = number = 0;
}

/* One call with one wrong argument for every argument that can be wrong. */
struct error {
    struct call call;
    int fortran, cblas;
};
static const struct error errors[] = {
    {{"/", "N", 4, 3, 2, 4, 2, 4}, 1, 2},    {{"N", "/", 4, 3, 2, 4, 2, 4}, 2, 3},
    {{"N", "N", -1, 3, 2, 4, 2, 4}, 3, 4},   {{"N", "N", 4, -1, 2, 4, 2, 4}, 4, 5},
    {{"N", "N", 4, 3, -1, 4, 2, 4}, 5, 6},   {{"N", "N", 4, 3, 2, 3, 2, 4}, 8, 9},
    {{"T", "N", 4, 3, 2, 1, 2, 4}, 8, 9},    {{"N", "N", 4, 3, 2, 4, 1, 4}, 10, 11},
    {{"N", "T", 4, 3, 2, 4, 2, 4}, 10, 11},  {{"N", "N", 4, 3, 2, 4, 2, 3}, 13, 14},
    {{"/", "/", -1, -1, -1, 0, 0, 0}, 1, 2}, {{"N", "N", 0, 3, -2, 0, 0, 0}, 5, 6},
};
enum { ERRORS = sizeof errors / sizeof *errors };

/* After an error the library must work as before: in particular it must not
 * believe that a call is still going on. */
static void good_call(void)
{
    long before = counter("emulated");
    exact(30, 20, 10, 3);
    if (called)
        fail("the handler was called for a legal product");
    if (before >= 0)
        need_emulated(before + 1);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    alarm(60);
    for (int i = 0; i < 64; i++)
        a[i] = b[i] = c[i] = i;
    if (!strcmp(mode, "number")) {
        for (int i = 0; i < ERRORS; i++) {
            fortran(&errors[i].call);
            expect("dgemm_", errors[i].fortran, 0);
            cblas(&errors[i].call, 102);
            expect("cblas_dgemm", errors[i].fortran, errors[i].cblas);
        }
        cblas(&legal, 99);
        expect("cblas_dgemm with order 99", 0, 1);
        /* Row-major calls are swapped inside, but the numbers are the caller's. */
        struct call row = {"N", "N", 4, 3, 2, 2, 3, 2};
        cblas(&row, 101);
        expect("row-major ldc", 13, 14);
        row.ldc = 3, row.ldb = 2;
        cblas(&row, 101);
        expect("row-major ldb", 8, 11);
        row.ldb = 3, row.lda = 1;
        cblas(&row, 101);
        expect("row-major lda", 10, 9);
        row.lda = 2, row.m = -1;
        cblas(&row, 101);
        expect("row-major m", 4, 4);
        good_call();
    } else if (!strcmp(mode, "jump")) {
        /* A handler may leave by longjmp, and never return to the library. */
        jump = 1;
        for (volatile int i = 0; i < 100; i++) {
            const struct error *e = &errors[i % ERRORS];
            if (!setjmp(back)) {
                if (i % 2)
                    fortran(&e->call);
                else
                    cblas(&e->call, 102);
            }
            expect("with longjmp", e->fortran, i % 2 ? 0 : e->cblas);
            if (i % 10 == 9)
                good_call();
        }
        good_call();
    } else {
        fail("usage: xerbla number|jump");
    }
    printf("good\n");
    return 0;
}

/* More than forty routines of all three levels and all four types, half by CBLAS and half by their Fortran names, on small integers, so that every
 * result is exact. Linked with -loz2blas alone. */
#include <complex.h>
#include <stdio.h>

typedef double complex z;
typedef float complex c8;
enum { ROW = 101, COL = 102, NO = 111, TRANS = 112, CONJ = 113, UP = 121, LOW = 122, UNIT = 132, LEFT = 141 };
enum { N = 3 };

/* level 1 */
double cblas_ddot(int, const double *, int, const double *, int);
float cblas_sdot(int, const float *, int, const float *, int);
float cblas_sdsdot(int, float, const float *, int, const float *, int);
void cblas_zdotu_sub(int, const void *, int, const void *, int, void *);
void cblas_cdotc_sub(int, const void *, int, const void *, int, void *);
double cblas_dasum(int, const double *, int);
float cblas_scasum(int, const void *, int);
double cblas_dnrm2(int, const double *, int);
double cblas_dznrm2(int, const void *, int);
size_t cblas_idamax(int, const double *, int);
size_t cblas_icamax(int, const void *, int);
void cblas_daxpy(int, double, const double *, int, double *, int);
void cblas_zdscal(int, double, void *, int);
void cblas_sswap(int, float *, int, float *, int);
double ddot_(const int *, const double *, const int *, const double *, const int *);
double dasum_(const int *, const double *, const int *);
int isamax_(const int *, const float *, const int *);
void dcopy_(const int *, const double *, const int *, double *, const int *);
void drot_(const int *, double *, const int *, double *, const int *, const double *, const double *);
void zaxpy_(const int *, const z *, const z *, const int *, z *, const int *);
void cscal_(const int *, const c8 *, c8 *, const int *);
/* level 2 */
void cblas_dgemv(int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void cblas_dger(int, int, int, double, const double *, int, const double *, int, double *, int);
void cblas_dsymv(int, int, int, double, const double *, int, const double *, int, double, double *, int);
void cblas_dtrsv(int, int, int, int, int, const double *, int, double *, int);
void cblas_zgemv(int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *, int);
void cblas_zher(int, int, int, double, const void *, int, void *, int);
void dtrmv_(const char *, const char *, const char *, const int *, const double *, const int *, double *, const int *);
void dsyr_(const char *, const int *, const double *, const double *, const int *, double *, const int *);
void dspmv_(const char *, const int *, const double *, const double *, const double *, const int *, const double *, double *, const int *);
void dgbmv_(const char *, const int *, const int *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *);
void zgeru_(const int *, const int *, const z *, const z *, const int *, const z *, const int *, z *, const int *);
/* level 3 */
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
void cblas_dsyrk(int, int, int, int, int, double, const double *, int, double, double *, int);
void cblas_dtrmm(int, int, int, int, int, int, int, double, const double *, int, double *, int);
void cblas_zherk(int, int, int, int, int, double, const void *, int, double, void *, int);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *, const double *,
            const int *, const double *, double *, const int *);
void dsymm_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *, const int *,
            const double *, double *, const int *);
void dsyr2k_(const char *, const char *, const int *, const int *, const double *, const double *, const int *, const double *,
             const int *, const double *, double *, const int *);
void dtrsm_(const char *, const char *, const char *, const char *, const int *, const int *, const double *, const double *, const int *,
            double *, const int *);
void zgemm_(const char *, const char *, const int *, const int *, const int *, const z *, const z *, const int *, const z *, const int *,
            const z *, z *, const int *);

static int failures;

static void check(const char *name, z got, z want)
{
    if (got != want) {
        printf("%s: %g%+gi, want %g%+gi\n", name, creal(got), cimag(got), creal(want), cimag(want));
        failures++;
    }
}

/* By columns. S is symmetric, E the identity; of A some routines see the lower triangle only, with ones on the diagonal. */
static const double A[9] = {1, 4, 7, 2, 5, 8, 3, 6, 9}, S[9] = {2, -1, 3, -1, 4, 5, 3, 5, -2}, E[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
static const double x[N] = {1, -2, 3}, y[N] = {4, 5, -6};
static const float sx[N] = {1, -2, 3}, sy[N] = {4, 5, -6};
static const z zx[N] = {1 + 2 * I, -3, I}, zy[N] = {2, 1 - I, 4 * I};
static const c8 cx[N] = {1 + 2 * I, -3, I}, cy[N] = {2, 1 - I, 4 * I};
static const int n = N, one = 1, two = 2;
static const double d0 = 0, d1 = 1, d2 = 2;
static const z z0 = 0, z1 = 1;

static void level_1(void)
{
    z dot;
    c8 small;
    check("cblas_ddot", cblas_ddot(N, x, 1, y, 1), -24);
    check("cblas_sdot", cblas_sdot(N, sx, 1, sy, 1), -24);
    check("cblas_sdsdot", cblas_sdsdot(N, 5, sx, 1, sy, 1), -19);
    cblas_zdotu_sub(N, zx, 1, zy, 1, &dot);
    check("cblas_zdotu_sub", dot, -5 + 7 * I);
    cblas_cdotc_sub(N, cx, 1, cy, 1, &small);
    check("cblas_cdotc_sub", small, 3 - I);
    check("cblas_dasum", cblas_dasum(N, x, 1), 6);
    check("cblas_scasum", cblas_scasum(N, cx, 1), 7);
    check("cblas_dnrm2", cblas_dnrm2(2, (double[]){3, 4}, 1), 5);
    check("cblas_dznrm2", cblas_dznrm2(1, (z[]){3 - 4 * I}, 1), 5);
    check("cblas_idamax", cblas_idamax(N, y, 1), 2);
    check("cblas_icamax", cblas_icamax(N, cy, 1), 2);
    double v[N] = {4, 5, -6}, w[N];
    cblas_daxpy(N, 2, x, 1, v, 1);
    check("cblas_daxpy", v[2], 0);
    z u[N] = {1, 2, zx[0]};
    cblas_zdscal(N, 3, u, 1);
    check("cblas_zdscal", u[2], 3 + 6 * I);
    float p[N] = {1, 2, 3}, q[N] = {4, 5, 6};
    cblas_sswap(N, p, 1, q, 1);
    check("cblas_sswap", p[1] - q[2], 2);
    check("ddot_", ddot_(&n, x, &one, y, &one), -24);
    check("dasum_", dasum_(&n, y, &one), 15);
    check("isamax_", isamax_(&n, sy, &one), 3);
    dcopy_(&n, x, &one, w, &one);
    check("dcopy_", w[2], 3);
    drot_(&n, v, &one, w, &one, &d0, &d1);
    check("drot_", v[1] - w[0], 4);
    zaxpy_(&n, &z1, zx, &one, u, &one);
    check("zaxpy_", u[2], 3 + 7 * I);
    small = I;
    c8 t[N] = {1, 2, 3};
    cscal_(&n, &small, t, &one);
    check("cscal_", t[2], 3 * I);
}

static void level_2(void)
{
    double v[N] = {4, 5, -6}, m[9] = {0};
    cblas_dgemv(COL, NO, N, N, 1, A, N, x, 1, 1, v, 1);
    check("cblas_dgemv", v[1], 5 + 4 - 10 + 18);
    cblas_dger(ROW, N, N, 1, x, 1, y, 1, m, N);
    check("cblas_dger", m[1 * N + 2], x[1] * y[2]);
    cblas_dsymv(COL, UP, N, 1, S, N, x, 1, 0, v, 1);
    check("cblas_dsymv", v[0], 2 + 2 + 9);
    double w[N] = {1, 6, 27};
    cblas_dtrsv(COL, LOW, NO, UNIT, N, A, N, w, 1);
    check("cblas_dtrsv", w[2], 27 - 7 - 8 * 2);
    z u[N], h[9] = {0};
    const z a[9] = {1, 0, 0, I, 1, 0, 0, 0, 1};
    cblas_zgemv(COL, CONJ, N, N, &z1, a, N, zx, 1, &z0, u, 1);
    check("cblas_zgemv", u[1], -I * zx[0] + zx[1]);
    cblas_zher(COL, LOW, N, 2, zx, 1, h, N);
    check("cblas_zher", h[2], 2 * zx[2] * conj(zx[0]));
    double r[N] = {1, -2, 3};
    dtrmv_("L", "N", "U", &n, A, &n, r, &one);
    check("dtrmv_", r[2], 7 - 16 + 3);
    double s[9] = {0};
    dsyr_("U", &n, &d2, x, &one, s, &n);
    check("dsyr_", s[0 + 2 * N], 2 * x[0] * x[2]);
    const double packed[6] = {2, -1, 4, 3, 5, -2}, band[9] = {0, 2, 1, 3, 2, 1, 3, 2, 0};
    dspmv_("U", &n, &d1, packed, x, &one, &d0, v, &one);
    check("dspmv_", v[2], 3 - 10 - 6);
    const int k = 1, rows = 3;
    dgbmv_("N", &n, &n, &k, &k, &d1, band, &rows, x, &one, &d0, v, &one);
    check("dgbmv_", v[1], 1 * x[0] + 2 * x[1] + 3 * x[2]);
    z g[9] = {0};
    zgeru_(&n, &n, &z1, zx, &one, zy, &one, g, &n);
    check("zgeru_", g[0 + 2 * N], zx[0] * zy[2]);
}

static void level_3(void)
{
    double m[9], w[9];
    cblas_dgemm(ROW, TRANS, NO, N, N, N, 1, A, N, S, N, 0, m, N);
    check("cblas_dgemm", m[1 * N + 0], 4 * 2 + 5 * -1 + 6 * 3);
    float f[4];
    cblas_sgemm(COL, NO, NO, 2, 2, 2, 1, (float[]){1, 2, 3, 4}, 2, (float[]){5, 6, 7, 8}, 2, 0, f, 2);
    check("cblas_sgemm", f[1], 34);
    cblas_dsyrk(COL, LOW, NO, N, N, 1, A, N, 0, m, N);
    check("cblas_dsyrk", m[2], 7 * 1 + 8 * 2 + 9 * 3);
    for (int i = 0; i < 9; i++)
        w[i] = S[i];
    cblas_dtrmm(COL, LEFT, LOW, NO, UNIT, N, N, 1, A, N, w, N);
    check("cblas_dtrmm", w[2], 7 * 2 + 8 * -1 + 3);
    dtrsm_("L", "L", "N", "U", &n, &n, &d1, A, &n, w, &n);
    check("dtrsm_", w[2], S[2]);
    z h[9], g[9];
    cblas_zherk(COL, UP, NO, N, 1, 2, zx, N, 0, h, N);
    check("cblas_zherk", h[0 + 2 * N], 2 * zx[0] * conj(zx[2]));
    dgemm_("N", "T", &n, &n, &n, &d1, A, &n, E, &n, &d0, m, &n);
    check("dgemm_", m[1 + 2 * N], 6);
    dsymm_("R", "U", &n, &n, &d1, S, &n, A, &n, &d0, m, &n);
    check("dsymm_", m[1 + 2 * N], 4 * 3 + 5 * 5 + 6 * -2);
    dsyr2k_("U", "N", &n, &one, &d1, x, &n, y, &n, &d0, m, &n);
    check("dsyr2k_", m[0 + 1 * N], x[0] * y[1] + y[0] * x[1]);
    zgemm_("C", "N", &one, &two, &n, &z1, zx, &n, (z[]){1, 0, 0, 0, 0, 1}, &n, &z0, g, &one);
    check("zgemm_", g[1], conj(zx[2]));
}

int main(void)
{
    level_1();
    level_2();
    level_3();
    if (!failures)
        puts("good");
    return failures != 0;
}

/* What the library adds to a small DGEMM call that it passes through, and to a call of another function that it forwards.
 *
 *   cc -O2 -o overhead benches/overhead.c -ldl
 *   cc -O2 -DSTUB -shared -fPIC -o stub.so benches/overhead.c
 *   OZ2_NATIVE=/path/to/libopenblas.so.0 LD_PRELOAD=target/release/liboz2blas.so ./overhead /path/to/libopenblas.so.0 [size]
 *   OZ2_INTEGER=lp64 OZ2_NATIVE=./stub.so LD_PRELOAD=target/release/liboz2blas.so ./overhead ./stub.so
 *
 *   OZ2_NATIVE=/path/to/libopenblas.so.0 LD_PRELOAD=target/release/liboz2blas.so ./overhead /path/to/libopenblas.so.0 ddot
 *   OZ2_INTEGER=lp64 OZ2_NATIVE=./stub.so LD_PRELOAD=target/release/liboz2blas.so ./overhead ./stub.so ddot
 *
 * With `ddot` it is a DDOT of length 1. The same native function is called directly and through the library in turns, so that both meet the same clock rate, and
 * the smallest and the median difference of many turns are printed. The stub is a DGEMM that does nothing, and cannot tell how wide its integers are: with it the
 * difference is not lost in the noise of a product, and instructions can be counted:
 *
 *   OZ2_INTEGER=lp64 OZ2_NATIVE=./stub.so valgrind --trace-children=yes --tool=callgrind --callgrind-out-file=/dev/null \
 *       env LD_PRELOAD=target/release/liboz2blas.so ./overhead ./stub.so 8 COUNT
 *
 * once with COUNT = 10000 and once with 20000: the difference of the last "Collected" totals, divided by 10000, is the number
 * of instructions of a call, with the some twenty of the loop (with COUNT only calls through the library are made).
 */
#ifdef STUB
void dgemm_(void) {}
void ddot_(void) {}
#else
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void dgemm(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
                   const int *, const double *, const int *, const double *, double *, const int *);

enum { TURNS = 2001, CALLS = 2000, LARGEST = 64 };

typedef double ddot(const int *, const double *, const int *, const double *, const int *);

static double a[LARGEST * LARGEST], b[LARGEST * LARGEST], c[LARGEST * LARGEST];

static double nanoseconds(dgemm *f, int n, long calls)
{
    const double one = 1, zero = 0;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long call = 0; call < calls; call++)
        f("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (1e9 * (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec)) / calls;
}

static double nanoseconds_ddot(ddot *f, long calls)
{
    const int one = 1;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long call = 0; call < calls; call++)
        f(&one, a, &one, b, &one);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (1e9 * (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec)) / calls;
}

static int ascending(const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

int main(int argc, char **argv)
{
    static double direct[TURNS], through[TURNS], added[TURNS];
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    const int dot = argc > 2 && !strcmp(argv[2], "ddot");
    const char *name = dot ? "ddot_" : "dgemm_";
    void *native = library ? dlsym(library, name) : NULL;
    void *ours = dlsym(RTLD_DEFAULT, name);
    int n = dot ? 1 : argc > 2 ? atoi(argv[2]) : 8;
    if (!native || !ours || native == ours || n < 1 || n > LARGEST) {
        fprintf(stderr, "usage: LD_PRELOAD=liboz2blas.so %s NATIVE_BLAS [ddot | SIZE up to %d [CALLS]]\n", argv[0], LARGEST);
        return 2;
    }
    if (argc > 3) {
        if (dot)
            nanoseconds_ddot((ddot *)ours, atol(argv[3]));
        else
            nanoseconds((dgemm *)ours, n, atol(argv[3]));
        return 0;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        direct[turn] = dot ? nanoseconds_ddot((ddot *)native, CALLS) : nanoseconds((dgemm *)native, n, CALLS);
        through[turn] = dot ? nanoseconds_ddot((ddot *)ours, CALLS) : nanoseconds((dgemm *)ours, n, CALLS);
        added[turn] = through[turn] - direct[turn];
    }
    qsort(direct, TURNS, sizeof *direct, ascending);
    qsort(through, TURNS, sizeof *through, ascending);
    qsort(added, TURNS, sizeof *added, ascending);
    printf("%s n = %d: native %.2f ns, through the library %.2f ns, added %.2f ns (medians); smallest: %.2f, %.2f\n", name, n,
           direct[TURNS / 2], through[TURNS / 2], added[TURNS / 2], direct[0], through[0]);
    return 0;
}
#endif

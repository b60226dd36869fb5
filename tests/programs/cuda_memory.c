/* cuda_memory DEVICE [PLACES...]: products of matrices that are in host (h),
 * device (d) and managed (m) memory: PLACES is as in dhm, for A, B and C; all
 * 27 of them without PLACES. DEVICE is where the memory is taken. Every matrix
 * has gaps between its columns, those of C must survive. */
#include "cuda_driver.h"

enum { M = 70, N = 50, K = 60, GAP = 3 };
static const double SENTINEL = 12345;

/* A matrix of ld x columns, its image on the host and its place. */
struct matrix {
    char place;
    int ld, columns;
    double *host;
    uint64_t device;
};

static size_t bytes(const struct matrix *x)
{
    return sizeof(double) * (size_t)x->ld * (size_t)x->columns;
}

static struct matrix make(char place, int rows, int columns, double gap)
{
    struct matrix x = {place, rows + GAP, columns, NULL, 0};
    x.host = memory(bytes(&x));
    for (size_t i = 0; i < bytes(&x) / sizeof(double); i++)
        x.host[i] = gap;
    if (place == 'd')
        CU(cuMemAlloc_v2, (uint64_t *, size_t), &x.device, bytes(&x));
    if (place == 'm')
        CU(cuMemAllocManaged, (uint64_t *, size_t, unsigned), &x.device, bytes(&x), 1);
    return x;
}

/* What DGEMM gets, with the image of the host there. */
static double *give(const struct matrix *x)
{
    if (x->place == 'd')
        CU(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), x->device, x->host, bytes(x));
    if (x->place == 'm')
        memcpy((void *)x->device, x->host, bytes(x));
    return x->place == 'h' ? x->host : (double *)x->device;
}

static void take_back(struct matrix *x)
{
    /* This copy does not wait for streams of others: DGEMM must have. */
    if (x->place == 'd')
        CU(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), x->host, x->device, bytes(x));
    if (x->place == 'm')
        memcpy(x->host, (void *)x->device, bytes(x));
}

static void drop(struct matrix *x)
{
    if (x->place != 'h')
        CU(cuMemFree_v2, (uint64_t), x->device);
    free(x->host);
}

static void check(const char *places, int transposed, double alpha, double beta)
{
    int m = M, n = N, k = K;
    struct matrix a = make(places[0], transposed ? K : M, transposed ? M : K, NAN);
    struct matrix b = make(places[1], transposed ? N : K, transposed ? K : N, NAN);
    struct matrix c = make(places[2], M, N, SENTINEL);
    for (int h = 0; h < K; h++) {
        for (int i = 0; i < M; i++)
            a.host[transposed ? h + i * a.ld : i + h * a.ld] = small(1, i, h);
        for (int j = 0; j < N; j++)
            b.host[transposed ? j + h * b.ld : h + j * b.ld] = small(2, h, j);
    }
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++)
            c.host[i + j * c.ld] = beta == 0 ? NAN : small(3, i, j);
    const char *letter = transposed ? "T" : "N";
    dgemm_(letter, letter, &m, &n, &k, &alpha, give(&a), &a.ld, give(&b), &b.ld, &beta, give(&c), &c.ld, 1, 1);
    take_back(&c);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < c.ld; i++) {
            double want = SENTINEL, got = c.host[i + j * c.ld];
            if (i < M) {
                long sum = 0;
                for (int h = 0; h < K; h++)
                    sum += small(1, i, h) * small(2, h, j);
                want = alpha * (double)sum + (beta == 0 ? 0 : beta * small(3, i, j));
            }
            if (got != want)
                fail("%s %s beta %g: C(%d,%d) = %a, want %a", places, letter, beta, i, j, got, want);
        }
    drop(&a);
    drop(&b);
    drop(&c);
}

static long calls;

static void check_all(const char *places)
{
    check(places, 0, 1, 0);
    check(places, 1, 2, -1);
    check(places, 0, -0.5, 4);
    calls += 3;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        fail("usage: cuda_memory DEVICE [PLACES...]");
    void *context;
    int device = atoi(argv[1]);
    alarm(120);
    CU(cuInit, (unsigned), 0);
    CU(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
    CU(cuCtxPushCurrent_v2, (void *), context);
    if (argc == 2)
        for (int i = 0; i < 27; i++) {
            const char *kinds = "hdm";
            check_all((char[]){kinds[i / 9], kinds[i / 3 % 3], kinds[i % 3], 0});
        }
    for (int i = 2; i < argc; i++)
        check_all(argv[i]);
    need_well(device);
    need_emulated(calls);
    printf("good\n");
    return 0;
}

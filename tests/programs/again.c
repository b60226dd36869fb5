/* again LIBRARY TIMES: the library is opened, used and closed as often, by a program that is linked to no BLAS. */
#include "oz2test.h"

typedef void dgemm(const char *, const char *, const int *, const int *, const int *, const double *, const double *, const int *,
                   const double *, const int *, const double *, double *, const int *, size_t, size_t);

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage: again LIBRARY TIMES");
    alarm(100);
    double one = 1, zero = 0;
    size_t (*get)(char *, size_t) = NULL;
    for (unsigned i = 0; i < (unsigned)atoi(argv[2]); i++) {
        void *library = dlopen(argv[1], RTLD_NOW | (i % 3 ? RTLD_LOCAL : RTLD_GLOBAL));
        if (!library)
            fail("%s", dlerror());
        dgemm *multiply_by = (dgemm *)dlsym(library, "dgemm_");
        struct product p = integers(90 + i % 7, 80, 70, i, 0, 0);
        multiply_by("N", "N", &p.m, &p.n, &p.k, &one, p.a, &p.m, p.b, &p.k, &zero, p.c, &p.m, 1, 1);
        check_integers(&p, 0);
        done(&p);
        get = (size_t (*)(char *, size_t))dlsym(library, "oz2_get_stats");
        if (dlclose(library))
            fail("%s", dlerror());
    }
    /* It stays in memory, so that its threads do not run into nothing. */
    char text[8192];
    get(text, sizeof text);
    printf("%s\ngood\n", text);
    return 0;
}

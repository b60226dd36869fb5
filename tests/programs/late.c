/* late LIBRARY...: loads the libraries, each for itself, and ends. Compiled with -DLIBRARY, a library whose destructor makes the
 * first call of all: as the last one that was loaded, it does so when the destructors of those before it have run. With -DNATIVE it
 * calls a function of the native BLAS too. */
#include "oz2test.h"

#ifdef LIBRARY
double ddot_(const int *n, const double *x, const int *step_x, const double *y, const int *step_y);

__attribute__((destructor)) static void first_call(void)
{
    exact(150, 140, 130, 1);
    need_emulated(1);
#ifdef NATIVE
    double x[] = {1, 2, 3};
    int three = 3, one = 1;
    if (ddot_(&three, x, &one, x, &one) != 14)
        fail("ddot_ is wrong");
#endif
    printf("good\n");
    fflush(stdout);
}
#else
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW | RTLD_LOCAL))
            fail("%s", dlerror());
    return 0;
}
#endif

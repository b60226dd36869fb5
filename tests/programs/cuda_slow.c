/* A libcuda whose start takes a while, as that of real drivers does: built as a
 * shared library in front of the software device. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <unistd.h>

int cuInit(unsigned flags)
{
    int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    usleep(300000);
    return next ? next(flags) : 999;
}

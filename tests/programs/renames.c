/* Counts the calls of rename, and tells their number at exit. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int count;

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    count++;
    return next(from, to);
}

__attribute__((destructor)) static void tell(void)
{
    printf("renames %d\n", count);
}

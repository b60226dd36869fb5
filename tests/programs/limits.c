/* limits MIB cold|warm: DGEMM where the address space may grow by no more than
 * MIB. The result must be right; who computes it is left to the library. */
#include "oz2test.h"
#include <sys/resource.h>

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu", &pages) != 1)
        fail("cannot read statm");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage: limits MIB cold|warm");
    alarm(120);
    if (!strcmp(argv[2], "warm"))
        exact(20, 20, 20, 1);
    struct product p = integers(310, 290, 330, 2, 0, 0), q = integers(900, 40, 50, 3, 0, 0);
    size_t bytes = address_space() + ((size_t)atoi(argv[1]) << 20);
    struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &limit))
        fail("cannot set the limit");
    multiply(&p);
    multiply(&q);
    check_integers(&p, 0);
    check_integers(&q, 0);
    printf("emulated %ld\ngood\n", counter("emulated"));
    return 0;
}

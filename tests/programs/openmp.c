/* DGEMM from every thread of an OpenMP parallel region. There the program uses
 * the cores already, so the library must not start threads of its own. */
#include "oz2test.h"
#include <omp.h>

static int threads_of_process(void)
{
    char line[256];
    int count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Threads: %d", &count);
    if (status)
        fclose(status);
    return count;
}

int main(void)
{
    int before = 0, after = 0;
    alarm(120);
#pragma omp parallel num_threads(8)
    {
#pragma omp single
        before = threads_of_process();
        for (unsigned round = 0; round < 10; round++) {
            int x = omp_get_thread_num();
            exact(60 + x, 120, 70 + x, 50u * round + (unsigned)x);
        }
        exact(200, 200, 200, 7);
#pragma omp barrier
#pragma omp single
        after = threads_of_process();
    }
    need_emulated(88);
    printf("threads %d %d\n", before, after);

    /* Outside the region the library may use its threads again. */
    exact(300, 200, 150, 9);
    need_emulated(89);
    printf("good\n");
    return 0;
}

/* nested: DGEMM in nested parallel regions, in tasks, and in a loop, by whichever OpenMP runtime the program is linked to. */
#include "oz2test.h"
#include <omp.h>

int main(void)
{
    alarm(120);
    omp_set_max_active_levels(2);
    int inner = 0;
#pragma omp parallel num_threads(3)
    {
        unsigned outer = (unsigned)omp_get_thread_num();
        exact(70, 60, 50, outer);
#pragma omp parallel num_threads(2) reduction(+ : inner)
        {
            for (unsigned round = 0; round < 4; round++)
                exact(60 + (int)outer, 90, 80, 100 * outer + 10 * round + (unsigned)omp_get_thread_num());
            inner += omp_get_level() == 2;
        }
    }
    if (!inner)
        fail("no nested region");
#pragma omp parallel num_threads(4)
#pragma omp single
    for (unsigned i = 0; i < 12; i++)
#pragma omp task firstprivate(i)
        exact(100, 90, 80, i);
#pragma omp parallel for num_threads(4)
    for (unsigned i = 0; i < 12; i++)
        exact(100, 90, 80, i);
    exact(300, 200, 150, 1);
    need_emulated(3 + 4 * inner + 25);
    printf("good\n");
    return 0;
}

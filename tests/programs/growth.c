/* growth CALLS: so many calls of all sorts, in threads that come and go, with engines that change. The resident memory may grow by
 * no more than 20 MB after the first tenth of them. */
#include "oz2test.h"
#include <pthread.h>

static const char *engines[] = {"auto", "portable", "avx2", "avx512", "auto"};
enum { ENGINES = sizeof engines / sizeof *engines, OF_A_THREAD = 10, OF_A_ROUND = 2 * OF_A_THREAD };

static long resident(void)
{
    long pages[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", pages, pages + 1) != 2)
        fail("cannot read statm");
    fclose(file);
    return pages[1] * sysconf(_SC_PAGESIZE);
}

static void *calls(void *first)
{
    unsigned seed = (unsigned)(uintptr_t)first;
    for (unsigned i = seed; i < seed + OF_A_THREAD; i++) {
        /* Now and then a larger one. */
        int size = i % 500 == 0 ? 300 : i % 50 == 0 ? 120 : 3 + (int)(i * 7 % 40);
        struct product p = integers(size, size + (int)(i % 3), size + (int)(i % 5), i, 0, 0);
        multiply(&p);
        if (i % 10 == 0)
            check_integers(&p, 0);
        done(&p);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: growth CALLS");
    int (*set)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_DEFAULT, "oz2_set_option");
    unsigned count = (unsigned)atoi(argv[1]), warm = count / 10 / OF_A_ROUND * OF_A_ROUND;
    long before = 0;
    for (unsigned i = 0; i < count; i += OF_A_ROUND) {
        void *halves[] = {(void *)(uintptr_t)i, (void *)(uintptr_t)(i + OF_A_THREAD)};
        if (i == warm)
            before = resident();
        if (set && i / OF_A_ROUND % 10 == 0)
            set("ENGINE", engines[i / OF_A_ROUND / 10 % ENGINES]);
        pthread_t threads[2];
        int is_threaded = i / OF_A_ROUND % 2;
        for (int t = 0; t < 2; t++) {
            if (!is_threaded)
                calls(halves[t]);
            else if (pthread_create(&threads[t], NULL, calls, halves[t]))
                fail("the test cannot start its threads");
        }
        for (int t = 0; is_threaded && t < 2; t++)
            pthread_join(threads[t], NULL);
    }
    long growth = resident() - before;
    printf("growth %ld KiB after %u calls; emulated %ld of %ld\n", growth / 1024, count, counter("emulated"), counter("calls"));
    if (growth > 20000000)
        fail("the resident memory grows by %ld bytes", growth);
    need_emulated((long)count / 3);
    printf("good\n");
    return 0;
}

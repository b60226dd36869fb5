/* threads many|small|exit|leave: DGEMM in threads of the program. */
#include "oz2test.h"
#include <pthread.h>

enum { THREADS = 96, ROUNDS = 4 };
static pthread_barrier_t gate;

static void *worker(void *number)
{
    int x = (int)(intptr_t)number;
    pthread_barrier_wait(&gate);
    for (int round = 0; round < ROUNDS; round++)
        exact(40 + x, 50 + x % 7, 60 + x % 5, (unsigned)(100 * x + round));
    return NULL;
}

static void *one_product(void *unused)
{
    (void)unused;
    exact(200, 180, 170, 1);
    return NULL;
}

static void *product_and_exit(void *unused)
{
    one_product(unused);
    need_emulated(1);
    printf("good\n");
    exit(0);
}

static void *endless(void *unused)
{
    for (;;)
        one_product(unused);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    pthread_t threads[THREADS];
    alarm(120);
    if (!strcmp(mode, "many")) {
        /* The very first call of the process comes from 96 threads at once. */
        pthread_barrier_init(&gate, NULL, THREADS);
        for (intptr_t x = 0; x < THREADS; x++)
            if (pthread_create(&threads[x], NULL, worker, (void *)x))
                fail("the test cannot start its threads");
        for (int x = 0; x < THREADS; x++)
            pthread_join(threads[x], NULL);
        need_emulated(THREADS * ROUNDS);
    } else if (!strcmp(mode, "small")) {
        /* The first call of all, with everything it sets up, on 128 KiB. */
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 128 * 1024);
        if (pthread_create(&threads[0], &attributes, one_product, NULL))
            fail("the test cannot start its thread");
        pthread_join(threads[0], NULL);
        need_emulated(1);
    } else if (!strcmp(mode, "exit")) {
        pthread_create(&threads[0], NULL, product_and_exit, NULL);
        pthread_join(threads[0], NULL);
        fail("exit() in a thread did not end the process");
    } else if (!strcmp(mode, "leave")) {
        /* main returns while two threads are inside DGEMM. */
        for (int x = 0; x < 2; x++)
            pthread_create(&threads[x], NULL, endless, NULL);
        one_product(NULL);
        usleep(30000);
        need_emulated(1);
    } else {
        fail("usage: threads many|small|exit|leave");
    }
    printf("good\n");
    return 0;
}

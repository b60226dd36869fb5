/* cuda_calls THREADS COUNT M N K: COUNT exact products in each of THREADS
 * threads at once (0: in the main thread), then what became of the device.
 * The end of the work is marked in the trace of the software device. */
#include "cuda_driver.h"
#include <fcntl.h>
#include <pthread.h>

static int count, m, n, k;
static pthread_barrier_t gate;

static void *work(void *number)
{
    int x = (int)(intptr_t)number;
    if (x)
        pthread_barrier_wait(&gate);
    for (int i = 0; i < count; i++)
        exact(m + x, n + x % 3, k, (unsigned)(100 * x + i));
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        fail("usage: cuda_calls THREADS COUNT M N K");
    int threads = atoi(argv[1]);
    pthread_t handles[threads + 1];
    count = atoi(argv[2]), m = atoi(argv[3]), n = atoi(argv[4]), k = atoi(argv[5]);
    alarm(120);
    printf("before %d\n", mapped("libsoftgpu"));
    if (threads) {
        pthread_barrier_init(&gate, NULL, (unsigned)threads);
        for (intptr_t x = 1; x <= threads; x++)
            if (pthread_create(&handles[x], NULL, work, (void *)x))
                fail("the test cannot start its threads");
        for (int x = 1; x <= threads; x++)
            pthread_join(handles[x], NULL);
    } else {
        work(NULL);
    }
    printf("mapped %d\nused %llu %llu\n", mapped("libsoftgpu"), (unsigned long long)used(0),
           (unsigned long long)used(1));
    const char *trace = getenv("SOFTGPU_TRACE_FILE");
    int file = trace ? open(trace, O_WRONLY | O_APPEND) : -1;
    if (file >= 0 && (write(file, "end\n", 4) != 4 || close(file)))
        fail("the trace cannot be marked");
    printf("good\n");
    return 0;
}

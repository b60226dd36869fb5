/* cuda_context THREADS: the stack of current contexts of a program that uses
 * two devices itself is the same before and after a DGEMM; in the main thread,
 * and then in THREADS threads at once. */
#include "cuda_driver.h"
#include <pthread.h>

typedef void *context;

static context contexts[2];

static context current(void)
{
    context c;
    CU(cuCtxGetCurrent, (context *), &c);
    return c;
}

/* With `depth` contexts on the stack, device by device, the last of `top`. */
static void check(int depth, int top, unsigned seed)
{
    context popped, want[4];
    for (int i = 0; i < depth; i++) {
        want[i] = contexts[(top + depth - 1 - i) % 2];
        CU(cuCtxPushCurrent_v2, (context), want[i]);
    }
    context before = current();
    if (before != (depth ? contexts[top] : NULL))
        fail("the test pushed another context");
    exact(60 + (int)seed % 9, 50, 40, seed);
    if (current() != before)
        fail("depth %d, device %d: current context %p, was %p", depth, top, current(), before);
    for (int i = depth; i-- > 0;) {
        CU(cuCtxPopCurrent_v2, (context *), &popped);
        if (popped != want[i])
            fail("depth %d, device %d: context %d of the stack is %p, was %p", depth, top, i, popped, want[i]);
    }
    if (current())
        fail("depth %d, device %d: one context too many", depth, top);
}

static void *work(void *number)
{
    unsigned seed = (unsigned)(intptr_t)number * 100;
    for (int depth = 0; depth < 4; depth++)
        for (int top = 0; top < 2; top++)
            check(depth, top, seed++);
    /* A context that was not pushed but set. */
    CU(cuCtxSetCurrent, (context), contexts[1]);
    exact(70, 60, 50, seed);
    if (current() != contexts[1])
        fail("the context that was set is not current any more");
    CU(cuCtxSetCurrent, (context), NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage: cuda_context THREADS");
    int threads = atoi(argv[1]);
    pthread_t handles[threads + 1];
    alarm(120);
    CU(cuInit, (unsigned), 0);
    for (int device = 0; device < 2; device++)
        CU(cuDevicePrimaryCtxRetain, (context *, int), &contexts[device], device);
    work(NULL);
    for (intptr_t x = 1; x <= threads; x++)
        if (pthread_create(&handles[x], NULL, work, (void *)x))
            fail("the test cannot start its threads");
    for (int x = 1; x <= threads; x++)
        pthread_join(handles[x], NULL);
    printf("good\n");
    return 0;
}

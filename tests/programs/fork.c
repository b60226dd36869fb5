/* fork fresh|after|thread|nested|busy|threads: DGEMM on both sides of a fork.
 * A child that hangs is ended by its alarm, and then the parent fails. */
#include "oz2test.h"
#include <pthread.h>
#include <sys/wait.h>

static void wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        fail("the child is lost");
    if (WIFSIGNALED(status))
        fail("the child died of signal %d", WTERMSIG(status));
    if (status)
        fail("the child failed with status %d", WEXITSTATUS(status));
}

/* In the child: two exact products that must both have been emulated. */
static void child_work(unsigned seed)
{
    alarm(60);
    long before = counter("emulated");
    exact(120, 110, 130, seed);
    exact(300, 200, 150, seed + 1);
    if (before >= 0)
        need_emulated(before + 2);
}

static void fork_and_work(unsigned seed)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        child_work(seed);
        fflush(NULL);
        _exit(0);
    }
    wait_for(child);
}

static void *thread_that_forks(void *unused)
{
    (void)unused;
    exact(200, 210, 220, 30);
    fork_and_work(31);
    return NULL;
}

static void *thread_that_forks_often(void *seed)
{
    for (unsigned i = 0; i < 8; i++) {
        usleep(2000);
        fork_and_work((unsigned)(uintptr_t)seed + 2 * i);
    }
    return NULL;
}

static volatile int stop;

static void *always_busy(void *unused)
{
    (void)unused;
    for (unsigned seed = 0; !stop; seed++)
        exact(160, 150, 140, seed);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    pthread_t thread;
    alarm(150);
    if (!strcmp(mode, "fresh")) {
        fork_and_work(1);
    } else if (!strcmp(mode, "after")) {
        exact(300, 200, 150, 10);
        for (unsigned i = 0; i < 5; i++)
            fork_and_work(11 + i);
    } else if (!strcmp(mode, "thread")) {
        exact(300, 200, 150, 20);
        pthread_create(&thread, NULL, thread_that_forks, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "nested")) {
        exact(300, 200, 150, 40);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            child_work(41);
            fork_and_work(43);
            child_work(45);
            fflush(NULL);
            _exit(0);
        }
        wait_for(child);
    } else if (!strcmp(mode, "busy")) {
        /* Another thread holds whatever the library locks, at a random point. */
        pthread_create(&thread, NULL, always_busy, NULL);
        for (unsigned i = 0; i < 15; i++) {
            usleep(3000);
            fork_and_work(50 + i);
        }
        stop = 1;
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "threads")) {
        /* Two threads fork while two others are inside of calls, from the first call of the process on. */
        pthread_t busy[2], forking[2];
        for (int i = 0; i < 2; i++) {
            pthread_create(&busy[i], NULL, always_busy, NULL);
            pthread_create(&forking[i], NULL, thread_that_forks_often, (void *)(uintptr_t)(100 + 50 * i));
        }
        for (int i = 0; i < 2; i++)
            pthread_join(forking[i], NULL);
        stop = 1;
        for (int i = 0; i < 2; i++)
            pthread_join(busy[i], NULL);
    } else {
        fail("usage: fork fresh|after|thread|nested|busy|threads");
    }
    /* The parent must still be able to work after it. */
    exact(300, 200, 150, 99);
    need_emulated(1);
    printf("good\n");
    return 0;
}

/* ending exit|_exit|return|signal TIMES: a process that ends while two of its threads are inside of DGEMM. TIMES children, which are
 * fresh as far as the library is concerned, end after 0 to 12 ms: before, in and after the first call. Each must have the right status. */
#include "oz2test.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static void *endless(void *seed)
{
    for (;;)
        exact(150, 140, 130, (unsigned)(uintptr_t)seed);
    return NULL;
}

static void *other_exit(void *microseconds)
{
    usleep((unsigned)(uintptr_t)microseconds);
    exit(7);
}

static int child(const char *mode, unsigned number)
{
    unsigned microseconds = 250 * number;
    pthread_t thread;
    alarm(30);
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&thread, NULL, endless, (void *)i);
    if (!strcmp(mode, "exit")) {
        pthread_create(&thread, NULL, other_exit, (void *)(uintptr_t)microseconds);
        endless(NULL);
    }
    usleep(microseconds);
    if (!strcmp(mode, "_exit"))
        _exit(7);
    if (!strcmp(mode, "signal"))
        kill(getpid(), SIGTERM);
    return 7;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage: ending exit|_exit|return|signal TIMES");
    int by_signal = !strcmp(argv[1], "signal");
    for (int i = 0; i < atoi(argv[2]); i++) {
        pid_t pid = fork();
        if (pid == 0)
            return child(argv[1], (unsigned)i);
        int status;
        if (waitpid(pid, &status, 0) != pid)
            fail("the child is lost");
        if (by_signal ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM : !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fail("child %d ended with the wait status %#x", i, (unsigned)status);
    }
    exact(150, 140, 130, 1);
    need_emulated(1);
    printf("good\n");
    return 0;
}

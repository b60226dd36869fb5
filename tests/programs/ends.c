/* Ends in ways that run no exit handlers, after calls that the file of OZ2_STATS must have all the same.
 *
 *   ends _exit|abort|kill|segv|exec|return COUNT SIZE
 *   ends child COUNT SIZE      a forked child makes COUNT calls and leaves by _exit; its parent makes one before and one after
 *   ends idle COUNT SIZE       the same, but the child makes no call and leaves by exit
 *   ends moved COUNT SIZE      the working folder changes between the calls
 *   ends busy COUNT SIZE       as _exit, with two threads that make COUNT calls each
 */
#include "oz2test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static int count, size;
static volatile int *volatile nowhere;

static void *calls(void *unused)
{
    (void)unused;
    for (int i = 0; i < count; i++)
        exact(size, size, size, 1 + i % 5);
    return NULL;
}

static int fork_and(int works)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (works) {
            calls(NULL);
            _exit(0);
        }
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 4 ? argv[1] : "";
    count = argc == 4 ? atoi(argv[2]) : 0;
    size = argc == 4 ? atoi(argv[3]) : 0;
    alarm(150);
    if (!strcmp(mode, "child") || !strcmp(mode, "idle")) {
        exact(size, size, size, 1);
        if (!fork_and(!strcmp(mode, "child")))
            fail("the child failed");
        exact(size, size, size, 2);
        return 0;
    }
    if (!strcmp(mode, "busy")) {
        pthread_t thread[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&thread[i], NULL, calls, NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
        _exit(0);
    }
    if (!strcmp(mode, "moved")) {
        exact(size, size, size, 1);
        if (chdir("/") != 0)
            fail("chdir");
    }
    calls(NULL);
    if (!strcmp(mode, "_exit"))
        _exit(0);
    if (!strcmp(mode, "abort"))
        abort();
    if (!strcmp(mode, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(mode, "segv"))
        *nowhere = 1;
    if (!strcmp(mode, "exec"))
        execl("/bin/true", "true", (char *)NULL);
    return strcmp(mode, "return") && strcmp(mode, "moved");
}

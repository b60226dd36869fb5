/* life exec|main-exit|cancel|cancel-first|no-thread|stack BYTES|signals: what a process may do besides calling DGEMM. */
#include "oz2test.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile int stop;

static void *endless(void *seed)
{
    while (!stop)
        exact(150, 140, 130, (unsigned)(uintptr_t)seed);
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    if (pthread_create(thread, NULL, run, argument))
        fail("the test cannot start its threads");
}

/* ---- exec ---- */

/* The program that exec starts: nothing is left of the calls before it. */
static int after_exec(const char *rest, char **argv)
{
    if (counter("calls") > 0)
        fail("%ld calls before the first", counter("calls"));
    exact(200, 150, 120, 5);
    need_emulated(1);
    if (!strcmp(rest, "0")) {
        printf("good\n");
        return 0;
    }
    char next[2] = {rest[0] - 1, 0}, *arguments[] = {argv[0], "after-exec", next, NULL};
    pthread_t thread;
    start(&thread, endless, NULL);
    usleep(5000);
    /* In the middle of a call of another thread. */
    execv("/proc/self/exe", arguments);
    fail("no exec");
}

static void exec_all(char **argv)
{
    exact(200, 150, 120, 1);
    for (int i = 0; i < 5; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = {argv[0], "after-exec", "1", NULL};
            if (i % 2)
                exact(200, 150, 120, 2);
            if (!freopen("/dev/null", "w", stdout))
                _exit(9);
            execv("/proc/self/exe", arguments);
            _exit(8);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            fail("the program after fork and exec ended with the wait status %#x", (unsigned)status);
    }
    char *arguments[] = {argv[0], "after-exec", "3", NULL};
    execv("/proc/self/exe", arguments);
    fail("no exec");
}

/* ---- the end of main's thread ---- */

static void *after_main(void *unused)
{
    (void)unused;
    usleep(20000);
    for (unsigned seed = 0; seed < 10; seed++)
        exact(150, 140, 130, seed);
    need_emulated(11);
    printf("good\n");
    fflush(NULL);
    return NULL;
}

/* ---- pthread_cancel ---- */

static volatile int inside;

/* A request to end waits until the thread asks: the call ends first, with its result. */
static void *cancelled(void *pending)
{
    if (pending)
        pthread_cancel(pthread_self());
    struct product p = integers(150, 140, 130, 3, 0, 0);
    for (;;) {
        inside = 1;
        multiply(&p);
        inside = 0;
        check_integers(&p, 0);
        pthread_testcancel();
    }
    return NULL;
}

static void cancel(int pending, int times)
{
    for (int i = 0; i < times; i++) {
        pthread_t thread;
        void *result;
        inside = 0;
        start(&thread, cancelled, (void *)(uintptr_t)pending);
        if (!pending) {
            usleep((unsigned)(100 * i));
            while (!inside)
                usleep(50);
            pthread_cancel(thread);
        }
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            fail("the thread was not cancelled");
        if (pending && inside)
            fail("the thread ended inside of the call");
    }
}

/* ---- no more threads ---- */

/* New threads fail with an error, or end the process. clone3 says ENOSYS, since a filter cannot see its flags. */
static void forbid_threads(unsigned action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("no seccomp: %s", strerror(errno));
}

/* nobody has used up all threads: the limit does not bind root. */
static void limit_threads(void)
{
    struct rlimit limit = {1, 1};
    if (setrlimit(RLIMIT_NPROC, &limit) || setgid(65534) || setuid(65534))
        fail("cannot become nobody");
}

static void *nothing(void *unused)
{
    return unused;
}

static void no_thread(const char *how)
{
    pthread_t thread;
    if (!strcmp(how, "warm"))
        exact(200, 150, 120, 1);
    if (!strcmp(how, "limit"))
        limit_threads();
    else
        forbid_threads(!strcmp(how, "kill") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (!strcmp(how, "eagain") ? EAGAIN : EPERM));
    if (strcmp(how, "kill") && !pthread_create(&thread, NULL, nothing, NULL))
        fail("threads can still be started");
    for (unsigned seed = 0; seed < 3; seed++)
        exact(300, 200, 150, seed);
    need_emulated(3);
}

/* ---- stacks ---- */

static void *one_product(void *unused)
{
    exact(200, 180, 170, 1);
    return unused;
}

static void small_stack(size_t bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, bytes))
        fail("no stack of %zu bytes", bytes);
    if (pthread_create(&thread, &attributes, one_product, NULL))
        fail("the test cannot start its thread");
    pthread_join(thread, NULL);
    need_emulated(1);
}

static volatile sig_atomic_t signals, outside;
static char *stack;
static size_t stack_bytes;

/* Overwrites what a handler may: vector registers too. On its own stack, which has room for the registers that the system saves. */
static void handler(int number)
{
    volatile double numbers[64];
    char here;
    for (int i = 0; i < 64; i++)
        numbers[i] = number * 1.5 + i;
    outside += !(&here >= stack && &here < stack + stack_bytes);
    signals += numbers[7] > 0;
}

/* A timer interrupts calls, also where the tile registers are in use; each handler runs on an alternate stack of the size that the
 * system recommends. */
static void alternate_stack(void)
{
    stack_bytes = (size_t)sysconf(_SC_SIGSTKSZ);
    stack = memory(stack_bytes);
    stack_t alternate = {.ss_sp = stack, .ss_size = stack_bytes};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval timer = {{0, 300}, {0, 300}};
    if (sigaltstack(&alternate, NULL) || sigaction(SIGALRM, &action, NULL))
        fail("no alternate stack of %zu bytes: %s", stack_bytes, strerror(errno));
    setitimer(ITIMER_REAL, &timer, NULL);
    for (unsigned seed = 0; seed < 400 && (seed < 20 || signals < 200); seed++)
        exact(200, 180, 170, seed);
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
    if (signals < 20 || outside)
        fail("%d signals, %d of them on another stack", (int)signals, (int)outside);
    need_emulated(20);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *word = argc > 2 ? argv[2] : "";
    pthread_t thread;
    if (strcmp(mode, "signals"))
        alarm(100);
    if (!strcmp(mode, "exec")) {
        exec_all(argv);
    } else if (!strcmp(mode, "after-exec")) {
        return after_exec(word, argv);
    } else if (!strcmp(mode, "main-exit")) {
        start(&thread, after_main, NULL);
        exact(150, 140, 130, 1);
        pthread_exit(NULL);
    } else if (!strcmp(mode, "cancel")) {
        cancel(0, 50);
        need_emulated(50);
    } else if (!strcmp(mode, "cancel-first")) {
        /* Where the library starts: it reads files and looks for a BLAS. */
        cancel(1, 1);
        need_emulated(1);
    } else if (!strcmp(mode, "no-thread")) {
        no_thread(word);
    } else if (!strcmp(mode, "stack")) {
        small_stack((size_t)atol(word));
    } else if (!strcmp(mode, "signals")) {
        alternate_stack();
    } else {
        fail("life: unknown mode '%s'", mode);
    }
    /* Whatever happened, later calls work. */
    exact(200, 150, 120, 9);
    printf("good\n");
    return 0;
}

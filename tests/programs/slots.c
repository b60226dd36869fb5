/* slots MODE: calls through the jump slots of the library to a native BLAS made for it (slots_native.c). */
#include "oz2test.h"
#include "slots.h"
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

static void *ours(const char *name)
{
    void *f = dlsym(RTLD_DEFAULT, name);
    if (!f)
        fail("no %s", name);
    return f;
}

/* The native library as the slots see it: OZ2_NATIVE names it, and the first call through any slot loads it. */
static void *native(const char *name)
{
    const char *file = getenv("OZ2_NATIVE");
    void *handle = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *f = handle ? dlsym(handle, name) : NULL;
    if (!f)
        fail("no native %s", name);
    return f;
}

static const void *at(long value)
{
    return (const void *)(intptr_t)value;
}

static void arguments(void)
{
    /* 1 + 4 + 9 + ... + 24^2 */
    double got = dgemv_(1, 2, at(3), 4, 5, 6, 7, at(8), 9, 10, 11, 12, 13, 14, 15, at(16), 17, 18, 19, 20, 21, 22, at(23), 24);
    if (got != 4900)
        fail("24 arguments: %g", got);
}

static void results(void)
{
    double x[2] = {2, 3};
    struct large l = dger_(x, 7, 5);
    if (l.d[0] != 2 || l.d[1] != 3 || l.d[2] != 5 || l.d[3] != -5 || l.i != 7)
        fail("a structure in memory");
    if (cdotc_(1 + 2 * I, 3) != 3 + 6 * I)
        fail("float complex");
    if (zdotu_(1 + 2 * I, 3) != 3 + 6 * I)
        fail("double complex");
    if (dsdot_(0x1.0000000000000002p0L, 2) != 0x2.0000000000000004p0L)
        fail("long double");
}

static void variadic(void)
{
    if (cblas_xerbla(4, "name", "%d %g %s %g %ld %g %g %g %g %g %g %g", 1, 2.5, "three", 4.5, 5L, 6.5, 7.5, 8.5, 9.5, 10.5,
                     11.5, 12.5) != 4)
        fail("variadic");
}

#define WIDE(name, wide, lanes, function) \
    static void name(void) \
    { \
        wide x[10]; \
        double want = 5; \
        for (int i = 0; i < 10; i++) \
            for (int lane = 0; lane < lanes; lane++) { \
                x[i][lane] = i * 7 + lane * 3 - 11; \
                want += (1 + i + 10 * lane) * x[i][lane]; \
            } \
        double got = function(x[0], 5, x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9]); \
        if (got != want) \
            fail(#name ": %g, want %g", got, want); \
    }

__attribute__((target("avx2")))
WIDE(ymm, __m256d, 4, dtrsm_)
__attribute__((target("avx512f")))
WIDE(zmm, __m512d, 8, dsyrk_)

static int level(void)
{
    return __builtin_cpu_supports("avx512bw") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
}

/* Loads every register from *in (in r11), with four words on the stack, and calls. What comes back of the registers that a
 * function has to leave alone goes to *out. */
__asm__(".text\ncall_with:\n" /* (function, in, level, out) */
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rcx\n push %rdi\n sub $40, %rsp\n"
        "mov %rsi, %r11\n mov %edx, %ecx\n"
        "mov 112(%r11), %rax\n mov %rax, (%rsp)\n mov 120(%r11), %rax\n mov %rax, 8(%rsp)\n"
        "mov 128(%r11), %rax\n mov %rax, 16(%rsp)\n mov 136(%r11), %rax\n mov %rax, 24(%rsp)\n"
        "cmp $1, %ecx\n jb 1f\n je 2f\n"
        ".irp n,0,1,2,3,4,5,6,7\n kmovq 144+8*\\n(%r11), %k\\n\n .endr\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        "vmovdqu64 208+64*\\n(%r11), %zmm\\n\n .endr\n jmp 3f\n"
        "2:\n .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovdqu 208+64*\\n(%r11), %ymm\\n\n .endr\n jmp 3f\n"
        "1:\n .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu 208+64*\\n(%r11), %xmm\\n\n .endr\n"
        "3:\n ldmxcsr 2256(%r11)\n fldcw 2260(%r11)\n"
        "mov 0(%r11), %rdi\n mov 8(%r11), %rsi\n mov 16(%r11), %rdx\n mov 24(%r11), %rcx\n mov 32(%r11), %r8\n"
        "mov 40(%r11), %r9\n mov 48(%r11), %rax\n mov 56(%r11), %r10\n mov 64(%r11), %rbx\n mov 72(%r11), %rbp\n"
        "mov 80(%r11), %r12\n mov 88(%r11), %r13\n mov 96(%r11), %r14\n mov 104(%r11), %r15\n"
        "call *40(%rsp)\n"
        "mov 48(%rsp), %r11\n mov %rbx, 64(%r11)\n mov %rbp, 72(%r11)\n mov %r12, 80(%r11)\n mov %r13, 88(%r11)\n"
        "mov %r14, 96(%r11)\n mov %r15, 104(%r11)\n stmxcsr 2256(%r11)\n fnstcw 2260(%r11)\n"
        "add $56, %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
        ".pushsection .rodata\n 4: .long 0x1f80\n 5: .short 0x37f\n .popsection\n ldmxcsr 4b(%rip)\n fldcw 5b(%rip)\n"
        "ret\n");
void call_with(void *function, const struct registers *in, int level, struct registers *out);

static void same(const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        fail("%s: %#llx, want %#llx", what, (unsigned long long)got, (unsigned long long)want);
}

static void registers(void)
{
    static struct registers in, back;
    int vectors = level() == 2 ? 32 : 16, bytes = 16 << level();
    unsigned char *byte = (unsigned char *)&in;
    for (size_t i = 0; i < sizeof in; i++)
        byte[i] = (unsigned char)(i * 37 + (i >> 8) * 11 + 1);
    in.mxcsr = 0xBFC0; /* rounds down, flushes, treats subnormals as zero */
    in.x87 = 0x0E7F;   /* rounds to zero, 53 bits */
    call_with(ours("drot_"), &in, level(), &back);
    struct registers found = **(struct registers **)native("slots_found");
    const char *names[] = {"rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax", "r10", "rbx", "rbp", "r12", "r13", "r14", "r15",
                           "stack 0", "stack 1", "stack 2", "stack 3"};
    for (int i = 0; i < 18; i++)
        same(names[i], (&found.rdi)[i], (&in.rdi)[i]);
    for (int i = 8; i < 14; i++)
        same(names[i], (&back.rdi)[i], (&in.rdi)[i]);
    for (int i = 0; i < vectors; i++)
        if (memcmp(found.vector[i], in.vector[i], bytes))
            fail("vector register %d", i);
    for (int i = 0; level() == 2 && i < 8; i++)
        same("mask register", found.k[i], in.k[i]);
    same("mxcsr", found.mxcsr, in.mxcsr);
    same("x87 control word", found.x87, in.x87);
    same("mxcsr afterwards", back.mxcsr & ~0x3Fu, in.mxcsr & ~0x3Fu);
    same("x87 control word afterwards", back.x87, in.x87);
}

/* Everything, twice: before and after the slots have their functions. The very first call loads the native library, which does
 * what it can to spoil the call. */
static void abi(void)
{
    for (int turn = 0; turn < 2; turn++) {
        errno = 77;
        registers();
        if (errno != 77)
            fail("errno is %d", errno);
        arguments();
        results();
        variadic();
        if (level() >= 1)
            ymm();
        if (level() == 2)
            zmm();
    }
}

/* Eight threads meet at a slot that has no function yet. */
enum { THREADS = 8, CALLS = 1000 };
static pthread_barrier_t barrier;

static void *thread(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < CALLS; i++)
        if (dnrm2_(i) != i + 1)
            fail("dnrm2_(%d)", i);
    return NULL;
}

static void threads(void)
{
    pthread_t t[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, thread, NULL))
            fail("no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    int calls = *(int *)native("slots_calls");
    if (calls != THREADS * CALLS)
        fail("%d calls", calls);
}

/* One name and number in each line of a file: the function of that name has to return the number. */
static long each_name(const char *path)
{
    FILE *file = fopen(path, "r");
    char name[100];
    long number, count = 0;
    if (!file)
        fail("no file %s", path);
    while (fscanf(file, "%ld %99s", &number, name) == 2) {
        long (*f)(void) = (long (*)(void))ours(name);
        for (int turn = 0; turn < 2; turn++)
            if (f() != number)
                fail("%s is another function", name);
        count++;
    }
    fclose(file);
    return count;
}

static void *names_thread(void *path)
{
    each_name(path);
    return NULL;
}

/* Forks while another thread looks for functions: each child finds them all anew or goes on with what is there. */
static void forks(char *path)
{
    pthread_t t;
    if (pthread_create(&t, NULL, names_thread, path))
        fail("no thread");
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(20);
            each_name(path);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status)
            fail("child %d: status %#x", i, status);
    }
    pthread_join(t, NULL);
}

/* A routine that nobody has, until a library is loaded that has it. */
static void late(const char *file)
{
    static const char name[] = "scipy_cblas_zgemm_batch_strided64_";
    double complex (*f)(double complex, long) = (double complex (*)(double complex, long))ours(name);
    long (*number)(void) = (long (*)(void))ours(name);
    for (int i = 0; i < 10; i++)
        if (f(3 + 4 * I, 5) != 0 || number() != 0)
            fail("a missing routine returns something");
    if (file) {
        if (!dlopen(file, RTLD_NOW | RTLD_LOCAL))
            fail("%s", dlerror());
        if (number() <= 0 || number() != ((long (*)(void))dlsym(dlopen(file, RTLD_NOW), name))())
            fail("a library that came later is not found");
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    alarm(100);
    if (!strcmp(mode, "abi"))
        abi();
    else if (!strcmp(mode, "threads"))
        threads();
    else if (!strcmp(mode, "names") && argc == 3)
        printf("%ld names\n", each_name(argv[2]));
    else if (!strcmp(mode, "forks") && argc == 3)
        forks(argv[2]);
    else if (!strcmp(mode, "late"))
        late(argc > 2 ? argv[2] : NULL);
    else
        fail("usage: slots abi|threads|names FILE|forks FILE|late [LIBRARY]");
    printf("good\n");
    return 0;
}

/* A member of liboz2blas_wrap.a (scripts/build --static), assembled once for each of
 *   -DNAME=dgemm_       -DISAMAX=isamax_
 *   -DNAME=cblas_dgemm  -DISAMAX=cblas_isamax
 * A program linked with -Wl,--wrap=NAME calls __wrap_NAME and gets this member, which takes the BLAS in by its two references
 * (a weak reference would not), and leads to the library, which finds the BLAS in the table (linked.rs). */
#define JOIN(a, b) a##b
#define WITH(a, b) JOIN(a, b)
#define WRAP WITH(__wrap_, NAME)
#define ENTRY WITH(oz2_entry_, NAME)
#define TABLE WITH(oz2_wrapped_, NAME)

        .text
        .globl  WRAP
        .type   WRAP, @function
WRAP:   jmp     ENTRY
        .size   WRAP, . - WRAP

        .section .data.rel.ro, "aw"
        .balign 8
        .globl  TABLE
        .hidden TABLE
        .type   TABLE, @object
TABLE:  .quad   WITH(__real_, NAME), ISAMAX
        .size   TABLE, 16

/* The libraries of GCC refer weakly to these functions and use all of them if one is there, which the library here brings in: in
 * a program without shared libraries they would call what is not there. */
        .irp    FUNCTION, once, getspecific, setspecific, create, join, equal, self, detach, cancel, mutex_lock, \
                mutex_trylock, mutex_timedlock, mutex_unlock, mutex_init, mutex_destroy, mutexattr_init, \
                mutexattr_settype, mutexattr_destroy, cond_init, cond_broadcast, cond_signal, cond_wait, \
                cond_timedwait, cond_destroy, key_create, key_delete, rwlock_rdlock, rwlock_tryrdlock, \
                rwlock_wrlock, rwlock_trywrlock, rwlock_unlock
        .quad   pthread_\FUNCTION
        .endr

        .section .note.GNU-stack, "", @progbits

/* held: main has returned, and the destructor of libgfortran waits, as it writes a line (line.f90) to a full pipe. Meanwhile a thread
 * makes the first call of all, and empties the pipe after it. */
#include "oz2test.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

void print_line(void);
static int ends[2], output;

static void *first_call(void *nothing)
{
    char line[4096];
    usleep(300000);
    exact(150, 140, 130, 1);
    need_emulated(1);
    dprintf(output, "good\n");
    while (read(ends[0], line, sizeof line) > 0)
        ;
    return nothing;
}

int main(int argc, char **argv)
{
    char full[4096] = "", number[16];
    pthread_t thread;
    if (argc == 1) {
        /* Once more, with a file as standard output, when libgfortran looks at it. */
        snprintf(number, sizeof number, "%d", dup(1));
        if (dup2(memfd_create("output", 0), 1) != 1)
            fail("there is no file");
        execl("/proc/self/exe", argv[0], number, NULL);
        fail("there is no second time");
    }
    alarm(30);
    output = atoi(argv[1]);
    print_line();
    if (pipe2(ends, O_NONBLOCK) || dup2(ends[1], 1) != 1)
        fail("there is no pipe");
    while (write(1, full, sizeof full) > 0)
        ;
    fcntl(1, F_SETFL, 0);
    fcntl(ends[0], F_SETFL, 0);
    pthread_create(&thread, NULL, first_call, NULL);
    return 0;
}

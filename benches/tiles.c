/* tiles: what one step of a tile product costs, alone and with vector work beside it.
 *
 *     gcc -O2 -mavx512f benches/tiles.c -o target/tiles && target/tiles
 *
 * A step is four tile loads and four tile products (2 x 2 tiles, 64 elements of
 * the inner dimension), as in src/engine/cpu/kernels/amx.rs; the second operand
 * comes from L1, the first from L2. Best of 20 rounds; docs/measured/amx.md has
 * figures. Needs Linux on a processor with AMX. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 20000, ROUNDS = 20, CHUNK = 2048, IN_L1 = 16, IN_L2 = 256 };

static char rows[IN_L2 * CHUNK] __attribute__((aligned(4096)));
static char columns[IN_L1 * CHUNK] __attribute__((aligned(4096)));
static char sums[4096] __attribute__((aligned(4096)));
static char configuration[64] __attribute__((aligned(64)));

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

#define STEP                              \
    "tileloaddt1 (%0,%2), %%tmm4\n"       \
    "tileloaddt1 (%1,%2), %%tmm6\n"       \
    "tileloaddt1 1024(%1,%2), %%tmm7\n"   \
    "tileloaddt1 1024(%0,%2), %%tmm5\n"   \
    "tdpbssd %%tmm6, %%tmm4, %%tmm0\n"    \
    "tdpbssd %%tmm7, %%tmm4, %%tmm1\n"    \
    "tdpbssd %%tmm6, %%tmm5, %%tmm2\n"    \
    "tdpbssd %%tmm7, %%tmm5, %%tmm3\n"
#define FOUR(op)                          \
    op " %%zmm16, %%zmm16, %%zmm0\n"      \
    op " %%zmm16, %%zmm16, %%zmm1\n"      \
    op " %%zmm16, %%zmm16, %%zmm2\n"      \
    op " %%zmm16, %%zmm16, %%zmm3\n"
#define SIXTEEN(op) FOUR(op) FOUR(op) FOUR(op) FOUR(op)
#define STORE                             \
    "tilestored %%tmm0, (%3,%2)\n"        \
    "tilestored %%tmm1, 1024(%3,%2)\n"    \
    "tilestored %%tmm2, 2048(%3,%2)\n"    \
    "tilestored %%tmm3, 3072(%3,%2)\n"
#define PREFETCH                          \
    "prefetcht1 (%0)\n prefetcht1 64(%0)\n prefetcht1 128(%0)\n" \
    "prefetcht1 192(%0)\n prefetcht1 256(%0)\n prefetcht1 320(%0)\n"

#define MEASURE(name, body)                                                      \
    do {                                                                         \
        double best = 1;                                                         \
        for (int round = 0; round < ROUNDS; round++) {                           \
            double start = now();                                                \
            for (int i = 0; i < STEPS; i++)                                      \
                __asm__ volatile(body::"r"(columns + i % IN_L1 * CHUNK),         \
                                 "r"(rows + i % IN_L2 * CHUNK), "r"(64L),        \
                                 "r"(sums)                                       \
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "memory");    \
            double took = (now() - start) / STEPS;                               \
            best = took < best ? took : best;                                    \
        }                                                                        \
        printf("%-36s %5.1f ns\n", name, best * 1e9);                            \
    } while (0)

int main(void)
{
    if (syscall(SYS_arch_prctl, 0x1023, 18)) {
        puts("no AMX here");
        return 1;
    }
    configuration[0] = 1;
    for (int tile = 0; tile < 8; tile++) {
        configuration[16 + 2 * tile] = 64;
        configuration[48 + tile] = 16;
    }
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = rand();
    for (size_t i = 0; i < sizeof columns; i++)
        columns[i] = rand();
    __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
    MEASURE("a step", STEP);
    MEASURE("and 32 vpaddd", STEP SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("and 64 vpaddd", STEP SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("64 vpaddd alone", SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("and 32 vpmadd52luq", STEP SIXTEEN("vpmadd52luq") SIXTEEN("vpmadd52luq"));
    MEASURE("and 32 vfmadd231pd", STEP SIXTEEN("vfmadd231pd") SIXTEEN("vfmadd231pd"));
    MEASURE("and 6 prefetches", STEP PREFETCH);
    MEASURE("and all four sums stored", STEP STORE);
    __asm__ volatile("tilerelease");
    return 0;
}

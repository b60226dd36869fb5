/* tiles: what one step of a tile product costs, alone and with vector work beside it.
 *
 *     gcc -O2 -mavx512f benches/tiles.c -o target/tiles && target/tiles
 *
 * A step is four tile loads and four tile products (2 x 2 tiles, 64 elements of
 * the inner dimension), as in src/engine/cpu/kernels/amx.rs; the second operand
 * comes from L1, the first from L2. Then whole passes, with the hint of
 * tileloaddt1 here or there. Best of some rounds; docs/measured/amx.md has the
 * figures. Needs Linux on a processor with AMX. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
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

#define STEP STEP_WITH("tileloadd", "tileloaddt1")
#define STEP_WITH(COLUMNS, ROWS)          \
    COLUMNS " (%0,%2), %%tmm4\n"          \
    ROWS " (%1,%2), %%tmm6\n"             \
    ROWS " 1024(%1,%2), %%tmm7\n"         \
    COLUMNS " 1024(%0,%2), %%tmm5\n"      \
    "tdpbssd %%tmm6, %%tmm4, %%tmm0\n"    \
    "tdpbssd %%tmm7, %%tmm4, %%tmm1\n"    \
    "tdpbssd %%tmm6, %%tmm5, %%tmm2\n"    \
    "tdpbssd %%tmm7, %%tmm5, %%tmm3\n"
#define ONE(op, to) op " %%zmm16, %%zmm16, %%zmm" to "\n"
#define SIXTEEN(op) TWICE(ONE(op, "0") ONE(op, "1") ONE(op, "2") ONE(op, "3") \
                          ONE(op, "4") ONE(op, "5") ONE(op, "6") ONE(op, "7"))
#define TWICE(what) what what
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
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",    \
                                   "xmm5", "xmm6", "xmm7", "memory");        \
            double took = (now() - start) / STEPS;                               \
            best = took < best ? took : best;                                    \
        }                                                                        \
        printf("%-36s %5.1f ns\n", name, best * 1e9);                            \
    } while (0)

/* A pass as in src/engine/cpu/kernels/amx.rs: every panel of columns with every panel of rows, while the next panel of columns comes to
 * L2. Beside the steps of a tile some work, such as the reduction of the sums of the tile before, a row of two columns (%5) in each
 * step, and its residues (%6) stored. Nanoseconds a step. */
enum { DOWN = 16, ACROSS = 64, PLANES = 28, PANEL = IN_L1 * CHUNK, TILE = 4096, RESIDUES = 14 * 1024 };

static char both_sums[2][TILE] __attribute__((aligned(4096)));
static char *residues;

#define PASS(name, COLUMNS, ROWS, BESIDE)                                                 \
    static double name(const char *r, const char *c)                                      \
    {                                                                                     \
        double start = now();                                                             \
        char *out = residues;                                                             \
        for (int q = 0; q < ACROSS; q++, c += PANEL)                                      \
            for (int p = 0; p < DOWN; p++, out += RESIDUES) {                             \
                const char *next = c + PANEL + p * (PANEL / DOWN);                        \
                const char *before = both_sums[p % 2 ^ 1];                                \
                __asm__ volatile("tilezero %%tmm0\n tilezero %%tmm1\n"                    \
                                 "tilezero %%tmm2\n tilezero %%tmm3" ::);                 \
                for (int i = 0; i < IN_L1; i++, next += 128)                              \
                    __asm__ volatile(STEP_WITH(COLUMNS, ROWS)                             \
                                     "prefetcht1 (%3)\n prefetcht1 64(%3)\n" BESIDE       \
                                     ::"r"(c + i * CHUNK), "r"(r + p * PANEL + i * CHUNK), \
                                     "r"(64L), "r"(next), "r"(sums), "r"(before + 256 * i), \
                                     "r"(out + 64 * i)                                    \
                                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",    \
                                       "xmm6", "xmm7", "xmm8", "memory");                 \
                __asm__ volatile(STORE_ROWS::"r"(both_sums[p % 2]), "r"(128L) : "memory"); \
            }                                                                             \
        return (now() - start) / (DOWN * ACROSS * IN_L1);                                 \
    }
#define REDUCE_16(from, a, b)                                                       \
    "vpxord " from "(%5), %%zmm31, %%zmm" a "\n vmovdqa64 %%zmm30, %%zmm" b "\n"     \
    "vpdpbusd %%zmm29, %%zmm" a ", %%zmm" b "\n vcvtdq2ps %%zmm" b ", %%zmm" a "\n"  \
    "vfmadd213ps %%zmm28, %%zmm27, %%zmm" a "\n"                                    \
    "vpdpwssd %%zmm26, %%zmm" a ", %%zmm" b "\n"
#define REDUCE                                                                      \
    REDUCE_16("0", "1", "5") REDUCE_16("64", "2", "6")                              \
    REDUCE_16("128", "3", "7") REDUCE_16("192", "4", "8")                           \
    "vpackssdw %%zmm6, %%zmm5, %%zmm5\n vpackssdw %%zmm8, %%zmm7, %%zmm7\n"         \
    "vpacksswb %%zmm7, %%zmm5, %%zmm5\n"
#define CHAIN_12(chain)                                                             \
    TWICE(TWICE(ONE("vpmadd52luq", chain) ONE("vpmadd52luq", chain) ONE("vpmadd52luq", chain)))
#define START(chain) "vmovdqa64 %%zmm17, %%zmm" chain "\n"
#define STORE_ROWS                     \
    "tilestored %%tmm0, (%0,%1)\n"     \
    "tilestored %%tmm1, 64(%0,%1)\n"   \
    "tilestored %%tmm2, 2048(%0,%1)\n" \
    "tilestored %%tmm3, 2112(%0,%1)\n"

PASS(hint_on_both, "tileloaddt1", "tileloaddt1", "")
PASS(hint_on_none, "tileloadd", "tileloadd", "")
PASS(hint_on_rows, "tileloadd", "tileloaddt1", "")
PASS(hint_on_columns, "tileloaddt1", "tileloadd", "")
PASS(multiply_adds, "tileloadd", "tileloaddt1", SIXTEEN("vpmadd52luq") SIXTEEN("vpmadd52luq") SIXTEEN("vpmadd52luq"))
PASS(reduction, "tileloadd", "tileloaddt1", REDUCE)
PASS(reduction_stored, "tileloadd", "tileloaddt1", REDUCE "vmovdqa64 %%zmm5, (%6)\n")

static void measure_pass(const char *name, double (*pass)(const char *, const char *))
{
    size_t bytes = (size_t)PLANES * (ACROSS + DOWN) * PANEL + 2 * DOWN * ACROSS * RESIDUES;
    static char *panels;
    if (!panels) {
        panels = aligned_alloc(2 << 20, bytes + (2 << 20));
        if (!panels)
            return;
        madvise(panels, bytes, MADV_HUGEPAGE);
        for (size_t i = 0; i < bytes; i++)
            panels[i] = (char)(i * 2654435761u >> 13);
        residues = panels + bytes - DOWN * ACROSS * RESIDUES;
    }
    double best = 1;
    for (int round = 0; round < 5; round++) {
        double sum = 0;
        for (int plane = 0; plane < PLANES; plane++) {
            const char *rows_of_plane = panels + (size_t)plane * (ACROSS + DOWN) * PANEL;
            sum += pass(rows_of_plane, rows_of_plane + DOWN * PANEL);
        }
        best = sum / PLANES < best ? sum / PLANES : best;
    }
    printf("%-36s %5.1f ns\n", name, best * 1e9);
}

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
    /* Zeros make the tile unit faster by a sixth. */
    __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
    MEASURE("a step", STEP);
    MEASURE("and 32 vpaddd", STEP SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("and 64 vpaddd", STEP SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("64 vpaddd alone", SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd") SIXTEEN("vpaddd"));
    MEASURE("and 80 vpaddd", STEP SIXTEEN("vpaddd") TWICE(TWICE(SIXTEEN("vpaddd"))));
    MEASURE("and 96 vpaddd", STEP TWICE(SIXTEEN("vpaddd")) TWICE(TWICE(SIXTEEN("vpaddd"))));
    MEASURE("and 48 vfmadd231pd", STEP SIXTEEN("vfmadd231pd") TWICE(SIXTEEN("vfmadd231pd")));
    MEASURE("and 64 vfmadd231pd", STEP TWICE(TWICE(SIXTEEN("vfmadd231pd"))));
    MEASURE("and 80 vfmadd231pd", STEP SIXTEEN("vfmadd231pd") TWICE(TWICE(SIXTEEN("vfmadd231pd"))));
    MEASURE("and 96 vfmadd231pd", STEP TWICE(SIXTEEN("vfmadd231pd")) TWICE(TWICE(SIXTEEN("vfmadd231pd"))));
    MEASURE("64 vfmadd231pd alone", TWICE(TWICE(SIXTEEN("vfmadd231pd"))));
    MEASURE("and 4 chains of 12 vpmadd52luq", STEP START("0") CHAIN_12("0") START("1") CHAIN_12("1") START("2") CHAIN_12("2") START("3")
            CHAIN_12("3"));
    MEASURE("and 2 chains of 24 vpmadd52luq", STEP START("0") CHAIN_12("0") CHAIN_12("0") START("1") CHAIN_12("1") CHAIN_12("1"));
    MEASURE("and a chain of 48 vpmadd52luq", STEP START("0") CHAIN_12("0") CHAIN_12("0") CHAIN_12("0") CHAIN_12("0"));
    MEASURE("and 6 prefetches", STEP PREFETCH);
    MEASURE("and all four sums stored", STEP STORE);
    puts("a step in passes over 28 planes:");
    measure_pass("the hint on rows and columns", hint_on_both);
    measure_pass("on neither", hint_on_none);
    measure_pass("on the rows", hint_on_rows);
    measure_pass("on the columns", hint_on_columns);
    measure_pass("on the rows, and 48 vpmadd52luq", multiply_adds);
    measure_pass("on the rows, and the reduction", reduction);
    measure_pass("and its residues stored", reduction_stored);
    __asm__ volatile("tilerelease");
    return 0;
}

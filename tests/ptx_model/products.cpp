// Products by a kernel on the model, compared with plain sums, byte for byte. -DKERNEL as in kernel.cpp.
#include "model.h"
#include "products.h"

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int P[20] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173};

unsigned state = 12345;
unsigned random_below(unsigned bound) {
    state = state * 1664525 + 1013904223;
    return (unsigned)((unsigned long long)(state >> 4) * bound >> 28);
}

enum Values { RANDOM, EXTREME, ONE_HOT };

int value(Values values, int p, bool of_a, int line, int h) {
    const int low = -(p / 2), high = (p - 1) / 2;
    if (values == EXTREME) return p == 256 || !of_a || line % 2 ? low : high;
    if (values == ONE_HOT && !of_a) return line == h;
    return low + (int)random_below(p);
}

// Where the kernel that makes residues puts line i of A: the definition of the layout, spelled out.
int place(int i) {
    const int in_block = i % 64, lane = in_block / 16, pair = in_block % 16 / 2;
    return i - in_block + 8 * pair + 2 * lane + in_block % 2;
}

struct Case {
    const char* what;
    int entry;                             // which kernel of the file
    int rows, columns, pitch, planes;      // of the padded problem
    int first_modulus, blocks;             // blocks: the grid at most
    Values values;
    bool add;                              // twice, the second time on top of the first
};

// The number of wrong bytes.
int run(const Case& c, int way) {
    const size_t plane_a = (size_t)c.rows * c.pitch, plane_b = (size_t)c.columns * c.pitch, plane = (size_t)c.rows * c.columns;
    std::vector<signed char> a(c.planes * plane_a + 16), b(c.planes * plane_b + 16), out(c.planes * plane + 64, 0x5A);
    signed char *a16 = (signed char*)(((size_t)a.data() + 15) & ~15ul), *b16 = (signed char*)(((size_t)b.data() + 15) & ~15ul);
    signed char* out16 = (signed char*)(((size_t)out.data() + 31) & ~15ul);
    std::vector<int> modulus_of(c.planes);
    std::vector<long long> sums(c.planes * plane, 0);
    for (int l = 0; l < c.planes; l++) modulus_of[l] = (c.first_modulus + 3 * l) % 20;
    const auto [tile_rows, cluster, threads, shared] = shape_of(c.entry);
    const int tiles = c.planes * ((c.columns + 128 * cluster - 1) / (128 * cluster)) * ((c.rows + tile_rows - 1) / tile_rows);
    const int blocks = min(c.blocks, tiles * cluster);
    int wrong = 0;
    for (int part = 0; part <= c.add; part++) {
        for (int l = 0; l < c.planes; l++) {
            const int p = P[modulus_of[l]];
            signed char *al = a16 + l * plane_a, *bl = b16 + l * plane_b;
            for (int i = 0; i < c.rows; i++)
                for (int h = 0; h < c.pitch; h++) al[(size_t)place(i) * c.pitch + h] = (signed char)value(c.values, p, true, i, h);
            for (int j = 0; j < c.columns; j++)
                for (int h = 0; h < c.pitch; h++) bl[(size_t)j * c.pitch + h] = (signed char)value(c.values, p, false, j, h);
            for (int j = 0; j < c.columns; j++)
                for (int i = 0; i < c.rows; i++) {
                    const signed char *x = al + (size_t)place(i) * c.pitch, *y = bl + (size_t)j * c.pitch;
                    int sum = 0;
                    for (int h = 0; h < c.pitch; h++) sum += x[h] * y[h];
                    sums[l * plane + (size_t)j * c.rows + i] += sum;
                }
        }
        using U = unsigned long long;
        Arguments arguments{c.entry, {}, {}, a16, b16, c.rows, c.columns, c.pitch, c.planes, modulus_of.data(), out16, part, 2};
        const U pitch = c.pitch, planes = c.planes;
        const U map_a[9] = {(U)a16, pitch, (U)c.rows, planes, pitch, plane_a, 128, (U)(tile_rows / cluster), 1};
        const U map_b[9] = {(U)b16, pitch, (U)c.columns, planes, pitch, plane_b, 128, 128, 1};
        memcpy(arguments.map_a, map_a, sizeof map_a);
        memcpy(arguments.map_b, map_b, sizeof map_b);
        model::reset_readable();
        model::add_readable(a16, c.planes * plane_a);
        model::add_readable(b16, c.planes * plane_b);
        model::run({blocks, threads, cluster, shared, way == 0, way != 0, way == 1}, call_kernel, &arguments);
        for (size_t at = 0; at < sums.size(); at++) {
            const int p = P[modulus_of[at / plane]];
            int want = (int)(((sums[at] % p) + p) % p);
            if (want > (p - 1) / 2) want -= p;
            if (out16[at] != want && wrong++ < 3)
                printf("  plane %zu column %zu row %zu: %d, not %d\n", at / plane, at % plane / c.rows, at % c.rows, out16[at], want);
        }
    }
    for (const signed char* at = out.data(); at < out.data() + out.size(); at++)
        if ((at < out16 || at >= out16 + sums.size()) && *at != 0x5A) wrong++;
    return wrong;
}

// The reduction by itself, at the ends of its range, around zero, and around the multiples of p and the ties between them.
int wrong_residues() {
    int wrong = 0;
    for (int l = 0; l < 20; l++) {
        const int p = P[l];
        const long long most = p == 256 ? (1ll << 30) + 128 : (1ll << 16) * ((p - 1) / 2) * ((p - 1) / 2) + p / 2;
        auto check = [&](long long sum) {
            if (sum < -most || sum > most) return;
            int want = (int)((sum % p + p) % p);
            if (want > (p - 1) / 2) want -= p;
            const int got = residue_of((int)sum, l);
            if (got != want && wrong++ < 3) printf("  %lld modulo %d: %d, not %d\n", sum, p, got, want);
        };
        for (long long d = 0; d < 20000; d++) check(-most + d), check(most - d), check(d), check(-d);
        for (long long q = -most / p; q <= most / p; q += 101)
            for (long long d = -1; d <= 1; d++) check(q * p + d), check(q * p + p / 2 + d);
    }
    return wrong;
}

}   // namespace

int main() {
    const Case cases[] = {
#if KERNEL == 1
        {"one step, one-hot", 0, 64, 64, 32, 1, 0, 1, ONE_HOT, false},
        {"ragged, several tiles a block", 0, 192, 300, 272, 2, 1, 3, RANDOM, false},
        {"the inner dimension in parts", 0, 64, 130, 592, 1, 19, 2, RANDOM, true},
        {"the largest sums", 0, 128, 16, 1024, 2, 0, 4, EXTREME, true},
        {"the planes of two moduli with two levels of Strassen's form", 0, 64, 32, 128, 98, 4, 5, RANDOM, false},
#else
        {"256 x 128, one step, one-hot", 0, 64, 64, 32, 1, 0, 1, ONE_HOT, false},
        {"256 x 128, ragged, several tiles a block, the ring wraps", 0, 320, 200, 656, 2, 1, 2, RANDOM, false},
        {"128 x 128, one block", 2, 192, 130, 912, 2, 3, 1, RANDOM, true},
        {"256 x 128, clusters", 1, 320, 300, 656, 2, 5, 2, RANDOM, false},
        {"128 x 128, clusters", 3, 320, 520, 912, 2, 18, 4, RANDOM, true},
        {"256 x 128, clusters, two moduli with two levels of Strassen's form", 1, 64, 32, 128, 98, 4, 4, RANDOM, false},
        {"128 x 128, the largest sums, more than 65536 elements", 2, 64, 16, 65536, 2, 0, 1, EXTREME, true},
#endif
    };
    if (const int wrong = wrong_residues()) {
        printf("residue: %d WRONG\n", wrong);
        return 1;
    }
    for (const Case& c : cases) {
        for (int way = 0; way < 2; way++) {
            if (way == 1 && c.pitch == 65536) continue;   // that one is about sums
            const int wrong = run(c, way);
            printf("%-60s %s\n", c.what, wrong ? "WRONG" : "ok");
            fflush(stdout);
            if (wrong) return 1;
        }
    }
    return 0;
}

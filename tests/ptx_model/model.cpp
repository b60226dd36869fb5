// See model.h. A thread of the GPU is a fibre; all of a cluster run in turns in one thread of the host, each until it waits. When
// nobody can go on and no copy is on its way, the kernel hangs, and that is said at once.
#include "model.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

Index threadIdx, blockIdx, gridDim;

namespace model {
namespace {

constexpr uint8_t POISON = 0xA5;
constexpr unsigned WINDOW = 0x430;   // where shared memory starts: no multiple of 128
constexpr size_t STACK = 64 << 10;

// An mbarrier.
struct Barrier {
    int arrivals, pending;
    long bytes;   // expected and not there
    unsigned phase;

    void settle() {
        if (pending < 0) fail("too many arrivals at a barrier");
        if (pending == 0 && bytes == 0) phase ^= 1, pending = arrivals;
    }
};

// Threads that meet: the last one that comes does what is to be done for all.
struct Meeting {
    int size, here;
    unsigned generation;
};

struct Product {
    int rows;
    int* d;
    unsigned long long x, y;
    int add;
};

struct Copy16 {
    unsigned to;
    const uint8_t* from;
    bool inside;
};

struct Block;

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Block* block;
    unsigned number;
    bool ended = false;
    // It can go on when the word has another value; null: at once.
    const unsigned* word = nullptr;
    unsigned value = 0;
    // cp.async and wgmma: what is not committed, then groups.
    std::vector<Copy16> copies;
    std::deque<std::vector<Copy16>> copy_groups;
    std::vector<Product> products;
    std::deque<std::vector<Product>> product_groups;
    bool fenced = false;
    // What it brings to a meeting of its warp.
    unsigned address, *loaded;
    int* sums;
    unsigned x[4], y[2];
};

struct Block {
    std::vector<uint8_t> memory;   // from address 0 on; the window starts at WINDOW
    uint8_t* fixed = nullptr;      // a static __shared__ array instead
    unsigned size;
    std::map<unsigned, Barrier> barriers;
    Meeting all;
    std::vector<Meeting> warps, warpgroups;
    unsigned rank, number;
    Fibre* fibres;

    uint8_t& at(unsigned address) {
        if (address < WINDOW || address - WINDOW >= size) fail("outside of shared memory", address);
        return fixed ? fixed[address - WINDOW] : memory[address];
    }
    Barrier& barrier(unsigned address) {
        auto found = barriers.find(address);
        if (found == barriers.end()) fail("no barrier", address);
        return found->second;
    }
};

struct Box {
    Block* block;
    unsigned to, barrier;
    const unsigned long long* map;
    int element, line, plane;
};

Launch launch;
std::vector<Block> blocks;   // of the cluster
std::vector<Fibre> fibres;
std::deque<Box> boxes;       // on their way
Meeting cluster;
ucontext_t scheduler;
Fibre* now;
void (*entry)(void*);
void* entry_arguments;
std::vector<std::pair<const uint8_t*, size_t>> readable;

void check_read(const uint8_t* from, size_t bytes) {
    for (auto [start, size] : readable)
        if (from >= start && from + bytes <= start + size) return;
    fail("a copy from outside of the operands");
}

void wait_while(const unsigned* word, unsigned value) {
    if (*word != value) return;
    now->word = word, now->value = value;
    swapcontext(&now->context, &scheduler);
}

template <class Work>
void meet(Meeting& meeting, Work work) {
    if (++meeting.here < meeting.size) return wait_while(&meeting.generation, meeting.generation);
    meeting.here = 0;
    work();
    meeting.generation++;
}
void meet(Meeting& meeting) {
    meet(meeting, [] {});
}
Meeting& warp() { return now->block->warps[now->number / 32]; }
Meeting& warpgroup() { return now->block->warpgroups[now->number / 128]; }
Fibre* lanes() { return now->block->fibres + now->number / 32 * 32; }
Fibre* warpgroup_lanes() { return now->block->fibres + now->number / 128 * 128; }

// 128-byte swizzle: bits 4-6 of an address are XORed with bits 7-9.
unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

void arrive_box(const Box& box) {
    // map: address, sizes (elements, lines, planes), strides (line, plane), box (elements, lines, planes).
    const unsigned long long* map = box.map;
    const int elements = (int)map[6], count = (int)map[7];
    if (elements != 128 || map[8] != 1) fail("a box of another kind");
    if (box.to % 1024 != 0) fail("a box that is not aligned to its swizzle", box.to);
    const bool plane_inside = box.plane >= 0 && (unsigned long long)box.plane < map[3];
    for (int line = 0; line < count; line++) {
        const bool line_inside = plane_inside && (unsigned long long)(box.line + line) < map[2];
        const uint8_t* from = (const uint8_t*)map[0] + box.plane * map[5] + (box.line + line) * map[4];
        for (int h = 0; h < elements; h++) {
            const bool inside = line_inside && (unsigned long long)(box.element + h) < map[1];
            if (inside) check_read(from + box.element + h, 1);
            box.block->at(swizzled(box.to + line * 128 + h)) = inside ? from[box.element + h] : 0;
        }
    }
    Barrier& barrier = box.block->barrier(box.barrier);
    barrier.bytes -= (long)count * elements;
    barrier.settle();
}

void arrive16(const Copy16& copy) {
    for (int i = 0; i < 16; i++) now->block->at(copy.to + i) = copy.inside ? copy.from[i] : 0;
}

// Element k of a line of an operand that a descriptor names.
int8_t element(unsigned long long descriptor, int line, int k) {
    const unsigned start = (unsigned)(descriptor & 0x3FFF) << 4, stride = (unsigned)(descriptor >> 32 & 0x3FFF) << 4;
    return (int8_t)now->block->at(swizzled(start + line / 8 * stride + line % 8 * 128 + k));
}

// One wgmma of a warpgroup: number `index` of its oldest group.
void multiply(Fibre* threads, size_t index) {
    const Product first = threads[0].product_groups.front()[index];
    static int8_t x[64][32], y[256][32];
    for (int t = 0; t < 128; t++) {
        const Product& p = threads[t].product_groups.front()[index];
        if (p.x != first.x || p.y != first.y || p.add != first.add || p.rows != first.rows) fail("threads of a warpgroup differ");
    }
    if (first.x >> 62 != 1 || first.y >> 62 != 1) fail("a descriptor without 128-byte swizzle");
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 32; k++) x[i][k] = element(first.x, i, k);
    for (int j = 0; j < first.rows; j++)
        for (int k = 0; k < 32; k++) y[j][k] = element(first.y, j, k);
    // Thread 32 w + 4 g + q has the lines 16 w + g and + 8 of x, and of every eight of y the lines 2 q and 2 q + 1.
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < first.rows; j++) {
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += x[i][k] * y[j][k];
            int& d = threads[32 * (i / 16) + 4 * (i % 8) + j % 8 / 2].product_groups.front()[index].d[4 * (j / 8) + 2 * (i / 8 % 2) + j % 2];
            d = first.add ? (int)((unsigned)d + (unsigned)sum) : sum;
        }
}

void multiply_down_to(size_t left) {
    Fibre* threads = warpgroup_lanes();
    while (threads[0].product_groups.size() > left) {
        for (size_t i = 0; i < threads[0].product_groups.front().size(); i++) multiply(threads, i);
        for (int t = 0; t < 128; t++) threads[t].product_groups.pop_front();
    }
}

void start() {
    entry(entry_arguments);
    now->ended = true;
    swapcontext(&now->context, &scheduler);
}

void switch_to(Fibre& fibre) {
    now = &fibre;
    fibre.word = nullptr;
    threadIdx.x = fibre.number;
    blockIdx.x = fibre.block->number;
    swapcontext(&scheduler, &fibre.context);
}

void run_cluster(int first) {
    const int size = launch.cluster;
    blocks = std::vector<Block>(size);
    fibres = std::vector<Fibre>(size * launch.threads);
    cluster = {size * launch.threads, 0, 0};
    for (int b = 0; b < size; b++) {
        Block& block = blocks[b];
        block.memory.assign(WINDOW + launch.shared, POISON);
        block.size = launch.shared;
        block.all = {launch.threads, 0, 0};
        block.warps.assign(launch.threads / 32, {32, 0, 0});
        block.warpgroups.assign((launch.threads + 127) / 128, {128, 0, 0});
        block.rank = b, block.number = first + b;
        block.fibres = &fibres[b * launch.threads];
        for (int t = 0; t < launch.threads; t++) {
            Fibre& fibre = block.fibres[t];
            fibre.block = &block, fibre.number = t;
            fibre.stack.reset(new char[STACK]);
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = fibre.stack.get();
            fibre.context.uc_stack.ss_size = STACK;
            fibre.context.uc_link = nullptr;
            makecontext(&fibre.context, start, 0);
        }
    }
    for (;;) {
        // The first that can go on: some threads run ahead as far as they may, the others come as late as they can.
        Fibre* next = nullptr;
        bool left = false;
        for (size_t n = 0; n < fibres.size() && !next; n++) {
            Fibre& fibre = fibres[launch.reverse ? fibres.size() - 1 - n : n];
            if (fibre.ended) continue;
            left = true;
            if (!fibre.word || *fibre.word != fibre.value) next = &fibre;
        }
        if (next) {
            switch_to(*next);
            continue;
        }
        if (!left) break;
        if (boxes.empty()) fail("nobody can go on");
        // The copies may arrive in any order.
        const Box box = launch.reverse ? boxes.back() : boxes.front();
        if (launch.reverse) boxes.pop_back();
        else boxes.pop_front();
        arrive_box(box);
    }
    if (!boxes.empty()) fail("a copy arrives after the end");
    for (Fibre& fibre : fibres)
        if (!fibre.product_groups.empty() || !fibre.products.empty()) fail("products after the end");
}

}   // namespace

void fail(const char* what, unsigned value) {
    printf("model: %s (%u)\n", what, value);
    fflush(stdout);
    _Exit(3);
}

void run(const Launch& wanted, void (*kernel)(void*), void* arguments) {
    launch = wanted, entry = kernel, entry_arguments = arguments;
    gridDim.x = launch.blocks;
    for (int first = 0; first < launch.blocks; first += launch.cluster) run_cluster(first);
}

void reset_readable() { readable.clear(); }
void add_readable(const void* address, unsigned long long bytes) { readable.push_back({(const uint8_t*)address, bytes}); }

unsigned char* dynamic_shared() { return now->block->memory.data() + WINDOW; }

void copy_box(unsigned to, const unsigned long long* map, int element, int line, int plane, unsigned barrier, unsigned targets) {
    for (Block& block : blocks) {
        if (!(targets >> block.rank & 1)) continue;
        const Box box{&block, to, barrier, map, element, line, plane};
        if (launch.early_copies) arrive_box(box);
        else boxes.push_back(box);
    }
}

void wait_copies(int left) {
    auto& groups = now->copy_groups;
    for (; (int)groups.size() > left; groups.pop_front())
        for (const Copy16& copy : groups.front()) arrive16(copy);
}

void wait_products(int left) {
    now->fenced = false;
    meet(warpgroup(), [&] { multiply_down_to(left); });
}

void multiply64(int rows, int* d, unsigned long long x, unsigned long long y, int add) {
    if (!now->fenced) fail("wgmma without a fence after its registers were used");
    now->products.push_back({rows, d, x, y, add});
}

}   // namespace model

using namespace model;

void __syncthreads() { meet(now->block->all); }
void cluster_barrier() { meet(cluster); }
unsigned rank_in_cluster() { return now->block->rank; }

unsigned shared_address(const void* at) {
    Block& block = *now->block;
    const uint8_t *address = (const uint8_t*)at, *start = block.memory.data();
    if (address >= start && address < start + block.memory.size()) return (unsigned)(address - start);
    if (!block.fixed) {
        block.fixed = (uint8_t*)at;
        memset(block.fixed, POISON, block.size);
    }
    return WINDOW + (unsigned)(address - block.fixed);
}

void copy16(unsigned to, const void* from, bool inside) {
    if (to % 16 != 0 || (uintptr_t)from % 16 != 0) fail("cp.async that is not aligned", to);
    if (inside) check_read((const uint8_t*)from, 16);
    const Copy16 copy{to, (const uint8_t*)from, inside};
    if (launch.early_copies) arrive16(copy);
    else now->copies.push_back(copy);
}
void commit_copies() {
    now->copy_groups.push_back(std::move(now->copies));
    now->copies.clear();
}

void load_matrices(unsigned (&m)[4], unsigned address) {
    now->address = address, now->loaded = m;
    meet(warp(), [] {
        Fibre* lane = lanes();
        for (int i = 0; i < 4; i++)
            for (int l = 0; l < 32; l++) {
                unsigned value = 0;
                for (int b = 0; b < 4; b++) value |= (unsigned)now->block->at(lane[8 * i + l / 4].address + 4 * (l % 4) + b) << 8 * b;
                lane[l].loaded[i] = value;
            }
    });
}

void multiply16x8(int (&sums)[4], const unsigned (&x)[4], unsigned y0, unsigned y1) {
    now->sums = sums;
    memcpy(now->x, x, sizeof now->x);
    now->y[0] = y0, now->y[1] = y1;
    meet(warp(), [] {
        Fibre* lane = lanes();
        // Register r of lane 4 g + q: x has the line g + 8 (r % 2), elements 16 (r / 2) + 4 q ..; y the line g, elements 16 r + 4 q ..
        int8_t a[16][32], b[8][32];
        for (int l = 0; l < 32; l++)
            for (int n = 0; n < 4; n++) {
                for (int r = 0; r < 4; r++) a[l / 4 + 8 * (r % 2)][16 * (r / 2) + 4 * (l % 4) + n] = (int8_t)(lane[l].x[r] >> 8 * n);
                for (int r = 0; r < 2; r++) b[l / 4][16 * r + 4 * (l % 4) + n] = (int8_t)(lane[l].y[r] >> 8 * n);
            }
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                int sum = 0;
                for (int k = 0; k < 32; k++) sum += a[i][k] * b[j][k];
                lane[4 * (i % 8) + j / 2].sums[2 * (i / 8) + j % 2] += sum;
            }
    });
}

void barrier_init(unsigned barrier, int arrivals) {
    if (barrier % 8 != 0) fail("a barrier that is not aligned", barrier);
    now->block->at(barrier), now->block->at(barrier + 7);
    now->block->barriers[barrier] = {arrivals, arrivals, 0, 0};
}
void barrier_expect(unsigned barrier, int bytes) {
    Barrier& b = now->block->barrier(barrier);
    b.bytes += bytes, b.pending--;
    b.settle();
}
void barrier_arrive_at(unsigned barrier, unsigned block) {
    if (block >= blocks.size()) fail("no such block in the cluster", block);
    Barrier& b = blocks[block].barrier(barrier);
    b.pending--;
    b.settle();
}
void barrier_arrive(unsigned barrier) { barrier_arrive_at(barrier, now->block->rank); }
void barrier_wait(unsigned barrier, unsigned parity) { wait_while(&now->block->barrier(barrier).phase, parity); }

void products_fence() { now->fenced = true; }
void commit_products() {
    now->product_groups.push_back(std::move(now->products));
    now->products.clear();
    if (launch.early_products) meet(warpgroup(), [] { multiply_down_to(0); });
}

// Runs one block of threads after another on the calling OS thread. A device thread is a fibre: a stack of its own and a switch
// of 14 instructions. A thread that waits at no barrier ends before the next one begins and hands its fibre on.
#include "device.h"

#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <vector>
#include <xmmintrin.h>

#if !defined(__x86_64__)
#error "the switch of fibres is written for x86-64 only"
#endif

extern "C" void sg_switch(void **save_stack, void *load_stack);
asm(R"(
.text
.globl sg_switch
.hidden sg_switch
.type sg_switch,@function
sg_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sg_switch,.-sg_switch
)");

namespace sg {

Thread *thread;
Block block;

namespace {

constexpr size_t STACK = 64 << 10, GUARD = 4096;
constexpr uint64_t POISON = 0xa5a5a5a5a5a5a5a5;

enum State { ENDED, RUNS, AT_BLOCK, AT_WARP };

struct Fibre {
    void *stack_pointer;
    char *stack;
    Thread thread;
    State state;
    int line;      // of the barrier it waits at
    Kind kind;     // of the warp barrier it waits at
    unsigned mask; // of the warp barrier it waits at
    unsigned lane; // whose value it wants
    uint64_t value, result;
};

void (*call)(void **);
void **arguments;
Fibre *running;
void *scheduler;
const char *failure;
// Never destroyed: another thread may still compute while the process exits.
std::vector<Fibre *> &idle = *new std::vector<Fibre *>;
std::vector<Fibre *> &threads = *new std::vector<Fibre *>; // of the block; null where one has ended

void body() {
    for (;;) {
        call(arguments);
        running->state = ENDED;
        sg_switch(&running->stack_pointer, scheduler);
    }
}

// Lets the fibre begin anew, whatever lies on its stack.
void prepare(Fibre *fibre) {
    void **top = (void **)(fibre->stack + GUARD + STACK - 64);
    *--top = nullptr;        // body() never returns
    *--top = (void *)&body;  // where the switch returns to, with the stack aligned as after a call
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fibre->stack_pointer = top;
}

Fibre *take() {
    if (!idle.empty()) {
        Fibre *fibre = idle.back();
        idle.pop_back();
        return fibre;
    }
    void *stack = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return nullptr;
    mprotect(stack, GUARD, PROT_NONE); // an overflow ends the process instead of spoiling another stack
    Fibre *fibre = new Fibre();
    fibre->stack = (char *)stack;
    prepare(fibre);
    return fibre;
}

void resume(unsigned number) {
    Fibre *fibre = threads[number];
    running = fibre;
    thread = &fibre->thread;
    fibre->state = RUNS;
    sg_switch(&scheduler, fibre->stack_pointer);
    if (fibre->state == ENDED) {
        threads[number] = nullptr;
        idle.push_back(fibre);
    }
}

void wait(State state, int line) {
    Fibre *fibre = running;
    fibre->state = state;
    fibre->line = line;
    sg_switch(&fibre->stack_pointer, scheduler);
}

const char *fail(const char *format, int a = 0, int b = 0) {
    static char text[200];
    snprintf(text, sizeof text, format, a, b);
    return failure = text;
}

// The living lanes that `lane` waits for, itself included, if all of them have come; 0 if not.
unsigned meeting(unsigned warp, unsigned lane) {
    Fibre *first = threads[warp + lane];
    unsigned come = 0;
    for (unsigned l = 0; l < 32; l++) {
        if (!(first->mask >> l & 1) || warp + l >= threads.size() || !threads[warp + l]) continue;
        Fibre *other = threads[warp + l];
        if (other->state != AT_WARP || other->mask != first->mask) return 0;
        if (other->kind != first->kind) {
            fail("divergence: lanes of one warp meet at different operations (lines %d and %d)", first->line, other->line);
            return 0;
        }
        come |= 1u << l;
    }
    return come;
}

// What every lane of the meeting gets, before any of them goes on.
void exchange(unsigned warp, unsigned come) {
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; l++)
        if (come >> l & 1 && threads[warp + l]->value) votes |= 1u << l;
    for (unsigned l = 0; l < 32; l++) {
        if (!(come >> l & 1)) continue;
        Fibre *fibre = threads[warp + l];
        if (fibre->kind == VOTE) fibre->result = votes;
        else fibre->result = come >> (fibre->lane & 31) & 1 ? threads[warp + (fibre->lane & 31)]->value : POISON;
    }
}

const char *run_block(unsigned count, bool reverse) {
    threads.assign(count, nullptr);
    failure = nullptr;
    auto nth = [&](unsigned i) { return reverse ? count - 1 - i : i; };
    for (unsigned i = 0; i < count; i++) {
        unsigned t = nth(i);
        Fibre *fibre = take();
        if (!fibre) return "no memory for the stack of a thread";
        threads[t] = fibre;
        fibre->thread.number = t;
        fibre->thread.index = {t % block.threads.x, t / block.threads.x % block.threads.y, t / (block.threads.x * block.threads.y)};
        resume(t);
        if (failure) return failure;
    }
    for (;;) {
        bool moved = false;
        for (unsigned warp = 0; warp < count; warp += 32) {
            for (unsigned lane = 0; lane < 32 && warp + lane < count; lane++) {
                if (!threads[warp + lane] || threads[warp + lane]->state != AT_WARP) continue;
                unsigned come = meeting(warp, lane);
                if (failure) return failure;
                if (!come) continue;
                exchange(warp, come);
                for (unsigned i = 0; i < 32; i++) {
                    unsigned l = reverse ? 31 - i : i;
                    if (come >> l & 1) resume(warp + l);
                    if (failure) return failure;
                }
                moved = true;
            }
        }
        if (moved) continue;
        Fibre *first = nullptr;
        unsigned votes = 0;
        for (Fibre *fibre : threads) {
            if (!fibre) continue;
            if (fibre->state == AT_WARP) return fail("divergence: a warp operation (line %d) that a lane of its mask never reaches", fibre->line);
            if (!first) first = fibre;
            if (first->line != fibre->line) return fail("divergence: threads of a block wait at different __syncthreads (lines %d and %d)", first->line, fibre->line);
            votes += fibre->value != 0;
        }
        if (!first) return nullptr;
        for (Fibre *fibre : threads)
            if (fibre) fibre->result = votes;
        for (unsigned i = 0; i < count; i++) {
            if (threads[nth(i)]) resume(nth(i));
            if (failure) return failure;
        }
    }
}

} // namespace

void block_barrier(int line) {
    running->value = 0;
    wait(AT_BLOCK, line);
}
unsigned block_count(int line, bool vote) {
    Fibre *fibre = running;
    fibre->value = vote;
    wait(AT_BLOCK, line);
    return (unsigned)fibre->result;
}
static uint64_t at_warp(unsigned mask, Kind kind, int line, uint64_t value, unsigned lane) {
    Fibre *fibre = running;
    if (!(mask >> (fibre->thread.number & 31) & 1)) fail("a warp operation (line %d) by a lane that is not in its mask", line);
    fibre->mask = mask;
    fibre->kind = kind;
    fibre->value = value;
    fibre->lane = lane;
    wait(AT_WARP, line);
    return fibre->result;
}
void warp_barrier(unsigned mask, Kind kind, int line) { at_warp(mask, kind, line, 0, 0); }
uint64_t warp_exchange(unsigned mask, uint64_t value, unsigned lane, int line) { return at_warp(mask, SHUFFLE, line, value, lane); }
unsigned warp_ballot(unsigned mask, bool vote, int line) { return (unsigned)at_warp(mask, VOTE, line, vote, 0); }
void trap() {
    fail("trap");
    wait(AT_BLOCK, 0);
    __builtin_unreachable();
}

extern "C" void *sg_host_address(uint64_t device); // in src/kernel.rs
void *host_address(uint64_t device) { return sg_host_address(device); }

} // namespace sg

// Runs a kernel over the whole grid. Null, or what went wrong; a text that begins with "illegal" is about an address.
extern "C" const char *sg_run(const sg::File *file, const sg::Kernel *kernel, void **arguments, const unsigned *grid,
                              const unsigned *threads, size_t dynamic_bytes, bool reverse) {
    if (!kernel->bind(arguments)) return "illegal address: a pointer argument is in no live allocation of this device";
    sg::call = kernel->call;
    sg::arguments = arguments;
    std::vector<unsigned char> dynamic(dynamic_bytes + 64);
    sg::block.grid = {grid[0], grid[1], grid[2]};
    sg::block.threads = {threads[0], threads[1], threads[2]};
    sg::block.dynamic = dynamic.data() + (64 - (uintptr_t)dynamic.data() % 64) % 64;
    // The host program may have changed rounding or flushing in its thread; a GPU knows nothing of that.
    const unsigned environment = _mm_getcsr();
    _mm_setcsr(0x1f80);
    const char *error = nullptr;
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks && !error; i++) {
        uint64_t b = reverse ? blocks - 1 - i : i;
        sg::block.index = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / grid[0] / grid[1])};
        std::memset(dynamic.data(), 0xa5, dynamic.size());
        if (file->shared_begin) std::memset(file->shared_begin, 0xa5, (size_t)(file->shared_end - file->shared_begin));
        error = sg::run_block(threads[0] * threads[1] * threads[2], reverse);
    }
    _mm_setcsr(environment);
    for (sg::Fibre *fibre : sg::threads) // after a failure: threads in the middle of something
        if (fibre) {
            sg::prepare(fibre);
            sg::idle.push_back(fibre);
        }
    sg::threads.clear();
    return error;
}

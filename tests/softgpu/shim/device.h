// What the compiled kernels, the fibres and the Rust side of the device know of each other. The Rust side repeats the structs
// in src/kernel.rs.
#pragma once
#include <cstddef>
#include <cstdint>

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

namespace sg {

// One entry point. `bind` turns the device addresses among the arguments into host addresses, in place; `call` runs one thread.
struct Kernel {
    const char *name;
    bool (*bind)(void **arguments);
    void (*call)(void **arguments);
    const uint32_t *sizes; // of the arguments, in bytes, in order
    uint32_t count;
};

// The entry points of one file, and where its __shared__ variables lie (null where it has none).
struct File {
    const Kernel *kernels;
    uint32_t count;
    unsigned char *shared_begin, *shared_end;
};

struct Thread {
    dim3 index;
    unsigned number; // in its block
};

struct Block {
    dim3 index, threads, grid;
    unsigned char *dynamic;
};

// Plain globals: the device runs one block at a time, under the lock of the device.
extern Thread *thread;
extern Block block;

// What a thread waits at. Threads that meet must wait at the same kind.
enum Kind : int { SYNC, SHUFFLE, VOTE };

void block_barrier(int line);
// How many threads of the block have a vote that is not zero.
unsigned block_count(int line, bool vote);
void warp_barrier(unsigned mask, Kind kind, int line);
// The value of another lane. A lane that is not there, or not in the mask, gives poison, as nothing is promised there.
uint64_t warp_exchange(unsigned mask, uint64_t value, unsigned lane, int line);
unsigned warp_ballot(unsigned mask, bool vote, int line);
[[noreturn]] void trap();

// The host address behind a device address; null where no live allocation holds it.
void *host_address(uint64_t device);

} // namespace sg

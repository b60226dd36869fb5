// Small kernels for the tests of the device itself, written by the rules of the library's: no includes, entries by name, one
// source for NVRTC and for g++.

static __constant__ const double half_table[2] = {0.5, 2.0};

extern "C" __global__ void own_axpby(double *__restrict__ y, const double *__restrict__ x, double a, double b, unsigned long long n)
{
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += (unsigned long long)gridDim.x * blockDim.x)
        y[i] = __fma_rn(a, x[i], b * y[i]);
}

// The largest magnitude of every row: shared memory and block barriers.
extern "C" __global__ void __launch_bounds__(256) own_row_max(const double *__restrict__ a, long long lda, int k, double *__restrict__ out)
{
    __shared__ double s[256];
    double m = 0.0;
    for (int j = threadIdx.x; j < k; j += blockDim.x) m = fmax(m, fabs(a[blockIdx.x + j * lda]));
    s[threadIdx.x] = m;
    __syncthreads();
    for (unsigned w = blockDim.x >> 1; w > 0; w >>= 1) {
        if (threadIdx.x < w) s[threadIdx.x] = fmax(s[threadIdx.x], s[threadIdx.x + w]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0] * (half_table[0] * half_table[1]);
}

// Every kind of warp operation, one warp. out[6 * lane ...]: sum by xor, lane below, lane above, value of lane 3 of the segment
// of 8, ballot of odd lanes, count of the block.
extern "C" __global__ void own_warp(int *__restrict__ out)
{
    int lane = threadIdx.x & 31, sum = lane;
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    int *mine = out + 6 * threadIdx.x;
    mine[0] = sum;
    mine[1] = __shfl_up_sync(0xffffffffu, lane, 1);
    mine[2] = __shfl_down_sync(0xffffffffu, lane, 1, 8);
    mine[3] = __shfl_sync(0xffffffffu, lane, 3, 8);
    mine[4] = (int)__ballot_sync(0xffffffffu, lane & 1);
    mine[5] = __syncthreads_count(lane < 5);
}

// The halves of a warp go different ways, each with its own mask.
extern "C" __global__ void own_half_warps(int *__restrict__ out)
{
    int lane = threadIdx.x, v;
    if (lane < 16) v = __shfl_sync(0x0000ffffu, lane, 2) + __shfl_sync(0x0000ffffu, 10 * lane, 1);
    else v = __shfl_sync(0xffff0000u, 100 * lane, 20);
    out[lane] = v;
}

// Conversions at and beyond their range; one thread.
extern "C" __global__ void own_convert(const double *__restrict__ x, long long *__restrict__ wide, int *__restrict__ narrow, int n)
{
    for (int i = 0; i < n; i++) {
        wide[i] = __double2ll_rn(x[i]);
        narrow[i] = __double2int_rn(x[i]);
    }
}

extern "C" __global__ void own_atomics(int *__restrict__ i, unsigned long long *__restrict__ u)
{
    atomicAdd(&i[0], 1);
    atomicMax(&i[1], (int)threadIdx.x);
    atomicMin(&i[2], (int)threadIdx.x);
    atomicOr(&i[3], 1 << (threadIdx.x & 7));
    atomicAdd(&u[0], 1ull << 40);
}

// Writes out[first .. first + n) = value, wherever that is.
extern "C" __global__ void own_fill(unsigned char *__restrict__ out, long long first, int n, int value)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[first + i] = (unsigned char)value;
}

// Turns the order of a block's values round, through dynamic shared memory, and tells what was there before.
extern "C" __global__ void own_turn(int *__restrict__ values, int *__restrict__ before)
{
    DYN_SHARED(int, buffer);
    if (threadIdx.x == 0) before[blockIdx.x] = buffer[0];
    __syncthreads();
    int *mine = values + blockIdx.x * blockDim.x;
    buffer[threadIdx.x] = mine[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}

// Wrong on purpose: no barrier between the write and the read of a neighbour.
extern "C" __global__ void own_missing_barrier(int *__restrict__ out)
{
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x + 1;
    out[threadIdx.x] = s[(threadIdx.x + 1) & 63];
}

// Wrong on purpose: half of the block never comes to the barrier that the other half waits at.
extern "C" __global__ void own_divergent(int *__restrict__ out)
{
    if (threadIdx.x < 32) __syncthreads();
    else __syncwarp(0xffffffffu >> (threadIdx.x == 40 ? 1 : 0));
    out[threadIdx.x] = 1;
}

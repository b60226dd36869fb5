// Step scan: what each line of an operand holds (src/ozaki/scan.rs).
//
// A line is a row of op(A) or a column of op(B): element h of line i is x[i * line_stride + h * element_stride], and one of
// the two strides is 1. Kernels have no includes and are plain C++17, for NVRTC and, in the tests, for g++.

constexpr int LINES = 32;    // lines of a block
constexpr int DEPTH = 512;   // elements of a line that a block takes at a time
constexpr int WARPS = 8;
constexpr int EMPTY = 0x7F7F7F7F;

// What was seen of a line. Parts of a line merge in any order.
struct Part {
    unsigned long long largest = 0;   // the bits of the largest magnitude; NaN and Inf are the largest
    int lowest = EMPTY;               // the least exponent of a lowest set bit
    unsigned nonzeros = 0;

    __device__ void add(double x) {
        const unsigned long long bits = (unsigned long long)__double_as_longlong(x) & 0x7FFFFFFFFFFFFFFFull;
        if (bits == 0) return;
        // |x| = m 2^(exponent - 1075); a subnormal number has no implicit bit and the exponent of the smallest normal one.
        const int biased = (int)(bits >> 52);
        const unsigned long long implicit = biased == 0 ? 0 : 1ull << 52;
        const int exponent = biased == 0 ? 1 : biased;
        const int low = exponent - 1076 + __ffsll((long long)(bits | implicit));
        merge(bits, low, 1);
    }

    __device__ void merge(unsigned long long other_largest, int other_lowest, unsigned other_nonzeros) {
        largest = max(largest, other_largest);
        lowest = min(lowest, other_lowest);
        nonzeros += other_nonzeros;
    }

    __device__ void publish(unsigned long long* to_largest, int* to_lowest, unsigned* to_nonzeros) const {
        if (nonzeros == 0) return;
        atomicMax(to_largest, largest);
        atomicMin(to_lowest, lowest);
        atomicAdd(to_nonzeros, nonzeros);
    }
};

// Merges into the results of each line: largest = max of the bits of |x|, lowest = min of the exponents of the lowest set
// bits, nonzeros += their number. The host sets largest and nonzeros to 0 and every byte of lowest to 0x7F before.
// Launch: block 256; grid x = ceil(lines / 32), y = min(65535, ceil(length / 512)).
extern "C" __global__ void oz2_scan(const double* __restrict__ x, long long line_stride, long long element_stride, int lines,
                                    int length, unsigned long long* __restrict__ largest, int* __restrict__ lowest,
                                    unsigned int* __restrict__ nonzeros)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_line = blockIdx.x * LINES;
    const long long first = (long long)blockIdx.y * DEPTH, step = (long long)gridDim.y * DEPTH;
    if (element_stride == 1) {
        // The elements of a line are neighbours: a warp walks along one line after the other.
        for (int i = warp; i < LINES && first_line + i < lines; i += WARPS) {
            const int line = first_line + i;
            const double* of = x + line * line_stride;
            Part part;
            for (long long begin = first; begin < length; begin += step) {
                const long long end = begin + DEPTH < length ? begin + DEPTH : length;
#pragma unroll 8
                for (long long h = begin + lane; h < end; h += 32) part.add(of[h]);
            }
            for (int distance = 16; distance > 0; distance /= 2) {
                part.merge(__shfl_xor_sync(0xFFFFFFFFu, part.largest, distance), __shfl_xor_sync(0xFFFFFFFFu, part.lowest, distance),
                           __shfl_xor_sync(0xFFFFFFFFu, part.nonzeros, distance));
            }
            if (lane == 0) part.publish(largest + line, lowest + line, nonzeros + line);
        }
    } else {
        // The lines are neighbours: each lane has its own line, each warp of the block takes every eighth element.
        __shared__ unsigned long long all_largest[WARPS][LINES];
        __shared__ int all_lowest[WARPS][LINES];
        __shared__ unsigned int all_nonzeros[WARPS][LINES];
        const int line = first_line + lane;
        Part part;
        if (line < lines) {
            const double* of = x + line * line_stride;
            for (long long begin = first; begin < length; begin += step) {
                const long long end = begin + DEPTH < length ? begin + DEPTH : length;
#pragma unroll 8
                for (long long h = begin + warp; h < end; h += WARPS) part.add(of[h * element_stride]);
            }
        }
        all_largest[warp][lane] = part.largest;
        all_lowest[warp][lane] = part.lowest;
        all_nonzeros[warp][lane] = part.nonzeros;
        __syncthreads();
        if (warp == 0 && line < lines) {
            for (int w = 1; w < WARPS; w++) part.merge(all_largest[w][lane], all_lowest[w][lane], all_nonzeros[w][lane]);
            part.publish(largest + line, lowest + line, nonzeros + line);
        }
    }
}

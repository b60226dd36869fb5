// Residue numbers on the device (src/rns): intervals, mixed-radix digits, and the place of the largest of an array in three
// forms: by intervals, by digits, and naively. docs/rns.md tells the formulas.
//
// An array of `count` numbers holds residue i of number j at i * count + j, so that neighbouring threads read neighbours. Kernels
// have no includes and are plain C++17, for NVRTC and, in the tests, for g++.

constexpr int MOST = 256;      // moduli of a set
constexpr int THREADS = 256;   // threads of a block

typedef unsigned long long u64;

// The constants of a set of n moduli, made by the host.
struct Set {
    int n;
    const unsigned* lanes;         // m, w = (M / m)^-1 modulo m, floor(w 2^32 / m) of each modulus
    const double* reciprocals;     // 1 / m rounded down, then up
    const unsigned* inverses;      // for j < i at i (i - 1) / 2 + j: v = m_j^-1 modulo m_i, floor(v 2^32 / m_i)
    double psi;                    // an interval is narrow enough if its upper end is at least this
    int least;                     // k: the least exponent of a refinement

    __device__ u64 modulus(int i) const { return lanes[3 * i]; }
};

// X / M lies in [low, upp] 2^exponent.
struct Interval {
    double low, upp;
    int exponent;
};

// x factor modulo m for any x < 2^32; ratio = floor(factor 2^32 / m).
__device__ inline u64 times(u64 x, unsigned factor, unsigned ratio, u64 m) {
    const u64 quotient = x * ratio >> 32, rest = x * factor - quotient * m;
    return rest >= m ? rest - m : rest;
}

// Digit i of a number in mixed radix from its residue and the digits before it: digit j is at digits[j * stride].
__device__ inline unsigned digit(const Set& set, int i, u64 residue, const unsigned* digits, long long stride) {
    const u64 m = set.modulus(i);
    const unsigned* inverses = set.inverses + (long long)i * (i - 1);
    u64 v = residue;
    for (int j = 0; j < i; j++) {
        u64 d = digits[j * stride];
        // A digit of a larger modulus.
        if (d >= m) d %= m;
        v = times(v >= d ? v - d : v + m - d, inverses[2 * j], inverses[2 * j + 1], m);
    }
    return (unsigned)v;
}

// Rarely needed, like the next two functions marked so: a call of their own keeps the kernels small.
__device__ __noinline__ void all_digits(const Set& set, const unsigned* x, long long count, unsigned* digits) {
    for (int i = 0; i < set.n; i++) digits[i] = digit(set, i, x[i * count], digits, 1);
}

// The sums of many terms, rounded down and rounded up, each by a binary tree: the open subtrees stand on a stack, the largest
// first, as the digits of a binary counter (Tree in src/rns/directed.rs).
struct Sums {
    double down[9], up[9];
    int count = 0;

    __device__ void push(double low, double high) {
        int top = __popc(count);
        for (int rest = count; rest & 1; rest >>= 1) {
            top--;
            low = __dadd_rd(down[top], low);
            high = __dadd_ru(up[top], high);
        }
        down[top] = low;
        up[top] = high;
        count++;
    }

    __device__ void finish() {
        for (int top = __popc(count) - 1; top > 0; top--) {
            down[top - 1] = __dadd_rd(down[top - 1], down[top]);
            up[top - 1] = __dadd_ru(up[top - 1], up[top]);
        }
    }
};

// -(ceil(lg x) + 1), from the bits of x > 0.
__device__ inline int factor(double x) {
    const u64 bits = (u64)__double_as_longlong(x);
    const int ceiling = (int)(bits >> 52) - 1023 + ((bits & ((1ull << 52) - 1)) != 0);
    return -(ceiling + 1);
}

// The interval of a number that is very small, or whose sums have an integer between them, since it is very near to 0 or to M.
// low and upp are the fractional parts of the sums.
__device__ __noinline__ Interval evaluate_rare(const Set& set, const unsigned* x, long long count, double low, double upp,
                                               bool between) {
    unsigned s[MOST];
    if (between) {
        all_digits(set, x, count, s);
        if (s[set.n - 1] != 0) return {low, 1.0, 0};
    }
    for (int i = 0; i < set.n; i++) {
        s[i] = (unsigned)times(x[i * count], set.lanes[3 * i + 1], set.lanes[3 * i + 2], set.modulus(i));
    }
    int exponent = 0;
    while (upp < set.psi) {
        const int r = max(factor(upp), set.least), first = min(r, 32);
        Sums refined;
        for (int i = 0; i < set.n; i++) {
            const u64 m = set.modulus(i);
            s[i] = (unsigned)((((u64)s[i] << first) % m << (r - first)) % m);
            refined.push(__dmul_rd((double)s[i], set.reciprocals[2 * i]), __dmul_ru((double)s[i], set.reciprocals[2 * i + 1]));
        }
        refined.finish();
        low = refined.down[0] - floor(refined.down[0]);
        upp = refined.up[0] - floor(refined.up[0]);
        exponent -= r;
    }
    return {low, upp, exponent};
}

// The interval of the number whose residue i is at x[i * count] (Algorithm 1; System::evaluation in src/rns/interval.rs).
__device__ inline Interval evaluate(const Set& set, const unsigned* x, long long count) {
    Sums sums;
    bool zero = true;
    for (int i = 0; i < set.n; i++) {
        const double s = (double)(unsigned)times(x[i * count], set.lanes[3 * i + 1], set.lanes[3 * i + 2], set.modulus(i));
        zero = zero && s == 0.0;
        sums.push(__dmul_rd(s, set.reciprocals[2 * i]), __dmul_ru(s, set.reciprocals[2 * i + 1]));
    }
    if (zero) return {0.0, 0.0, 0};
    sums.finish();
    const double whole_down = floor(sums.down[0]), whole_up = floor(sums.up[0]);
    const double low = sums.down[0] - whole_down, upp = sums.up[0] - whole_up;
    const bool between = whole_down != whole_up;
    if (!between && upp >= set.psi) return {low, upp, 0};
    return evaluate_rare(set, x, count, low, upp, between);
}

// x 2^i > y 2^j, for doubles that are zero or positive and normal.
__device__ inline bool exceeds(double x, int i, double y, int j) {
    if (i == j || x == 0.0 || y == 0.0) return x > y;
    const long long a = __double_as_longlong(x), b = __double_as_longlong(y);
    const int p = i + (int)(a >> 52), q = j + (int)(b >> 52);
    if (p != q) return p > q;
    return (a & ((1ll << 52) - 1)) > (b & ((1ll << 52) - 1));
}

// X is a better largest number than Y: greater, or equal and at an earlier place. By the digits.
__device__ __noinline__ bool better_exactly(const Set& set, const unsigned* residues, long long count, int x, int y) {
    bool equal = true;
    for (int i = 0; i < set.n && equal; i++) equal = residues[i * count + x] == residues[i * count + y];
    if (equal) return x < y;
    unsigned a[MOST], b[MOST];
    all_digits(set, residues + x, count, a);
    all_digits(set, residues + y, count, b);
    int i = set.n - 1;
    while (a[i] == b[i]) i--;
    return a[i] > b[i];
}

// The same, by the digits only where the intervals overlap.
__device__ inline bool better(const Set& set, const unsigned* residues, long long count, int x, const Interval& of_x, int y,
                              const Interval& of_y) {
    if (exceeds(of_x.low, of_x.exponent, of_y.upp, of_y.exponent)) return true;
    if (exceeds(of_y.low, of_y.exponent, of_x.upp, of_x.exponent)) return false;
    return better_exactly(set, residues, count, x, y);
}

// One stage of a reduction: every block leaves the best of its places at out[blockIdx.x]. The first stage takes the places 0 to
// length - 1 (in is null), the second one, of one block, those that the blocks left. `best` is shared by the block.
template <class Better>
__device__ inline void reduce(const int* in, long long length, int* out, int* best, Better is_better) {
    const long long step = (long long)gridDim.x * blockDim.x;
    int own = -1;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < length; i += step) {
        const int place = in == nullptr ? (int)i : in[i];
        if (place >= 0 && (own < 0 || is_better(place, own))) own = place;
    }
    best[threadIdx.x] = own;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) {
            const int other = best[threadIdx.x + half];
            if (other >= 0 && (own < 0 || is_better(other, own))) own = other;
            best[threadIdx.x] = own;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = own;
}

// All intervals of an array.
// Launch: block 256; any grid.
extern "C" __global__ void __launch_bounds__(256)
oz2_rns_interval(const unsigned* __restrict__ residues, long long count, int moduli, const unsigned* __restrict__ lanes,
                 const double* __restrict__ reciprocals, const unsigned* __restrict__ inverses, double psi, int least,
                 double* __restrict__ low, double* __restrict__ upp, int* __restrict__ exponents)
{
    const Set set = {moduli, lanes, reciprocals, inverses, psi, least};
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x; j < count; j += step) {
        const Interval interval = evaluate(set, residues + j, count);
        low[j] = interval.low;
        upp[j] = interval.upp;
        exponents[j] = interval.exponent;
    }
}

// A stage of MAX by intervals.
// Launch: block 256; any grid in the first stage (in is null, length is count), one block in the second (length is that grid).
extern "C" __global__ void __launch_bounds__(256)
oz2_rns_max(const unsigned* __restrict__ residues, long long count, int moduli, const unsigned* __restrict__ lanes,
            const unsigned* __restrict__ inverses, const double* __restrict__ low, const double* __restrict__ upp,
            const int* __restrict__ exponents, const int* __restrict__ in, long long length, int* __restrict__ out)
{
    __shared__ int best[THREADS];
    const Set set = {moduli, lanes, nullptr, inverses, 0.0, 0};
    reduce(in, length, out, best, [&](int x, int y) {
        const Interval of_x = {low[x], upp[x], exponents[x]}, of_y = {low[y], upp[y], exponents[y]};
        return better(set, residues, count, x, of_x, y, of_y);
    });
}

// A stage of MAX in the naive form: every comparison evaluates both numbers.
// Launch: as oz2_rns_max.
extern "C" __global__ void __launch_bounds__(256)
oz2_rns_max_naive(const unsigned* __restrict__ residues, long long count, int moduli, const unsigned* __restrict__ lanes,
                  const double* __restrict__ reciprocals, const unsigned* __restrict__ inverses, double psi, int least,
                  const int* __restrict__ in, long long length, int* __restrict__ out)
{
    __shared__ int best[THREADS];
    const Set set = {moduli, lanes, reciprocals, inverses, psi, least};
    reduce(in, length, out, best, [&](int x, int y) {
        const Interval of_x = evaluate(set, residues + x, count), of_y = evaluate(set, residues + y, count);
        return better(set, residues, count, x, of_x, y, of_y);
    });
}

// The mixed-radix digits of an array, digit i of number j at i * count + j.
// Launch: block 256; any grid.
extern "C" __global__ void __launch_bounds__(256)
oz2_rns_radix(const unsigned* __restrict__ residues, long long count, int moduli, const unsigned* __restrict__ lanes,
              const unsigned* __restrict__ inverses, unsigned* digits)
{
    const Set set = {moduli, lanes, nullptr, inverses, 0.0, 0};
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x; j < count; j += step) {
        for (int i = 0; i < moduli; i++) digits[i * count + j] = digit(set, i, residues[i * count + j], digits + j, count);
    }
}

// A stage of MAX by mixed-radix digits.
// Launch: as oz2_rns_max.
extern "C" __global__ void __launch_bounds__(256)
oz2_rns_max_radix(const unsigned* __restrict__ digits, long long count, int moduli, const int* __restrict__ in, long long length,
                  int* __restrict__ out)
{
    __shared__ int best[THREADS];
    reduce(in, length, out, best, [&](int x, int y) {
        for (int i = moduli - 1; i >= 0; i--) {
            const unsigned a = digits[i * count + x], b = digits[i * count + y];
            if (a != b) return a > b;
        }
        return x < y;
    });
}

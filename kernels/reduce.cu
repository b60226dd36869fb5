// Step reduce: from the 32-bit sums of the products of residues back to residues (Reducer of src/ozaki/residues.rs).

__device__ constexpr int MODULI[20] = {256, 255, 253, 251, 247, 241, 239, 233, 229, 227,
                                       223, 217, 211, 199, 197, 193, 191, 181, 179, 173};

// Four neighbours that move as one.
struct alignas(16) Sums {
    int of[4];
};

// A modulus with 2^32 / p to the nearest integer.
struct Modulus {
    int p, reciprocal;

    __device__ explicit Modulus(int l) : p(MODULI[l]), reciprocal((int)(((1ll << 32) + p / 2) / p)) {}

    // The canonical residue of sum + earlier, |earlier| <= p/2. The reciprocal is off by at most 1/2, so the quotient, rounded,
    // by at most 1/4 + 1/2: what is left is at most 3/4 p, with the earlier residue 5/4 p, and one correction settles it.
    __device__ int residue(int sum, int earlier) const {
        const int quotient = (int)(((long long)sum * reciprocal + (1ll << 31)) >> 32);
        // (Unsigned, since quotient * p may pass the largest int.)
        int r = (int)((unsigned)sum - (unsigned)quotient * (unsigned)p) + earlier;
        if (r > (p - 1) / 2) r -= p;
        if (r < -(p / 2)) r += p;
        return r;
    }
};

// out[l * out_plane + i] = the canonical residue of sums[l * sums_plane + i] (+ out[l * out_plane + i] if `add` is not 0)
// modulo p_(first_modulus + l), for l < moduli and i < count.
// Launch: block 256; grid x = min(2^31 - 1, ceil(count / 1024)), y = moduli.
extern "C" __global__ void oz2_reduce(const int* __restrict__ sums, long long sums_plane, signed char* __restrict__ out,
                                      long long out_plane, long long count, int first_modulus, int moduli, int add)
{
    const int l = blockIdx.y;
    if (l >= moduli) return;
    const Modulus modulus(first_modulus + l);
    sums += l * sums_plane;
    out += l * out_plane;
    const bool aligned = (unsigned long long)sums % 16 == 0 && (unsigned long long)out % 4 == 0;
    const long long step = 4ll * gridDim.x * blockDim.x;
    for (long long i = 4 * ((long long)blockIdx.x * blockDim.x + threadIdx.x); i < count; i += step) {
        if (aligned && i + 4 <= count) {
            const Sums four = *reinterpret_cast<const Sums*>(sums + i);
            unsigned* packed = reinterpret_cast<unsigned*>(out + i);
            const unsigned earlier = add ? *packed : 0;
            unsigned now = 0;
            for (int n = 0; n < 4; n++) {
                const int r = modulus.residue(four.of[n], (signed char)(earlier >> (8 * n)));
                now |= (unsigned)(r & 0xFF) << (8 * n);
            }
            *packed = now;
        } else {
            const long long end = i + 4 < count ? i + 4 : count;
            for (long long at = i; at < end; at++) out[at] = (signed char)modulus.residue(sums[at], add ? out[at] : 0);
        }
    }
}

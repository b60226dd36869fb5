// One kernel file on the model. -DKERNEL=1: product_mma.cu, 2: product_wgmma.cu.
#include "model.h"
#if KERNEL == 1
#include "product_mma.cu"
#else
#include "product_wgmma.cu"
#endif
#include "products.h"

int residue_of(int sum, int l) { return residue(sum, MODULI.of[l]); }

#if KERNEL == 1

Shape shape_of(int) { return {SIDE, 1, 128, STAGES * STAGE}; }

void call_kernel(void* arguments) {
    const Arguments& g = *(const Arguments*)arguments;
    oz2_product_mma(g.a, g.b, g.rows, g.columns, g.pitch, g.planes, g.modulus_of, g.out, g.add, g.band);
}

#else

Shape shape_of(int entry) {
    const bool high = entry < 2;
    return {high ? 256 : 128, entry % 2 + 1, THREADS, high ? Ring<256>::bytes : Ring<128>::bytes};
}

void call_kernel(void* arguments) {
    const Arguments& g = *(const Arguments*)arguments;
    TensorMap map_a, map_b;
    for (int n = 0; n < 16; n++) map_a.opaque[n] = g.map_a[n], map_b.opaque[n] = g.map_b[n];
    constexpr decltype(&oz2_product_wgmma_256_1) entries[] = {oz2_product_wgmma_256_1, oz2_product_wgmma_256_2, oz2_product_wgmma_128_1,
                                                              oz2_product_wgmma_128_2};
    entries[g.entry](map_a, map_b, g.rows, g.columns, g.pitch, g.planes, g.modulus_of, g.out, g.add, g.band);
}

#endif

//! The time model: what a call takes natively and emulated, with constants for each engine.

use super::Shape;
use crate::engine;
use crate::options::EngineChoice;

/// The moduli that the mode auto needs for ordinary real data.
pub const TYPICAL_MODULI: usize = 14;

/// Multiplications a second and thread of a native DGEMM: 10 GFLOP/s, the low end of what an optimised BLAS reaches, so that
/// the emulation is not chosen by an optimistic guess.
const NATIVE_RATE: f64 = 5e9;

/// Constants of an engine.
struct Costs {
    /// Seconds of a call of any size: launches, waits.
    fixed: f64,
    /// 8-bit multiplications a second (and thread, for an engine of threads).
    product_rate: f64,
    /// Seconds for an element of A or B: copies.
    copy_input: f64,
    /// Seconds for an element of A or B and a modulus: residues.
    per_input: f64,
    /// Seconds for an entry of C: copies.
    copy_output: f64,
    /// Seconds for an entry of C and a modulus: reduction, reconstruction.
    per_output: f64,
    /// More threads make it faster.
    threaded: bool,
}

/// Measured for the portable engine on an x86-64 server with the SSE2 baseline (docs/measured/cpu.md).
const PORTABLE: Costs = Costs {
    fixed: 0.0,
    product_rate: 9e9,
    copy_input: 0.0,
    per_input: 2e-9,
    copy_output: 0.0,
    per_output: 5e-9,
    threaded: true,
};

/// Not measured yet: what the data sheets of a PCIe 4 card of the last generations promise, taken at a third. To be replaced by
/// what scripts/gpu-check measures.
const CUDA: Costs = Costs {
    fixed: 1e-3,
    product_rate: 1e14,
    copy_input: 8.0 / 8e9,
    per_input: 2e-12,
    copy_output: 8.0 / 8e9,
    per_output: 1e-11,
    threaded: false,
};

pub fn native_seconds(call: &Shape, threads: usize) -> f64 {
    call.m as f64 * call.n as f64 * call.k as f64 / NATIVE_RATE / threads as f64
}

/// For `moduli` residue products and one bound product.
pub fn emulated_seconds(call: &Shape, engine: usize, moduli: usize, threads: usize) -> f64 {
    let (m, n, k) = (call.m as f64, call.n as f64, call.k as f64);
    let costs = if engine == engine::index_of(EngineChoice::Cuda) { CUDA } else { PORTABLE };
    let (inputs, outputs, moduli) = ((m + n) * k, m * n, moduli as f64);
    let products = (moduli + 1.0) * m * n * k / costs.product_rate;
    let around = inputs * (costs.copy_input + moduli * costs.per_input)
        + outputs * (costs.copy_output + moduli * costs.per_output);
    costs.fixed + (products + around) / if costs.threaded { threads as f64 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gains(n: usize, engine: EngineChoice) -> bool {
        let call = Shape { m: n, n, k: n, alpha: 1.0, beta: 0.0 };
        let emulated = emulated_seconds(&call, engine::index_of(engine), TYPICAL_MODULI, 8);
        emulated < native_seconds(&call, 8)
    }

    #[test]
    fn the_portable_engine_never_gains_and_the_gpu_only_where_products_outweigh_copies() {
        for n in [64, 512, 4096, 32768] {
            assert!(!gains(n, EngineChoice::Portable), "{n}");
        }
        assert!(!gains(256, EngineChoice::Cuda));
        assert!(gains(4096, EngineChoice::Cuda));
    }
}

//! The time model: what a call takes natively and emulated. Rough on purpose while the portable engine, which never gains, is
//! the only one; an engine that gains brings measured constants with it.

use super::Shape;

/// The moduli that the mode auto needs for ordinary real data.
pub const TYPICAL_MODULI: usize = 14;

/// Multiplications a second and thread of a native DGEMM: 10 GFLOP/s, the low end of what an optimised BLAS reaches, so that
/// the emulation is not chosen by an optimistic guess.
const NATIVE_RATE: f64 = 5e9;

/// Constants of an engine.
struct Costs {
    /// 8-bit multiplications a second and thread.
    product_rate: f64,
    /// Seconds for an element of A or B and a modulus (scan, residues).
    per_input: f64,
    /// Seconds for an entry of C and a modulus (reduction, reconstruction).
    per_output: f64,
}

/// Measured for the portable engine on an x86-64 server with the SSE2 baseline (docs/measured/portable.md).
const PORTABLE: Costs = Costs { product_rate: 1.2e10, per_input: 2e-9, per_output: 5e-9 };

pub fn native_seconds(call: &Shape, threads: usize) -> f64 {
    call.m as f64 * call.n as f64 * call.k as f64 / NATIVE_RATE / threads as f64
}

/// For `moduli` residue products and one bound product.
pub fn emulated_seconds(call: &Shape, _engine: usize, moduli: usize, threads: usize) -> f64 {
    let (m, n, k) = (call.m as f64, call.n as f64, call.k as f64);
    let costs = PORTABLE;
    let products = (moduli + 1) as f64 * m * n * k / costs.product_rate;
    let around = moduli as f64 * (costs.per_input * (m + n) * k + costs.per_output * m * n);
    (products + around) / threads as f64
}

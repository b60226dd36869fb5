//! The time model: what a call takes natively and emulated. All constants are here and nowhere else.
//!
//! They say what an ordinary machine of the kind needs; what this machine makes of it is learned from the calls themselves
//! ([`super::experience`]) and comes in as factors.

use super::{Machine, Shape};
use crate::engine;
use crate::engine::cpu::probe;
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::strassen::{Levels, MOST_LEVELS};

/// The moduli that the mode auto needs for ordinary real data.
pub const TYPICAL_MODULI: usize = 14;

/// An emulation must be expected to take less than this part of the native time to be chosen.
pub const MARGIN: f64 = 0.9;

/// Multiplications a second and thread of a large native DGEMM (half of its FLOP/s), at the high end of what an optimised BLAS
/// reaches, so that nothing is emulated by an optimistic guess: 100 GFLOP/s with AVX-512, 50 without.
const NATIVE_RATE_AVX512: f64 = 50e9;
const NATIVE_RATE: f64 = 25e9;
/// The edge, in elements, at which a native DGEMM reaches half of that rate.
const NATIVE_HALF: f64 = 16.0;

/// TOPS of the probe that belong to `product_rate` of the AMX engine.
const USUAL_TOPS: f64 = 5.0;

/// What an emulation on the CPU takes longer if the caches are cold: so much for each input, of the first so many. It is not shared
/// by threads, as they share the memory (docs/measured/amx.md).
const COLD_INPUT: f64 = 2.0e-9;
const COLD_INPUTS: f64 = 1.5e6;

/// Seconds for which threads of a native BLAS look for more work after a call: OpenBLAS for 2^28 cycles, without giving way.
pub const SPIN: f64 = 0.1;

/// The native rate that is guessed for this machine.
pub fn native_rate() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return NATIVE_RATE_AVX512;
    }
    NATIVE_RATE
}

/// Constants of an engine. Seconds are those of one thread, "per input" is for an element of op(A) or op(B), "per output" for an
/// entry of C.
struct Costs {
    /// Seconds of a call of any size: launches, waits, memory.
    fixed: f64,
    /// Seconds more for a call on more than one thread: starting the team in every phase.
    team: f64,
    /// Seconds per input: scan and magnitudes, or copies to a device.
    input: f64,
    /// Seconds per input and modulus: residues.
    input_modulus: f64,
    /// Seconds per output: the bound and the plan, or copies from a device.
    output: f64,
    /// Seconds per output and modulus: the reconstruction.
    output_modulus: f64,
    /// Multiplications of bytes a second (and thread, for an engine of threads), for a large inner dimension.
    product_rate: f64,
    /// Seconds that a tile of the product takes for a modulus, beside its multiplications: to start, store and reduce it.
    tile: f64,
    /// What is faster for calls that caches hold.
    cached: Option<Cached>,
    /// Edges of the blocks that m and n, and k, are filled up to in the products.
    granule: (usize, usize),
    /// From this edge on a level of Strassen's form pays.
    strassen: usize,
    /// More threads make it faster.
    threaded: bool,
}

/// Calls with no more inputs than this: their time for each input, and their rate of products, as parts of those of large calls.
struct Cached {
    inputs: f64,
    input: f64,
    product: f64,
}

/// No level pays.
const NEVER: usize = usize::MAX;

/// Inputs and outputs of a modulus take so much longer with each level of Strassen's form: seven operands in place of four quadrants,
/// and their sums.
const STRASSEN_INPUTS: f64 = 2.0;
const STRASSEN_OUTPUTS: f64 = 1.5;

/// Edge of the tiles that `tile` is for.
const TILE_EDGE: f64 = 32.0;

/// Measured for the portable engine on an x86-64 server with the SSE2 baseline (docs/measured/cpu.md).
const PORTABLE: Costs = Costs {
    fixed: 0.0,
    team: 10e-6,
    input: 0.0,
    input_modulus: 2e-9,
    output: 0.0,
    output_modulus: 5e-9,
    product_rate: 9e9,
    tile: 0.0,
    cached: None,
    granule: (32, 64),
    strassen: NEVER,
    threaded: true,
};

/// One thread of an Emerald-Rapids-class server in the fast state of its tile unit (docs/measured/amx.md).
const AMX: Costs = Costs {
    fixed: 5e-6,
    team: 60e-6,
    input: 1.4e-9,
    input_modulus: 0.12e-9,
    output: 1.4e-9,
    output_modulus: 0.17e-9,
    product_rate: 1.85e12,
    tile: 0.06e-6,
    cached: Some(Cached { inputs: 3e6, input: 0.72, product: 1.08 }),
    granule: (32, 64),
    strassen: NEVER,
    threaded: true,
};

/// One thread of the same server without its tile unit: products by VNNI (docs/measured/engines.md).
const AVX512: Costs = Costs {
    fixed: 5e-6,
    team: 60e-6,
    input: 1.6e-9,
    input_modulus: 0.12e-9,
    output: 1.7e-9,
    output_modulus: 0.17e-9,
    product_rate: 0.34e12,
    tile: 0.0,
    cached: None,
    granule: (32, 64),
    strassen: NEVER,
    threaded: true,
};

/// The same in registers of 256 bits with AVX-VNNI; without it the products take three times as long.
const AVX2: Costs = Costs {
    fixed: 5e-6,
    team: 60e-6,
    input: 5e-9,
    input_modulus: 1.7e-9,
    output: 4e-9,
    output_modulus: 2e-9,
    product_rate: 0.12e12,
    tile: 0.0,
    cached: None,
    granule: (32, 64),
    strassen: NEVER,
    threaded: true,
};

/// Not measured yet: what the data sheets of a PCIe 4 card of the last generations promise, taken at a third. To be replaced by
/// what scripts/gpu-check measures.
const CUDA: Costs = Costs {
    fixed: 1e-3,
    team: 0.0,
    input: 8.0 / 8e9,
    input_modulus: 2e-12,
    output: 8.0 / 8e9,
    output_modulus: 1e-11,
    product_rate: 1e14,
    tile: 0.0,
    cached: None,
    granule: (1, 1),
    strassen: NEVER,
    threaded: false,
};

/// Seconds of the native BLAS, by guess.
pub fn native_seconds(call: &Shape, threads: usize, rate: f64) -> f64 {
    let (m, n, k) = (call.m as f64, call.n as f64, call.k as f64);
    // The harmonic mean: a thin shape has as little to reuse as its smallest dimension allows.
    let edge = 3.0 / (1.0 / m + 1.0 / n + 1.0 / k);
    let efficiency = edge / (edge + NATIVE_HALF);
    m * n * k / (rate * efficiency * threads as f64)
}

fn of_engine(engine: usize) -> &'static Costs {
    match engine {
        engine::CUDA => &CUDA,
        engine::AMX => &AMX,
        engine::AVX512 => &AVX512,
        engine::AVX2 => &AVX2,
        _ => &PORTABLE,
    }
}

/// The levels of Strassen's form on an engine: those that the user wants, or those that pay.
pub fn levels(engine: usize, wanted: Option<usize>) -> Levels {
    match wanted {
        Some(most) => Levels { most, least: 0 },
        None => Levels { most: MOST_LEVELS, least: of_engine(engine).strassen },
    }
}

/// Seconds of an emulation with `moduli` residue products, which have so many levels of Strassen's form, and one bound product.
/// `tops`: what the probe read of the tile unit, which counts for AMX and where it is low.
pub fn emulated_seconds(
    call: &Shape,
    engine: usize,
    (moduli, strassen): (usize, usize),
    threads: usize,
    tops: Option<f64>,
) -> f64 {
    let costs = of_engine(engine);
    let speed = match tops {
        Some(tops) if engine == engine::AMX && tops < probe::FAST => (tops / USUAL_TOPS).max(1e-3),
        _ => 1.0,
    };
    let up = |size: usize, granule: usize| size.div_ceil(granule) as f64 * granule as f64;
    let (m, n, k) = (call.m as f64, call.n as f64, call.k as f64);
    let (inputs, outputs, moduli) = ((m + n) * k, m * n, moduli as f64);
    let (slower, faster) = match costs.cached {
        Some(Cached { inputs: most, input, product }) if inputs <= most => (input, product),
        _ => (1.0, 1.0),
    };
    let tiles = up(call.m, costs.granule.0) * up(call.n, costs.granule.0) / (TILE_EDGE * TILE_EDGE);
    let tile = TILE_EDGE * TILE_EDGE * up(call.k, costs.granule.1) / (costs.product_rate * faster * speed);
    let levels = strassen as i32;
    let products = tiles * (moduli * (tile + costs.tile) * 0.875f64.powi(levels) + tile);
    let around =
        inputs * slower * (costs.input + moduli * costs.input_modulus * STRASSEN_INPUTS.powi(levels))
            + outputs * (costs.output + moduli * costs.output_modulus * STRASSEN_OUTPUTS.powi(levels));
    let (share, team) = match threads {
        2.. if costs.threaded => (threads as f64, costs.team),
        _ => (1.0, 0.0),
    };
    costs.fixed + team + (products + around) / share
}

/// Seconds that an emulation takes longer after a rest. The native BLAS reads its operands often for a byte of theirs that is packed,
/// and hardly notices.
pub fn cold_seconds(call: &Shape, engine: usize) -> f64 {
    let inputs = (call.m as f64 + call.n as f64) * call.k as f64;
    if engine == engine::CUDA { 0.0 } else { COLD_INPUT * inputs.min(COLD_INPUTS) }
}

/// How many times as long an engine takes while threads of the native BLAS look for more work. One that has no threads of its own
/// (CUDA) is not slowed by them.
pub fn delay_of(engine: usize, machine: &Machine) -> f64 {
    if of_engine(engine).threaded { machine.delay } else { 1.0 }
}

/// Seconds of an emulation by several threads that takes so many times as long while those of the native BLAS look for more work.
pub fn delayed_seconds(seconds: f64, delay: f64) -> f64 {
    seconds + (1.0 - 1.0 / delay) * (delay * seconds).min(SPIN)
}

/// What becomes of a call on an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Forecast {
    /// It gains: the seconds that the emulation is expected to take.
    Gain(f64),
    /// It would, if the tile unit were not slow.
    GainIfFast,
    Loss,
}

/// The engines for which experience counts: the portable one is never worth it beside a real BLAS.
pub fn learns(engine: usize) -> bool {
    engine != engine::PORTABLE
}

/// What was learned of the native BLAS and of an engine, as far as it counts for this one.
fn learned(engine: usize, machine: &Machine) -> (f64, f64) {
    if learns(engine) { (machine.learned.native, machine.learned.emulated[engine]) } else { (1.0, 1.0) }
}

/// The levels of Strassen's form that a call will have if there is memory.
fn expected_levels(call: &Shape, engine: usize, machine: &Machine) -> usize {
    let (lines, length) = of_engine(engine).granule;
    levels(engine, machine.strassen).for_block([call.m, call.n, call.k], [lines, lines, length])
}

/// Compares the emulation with the native BLAS, both corrected by what calls like this one took on this machine.
pub fn forecast(call: &Shape, engine: usize, moduli: usize, machine: &Machine) -> Forecast {
    let (natively, emulating) = learned(engine, machine);
    let native = MARGIN * natively * native_seconds(call, machine.threads, machine.native_rate);
    let with = (moduli, expected_levels(call, engine, machine));
    let cold = if machine.rested { cold_seconds(call, engine) } else { 0.0 };
    let delay = delay_of(engine, machine);
    let emulated = |tops| {
        let seconds = emulating * (emulated_seconds(call, engine, with, machine.threads, tops) + cold);
        delayed_seconds(seconds, delay)
    };
    let seconds = emulated(machine.tops);
    if seconds < native {
        Forecast::Gain(seconds)
    } else if machine.tops.is_some_and(|tops| tops < probe::FAST) && emulated(None) < native {
        Forecast::GainIfFast
    } else {
        Forecast::Loss
    }
}

/// The most moduli with which an engine is still done before the native BLAS, once the plan is made: what that took is spent
/// either way.
pub fn most_worth(call: &Shape, engine: usize, machine: &Machine) -> usize {
    let (natively, emulating) = learned(engine, machine);
    let native = natively * native_seconds(call, machine.threads, machine.native_rate);
    let levels = expected_levels(call, engine, machine);
    let emulated = |moduli| emulated_seconds(call, engine, (moduli, levels), machine.threads, machine.tops);
    let rest = |moduli: &usize| emulating * (emulated(*moduli) - emulated(0)) < native;
    (1..=MAX_MODULI).rev().find(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::EngineChoice;

    fn shape(m: usize, n: usize, k: usize) -> Shape {
        Shape { m, n, k, alpha: 1.0, beta: 0.0 }
    }

    fn machine(threads: usize, rate: f64) -> Machine<'static> {
        Machine { native_rate: rate, ..Machine::new(&[], threads) }
    }

    fn of(call: Shape, engine: EngineChoice, machine: &Machine) -> Forecast {
        forecast(&call, engine::index_of(engine), TYPICAL_MODULI, machine)
    }

    fn gains(call: Shape, engine: EngineChoice, machine: &Machine) -> bool {
        matches!(of(call, engine, machine), Forecast::Gain(_))
    }

    #[test]
    fn the_portable_engine_never_gains_and_the_gpu_only_where_products_outweigh_copies() {
        for rate in [NATIVE_RATE, NATIVE_RATE_AVX512] {
            let machine = machine(8, rate);
            for n in [64, 512, 4096, 32768] {
                assert!(!gains(shape(n, n, n), EngineChoice::Portable, &machine), "{n}");
            }
            assert!(!gains(shape(256, 256, 256), EngineChoice::Cuda, &machine));
            assert!(gains(shape(8192, 8192, 8192), EngineChoice::Cuda, &machine));
        }
    }

    #[test]
    fn amx_gains_for_large_calls_and_not_for_small_or_thin_ones() {
        for threads in [1, 2] {
            let machine = machine(threads, NATIVE_RATE_AVX512);
            for n in [2048, 4096, 8192] {
                assert!(gains(shape(n, n, n), EngineChoice::Amx, &machine), "{n}");
            }
            for (m, n, k) in [(128, 128, 128), (32, 8192, 8192), (8192, 8192, 32), (4096, 4096, 64)] {
                assert_eq!(of(shape(m, n, k), EngineChoice::Amx, &machine), Forecast::Loss, "{m} {n} {k}");
            }
        }
    }

    #[test]
    fn few_moduli_are_worth_more_than_many() {
        let mut machine = machine(1, NATIVE_RATE_AVX512);
        let worth = |n: usize, machine: &Machine| most_worth(&shape(n, n, n), engine::AMX, machine);
        assert!((14..=20).contains(&worth(2048, &machine)));
        assert!((2..14).contains(&worth(256, &machine)));
        machine.tops = Some(1.2);
        assert!((2..14).contains(&worth(2048, &machine)));
        machine.learned.native = 10.0;
        assert_eq!(worth(2048, &machine), MAX_MODULI);
        machine.learned.emulated[engine::AMX] = 1e6;
        assert_eq!(worth(2048, &machine), 0);
    }

    #[test]
    fn a_slow_unit_and_what_was_learned_turn_the_forecast() {
        let call = shape(2048, 2048, 2048);
        let mut machine = machine(1, NATIVE_RATE_AVX512);
        machine.tops = Some(1.2);
        assert_eq!(of(call, EngineChoice::Amx, &machine), Forecast::GainIfFast);
        // A native BLAS that is no match even for a slow unit.
        machine.learned.native = 10.0;
        assert!(gains(call, EngineChoice::Amx, &machine));
        machine.learned = Default::default();
        machine.tops = Some(5.5);
        assert!(gains(call, EngineChoice::Amx, &machine));
        machine.learned.emulated[engine::AMX] = 2.0;
        assert_eq!(of(call, EngineChoice::Amx, &machine), Forecast::Loss);
        machine.learned.emulated[engine::AMX] = 1.0;
        machine.learned.native = 0.5;
        assert_eq!(of(call, EngineChoice::Amx, &machine), Forecast::Loss);
        // Each engine has its own, and the portable one none.
        machine.learned.native = 1.0;
        machine.learned.emulated = [1e6; engine::NAMES.len()];
        machine.learned.emulated[engine::AMX] = 1.0;
        assert!(gains(call, EngineChoice::Amx, &machine));
        machine.learned.native = 100.0;
        machine.learned.emulated = Default::default();
        assert!(!gains(call, EngineChoice::Portable, &machine));
    }

    #[test]
    fn after_a_rest_smaller_calls_gain_nothing() {
        let mut machine = machine(2, NATIVE_RATE_AVX512);
        let mut gains = |n, rested| {
            machine.rested = rested;
            gains(shape(n, n, n), EngineChoice::Amx, &machine)
        };
        let from =
            |gains: &mut dyn FnMut(usize) -> bool| (1..128).map(|i| 32 * i).find(|&n| gains(n)).unwrap();
        let (warm, cold) = (from(&mut |n| gains(n, false)), from(&mut |n| gains(n, true)));
        assert!(warm + 64 <= cold && cold < 2048, "{warm}, {cold}");
        assert_eq!(cold_seconds(&shape(999, 999, 999), engine::CUDA), 0.0);
        let seconds = |n| cold_seconds(&shape(n, n, n), engine::AMX);
        assert!(seconds(100) < seconds(500) && seconds(5000) == seconds(9000));
    }

    #[test]
    fn while_threads_of_the_native_blas_look_for_work_less_gains() {
        let mut machine = machine(2, NATIVE_RATE_AVX512);
        let call = shape(1536, 1536, 1536);
        assert!(gains(call, EngineChoice::Amx, &machine));
        machine.delay = 1.5;
        assert!(!gains(call, EngineChoice::Amx, &machine));
        assert!(gains(shape(8192, 8192, 8192), EngineChoice::Amx, &machine));
        assert_eq!([engine::AMX, engine::CUDA].map(|engine| delay_of(engine, &machine)), [1.5, 1.0]);
        // No longer than they look.
        assert_eq!([0.01, 2.0].map(|seconds| delayed_seconds(seconds, 1.0)), [0.01, 2.0]);
        assert!((delayed_seconds(0.01, 1.5) - 0.015).abs() < 1e-12);
        assert!((delayed_seconds(2.0, 1.5) - 2.0 - SPIN / 3.0).abs() < 1e-12);
    }

    /// A level pays where the products outweigh what is done for it; auto takes none before that was measured.
    #[test]
    fn levels_of_strassen_pay_for_large_calls_alone() {
        let seconds = |n, levels| emulated_seconds(&shape(n, n, n), engine::AMX, (14, levels), 1, None);
        assert!(seconds(8192, 1) < 0.97 * seconds(8192, 0));
        assert!(seconds(2048, 1) > seconds(2048, 0));
        let expected = |engine: usize, n: usize, strassen: Option<usize>| {
            let machine = Machine { strassen, ..machine(1, NATIVE_RATE_AVX512) };
            expected_levels(&shape(n, n, n), engine, &machine)
        };
        let sizes = [64, 4096, 8192, 16384];
        for engine in 0..engine::NAMES.len() {
            assert_eq!(sizes.map(|n| expected(engine, n, None)), [0; 4]);
        }
        assert_eq!(sizes.map(|n| expected(engine::AMX, n, Some(0))), [0; 4]);
        assert_eq!(sizes.map(|n| expected(engine::PORTABLE, n, Some(2))), [0, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn times_are_positive_and_grow_with_every_dimension(
            m in 1usize..20_000, n in 1usize..20_000, k in 1usize..20_000, moduli in 2usize..=20,
            threads in 1usize..300, engine in 0usize..5, more in 0usize..5_000, tops in 0.0f64..9.0,
        ) {
            let emulated = |m, n, k| emulated_seconds(&shape(m, n, k), engine, (moduli, 0), threads, Some(tops));
            let native = |m, n, k| native_seconds(&shape(m, n, k), threads, NATIVE_RATE);
            for time in [&emulated as &dyn Fn(usize, usize, usize) -> f64, &native] {
                let base = time(m, n, k);
                prop_assert!(base.is_finite() && base > 0.0);
                prop_assert!(time(m + more, n, k) >= base);
                prop_assert!(time(m, n + more, k) >= base);
                prop_assert!(time(m, n, k + more) >= base);
            }
            prop_assert!(emulated(m, n, k) >= emulated_seconds(&shape(m, n, k), engine, (moduli, 0), threads, None));
        }

        #[test]
        fn sizes_that_no_memory_holds_give_no_nan(m in 1u64.., n in 1u64.., k in 1u64.., engine in 0usize..5) {
            let call = shape(m as usize, n as usize, k as usize);
            prop_assert!(!emulated_seconds(&call, engine, (20, 0), 1, None).is_nan());
            prop_assert!(!native_seconds(&call, 1, NATIVE_RATE).is_nan());
        }
    }
}

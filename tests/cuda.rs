//! The CUDA engine on the software device (tests/softgpu), bit for bit against the portable engine, which the other tests
//! compare with the exact reference. `scripts/softgpu cargo test --test cuda` runs it; without a device it says that it is skipped.

mod common;

use std::ffi::{CString, c_char};

use common::{DEFAULTS, Layout, PLAIN, Problem, Random, assert_same_bits};
use oz2blas::engine::cpu::PORTABLE;
use oz2blas::engine::{Outcome, Settings};
use oz2blas::native::find::Symbol;
use oz2blas::options::Mode;
use oz2blas::ozaki::plan::Accuracy;
use oz2blas::route::Reason;

use oz2blas::engine::cuda::{self, CUDA};

/// Is the software device there? These tests never run on a real one: they inject faults.
fn device() -> bool {
    let there = std::env::var_os("SOFTGPU_FOLDER").is_some() && cuda::is_available();
    if !there {
        println!("skipped: no software device (scripts/softgpu)");
    }
    there
}

/// The same outcome and bits as the portable engine.
fn check(p: &Problem, settings: &Settings, layout: Layout, what: &str) -> Outcome {
    let (want, want_c) = p.run_with(&PORTABLE, settings, layout);
    let (got, got_c) = p.run_with(&CUDA, settings, layout);
    assert_eq!(got, want, "{what}");
    assert_same_bits(&got_c, &want_c, what);
    got
}

fn value(random: &mut Random, kind: u64) -> f64 {
    match kind {
        0 => random.uniform(),
        1 => random.below(19) as f64 - 9.0,
        2 => random.uniform() * 2f64.powi(random.below(24) as i32 - 12),
        3 => [0.0, 0.0, 1.5, -0.25][random.below(4) as usize],
        4 => random.uniform() * f64::from_bits(random.below(60) << 52),
        5 => f64::from(random.uniform() as f32),
        _ => random.uniform() * 2f64.powi(900),
    }
}

fn problem(random: &mut Random, (m, n, k): (usize, usize, usize), kinds: (u64, u64)) -> Problem {
    let a = (0..m * k).map(|_| value(random, kinds.0)).collect();
    let b = (0..n * k).map(|_| value(random, kinds.1)).collect();
    let c = (0..m * n).map(|_| random.uniform()).collect();
    let scalars = [0.0, 1.0, -1.0, 0.75, 3e-5, -1e200, 5e-324];
    let (alpha, beta) = (scalars[1 + random.below(6) as usize], scalars[random.below(7) as usize]);
    Problem { m, n, k, alpha, beta, a, b, c }
}

fn layout(random: &mut Random) -> Layout {
    let mut extra = || random.below(3) as usize * 5;
    let extra = [extra(), extra(), extra()];
    let (ta, tb) = (random.below(2) == 1, random.below(2) == 1);
    Layout { ta, tb, extra, misaligned: 4 * random.below(2) as usize }
}

fn random_calls() {
    let mut random = Random(21);
    for round in 0..60 {
        let shape =
            (1 + random.below(90) as usize, 1 + random.below(90) as usize, 1 + random.below(150) as usize);
        let kinds = (random.below(7), random.below(7));
        let p = problem(&mut random, shape, kinds);
        let accuracy = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High][random.below(3) as usize];
        let mode = [Mode::Auto, Mode::Auto, Mode::Fast, Mode::Accurate][random.below(4) as usize];
        let moduli = 2 + random.below(19) as usize;
        let settings = Settings { mode, moduli, accuracy, threads: 1 + round % 2, ..DEFAULTS };
        let layout = layout(&mut random);
        check(
            &p,
            &settings,
            layout,
            &format!("round {round} {mode:?} N {moduli} {shape:?} kinds {kinds:?} {layout:?}"),
        );
    }
}

/// Small workspaces force blocks over m, n and k and groups of moduli.
fn blocks() {
    let mut random = Random(22);
    for mode in [Mode::Auto, Mode::Accurate, Mode::Fast] {
        for kinds in [(2, 0), (3, 3), (1, 0)] {
            let mut p = problem(&mut random, (150, 130, 300), kinds);
            (p.alpha, p.beta) = (0.75, 0.5);
            let host = Settings { mode, moduli: 18, ..DEFAULTS };
            let (want, want_c) = p.run_with(&PORTABLE, &host, PLAIN);
            for workspace in [1 << 30, 3_000_000, 1_500_000] {
                let (got, c) = p.run_with(&CUDA, &Settings { workspace: Some(workspace), ..host }, PLAIN);
                assert_eq!(got, want, "{mode:?} {workspace} bytes");
                assert_same_bits(&c, &want_c, &format!("{mode:?} {workspace} bytes"));
            }
        }
    }
}

fn long_inner_dimension() {
    let mut random = Random(23);
    let k = (1 << 16) + 100;
    let p = problem(&mut random, (3, 2, k), (0, 0));
    check(&p, &Settings { mode: Mode::Accurate, moduli: 15, ..DEFAULTS }, PLAIN, "long k");
    check(&p, &DEFAULTS, PLAIN, "long k, auto");
}

fn values_that_are_not_finite() {
    let mut random = Random(24);
    let mut p = problem(&mut random, (40, 33, 35), (0, 0));
    p.a[40 * 35 - 1] = f64::NAN;
    assert_eq!(check(&p, &DEFAULTS, PLAIN, "NaN"), Outcome::Declined(Reason::NonFinite));
}

/// Sets faults of the software device; an empty text ends them and mends the device.
fn set_faults(text: &str) {
    static SET: Symbol = Symbol::new(c"softgpu_set_faults");
    let address = SET.address().expect("the software device has it");
    // SAFETY: the function of this name takes a C string and copies it.
    let set: extern "C" fn(*const c_char) = unsafe { std::mem::transmute(address) };
    let text = CString::new(text).unwrap();
    set(text.as_ptr());
}

/// One test: the device belongs to the process.
#[test]
fn everything_is_bit_equal_to_the_portable_engine() {
    if !device() {
        return;
    }
    values_that_are_not_finite();
    random_calls();
    blocks();
    long_inner_dimension();
    set_faults("");
}

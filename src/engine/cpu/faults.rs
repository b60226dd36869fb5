//! Fault injection: every allocation that a call makes, first and later, and panics in the middle of the work.

use super::CpuEngine;
use super::kernels::{Kernels, Pass, Product, Tile, portable};
use super::workspace::faults;
use crate::engine::{Engine, Outcome, Settings};
use crate::gemm::{Gemm, Sizes, Transpose};
use crate::options::Mode;
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::plan::Accuracy;
use crate::ozaki::strassen::Levels;
use crate::route::Reason;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 100;

fn settings(mode: Mode, threads: usize) -> Settings {
    Settings {
        mode,
        moduli: 15,
        worth: MAX_MODULI,
        accuracy: Accuracy::Fp64,
        check: false,
        strassen: Levels::NONE,
        threads,
        workspace: None,
    }
}

/// Lines of the operands that the native BLAS is to compute.
#[derive(Clone, Copy, PartialEq)]
enum Bad {
    None,
    /// Row 31 and column 5 hold NaN.
    NotFinite,
    /// Nothing is provable for row 31, but with all steps of the search.
    Hopeless,
}

/// Runs a SIZE^3 product; C is 7 before.
fn run(engine: &CpuEngine, settings: &Settings, bad: Bad) -> (Outcome, Vec<f64>) {
    let value = |at: usize| 1.0 / (1.0 + at as f64);
    // Row i of A is a[i], a[i + SIZE], ..., and so is column i of B.
    let mut a: Vec<f64> = (0..SIZE * SIZE).map(value).collect();
    let mut b = a.clone();
    match bad {
        Bad::None => {}
        Bad::NotFinite => (a[31], b[5 + 3 * SIZE]) = (f64::NAN, f64::INFINITY),
        Bad::Hopeless => {
            for h in 0..SIZE {
                let scale = 2f64.powi(2 * h as i32 - 100);
                (0..SIZE).for_each(|j| b[j + h * SIZE] /= scale);
                a[31 + h * SIZE] = scale * (1.0 + value(h));
            }
        }
    }
    let mut c = vec![7.0; SIZE * SIZE];
    let sizes = Sizes { m: SIZE, n: SIZE, k: SIZE, lda: SIZE, ldb: SIZE, ldc: SIZE };
    let transposes = (Transpose::No, Transpose::Yes);
    let call = Gemm::new(transposes, sizes, (1.0, 0.0), a.as_ptr(), b.as_ptr(), c.as_mut_ptr()).unwrap();
    // SAFETY: the matrices are as large as the call says.
    let outcome = unsafe { engine.gemm(&call, settings) };
    (outcome, c)
}

#[test]
fn a_failed_allocation_makes_blocks_smaller_or_declines_the_call() {
    let engine = &super::PORTABLE;
    let modes = [Mode::Auto, Mode::Accurate, Mode::Fast].map(|mode| (mode, Bad::None));
    for (mode, bad) in modes.into_iter().chain([(Mode::Auto, Bad::NotFinite), (Mode::Auto, Bad::Hopeless)]) {
        // With a level of Strassen's form in one of them.
        let strassen = Levels { most: usize::from(mode == Mode::Accurate), least: 0 };
        let settings = Settings { check: bad == Bad::NotFinite, strassen, ..settings(mode, 1) };
        let (outcome, want) = run(engine, &settings, bad);
        let Outcome::Done(report) = outcome else { panic!("{outcome:?}") };
        assert_eq!(report.out.count(), [0, 2, 1][bad as usize]);
        let (mut declined, mut done) = (0, 0);
        for lasting in [false, true] {
            for n in 0.. {
                faults::plan(Some(n), lasting);
                let (outcome, c) = run(engine, &settings, bad);
                let happened = faults::happened();
                faults::plan(None, false);
                match outcome {
                    Outcome::Done(_) => {
                        assert_eq!(c, want, "allocation {n}");
                        done += 1;
                    }
                    Outcome::Declined(Reason::NoMemory) => {
                        assert!(c.iter().all(|&c| c == 7.0), "allocation {n}: C was touched");
                        declined += 1;
                    }
                    other => panic!("allocation {n}: {other:?}"),
                }
                if !happened {
                    break;
                }
            }
        }
        assert!(declined > 4 && done > 3, "{mode:?}: {declined} declined, {done} done");
    }
}

static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Kernels that panic at the LEFT-th product, of the bound or of a modulus.
static PANICKING: Kernels = Kernels { product, pass, ..portable::KERNELS };

unsafe fn product(product: &Product, sums: &mut [Tile]) {
    assert!(LEFT.fetch_sub(1, Ordering::Relaxed) != 0, "expected in this test");
    // SAFETY: passed on from the caller, here and below.
    unsafe { (portable::KERNELS.product)(product, sums) };
}

unsafe fn pass(pass: &Pass) {
    assert!(LEFT.fetch_sub(1, Ordering::Relaxed) != 0, "expected in this test");
    unsafe { (portable::KERNELS.pass)(pass) };
}

/// What is done stays, what is not done is named and untouched, and both together are the whole.
#[test]
fn a_panic_leaves_finished_tiles_and_names_the_rest() {
    let engine = CpuEngine::with(&PANICKING);
    let (mut declined, mut partial) = (0, 0);
    let cases = [
        (1, Bad::None, 0),
        (3, Bad::None, 0),
        (1, Bad::NotFinite, 0),
        (1, Bad::None, 1),
        (3, Bad::NotFinite, 1),
    ];
    for (threads, bad, levels) in cases {
        let settings =
            Settings { strassen: Levels { most: levels, least: 0 }, ..settings(Mode::Auto, threads) };
        LEFT.store(usize::MAX, Ordering::Relaxed);
        let (_, want) = run(&engine, &settings, bad);
        for n in (0..).step_by(5) {
            LEFT.store(n, Ordering::Relaxed);
            let (outcome, c) = run(&engine, &settings, bad);
            match outcome {
                Outcome::Declined(reason) => {
                    assert_eq!(reason, Reason::EngineFault);
                    assert!(c.iter().all(|&c| c == 7.0));
                    declined += 1;
                }
                Outcome::Partial(report, reason, rest) => {
                    assert_eq!((report.moduli, reason), (14, Reason::EngineFault));
                    let missing = |i: usize, j: usize| {
                        rest.iter()
                            .filter(|r| {
                                (r.i..r.i + r.rows).contains(&i) && (r.j..r.j + r.columns).contains(&j)
                            })
                            .count()
                    };
                    for j in 0..SIZE {
                        for i in 0..SIZE {
                            let entry = c[i + j * SIZE];
                            // The native BLAS computes a line as a whole.
                            if bad == Bad::NotFinite && (i == 31 || j == 5) {
                                assert!(missing(i, j) == 0 && entry == 7.0);
                                continue;
                            }
                            match missing(i, j) {
                                0 => assert_eq!(entry, want[i + j * SIZE]),
                                1 => assert_eq!(entry, 7.0),
                                n => panic!("({i}, {j}) is missing {n} times"),
                            }
                        }
                    }
                    partial += 1;
                }
                Outcome::Done(report) => {
                    assert_eq!(report.strassen, levels);
                    break;
                }
                Outcome::Native(_) => unreachable!("only where matrices are on a device"),
            }
        }
    }
    assert!(declined > 0 && partial > 20, "{declined} declined, {partial} partial");
}

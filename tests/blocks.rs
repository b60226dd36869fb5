//! Plan and result depend neither on the threads nor on the workspace, and a call that finds none leaves C alone.
//!
//! The workspace is that of the process, so these tests run one after the other in a program of their own.

mod common;

use common::{DEFAULTS, PLAIN, Problem, Random, assert_same_bits, engines};
use oz2blas::engine::{Outcome, Settings};
use oz2blas::options::Mode;
use oz2blas::ozaki::strassen::Levels;
use oz2blas::route::Reason;

fn problem(random: &mut Random) -> Problem {
    let (m, n, k) = (150, 170, 600);
    let mut operand = |count: usize| -> Vec<f64> {
        (0..count).map(|_| random.uniform() * 2f64.powi(random.below(8) as i32)).collect()
    };
    let (a, b, c) = (operand(m * k), operand(n * k), operand(m * n));
    Problem { m, n, k, alpha: 0.75, beta: 3e-5, a, b, c }
}

#[test]
fn threads_and_workspace() {
    threads_and_blocks_do_not_change_a_bit();
    the_plan_does_not_depend_on_workspace_or_threads();
    levels_of_strassen_fit_into_the_workspace();
}

/// The same bits for any number of threads and any workspace, whatever the blocks.
fn threads_and_blocks_do_not_change_a_bit() {
    let mut random = Random(12);
    let p = problem(&mut random);
    for engine in engines() {
        let (outcome, want) = p.run(&engine, &DEFAULTS, PLAIN);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        for threads in [1, 2, 3, 7] {
            for workspace in [150_000, 200_000, 500_000, 2_000_000, 1 << 30] {
                let settings = Settings { threads, workspace: Some(workspace), ..DEFAULTS };
                let (again, c) = p.run(&engine, &settings, PLAIN);
                assert_eq!(again, outcome, "{threads} threads, {workspace} bytes");
                assert_same_bits(&c, &want, &format!("{threads} threads, {workspace} bytes"));
            }
        }
        let none = Settings { workspace: Some(1000), ..DEFAULTS };
        let (outcome, c) = p.run(&engine, &none, PLAIN);
        assert_eq!(outcome, Outcome::Declined(Reason::NoMemory));
        assert_same_bits(&c, &p.c, "without workspace");
    }
}

fn the_plan_does_not_depend_on_workspace_or_threads() {
    let mut random = Random(4);
    let p = problem(&mut random);
    for mode in [Mode::Auto, Mode::Accurate, Mode::Fast] {
        let mut stored = p.store(PLAIN);
        let call = p.gemm(PLAIN, &mut stored);
        let settings = Settings { mode, moduli: 17, ..DEFAULTS };
        for engine in engines() {
            // SAFETY: the matrices are ours and as large as the call says.
            let plan = |settings: Settings| unsafe { engine.plan(&call, &settings) }.unwrap();
            let want = plan(settings);
            for threads in [2, 3, 7] {
                assert_eq!(plan(Settings { threads, ..settings }), want);
            }
            for workspace in [70_000, 100_000, 400_000, 3_000_000] {
                assert_eq!(
                    plan(Settings { workspace: Some(workspace), ..settings }),
                    want,
                    "{workspace} bytes"
                );
            }
        }
    }
}

/// Blocks of C, and of the inner dimension, are cut each for itself; where memory is short there are fewer levels, and at last none.
fn levels_of_strassen_fit_into_the_workspace() {
    let mut random = Random(20);
    let mut p = problem(&mut random);
    (p.a[5 * p.k], p.b[169 * p.k + 3]) = (f64::NAN, f64::INFINITY);
    for engine in engines() {
        for check in [false, true] {
            let settings = Settings { check, ..DEFAULTS };
            let (outcome, want) = p.run(&engine, &settings, PLAIN);
            let mut seen = [0; 3];
            for workspace in [150_000, 250_000, 400_000, 700_000, 1_200_000, 2_000_000, 4_000_000, 1 << 30] {
                for (threads, most) in [(1, 1), (1, 2), (2, 2), (7, 2)] {
                    let strassen = Levels { most, least: 0 };
                    let settings = Settings { threads, workspace: Some(workspace), strassen, ..settings };
                    let (again, c) = p.run(&engine, &settings, PLAIN);
                    let what = format!("{threads} threads, {workspace} bytes, at most {most} levels");
                    assert_eq!(again, outcome, "{what}");
                    assert_same_bits(&c, &want, &what);
                    let Outcome::Done(report) = again else { panic!("{again:?}") };
                    seen[report.strassen] += 1;
                }
            }
            assert!(seen.iter().all(|&calls| calls > 0), "{seen:?}");
        }
    }
}

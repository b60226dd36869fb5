//! Whole emulated calls against `ozaki::reference`, bit for bit, and against the promise by exact arithmetic.

mod common;

use common::{DEFAULTS, Layout, PLAIN, Problem, Random, assert_same_bits, engines, layout, problem};
use oz2blas::engine::{Outcome, Settings};
use oz2blas::options::Mode;
use oz2blas::ozaki::moduli::MAX_MODULI;
use oz2blas::ozaki::plan::{Accuracy, NoPlan, Plan, Way};
use oz2blas::ozaki::reference::{self, Dyadic};
use oz2blas::ozaki::strassen::Levels;
use oz2blas::route::Reason;

fn reference_plan(p: &Problem, settings: &Settings) -> Result<Plan, NoPlan> {
    match settings.mode {
        Mode::Fast => reference::plan_fast(&p.a, &p.b, p.k, settings.moduli, settings.check),
        Mode::Accurate => reference::plan_accurate(&p.a, &p.b, p.k, settings.moduli, settings.check),
        _ => reference::plan_auto(&p.a, &p.b, p.k, settings.accuracy, (settings.moduli, settings.check)),
    }
}

/// Every engine gives what the reference gives; returns the plan, or None where there is none.
fn check(p: &Problem, settings: &Settings, layout: Layout, what: &str) -> Option<Plan> {
    let plan = reference_plan(p, settings);
    for engine in engines() {
        let (outcome, c) = p.run(&engine, settings, layout);
        match &plan {
            Ok(plan) => {
                let Outcome::Done(report) = outcome else { panic!("{what}: {outcome:?}") };
                assert_eq!(
                    (report.moduli, report.way, &report.out),
                    (plan.moduli, plan.way, &plan.out),
                    "{what}"
                );
                assert_eq!(report.bound.is_some(), settings.mode == Mode::Auto);
                let want = reference::product(&p.a, &p.b, p.k, plan, p.alpha, p.beta, &p.c);
                assert_same_bits(&c, &want, what);
            }
            Err(none) => {
                assert_eq!(outcome, Outcome::Declined((*none).into()), "{what}");
                assert_same_bits(&c, &p.c, what);
            }
        }
    }
    plan.ok()
}

#[test]
fn every_number_of_moduli_mode_and_transpose() {
    let mut random = Random(10);
    for moduli in 2..=MAX_MODULI {
        for mode in [Mode::Fast, Mode::Accurate, Mode::Auto] {
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                let shape = (
                    1 + random.below(40) as usize,
                    1 + random.below(40) as usize,
                    1 + random.below(300) as usize,
                );
                let kinds = (random.below(8), random.below(8));
                let p = problem(&mut random, shape, kinds);
                let layout = Layout { ta, tb, ..layout(&mut random) };
                let settings = Settings { mode, moduli, ..DEFAULTS };
                check(
                    &p,
                    &settings,
                    layout,
                    &format!("{mode:?} N {moduli} {layout:?} {shape:?} kinds {kinds:?}"),
                );
            }
        }
    }
}

#[test]
fn random_calls() {
    let mut random = Random(11);
    let mut seen = [false; MAX_MODULI + 1];
    for round in 0..300 {
        let shape =
            (1 + random.below(70) as usize, 1 + random.below(70) as usize, 1 + random.below(40) as usize);
        let kinds = (random.below(8), random.below(8));
        let p = problem(&mut random, shape, kinds);
        let accuracy = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High][random.below(3) as usize];
        let threads = 1 + random.below(3) as usize;
        let settings = Settings { accuracy, threads, ..DEFAULTS };
        let layout = layout(&mut random);
        if let Some(plan) = check(&p, &settings, layout, &format!("round {round} {shape:?} kinds {kinds:?}"))
        {
            seen[plan.moduli] = true;
        }
    }
    assert!(seen.iter().filter(|&&seen| seen).count() >= 10, "few moduli were met: {seen:?}");
}

/// k across 2^17, where a 32-bit sum of residues would wrap, for N = 5..20.
#[test]
fn a_long_inner_dimension() {
    let mut random = Random(13);
    for moduli in 5..=MAX_MODULI {
        let k = (1 << 17) + 3;
        // Equal signs and extreme residues drive the sums to their limits.
        let fill = |value: f64, count: usize| vec![value; count * k];
        let (mut a, b) = (fill(0.999, 2), fill(if moduli % 2 == 0 { 0.998 } else { -0.998 }, 1));
        a[k..].iter_mut().for_each(|x| *x = random.uniform());
        let p = Problem { m: 2, n: 1, k, alpha: 1.0, beta: 1.0, a, b, c: vec![0.5; 2] };
        check(
            &p,
            &Settings { mode: Mode::Accurate, moduli, ..DEFAULTS },
            PLAIN,
            &format!("N {moduli}, long k"),
        );
    }
    let ones = vec![131071.0; 2 * 131075];
    let p =
        Problem { m: 2, n: 2, k: 131075, alpha: 1.0, beta: 0.0, a: ones.clone(), b: ones, c: vec![0.0; 4] };
    for engine in engines() {
        let (_, c) = p.run(&engine, &DEFAULTS, PLAIN);
        assert_same_bits(&c, &[131075.0 * 131071.0 * 131071.0; 4], "equal integers");
    }
}

/// One nonzero row and column whose C' is H_N or nearly: the last place before uniqueness would end.
#[test]
fn values_at_the_limit_of_the_moduli() {
    for moduli in 2..=MAX_MODULI {
        for (x, y) in [(127.99999, 1.0), (1.0 - 1e-16, 1.0 - 1e-16), (0.99, -0.99), (1.0 + 1e-15, 1.0)] {
            for k in [1, 2, 7, 8] {
                let p = Problem {
                    m: 1,
                    n: 1,
                    k,
                    alpha: 1.0,
                    beta: 0.0,
                    a: vec![x; k],
                    b: vec![y; k],
                    c: vec![0.0],
                };
                for mode in [Mode::Fast, Mode::Accurate] {
                    check(
                        &p,
                        &Settings { mode, moduli, ..DEFAULTS },
                        PLAIN,
                        &format!("{mode:?} N {moduli} k {k} {x} {y}"),
                    );
                }
            }
        }
    }
}

/// Multiplying a row by a power of two changes the exponent of its results and nothing else.
#[test]
fn powers_of_two_pass_through() {
    let mut random = Random(14);
    let mut p = problem(&mut random, (9, 8, 50), (0, 0));
    (p.alpha, p.beta) = (1.0, 0.0);
    for mode in [Mode::Fast, Mode::Accurate, Mode::Auto] {
        let settings = Settings { mode, moduli: 15, ..DEFAULTS };
        for engine in engines() {
            let (_, c) = p.run(&engine, &settings, PLAIN);
            let mut scaled = p.clone();
            scaled.a.iter_mut().enumerate().for_each(|(at, x)| *x *= 2f64.powi(11 * (at / 50) as i32 - 40));
            scaled.b.iter_mut().enumerate().for_each(|(at, x)| *x *= 2f64.powi(17 * (at / 50) as i32 - 60));
            let (_, got) = scaled.run(&engine, &settings, PLAIN);
            let factor =
                |at: usize| 2f64.powi(11 * (at % 9) as i32 - 40) * 2f64.powi(17 * (at / 9) as i32 - 60);
            let want: Vec<f64> = c.iter().enumerate().map(|(at, c)| c * factor(at)).collect();
            assert_same_bits(&got, &want, &format!("{mode:?}"));
        }
    }
}

fn sum<'a>(terms: impl Iterator<Item = (&'a f64, &'a f64)>, absolute: bool) -> Dyadic {
    terms.fold(Dyadic::from(0.0), |sum, (&x, &y)| {
        let term = Dyadic::from(x).times(&Dyadic::from(y));
        sum.plus(&if absolute { term.abs() } else { term })
    })
}

/// |out - (alpha AB + beta C)| <= |alpha| (T + 2) u (|A||B|) + 2 u |beta C| + 2^-1073 on every entry, by exact arithmetic.
#[test]
fn the_promise_holds_on_every_entry() {
    let mut random = Random(15);
    let mut emulated = 0;
    for round in 0..120 {
        let shape =
            (1 + random.below(9) as usize, 1 + random.below(9) as usize, 1 + random.below(200) as usize);
        let kinds = (random.below(7), random.below(7));
        let p = problem(&mut random, shape, kinds);
        let accuracy = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High][round % 3];
        for engine in engines() {
            let (outcome, out) = p.run(&engine, &Settings { accuracy, ..DEFAULTS }, PLAIN);
            let Outcome::Done(report) = outcome else { continue };
            emulated += 1;
            for (at, &got) in out.iter().enumerate() {
                let (x, y) = (&p.a[at % p.m * p.k..][..p.k], &p.b[at / p.m * p.k..][..p.k]);
                let nonzeros = |v: &[f64]| v.iter().filter(|&&x| x != 0.0).count() as u64;
                let promise = accuracy.promise(nonzeros(x).min(nonzeros(y)));
                assert!(report.bound.unwrap() >= promise);
                let alpha = Dyadic::from(p.alpha);
                let added = Dyadic::from(p.beta).times(&Dyadic::from(p.c[at]));
                let exact = alpha.times(&sum(x.iter().zip(y), false)).plus(&added);
                let size = alpha.abs().times(&sum(x.iter().zip(y), true));
                let unit = Dyadic { m: 1.into(), e: -53 };
                let allowed = size.times(&unit).times(&Dyadic::from(promise + 1.0));
                let allowed = allowed.plus(&added.abs().times(&Dyadic { m: 1.into(), e: -52 }));
                let allowed = allowed.plus(&Dyadic { m: 1.into(), e: -1073 });
                if got.is_finite() {
                    let error = Dyadic::from(got).minus(&exact).abs();
                    assert!(error.at_most(&allowed), "round {round} entry {at}: {got:e} with {report:?}");
                } else {
                    assert!(Dyadic::from(f64::MAX).at_most(&exact.abs()), "round {round} entry {at}: {got}");
                }
            }
        }
    }
    assert!(emulated > 60, "{emulated}");
}

/// Lines with NaN or Inf are left alone, the others are what they are without them.
#[test]
fn only_lines_that_are_not_finite_are_left_to_the_native_blas() {
    let mut random = Random(16);
    let (m, n, k) = (70, 65, 33);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for mode in [Mode::Auto, Mode::Fast, Mode::Accurate] {
            let settings = Settings { mode, moduli: 15, threads: 1 + random.below(3) as usize, ..DEFAULTS };
            // Corners, the edges of panels, and two lines of the other operand.
            for rows in [vec![0], vec![31, 32], vec![m - 1], vec![5, 63, 64], vec![]] {
                let mut p = problem(&mut random, (m, n, k), (0, 1));
                let columns = [17, n - 1];
                rows.iter().for_each(|&i| p.a[i * k + random.below(k as u64) as usize] = bad);
                columns.iter().for_each(|&j| p.b[j * k + random.below(k as u64) as usize] = bad);
                let plan = check(&p, &settings, layout(&mut random), &format!("{mode:?} {rows:?}")).unwrap();
                assert_eq!((plan.out.rows, &plan.out.columns[..]), (rows.clone(), &columns[..]));
                assert_eq!(plan.out.not_finite, rows.len() + 2);
            }
            // One more than a tenth of all lines.
            let mut p = problem(&mut random, (m, n, k), (0, 1));
            (0..14).for_each(|i| p.a[i * k] = bad);
            assert_eq!(check(&p, &settings, layout(&mut random), "many"), None);
        }
    }
}

/// With lines for which nothing can be proved, and others that are not finite, on all ways to a plan.
#[test]
fn hopeless_lines_are_left_to_the_native_blas() {
    let mut random = Random(17);
    let (m, n, k) = (66, 70, 40);
    let mut ways = [0; Way::ALL.len()];
    for round in 0..40 {
        let mut p = problem(&mut random, (m, n, k), (0, 0));
        let scale = |width: i32, h: usize| 2f64.powi(width - 2 * width * h as i32 / (k as i32 - 1));
        // Columns of A and rows of B that make up for each other, in every other round.
        let width = [0, 30, 8, 300][round % 4];
        (0..m * k).for_each(|at| p.a[at] *= scale(width, at % k));
        (0..n * k).for_each(|at| p.b[at] *= scale(-width, at % k));
        // And lines that are the other way round.
        for _ in 0..random.below(4) {
            let i = random.below(m as u64) as usize;
            (0..k).for_each(|h| p.a[i * k + h] = random.uniform() * scale(-200, h));
        }
        for _ in 0..random.below(3) {
            let j = random.below(n as u64) as usize;
            (0..k).for_each(|h| p.b[j * k + h] = random.uniform() * scale(200, h));
        }
        if random.below(3) == 0 {
            p.a[random.below((m * k) as u64) as usize] = f64::NAN;
        }
        let settings = Settings { threads: 1 + random.below(3) as usize, ..DEFAULTS };
        if let Some(plan) = check(&p, &settings, layout(&mut random), &format!("round {round}")) {
            ways[plan.way as usize] += usize::from(plan.out.count() > plan.out.not_finite);
        }
    }
    assert!(ways[Way::MoreBits as usize] > 0 && ways[Way::AveragedMoreBits as usize] > 0, "{ways:?}");
}

/// A plan that the time model finds too long is no reason to lose the call.
#[test]
fn a_plan_that_gains_nothing_declines_the_call() {
    let mut random = Random(18);
    let p = problem(&mut random, (40, 30, 50), (0, 0));
    let moduli = reference_plan(&p, &DEFAULTS).unwrap().moduli;
    for engine in engines() {
        let run = |worth| p.run(&engine, &Settings { worth, ..DEFAULTS }, PLAIN);
        assert!(matches!(run(moduli).0, Outcome::Done(_)));
        let (outcome, c) = run(moduli - 1);
        assert_eq!(outcome, Outcome::Declined(Reason::NoGain));
        assert_same_bits(&c, &p.c, "no gain");
    }
}

fn levels(most: usize) -> Levels {
    Levels { most, least: 0 }
}

/// One and two levels of Strassen's form are the plain product, bit for bit: every number of moduli, and sizes around those at which a
/// part has one line or one element more, or the last parts are empty.
#[test]
fn every_level_gives_the_same_bits() {
    let mut random = Random(19);
    let mut seen = [0; 3];
    for moduli in 2..=MAX_MODULI {
        for mode in [[Mode::Fast, Mode::Accurate][moduli % 2], Mode::Auto] {
            let mut pick = |sizes: &[usize]| sizes[random.below(sizes.len() as u64) as usize];
            let lines = [33, 64, 65, 70, 97];
            let shape = (pick(&lines), pick(&lines), pick(&[65, 128, 129, 190, 193]));
            let kinds = (random.below(8), random.below(8));
            let p = problem(&mut random, shape, kinds);
            let threads = 1 + random.below(3) as usize;
            let settings = Settings { mode, moduli, threads, ..DEFAULTS };
            let Ok(plan) = reference_plan(&p, &settings) else { continue };
            let want = reference::product(&p.a, &p.b, p.k, &plan, p.alpha, p.beta, &p.c);
            let layout = layout(&mut random);
            let engines = engines();
            for (engine, most) in engines.iter().flat_map(|engine| [(engine, 1), (engine, 2)]) {
                let what = format!("{mode:?} N {moduli} {layout:?} {shape:?} kinds {kinds:?} levels {most}");
                let (outcome, c) = p.run(engine, &Settings { strassen: levels(most), ..settings }, layout);
                let Outcome::Done(report) = outcome else { panic!("{what}: {outcome:?}") };
                assert!((1..=most).contains(&report.strassen), "{what}: {report:?}");
                seen[report.strassen] += 1;
                assert_same_bits(&c, &want, &what);
            }
        }
    }
    assert!(seen[1] > 50 && seen[2] > 10, "{seen:?}");
}

/// Parts of the inner dimension that a pass cannot take at once: what the plain product gives is compared with the reference elsewhere.
#[test]
fn every_level_gives_the_same_bits_for_a_long_inner_dimension() {
    let mut random = Random(23);
    for k in [2200, 4300] {
        let p = problem(&mut random, (70, 66, k), (0, 0));
        for engine in engines() {
            let run = |most| p.run(&engine, &Settings { strassen: levels(most), ..DEFAULTS }, PLAIN);
            let (_, want) = run(0);
            for most in [1, 2] {
                let (outcome, c) = run(most);
                let Outcome::Done(report) = outcome else { panic!("k {k}: {outcome:?}") };
                assert_eq!(report.strassen, most);
                assert_same_bits(&c, &want, &format!("k {k} levels {most}"));
            }
        }
    }
}

/// Data whose inner dimension is balanced, and lines that the native BLAS computes.
#[test]
fn every_level_gives_the_same_bits_for_changed_elements() {
    let mut random = Random(29);
    let (m, n, k) = (70, 97, 193);
    let mut operand = |lines: usize, sign: i32| -> Vec<f64> {
        let power = |at: usize| sign * ((at % k) * (at % k) % 7) as i32 * 10;
        (0..lines * k).map(|at| random.uniform() * 2f64.powi(power(at))).collect()
    };
    let (a, b) = (operand(m, 1), operand(n, -1));
    let mut p = Problem { m, n, k, alpha: 1.5, beta: -0.5, a, b, c: vec![3.0; m * n] };
    for out in [false, true] {
        if out {
            p.a[40 * k + 150] = f64::NAN;
            p.b[80 * k + 20] = f64::INFINITY;
        }
        for engine in engines() {
            let run = |most| p.run(&engine, &Settings { strassen: levels(most), ..DEFAULTS }, PLAIN);
            let (_, want) = run(0);
            for most in [1, 2] {
                let (outcome, c) = run(most);
                let Outcome::Done(report) = outcome else { panic!("{outcome:?}") };
                assert_eq!((report.strassen, report.way), (most, Way::Balanced));
                assert_eq!(report.out.count(), 2 * usize::from(out));
                assert_same_bits(&c, &want, &format!("levels {most}, out {out}"));
            }
        }
    }
}

#[test]
fn c_is_not_read_when_beta_is_zero() {
    let mut random = Random(17);
    for beta in [0.0, -0.0] {
        let mut p = problem(&mut random, (33, 34, 20), (0, 0));
        (p.alpha, p.beta) = (2.0, beta);
        p.c.fill(f64::NAN);
        check(&p, &DEFAULTS, PLAIN, "C of NaN");
    }
}

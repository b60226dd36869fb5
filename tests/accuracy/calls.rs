//! Whole calls of every engine: each entry against its promise (23), what is left to the native BLAS, and the reference bit for bit.

use std::cell::RefCell;

use oz2blas::engine::{Outcome, Report, Settings};
use oz2blas::ozaki::moduli::MAX_MODULI;
use oz2blas::ozaki::plan::{Accuracy, Out};
use oz2blas::ozaki::reference::{self, Dyadic};
use oz2blas::route::Reason;
use proptest::prelude::*;

use crate::common::{DEFAULTS, PLAIN, Problem, Random, assert_same_bits, engines, layout};
use crate::exact::{at_most_t_times, integer, power, runner, shifted, sum, units};
use crate::operands::{Kind, accuracy, drawn};

/// |out - (alpha AB + beta C)| <= |alpha| (T + 2) u |A||B| + 2 u |beta C| + 2^-1073 for entry (i, j), or an overflow on the way.
fn keeps_its_promise(p: &Problem, accuracy: Accuracy, (i, j): (usize, usize), got: f64) -> bool {
    let (x, y) = (&p.a[i * p.k..][..p.k], &p.b[j * p.k..][..p.k]);
    let terms: Vec<Dyadic> =
        x.iter().zip(y).map(|(&x, &y)| Dyadic::from(x).times(&Dyadic::from(y))).collect();
    let alpha = Dyadic::from(p.alpha);
    let added = Dyadic::from(p.beta).times(&Dyadic::from(p.c[i + j * p.m]));
    let product = alpha.times(&sum(terms.iter().cloned()));
    let size = alpha.times(&sum(terms.iter().map(Dyadic::abs))).abs();
    if !got.is_finite() {
        // C^ itself, beta C and their sum are at most this large.
        let largest = shifted(&product.abs().plus(&units(&size)).plus(&added.abs()), 2);
        return Dyadic::from(f64::MAX).at_most(&largest);
    }
    let nonzeros = |v: &[f64]| v.iter().filter(|&&x| x != 0.0).count() as u64;
    let error = Dyadic::from(got).minus(&product.plus(&added)).abs();
    let rest =
        error.minus(&units(&shifted(&size, 1))).minus(&units(&shifted(&added.abs(), 1))).minus(&power(-1073));
    // Without a nonzero T does not matter.
    at_most_t_times(&rest, accuracy, nonzeros(x).min(nonzeros(y)).max(1), &units(&size))
}

/// (22): with beta = 0 and alpha a power of two there is one rounding less.
fn keeps_the_promise_of_a_product(p: &Problem, accuracy: Accuracy, (i, j): (usize, usize), got: f64) -> bool {
    let (x, y) = (&p.a[i * p.k..][..p.k], &p.b[j * p.k..][..p.k]);
    let terms: Vec<Dyadic> =
        x.iter().zip(y).map(|(&x, &y)| Dyadic::from(x).times(&Dyadic::from(y))).collect();
    let alpha = Dyadic::from(p.alpha);
    let size = alpha.times(&sum(terms.iter().map(Dyadic::abs))).abs();
    let error = Dyadic::from(got).minus(&alpha.times(&sum(terms))).abs();
    let nonzeros = |v: &[f64]| v.iter().filter(|&&x| x != 0.0).count() as u64;
    let rest = error.minus(&units(&size)).minus(&power(-1075));
    at_most_t_times(&rest, accuracy, nonzeros(x).min(nonzeros(y)).max(1), &units(&size))
}

/// The lines with NaN or Inf.
fn not_finite(values: &[f64], k: usize) -> Vec<usize> {
    let lines = values.chunks(k).enumerate();
    lines.filter(|(_, line)| line.iter().any(|x| !x.is_finite())).map(|(l, _)| l).collect()
}

/// The bound in the report is T + 1 for the most nonzeros of the lines that stay, as a double.
fn is_the_bound(p: &Problem, accuracy: Accuracy, report: &Report) -> bool {
    let most = |values: &[f64], out: &[usize]| {
        let lines = values.chunks(p.k).enumerate().filter(|(l, _)| !out.contains(l));
        lines.map(|(_, line)| line.iter().filter(|&&x| x != 0.0).count() as u64).max().unwrap_or(0)
    };
    let n = most(&p.a, &report.out.rows).min(most(&p.b, &report.out.columns));
    let t = Dyadic::from(report.bound.expect("auto proves one")).minus(&integer(1));
    let close = |sign: i64| t.times(&Dyadic { m: ((1i64 << 50) + sign).into(), e: -50 });
    // Without any nonzero T does not matter.
    n == 0
        || at_most_t_times(&close(-1), accuracy, n, &integer(1))
            && !at_most_t_times(&close(1), accuracy, n, &integer(1))
}

/// What the cases have met: a test that never takes lines out tests nothing of that.
#[derive(Debug, Default)]
pub struct Seen {
    pub calls: usize,
    pub emulated: usize,
    entries: usize,
    rows_out: usize,
    columns_out: usize,
    with_not_finite: usize,
    with_hopeless: usize,
    with_both: usize,
    pub with_balance: usize,
    with_more_bits: usize,
    refused_not_finite: usize,
    refused_not_provable: usize,
    moduli: [usize; MAX_MODULI + 1],
}

pub fn check(p: &Problem, settings: &Settings, layout_seed: u64, seen: &mut Seen) {
    let plan = reference::plan_auto(&p.a, &p.b, p.k, settings.accuracy, (settings.moduli, settings.check));
    let (rows, columns) = (not_finite(&p.a, p.k), not_finite(&p.b, p.k));
    let bad = rows.len() + columns.len();
    seen.calls += 1;
    for engine in engines() {
        let (outcome, c) = p.run(&engine, settings, layout(&mut Random(layout_seed)));
        let Outcome::Done(report) = outcome else {
            let Outcome::Declined(reason) = outcome else { panic!("{outcome:?}") };
            let want = plan.as_ref().map_err(|&none| Reason::from(none)).unwrap_err();
            assert_eq!(reason, want);
            let too_many = 10 * bad > p.m + p.n || rows.len() == p.m || columns.len() == p.n;
            assert_eq!(reason == Reason::NonFinite, too_many);
            assert_same_bits(&c, &p.c, "C of a declined call");
            continue;
        };
        let plan = plan.as_ref().expect("an emulated call has a plan");
        assert_eq!((report.moduli, report.way), (plan.moduli, plan.way));
        assert!(is_the_bound(p, settings.accuracy, &report), "{report:?}");
        assert_eq!(report.out, plan.out, "what the native BLAS is to compute");
        // Lines that are not finite are out, all of them; no other line with a finite call is called so.
        assert_eq!(report.out.not_finite, bad);
        assert!(rows.iter().all(|i| report.out.rows.contains(i)));
        assert!(columns.iter().all(|j| report.out.columns.contains(j)));
        assert!(10 * report.out.count() <= p.m + p.n);
        assert!(report.out.rows.len() < p.m && report.out.columns.len() < p.n);
        let want = reference::product(&p.a, &p.b, p.k, plan, p.alpha, p.beta, &p.c);
        assert_same_bits(&c, &want, "the reference");
        for (at, &got) in c.iter().enumerate() {
            let (i, j) = (at % p.m, at / p.m);
            if report.out.rows.contains(&i) || report.out.columns.contains(&j) {
                assert_eq!(got.to_bits(), p.c[at].to_bits(), "an entry that is not ours was touched");
            }
        }
    }
    match plan {
        Ok(plan) => {
            // All engines gave the bits of the reference: one check is enough.
            let c = reference::product(&p.a, &p.b, p.k, &plan, p.alpha, p.beta, &p.c);
            let ours =
                |at: &usize| !plan.out.rows.contains(&(at % p.m)) && !plan.out.columns.contains(&(at / p.m));
            for at in (0..p.m * p.n).filter(ours) {
                let entry = (at % p.m, at / p.m);
                assert!(
                    keeps_its_promise(p, settings.accuracy, entry, c[at]),
                    "{entry:?}: {:e}, {plan:?}",
                    c[at]
                );
                if p.beta == 0.0 && p.alpha.abs() == 1.0 && c[at].is_finite() {
                    assert!(
                        keeps_the_promise_of_a_product(p, settings.accuracy, entry, c[at]),
                        "{entry:?}: {:e}",
                        c[at]
                    );
                }
                seen.entries += 1;
            }
            let hopeless = plan.out.count() - plan.out.not_finite;
            seen.emulated += 1;
            seen.rows_out += plan.out.rows.len();
            seen.columns_out += plan.out.columns.len();
            seen.with_not_finite += usize::from(plan.out.not_finite > 0);
            seen.with_hopeless += usize::from(hopeless > 0);
            seen.with_both += usize::from(hopeless > 0 && plan.out.not_finite > 0);
            seen.with_balance += usize::from(!plan.inner.is_empty());
            seen.with_more_bits += usize::from(plan.way.name().contains("more bits"));
            seen.moduli[plan.moduli] += 1;
        }
        Err(none) => match Reason::from(none) {
            Reason::NonFinite => seen.refused_not_finite += 1,
            _ => seen.refused_not_provable += 1,
        },
    }
}

/// (3) to (24) together: any call, any layout, any accuracy.
#[test]
fn every_entry_keeps_its_promise_and_the_others_are_left_alone() {
    let seen = RefCell::new(Seen::default());
    let most = prop_oneof![4 => Just(MAX_MODULI), 1 => 2..=MAX_MODULI];
    let cases = (drawn(40, 70), accuracy(), most, 1usize..3, any::<u64>());
    runner(200)
        .run(&cases, |(drawn, accuracy, moduli, threads, layout_seed)| {
            let settings = Settings { accuracy, moduli, threads, ..DEFAULTS };
            check(&drawn.problem(), &settings, layout_seed, &mut seen.borrow_mut());
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    println!("{seen:?}");
    let met = [
        seen.rows_out,
        seen.columns_out,
        seen.with_not_finite,
        seen.with_hopeless,
        seen.with_both,
        seen.with_balance,
        seen.with_more_bits,
        seen.refused_not_provable,
    ];
    assert!(
        met.iter().all(|&count| count > 5) && seen.refused_not_finite > 0,
        "something is hardly met: {seen:?}"
    );
    assert!(2 * seen.emulated > seen.calls && seen.entries > 20_000, "{seen:?}");
    assert!(seen.moduli.iter().filter(|&&count| count > 0).count() > 12, "few moduli were met: {seen:?}");
}

/// A line whose largest element meets next to nothing is out, and no other line is but those that are not finite; how many entries are
/// left alone is counted.
#[test]
fn hopeless_lines_and_no_others_are_left_to_the_native_blas() {
    let (m, n, k) = (38, 35, 40);
    for (rows, columns, bad_rows, bad_columns) in [
        (vec![3], vec![], vec![], vec![]),
        (vec![0, 37], vec![5], vec![], vec![]),
        (vec![], vec![0, 34], vec![], vec![]),
        (vec![7], vec![2], vec![36], vec![30]),
        (vec![], vec![], vec![0, 1], vec![33]),
    ] {
        // Element 0 is tiny in every column and huge in the rows to be taken out; element 1 the other way round.
        let operand = |lines: usize, large: usize, hopeless: &[usize], bad: &[usize]| -> Vec<f64> {
            let line = |l: usize| {
                let mut x = Kind::Uniform.line(k, (lines * l) as u64);
                x[1 - large] *= 2f64.powi(-400);
                x[large] *= if hopeless.contains(&l) { 2f64.powi(600) } else { 1.0 };
                x[k - 1] = if bad.contains(&l) { f64::NEG_INFINITY } else { x[k - 1] };
                x
            };
            (0..lines).flat_map(line).collect()
        };
        let (a, b) = (operand(m, 0, &rows, &bad_rows), operand(n, 1, &columns, &bad_columns));
        let p = Problem { m, n, k, alpha: -1.0, beta: 0.75, a, b, c: vec![0.3; m * n] };
        let sorted = |mut all: Vec<usize>| {
            all.sort_unstable();
            all
        };
        let not_finite = bad_rows.len() + bad_columns.len();
        let want = Out {
            rows: sorted([rows, bad_rows].concat()),
            columns: sorted([columns, bad_columns].concat()),
            not_finite,
        };
        for engine in engines() {
            let (outcome, c) = p.run(&engine, &DEFAULTS, PLAIN);
            let Outcome::Done(report) = outcome else { panic!("{outcome:?}") };
            assert_eq!(report.out, want);
            let untouched = c.iter().filter(|&&x| x == 0.3).count();
            let (r, s) = (want.rows.len(), want.columns.len());
            assert_eq!(untouched, r * n + s * m - r * s, "entries that were left alone");
        }
        check(&p, &DEFAULTS, 5, &mut Seen::default());
    }
}

/// An element of an exact row may be scaled beyond P, up to 2^161, where every column has a zero; nothing may come of that.
#[test]
fn scaled_elements_beyond_the_moduli_meet_zeros_only() {
    let mut largest = 0;
    for x in 140..163 {
        for first in [1.0, 1.9921875, 2.0 - f64::EPSILON] {
            let tiny = 2f64.powi(-x);
            let a = vec![first, tiny, 0.0, 1.0, first, -3.0 * tiny];
            let b = vec![0.0, 1.0, 0.0, -1.0, -0.0, 1.0];
            let p = Problem { m: 3, n: 3, k: 2, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; 9] };
            check(&p, &DEFAULTS, x as u64, &mut Seen::default());
            if let Ok(plan) = reference::plan_auto(&p.a, &p.b, 2, Accuracy::Fp64, (MAX_MODULI, false)) {
                largest = largest.max(plan.rows[0]);
            }
        }
    }
    assert_eq!(largest, 159);
}

//! The plans that the engines find, against the inequalities that are to hold for each line and for each entry. Nothing of the plan's
//! own arithmetic is used: digits, sums and bounds come from their definitions.

use std::cell::RefCell;

use num_bigint::BigInt;
use oz2blas::engine::Settings;
use oz2blas::options::Mode;
use oz2blas::ozaki::plan::{Accuracy, Plan};
use oz2blas::ozaki::reference::{self, Dyadic};
use proptest::prelude::*;

use crate::common::{DEFAULTS, PLAIN, Problem, Random, engines};
use crate::exact::{
    at_most_t_times, exponent, fits, floor, floor_lg_t, integer, is_integer, limit, power, product, runner,
    shifted, sum, units, whole, zero,
};
use crate::operands::{accuracy, drawn};

/// A line as the plan sees it: balanced, and of zeros where it is out.
struct Line {
    out: bool,
    /// The exponent s or t of the plan, sigma or tau, and e.
    sigma: i32,
    /// |a| 2^s, exactly.
    alpha: Vec<Dyadic>,
    /// a', with the sign of a.
    rounded: Vec<BigInt>,
    /// a 2^s, exactly.
    scaled: Vec<Dyadic>,
    /// A~, and the fourteen bits of (17).
    digits: Vec<u64>,
    fine: Vec<u64>,
    nonzeros: u64,
    sum: u64,
    /// Some element is no integer.
    inexact: bool,
}

impl Line {
    fn new(values: &[f64], s: i32, inner: impl Fn(usize) -> i32, out: bool) -> Self {
        let value = |(h, &x): (usize, &f64)| if out { zero() } else { shifted(&Dyadic::from(x), inner(h)) };
        let values: Vec<Dyadic> = values.iter().enumerate().map(value).collect();
        let e = values.iter().filter(|x| !x.is_zero()).map(exponent).max().unwrap_or(s + 7);
        let scaled: Vec<Dyadic> = values.iter().map(|x| shifted(x, s)).collect();
        let digits = |bits: i32| -> Vec<u64> {
            values.iter().map(|x| u64::try_from(floor(&shifted(x, bits - e))).unwrap()).collect()
        };
        let seven = digits(7);
        Self {
            out,
            sigma: s - 7 + e,
            alpha: scaled.iter().map(Dyadic::abs).collect(),
            rounded: scaled.iter().map(Dyadic::nearest_integer).collect(),
            nonzeros: values.iter().filter(|x| !x.is_zero()).count() as u64,
            sum: seven.iter().sum(),
            fine: digits(14),
            digits: seven,
            inexact: !scaled.iter().all(is_integer),
            scaled,
        }
    }

    /// rs + nz.
    fn cost(&self) -> u64 {
        self.sum + self.nonzeros
    }
}

fn lines(values: &[f64], k: usize, s: &[i32], plan: &Plan, rows: bool) -> Vec<Line> {
    let sign = if rows { 1 } else { -1 };
    let inner = |h: usize| plan.inner.get(h).map_or(0, |d| sign * d);
    let out = if rows { &plan.out.rows } else { &plan.out.columns };
    let line = |(l, (x, &s)): (usize, (&[f64], &i32))| Line::new(x, s, inner, out.contains(&l));
    values.chunks(k).zip(s).enumerate().map(line).collect()
}

/// (1), (2) and (3).
fn check_line(line: &Line) {
    for h in 0..line.alpha.len() {
        let (x, a) = (&line.scaled[h], whole(&line.rounded[h]));
        let off = a.minus(x).abs();
        assert!(off.at_most(&power(-1)), "(1)");
        assert!(line.inexact || off.is_zero(), "(1), exact");
        if x.is_zero() {
            assert_eq!(line.digits[h], 0);
            continue;
        }
        let above = shifted(&integer(line.digits[h] + 1), line.sigma);
        assert!(shifted(&integer(line.digits[h]), line.sigma).at_most(&line.alpha[h]), "(2), below");
        assert!(line.alpha[h].at_most(&above.minus(&units(&above))), "(2), above");
        assert!(a.abs().at_most(&above), "(3)");
    }
    assert!(line.sigma >= -1 || !line.inexact, "(3), where it may be used");
}

#[derive(Debug, Default)]
struct Seen {
    plans: usize,
    pairs: usize,
    inexact: usize,
    disjoint: usize,
    /// The largest error found, in millionths of T u |A||B|.
    largest: u64,
}

/// (4) to (7) for a pair; |C'| <= H_N.
fn check_uniqueness(a: &Line, b: &Line, moduli: usize) {
    let by = a.sigma + b.sigma;
    let both: Vec<usize> =
        (0..a.alpha.len()).filter(|&h| !a.alpha[h].is_zero() && !b.alpha[h].is_zero()).collect();
    let above: u64 = both.iter().map(|&h| (a.digits[h] + 1) * (b.digits[h] + 1)).sum();
    let g: u64 = both.iter().map(|&h| a.digits[h] * b.digits[h]).sum();
    let u = g + a.sum + b.sum + a.nonzeros.min(b.nonzeros);
    assert!(above <= u, "(4)");
    let all = sum(both.iter().map(|&h| whole(&a.rounded[h]).times(&whole(&b.rounded[h])).abs()));
    assert!(all.at_most(&shifted(&integer(u), by)), "(6)");
    assert!(all.at_most(&whole(&limit(moduli))), "(7), (8), (9)");
}

/// (5), (11) to (17), and (21): a pair of a plan of the mode auto.
fn check_pair(a: &Line, b: &Line, accuracy: Accuracy, plan: &Plan, seen: &mut Seen) {
    let by = a.sigma + b.sigma;
    let k = a.alpha.len();
    let products = |x: &[Dyadic], y: &[Dyadic]| sum((0..k).map(|h| x[h].times(&y[h])));
    let dot = |x: &[u64], y: &[u64]| -> u64 { (0..k).map(|h| x[h] * y[h]).sum() };
    let (g, fine) = (dot(&a.digits, &b.digits), dot(&a.fine, &b.fine));
    let u = g + a.sum + b.sum + a.nonzeros.min(b.nonzeros);
    assert!(fits(u, by, plan.moduli), "(7)");
    let size = products(&a.alpha, &b.alpha);
    let (g, fine) = (shifted(&integer(g), by), shifted(&integer(fine), by - 14));
    assert!(g.at_most(&fine) && fine.at_most(&size), "(5), (17)");
    let lower = if plan.way.name().contains("more bits") { &fine } else { &g };

    let c: BigInt = (0..k).map(|h| &a.rounded[h] * &b.rounded[h]).sum();
    let error = whole(&c).minus(&products(&a.scaled, &b.scaled)).abs();
    if size.is_zero() {
        assert!(c == BigInt::ZERO && error.is_zero(), "(15)");
        seen.disjoint += 1;
        return;
    }
    let off = |line: &Line, h: usize| whole(&line.rounded[h]).minus(&line.scaled[h]).abs();
    let first = sum((0..k).map(|h| off(a, h).times(&whole(&b.rounded[h]).abs())));
    let second = sum((0..k).map(|h| off(b, h).times(&a.alpha[h])));
    let both = first.plus(&second);
    assert!(error.at_most(&both), "(11), in two parts");
    let half = |other: &Line, sigma: i32, inexact: bool| {
        if inexact { shifted(&integer(other.cost()), sigma - 1) } else { zero() }
    };
    assert!(first.at_most(&half(b, b.sigma, a.inexact)), "(11), first part");
    assert!(second.at_most(&half(a, a.sigma, b.inexact)), "(11), second part");

    let n = a.nonzeros.min(b.nonzeros);
    for (line, other) in [(a, b), (b, a)] {
        if line.inexact {
            seen.inexact += 1;
            let cost = shifted(&integer(other.cost()), other.sigma);
            assert!(at_most_t_times(&cost, accuracy, n, &units(lower)), "(12)");
            assert!(line.sigma >= 47 - floor_lg_t(accuracy, n), "(12): an inexact line has many bits");
        }
    }
    assert!(at_most_t_times(&both, accuracy, n, &units(lower)), "(13)");
    // (18): both (1 + 2 u) (1 + u)^2 <= T u size (1 + u)^2 + (1 + 2 u) u^2 size.
    let more = |x: &Dyadic, times: i32| x.plus(&shifted(&units(x), times));
    let square = |x: &Dyadic| more(&more(x, 0), 0);
    let left = square(&more(&both, 1)).minus(&more(&units(&units(&size)), 1));
    assert!(at_most_t_times(&left, accuracy, n, &units(&square(&size))), "(18)");
    let scale = BigInt::from(1_000_000);
    let t = if accuracy == Accuracy::High { 1.0 } else { accuracy.promise(n) - 1.0 };
    let allowed = units(&size).times(&Dyadic::from(t));
    let e = error.e.min(allowed.e);
    let at = |x: &Dyadic| floor(&shifted(x, -e));
    seen.largest = seen.largest.max(u64::try_from(at(&error) * scale / at(&allowed)).unwrap());
}

/// The plan of all engines, which is the same.
fn plan_of(p: &Problem, settings: &Settings) -> Option<Plan> {
    let mut stored = p.store(PLAIN);
    let call = p.gemm(PLAIN, &mut stored);
    // SAFETY: the matrices are ours and as large as the call says.
    let mut plans: Vec<_> =
        engines().iter().map(|engine| unsafe { engine.plan(&call, settings).ok() }).collect();
    let first = plans.pop()?;
    assert!(plans.iter().all(|plan| *plan == first));
    first
}

#[test]
fn every_plan_is_certified() {
    let seen = RefCell::new(Seen::default());
    runner(250)
        .run(&(drawn(16, 40), accuracy()), |(drawn, accuracy)| {
            let p = drawn.problem();
            let Some(plan) = plan_of(&p, &Settings { accuracy, ..DEFAULTS }) else { return Ok(()) };
            let seen = &mut *seen.borrow_mut();
            seen.plans += 1;
            let a = lines(&p.a, p.k, &plan.rows, &plan, true);
            let b = lines(&p.b, p.k, &plan.columns, &plan, false);
            a.iter().chain(&b).filter(|line| line.nonzeros > 0).for_each(check_line);
            // (19): the balanced operands have the same product and the same magnitudes.
            for (i, j) in (0..p.m).flat_map(|i| (0..p.n).map(move |j| (i, j))) {
                if a[i].out || b[j].out || a[i].nonzeros == 0 || b[j].nonzeros == 0 {
                    continue;
                }
                seen.pairs += 1;
                check_uniqueness(&a[i], &b[j], plan.moduli);
                check_pair(&a[i], &b[j], accuracy, &plan, seen);
                let plain = |x: &[f64], l: usize| -> Vec<Dyadic> {
                    x[l * p.k..][..p.k].iter().map(|&x| Dyadic::from(x)).collect()
                };
                let (x, y) = (plain(&p.a, i), plain(&p.b, j));
                let exact = sum(x.iter().zip(&y).map(|(x, y)| x.times(y)));
                let exact = shifted(&exact, plan.rows[i] + plan.columns[j]);
                let balanced = sum((0..p.k).map(|h| a[i].scaled[h].times(&b[j].scaled[h])));
                assert!(exact.minus(&balanced).is_zero(), "(19)");
            }
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    println!("{seen:?}");
    assert!(seen.plans > 120 && seen.inexact > 5000 && seen.disjoint > 20, "{seen:?}");
    assert!(seen.largest < 1_000_000, "{seen:?}");
}

/// The modes that fix N: uniqueness is all that they promise.
#[test]
fn the_other_modes_are_unique() {
    let modes = prop_oneof![Just(Mode::Fast), Just(Mode::Accurate)];
    let found = RefCell::new(0);
    runner(250)
        .run(&(drawn(12, 30), modes, 2usize..=20), |(drawn, mode, moduli)| {
            let p = drawn.problem();
            let Some(plan) = plan_of(&p, &Settings { mode, moduli, ..DEFAULTS }) else { return Ok(()) };
            *found.borrow_mut() += 1;
            let a = lines(&p.a, p.k, &plan.rows, &plan, true);
            let b = lines(&p.b, p.k, &plan.columns, &plan, false);
            for line in a.iter().chain(&b).filter(|line| line.nonzeros > 0) {
                assert!(line.sigma >= -1, "(3), where it may be used");
                check_line(line);
            }
            for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (a, b))) {
                if a.nonzeros > 0 && b.nonzeros > 0 {
                    check_uniqueness(a, b, moduli);
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(*found.borrow() > 150);
}

/// (8) and (9) at their limit: equal numbers just below powers of two, for every N and many lengths.
#[test]
fn uniqueness_holds_where_it_is_tight() {
    let below = 1.0 - 2f64.powi(-53);
    for moduli in 2..=20 {
        for k in (1..30).chain([100, 1000]) {
            for (x, y) in [(below, below), (below, 1.0), (127.0 / 128.0, 3.0 / 4.0)] {
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
                for mode in [Mode::Fast, Mode::Accurate, Mode::Auto] {
                    let Some(plan) = plan_of(&p, &Settings { mode, moduli, ..DEFAULTS }) else { continue };
                    let a = lines(&p.a, k, &plan.rows, &plan, true);
                    let b = lines(&p.b, k, &plan.columns, &plan, false);
                    check_line(&a[0]);
                    check_line(&b[0]);
                    check_uniqueness(&a[0], &b[0], plan.moduli);
                    assert!(2 * whole(&limit(moduli)).m < product(moduli));
                }
            }
        }
    }
}

/// (7) with more tiles than are looked at first: the largest bound is that of one row among rows of small needs and small bounds, so that
/// its tiles promise little but for this row. The same for a column.
#[test]
fn the_largest_bound_is_found_wherever_it_is() {
    let (lines, k) = (7 * 32, 16);
    let mut random = Random(31);
    // The first element of all columns is small; it is the only large one of row 100.
    let ordinary = |random: &mut Random, scale: f64| -> Vec<f64> {
        let element = |h: usize| (0.75 + random.uniform() / 2.0) * if h == 0 { scale } else { 1.0 };
        (0..k).map(element).collect()
    };
    let columns: Vec<f64> = (0..lines).flat_map(|_| ordinary(&mut random, 1.0 / 32.0)).collect();
    let row = |i: usize| -> Vec<f64> {
        match i {
            100 => (0..k).map(|h| if h == 0 { 1.0 } else { (1.0 + random.uniform()) / 1024.0 }).collect(),
            96..128 => (0..k).map(|h| f64::from(u8::from(h == 1 + i % 15))).collect(),
            _ => ordinary(&mut random, 1.0),
        }
    };
    let rows: Vec<f64> = (0..lines).flat_map(row).collect();
    let c = vec![0.0; lines * lines];
    let p = Problem { m: lines, n: lines, k, alpha: 1.0, beta: 0.0, a: rows, b: columns, c };
    let want = reference::plan_auto(&p.a, &p.b, k, Accuracy::Fp64, (20, false)).ok();
    assert!(want.is_some());
    assert_eq!(plan_of(&p, &DEFAULTS), want);
    // The other way round.
    let turned = Problem { a: p.b.clone(), b: p.a.clone(), ..p };
    let got = plan_of(&turned, &DEFAULTS).unwrap();
    let want = want.unwrap();
    assert_eq!((got.moduli, got.rows, got.columns), (want.moduli, want.columns, want.rows));
}

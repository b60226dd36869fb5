//! Every interval encloses X / M and is as narrow as promised; the refinement takes no more passes than Theorem 1 allows.

use num_bigint::BigUint;
use oz2blas::rns::interval::{Evaluation, Near, Refinement};
use oz2blas::rns::{Interval, System};

use crate::numbers::{self, Random, adversarial, array, scaled};

/// x = mantissa / 2^shift, for x >= 0.
fn dyadic(x: f64, exponent: i32) -> (BigUint, i64) {
    let (bits, biased) = (x.to_bits() & ((1 << 52) - 1), (x.to_bits() >> 52) as i64);
    assert!(x == 0.0 || x.is_normal() && x > 0.0, "{x:e}");
    let mantissa = if x == 0.0 { 0 } else { bits | 1 << 52 };
    (BigUint::from(mantissa), 1075 - biased - i64::from(exponent))
}

/// Checks an interval of X; its relative width.
fn check(system: &System, x: &BigUint, interval: &Interval, what: &str) -> f64 {
    let Interval { low, upp, exponent } = *interval;
    let what = || format!("{what}: n {}, X = {x}, {interval:?}", system.count());
    if *x == BigUint::ZERO {
        assert_eq!((low, upp), (0.0, 0.0), "{}", what());
        return 0.0;
    }
    let ((low, a), (upp, b)) = (dyadic(low, exponent), dyadic(upp, exponent));
    // Everything times M 2^shift.
    let shift = a.max(b);
    let (low, upp) = ((low * system.product()) << (shift - a), (upp * system.product()) << (shift - b));
    let value = x << shift;
    assert!(low <= value && value <= upp, "not enclosed, {}", what());
    let width = upp - low;
    if interval.upp == 1.0 {
        // An integer lay between the sums: the upper end says nothing but X < M.
        let delta = BigUint::from((2.0 * system.delta() * 2f64.powi(80)).ceil() as u128);
        assert!(width << 80u32 <= (system.product() * delta) << shift, "too wide near M, {}", what());
        return 0.0;
    }
    assert!(&width * 10_000_000u32 <= value, "too wide, {}", what());
    let millionths = (width * 10u64.pow(18) / value).iter_u64_digits().next().unwrap_or(0);
    millionths as f64 * 1e-18
}

/// What was seen of a set.
#[derive(Default)]
struct Seen {
    evaluations: usize,
    near_zero: usize,
    near_product: usize,
    refined: usize,
    widest: f64,
    most_passes: u32,
}

impl Seen {
    fn add(&mut self, system: &System, x: &BigUint, refinement: Refinement) {
        let evaluation = system.evaluation(&system.residues(x), refinement);
        let Evaluation { interval, passes, least_factor, near } = evaluation;
        self.widest = self.widest.max(check(system, x, &interval, &format!("{refinement:?}")));
        assert!(passes <= system.most_passes(), "Theorem 1: {passes} passes, {x}");
        assert!(least_factor.is_none_or(|r| r >= system.least_factor()), "r < k: {evaluation:?}, {x}");
        // An integer between the sums is possible only within delta of 0 and M.
        let delta =
            (system.product() * BigUint::from((system.delta() * 2f64.powi(100)).ceil() as u128)) >> 100u32;
        match near {
            Some(Near::Zero) => assert!(*x <= delta, "{x}"),
            Some(Near::Product) => assert!(system.product() - x <= delta, "{x}"),
            None => {}
        }
        self.evaluations += 1;
        self.near_zero += usize::from(near == Some(Near::Zero));
        self.near_product += usize::from(near == Some(Near::Product));
        self.refined += usize::from(passes > 0);
        self.most_passes = self.most_passes.max(passes);
    }
}

/// Checks both refinements and the evaluation of arrays on `random` numbers more than the adversarial ones.
fn run(system: &System, random: usize, fixed_every: usize) -> Seen {
    let mut seen = Seen::default();
    let numbers = adversarial(system, &mut Random(system.count() as u64), random);
    for (i, x) in numbers.iter().enumerate() {
        seen.add(system, x, Refinement::Improved);
        // The original refinement takes up to three times as many passes.
        if i % fixed_every == 0 {
            seen.add(system, x, Refinement::Fixed);
        }
    }
    let intervals = system.evaluate(&array(system, &numbers), 2);
    for (x, interval) in numbers.iter().zip(&intervals) {
        seen.widest = seen.widest.max(check(system, x, interval, "array"));
    }
    seen.evaluations += intervals.len();
    println!(
        "n {:3}: {} evaluations, {} near 0, {} near M, {} refined, passes {} of {}, widest {:.2e}",
        system.count(),
        seen.evaluations,
        seen.near_zero,
        seen.near_product,
        seen.refined,
        seen.most_passes,
        system.most_passes(),
        seen.widest
    );
    seen
}

#[test]
fn int8_sets() {
    for system in numbers::int8() {
        let seen = run(&system, scaled(6000), 1);
        // The hard cases do occur.
        if system.product().bits() > 60 {
            assert!(seen.near_zero > 100 && seen.near_product > 100 && seen.refined > 1000);
        }
    }
}

#[test]
fn small_sets_of_the_paper() {
    for system in numbers::paper().iter().filter(|system| system.count() <= 32) {
        let seen = run(system, scaled(3000), 4);
        assert!(seen.near_zero > 100 && seen.near_product > 100 && seen.refined > 1000);
    }
}

#[test]
fn large_sets_of_the_paper() {
    for system in numbers::paper().iter().filter(|system| system.count() > 32) {
        run(system, scaled(256 * 1000 / system.count() / 4), 16);
    }
}

#[test]
fn other_sets() {
    for system in numbers::others() {
        run(&system, scaled(2000), 4);
    }
}

/// All numbers of sets whose product is small.
#[test]
fn every_number_of_small_sets() {
    for moduli in [[2, 3], [256, 255], [5, 2], [181, 65]] {
        let system = System::new(&moduli).unwrap();
        let all: Vec<BigUint> = (0..moduli[0] * moduli[1]).map(BigUint::from).collect();
        for (x, interval) in all.iter().zip(system.evaluate(&array(&system, &all), 1)) {
            check(&system, x, &interval, "array");
            check(&system, x, &system.interval(&system.residues(x)), "single");
        }
    }
}

/// The symmetric fraction, as the self-check of the product wants it.
#[test]
fn fractions_are_within_their_error() {
    for system in numbers::int8().iter().chain(&numbers::paper()).chain(&numbers::others()) {
        let error = BigUint::from((system.fraction_error() * 2f64.powi(100)) as u128);
        for x in adversarial(system, &mut Random(7), scaled(300)) {
            let phi = system.fraction(&system.residues(&x));
            assert!((-0.5..=0.5).contains(&phi), "{phi}");
            // (phi M - X) 2^100 modulo M 2^100 is at most `error` M on either side of zero.
            let circle = system.product() << 100u32;
            let size = BigUint::from((phi.abs() * 2f64.powi(100)) as u128) * system.product();
            let place = if phi < 0.0 { &circle - size } else { size };
            let distance = (place + &circle - (&x << 100u32)) % &circle;
            let distance = (&circle - &distance).min(distance);
            assert!(distance <= &error * system.product(), "n {}, X = {x}, phi {phi}", system.count());
        }
    }
}

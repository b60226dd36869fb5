//! Whether an emulated entry and the native one agree: they may differ by the sum of both bounds and no more (OZ2_VERIFY).
//!
//! The bounds, with u = 2^-53, G = |A||B| and n the length of the inner dimension:
//! - emulated, with a plan that proves T: |alpha| (T + 2) u G + 2 u |beta C| + 2^-1073;
//! - native, any conventional order of summation, with or without FMA: gamma (|alpha| G + |beta C|) + (n + 3) 2^-1074
//!   max(1, |alpha|), gamma = (n + 3) u / (1 - (n + 3) u). Some BLAS start from beta C and add n products to it, so |beta C| has
//!   gamma too.
//!
//! Where nothing is proved (modes fast and accurate), and for what the native BLAS computed of an emulated call, the native bound
//! takes the place of the emulated one. Everything here is computed in a clean floating-point environment.

use crate::engine::cpu::fpenv::Arithmetic;

const U: f64 = 1.0 / (1u64 << 53) as f64;
/// 2^-1074.
const TINIEST: f64 = f64::from_bits(1);
/// From here on an overflow is possible: half of the limit, since everything here is rounded.
const HUGE: f64 = f64::MAX / 2.0;
/// What the rounding errors of the bound itself need, and more.
const ROOM: f64 = 1.0 + 1.0 / (1u64 << 40) as f64;

/// What is known of the emulated result before the entries are looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Promise {
    /// T + 1, the largest of all entries.
    Proved(f64),
    /// Some entries with this promise were computed natively after a fault, nobody knows which.
    ProvedInPart(f64),
    Nothing,
}

/// What is the same for all entries of a call.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    alpha: f64,
    beta: f64,
    inner: f64,
    promise: Promise,
    /// gamma.
    native: f64,
    /// What a result below the normal range loses.
    loss: f64,
    arithmetic: Arithmetic,
}

/// Numbers of one entry of C.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub emulated: f64,
    pub native: f64,
    /// (|A||B|), as a native BLAS computed it.
    pub product: f64,
    /// The entry before the call; 0 if beta is.
    pub before: f64,
    /// The largest magnitude of its row of op(A) and of its column of op(B); Inf where they hold Inf or NaN.
    pub largest: (f64, f64),
    /// An engine left it to the native BLAS.
    pub is_left: bool,
}

/// The largest magnitude, Inf if anything is not finite. Compares integers.
pub fn largest(values: impl Iterator<Item = f64>) -> f64 {
    let bits = values.map(|x| x.abs().to_bits()).max().unwrap_or(0);
    f64::from_bits(bits.min(f64::INFINITY.to_bits()))
}

impl Rule {
    /// `arithmetic`: in which the native BLAS computes.
    pub fn new((alpha, beta): (f64, f64), inner: usize, promise: Promise, arithmetic: Arithmetic) -> Self {
        let inner = inner as f64;
        let errors = (inner + 3.0) * if arithmetic.nearest { U } else { 2.0 * U };
        let loss = if arithmetic.flushes { f64::MIN_POSITIVE } else { TINIEST };
        let native = errors / (1.0 - errors);
        Self { alpha: alpha.abs(), beta: beta.abs(), inner, promise, native, loss, arithmetic }
    }

    /// An upper bound of |A||B|, which was rounded too.
    fn product(&self, x: &Entry) -> f64 {
        (x.product + self.inner * self.loss) * (1.0 + self.native)
    }

    /// The difference that both bounds together allow.
    pub fn allowed(&self, x: &Entry) -> f64 {
        let (g, c) = (self.product(x), x.before.abs());
        let scale = self.alpha.max(self.beta).max(1.0);
        // Products below the normal range; the numbers that are added to n + 3 are for what is lost right here, where a factor
        // of alpha comes last so that nothing overflows.
        let mut losses = (self.inner + 10.0) * self.loss * scale;
        let lost_elements = self.inner * self.loss * x.largest.0 + self.inner * self.loss * x.largest.1;
        if self.arithmetic.flushes {
            // Sums are flushed too, and elements before they are multiplied.
            losses = 2.0 * losses + 2.0 * lost_elements * self.alpha.max(1.0);
        } else if self.alpha != 1.0 {
            // Some BLAS multiply A or B by alpha first, and lose there what is below the normal range.
            losses += lost_elements;
        }
        let native = (self.native * g) * self.alpha + (self.native * c) * self.beta + losses;
        let emulated =
            |bound: f64| ((bound + 1.0) * U * g) * self.alpha + (2.0 * U * c) * self.beta + 2.0 * TINIEST;
        let emulated = match self.promise {
            _ if x.is_left => native,
            Promise::Proved(bound) => emulated(bound),
            Promise::ProvedInPart(bound) => emulated(bound).max(native),
            Promise::Nothing => native,
        };
        (native + emulated) * ROOM
    }

    /// The difference in units of what is allowed: the entry differs unless this is at most 1.
    pub fn excess(&self, x: &Entry) -> f64 {
        let &Entry { emulated, native, .. } = x;
        if emulated == native || (emulated.is_nan() && native.is_nan()) {
            return 0.0;
        }
        let differs_unless = |good: bool| if good { 0.0 } else { f64::INFINITY };
        let is_finite_data = x.largest.0.is_finite() && x.largest.1.is_finite() && x.before.is_finite();
        if !is_finite_data {
            // No bound exists; whether 0 times Inf counts, and in which order, is left to every BLAS. But Inf or NaN it must be
            // for both or for none.
            return differs_unless(emulated.is_finite() == native.is_finite());
        }
        let c = x.before.abs() * self.beta;
        if !native.is_finite() {
            // Sums that overflow on the way, or Inf - Inf from them: an emulation has none, a native BLAS may.
            let sum = self.product(x) * self.alpha.max(1.0) + c;
            let scaled = x.largest.0.max(x.largest.1) * self.alpha;
            return differs_unless(sum.max(scaled) >= HUGE);
        }
        let allowed = self.allowed(x);
        if !emulated.is_finite() {
            // It rounds alpha AB, and beta C, and their sum: one of them must be near the limit.
            return differs_unless(native.abs() + c + allowed >= HUGE);
        }
        let difference = (emulated - native).abs();
        // Large numbers of different signs; halves of small ones would lose a bit.
        let excess = if difference.is_infinite() {
            (emulated / 2.0 - native / 2.0).abs() / (allowed / 2.0)
        } else {
            difference / allowed
        };
        if excess.is_nan() { f64::INFINITY } else { excess }
    }
}

/// The entry that differs most, in units of what is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Worst {
    pub i: usize,
    pub j: usize,
    pub entry: Entry,
    pub allowed: f64,
    pub excess: f64,
}

/// What a comparison has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Entries that differ by more than is allowed.
    pub differing: u64,
    pub worst: Option<Worst>,
}

impl Found {
    pub fn add(&mut self, rule: &Rule, i: usize, j: usize, entry: Entry) {
        let excess = rule.excess(&entry);
        self.differing += u64::from(excess > 1.0);
        if excess > self.worst.map_or(0.0, |worst| worst.excess) {
            self.worst = Some(Worst { i, j, entry, allowed: rule.allowed(&entry), excess });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ozaki::moduli::MAX_MODULI;
    use crate::ozaki::plan::Accuracy;
    use crate::ozaki::reference::{Dyadic, plan_auto, product};
    use num_bigint::BigInt;
    use proptest::prelude::*;

    fn power(e: i32) -> Dyadic {
        Dyadic { m: BigInt::from(1), e }
    }

    fn integer(x: usize) -> Dyadic {
        Dyadic { m: BigInt::from(x), e: 0 }
    }

    fn sum(terms: impl Iterator<Item = Dyadic>) -> Dyadic {
        terms.fold(Dyadic::from(0.0), |sum, x| sum.plus(&x))
    }

    fn max(x: Dyadic, y: Dyadic) -> Dyadic {
        if x.at_most(&y) { y } else { x }
    }

    /// Numbers of every size, those where rounding errors hide, and small integers.
    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => -1.0..1.0f64,
            2 => (-1.0..1.0f64, -520..520i32).prop_map(|(x, e)| x * 2f64.powi(e)),
            2 => (-1.0..1.0f64, -1040..-960i32).prop_map(|(x, e)| x * 2f64.powi(e)),
            1 => (-40i64..40).prop_map(|x| f64::from_bits(x.unsigned_abs()) * x.signum() as f64),
            1 => (-1.0..1.0f64, 990..1023i32).prop_map(|(x, e)| x * 2f64.powi(e)),
            2 => (-3i32..4).prop_map(f64::from),
        ]
    }

    fn scalar() -> impl Strategy<Value = f64> {
        prop_oneof![3 => Just(1.0), 1 => Just(-1.0), 2 => number()]
    }

    /// A row, a column, alpha, beta, c.
    fn case() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, f64, f64, f64)> {
        (1usize..9).prop_flat_map(|k| {
            let line = || prop::collection::vec(number(), k);
            let beta = prop_oneof![Just(0.0), scalar()];
            (line(), line(), scalar().prop_filter("alpha", |x| *x != 0.0), beta, number())
        })
    }

    fn magnitudes(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x.abs() * y.abs()).sum()
    }

    fn entry(a: &[f64], b: &[f64], before: f64, emulated: f64, native: f64) -> Entry {
        let largest = (largest(a.iter().copied()), largest(b.iter().copied()));
        Entry { emulated, native, product: magnitudes(a, b), before, largest, is_left: false }
    }

    /// What native kernels do, in their order of operations.
    fn natively(a: &[f64], b: &[f64], alpha: f64, beta: f64, c: f64) -> Vec<f64> {
        let scaled = if beta == 0.0 { 0.0 } else { beta * c };
        let pairs = || a.iter().zip(b);
        let plain: f64 = pairs().map(|(x, y)| x * y).sum();
        let fused = pairs().fold(0.0, |sum, (x, y)| f64::mul_add(*x, *y, sum));
        let backwards = pairs().rev().fold(0.0, |sum, (x, y)| sum + x * y);
        vec![
            alpha * plain + scaled,
            f64::mul_add(alpha, plain, scaled),
            alpha * fused + scaled,
            alpha * backwards + scaled,
            // As the reference BLAS, for op(A) = A; and with op(A) scaled.
            pairs().fold(scaled, |sum, (x, y)| sum + alpha * y * x),
            pairs().fold(scaled, |sum, (x, y)| f64::mul_add(alpha * x, *y, sum)),
            // Blocks of two.
            a.chunks(2)
                .zip(b.chunks(2))
                .fold(scaled, |sum, (a, b)| sum + alpha * a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Not less than the sum of both bounds, in exact arithmetic, and hardly more.
        #[test]
        fn what_is_allowed_is_the_sum_of_both_bounds((a, b, alpha, beta, c) in case(), bound in 1.0..20.0f64, proved in any::<bool>()) {
            let k = a.len();
            let c = if beta == 0.0 { 0.0 } else { c };
            let promise = if proved { Promise::Proved(bound) } else { Promise::Nothing };
            let rule = Rule::new((alpha, beta), k, promise, Arithmetic::CLEAN);
            let x = entry(&a, &b, c, 0.0, 0.0);
            let allowed = rule.allowed(&x);
            prop_assume!(allowed.is_finite());

            let exact = |x: f64| Dyadic::from(x.abs());
            let g = sum(a.iter().zip(&b).map(|(x, y)| exact(*x).times(&exact(*y))));
            let (ag, bc) = (exact(alpha).times(&g), exact(beta).times(&exact(c)));
            // All of it times 1 - errors, which divides gamma.
            let errors = integer(k + 3).times(&power(-53));
            let rest = power(0).minus(&errors);
            let tiny = integer(k + 3).times(&power(-1074)).times(&max(power(0), exact(alpha)));
            let native = errors.times(&ag.plus(&bc)).plus(&tiny.times(&rest));
            let emulated = Dyadic::from(bound + 1.0).times(&power(-53)).times(&ag).plus(&power(-52).times(&bc)).plus(&power(-1073));
            let both = native.plus(&if proved { emulated.times(&rest) } else { native.clone() });
            let have = exact(allowed).times(&rest);
            prop_assert!(both.at_most(&have), "{allowed:e} is too little");

            let scale = max(power(0), max(exact(alpha), exact(beta)));
            let mut room = integer(2 * (k + 12)).times(&power(-1074)).times(&scale);
            if alpha.abs() != 1.0 {
                let largest = exact(x.largest.0).plus(&exact(x.largest.1));
                room = room.plus(&integer(3 * k).times(&power(-1074)).times(&largest));
            }
            let most = both.plus(&both.times(&power(-30))).plus(&room);
            prop_assert!(have.at_most(&most), "{allowed:e} is too much");
        }

        /// Emulated by the reference and computed by any native kernel: nothing differs.
        #[test]
        fn right_results_agree((a, b, alpha, beta, c) in case()) {
            let Ok(plan) = plan_auto(&a, &b, a.len(), Accuracy::Fp64, (MAX_MODULI, false)) else { return Ok(()) };
            prop_assume!(plan.out.count() == 0);
            let nonzeros = |x: &[f64]| x.iter().filter(|x| **x != 0.0).count() as u64;
            let bound = Accuracy::Fp64.promise(nonzeros(&a).min(nonzeros(&b)).max(1));
            let emulated = product(&a, &b, a.len(), &plan, alpha, beta, &[c])[0];
            let rule = Rule::new((alpha, beta), a.len(), Promise::Proved(bound), Arithmetic::CLEAN);
            let before = if beta == 0.0 { 0.0 } else { c };
            for (order, native) in natively(&a, &b, alpha, beta, c).into_iter().enumerate() {
                let x = entry(&a, &b, before, emulated, native);
                let excess = rule.excess(&x);
                prop_assert!(excess <= 1.0, "order {order}: {excess} {x:?}");
                // A little more than the bound is too much.
                let allowed = rule.allowed(&x);
                let wrong = emulated + allowed * 1.01 + emulated.abs() * 2.0 * f64::EPSILON + TINIEST;
                if wrong.is_finite() {
                    let x = Entry { native: wrong, ..x };
                    prop_assert!(rule.excess(&x) > 1.0, "{x:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let rule = Rule::new((1.0, 1.0), 4, Promise::Proved(5.0), Arithmetic::CLEAN);
        let differs = |emulated, native, product, before, largest| {
            let x = Entry { emulated, native, product, before, largest, is_left: false };
            let mut found = Found::default();
            found.add(&rule, 0, 0, x);
            found.differing > 0
        };
        let ones = (1.0, 1.0);
        for (x, y) in [(nan, nan), (inf, inf), (-inf, -inf), (0.0, -0.0)] {
            assert!(!differs(x, y, 4.0, 0.0, ones), "{x} {y}");
        }
        for (x, y) in [(nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, -inf), (inf, -inf), (nan, inf)] {
            assert!(differs(x, y, 4.0, 0.0, ones), "{x} {y}");
            // The data hold what is not finite: both results must.
            let expected = x.is_finite() != y.is_finite();
            assert_eq!(differs(x, y, nan, 0.0, (inf, 1.0)), expected, "{x} {y}");
            assert_eq!(differs(x, y, 4.0, nan, ones), expected, "{x} {y}");
        }
        // Sums that overflow on the way are the native BLAS's own; so is an overflow of both near the limit.
        let large = (1e160, 1e160);
        for native in [inf, -inf, nan] {
            assert!(!differs(1.0, native, inf, 0.0, large));
            assert!(!differs(f64::MAX, native, f64::MAX, 0.0, large));
            assert!(differs(1.0, native, 1e300, 0.0, large));
        }
        // But an emulation overflows only where the result is near the limit.
        assert!(!differs(inf, f64::MAX, f64::MAX, 0.0, large));
        assert!(differs(inf, 1e300, 1e308, 0.0, large));
        assert!(differs(nan, 1.0, 4.0, 0.0, ones));
        // No bound can be formed, and a product that makes no sense is not a bound.
        assert!(!differs(1e300, -1e300, inf, 0.0, large));
        assert!(differs(1.0, 2.0, nan, 0.0, ones));
        assert!(!differs(f64::MAX, f64::MAX * (1.0 - 1e-15), f64::MAX, 0.0, large));
        assert!(differs(1.7e308, -1.7e308, 1.7e308, 0.0, large));
    }

    #[test]
    fn the_arithmetic_of_the_caller_counts() {
        let x = Entry {
            emulated: 3e-308,
            native: 2e-308,
            product: 3e-308,
            before: 0.0,
            largest: (1.0, 3e-308),
            is_left: false,
        };
        let excess = |arithmetic, x| Rule::new((1.0, 0.0), 2, Promise::Proved(3.0), arithmetic).excess(&x);
        assert!(excess(Arithmetic::CLEAN, x) > 1e10);
        assert!(excess(Arithmetic { flushes: true, ..Arithmetic::CLEAN }, x) <= 1.0);
        let y = Entry { emulated: 1.0, native: 1.0 + 10.0 * f64::EPSILON / 2.0, product: 1.0, ..x };
        let (nearest, directed) =
            (excess(Arithmetic::CLEAN, y), excess(Arithmetic { nearest: false, flushes: false }, y));
        assert!(nearest > 1.0 && directed <= 1.0, "{nearest} {directed}");
    }

    #[test]
    fn what_is_known_of_an_emulation_counts() {
        // k + 3 = 10, and T + 2; the results are `errors` times u apart.
        let agrees = |promise, is_left, errors: f64| {
            let x = Entry {
                emulated: 1.0,
                native: 1.0 + errors * f64::EPSILON / 2.0,
                product: 1.0,
                before: 0.0,
                largest: (1.0, 1.0),
                is_left,
            };
            Rule::new((1.0, 0.0), 7, promise, Arithmetic::CLEAN).excess(&x) <= 1.0
        };
        for (promise, is_left, most) in [
            (Promise::Proved(13.0), false, 24.0),
            (Promise::Proved(1.0), false, 12.0),
            (Promise::ProvedInPart(13.0), false, 24.0),
            (Promise::ProvedInPart(1.0), false, 20.0),
            (Promise::Nothing, false, 20.0),
            (Promise::Proved(13.0), true, 20.0),
            (Promise::Proved(1.0), true, 20.0),
        ] {
            assert!(agrees(promise, is_left, most), "{promise:?} {is_left}");
            assert!(!agrees(promise, is_left, most + 2.0), "{promise:?} {is_left}");
        }
    }

    #[test]
    fn the_product_of_the_magnitudes_was_rounded_too() {
        let inner = 1 << 26;
        let rule = Rule::new((1.0, 0.0), inner, Promise::Nothing, Arithmetic::CLEAN);
        let gamma = (inner + 3) as f64 * U;
        let allowed = rule.allowed(&entry(&[1.0], &[1.0], 0.0, 1.0, 1.0));
        assert!(allowed >= 2.0 * gamma * (1.0 + 1.9 * gamma) && allowed <= 2.0 * gamma * (1.0 + 2.1 * gamma));
    }

    #[test]
    fn the_worst_entry_is_kept() {
        let rule = Rule::new((1.0, 0.0), 1, Promise::Nothing, Arithmetic::CLEAN);
        let mut found = Found::default();
        for (i, native) in [1.0, 2.0, f64::NAN, 3.0, 1.0 + f64::EPSILON].into_iter().enumerate() {
            found.add(&rule, i, 7, entry(&[1.0], &[1.0], 0.0, 1.0, native));
        }
        let worst = found.worst.unwrap();
        assert_eq!((found.differing, worst.i, worst.j), (3, 2, 7));
    }
}

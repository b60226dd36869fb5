//! The interval evaluation (Algorithm 1 of the paper): two doubles that enclose X / M.
//!
//! X / M is the fractional part of S, the sum of all s_i / m_i. The sum rounded down and the sum rounded up enclose S; their
//! fractional parts enclose X / M, but where an integer lies between them. There X is very near to 0 or to M, and one
//! mixed-radix digit tells which. Where X / M is so small that the error of the sums is not small beside it, X is multiplied
//! by a power of two, which is exact in residues, and summed again.

use std::cmp::Ordering;

use super::System;
use super::directed::{Round, Tree};

/// X / M lies in [low, upp] 2^exponent. 0 <= low <= upp <= 1, exponent <= 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub upp: f64,
    /// Of both ends. Down to about -lg M, where doubles do not reach: hence apart from them.
    pub exponent: i32,
}

impl Interval {
    /// How the numbers of two intervals compare; None where the intervals overlap.
    #[inline]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if exceeds(self.low, self.exponent, other.upp, other.exponent) {
            Some(Ordering::Greater)
        } else if exceeds(other.low, other.exponent, self.upp, self.exponent) {
            Some(Ordering::Less)
        } else {
            None
        }
    }
}

/// x 2^i > y 2^j, for doubles that are zero or positive and normal.
#[inline]
fn exceeds(x: f64, i: i32, y: f64, j: i32) -> bool {
    if i == j || x == 0.0 || y == 0.0 {
        return x > y;
    }
    // The exponent of the leading bit, then the bits below it.
    let leading = |x: f64, i: i32| i64::from(i) + (x.to_bits() >> 52) as i64;
    let fraction = |x: f64| x.to_bits() & ((1 << 52) - 1);
    (leading(x, i), fraction(x)) > (leading(y, j), fraction(y))
}

/// By which power of two a pass of the refinement multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refinement {
    /// As far as the interval allows: 2^r with r = -(ceil(lg upp) + 1), which is at least k. The paper's improvement.
    Improved,
    /// 2^k in every pass, as in the original algorithm (K. Isupov, IEEE Access 8, 2020).
    Fixed,
}

/// Where a number is whose sums have an integer between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    Zero,
    Product,
}

/// An interval and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation {
    pub interval: Interval,
    /// Passes of the refinement.
    pub passes: u32,
    /// The least exponent r of a pass.
    pub least_factor: Option<u32>,
    /// Set if a mixed-radix digit was needed.
    pub near: Option<Near>,
}

impl System {
    /// Encloses X / M; zero gives [0, 0]. The interval is narrower than [`super::system::ACCURACY`] times X / M, unless an
    /// integer lies between the sums and X is near M: then it is narrower than 2 delta.
    pub fn interval(&self, residues: &[u32]) -> Interval {
        self.evaluation(residues, Refinement::Improved).interval
    }

    /// The same, by the refinement of choice, with a record of what was done.
    pub fn evaluation(&self, residues: &[u32], refinement: Refinement) -> Evaluation {
        let mut s = self.weighted(residues);
        let done = |low, upp, exponent| Interval { low, upp, exponent };
        let mut record =
            Evaluation { interval: done(0.0, 0.0, 0), passes: 0, least_factor: None, near: None };
        if s.iter().all(|&s| s == 0) {
            return record;
        }
        let (down, up) = (self.sum(&s, Round::Down), self.sum(&s, Round::Up));
        let (low, mut upp) = (down.fract(), up.fract());
        if down.floor() != up.floor() {
            // The most significant mixed-radix digit is floor(X / (M / m_n)).
            if self.mixed_radix(residues).last() != Some(&0) {
                // (M - 1) / M rounded up: an integer between the sums takes M > 2^49.
                record.near = Some(Near::Product);
                record.interval = done(low, 1.0, 0);
                return record;
            }
            // The lower end would be 1 / M, but upp is far below psi, and the refinement finds a better one.
            record.near = Some(Near::Zero);
        }
        if upp >= self.psi() {
            record.interval = done(low, upp, 0);
            return record;
        }
        let mut exponent = 0;
        while upp < self.psi() {
            let r = match refinement {
                Refinement::Improved => factor(upp).max(self.least_factor()),
                Refinement::Fixed => self.least_factor(),
            };
            for (s, lane) in s.iter_mut().zip(&self.lanes) {
                *s = doubled(*s, r, lane.m);
            }
            upp = self.sum(&s, Round::Up).fract();
            exponent -= r as i32;
            record.passes += 1;
            record.least_factor = Some(record.least_factor.map_or(r, |least| least.min(r)));
        }
        record.interval = done(self.sum(&s, Round::Down).fract(), upp, exponent);
        record
    }

    /// The sum of all s_i / m_i in one direction, with reciprocals rounded in the same direction.
    fn sum(&self, s: &[u64], round: Round) -> f64 {
        let mut tree = Tree::new(round);
        for (&s, lane) in s.iter().zip(&self.lanes) {
            let reciprocal = match round {
                Round::Down => lane.down,
                Round::Up => lane.up,
            };
            tree.push(round.times(s as f64, reciprocal));
        }
        tree.sum()
    }
}

/// -(ceil(lg x) + 1), from the bits of x: with this r, 2^r x <= 1/2. At most 52: the fractional part of a sum of terms s_i / m_i
/// is a multiple of 2^-52 where the sum is above 1, and not below 2^-32 otherwise.
fn factor(x: f64) -> u32 {
    let power_of_two = x.to_bits() & ((1 << 52) - 1) == 0;
    let floor = (x.to_bits() >> 52) as i32 - 1023;
    let ceiling = floor + i32::from(!power_of_two);
    (-(ceiling + 1)).max(0) as u32
}

/// s 2^r modulo m, for s < 2^32 and r <= 64.
fn doubled(s: u64, r: u32, m: u32) -> u64 {
    let m = u64::from(m);
    let first = r.min(32);
    (((s << first) % m) << (r - first)) % m
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rns::moduli;
    use num_bigint::BigUint;

    #[test]
    fn ceilings_of_logarithms_are_exact() {
        for e in 2..60 {
            let x = 2f64.powi(-e);
            assert_eq!(factor(x), e as u32 - 1);
            assert_eq!(factor(x.next_up()), (e as u32 - 1) - 1);
            assert_eq!(factor(x.next_down()), e as u32 - 1);
        }
    }

    #[test]
    fn comparisons_reach_over_exponents() {
        // 0.75 2^-10 = 1.5 2^-11 < 0.76 2^-10
        assert!(!exceeds(0.75, -10, 1.5, -11) && !exceeds(1.5, -11, 0.75, -10));
        assert!(exceeds(0.76, -10, 1.5, -11) && !exceeds(1.5, -11, 0.76, -10));
        assert!(exceeds(1e-9, 0, 0.5, -4000) && !exceeds(0.5, -4000, 1e-9, 0));
        assert!(exceeds(1e-9, -8000, 0.0, 0) && !exceeds(0.0, 0, 1e-9, -8000) && !exceeds(0.0, 0, 0.0, -1));
    }

    /// k, the bound of Theorem 1, and the passes for X = 2^0, 2^1, ... up to M (the paper's figures 2 and 3): the most, their
    /// sum, and those of X = 1. All but the sums are also what the paper says.
    #[test]
    fn constants_and_passes_are_those_of_the_paper() {
        for (n, k, bound, fixed_mean, improved_most, improved_mean) in
            [(8, 21, 6, 2.49, 3, 1.34), (32, 18, 28, 13.65, 11, 5.63), (64, 17, 60, 29.53, 23, 11.48)]
        {
            let system = System::new(&moduli::paper_set(n).unwrap()).unwrap();
            assert_eq!((system.least_factor(), system.most_passes()), (k, bound), "{n} moduli");
            let bits = system.product().bits();
            let passes = |refinement| -> (u32, f64) {
                let of = |j| {
                    let x = system.residues(&(BigUint::from(1u32) << j));
                    system.evaluation(&x, refinement).passes
                };
                let all: Vec<u32> = (0..bits).map(of).collect();
                (all.iter().copied().max().unwrap(), f64::from(all.iter().sum::<u32>()) / bits as f64)
            };
            let (most, mean) = passes(Refinement::Fixed);
            assert!(most == bound && (mean - fixed_mean).abs() < 0.006, "{n} moduli, fixed: {most} {mean}");
            let (most, mean) = passes(Refinement::Improved);
            assert!(
                most == improved_most && (mean - improved_mean).abs() < 0.006,
                "{n} moduli: {most} {mean}"
            );
        }
        let large = System::new(&moduli::paper_set(256).unwrap()).unwrap();
        assert_eq!((large.least_factor(), large.most_passes()), (14, 292));
    }

    /// The sum of all s_i / m_i, exactly, as numerator over M.
    fn exact(system: &System, s: &[u64]) -> BigUint {
        s.iter().zip(system.moduli()).map(|(&s, &m)| system.product() / m * s).sum()
    }

    /// A control of the method: with reciprocals that are rounded to nearest some sums leave their enclosure, although every
    /// other operation is directed. With directed ones none does.
    #[test]
    fn reciprocals_rounded_to_nearest_break_the_enclosure() {
        let good = System::new(&moduli::greedy(8, 1085471863).unwrap()).unwrap();
        let mut bad = System::new(&moduli::greedy(8, 1085471863).unwrap()).unwrap();
        for lane in &mut bad.lanes {
            (lane.down, lane.up) = (lane.nearest, lane.nearest);
        }
        let encloses = |system: &System, s: &[u64]| {
            let sum = exact(system, s) << 100u32;
            let scaled = |x: f64| BigUint::from((x * 2f64.powi(100)) as u128) * system.product();
            scaled(system.sum(s, Round::Down)) <= sum && sum <= scaled(system.sum(s, Round::Up))
        };
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 32
        };
        let mut broken = 0;
        for trial in 0..10_000 {
            // Few terms, since in a long sum the errors seldom all point the same way.
            let used = trial % 3 + 1;
            let s: Vec<u64> =
                (0..8).map(|i| if i < used { random() % u64::from(good.lanes[i].m) } else { 0 }).collect();
            assert!(encloses(&good, &s), "{s:?}");
            broken += usize::from(!encloses(&bad, &s));
        }
        assert!(broken > 0);
    }
}

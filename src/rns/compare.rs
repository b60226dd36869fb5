//! Order and sign of single numbers. Exact: what the intervals leave open, the mixed-radix digits decide.

use std::cmp::Ordering;

use super::{Interval, System};

impl System {
    /// How X and Y compare, as numbers from 0 to M - 1 (Algorithm 4 of the paper).
    pub fn compare(&self, x: &[u32], y: &[u32]) -> Ordering {
        self.compare_evaluated((x, &self.interval(x)), (y, &self.interval(y)))
    }

    /// The same, with the intervals of both numbers.
    pub fn compare_evaluated(&self, x: (&[u32], &Interval), y: (&[u32], &Interval)) -> Ordering {
        x.1.compare(y.1).unwrap_or_else(|| self.compare_exactly(x.0, y.0))
    }

    /// The same, by the mixed-radix digits alone.
    pub fn compare_exactly(&self, x: &[u32], y: &[u32]) -> Ordering {
        if x == y {
            return Ordering::Equal;
        }
        let (x, y) = (self.mixed_radix(x), self.mixed_radix(y));
        x.iter().rev().cmp(y.iter().rev())
    }

    /// Whether X stands for a negative number in the symmetric reading, where numbers above M / 2 stand for X - M.
    pub fn is_negative(&self, x: &[u32]) -> bool {
        let interval = self.interval(x);
        if interval.exponent < 0 || interval.upp < 0.5 {
            // Only numbers far below M / 2 have an exponent.
            false
        } else if interval.low > 0.5 {
            true
        } else {
            self.compare_exactly(x, &self.half) == Ordering::Greater
        }
    }

    /// How X and Y compare in the symmetric reading.
    pub fn compare_signed(&self, x: &[u32], y: &[u32]) -> Ordering {
        // Within one sign the order is that of the unsigned numbers.
        self.is_negative(y).cmp(&self.is_negative(x)).then_with(|| self.compare(x, y))
    }
}

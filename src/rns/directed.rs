//! Sums, products and reciprocals of non-negative doubles, rounded down or up.
//!
//! The rounding mode of the processor belongs to the program that uses us, so it stays at "to nearest": each operation is done
//! once, and its exact error, which is a double too, tells whether the result has to move to its neighbour. As everywhere in
//! Rust, the mode has to be "to nearest" when these functions are called.

/// The direction of a rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Down,
    Up,
}

impl Round {
    /// The neighbour that bounds `rounded + error`, where |error| is at most half a unit in the last place.
    fn settle(self, rounded: f64, error: f64) -> f64 {
        match self {
            Round::Down if error < 0.0 => rounded.next_down(),
            Round::Up if error > 0.0 => rounded.next_up(),
            _ => rounded,
        }
    }

    /// a + b. The error by Knuth's exact addition.
    pub fn add(self, a: f64, b: f64) -> f64 {
        let sum = a + b;
        let part = sum - a;
        self.settle(sum, (a - (sum - part)) + (b - part))
    }

    /// a b, for products without underflow.
    pub fn times(self, a: f64, b: f64) -> f64 {
        let product = a * b;
        self.settle(product, a.mul_add(b, -product))
    }

    /// 1 / m. The remainder 1 - m q, rounded once, has the right sign.
    pub fn reciprocal(self, m: u32) -> f64 {
        let quotient = 1.0 / f64::from(m);
        self.settle(quotient, (-quotient).mul_add(f64::from(m), 1.0))
    }
}

/// The sum of up to 512 terms by a binary tree, which keeps the error at ceil(lg n) roundings a term. The open subtrees stand
/// on a stack, the largest first, as the digits of a binary counter.
pub struct Tree {
    round: Round,
    count: usize,
    open: [f64; 9],
}

impl Tree {
    pub fn new(round: Round) -> Self {
        Self { round, count: 0, open: [0.0; 9] }
    }

    pub fn push(&mut self, term: f64) {
        let mut sum = term;
        let mut top = self.count.count_ones() as usize;
        // Equal subtrees merge, like the carry of a counter.
        for _ in 0..self.count.trailing_ones() {
            top -= 1;
            sum = self.round.add(self.open[top], sum);
        }
        self.open[top] = sum;
        self.count += 1;
    }

    pub fn sum(self) -> f64 {
        let open = self.count.count_ones() as usize;
        self.open[..open].iter().rev().copied().reduce(|sum, term| self.round.add(term, sum)).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use proptest::prelude::*;

    /// A double times 2^1100, exactly.
    fn scaled(x: f64) -> BigUint {
        let (mantissa, exponent) = (x.to_bits() & ((1 << 52) - 1), (x.to_bits() >> 52) as i64);
        BigUint::from(mantissa | 1 << 52) << (exponent - 1075 + 1100)
    }

    fn bounds(exact: &BigUint, down: f64, up: f64) {
        // Correctly rounded: equal if the result is exact, otherwise neighbours around it.
        assert!(scaled(down) <= *exact && *exact <= scaled(up), "{down:e} {up:e}");
        assert!(down == up && scaled(down) == *exact || down.next_up() == up && scaled(down) != scaled(up));
        if down != up {
            assert!(scaled(down) != *exact && scaled(up) != *exact, "{down:e} {up:e}");
        }
    }

    proptest! {
        #[test]
        fn sums_and_products_are_the_nearest_bounds(a in 1u64.., b in 1u64.., i in -40i32..40, j in -40i32..40) {
            let (a, b) = ((a as f64) * 2f64.powi(i - 64), (b as f64) * 2f64.powi(j - 64));
            bounds(&(scaled(a) + scaled(b)), Round::Down.add(a, b), Round::Up.add(a, b));
            bounds(&((scaled(a) * scaled(b)) >> 1100), Round::Down.times(a, b), Round::Up.times(a, b));
        }

        #[test]
        fn reciprocals_are_the_nearest_bounds(m in 2..=u32::MAX) {
            let (down, up) = (Round::Down.reciprocal(m), Round::Up.reciprocal(m));
            let one = BigUint::from(1u32) << 1100u32;
            prop_assert!(scaled(down) * m <= one && one <= scaled(up) * m);
            prop_assert!(down == up && m.is_power_of_two() || down.next_up() == up);
        }
    }

    #[test]
    fn a_tree_adds_neighbours_first() {
        // In floating point only the order of the tree gives this: 1 + 2^-53 + 2^-53 + ... down.
        let tiny = 2f64.powi(-53);
        for count in 1..=40usize {
            let terms: Vec<f64> = (0..count).map(|i| if i == 0 { 1.0 } else { tiny }).collect();
            let mut padded = terms.clone();
            padded.resize(count.next_power_of_two(), 0.0);
            while padded.len() > 1 {
                padded = padded.chunks(2).map(|pair| Round::Down.add(pair[0], pair[1])).collect();
            }
            let mut tree = Tree::new(Round::Down);
            terms.into_iter().for_each(|term| tree.push(term));
            assert_eq!(tree.sum(), padded[0], "{count} terms");
        }
    }
}

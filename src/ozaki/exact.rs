//! Step *plan* for calls whose lines are all exact with few bits, such as integers: their needs follow from the lines alone, and mostly
//! N does too, so that the bound product is not needed.

use super::bound::{Line, upper};
use super::plan::Accuracy;
use super::wide::Magnitude;

/// The most bits behind its magnitudes with which a line counts as one that is exact with few: what an entry needs is always more
/// than this, whatever its bound, and sums of the bounds below fit 128 bits.
const FEW: i32 = 30;

/// Every line needs what it is exact with.
pub fn are_exact(needs: &[i32], lines: &[Line]) -> bool {
    needs.iter().zip(lines).all(|(&need, line)| line.is_zero() || need == line.exact_at)
}

/// Without the bound product it is known that every line needs what it is exact with, NUMERICS section 3, steps 1 and 2.
///
/// What an entry needs of its row is at least ceil(lg((cs + nz) / G)) + 53 - floor(lg T), and more where G = 0. G <= 127 cs, so
/// the first term is at least -6. A row that meets no column needs nothing, which is less than what it is exact with unless
/// that is negative: so it must be clear that it meets one, by the number of its nonzeros.
pub fn needs_are_known(a: &[Line], b: &[Line], length: usize, accuracy: Accuracy) -> bool {
    let least = 53 - 6 - accuracy.floor_lg(length.max(1) as u64);
    let most = |lines: &[Line]| lines.iter().map(|line| line.nonzeros).max().unwrap_or(0);
    let known = |lines: &[Line], other: u64| {
        let meets = |line: &Line| line.nonzeros + other > length as u64;
        let is_known = |line: &Line| line.exact_at <= 0 || (line.exact_at <= FEW.min(least) && meets(line));
        lines.iter().all(|line| line.is_zero() || is_known(line))
    };
    known(a, most(b)) && known(b, most(a))
}

/// The needs of lines that are all exact.
pub fn needs(lines: &[Line], out: &mut [i32]) {
    for (need, line) in out.iter_mut().zip(lines) {
        *need = if line.is_zero() { 0 } else { line.exact_at };
    }
}

/// The sum of the squares of the magnitudes; `squares` of a line is that of magnitudes that are larger by one.
fn squares(line: &Line) -> u64 {
    line.squares - 2 * line.sum - line.nonzeros
}

/// What is largest of the lines of an operand.
struct Largest {
    /// The line with the largest 4^need squares.
    line: usize,
    squares: (u64, i32),
    /// 2^need, 2^need sum, 2^need nonzeros.
    need: i32,
    sum: (u64, i32),
    nonzeros: (u64, i32),
}

impl Largest {
    /// None where all lines are zero.
    fn of(lines: &[Line]) -> Option<Self> {
        let nonzero = || lines.iter().enumerate().filter(|(_, line)| !line.is_zero());
        // With its line. No value is 0: one magnitude of a nonzero line is at least 64.
        let largest = |value: fn(&Line) -> u64, factor: i32| {
            let of = |(at, line): (usize, &Line)| (at, value(line), factor * line.exact_at);
            nonzero().map(of).max_by_key(|&(_, value, need)| Magnitude::new(value, need))
        };
        let (line, value, need) = largest(squares, 2)?;
        let sum = largest(|line| line.sum, 1)?;
        let nonzeros = largest(|line| line.nonzeros, 1)?;
        Some(Self {
            line,
            squares: (value, need),
            need: nonzero().map(|(_, line)| line.exact_at).max()?,
            sum: (sum.1, sum.2),
            nonzeros: (nonzeros.1, nonzeros.2),
        })
    }
}

/// An upper bound of the largest 2^(needA_i + needB_j) U_ij where all needs are known, and the entry that is likely to have it. None
/// where no pair of lines has a nonzero each.
///
/// U = G + rs + cs + min(nzA, nzB), and G <= sqrt(sum A~^2 sum B~^2) by Cauchy and Schwarz.
pub fn largest(a: &[Line], b: &[Line]) -> Option<(Magnitude, (usize, usize))> {
    let (a, b) = (Largest::of(a)?, Largest::of(b)?);
    // In units of 2^(2 LEAST): an exact line has 2^exact_at of at least 2^-6, and LEAST is below that.
    const LEAST: i32 = -8;
    let scaled = |(value, need): (u64, i32)| u128::from(value) << (need - 2 * LEAST);
    let (squares, needs) = (u128::from(a.squares.0) * u128::from(b.squares.0), a.squares.1 + b.squares.1);
    // The needs of squares are even.
    let product = (squares.isqrt() + 1) << (needs / 2 - 2 * LEAST);
    let total = product
        + scaled((a.sum.0, a.sum.1 + b.need))
        + scaled((b.sum.0, b.sum.1 + a.need))
        + scaled((a.nonzeros.0, a.nonzeros.1 + b.need));
    // Rounded up to 64 bits.
    let cut = (128 - total.leading_zeros()).saturating_sub(63);
    let leading = (total >> cut) as u64 + u64::from(cut > 0);
    Some((Magnitude::new(leading, cut as i32 + 2 * LEAST), (a.line, b.line)))
}

/// 2^(needA_i + needB_j) U_ij of an entry, from its G.
pub fn of_entry(g: i64, row: &Line, column: &Line) -> Magnitude {
    if row.is_zero() || column.is_zero() {
        return Magnitude::NONE;
    }
    Magnitude::new(upper(g, row, column), row.exact_at + column.exact_at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bound::magnitude;
    use super::super::plan::{Way, least_moduli};
    use super::super::reference::{self, plan_auto};
    use super::super::scan::Scan;
    use super::*;

    fn lines(values: &[f64], k: usize) -> Vec<Line> {
        values.chunks(k).map(reference::line).collect()
    }

    fn g(row: &[f64], column: &[f64]) -> i64 {
        let of = |values: &[f64]| -> Vec<i64> {
            let e = Scan::of(values).exponent();
            values.iter().map(|&x| i64::from(magnitude(x, e))).collect()
        };
        of(row).iter().zip(of(column)).map(|(a, b)| a * b).sum()
    }

    /// Integers of some bits, many of them 0, times a power of two for each line.
    fn operand(count: usize, k: usize) -> impl Strategy<Value = Vec<f64>> {
        let line = (0u32..38, 0u32..4, -60i32..60).prop_flat_map(move |(bits, zeros, e)| {
            let most = 1i64 << bits;
            let value = (0u32..4, -most..=most)
                .prop_map(move |(draw, x)| if draw < zeros { 0.0 } else { x as f64 * 2f64.powi(e) });
            proptest::collection::vec(value, k)
        });
        proptest::collection::vec(line, count).prop_map(|lines| lines.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_known_without_the_product_is_what_the_product_gives(
            (k, a, b) in (1usize..9).prop_flat_map(|k| (Just(k), operand(3, k), operand(2, k))),
            accuracy in prop_oneof![Just(Accuracy::Fp64), Just(Accuracy::Textbook), Just(Accuracy::High)],
            check in any::<bool>(),
        ) {
            let (la, lb) = (lines(&a, k), lines(&b, k));
            if !needs_are_known(&la, &lb, k, accuracy) {
                return Ok(());
            }
            let plan = plan_auto(&a, &b, k, accuracy, (20, check)).unwrap();
            prop_assert_eq!(plan.way, Way::Plain);
            // s = need + 7 - e: no spare bits.
            for (lines, exponents) in [(&la, &plan.rows), (&lb, &plan.columns)] {
                let mut known = vec![0; lines.len()];
                needs(lines, &mut known);
                for ((line, &s), &need) in lines.iter().zip(exponents).zip(&known) {
                    prop_assert_eq!(s, if line.is_zero() { 0 } else { need + 7 - line.exponent });
                }
            }
            let entries = (0..3).flat_map(|i| (0..2).map(move |j| (i, j)));
            let of = |(i, j): (usize, usize)| of_entry(g(&a[i * k..][..k], &b[j * k..][..k]), &la[i], &lb[j]);
            let exactly = entries.map(of).max().unwrap();
            match largest(&la, &lb) {
                None => prop_assert_eq!(exactly, Magnitude::NONE),
                Some((above, likely)) => {
                    prop_assert!(of(likely) <= exactly && exactly <= above);
                    // By Cauchy and Schwarz, and by three sums that are each from another line.
                    prop_assert!(above.ceil_log2_ratio(exactly) <= 8, "far above");
                    prop_assert!(Some(plan.moduli) <= least_moduli(20, check, above).or(Some(21)));
                    prop_assert_eq!(Some(plan.moduli), least_moduli(20, check, exactly));
                }
            }
        }
    }

    #[test]
    fn needs_are_not_known_of_lines_that_may_meet_nothing_or_have_many_bits() {
        let known = |a: &[f64], b: &[f64]| needs_are_known(&lines(a, 2), &lines(b, 2), 2, Accuracy::Fp64);
        let (few, most, above) = (3.0, (1i64 << 37) as f64 + 1.0 - 2.0, (1i64 << 37) as f64 + 1.0);
        assert!(known(&[few, 1.0], &[1.0, few]));
        assert!(known(&[few, 0.0], &[0.0, few]), "seven bits are never too many");
        assert!(known(&[most, 1.0], &[1.0, few]));
        assert!(!known(&[above, 1.0], &[1.0, few]), "38 bits");
        assert!(known(&[most, 0.0], &[1.0, few]));
        assert!(!known(&[most, 0.0], &[0.0, few]), "they meet nowhere");
        assert!(!known(&[few, 0.0], &[0.0, most]));
        assert!(known(&[0.0, 0.0], &[1.0, few]), "a line of zeros takes part in nothing");
    }
}

//! Step *plan*: the number of moduli and the scaling exponents (NUMERICS section 3), decided by exact integers alone.

use super::bound::Line;
use super::exact;
use super::moduli::{MAX_MODULI, crt};
use super::wide::Magnitude;

/// What an emulated call computes with: the same plan gives the same bits on every engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// N, the number of moduli.
    pub moduli: usize,
    /// s_i: row i of op(A) is multiplied by 2^(s_i) and rounded to integers. 0 for a row of zeros.
    pub rows: Vec<i32>,
    /// t_j, the same for column j of op(B).
    pub columns: Vec<i32>,
    /// d_h: column h of op(A) is multiplied by 2^(d_h) first, and row h of op(B) by 2^(-d_h). Empty: by 1.
    pub inner: Vec<i32>,
    pub way: Way,
    pub out: Out,
}

impl Plan {
    /// A plan for all lines as they are.
    pub fn plain(moduli: usize, rows: Vec<i32>, columns: Vec<i32>) -> Self {
        Self { moduli, rows, columns, inner: Vec::new(), way: Way::Plain, out: Out::default() }
    }
}

/// The step that found a plan of the mode auto (NUMERICS section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Steps 1 to 4; and the other modes.
    Plain,
    /// Step 5b: lower bounds from seven more bits.
    MoreBits,
    /// Step 5c: the inner dimension is balanced.
    Balanced,
    /// Step 5c with 5b.
    BalancedMoreBits,
    /// The same, balanced by averages over the lines: a few lines that are unlike the others have no say.
    AveragedMoreBits,
}

/// What the inner dimension is balanced by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    No,
    ByMost,
    ByAverage,
}

impl Way {
    /// In the order in which they are tried.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::MoreBits, Self::Balanced, Self::BalancedMoreBits, Self::AveragedMoreBits];

    /// The name in the statistics; never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::MoreBits => "more bits",
            Self::Balanced => "balanced",
            Self::BalancedMoreBits => "balanced, more bits",
            Self::AveragedMoreBits => "averaged, more bits",
        }
    }

    pub fn balanced(self) -> Balanced {
        match self {
            Self::Plain | Self::MoreBits => Balanced::No,
            Self::Balanced | Self::BalancedMoreBits => Balanced::ByMost,
            Self::AveragedMoreBits => Balanced::ByAverage,
        }
    }

    pub fn has_more_bits(self) -> bool {
        !matches!(self, Self::Plain | Self::Balanced)
    }
}

/// A plan with no more moduli than this is not worth the search for a better one. What the self-check takes is about one modulus,
/// and no reason to search.
pub fn good_enough(check: bool) -> usize {
    16 + usize::from(check)
}

/// The rows of op(A) and columns of op(B), in ascending order, that the native BLAS computes: here they count as zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Out {
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    /// So many of them because they hold NaN or Inf (step 6); the others because nothing is provable with them (step 5d).
    pub not_finite: usize,
}

impl Out {
    pub fn count(&self) -> usize {
        self.rows.len() + self.columns.len()
    }

    /// More than a tenth of the m + n lines, or all of one side: the call as a whole is better off with the native BLAS.
    pub fn is_too_much(&self, m: usize, n: usize) -> bool {
        let nothing_is_left = self.rows.len() == m || self.columns.len() == n;
        nothing_is_left || self.count().saturating_mul(10) > m.saturating_add(n)
    }
}

/// Why no plan exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Modes fast and accurate: N moduli cannot hold the call.
    Range,
    /// Mode auto: no allowed N proves the accuracy.
    NotProvable,
    /// Too many lines hold NaN or Inf.
    NotFinite,
}

/// How exact the result must be, the T of the promise |C^ - AB| <= (T + 1) u |A||B|.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// T = 2 sqrt(n), n the smaller number of nonzeros of the row and the column.
    Fp64,
    /// T = max(1, n - 1), the textbook bound of a DGEMM.
    Textbook,
    /// T = 1.
    High,
}

impl Accuracy {
    /// floor(lg T) for n >= 1 nonzeros.
    #[inline]
    pub(super) fn floor_lg(self, n: u64) -> i32 {
        let lg = |x: u64| 63 - x.leading_zeros() as i32;
        match self {
            Self::Fp64 => 1 + lg(n) / 2,
            Self::Textbook => lg((n - 1).max(1)),
            Self::High => 0,
        }
    }

    /// T + 1 for n nonzeros: what the statistics report as the bound.
    pub fn promise(self, n: u64) -> f64 {
        match self {
            Self::Fp64 => 2.0 * (n as f64).sqrt() + 1.0,
            Self::Textbook => (n as f64 - 1.0).max(1.0) + 1.0,
            Self::High => 2.0,
        }
    }
}

/// s = sigma + 7 - e, and 0 for a line of zeros.
fn exponent_of(sigma: i32, line: &Line) -> i32 {
    if line.is_zero() { 0 } else { sigma + 7 - line.exponent }
}

fn largest_sigma(sum: u64, limit: Magnitude) -> i32 {
    Magnitude::new(sum, 0).spare_quarter_powers(limit)
}

/// A sigma below -1 would break uniqueness: rounding may lift a magnitude by one.
fn finish(moduli: usize, rows: Vec<i32>, columns: Vec<i32>, a: &[Line], b: &[Line]) -> Result<Plan, NoPlan> {
    let convert = |mut sigmas: Vec<i32>, lines: &[Line]| {
        for (sigma, line) in sigmas.iter_mut().zip(lines) {
            if !line.is_zero() && *sigma < -1 {
                return Err(NoPlan::Range);
            }
            *sigma = exponent_of(*sigma, line);
        }
        Ok(sigmas)
    };
    Ok(Plan::plain(moduli, convert(rows, a)?, convert(columns, b)?))
}

/// Mode fast: sigma_i is the largest s with 4^s SA_i <= H_N (Cauchy-Schwarz, arXiv 2606.29129, in integers). `check`, here
/// and below: with room for the self-check. `rows` and `columns` are work space of the lengths of `a` and `b`.
pub fn fast(
    moduli: usize,
    check: bool,
    a: &[Line],
    b: &[Line],
    mut rows: Vec<i32>,
    mut columns: Vec<i32>,
) -> Result<Plan, NoPlan> {
    let limit = Magnitude::limit(crt(moduli).limit(check));
    for (sigmas, lines) in [(&mut rows, a), (&mut columns, b)] {
        for (sigma, line) in sigmas.iter_mut().zip(lines) {
            *sigma = if line.is_zero() { 0 } else { largest_sigma(line.squares, limit) };
        }
    }
    finish(moduli, rows, columns, a, b)
}

/// Mode accurate, from the maxima R_i and K_j: since U_ij <= sqrt(R_i K_j), 4^sigma R_i <= H_N and 4^tau K_j <= H_N suffice.
pub fn accurate(
    moduli: usize,
    check: bool,
    a: &[Line],
    b: &[Line],
    maxima: (&[u64], &[u64]),
    mut rows: Vec<i32>,
    mut columns: Vec<i32>,
) -> Result<Plan, NoPlan> {
    let limit = Magnitude::limit(crt(moduli).limit(check));
    for (sigmas, maxima) in [(&mut rows, maxima.0), (&mut columns, maxima.1)] {
        for (sigma, &maximum) in sigmas.iter_mut().zip(maxima) {
            *sigma = if maximum == 0 { 0 } else { largest_sigma(maximum, limit) };
        }
    }
    finish(moduli, rows, columns, a, b)
}

/// Mode auto, step 2: a line that is exact with fewer bits needs no more than those.
pub fn cap_needs(needs: &mut [i32], lines: &[Line]) {
    for (need, line) in needs.iter_mut().zip(lines) {
        *need = if line.is_zero() { 0 } else { (*need).min(line.exact_at) };
    }
}

/// Mode auto, step 3: the least N, at most `most`, that holds the largest 2^(needA_i + needB_j) U_ij of the whole product.
pub fn least_moduli(most: usize, check: bool, largest: Magnitude) -> Option<usize> {
    (2..=most.min(MAX_MODULI)).find(|&n| largest <= Magnitude::limit(crt(n).limit(check)))
}

/// Mode auto, steps 3 and 4, from the capped needs and the largest 2^(needA_i + needB_j) U_ij of the whole product:
/// the least N that holds it (at most `most`), and what is left goes to both sides alike. Lines that are all exact have no use for
/// more bits: there any upper bound of the largest will do that gives the same N.
pub fn auto(
    most: usize,
    check: bool,
    a: &[Line],
    b: &[Line],
    largest: Magnitude,
    mut row_needs: Vec<i32>,
    mut column_needs: Vec<i32>,
) -> Result<Plan, NoPlan> {
    if largest == Magnitude::NONE {
        return Ok(Plan::plain(2, zeros(row_needs, a), zeros(column_needs, b)));
    }
    let moduli = least_moduli(most, check, largest).ok_or(NoPlan::NotProvable)?;
    let spare = if exact::are_exact(&row_needs, a) && exact::are_exact(&column_needs, b) {
        0
    } else {
        largest.spare_quarter_powers(Magnitude::limit(crt(moduli).limit(check)))
    };
    for (needs, lines) in [(&mut row_needs, a), (&mut column_needs, b)] {
        for (need, line) in needs.iter_mut().zip(lines) {
            *need = exponent_of(*need + spare, line);
        }
    }
    Ok(Plan::plain(moduli, row_needs, column_needs))
}

/// Without any pair of nonzero lines every C' is 0 and no spare bits exist: sigma is the need itself.
fn zeros(mut needs: Vec<i32>, lines: &[Line]) -> Vec<i32> {
    for (need, line) in needs.iter_mut().zip(lines) {
        *need = exponent_of(*need, line);
    }
    needs
}

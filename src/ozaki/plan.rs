//! Step *plan*: the number of moduli and the scaling exponents (NUMERICS section 3), decided by exact integers alone.

use super::bound::{Line, upper};
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
}

/// Why no plan exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Modes fast and accurate: N moduli cannot hold the call.
    Range,
    /// Mode auto: no allowed N proves the accuracy.
    NotProvable,
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
    fn floor_lg(self, n: u64) -> i32 {
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

/// The need of an entry whose lower bound is zero: more than any N has.
const UNPROVABLE: i32 = 10_000;

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
    Ok(Plan { moduli, rows: convert(rows, a)?, columns: convert(columns, b)? })
}

/// Mode fast: sigma_i is the largest s with 4^s SA_i <= H_N (Cauchy-Schwarz, arXiv 2606.29129, in integers). `rows` and
/// `columns` are work space of the lengths of `a` and `b`.
pub fn fast(
    moduli: usize,
    a: &[Line],
    b: &[Line],
    mut rows: Vec<i32>,
    mut columns: Vec<i32>,
) -> Result<Plan, NoPlan> {
    let limit = Magnitude::limit(crt(moduli).limit);
    for (sigmas, lines) in [(&mut rows, a), (&mut columns, b)] {
        for (sigma, line) in sigmas.iter_mut().zip(lines) {
            *sigma = if line.is_zero() { 0 } else { largest_sigma(line.squares, limit) };
        }
    }
    finish(moduli, rows, columns, a, b)
}

/// A rectangle of the bound product G = A~ B~: entry (i, j) of the rectangle is `g[j * rows.len() + i]`.
pub struct Bounds<'a> {
    pub rows: &'a [Line],
    pub columns: &'a [Line],
    pub g: &'a [i64],
}

impl Bounds<'_> {
    /// Calls f(i, j, G_ij) for each entry whose row and column both have a nonzero.
    #[inline]
    fn for_each(&self, mut f: impl FnMut(usize, usize, i64)) {
        let height = self.rows.len();
        for (j, column) in self.columns.iter().enumerate() {
            if column.is_zero() {
                continue;
            }
            for (i, &g) in self.g[j * height..][..height].iter().enumerate() {
                if !self.rows[i].is_zero() {
                    f(i, j, g);
                }
            }
        }
    }

    /// Mode accurate: raises R_i = max_j U_ij and K_j = max_i U_ij (start: 0) by this rectangle.
    pub fn raise_maxima(&self, row_maxima: &mut [u64], column_maxima: &mut [u64]) {
        self.for_each(|i, j, g| {
            let u = upper(g, &self.rows[i], &self.columns[j]);
            row_maxima[i] = row_maxima[i].max(u);
            column_maxima[j] = column_maxima[j].max(u);
        });
    }

    /// Mode auto, step 1: raises the needs (start: 0) of the rows and columns of this rectangle. `meet(i, j)` tells whether
    /// row i and column j have a nonzero in common; it is asked only where G_ij = 0.
    pub fn raise_needs(
        &self,
        accuracy: Accuracy,
        row_needs: &mut [i32],
        column_needs: &mut [i32],
        meet: impl Fn(usize, usize) -> bool,
    ) {
        self.for_each(|i, j, g| {
            let (row, column) = (&self.rows[i], &self.columns[j]);
            let (row_need, column_need) = if g > 0 {
                let bits = 53 - accuracy.floor_lg(row.nonzeros.min(column.nonzeros));
                let g = Magnitude::new(g as u64, 0);
                (
                    bits + Magnitude::new(column.sum + column.nonzeros, 0).ceil_log2_ratio(g),
                    bits + Magnitude::new(row.sum + row.nonzeros, 0).ceil_log2_ratio(g),
                )
            } else if meet(i, j) {
                (UNPROVABLE, UNPROVABLE)
            } else {
                return; // disjoint supports: C' = 0, exactly
            };
            row_needs[i] = row_needs[i].max(row_need);
            column_needs[j] = column_needs[j].max(column_need);
        });
    }

    /// Mode auto, steps 3 and 4: the largest 2^(needA_i + needB_j) U_ij of this rectangle.
    pub fn largest(&self, row_needs: &[i32], column_needs: &[i32]) -> Magnitude {
        let mut largest = Magnitude::NONE;
        self.for_each(|i, j, g| {
            let u = upper(g, &self.rows[i], &self.columns[j]);
            largest = largest.max(Magnitude::new(u, row_needs[i] + column_needs[j]));
        });
        largest
    }
}

/// Mode accurate, from the maxima R_i and K_j: since U_ij <= sqrt(R_i K_j), 4^sigma R_i <= H_N and 4^tau K_j <= H_N suffice.
pub fn accurate(
    moduli: usize,
    a: &[Line],
    b: &[Line],
    maxima: (&[u64], &[u64]),
    mut rows: Vec<i32>,
    mut columns: Vec<i32>,
) -> Result<Plan, NoPlan> {
    let limit = Magnitude::limit(crt(moduli).limit);
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

/// Mode auto, steps 3 and 4, from the capped needs and the largest 2^(needA_i + needB_j) U_ij of the whole product:
/// the least N that holds it (at most `most`), and what is left goes to both sides alike.
pub fn auto(
    most: usize,
    a: &[Line],
    b: &[Line],
    largest: Magnitude,
    mut row_needs: Vec<i32>,
    mut column_needs: Vec<i32>,
) -> Result<Plan, NoPlan> {
    if largest == Magnitude::NONE {
        return Ok(Plan { moduli: 2, rows: zeros(row_needs, a), columns: zeros(column_needs, b) });
    }
    let fits = |n: &usize| largest <= Magnitude::limit(crt(*n).limit);
    let moduli = (2..=most.min(MAX_MODULI)).find(fits).ok_or(NoPlan::NotProvable)?;
    let spare = largest.spare_quarter_powers(Magnitude::limit(crt(moduli).limit));
    for (needs, lines) in [(&mut row_needs, a), (&mut column_needs, b)] {
        for (need, line) in needs.iter_mut().zip(lines) {
            *need = exponent_of(*need + spare, line);
        }
    }
    Ok(Plan { moduli, rows: row_needs, columns: column_needs })
}

/// Without any pair of nonzero lines every C' is 0 and no spare bits exist: sigma is the need itself.
fn zeros(mut needs: Vec<i32>, lines: &[Line]) -> Vec<i32> {
    for (need, line) in needs.iter_mut().zip(lines) {
        *need = exponent_of(*need, line);
    }
    needs
}

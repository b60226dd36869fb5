//! Step *plan*: the number of moduli and the scaling exponents (NUMERICS section 3), decided by exact integers alone.

use super::bound::Line;
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

/// What the plan needs of the lines of an operand, one array for each property, so that loops over entries run in vectors.
#[derive(Debug, Default)]
pub struct LineTable {
    /// rs or cs.
    pub sums: Vec<i64>,
    pub nonzeros: Vec<i64>,
    /// The bits of (rs + nz) as a double.
    costs: Vec<i64>,
    /// floor(lg T) for the nonzeros of the line alone; that of an entry is the smaller of its line's.
    logs: Vec<i64>,
}

impl LineTable {
    /// Bytes for each line.
    pub const BYTES: usize = 4 * size_of::<i64>();

    /// None where there is no memory.
    pub fn new(lines: &[Line], accuracy: Accuracy) -> Option<Self> {
        let mut out = Self::default();
        for array in [&mut out.sums, &mut out.nonzeros, &mut out.costs, &mut out.logs] {
            array.try_reserve_exact(lines.len()).ok()?;
        }
        for line in lines {
            out.sums.push(line.sum as i64);
            out.nonzeros.push(line.nonzeros as i64);
            out.costs.push(((line.sum + line.nonzeros) as f64).to_bits() as i64);
            out.logs.push(if line.is_zero() { 0 } else { accuracy.floor_lg(line.nonzeros).into() });
        }
        Some(out)
    }

    /// The lines from `first` on, `count` of them.
    pub fn part(&self, first: usize, count: usize) -> LineSlices<'_> {
        let cut = |array: &'_ Vec<i64>| -> std::ops::Range<usize> { first..(first + count).min(array.len()) };
        LineSlices {
            sums: &self.sums[cut(&self.sums)],
            nonzeros: &self.nonzeros[cut(&self.nonzeros)],
            costs: &self.costs[cut(&self.costs)],
            logs: &self.logs[cut(&self.logs)],
        }
    }
}

/// A part of a [`LineTable`].
#[derive(Clone, Copy)]
pub struct LineSlices<'a> {
    sums: &'a [i64],
    nonzeros: &'a [i64],
    costs: &'a [i64],
    logs: &'a [i64],
}

/// A rectangle of the bound product G = A~ B~: entry (i, j) is `g[j * stride + i]`. Numbers of nonzeros and sums are below
/// 2^52, so that doubles hold them exactly.
pub struct Bounds<'a> {
    pub rows: LineSlices<'a>,
    pub columns: LineSlices<'a>,
    pub g: Entries<'a>,
    pub stride: usize,
}

/// Entries of the bound product: of 32 bits where the inner dimension is short enough for that.
#[derive(Clone, Copy)]
pub enum Entries<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Entries<'_> {
    fn get(&self, at: usize) -> i64 {
        match self {
            Self::Short(g) => g[at].into(),
            Self::Long(g) => g[at],
        }
    }
}

trait Entry: Copy + Into<i64> {
    fn double(self) -> f64;
}

impl Entry for i32 {
    #[inline(always)]
    fn double(self) -> f64 {
        self.into()
    }
}

impl Entry for i64 {
    #[inline(always)]
    fn double(self) -> f64 {
        self as f64
    }
}

/// The fraction bits of a double: its bits, read as an integer, are its logarithm in units of 2^-52, piece by piece linear.
const FRACTION_BITS: u32 = 52;
/// Needs are cut here before they are added: above all that any N holds, and small enough for the exponent field.
const MOST_NEED: i64 = 450;
/// The need of a line of zeros, which takes part in nothing.
const NO_NEED: i64 = -1000;
/// Keys of pairs without a line of zeros are above this one.
const LEAST_KEY: i64 = 900 << FRACTION_BITS;

impl Bounds<'_> {
    /// Calls f(i, j, G_ij) for each entry whose row and column both have a nonzero.
    #[inline]
    fn for_each(&self, mut f: impl FnMut(usize, usize, i64)) {
        for j in 0..self.columns.sums.len() {
            if self.columns.nonzeros[j] == 0 {
                continue;
            }
            for i in 0..self.rows.sums.len() {
                if self.rows.nonzeros[i] != 0 {
                    f(i, j, self.g.get(j * self.stride + i));
                }
            }
        }
    }

    /// Mode accurate: raises R_i = max_j U_ij and K_j = max_i U_ij (start: 0) by this rectangle.
    pub fn raise_maxima(&self, row_maxima: &mut [u64], column_maxima: &mut [u64]) {
        self.for_each(|i, j, g| {
            let nonzeros = self.rows.nonzeros[i].min(self.columns.nonzeros[j]);
            let u = (g + self.rows.sums[i] + self.columns.sums[j] + nonzeros) as u64; // as in `bound::upper`
            row_maxima[i] = row_maxima[i].max(u);
            column_maxima[j] = column_maxima[j].max(u);
        });
    }

    /// Mode auto, step 1: raises the needs (start: 0) of the rows and columns of this rectangle. `meet(i, j)` tells whether row i and
    /// column j have a nonzero in common; it is asked only where G_ij = 0 and neither line is zero.
    #[inline(always)]
    pub fn raise_needs(
        &self,
        row_needs: &mut [i64],
        column_needs: &mut [i64],
        meet: &dyn Fn(usize, usize) -> bool,
    ) {
        match self.g {
            Entries::Short(g) => self.raise_needs_of(g, row_needs, column_needs, meet),
            Entries::Long(g) => self.raise_needs_of(g, row_needs, column_needs, meet),
        }
    }

    #[inline(always)]
    fn raise_needs_of<T: Entry>(
        &self,
        g: &[T],
        row_needs: &mut [i64],
        column_needs: &mut [i64],
        meet: &dyn Fn(usize, usize) -> bool,
    ) {
        let height = self.rows.sums.len();
        let (costs, logs) = (&self.rows.costs[..height], &self.rows.logs[..height]);
        let nonzeros = &self.rows.nonzeros[..height];
        let row_needs = &mut row_needs[..height];
        for (j, column_need) in column_needs.iter_mut().enumerate() {
            if self.columns.nonzeros[j] == 0 {
                continue;
            }
            let g = &g[j * self.stride..][..height];
            let (cost, log) = (self.columns.costs[j], self.columns.logs[j]);
            let mut least = i64::MAX;
            let mut need = *column_need;
            for i in 0..height {
                // The bits of 0 are 0; where G_ij = 0 the right value is found below.
                let own = g[i].double().to_bits() as i64;
                least = least.min(own);
                let bits = 53 - logs[i].min(log);
                let possible = if own == 0 || nonzeros[i] == 0 { 0 } else { i64::MAX };
                row_needs[i] = row_needs[i].max((bits + ceil_lg(cost, own)).min(possible));
                need = need.max((bits + ceil_lg(costs[i], own)).min(possible));
            }
            *column_need = need;
            if least == 0 {
                for i in 0..height {
                    // Disjoint supports mean C' = 0, exactly.
                    if g[i].into() == 0 && nonzeros[i] != 0 && meet(i, j) {
                        row_needs[i] = row_needs[i].max(UNPROVABLE.into());
                        *column_need = (*column_need).max(UNPROVABLE.into());
                    }
                }
            }
        }
    }

    /// Mode auto, steps 3 and 4: the largest 2^(needA_i + needB_j) U_ij of this rectangle as a key, see [`largest_of_key`]. The needs
    /// come from [`key_needs`].
    #[inline(always)]
    pub fn largest_key(&self, row_needs: &[i64], column_needs: &[i64]) -> i64 {
        match self.g {
            Entries::Short(g) => self.largest_key_of(g, row_needs, column_needs),
            Entries::Long(g) => self.largest_key_of(g, row_needs, column_needs),
        }
    }

    #[inline(always)]
    fn largest_key_of<T: Entry>(&self, g: &[T], row_needs: &[i64], column_needs: &[i64]) -> i64 {
        let height = self.rows.sums.len();
        let (sums, nonzeros) = (&self.rows.sums[..height], &self.rows.nonzeros[..height]);
        let row_needs = &row_needs[..height];
        let mut largest = i64::MIN;
        for (j, &column_need) in column_needs.iter().enumerate() {
            let g = &g[j * self.stride..][..height];
            let (sum, count) = (self.columns.sums[j], self.columns.nonzeros[j]);
            for i in 0..height {
                let u = g[i].into() + sums[i] + sum + nonzeros[i].min(count);
                let key = (u as f64).to_bits() as i64 + ((row_needs[i] + column_need) << FRACTION_BITS);
                largest = largest.max(key);
            }
        }
        largest
    }
}

/// ceil(lg(x / g)) for positive integers given by the bits of their doubles: the difference of the bits is that of the exponents
/// and fractions, and it is rounded up exactly where the fraction of x is the larger.
#[inline(always)]
fn ceil_lg(x: i64, g: i64) -> i64 {
    (x - g + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS
}

/// Needs in the form that keys are made of.
pub fn key_needs(needs: &[i32], lines: &[Line], out: &mut [i64]) {
    for ((out, &need), line) in out.iter_mut().zip(needs).zip(lines) {
        *out = if line.is_zero() { NO_NEED } else { i64::from(need).min(MOST_NEED) };
    }
}

/// The number behind a key: the key is the bits of a double, with an exponent that may be too large for one.
pub fn largest_of_key(key: i64) -> Magnitude {
    if key < LEAST_KEY {
        return Magnitude::NONE;
    }
    let fraction = (key & ((1 << FRACTION_BITS) - 1)) as u64;
    Magnitude::from_parts((key >> FRACTION_BITS) as i32 - 1022, 1 << 63 | fraction << 11)
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

//! Step *plan*, what it looks at in every entry: lower and upper bounds of |A||B|, and the bits that each entry needs.

use super::bound::Line;
use super::plan::Accuracy;
use super::wide::Magnitude;

/// The need of an entry whose lower bound is zero: more than any N has.
const UNPROVABLE: i64 = 10_000;
/// The bits of a double, which is what an entry needs if nothing is lost or won elsewhere.
const BITS: i64 = 53;

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

/// A rectangle of lower bounds: entry (i, j) is `g[j * stride + i]`. Numbers of nonzeros, sums and bounds are at most 2^53, so that
/// doubles hold them exactly.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    pub rows: LineSlices<'a>,
    pub columns: LineSlices<'a>,
    /// The bound product G = A~ B~, or that of 14 bits (step 5b): see `more_bits`.
    pub g: Entries<'a>,
    /// 0, or [`MORE_BITS`] where `g` counts in units of 2^-14.
    pub more_bits: i64,
    pub stride: usize,
}

/// Seven more bits of both operands.
pub const MORE_BITS: i64 = 14;

/// The longest inner dimension for which step 5b is tried: its lower bounds are then at most 2^24 (2^14 - 1)^2 < 2^52.
pub const MORE_BITS_LONGEST: usize = 1 << 24;

/// Step 5b: 2^14 A~ B~ + 2^7 (A~ B~2 + A~2 B~) + A~2 B~2 from the four products, in this order, of which each has at most 2^16 terms
/// below 2^14, so that the sum of two fits.
#[inline(always)]
pub fn lower_bounds(products: [&[i32]; 4], out: &mut [i64]) {
    let [first, right, left, second] = products.map(|product| &product[..out.len()]);
    for (at, out) in out.iter_mut().enumerate() {
        *out = (i64::from(first[at]) << 14) + (i64::from(right[at] + left[at]) << 7) + i64::from(second[at]);
    }
}

/// Entries of the bound product: of 32 bits where the inner dimension is short enough for that.
#[derive(Clone, Copy)]
pub enum Entries<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Entries<'_> {
    pub fn get(&self, at: usize) -> i64 {
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
            let u = self.upper(i, j, g);
            row_maxima[i] = row_maxima[i].max(u);
            column_maxima[j] = column_maxima[j].max(u);
        });
    }

    /// Mode auto, step 1: raises the needs (start: 0) of the rows and columns of this rectangle. True if some lower bound of two
    /// nonzero lines is zero: such entries are left to [`Bounds::raise_meeting`].
    #[inline(always)]
    pub fn raise_needs(&self, row_needs: &mut [i64], column_needs: &mut [i64]) -> bool {
        match self.g {
            Entries::Short(g) => self.raise_needs_of(g, row_needs, column_needs),
            Entries::Long(g) => self.raise_needs_of(g, row_needs, column_needs),
        }
    }

    #[inline(always)]
    fn raise_needs_of<T: Entry>(&self, g: &[T], row_needs: &mut [i64], column_needs: &mut [i64]) -> bool {
        let height = self.rows.sums.len();
        let (costs, logs) = (&self.rows.costs[..height], &self.rows.logs[..height]);
        let nonzeros = &self.rows.nonzeros[..height];
        let row_needs = &mut row_needs[..height];
        let mut zeros = false;
        for (j, column_need) in column_needs.iter_mut().enumerate() {
            if self.columns.nonzeros[j] == 0 {
                continue;
            }
            let g = &g[j * self.stride..][..height];
            let (cost, log) = (self.columns.costs[j], self.columns.logs[j]);
            let mut least = i64::MAX;
            let mut need = *column_need;
            for i in 0..height {
                // The bits of 0 are 0; where the bound is 0 the right value is found elsewhere.
                let own = g[i].double().to_bits() as i64;
                least = least.min(own);
                let bits = BITS + self.more_bits - logs[i].min(log);
                let possible = if own == 0 || nonzeros[i] == 0 { 0 } else { i64::MAX };
                row_needs[i] = row_needs[i].max((bits + ceil_lg(cost, own)).min(possible));
                need = need.max((bits + ceil_lg(costs[i], own)).min(possible));
            }
            *column_need = need;
            zeros |= least == 0 && (0..height).any(|i| g[i].into() == 0 && nonzeros[i] != 0);
        }
        zeros
    }

    /// Step 5a, for entries whose lower bound is zero: where the lines meet, that is where `meet`, the number of places at which both
    /// have a nonzero, is not zero, nothing is proved by any number of bits. Disjoint supports mean C' = 0, exactly.
    pub fn raise_meeting(&self, meet: Entries, row_needs: &mut [i64], column_needs: &mut [i64]) {
        self.for_each(|i, j, g| {
            if g == 0 && meet.get(j * self.stride + i) != 0 {
                row_needs[i] = row_needs[i].max(UNPROVABLE);
                column_needs[j] = column_needs[j].max(UNPROVABLE);
            }
        });
    }

    /// Step 5d: calls f(i, j) for each entry that no plan within `limit` serves, whatever its row and its column need elsewhere. `g`
    /// is the bound product of seven bits, `exact` tells the sigma at which a line is exact.
    pub fn for_each_hopeless(
        &self,
        g: Entries,
        meet: Entries,
        exact: (&[Line], &[Line]),
        limit: Magnitude,
        mut f: impl FnMut(usize, usize),
    ) {
        self.for_each(|i, j, lower| {
            let at = j * self.stride + i;
            let bits = BITS + self.more_bits - self.rows.logs[i].min(self.columns.logs[j]);
            let need = |cost: i64, exact: i32| {
                let bound = match lower {
                    0 if meet.get(at) == 0 => 0,
                    0 => UNPROVABLE,
                    _ => (bits + ceil_lg(cost, (lower as f64).to_bits() as i64)).max(0),
                };
                (bound as i32).min(exact)
            };
            let row = need(self.columns.costs[j], exact.0[i].exact_at);
            let column = need(self.rows.costs[i], exact.1[j].exact_at);
            if Magnitude::new(self.upper(i, j, g.get(at)), row + column) > limit {
                f(i, j);
            }
        });
    }

    /// Step 5d again: the entries that do not fit with the needs of their lines.
    pub fn for_each_misfit(
        &self,
        row_needs: &[i32],
        column_needs: &[i32],
        limit: Magnitude,
        mut f: impl FnMut(usize, usize),
    ) {
        self.for_each(|i, j, g| {
            if Magnitude::new(self.upper(i, j, g), row_needs[i] + column_needs[j]) > limit {
                f(i, j);
            }
        });
    }

    /// U_ij, as in `bound::upper`.
    fn upper(&self, i: usize, j: usize, g: i64) -> u64 {
        let nonzeros = self.rows.nonzeros[i].min(self.columns.nonzeros[j]);
        (g + self.rows.sums[i] + self.columns.sums[j] + nonzeros) as u64
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
                let key = key_with((u as f64).to_bits() as i64, row_needs[i] + column_need);
                largest = largest.max(key);
            }
        }
        largest
    }
}

impl Bounds<'_> {
    /// An entry of this rectangle that has the key, which is the largest.
    pub fn place_of_key(&self, key: i64, row_needs: &[i64], column_needs: &[i64]) -> (usize, usize) {
        for (j, &column_need) in column_needs.iter().enumerate() {
            for (i, &row_need) in row_needs.iter().enumerate() {
                let u = self.upper(i, j, self.g.get(j * self.stride + i));
                if key_with((u as f64).to_bits() as i64, row_need + column_need) == key {
                    return (i, j);
                }
            }
        }
        (0, 0)
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

/// The key of a number that is 2^needs times as large.
#[inline(always)]
pub fn key_with(key: i64, needs: i64) -> i64 {
    key + (needs << FRACTION_BITS)
}

/// The number behind a key: the key is the bits of a double, with an exponent that may be too large for one.
pub fn largest_of_key(key: i64) -> Magnitude {
    if key < LEAST_KEY {
        return Magnitude::NONE;
    }
    let fraction = (key & ((1 << FRACTION_BITS) - 1)) as u64;
    Magnitude::from_parts((key >> FRACTION_BITS) as i32 - 1022, 1 << 63 | fraction << 11)
}

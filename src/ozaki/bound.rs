//! Step *bound*: 7-bit magnitudes of a line, and bounds of |A||B| from their integer product (NUMERICS sections 2 and 3).

use super::float::parts;
use super::scan::Scan;

/// The statistics of a line that the plan works with: the scan, and the sums of the 7-bit magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// e: the least integer with |x| < 2^e for every element.
    pub exponent: i32,
    /// The sigma at which the line is exact.
    pub exact_at: i32,
    /// Number of nonzero elements.
    pub nonzeros: u64,
    /// rs or cs: the sum of the magnitudes.
    pub sum: u64,
    /// SA or SB: the sum of (magnitude + 1)^2 over the nonzero elements.
    pub squares: u64,
}

impl Line {
    /// The line without its sums, which [`Line::add`] collects.
    pub fn new(scan: &Scan) -> Self {
        let (exponent, exact_at) = (scan.exponent(), scan.exact_at());
        Self { exponent, exact_at, nonzeros: scan.nonzeros, sum: 0, squares: 0 }
    }

    /// The line from the sums of its magnitudes and of their squares: (a + 1)^2 = a^2 + 2 a + 1 for each nonzero element.
    pub fn with_sums(scan: &Scan, sum: u64, squares: u64) -> Self {
        Self { sum, squares: squares + 2 * sum + scan.nonzeros, ..Self::new(scan) }
    }

    /// Adds elements of the line to its sums.
    pub fn add(&mut self, values: &[f64]) {
        for &x in values {
            let a = u64::from(magnitude(x, self.exponent));
            self.sum += a;
            self.squares += if x == 0.0 { 0 } else { (a + 1) * (a + 1) };
        }
    }

    pub fn is_zero(&self) -> bool {
        self.nonzeros == 0
    }
}

/// floor(|x| 2^(7-e)), in 0..=127 for |x| < 2^e.
#[inline]
pub fn magnitude(x: f64, e: i32) -> u8 {
    let (m, q) = parts(x);
    // m 2^q < 2^e, so e - q > 0 for a nonzero x; seven bits are put below m first because a subnormal m may have fewer.
    ((m << 7) >> (e - q).clamp(0, 63)) as u8
}

/// floor(2^14 |x| 2^-e) mod 128, the seven bits after those of [`magnitude`], for |x| < 2^e.
#[inline]
pub fn second_magnitude(x: f64, e: i32) -> u8 {
    let (m, q) = parts(x);
    let right = e - q - 14;
    // One of the two shifts is by nothing. To the left none goes beyond 14 bits, since m 2^q < 2^e.
    let digits = (m >> right.clamp(0, 63)) << (-right).clamp(0, 63);
    (digits & 127) as u8
}

/// U_ij = G_ij + rs_i + cs_j + min(nzA_i, nzB_j): an upper bound of sum_h |a_ih b_hj| 2^(14-e_i-f_j).
#[inline]
pub fn upper(g: i64, row: &Line, column: &Line) -> u64 {
    g as u64 + row.sum + column.sum + row.nonzeros.min(column.nonzeros)
}

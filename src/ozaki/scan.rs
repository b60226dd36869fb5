//! Step *scan*: the exponents of a line (NUMERICS section 2).

use super::float::{NOT_FINITE, parts};

/// What the scan finds in a line or in a part of one; parts of the same line merge in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The bits of the largest magnitude.
    largest: u64,
    /// The exponent of the lowest set bit of any element; `i32::MAX` without a nonzero.
    lowest_bit: i32,
    /// Number of nonzero elements.
    pub nonzeros: u64,
}

impl Scan {
    pub const EMPTY: Self = Self { largest: 0, lowest_bit: i32::MAX, nonzeros: 0 };

    /// What a device found: the bits of the largest magnitude, the exponent of the lowest set bit (of no meaning without a
    /// nonzero) and the number of nonzeros.
    pub fn from_parts(largest: u64, lowest_bit: i32, nonzeros: u64) -> Self {
        Self { largest, lowest_bit: if nonzeros == 0 { i32::MAX } else { lowest_bit }, nonzeros }
    }

    /// Scans elements of one line.
    pub fn of(values: &[f64]) -> Self {
        let mut out = Self::EMPTY;
        for &x in values {
            let bits = x.to_bits() & !(1 << 63);
            out.largest = out.largest.max(bits);
            let (m, q) = parts(x);
            let low = if m == 0 { i32::MAX } else { q + m.trailing_zeros() as i32 };
            out.lowest_bit = out.lowest_bit.min(low);
            out.nonzeros += u64::from(m != 0);
        }
        out
    }

    pub fn merge(self, other: Self) -> Self {
        Self {
            largest: self.largest.max(other.largest),
            lowest_bit: self.lowest_bit.min(other.lowest_bit),
            nonzeros: self.nonzeros + other.nonzeros,
        }
    }

    /// The exponent of the lowest set bit of any element; `i32::MAX` without a nonzero.
    pub fn lowest_bit(&self) -> i32 {
        self.lowest_bit
    }

    /// Neither NaN nor Inf was seen.
    pub fn is_finite(&self) -> bool {
        self.largest < NOT_FINITE
    }

    /// e: the least integer with |x| < 2^e for every element; 0 for a line of zeros.
    pub fn exponent(&self) -> i32 {
        let (m, q) = parts(f64::from_bits(self.largest));
        if m == 0 { 0 } else { q + 64 - m.leading_zeros() as i32 }
    }

    /// ex = e - 7 - lsb: the sigma at which the whole line is exact (NUMERICS section 3, auto, step 2); may be negative.
    pub fn exact_at(&self) -> i32 {
        if self.nonzeros == 0 { 0 } else { self.exponent() - 7 - self.lowest_bit }
    }
}

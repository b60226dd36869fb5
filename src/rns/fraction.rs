//! X / M to within 2^-51 a modulus, in one sum that a vector unit computes for many numbers at once.
//!
//! The published form takes two sums, rounded down and up. With rounding to nearest one sum and a proved bound of its error
//! do the same. The sum is kept modulo 1 all the way: then no partial sum is large, and the error grows with n, not n lg n.
//!
//! **Error.** Let t be the product of r = s_i or s_i + m_i with 1 / m_i rounded to nearest. It is below 2, as r <= 2 m_i - 1.
//! The reciprocal is off by at most 2^-53 relatively, which makes at most 2^-52 in t; rounding t is at most 2^-53 more, and
//! subtracting 1 from a number in [1, 2) is exact. Now a < 1 and t < 1 are added: the sum is at most 2 - 2^-52, rounding it
//! at most 2^-53, subtracting 1 exact. Together 2^-51 for each modulus, on the circle of numbers modulo 1.

use super::System;

impl System {
    /// phi, the symmetric fraction of X: X / M for X <= M / 2 and X / M - 1 for larger X, in [-1/2, 1/2], but for an
    /// error of at most [`System::fraction_error`]. Modulo 1, that is: near +-1/2 the sign may be the other one.
    pub fn fraction(&self, residues: &[u32]) -> f64 {
        self.expect(residues, 1);
        let mut sum = [0.0];
        self.accumulate(residues, 1, 0, &mut sum);
        if sum[0] > 0.5 { sum[0] - 1.0 } else { sum[0] }
    }

    /// The most by which [`System::fraction`] is wrong modulo 1: n 2^-51.
    pub fn fraction_error(&self) -> f64 {
        self.count() as f64 * 2f64.powi(-51)
    }

    /// Adds to `sums`, modulo 1, all s_i / m_i of the numbers from `first` on in an array of `count`.
    pub(super) fn accumulate(&self, residues: &[u32], count: usize, first: usize, sums: &mut [f64]) {
        for (lane, plane) in self.lanes.iter().zip(residues.chunks(count)) {
            let (m, weight, reciprocal) = (lane.m, lane.weight, lane.nearest);
            for (sum, &x) in sums.iter_mut().zip(&plane[first..]) {
                let term = exact_double(weight.times_twice(x.into(), m)) * reciprocal;
                *sum = modulo_one(*sum + modulo_one(term));
            }
        }
    }
}

/// x - 1 for 1 <= x < 2, x for 0 <= x < 1.
#[inline(always)]
fn modulo_one(x: f64) -> f64 {
    x - if x >= 1.0 { 1.0 } else { 0.0 }
}

/// An integer below 2^52 as a double, without the conversion of 64-bit integers that older vector units lack.
#[inline(always)]
fn exact_double(x: u64) -> f64 {
    const TWO_52: f64 = (1u64 << 52) as f64;
    f64::from_bits(x | TWO_52.to_bits()) - TWO_52
}

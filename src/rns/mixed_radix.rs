//! Mixed-radix digits: X = a_1 + a_2 m_1 + a_3 m_1 m_2 + ... + a_n m_1 ... m_(n-1), 0 <= a_i < m_i.
//!
//! They order numbers exactly, from the most significant one down, and take n (n - 1) / 2 products modulo m_i (the method of
//! Szabo and Tanaka, 1967): a_1 = x_1; then a_1 is subtracted from all other residues, which m_1 then divides, and so on.

use super::System;
use super::modular::{Factor, wrapped};

/// Numbers that are converted together: the residues of so many stay in the first caches.
const CHUNK: usize = 128;

impl System {
    /// The mixed-radix digits of a number, the least significant one first.
    pub fn mixed_radix(&self, residues: &[u32]) -> Vec<u32> {
        self.expect(residues, 1);
        let mut digits = residues.to_vec();
        self.to_digits(&mut digits, 1);
        digits
    }

    /// The mixed-radix digits of an array: digit i of number j at i * count + j.
    ///
    /// # Panics
    /// Unless there are `count` residues for each modulus.
    pub fn mixed_radix_of_array(&self, residues: &[u32], count: usize) -> Vec<u32> {
        self.expect(residues, count);
        let mut digits = vec![0; residues.len()];
        let mut block = vec![0; self.count() * CHUNK.min(count)];
        for first in (0..count).step_by(CHUNK) {
            let width = CHUNK.min(count - first);
            let block = &mut block[..self.count() * width];
            for (to, plane) in block.chunks_mut(width).zip(residues.chunks(count)) {
                to.copy_from_slice(&plane[first..first + width]);
            }
            self.to_digits(block, width);
            for (from, plane) in block.chunks(width).zip(digits.chunks_mut(count)) {
                plane[first..first + width].copy_from_slice(from);
            }
        }
        digits
    }

    /// Residues become digits in place; `width` numbers.
    fn to_digits(&self, planes: &mut [u32], width: usize) {
        for j in 0..self.count() {
            let (done, rest) = planes.split_at_mut((j + 1) * width);
            let digit = &done[j * width..];
            for (plane, i) in rest.chunks_mut(width).zip(j + 1..) {
                let (m, inverse) = (self.lanes[i].m, self.inverses[i * (i - 1) / 2 + j]);
                // A digit of a larger modulus has to be reduced first.
                if self.lanes[j].m > m {
                    let one = Factor::new(1, m);
                    divide(plane, digit, m, inverse, |a| one.times(a, m));
                } else {
                    divide(plane, digit, m, inverse, |a| a);
                }
            }
        }
    }
}

/// x = (x - a) / m_j modulo m, where `inverse` is 1 / m_j and `reduce` brings a below m.
#[inline(always)]
fn divide(x: &mut [u32], a: &[u32], m: u32, inverse: Factor, reduce: impl Fn(u64) -> u64) {
    for (x, &a) in x.iter_mut().zip(a) {
        let difference = wrapped(u64::from(*x).wrapping_sub(reduce(a.into())), m);
        *x = inverse.times(difference, m) as u32;
    }
}

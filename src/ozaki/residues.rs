//! Step *residues*: scaling with rounding to nearest, and residues of the integers; step *reduce*: residues of 32-bit sums.

use super::float::parts;
use super::moduli::{MAX_MODULI, MODULI, canonical};

/// Exponents of two that a scaled element may carry. |a'| <= H_20 < 2^155 wherever it meets a b' that is not 0; beyond that, up to
/// 2^160, its residues do not matter (docs/accuracy.md, section 6).
const POWERS: usize = 160;

/// 2^x mod p_l, canonical.
static POWER_RESIDUES: [[i16; POWERS]; MAX_MODULI] = {
    let mut table = [[0; POWERS]; MAX_MODULI];
    let mut l = 0;
    while l < MAX_MODULI {
        let p = MODULI[l];
        let mut r = 1;
        let mut x = 0;
        while x < POWERS {
            table[l][x] = if r > (p - 1) / 2 { r - p } else { r } as i16;
            r = 2 * r % p;
            x += 1;
        }
        l += 1;
    }
    table
};

/// a' = RN_int(x 2^s) = M 2^X with |M| <= 2^53 and X >= 0 (NUMERICS section 2); x must be finite.
#[inline]
pub fn scaled(x: f64, s: i32) -> (i64, u32) {
    let (m, q) = parts(x);
    let shift = q + s;
    let (magnitude, power) = if shift >= 0 {
        (m, if m == 0 { 0 } else { shift as u32 })
    } else {
        // Half of the last kept bit, less one if that bit is even, so that a tie goes to the even neighbour. From 55 bits
        // on nothing is left of m < 2^53.
        let drop = (-shift).min(55) as u32;
        let even = (m >> drop) & 1;
        ((m + (1 << (drop - 1)) - 1 + even) >> drop, 0)
    };
    (if x < 0.0 { -(magnitude as i64) } else { magnitude as i64 }, power)
}

/// The canonical residue of M 2^X modulo the `l`-th modulus.
#[inline]
pub fn residue((m, power): (i64, u32), l: usize) -> i8 {
    let r = canonical(m, l);
    if power == 0 { r as i8 } else { canonical(i64::from(r) * i64::from(power_residue(power, l)), l) as i8 }
}

/// 2^x mod p_l, canonical, for x below 160.
#[inline]
pub fn power_residue(x: u32, l: usize) -> i16 {
    POWER_RESIDUES[l][x as usize]
}

/// The constants of a reduction modulo p in doubles.
#[derive(Clone, Copy)]
pub struct Reducer {
    p: f64,
    inverse: f64,
    high: f64,
}

/// Adding and subtracting this rounds a double below 2^51 to an integer, ties to even.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

impl Reducer {
    pub fn new(l: usize) -> Self {
        let p = f64::from(MODULI[l]);
        Self { p, inverse: 1.0 / p, high: f64::from((MODULI[l] - 1) / 2) }
    }

    /// The canonical residue of an integer |x| < 2^50, without a division. For odd p the quotient is never a tie and at least
    /// 1/(2p) away from one, more than the error of x / p: it is right. The tie of p = 256 belongs to -128.
    #[inline]
    pub fn reduce(&self, x: f64) -> f64 {
        let quotient = (x * self.inverse + ROUND) - ROUND;
        let r = x - quotient * self.p;
        if r > self.high { r - self.p } else { r }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_reduction_in_doubles_is_canonical(x in -(1i64 << 50)..(1i64 << 50), l in 0..MAX_MODULI) {
            prop_assert_eq!(Reducer::new(l).reduce(x as f64), f64::from(canonical(x, l)));
        }
    }

    #[test]
    fn the_reduction_is_canonical_next_to_ties() {
        for l in 0..MAX_MODULI {
            let p = i64::from(MODULI[l]);
            for q in [0, 1, 2, 1000, (1 << 31) / p, (1 << 49) / p] {
                for d in -3..=3 {
                    for x in [q * p + p / 2 + d, -(q * p + p / 2 + d)] {
                        assert_eq!(
                            Reducer::new(l).reduce(x as f64),
                            f64::from(canonical(x, l)),
                            "{x} mod {p}"
                        );
                    }
                }
            }
        }
    }
}

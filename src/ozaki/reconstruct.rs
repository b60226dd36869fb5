//! Step *reconstruct*: from the residues of C'_ij to the correctly rounded result (NUMERICS section 4).

use super::float::{normalised, round};
use super::moduli::{Crt, LIMB_BITS, LIMBS, MAX_MODULI, MODULI, canonical, crt};

const LIMB: i64 = (1 << LIMB_BITS) - 1;

/// Adding and subtracting this rounds a small double to an integer, ties to even.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

/// The constants of a call: N, and alpha = mu 2^nu.
pub struct Reconstruct {
    pub crt: &'static Crt,
    /// 1 / p_l.
    reciprocals: [f64; MAX_MODULI],
    pub mu: f64,
    pub nu: i32,
}

impl Reconstruct {
    /// `alpha` must be finite and not zero.
    pub fn new(crt: &'static Crt, alpha: f64) -> Self {
        let (mu, nu) = normalised(alpha);
        Self { crt, reciprocals: MODULI.map(|p| 1.0 / f64::from(p)), mu, nu }
    }

    /// Whole entries, of a column: alpha C' 2^-(s+t), plus beta c if there are addends (RN(beta c); None for beta = 0).
    /// `residue(l, i)` is y_l = r_l q_l mod p_l of entry i, `scale(i)` its s + t. The results go to `out`; `peak` is raised to the
    /// largest |C'| / P, exact to 2^-40.
    #[inline(always)]
    pub fn entries<const W: usize>(
        &self,
        residue: impl Fn(usize, usize) -> i8,
        scale: impl Fn(usize) -> i32,
        addends: Option<&[f64; W]>,
        out: &mut [f64],
        peak: &mut f64,
    ) {
        let (sums, fractions) = self.sums::<W>(residue);
        for (i, out) in out.iter_mut().enumerate() {
            *peak = peak.max(fractions[i].abs());
            let product = round_limbs(sums.map(|sum| sum[i] as i64), self.nu - scale(i));
            *out = match addends {
                None if self.mu == 1.0 => product,
                None => self.mu.mul_add(product, 0.0),
                Some(addends) => self.mu.mul_add(product, addends[i]),
            };
        }
    }

    /// RN(C' 2^exponent), where C' is the residue of smallest magnitude of sum_l y_l P / p_l modulo P; and C' / P.
    pub fn product(&self, residue: impl Fn(usize) -> i8, exponent: i32) -> (f64, f64) {
        let (sums, fractions) = self.sums::<1>(|l, _| residue(l));
        (round_limbs(sums.map(|sum| sum[0] as i64), exponent), fractions[0])
    }

    /// C' of W entries in limbs of 40 bits, and C' / P.
    ///
    /// C' / P = sum_l y_l / p_l less the nearest integer, which double arithmetic finds with certainty because |C'| <= H_N keeps
    /// 2^-32 away from a tie. C' itself is the same sum in limbs, exact in doubles since they stay below 2^53. Of residues that a
    /// fault has changed the y_l may be any bytes: C' is right for them as they are, and the nearest integer may be the other one
    /// of a tie.
    #[inline(always)]
    fn sums<const W: usize>(&self, residue: impl Fn(usize, usize) -> i8) -> ([[f64; W]; LIMBS], [f64; W]) {
        let crt = self.crt;
        let (mut sums, mut fractions) = ([[0.0; W]; LIMBS], [0.0; W]);
        for l in 0..crt.n {
            let y: [f64; W] = std::array::from_fn(|i| f64::from(residue(l, i)));
            for (fraction, y) in fractions.iter_mut().zip(y) {
                *fraction += y * self.reciprocals[l];
            }
            for (sums, &weight) in sums[..crt.limbs].iter_mut().zip(&crt.weights[l]) {
                let weight = weight as f64;
                for (sum, y) in sums.iter_mut().zip(y) {
                    *sum += y * weight;
                }
            }
        }
        let nearest = fractions.map(|fraction| (fraction + ROUND) - ROUND);
        for (fraction, nearest) in fractions.iter_mut().zip(nearest) {
            *fraction -= nearest;
        }
        for (sums, &part) in sums[..crt.limbs].iter_mut().zip(&crt.product_limbs) {
            for (sum, nearest) in sums.iter_mut().zip(nearest) {
                *sum -= nearest * part as f64;
            }
        }
        (sums, fractions)
    }
}

/// C' / P from canonical residues r_l (without the factor q_l), to 2^-40; a nearest integer of exactly 1/2 may be taken either way.
pub fn fraction(residues: &[i8]) -> f64 {
    let inverses = &crt(residues.len()).inverses;
    let term = |(l, &r): (usize, &i8)| {
        f64::from(canonical(i64::from(r) * i64::from(inverses[l]), l)) / f64::from(MODULI[l])
    };
    let sum: f64 = residues.iter().enumerate().map(term).sum();
    sum - ((sum + ROUND) - ROUND)
}

/// Which of n residues alone is wrong, from the difference that this makes in C' / P, known to 2^-22: it is e / p_l modulo 1 then,
/// and different fractions of this form are at least 1 / (p_a p_b) > 2^-16 apart. None where it is no such fraction.
pub fn wrong_modulus(difference: f64, n: usize) -> Option<usize> {
    let mut found = (0..n).filter(|&l| {
        let p = f64::from(MODULI[l]);
        let e = difference * p;
        let nearest = (e + ROUND) - ROUND;
        // Not the multiples of p: those are no error.
        let is_whole = (e - nearest).abs() <= p / f64::from(1 << 22);
        is_whole && nearest as i64 % i64::from(MODULI[l]) != 0
    });
    match (found.next(), found.next()) {
        (Some(l), None) => Some(l),
        _ => None,
    }
}

/// RN(sum_i limbs_i 2^(40 i) 2^exponent); limbs of any sign, |sum| < 2^159.
fn round_limbs(mut limbs: [i64; LIMBS], exponent: i32) -> f64 {
    carry(&mut limbs);
    let negative = limbs[LIMBS - 1] < 0;
    if negative {
        limbs = limbs.map(|limb| -limb);
        carry(&mut limbs);
    }
    let [d0, d1, d2, d3] = limbs.map(|limb| limb as u64);
    let words = [d0 | d1 << 40, d1 >> 24 | d2 << 16 | d3 << 56, d3 >> 8];
    let top = words.iter().rposition(|&word| word != 0).unwrap_or(0);
    let below = |steps: usize| if top >= steps { words[top - steps] } else { 0 };
    let shift = words[top].leading_zeros() % 64;
    let joined = (u128::from(words[top]) << 64 | u128::from(below(1))) << shift;
    let sticky = joined as u64 != 0 || below(2) != 0;
    round(negative, (joined >> 64) as u64, sticky, exponent + 64 * top as i32 - shift as i32)
}

/// Brings every limb but the highest into [0, 2^40).
fn carry(limbs: &mut [i64; LIMBS]) {
    for i in 0..LIMBS - 1 {
        limbs[i + 1] += limbs[i] >> LIMB_BITS;
        limbs[i] &= LIMB;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_wrong_residue_is_named() {
        for n in 2..=MAX_MODULI {
            for l in 0..n {
                let p = MODULI[l];
                for e in 1..p {
                    // Of right residues, and of those with one error, whatever the others are.
                    let mut residues: Vec<i8> =
                        (0..n).map(|i| canonical(i as i64 * 37 + 11, i) as i8).collect();
                    let right = fraction(&residues);
                    residues[l] = canonical(i64::from(residues[l]) + i64::from(e), l) as i8;
                    // Known to 24 bits.
                    let wrong = (fraction(&residues) * f64::from(1 << 24)).round() / f64::from(1 << 24);
                    assert_eq!(wrong_modulus(wrong - right, n), Some(l), "N {n} p {p} e {e}");
                }
            }
            assert_eq!(wrong_modulus(1e-9, n), None);
            assert_eq!(wrong_modulus(1.0 - 1e-9, n), None);
            // Two wrong residues.
            assert_eq!(wrong_modulus(1.0 / 256.0 + 1.0 / 255.0, n), None);
        }
    }
}

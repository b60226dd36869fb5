//! The moduli and the constants of the Chinese remainder theorem (CRT), from exact arithmetic at compile time.

use super::wide::U192;

/// The largest number of moduli.
pub const MAX_MODULI: usize = 20;

/// Pairwise coprime, at most 256, so that a symmetric residue fits an `i8`. N moduli are always the first N.
pub const MODULI: [i32; MAX_MODULI] =
    [256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173];

/// Bits per limb of [`Crt::weights`]: a sum of 20 limbs times |y| <= 128 stays below 2^52, exact in a double.
pub const LIMB_BITS: u32 = 40;
/// Limbs that hold the product of 20 moduli (156 bits).
pub const LIMBS: usize = 4;

/// The CRT constants of the first `n` moduli.
pub struct Crt {
    /// Number of moduli, 2 to 20.
    pub n: usize,
    /// P_N, the product of the moduli.
    pub product: U192,
    /// H_N = floor((P_N - 1) / 2) - floor(P_N / 2^32): the largest |C'| that a plan may allow. The margin of P / 2^32 keeps
    /// the quotient of the reconstruction away from a tie (NUMERICS section 1).
    pub limit: U192,
    /// The same with the self-check: floor((P_N / 256 - 1) / 2) - floor(P_N / 2^20). One wrong residue moves C' by a multiple of
    /// P / p_l, at least P / 256, so that it is beyond P / 512 then; what is right stays below (NUMERICS section 5).
    pub checked_limit: U192,
    /// q_l = (P / p_l)^-1 mod p_l, in 1..p_l.
    pub inverses: [i32; MAX_MODULI],
    /// P / p_l in limbs of 40 bits, lowest first.
    pub weights: [[i64; LIMBS]; MAX_MODULI],
    /// P in limbs of 40 bits, lowest first.
    pub product_limbs: [i64; LIMBS],
    /// Limbs that P and the weights have.
    pub limbs: usize,
}

const fn inverse_modulo(a: i32, p: i32) -> i32 {
    let mut x = 1;
    while x < p {
        if a * x % p == 1 {
            return x;
        }
        x += 1;
    }
    panic!("the moduli are not coprime")
}

const fn limbs_of(x: U192) -> [i64; LIMBS] {
    let mut limbs = [0; LIMBS];
    let mut i = 0;
    while i < LIMBS {
        limbs[i] = (x.shr(i as u32 * LIMB_BITS).low() & ((1 << LIMB_BITS) - 1)) as i64;
        i += 1;
    }
    limbs
}

/// P_N, the product of the first `n` moduli.
pub const fn product_of(n: usize) -> U192 {
    let mut product = U192::ONE;
    let mut l = 0;
    while l < n {
        product = product.times(MODULI[l] as u64);
        l += 1;
    }
    product
}

const fn crt_of(n: usize) -> Crt {
    let product = product_of(n);
    let limit = product.minus(U192::ONE).shr(1).minus(product.shr(32));
    let checked_limit = product.shr(8).minus(U192::ONE).shr(1).minus(product.shr(20));
    let mut inverses = [0; MAX_MODULI];
    let mut weights = [[0; LIMBS]; MAX_MODULI];
    let mut l = 0;
    while l < n {
        let p = MODULI[l] as u64;
        let (weight, rest) = product.divided_by(p);
        assert!(rest == 0);
        inverses[l] = inverse_modulo(weight.divided_by(p).1 as i32, MODULI[l]);
        weights[l] = limbs_of(weight);
        l += 1;
    }
    Crt {
        n,
        product,
        limit,
        checked_limit,
        inverses,
        weights,
        product_limbs: limbs_of(product),
        limbs: product.bit_length().div_ceil(LIMB_BITS) as usize,
    }
}

static TABLE: [Crt; MAX_MODULI - 1] = {
    let mut table = [const { crt_of(2) }; MAX_MODULI - 1];
    let mut n = 2;
    while n <= MAX_MODULI {
        table[n - 2] = crt_of(n);
        n += 1;
    }
    table
};

impl Crt {
    /// The largest |C'| that a plan may allow, with or without room for the self-check.
    pub fn limit(&self, check: bool) -> U192 {
        if check { self.checked_limit } else { self.limit }
    }
}

/// |C'| / P above this is a fault where the self-check keeps room: half of 1 / 256, the distance that one wrong residue makes. Right
/// and wrong values both keep 2^-20 away from it, so no rounding on the way to the comparison matters.
pub const LEGAL: f64 = 1.0 / 512.0;

/// The constants for `n` moduli, 2 <= n <= 20.
pub fn crt(n: usize) -> &'static Crt {
    &TABLE[n - 2]
}

/// The canonical residue of `x` modulo the `l`-th modulus: in [-(p-1)/2, (p-1)/2] for odd p, in [-128, 127] for 256.
pub const fn canonical(x: i64, l: usize) -> i32 {
    let p = MODULI[l] as i64;
    let r = x.rem_euclid(p);
    (if r > (p - 1) / 2 { r - p } else { r }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    fn big(x: U192) -> BigUint {
        x.words().iter().rev().fold(BigUint::ZERO, |sum, &word| (sum << 64) + word)
    }

    fn big_limbs(limbs: &[i64; LIMBS]) -> BigUint {
        limbs.iter().rev().fold(BigUint::ZERO, |sum, &limb| (sum << LIMB_BITS) + limb as u64)
    }

    #[test]
    fn constants_agree_with_big_integers_for_every_n() {
        for n in 2..=MAX_MODULI {
            let crt = crt(n);
            let product: BigUint = MODULI[..n].iter().map(|&p| BigUint::from(p as u32)).product();
            assert_eq!(crt.n, n);
            assert_eq!(big(crt.product), product);
            assert_eq!(big_limbs(&crt.product_limbs), product);
            let margin: BigUint = &product >> 32;
            assert_eq!(big(crt.limit(false)), (&product - 1u32) / 2u32 - margin);
            let spread = &product / 256u32;
            assert_eq!(big(crt.limit(true)), (&spread - 1u32) / 2u32 - (&product >> 20));
            for l in 0..n {
                let weight = &product / MODULI[l] as u32;
                assert_eq!(big_limbs(&crt.weights[l]), weight);
                assert_eq!(
                    weight * crt.inverses[l] as u32 % MODULI[l] as u32,
                    BigUint::from(1u32),
                    "N {n} l {l}"
                );
            }
        }
    }

    #[test]
    fn canonical_residues_lie_in_their_range_and_are_congruent() {
        for l in 0..MAX_MODULI {
            let p = i64::from(MODULI[l]);
            for x in (-2 * p..=2 * p).chain([i64::from(i32::MIN), i64::from(i32::MAX)]) {
                let r = i64::from(canonical(x, l));
                assert_eq!((x - r) % p, 0);
                assert!(
                    if p == 256 { (-128..=127).contains(&r) } else { r.abs() <= (p - 1) / 2 },
                    "x {x} p {p}"
                );
            }
        }
    }
}

//! Constants of the vector kernels, from exact arithmetic at compile time.

use crate::ozaki::moduli::{MAX_MODULI, MODULI, canonical, product_of};
use crate::ozaki::wide::U192;

/// Parts of 48 bits that a scaled element may have: |a'| < 2^155 where its residues matter.
pub const PARTS: usize = 3;
/// Bits of a part: part i counts 2^(48 i).
pub const PART_BITS: u32 = 48;

/// The constants of a reduction modulo one p of a sum s of bytes times coefficients, |s| < 2^20: q = RN(s / p) comes out of a
/// float multiplication, and r = s - q p. For odd p the quotient is at least 1 / (2 p) away from a tie, far more than the error
/// of the multiplication. For p = 256 the low byte of s is the residue, and no constants are needed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Modulus {
    /// 1 / p.
    pub inverse: f32,
    /// The 16-bit pair (-p, 0): times the pair (q, anything) it gives -q p.
    pub negative: i32,
}

/// The constants for the residues of 64-bit integers x_i, sum_i x_i 2^(48 i), read as unsigned bytes of x_i + 2^63.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Residue {
    /// -sum_i 2^63 2^(48 i) for one, two and three parts.
    pub start: [i32; PARTS],
    /// 2^(48 i + 8 j) mod p for bytes 0..3 and 4..7 of x_i: four signed bytes each.
    pub low: [i32; PARTS],
    pub high: [i32; PARTS],
    pub modulus: Modulus,
}

const fn power(x: u32, p: i64) -> i64 {
    let (mut r, mut i) = (1, 0);
    while i < x {
        r = 2 * r % p;
        i += 1;
    }
    r
}

/// Four signed bytes: factor 2^(first + 8 j) modulo the `l`-th modulus for j = 0..3.
pub const fn coefficients(factor: i64, first: u32, l: usize) -> i32 {
    let p = MODULI[l] as i64;
    let (mut bytes, mut j) = ([0; 4], 0);
    while j < 4 {
        bytes[j] = canonical(factor * power(first + 8 * j as u32, p), l) as u8;
        j += 1;
    }
    i32::from_le_bytes(bytes)
}

pub const fn modulus(l: usize) -> Modulus {
    let p = MODULI[l];
    Modulus { inverse: 1.0 / p as f32, negative: (-p) as i16 as u16 as i32 }
}

const fn residue(l: usize) -> Residue {
    let p = MODULI[l] as i64;
    let mut out = Residue { start: [0; PARTS], low: [0; PARTS], high: [0; PARTS], modulus: modulus(l) };
    let (mut i, mut start) = (0, 0);
    while i < PARTS {
        let first = PART_BITS * i as u32;
        start -= power(63 + first, p);
        out.start[i] = canonical(start, l);
        out.low[i] = coefficients(1, first, l);
        out.high[i] = coefficients(1, first + 32, l);
        i += 1;
    }
    out
}

pub static RESIDUES: [Residue; MAX_MODULI] = {
    let mut table = [const { residue(0) }; MAX_MODULI];
    let mut l = 0;
    while l < MAX_MODULI {
        table[l] = residue(l);
        l += 1;
    }
    table
};

/// Limbs of the CRT sums, at most.
pub const MOST_LIMBS: usize = 5;

/// Two moduli of the CRT: z = y_a p_b + y_b p_a, shifted by p_a p_b to be positive, has the weight P / (p_a p_b). The last of an
/// odd number of moduli stands alone: z = y_a + p_a.
#[derive(Clone, Copy)]
pub struct Pair {
    /// p_a p_b, or p_a.
    pub start: i32,
    /// (p_b, p_a) as unsigned bytes, in the low or the high half.
    pub weights: i32,
    /// What 256 lacks in an unsigned byte: the second half of it.
    pub extra: i32,
    /// The weight in limbs.
    pub limbs: [i64; MOST_LIMBS],
}

/// The CRT of N moduli in limbs of `width` bits: z is below 2^17 and a limb below 2^35, so the products fit the 52 bits of an
/// integer multiply-add; the top limbs may be as large as the same 52 bits allow.
pub struct Crt {
    pub limbs: usize,
    pub width: u32,
    pub pairs: usize,
    pub pair: [Pair; MAX_MODULI / 2],
    /// P in limbs.
    pub product: [i64; MOST_LIMBS],
    /// Half of the unit of a limb.
    pub half: i64,
    /// 2^(width i) / P for the three highest limbs, highest first; the error of the quotient that they give is far below the
    /// distance of 2^-32 that C' / P keeps from a tie.
    pub quotient: [f64; 3],
    /// 1 / P.
    pub quotient_of_one: f64,
    /// What a half in each of the next two limbs adds to the quotient.
    pub quotient_of_halves: f64,
}

const fn cut(x: U192, width: u32, limbs: usize) -> [i64; MOST_LIMBS] {
    let (mut out, mut i) = ([0; MOST_LIMBS], 0);
    while i < limbs {
        let rest = x.shr(width * i as u32);
        let top = i + 1 == limbs;
        assert!(!top || rest.bit_length() < 63);
        out[i] = if top { rest.low() } else { rest.low() & ((1 << width) - 1) } as i64;
        i += 1;
    }
    out
}

const fn as_double(x: U192) -> f64 {
    let [a, b, c] = x.words();
    let two64 = 18446744073709551616.0;
    (c as f64 * two64 + b as f64) * two64 + a as f64
}

const fn power_of_two(x: u32) -> f64 {
    f64::from_bits((1023 + x as u64) << 52)
}

/// Bits of z: 2^17 for pairs, 2^9 for a modulus alone.
const PAIR_BITS: u32 = 17;
const SINGLE_BITS: u32 = 9;

/// The weights in limbs of `width`, or None where a product could pass 52 bits.
const fn try_crt(n: usize, limbs: usize, width: u32) -> Option<Crt> {
    let product = product_of(n);
    let top = width * (limbs as u32 - 1);
    // The quotient is below 2 pairs + 1 <= 21 < 2^5.
    if width > 52 - PAIR_BITS || product.shr(top).bit_length() + 5 > 52 {
        return None;
    }
    let none = Pair { start: 0, weights: 0, extra: 0, limbs: [0; MOST_LIMBS] };
    let mut out = Crt {
        limbs,
        width,
        pairs: n.div_ceil(2),
        pair: [none; MAX_MODULI / 2],
        product: cut(product, width, limbs),
        half: 1 << (width - 1),
        quotient: [0.0; 3],
        quotient_of_one: 1.0 / as_double(product),
        quotient_of_halves: 0.0,
    };
    let mut t = 0;
    while t < out.pairs {
        let single = 2 * t + 1 == n;
        let a = MODULI[2 * t];
        let b = if single { 1 } else { MODULI[2 * t + 1] };
        let weight = product.divided_by((a * b) as u64).0;
        let bits = if single { SINGLE_BITS } else { PAIR_BITS };
        if weight.shr(top).bit_length() + bits > 52 {
            return None;
        }
        let (of_a, of_b) = if single { (1, 0) } else { (b, a) };
        // 256 = 128 + 128 in unsigned bytes.
        let (first, second) = if of_b > 255 { (128, of_b - 128) } else { (of_b, 0) };
        let shift = 16 * (t as u32 % 2);
        out.pair[t] = Pair {
            start: a * b,
            weights: (of_a | first << 8) << shift,
            extra: second << 8 << shift,
            limbs: cut(weight, width, limbs),
        };
        t += 1;
    }
    let mut i = 0;
    while i < 3 && i < limbs {
        out.quotient[i] = power_of_two(width * (limbs - 1 - i) as u32) / as_double(product);
        if i > 0 {
            out.quotient_of_halves += out.half as f64 * out.quotient[i];
        }
        i += 1;
    }
    Some(out)
}

const fn crt_of(n: usize) -> Crt {
    let product = product_of(n);
    let mut limbs = 1;
    while limbs <= MOST_LIMBS {
        // Even limbs first: then the two or three highest hold most of the number.
        let even = product.bit_length().div_ceil(limbs as u32);
        let widest = 52 - PAIR_BITS;
        if let Some(crt) = try_crt(n, limbs, if even < widest { even } else { widest }) {
            return crt;
        }
        limbs += 1;
    }
    panic!("no limbs hold the product")
}

static CRT: [Crt; MAX_MODULI - 1] = {
    let mut table = [const { crt_of(2) }; MAX_MODULI - 1];
    let mut n = 2;
    while n <= MAX_MODULI {
        table[n - 2] = crt_of(n);
        n += 1;
    }
    table
};

/// The constants for `n` moduli, 2 <= n <= 20.
pub fn crt(n: usize) -> &'static Crt {
    &CRT[n - 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the comments on the quotient promise: the limbs that it leaves out are worth less than 2^-40 of P.
    #[test]
    fn the_quotient_sees_enough_limbs() {
        for n in 2..=MAX_MODULI {
            let crt = crt(n);
            let bits: f64 = MODULI[..n].iter().map(|&p| f64::from(p).log2()).sum();
            if crt.limbs > 3 {
                // Sums of ten products below 2^52 in the highest limb left out.
                let left_out = f64::from(crt.width * (crt.limbs as u32 - 4)) + 52.0 + 4.0;
                assert!(left_out - bits < -40.0, "N {n}");
            }
        }
    }
}

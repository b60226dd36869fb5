//! Exact integers wider than 128 bits, and exact comparison of scaled integers.

/// An unsigned integer of 192 bits, three words, lowest first. Only what the CRT constants need; overflow panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct U192([u64; 3]);

impl U192 {
    pub const ONE: Self = Self([1, 0, 0]);

    pub const fn words(self) -> [u64; 3] {
        self.0
    }

    pub const fn low(self) -> u64 {
        self.0[0]
    }

    pub const fn times(self, factor: u64) -> Self {
        let mut out = [0; 3];
        let mut carry = 0u128;
        let mut i = 0;
        while i < 3 {
            let t = self.0[i] as u128 * factor as u128 + carry;
            out[i] = t as u64;
            carry = t >> 64;
            i += 1;
        }
        assert!(carry == 0);
        Self(out)
    }

    /// Quotient and remainder.
    pub const fn divided_by(self, divisor: u64) -> (Self, u64) {
        let mut out = [0; 3];
        let mut rest = 0u128;
        let mut i = 3;
        while i > 0 {
            i -= 1;
            let t = (rest << 64) | self.0[i] as u128;
            out[i] = (t / divisor as u128) as u64;
            rest = t % divisor as u128;
        }
        (Self(out), rest as u64)
    }

    pub const fn minus(self, other: Self) -> Self {
        let mut out = [0; 3];
        let mut borrow = false;
        let mut i = 0;
        while i < 3 {
            let (t, b1) = self.0[i].overflowing_sub(other.0[i]);
            let (t, b2) = t.overflowing_sub(borrow as u64);
            out[i] = t;
            borrow = b1 || b2;
            i += 1;
        }
        assert!(!borrow);
        Self(out)
    }

    pub const fn shr(self, bits: u32) -> Self {
        let (skip, shift) = ((bits / 64) as usize, bits % 64);
        let mut out = [0; 3];
        let mut i = 0;
        while i + skip < 3 {
            out[i] = self.0[i + skip] >> shift;
            if shift > 0 && i + skip + 1 < 3 {
                out[i] |= self.0[i + skip + 1] << (64 - shift);
            }
            i += 1;
        }
        Self(out)
    }

    pub const fn bit_length(self) -> u32 {
        let mut i = 3;
        while i > 0 {
            i -= 1;
            if self.0[i] != 0 {
                return 64 * i as u32 + 64 - self.0[i].leading_zeros();
            }
        }
        0
    }
}

/// A positive number u 2^x in a form whose order is the order of the numbers: `bits` with 2^(bits-1) <= number < 2^bits, and
/// the leading 64 bits. Exact for every u of up to 64 bits, so no comparison of the plan needs a logarithm or a wide shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Magnitude {
    bits: i32,
    leading: u64,
}

impl Magnitude {
    /// Below every other magnitude.
    pub const NONE: Self = Self { bits: i32::MIN, leading: 0 };

    /// u 2^x for u > 0.
    pub fn new(u: u64, x: i32) -> Self {
        let zeros = u.leading_zeros();
        Self { bits: 64 - zeros as i32 + x, leading: u << zeros }
    }

    /// What a device found: the bits, and the leading 64 bits with the top one set.
    pub fn from_parts(bits: i32, leading: u64) -> Self {
        debug_assert!(leading >> 63 == 1);
        Self { bits, leading }
    }

    /// The leading 64 bits of a wide integer: `Magnitude::new(u, x) <= Magnitude::limit(h)` exactly when u 2^x <= h, since
    /// u has at most 64 bits and what is cut from h can only make it larger.
    pub fn limit(h: U192) -> Self {
        let bits = h.bit_length();
        let leading = if bits >= 64 { h.shr(bits - 64).low() } else { h.low() << (64 - bits) };
        Self { bits: bits as i32, leading }
    }

    /// The largest integer s, of any sign, with 4^s times this number <= `limit`.
    pub fn spare_quarter_powers(self, limit: Self) -> i32 {
        let room = limit.bits - self.bits - i32::from(self.leading > limit.leading);
        room.div_euclid(2)
    }

    /// The least integer c, of any sign, with this number <= 2^c times `other`.
    pub fn ceil_log2_ratio(self, other: Self) -> i32 {
        self.bits - other.bits + i32::from(self.leading > other.leading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use proptest::prelude::*;

    fn big(x: U192) -> BigUint {
        x.words().iter().rev().fold(BigUint::ZERO, |sum, &word| (sum << 64) + word)
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_big_integers(a in any::<[u64; 2]>(), b in any::<u64>(), d in 1u64.., s in 0u32..192) {
            let x = U192([a[0], a[1], 0]);
            prop_assert_eq!(big(x.times(b)), big(x) * b);
            let (quotient, rest) = x.times(b).divided_by(d);
            prop_assert_eq!(big(quotient) * d + rest, big(x) * b);
            prop_assert_eq!(big(x.times(b).shr(s)), (big(x) * b) >> s);
            prop_assert_eq!(u64::from(x.times(b).bit_length()), (big(x) * b).bits());
            prop_assert_eq!(big(x.times(b | 1).minus(x)), big(x) * (b | 1) - big(x));
        }

        #[test]
        fn magnitudes_compare_as_numbers(u in 1u64.., x in 0i32..100, h in any::<[u64; 3]>(), v in 1u64..) {
            let h = U192([h[0], h[1], h[2] | 1]);
            let fits = |s: i32| {
                let left = BigUint::from(u) << (x + 2 * s + 400) as u32;
                left <= big(h) << 400u32
            };
            prop_assert_eq!(Magnitude::new(u, x) <= Magnitude::limit(h), fits(0));
            let s = Magnitude::new(u, x).spare_quarter_powers(Magnitude::limit(h));
            prop_assert!(fits(s) && !fits(s + 1));
            let c = Magnitude::new(u, 0).ceil_log2_ratio(Magnitude::new(v, 0));
            let covers = |c: i32| BigUint::from(u) << 100u32 <= BigUint::from(v) << (100 + c) as u32;
            prop_assert!(covers(c) && !covers(c - 1));
        }
    }

    #[test]
    fn small_limits_compare_exactly() {
        for h in 1u64..300 {
            for u in 1u64..300 {
                assert_eq!(Magnitude::new(u, 0) <= Magnitude::limit(U192([h, 0, 0])), u <= h);
                assert_eq!(Magnitude::new(u, -1) <= Magnitude::limit(U192([h, 0, 0])), u <= 2 * h);
            }
        }
    }
}

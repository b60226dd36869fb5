//! Multiplication by constants modulo 32-bit numbers, in operations that vector units have.

/// A constant factor modulo m, with what makes a product modulo m two multiplications and a subtraction (the method of V.
/// Shoup's NTL): floor(factor 2^32 / m).
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    factor: u32,
    ratio: u32,
}

impl Factor {
    /// 0 <= factor < m.
    pub fn new(factor: u32, m: u32) -> Self {
        assert!(factor < m);
        Self { factor, ratio: ((u64::from(factor) << 32) / u64::from(m)) as u32 }
    }

    /// x factor modulo m, or that plus m: below 2 m. `x` is any number of 32 bits.
    ///
    /// With q = floor(x ratio / 2^32): ratio > factor 2^32 / m - 1 gives q > x factor / m - x / 2^32 - 1, so that
    /// 0 <= x factor - q m < 2 m.
    #[inline(always)]
    pub fn times_twice(self, x: u64, m: u32) -> u64 {
        let quotient = (x * u64::from(self.ratio)) >> 32;
        x * u64::from(self.factor) - quotient * u64::from(m)
    }

    /// x factor modulo m.
    #[inline(always)]
    pub fn times(self, x: u64, m: u32) -> u64 {
        wrapped(self.times_twice(x, m).wrapping_sub(m.into()), m)
    }
}

/// `difference` of two numbers, from -m to m - 1 in two's complement, plus m if it is negative. A mask from the sign, since
/// SSE2 cannot compare numbers of 64 bits.
#[inline(always)]
pub fn wrapped(difference: u64, m: u32) -> u64 {
    difference.wrapping_add(u64::from(m) & 0u64.wrapping_sub(difference >> 63))
}

/// The inverse of `a` modulo `m`, which are coprime: 0 < a^-1 < m, by Euclid's algorithm. `a` may be larger than m.
pub fn inverse(a: u32, m: u32) -> u32 {
    let (mut r0, mut r1) = (i64::from(m), i64::from(a % m));
    let (mut t0, mut t1) = (0, 1);
    while r1 != 0 {
        let quotient = r0 / r1;
        (r0, r1) = (r1, r0 - quotient * r1);
        (t0, t1) = (t1, t0 - quotient * t1);
    }
    assert_eq!(r0, 1, "{a} and {m} are not coprime");
    t0.rem_euclid(i64::from(m)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agrees(x: u32, factor: u32, m: u32) {
        let (x, wide) = (u64::from(x), u64::from(m));
        let made = Factor::new(factor, m);
        let want = x * u64::from(factor) % wide;
        assert_eq!(made.times(x, m), want, "{x} * {factor} mod {m}");
        let twice = made.times_twice(x, m);
        assert!(twice == want || twice == want + wide, "{x} * {factor} mod {m}");
    }

    #[test]
    fn products_at_the_ends_of_the_range() {
        for m in [2, 3, 255, 256, 65535, 1 << 31, u32::MAX - 1, u32::MAX] {
            for factor in [0, 1, m / 2, m - 2, m - 1] {
                for x in [0, 1, m / 2, m - 1, m, u32::MAX] {
                    agrees(x, factor, m);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn products_agree_with_division(x: u32, factor: u32, m in 2..=u32::MAX) {
            agrees(x, factor % m, m);
        }

        #[test]
        fn an_inverse_times_its_number_is_one(a: u32, m in 2..=u32::MAX) {
            let (mut x, mut y) = (m, a);
            while y != 0 {
                (x, y) = (y, x % y);
            }
            prop_assume!(x == 1);
            prop_assert_eq!(u64::from(inverse(a, m)) * u64::from(a % m) % u64::from(m), 1);
        }
    }
}

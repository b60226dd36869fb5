//! Step 5c of the plan: powers of two along the inner dimension that make up for each other.
//!
//! Column h of op(A) is multiplied by 2^(d_h) and row h of op(B) by 2^(-d_h), exactly, which changes no product. Exponents are integers
//! throughout: what comes out may be beyond the range of doubles.

use super::float::parts;

/// The exponent of an inner index without a nonzero.
pub const EMPTY: i32 = i32::MIN;

/// The largest |d_h|. A line's largest element is below 1 before; so it stays between 2^-801 and 2^800, and what is saturated at 2^-1022
/// is some 220 bits below it (docs/accuracy.md (20)).
pub const MOST: i32 = 800;

/// The least integer e with |x| < 2^e, or [`EMPTY`] for zero.
#[inline]
pub fn exponent(x: f64) -> i32 {
    let (m, q) = parts(x);
    if m == 0 { EMPTY } else { q + 64 - m.leading_zeros() as i32 }
}

/// The exponents of the elements of all lines at one inner index, each relative to the exponent of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    /// [`EMPTY`] without a nonzero.
    pub most: i32,
    /// The sum over the lines with a nonzero, and their number.
    pub sum: i64,
    pub count: i64,
}

impl Inner {
    pub const NONE: Self = Self { most: EMPTY, sum: 0, count: 0 };

    /// The sum over the lines, divided by their number and rounded down; or [`EMPTY`].
    pub fn average(&self) -> i32 {
        if self.count == 0 { EMPTY } else { self.sum.div_euclid(self.count) as i32 }
    }
}

/// d_h = floor((F_h - E_h) / 2), from E_h of op(A) and F_h of op(B); 0 where either is [`EMPTY`]. None if that makes no difference to
/// any plan, since all are the same; or if there is no memory.
pub fn shifts(inner: [&[Inner]; 2], of: impl Fn(&Inner) -> i32) -> Option<Vec<i32>> {
    let shift = |(e, f): (&Inner, &Inner)| match (of(e), of(f)) {
        (EMPTY, _) | (_, EMPTY) => 0,
        (e, f) => (f - e).div_euclid(2).clamp(-MOST, MOST),
    };
    let all = || inner[0].iter().zip(inner[1]).map(shift);
    let first = all().next()?;
    if all().all(|d| d == first) {
        return None;
    }
    let mut out = Vec::new();
    out.try_reserve_exact(inner[0].len()).ok()?;
    out.extend(all());
    Some(out)
}

/// x 2^by, where that is below 2^1022; what is below 2^-1022 becomes +-2^-1022 and zero stays zero. For numbers that are looked at with
/// some 200 bits below 1, where that makes no difference.
#[inline(always)]
pub fn scaled(x: f64, by: i32) -> f64 {
    const REACH: i32 = 1000;
    let power = |p: i32| f64::from_bits(((1023 + p) as u64) << 52);
    let first = by.clamp(-REACH, REACH);
    let second = (by - first).clamp(-REACH, REACH);
    let third = (by - first - second).clamp(-REACH, REACH);
    // All three go the same way: nothing is lost on the way that is not lost at the end.
    let y = x.abs() * power(first) * power(second) * power(third);
    let y = if y < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { y };
    if x == 0.0 { x } else { y.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exponents_are_the_least() {
        for (x, e) in
            [(1.0, 1), (-0.75, 0), (0.5, 0), (5e-324, -1073), (f64::MAX, 1024), (-f64::MIN_POSITIVE, -1021)]
        {
            assert_eq!(exponent(x), e, "{x:e}");
        }
        assert_eq!(exponent(-0.0), EMPTY);
    }

    #[test]
    fn shifts_meet_half_way_and_equal_ones_are_none() {
        let shifts = |e: &[i32], f: &[i32]| {
            let inner =
                |x: &[i32]| -> Vec<Inner> { x.iter().map(|&most| Inner { most, ..Inner::NONE }).collect() };
            shifts([&inner(e), &inner(f)], |inner| inner.most)
        };
        assert_eq!(shifts(&[0, -3, EMPTY, -4], &[-4, 0, 7, -1]), Some(vec![-2, 1, 0, 1]));
        assert_eq!(shifts(&[0, -3], &[-4, -7]), None);
        assert_eq!(shifts(&[0, EMPTY], &[1, -7]), None); // floor(1/2) and the empty one
        assert_eq!(shifts(&[1, EMPTY], &[0, -7]), Some(vec![-1, 0])); // rounded down
        assert_eq!(shifts(&[], &[]), None);
    }

    #[test]
    fn averages_are_rounded_down() {
        let average = |sum, count| Inner { most: 0, sum, count }.average();
        assert_eq!([average(-5, 2), average(-4, 2), average(0, 1), average(-1, 1000)], [-3, -2, 0, -1]);
        assert_eq!(Inner::NONE.average(), EMPTY);
    }

    proptest! {
        #[test]
        fn scaling_is_exact_or_at_the_end_of_the_range(bits in any::<u64>(), by in -2300i32..2300) {
            let x = f64::from_bits(bits);
            prop_assume!(x.is_finite() && x != 0.0);
            prop_assume!(exponent(x) + by <= 1022);
            let y = scaled(x, by);
            prop_assert_eq!(y.is_sign_negative(), x.is_sign_negative());
            if exponent(x) + by >= -1021 {
                let ((m, q), (w, r)) = (parts(x), parts(y));
                let (low, high) = (m.trailing_zeros(), w.trailing_zeros());
                prop_assert_eq!((m >> low, q + low as i32 + by), (w >> high, r + high as i32));
            } else {
                prop_assert_eq!(y.abs(), f64::MIN_POSITIVE);
            }
        }
    }
}

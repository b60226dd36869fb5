//! Step 5c of the plan: powers of two along the inner dimension that make up for each other.
//!
//! Column h of op(A) is multiplied by 2^(d_h) and row h of op(B) by 2^(-d_h), exactly, which changes no product. Exponents are integers
//! throughout: what comes out may be beyond the range of doubles.

use super::float::parts;

/// The exponent of an inner index without a nonzero.
pub const EMPTY: i32 = i32::MIN;

/// The least integer e with |x| < 2^e, or [`EMPTY`] for zero.
#[inline]
pub fn exponent(x: f64) -> i32 {
    let (m, q) = parts(x);
    if m == 0 { EMPTY } else { q + 64 - m.leading_zeros() as i32 }
}

/// d_h from E_h = max_i (exponent of a_ih) - e_i and F_h = max_j (exponent of b_hj) - f_j: floor((F_h - E_h) / 2), 0 where either is
/// [`EMPTY`]. None if that makes no difference to any plan, since all are the same.
pub fn shifts(e: &[i32], f: &[i32]) -> Option<Vec<i32>> {
    let shift = |(&e, &f): (&i32, &i32)| if e == EMPTY || f == EMPTY { 0 } else { (f - e).div_euclid(2) };
    let first = e.iter().zip(f).map(shift).next()?;
    if e.iter().zip(f).map(shift).all(|d| d == first) {
        return None;
    }
    let mut out = Vec::new();
    out.try_reserve_exact(e.len()).ok()?;
    out.extend(e.iter().zip(f).map(shift));
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
        assert_eq!(shifts(&[0, -3, EMPTY, -4], &[-4, 0, 7, -1]), Some(vec![-2, 1, 0, 1]));
        assert_eq!(shifts(&[0, -3], &[-4, -7]), None);
        assert_eq!(shifts(&[0, EMPTY], &[1, -7]), None); // floor(1/2) and the empty one
        assert_eq!(shifts(&[1, EMPTY], &[0, -7]), Some(vec![-1, 0])); // rounded down
        assert_eq!(shifts(&[], &[]), None);
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

//! Doubles as integers: exact taking apart, and putting together with one correct rounding.

/// The bits of a double without its sign; values of this and above are Inf and NaN.
pub const NOT_FINITE: u64 = 0x7FF << 52;
const FRACTION: u64 = (1 << 52) - 1;

/// A finite double as (m, q): |x| = m 2^q with 0 <= m < 2^53 and q >= -1074.
#[inline]
pub fn parts(x: f64) -> (u64, i32) {
    let bits = x.to_bits() & !(1 << 63);
    let biased = (bits >> 52) as i32;
    let implicit = u64::from(biased != 0) << 52;
    ((bits & FRACTION) | implicit, biased.max(1) - 1075)
}

/// A finite nonzero double as (mu, nu) with x = mu 2^nu and 1 <= |mu| < 2, exact also for subnormal x.
pub fn normalised(x: f64) -> (f64, i32) {
    let (m, q) = parts(x);
    let top = 63 - m.leading_zeros() as i32;
    let fraction = (m << (52 - top)) & FRACTION;
    let mu = f64::from_bits((x.to_bits() & (1 << 63)) | (1023 << 52) | fraction);
    (mu, q + top)
}

/// The double nearest to +-(leading + s) 2^exponent, ties to even, where 0 <= s < 1 and s > 0 exactly if `sticky`; also into
/// the subnormal range, to zero and to infinity. `leading` must have its top bit set (or be zero, with `sticky` false).
#[inline]
pub fn round(negative: bool, leading: u64, sticky: bool, exponent: i32) -> f64 {
    let sign = u64::from(negative) << 63;
    if leading == 0 {
        return f64::from_bits(sign);
    }
    // The value lies in [2^top, 2^(top+1)); its last bit in a double has the weight 2^last.
    let top = exponent + 63;
    let last = (top - 52).max(-1074);
    let drop = last - exponent;
    if top > 1023 {
        return f64::from_bits(sign | NOT_FINITE);
    }
    if drop > 64 {
        return f64::from_bits(sign); // below half of the smallest subnormal
    }
    // 64 bits are dropped when the value lies between half and all of the smallest subnormal.
    let (kept, rest) = if drop == 64 { (0, leading) } else { (leading >> drop, leading << (64 - drop)) };
    let half = 1 << 63;
    let up = rest > half || (rest == half && (sticky || kept & 1 == 1));
    // kept holds the implicit bit of a normal result, which adds the one that is missing in the exponent field; a carry out
    // of the fraction moves into that field too, up to infinity.
    f64::from_bits(sign | ((((last + 1074) as u64) << 52) + kept + u64::from(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_normalised_are_exact() {
        for x in [1.0, -1.5, f64::MIN_POSITIVE, 5e-324, -7.0 * 5e-324, f64::MAX, 1.0 / 3.0] {
            let (m, q) = parts(x);
            let back = if q < -1000 {
                m as f64 * 2f64.powi(q + 500) * 2f64.powi(-500)
            } else {
                m as f64 * 2f64.powi(q)
            };
            assert_eq!(back, x.abs());
            let (mu, nu) = normalised(x);
            assert!((1.0..2.0).contains(&mu.abs()));
            let (half, rest) = (nu / 2, nu - nu / 2);
            assert_eq!(mu * 2f64.powi(half) * 2f64.powi(rest), x);
        }
        assert_eq!(parts(0.0), (0, -1074));
        assert_eq!(parts(-0.0), (0, -1074));
    }
}

//! Every step again in big integers, slowly and from the definitions alone: the oracle of the tests.
//!
//! Nothing here shares arithmetic with the other files (but the list of moduli), so that a mistake in one is seen in the other.

mod plan;
pub mod strassen;

use num_bigint::{BigInt, Sign};

use super::bound::Line;
use super::moduli::MODULI;
use super::plan::Plan;
pub use plan::{limit, plan_accurate, plan_auto, plan_fast};

/// A number m 2^e, exact.
#[derive(Clone, Debug)]
pub struct Dyadic {
    pub m: BigInt,
    pub e: i32,
}

impl Dyadic {
    /// A finite double.
    pub fn from(x: f64) -> Self {
        let bits = x.to_bits();
        let field = (bits >> 52 & 0x7FF) as i32;
        assert!(field < 0x7FF, "not finite");
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        let m = if field == 0 { fraction } else { fraction + (1 << 52) };
        let e = if field == 0 { -1074 } else { field - 1075 };
        Self { m: BigInt::from(if x.is_sign_negative() { -m } else { m }), e }
    }

    pub fn times(&self, other: &Self) -> Self {
        Self { m: &self.m * &other.m, e: self.e + other.e }
    }

    pub fn plus(&self, other: &Self) -> Self {
        let e = self.e.min(other.e);
        let lift = |x: &Self| &x.m << (x.e - e) as u32;
        Self { m: lift(self) + lift(other), e }
    }

    pub fn minus(&self, other: &Self) -> Self {
        self.plus(&Self { m: -&other.m, e: other.e })
    }

    pub fn abs(&self) -> Self {
        Self { m: BigInt::from(self.m.magnitude().clone()), e: self.e }
    }

    pub fn is_zero(&self) -> bool {
        self.m.sign() == Sign::NoSign
    }

    /// Is this number at most `other`?
    pub fn at_most(&self, other: &Self) -> bool {
        self.minus(other).m.sign() != Sign::Plus
    }

    /// The nearest integer, ties to even.
    pub fn nearest_integer(&self) -> BigInt {
        if self.e >= 0 {
            return &self.m << self.e as u32;
        }
        let drop = -self.e as u32;
        let magnitude = BigInt::from(self.m.magnitude().clone());
        let floor = &magnitude >> drop;
        let rest = &magnitude - (&floor << drop);
        let half = BigInt::from(1) << (drop - 1);
        let odd = floor.bit(0);
        let nearest = if rest > half || (rest == half && odd) { floor + 1 } else { floor };
        if self.m.sign() == Sign::Minus { -nearest } else { nearest }
    }

    /// The nearest double, ties to even; +0 for zero, +-Inf beyond the range.
    pub fn nearest(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let length = self.m.bits() as i32;
        let last = (self.e + length - 53).max(-1074); // weight of the last bit of the result
        let integer = Self { m: self.m.clone(), e: self.e - last }.nearest_integer();
        let (sign, digits) = integer.to_u64_digits();
        let magnitude = digits.first().copied().unwrap_or(0); // at most 2^53
        let (magnitude, last) = if magnitude == 1 << 53 { (1 << 52, last + 1) } else { (magnitude, last) };
        let bits = if magnitude >= 1 << 52 {
            let field = last + 1075;
            if field >= 0x7FF { 0x7FF << 52 } else { (field as u64) << 52 | (magnitude - (1 << 52)) }
        } else {
            magnitude
        };
        let x = f64::from_bits(bits);
        if sign == Sign::Minus || (sign == Sign::NoSign && self.m.sign() == Sign::Minus) { -x } else { x }
    }
}

/// The statistics of a line: step scan and the sums of step bound.
pub fn line(values: &[f64]) -> Line {
    line_of(&values.iter().map(|&x| Dyadic::from(x)).collect::<Vec<_>>())
}

/// The same for numbers of any exponent.
fn line_of(values: &[Dyadic]) -> Line {
    let nonzero: Vec<Dyadic> = values.iter().filter(|x| !x.is_zero()).map(Dyadic::abs).collect();
    let Some(exponent) = nonzero.iter().map(|x| x.e + x.m.bits() as i32).max() else {
        return Line { exponent: 0, exact_at: 0, nonzeros: 0, sum: 0, squares: 0 };
    };
    let lowest = nonzero.iter().map(|x| x.e + x.m.trailing_zeros().unwrap_or(0) as i32).min().unwrap_or(0);
    let digits: Vec<u64> = values.iter().map(|x| digits_of(x, exponent, 7)).collect();
    Line {
        exponent,
        exact_at: exponent - 7 - lowest,
        nonzeros: nonzero.len() as u64,
        sum: digits.iter().sum(),
        squares: digits
            .iter()
            .zip(values)
            .filter(|(_, x)| !x.is_zero())
            .map(|(d, _)| (d + 1) * (d + 1))
            .sum(),
    }
}

/// floor(|x| 2^(7-e)).
pub fn magnitude(x: f64, e: i32) -> u8 {
    u8::try_from(digits_of(&Dyadic::from(x), e, 7)).expect("|x| < 2^e")
}

/// floor(2^14 |x| 2^-e) mod 128.
pub fn second_magnitude(x: f64, e: i32) -> u8 {
    u8::try_from(digits_of(&Dyadic::from(x), e, 14) % 128).expect("seven bits")
}

/// floor(|x| 2^(bits-e)).
fn digits_of(x: &Dyadic, e: i32, bits: i32) -> u64 {
    let shift = x.e + bits - e;
    let m = x.abs().m;
    let floor = if shift >= 0 { m << shift as u32 } else { m >> (-shift) as u32 };
    u64::try_from(floor).expect("|x| < 2^e")
}

/// a' = RN_int(x 2^s).
pub fn scaled(x: f64, s: i32) -> BigInt {
    let x = Dyadic::from(x);
    Dyadic { m: x.m, e: x.e + s }.nearest_integer()
}

/// The canonical residue modulo the `l`-th modulus.
pub fn residue(x: &BigInt, l: usize) -> i8 {
    let p = BigInt::from(MODULI[l]);
    let r: BigInt = ((x % &p) + &p) % &p;
    let r = i32::try_from(r).expect("below p");
    (if 2 * r > MODULI[l] - 1 { r - MODULI[l] } else { r }) as i8
}

/// The integer of smallest magnitude with these residues modulo the first moduli, by Garner's mixed radix.
pub fn crt(residues: &[i8]) -> BigInt {
    let mut value = BigInt::ZERO;
    let mut product = BigInt::from(1);
    for (&r, &p) in residues.iter().zip(&MODULI) {
        while (&value - r) % p != BigInt::ZERO {
            value += &product;
        }
        product *= p;
    }
    if &value * 2 > product { value - product } else { value }
}

/// The output for an exact C' (NUMERICS section 4): alpha C' 2^-(scale) + beta c, with alpha = mu 2^nu.
pub fn output(product: &BigInt, scale: i32, alpha: f64, beta: f64, c: f64) -> f64 {
    let mut mu = alpha;
    let mut nu = 0;
    while mu.abs() >= 2.0 {
        mu /= 2.0;
        nu += 1;
    }
    while mu.abs() < 1.0 {
        mu *= 2.0;
        nu -= 1;
    }
    let rounded = Dyadic { m: product.clone(), e: nu - scale }.nearest();
    let addend = beta * c;
    if beta == 0.0 && mu == 1.0 {
        return rounded;
    }
    let addend = if beta == 0.0 { 0.0 } else { addend };
    if !rounded.is_finite() || !addend.is_finite() {
        return mu * rounded + addend;
    }
    let sum = Dyadic::from(mu).times(&Dyadic::from(rounded)).plus(&Dyadic::from(addend));
    // An exact zero has the sign that IEEE addition gives: the common sign of the two, else plus.
    if sum.is_zero() { mu * rounded + addend } else { sum.nearest() }
}

/// The exact C' = A'B' of a plan: `a` holds the m rows of op(A) and `b` the n columns of op(B), each `k` long. Lines that are out
/// count as zeros. Column-major m x n.
pub fn integer_product(a: &[f64], b: &[f64], k: usize, plan: &Plan) -> Vec<BigInt> {
    let scale = |values: &[f64], exponents: &[i32], out: &[usize], sign: i32| -> Vec<BigInt> {
        let inner = |h: usize| plan.inner.get(h).map_or(0, |d| sign * d);
        let mut all = Vec::new();
        for (i, &s) in exponents.iter().enumerate() {
            let line = &values[i * k..][..k];
            let zero = out.contains(&i);
            all.extend(
                line.iter().enumerate().map(
                    |(h, &x)| {
                        if zero { BigInt::ZERO } else { scaled(x, s + inner(h)) }
                    },
                ),
            );
        }
        all
    };
    let a = scale(a, &plan.rows, &plan.out.rows, 1);
    let b = scale(b, &plan.columns, &plan.out.columns, -1);
    let mut out = Vec::new();
    for j in 0..plan.columns.len() {
        for i in 0..plan.rows.len() {
            let terms = a[i * k..][..k].iter().zip(&b[j * k..][..k]);
            out.push(terms.fold(BigInt::ZERO, |sum, (x, y)| sum + x * y));
        }
    }
    out
}

/// The whole emulated call: alpha op(A) op(B) + beta C with the given plan; layout as in [`integer_product`], `c` m x n
/// column-major (not read when beta is 0). Entries of lines that are out stay as they are in `c`.
pub fn product(a: &[f64], b: &[f64], k: usize, plan: &Plan, alpha: f64, beta: f64, c: &[f64]) -> Vec<f64> {
    let m = plan.rows.len();
    let entry = |(at, x): (usize, &BigInt)| {
        let (i, j) = (at % m, at / m);
        if plan.out.rows.contains(&i) || plan.out.columns.contains(&j) {
            return c[at];
        }
        let c = if beta == 0.0 { 0.0 } else { c[at] };
        output(x, plan.rows[i] + plan.columns[j], alpha, beta, c)
    };
    integer_product(a, b, k, plan).iter().enumerate().map(entry).collect()
}

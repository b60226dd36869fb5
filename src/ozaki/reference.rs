//! Every step again in big integers, slowly and from the definitions alone: the oracle of the tests.
//!
//! Nothing here shares arithmetic with the other files (but the list of moduli), so that a mistake in one is seen in the other.

use num_bigint::{BigInt, Sign};

use super::bound::Line;
use super::moduli::MODULI;
use super::plan::{Accuracy, NoPlan, Plan};

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
    let nonzero: Vec<Dyadic> = values.iter().filter(|&&x| x != 0.0).map(|&x| Dyadic::from(x).abs()).collect();
    let Some(exponent) = nonzero.iter().map(|x| x.e + x.m.bits() as i32).max() else {
        return Line { exponent: 0, exact_at: 0, nonzeros: 0, sum: 0, squares: 0 };
    };
    let lowest = nonzero.iter().map(|x| x.e + x.m.trailing_zeros().unwrap_or(0) as i32).min().unwrap_or(0);
    let digits: Vec<u64> = values.iter().map(|&x| u64::from(magnitude(x, exponent))).collect();
    Line {
        exponent,
        exact_at: exponent - 7 - lowest,
        nonzeros: nonzero.len() as u64,
        sum: digits.iter().sum(),
        squares: digits.iter().zip(values).filter(|&(_, &x)| x != 0.0).map(|(d, _)| (d + 1) * (d + 1)).sum(),
    }
}

/// floor(|x| 2^(7-e)).
pub fn magnitude(x: f64, e: i32) -> u8 {
    let x = Dyadic::from(x).abs();
    let shift = x.e + 7 - e;
    let floor = if shift >= 0 { x.m << shift as u32 } else { x.m >> (-shift) as u32 };
    u8::try_from(floor).expect("|x| < 2^e")
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

/// The exact C' = A'B' of a plan: `a` holds the m rows of op(A) and `b` the n columns of op(B), each `k` long.
/// Column-major m x n.
pub fn integer_product(a: &[f64], b: &[f64], k: usize, plan: &Plan) -> Vec<BigInt> {
    let scale = |values: &[f64], exponents: &[i32]| -> Vec<BigInt> {
        let line = |(i, &s): (usize, &i32)| values[i * k..][..k].iter().map(move |&x| scaled(x, s));
        exponents.iter().enumerate().flat_map(line).collect()
    };
    let (a, b) = (scale(a, &plan.rows), scale(b, &plan.columns));
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
/// column-major (not read when beta is 0).
pub fn product(a: &[f64], b: &[f64], k: usize, plan: &Plan, alpha: f64, beta: f64, c: &[f64]) -> Vec<f64> {
    let m = plan.rows.len();
    integer_product(a, b, k, plan)
        .iter()
        .enumerate()
        .map(|(at, x)| {
            let c = if beta == 0.0 { 0.0 } else { c[at] };
            output(x, plan.rows[at % m] + plan.columns[at / m], alpha, beta, c)
        })
        .collect()
}

/// H_N of NUMERICS section 1.
fn limit(moduli: usize) -> BigInt {
    let product: BigInt = MODULI[..moduli].iter().map(|&p| BigInt::from(p)).product();
    (&product - 1) / 2 - (product >> 32)
}

/// u 2^x <= h, exactly.
fn fits(u: u64, x: i32, h: &BigInt) -> bool {
    if x >= 0 { BigInt::from(u) << x as u32 <= *h } else { BigInt::from(u) <= h << -x as u32 }
}

/// The largest integer s with 4^s u <= h.
fn largest_quarter_power(u: u64, h: &BigInt) -> i32 {
    (-100..100).rev().find(|s| fits(u, 2 * s, h)).expect("100 bits on either side are enough")
}

/// ceil(lg x/g): the least integer c with x <= 2^c g.
fn ceil_lg(x: u64, g: u64) -> i32 {
    (-70..70).find(|&c| BigInt::from(x) << 70 <= BigInt::from(g) << (70 + c) as u32).expect("64 bits")
}

/// floor(lg T) for n nonzeros.
fn floor_lg_t(accuracy: Accuracy, n: u64) -> i32 {
    // Squares, since T = 2 sqrt(n) is no integer.
    let square: u128 = match accuracy {
        Accuracy::Fp64 => 4 * u128::from(n),
        Accuracy::Textbook => u128::from((n - 1).max(1)).pow(2),
        Accuracy::High => 1,
    };
    (0..64).rev().find(|&f| 1u128.checked_shl(2 * f).is_some_and(|power| power <= square)).unwrap_or(0) as i32
}

/// The operands of a call as their lines, with everything that the plan looks at.
struct Statistics {
    a: Vec<Line>,
    b: Vec<Line>,
    /// G_ij at [j][i].
    g: Vec<Vec<u64>>,
    /// Whether row i and column j have a nonzero in common, at [j][i].
    meet: Vec<Vec<bool>>,
}

impl Statistics {
    fn of(a: &[f64], b: &[f64], k: usize) -> Self {
        let rows: Vec<&[f64]> = a.chunks(k).collect();
        let columns: Vec<&[f64]> = b.chunks(k).collect();
        let lines = |lines: &[&[f64]]| -> Vec<Line> { lines.iter().map(|values| line(values)).collect() };
        let (la, lb) = (lines(&rows), lines(&columns));
        let entry = |x: &[f64], e: i32, y: &[f64], f: i32| -> u64 {
            x.iter().zip(y).map(|(&x, &y)| u64::from(magnitude(x, e)) * u64::from(magnitude(y, f))).sum()
        };
        let over = |f: &dyn Fn(usize, usize) -> u64| -> Vec<Vec<u64>> {
            (0..lb.len()).map(|j| (0..la.len()).map(|i| f(i, j)).collect()).collect()
        };
        let g = over(&|i, j| entry(rows[i], la[i].exponent, columns[j], lb[j].exponent));
        let meet = over(&|i, j| rows[i].iter().zip(columns[j]).any(|(&x, &y)| x != 0.0 && y != 0.0).into());
        let meet = meet.iter().map(|column| column.iter().map(|&x| x == 1).collect()).collect();
        Self { a: la, b: lb, g, meet }
    }

    fn upper(&self, i: usize, j: usize) -> u64 {
        let (row, column) = (&self.a[i], &self.b[j]);
        self.g[j][i] + row.sum + column.sum + row.nonzeros.min(column.nonzeros)
    }

    /// The pairs of a row and a column that both have a nonzero.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let columns = (0..self.b.len()).filter(|&j| self.b[j].nonzeros > 0);
        columns.flat_map(|j| (0..self.a.len()).filter(|&i| self.a[i].nonzeros > 0).map(move |i| (i, j)))
    }

    fn finish(&self, moduli: usize, sigma: &[i32], tau: &[i32]) -> Plan {
        let shift = |lines: &[Line], sigmas: &[i32]| {
            let s =
                |(line, sigma): (&Line, &i32)| if line.nonzeros == 0 { 0 } else { sigma + 7 - line.exponent };
            lines.iter().zip(sigmas).map(s).collect()
        };
        Plan { moduli, rows: shift(&self.a, sigma), columns: shift(&self.b, tau) }
    }

    fn fixed(&self, moduli: usize, row: &[u64], column: &[u64]) -> Result<Plan, NoPlan> {
        let h = limit(moduli);
        let sigmas = |sums: &[u64]| -> Vec<i32> {
            sums.iter().map(|&sum| if sum == 0 { 0 } else { largest_quarter_power(sum, &h) }).collect()
        };
        let (sigma, tau) = (sigmas(row), sigmas(column));
        if sigma.iter().chain(&tau).any(|&s| s < -1) {
            Err(NoPlan::Range)
        } else {
            Ok(self.finish(moduli, &sigma, &tau))
        }
    }
}

/// Mode fast (NUMERICS section 3); layout of the operands as in [`integer_product`].
pub fn plan_fast(a: &[f64], b: &[f64], k: usize, moduli: usize) -> Result<Plan, NoPlan> {
    let s = Statistics::of(a, b, k);
    let squares = |lines: &[Line]| -> Vec<u64> { lines.iter().map(|line| line.squares).collect() };
    s.fixed(moduli, &squares(&s.a), &squares(&s.b))
}

/// Mode accurate.
pub fn plan_accurate(a: &[f64], b: &[f64], k: usize, moduli: usize) -> Result<Plan, NoPlan> {
    let s = Statistics::of(a, b, k);
    let (mut row, mut column) = (vec![0; s.a.len()], vec![0; s.b.len()]);
    for (i, j) in s.pairs() {
        row[i] = s.upper(i, j).max(row[i]);
        column[j] = s.upper(i, j).max(column[j]);
    }
    s.fixed(moduli, &row, &column)
}

/// Mode auto, steps 1 to 4 with 5a.
pub fn plan_auto(a: &[f64], b: &[f64], k: usize, accuracy: Accuracy, most: usize) -> Result<Plan, NoPlan> {
    let s = Statistics::of(a, b, k);
    let (mut row, mut column) = (vec![0; s.a.len()], vec![0; s.b.len()]);
    for (i, j) in s.pairs().filter(|&(i, j)| s.meet[j][i]) {
        let (x, y) = (&s.a[i], &s.b[j]);
        let bits = 53 - floor_lg_t(accuracy, x.nonzeros.min(y.nonzeros));
        let need = |sum: u64| if s.g[j][i] == 0 { 10_000 } else { bits + ceil_lg(sum, s.g[j][i]) };
        row[i] = need(y.sum + y.nonzeros).max(row[i]);
        column[j] = need(x.sum + x.nonzeros).max(column[j]);
    }
    for (needs, lines) in [(&mut row, &s.a), (&mut column, &s.b)] {
        for (need, line) in needs.iter_mut().zip(lines) {
            *need = if line.nonzeros == 0 { 0 } else { (*need).min(line.exact_at) };
        }
    }
    let holds = |moduli: usize, extra: i32| {
        let h = limit(moduli);
        s.pairs().all(|(i, j)| fits(s.upper(i, j), row[i] + column[j] + 2 * extra, &h))
    };
    let moduli = (2..=most).find(|&n| holds(n, 0)).ok_or(NoPlan::NotProvable)?;
    let spare = if s.pairs().next().is_none() {
        0
    } else {
        (0..200).take_while(|&d| holds(moduli, d)).last().unwrap_or(0)
    };
    let with = |needs: Vec<i32>| -> Vec<i32> { needs.iter().map(|need| need + spare).collect() };
    Ok(s.finish(moduli, &with(row), &with(column)))
}

//! What the tests draw: calls whose lines are of many kinds.

use proptest::prelude::*;

use crate::common::{Problem, Random};

/// What the elements of a line are like.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Uniform,
    /// Of so many bits.
    Integers(u32),
    Float32,
    Signs,
    /// A single nonzero.
    OneHot,
    /// Nine of ten are zeros.
    Sparse,
    /// Exponents spread over so many bits.
    Wide(u32),
    Subnormal,
    /// Near the end of the range.
    Huge,
    /// Just below powers of two: magnitudes as far from their upper bounds as can be.
    Below,
    /// Exactly at, just above and just below multiples of 1/128: where magnitudes and exponents change.
    Edges,
    Zeros,
    /// Exponents spread over the whole range: no plan serves such a line with one like it.
    Hopeless,
    /// Uniform, with NaN somewhere, or Inf.
    NotFinite(f64),
}

fn power(e: i32) -> f64 {
    match e {
        1024.. => f64::INFINITY,
        -1022.. => f64::from_bits(((e + 1023) as u64) << 52),
        -1074.. => f64::from_bits(1 << (e + 1074)),
        _ => 0.0,
    }
}

/// x 2^by, kept within the range.
fn scaled(x: f64, by: i32) -> f64 {
    let y = x * power(by / 2) * power(by - by / 2);
    if x.is_finite() && y.is_infinite() { f64::MAX.copysign(x) } else { y }
}

impl Kind {
    pub fn line(self, k: usize, seed: u64) -> Vec<f64> {
        let mut random = Random(seed);
        let special = random.below(k as u64) as usize;
        let mut element = |h: usize| {
            let r = &mut random;
            match self {
                Self::Uniform => r.uniform(),
                Self::Integers(bits) => (r.below(1 << bits) as f64) - 2f64.powi(bits as i32 - 1),
                Self::Float32 => r.uniform() as f32 as f64,
                Self::Signs => [1.0, -1.0][r.below(2) as usize],
                Self::OneHot => [0.0, r.uniform()][usize::from(h == special)],
                Self::Sparse => [r.uniform(), 0.0][usize::from(r.below(10) > 0)],
                Self::Wide(bits) => scaled(r.uniform(), -(r.below(bits.into()) as i32)),
                Self::Subnormal => f64::from_bits(r.next() >> 12 >> r.below(52) | r.next() << 63),
                Self::Huge => scaled(r.uniform(), 1024 - r.below(8) as i32),
                Self::Below => scaled(1.0 - power(-53), r.below(3) as i32) * [1.0, -1.0][r.below(2) as usize],
                Self::Edges => {
                    let edge = (1 + r.below(256)) as f64 / 128.0;
                    f64::from_bits(edge.to_bits() + r.below(3) - 1)
                }
                Self::Zeros => [0.0, -0.0][r.below(2) as usize],
                Self::Hopeless => scaled(r.uniform(), 1000 - r.below(2000) as i32),
                Self::NotFinite(bad) => [r.uniform(), bad][usize::from(h == special)],
            }
        };
        (0..k).map(&mut element).collect()
    }
}

/// The kinds that most lines of an operand may be of.
fn base() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Uniform),
        2 => (1u32..30).prop_map(Kind::Integers),
        1 => Just(Kind::Float32),
        1 => Just(Kind::Signs),
        1 => Just(Kind::OneHot),
        2 => Just(Kind::Sparse),
        4 => (1u32..40).prop_map(Kind::Wide),
        1 => Just(Kind::Subnormal),
        1 => Just(Kind::Huge),
        1 => Just(Kind::Below),
        1 => Just(Kind::Edges),
        1 => Just(Kind::Hopeless),
    ]
}

/// The kinds that a few lines are of.
fn special() -> impl Strategy<Value = Kind> {
    prop_oneof![
        base(),
        Just(Kind::Zeros),
        Just(Kind::Hopeless),
        Just(Kind::Hopeless),
        prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)].prop_map(Kind::NotFinite),
    ]
}

/// What is done along the inner dimension.
#[derive(Clone, Copy, Debug)]
pub enum Inner {
    Plain,
    /// Element h of A times 2^r(h), of B times 2^-r(h), |r| up to this.
    Scaled(i32),
    /// The same with r(h + line), so that it is another one for each line.
    Rotated(i32),
    /// Some lines have nonzeros in the first half alone, others in the second.
    Disjoint,
}

/// A call, drawn; the values come from the seed.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    seed: u64,
    base: [Kind; 2],
    /// Lines of other kinds.
    special: [Vec<(usize, Kind)>; 2],
    inner: Inner,
    alpha: f64,
    beta: f64,
}

/// Calls with at most so many lines and elements of a line.
pub fn drawn(lines: usize, elements: usize) -> impl Strategy<Value = Drawn> {
    let special = || prop::collection::vec((0usize..1000, special()), 0..4);
    let inner = prop_oneof![
        4 => Just(Inner::Plain),
        2 => (1i32..300).prop_map(Inner::Scaled),
        1 => (1i32..40).prop_map(Inner::Rotated),
        1 => Just(Inner::Disjoint),
    ];
    let scalar = |most: usize| (0..most).prop_map(|at| [1.0, 0.0, -1.0, 0.75, 3e-5, -1e200, 5e-324][at]);
    let scalars = (scalar(7).prop_map(|x| if x == 0.0 { 2.0 } else { x }), scalar(7));
    let shape = (1..=lines, 1..=lines, 1..=elements);
    let kinds = (base(), base(), special(), special());
    (shape, any::<u64>(), kinds, inner, scalars).prop_map(|((m, n, k), seed, kinds, inner, (alpha, beta))| {
        let special = [(kinds.2, m), (kinds.3, n)]
            .map(|(special, lines)| special.into_iter().map(|(at, kind)| (at % lines, kind)).collect());
        Drawn { m, n, k, seed, base: [kinds.0, kinds.1], special, inner, alpha, beta }
    })
}

impl Drawn {
    fn operand(&self, side: usize, lines: usize) -> Vec<f64> {
        let mut random = Random(self.seed.wrapping_add(side as u64));
        let mut out: Vec<Vec<f64>> =
            (0..lines).map(|_| self.base[side].line(self.k, random.next())).collect();
        for &(at, kind) in &self.special[side] {
            out[at] = kind.line(self.k, random.next());
        }
        let power_of =
            |width: i32, h: usize| Random(self.seed ^ h as u64).below(2 * width as u64 + 1) as i32 - width;
        for (l, line) in out.iter_mut().enumerate() {
            for (h, x) in line.iter_mut().enumerate() {
                let by = match self.inner {
                    Inner::Scaled(width) => power_of(width, h),
                    Inner::Rotated(width) => power_of(width, (h + l) % self.k),
                    Inner::Plain => 0,
                    Inner::Disjoint => {
                        if l % 3 != 0 && (h < self.k / 2) == (l % 3 == 1) {
                            *x = 0.0;
                        }
                        0
                    }
                };
                *x = scaled(*x, if side == 0 { by } else { -by });
            }
        }
        out.concat()
    }

    pub fn problem(&self) -> Problem {
        let (m, n, k) = (self.m, self.n, self.k);
        let mut random = Random(self.seed ^ 77);
        let c = (0..m * n).map(|_| random.uniform()).collect();
        let (alpha, beta) = (self.alpha, self.beta);
        Problem { m, n, k, alpha, beta, a: self.operand(0, m), b: self.operand(1, n), c }
    }
}

pub fn accuracy() -> impl Strategy<Value = oz2blas::ozaki::plan::Accuracy> {
    use oz2blas::ozaki::plan::Accuracy::{Fp64, High, Textbook};
    prop_oneof![Just(Fp64), Just(Textbook), Just(High)]
}

//! Exact numbers, and the bounds of the document in them.

use num_bigint::{BigInt, Sign};
use oz2blas::ozaki::moduli::MODULI;
use oz2blas::ozaki::plan::Accuracy;
use oz2blas::ozaki::reference::Dyadic;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A runner that draws the same cases every time.
pub fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

pub fn zero() -> Dyadic {
    integer(0)
}

pub fn integer(x: u64) -> Dyadic {
    Dyadic { m: BigInt::from(x), e: 0 }
}

pub fn whole(x: &BigInt) -> Dyadic {
    Dyadic { m: x.clone(), e: 0 }
}

/// x 2^by.
pub fn shifted(x: &Dyadic, by: i32) -> Dyadic {
    Dyadic { m: x.m.clone(), e: x.e + by }
}

/// 2^e.
pub fn power(e: i32) -> Dyadic {
    shifted(&integer(1), e)
}

/// u x, u = 2^-53.
pub fn units(x: &Dyadic) -> Dyadic {
    shifted(x, -53)
}

/// floor(|x|).
pub fn floor(x: &Dyadic) -> BigInt {
    let m = BigInt::from(x.m.magnitude().clone());
    if x.e >= 0 { m << x.e as u32 } else { m >> -x.e as u32 }
}

/// The least integer e with |x| < 2^e; x is not zero.
pub fn exponent(x: &Dyadic) -> i32 {
    x.e + x.m.bits() as i32
}

pub fn is_integer(x: &Dyadic) -> bool {
    x.is_zero() || x.e + x.m.trailing_zeros().unwrap_or(0) as i32 >= 0
}

pub fn sum(terms: impl IntoIterator<Item = Dyadic>) -> Dyadic {
    terms.into_iter().fold(zero(), |sum, x| sum.plus(&x))
}

/// T^2 for n nonzeros: T = 2 sqrt(n) is no rational.
fn square_of_t(accuracy: Accuracy, n: u64) -> Dyadic {
    match accuracy {
        Accuracy::Fp64 => integer(4 * n),
        Accuracy::Textbook => integer((n - 1).max(1).pow(2)),
        Accuracy::High => integer(1),
    }
}

/// x <= T y, for y >= 0 and n nonzeros.
pub fn at_most_t_times(x: &Dyadic, accuracy: Accuracy, n: u64, y: &Dyadic) -> bool {
    x.m.sign() != Sign::Plus || x.times(x).at_most(&square_of_t(accuracy, n).times(&y.times(y)))
}

/// floor(lg T), from its definition.
pub fn floor_lg_t(accuracy: Accuracy, n: u64) -> i32 {
    let square = floor(&square_of_t(accuracy, n));
    (0..64).rev().find(|&f| BigInt::from(1) << (2 * f) <= square).unwrap()
}

/// P_N.
pub fn product(moduli: usize) -> BigInt {
    MODULI[..moduli].iter().map(|&p| BigInt::from(p)).product()
}

/// H_N.
pub fn limit(moduli: usize) -> BigInt {
    let p = product(moduli);
    (&p - 1) / 2 - (&p >> 32)
}

/// u 2^x <= H_N.
pub fn fits(u: u64, x: i32, moduli: usize) -> bool {
    shifted(&integer(u), x).at_most(&whole(&limit(moduli)))
}

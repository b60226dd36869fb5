//! The four types of numbers and the two of integers that the BLAS is written for.

use std::ops::{Add, Div, Mul, Neg, Sub};

use num_complex::Complex;

use super::matrix::Matrix;
use crate::gemm::{Gemm, Sizes, Transpose};
use crate::native::builtin;

/// op(X) of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    No,
    Transpose,
    ConjugateTranspose,
    /// conj(X): no letter says this, but it is what a row-major conjugate transpose is for the matrix as it is stored.
    Conjugate,
}

impl Op {
    pub fn transposes(self) -> bool {
        matches!(self, Self::Transpose | Self::ConjugateTranspose)
    }

    pub fn conjugates(self) -> bool {
        matches!(self, Self::Conjugate | Self::ConjugateTranspose)
    }

    /// What makes the entry opposite to op(X) in a symmetric or Hermitian matrix.
    pub fn of_mirrored(self, hermitian: bool) -> Self {
        match (self, hermitian) {
            (Self::No, true) => Self::ConjugateTranspose,
            (Self::No, false) => Self::Transpose,
            _ => Self::No,
        }
    }

    /// The same for the transposed of the matrix.
    pub fn of_transposed(self) -> Self {
        match self {
            Self::No => Self::Transpose,
            Self::Transpose => Self::No,
            Self::ConjugateTranspose => Self::Conjugate,
            Self::Conjugate => Self::ConjugateTranspose,
        }
    }
}

/// C += alpha op(A) op(B).
#[derive(Clone, Copy)]
pub(super) struct Product<S> {
    pub ops: (Op, Op),
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: S,
    pub a: Matrix<S>,
    pub b: Matrix<S>,
    pub c: Matrix<S>,
}

/// A number: real or complex, single or double.
pub(super) trait Scalar:
    Copy + PartialEq + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self> + 'static
{
    type Real: Real;
    /// What the CBLAS passes for it: a value, or where the value is.
    type Argument: Copy;
    const ZERO: Self;
    const ONE: Self;
    const COMPLEX: bool;
    /// The first letter of the names of its routines.
    const LETTER: u8;

    fn from_real(real: Self::Real) -> Self;
    fn re(self) -> Self::Real;
    fn im(self) -> Self::Real;
    fn conj(self) -> Self;
    fn scaled(self, factor: Self::Real) -> Self;
    fn shrunk(self, divisor: Self::Real) -> Self;
    fn over(self, divisor: Self) -> Self;

    /// # Safety
    ///
    /// An argument of the CBLAS.
    unsafe fn of_argument(argument: Self::Argument) -> Self;

    /// Computes the product in a better way than the plain loops, if there is one for it.
    ///
    /// # Safety
    ///
    /// The matrices are as a BLAS demands them.
    unsafe fn fast_product(_: &Product<Self>) -> bool {
        false
    }

    fn conj_if(self, condition: bool) -> Self {
        if condition { self.conj() } else { self }
    }

    /// The BLAS's cheap absolute value.
    fn abs1(self) -> Self::Real {
        if Self::COMPLEX { self.re().abs() + self.im().abs() } else { self.re().abs() }
    }
}

/// A real number. The constants are those of Blue's sum of squares (see `level1::nrm2`) and of safe scaling.
pub(super) trait Real: Scalar<Real = Self> + PartialOrd + Div<Output = Self> {
    /// Squares of what is below may lose bits.
    const SMALL: Self;
    /// Squares of what is above may overflow.
    const BIG: Self;
    /// Brings what is small into the range.
    const RAISE: Self;
    /// Brings what is big into the range.
    const LOWER: Self;
    const SAFE_MIN: Self;
    const SAFE_MAX: Self;

    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn is_finite(self) -> bool;
    fn of(value: f64) -> Self;

    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    fn smaller(self, other: Self) -> Self {
        if other < self { other } else { self }
    }
}

macro_rules! real {
    ($real:ident, $letter:literal, $small:expr, $big:expr, $raise:expr, $lower:expr, $safe_max:expr, $($fast:item)*) => {
        impl Scalar for $real {
            type Real = Self;
            type Argument = Self;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const COMPLEX: bool = false;
            const LETTER: u8 = $letter;

            fn from_real(real: Self) -> Self {
                real
            }
            fn re(self) -> Self {
                self
            }
            fn im(self) -> Self {
                0.0
            }
            fn conj(self) -> Self {
                self
            }
            fn scaled(self, factor: Self) -> Self {
                self * factor
            }
            fn shrunk(self, divisor: Self) -> Self {
                self / divisor
            }
            fn over(self, divisor: Self) -> Self {
                self / divisor
            }
            unsafe fn of_argument(argument: Self) -> Self {
                argument
            }
            $($fast)*
        }

        impl Real for $real {
            const SMALL: Self = power_of_two($small) as Self;
            const BIG: Self = power_of_two($big) as Self;
            const RAISE: Self = power_of_two($raise) as Self;
            const LOWER: Self = power_of_two($lower) as Self;
            const SAFE_MIN: Self = Self::MIN_POSITIVE;
            const SAFE_MAX: Self = power_of_two($safe_max) as Self;

            fn abs(self) -> Self {
                self.abs()
            }
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            fn copysign(self, sign: Self) -> Self {
                self.copysign(sign)
            }
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            fn of(value: f64) -> Self {
                value as Self
            }
        }

        impl Scalar for Complex<$real> {
            type Real = $real;
            type Argument = *const Self;
            const ZERO: Self = Self::new(0.0, 0.0);
            const ONE: Self = Self::new(1.0, 0.0);
            const COMPLEX: bool = true;
            const LETTER: u8 = if $letter == b'S' { b'C' } else { b'Z' };

            fn from_real(real: $real) -> Self {
                Self::new(real, 0.0)
            }
            fn re(self) -> $real {
                self.re
            }
            fn im(self) -> $real {
                self.im
            }
            fn conj(self) -> Self {
                Self::new(self.re, -self.im)
            }
            fn scaled(self, factor: $real) -> Self {
                Self::new(self.re * factor, self.im * factor)
            }
            fn shrunk(self, divisor: $real) -> Self {
                Self::new(self.re / divisor, self.im / divisor)
            }
            /// By Smith's method: the division of the crate squares the divisor, which over- and underflows.
            fn over(self, divisor: Self) -> Self {
                let (re, im) = (divisor.re, divisor.im);
                if re.abs() >= im.abs() {
                    let ratio = im / re;
                    let length = re + im * ratio;
                    Self::new((self.re + self.im * ratio) / length, (self.im - self.re * ratio) / length)
                } else {
                    let ratio = re / im;
                    let length = im + re * ratio;
                    Self::new((self.re * ratio + self.im) / length, (self.im * ratio - self.re) / length)
                }
            }
            unsafe fn of_argument(argument: *const Self) -> Self {
                // SAFETY: by the contract of this function.
                unsafe { argument.read_unaligned() }
            }
        }
    };
}

/// 2^exponent for an exponent of a normal double.
const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

real! { f32, b'S', -63, 52, 75, -76, 127, }
real! { f64, b'D', -511, 486, 537, -538, 1023,
    /// The kernels of the builtin DGEMM.
    unsafe fn fast_product(product: &Product<f64>) -> bool {
        /// Below this m n k their preparations cost more than they bring.
        const WORTH_KERNELS: u128 = 32 * 32 * 32;
        let Product { ops, m, n, k, alpha, a, b, c } = *product;
        if alpha == 0.0 || (m as u128 * n as u128).saturating_mul(k as u128) < WORTH_KERNELS {
            return false;
        }
        let transpose = |op: Op| if op.transposes() { Transpose::Yes } else { Transpose::No };
        let sizes = Sizes { m, n, k, lda: a.ld, ldb: b.ld, ldc: c.ld };
        let transposes = (transpose(ops.0), transpose(ops.1));
        let Some(call) = Gemm::new(transposes, sizes, (alpha, 1.0), a.at, b.at, c.at) else { return false };
        // SAFETY: by the contract of this function.
        unsafe { builtin::gemm_for_caller(&call) };
        true
    }
}

/// An integer of the interface: 32 bits (lp64) or 64 (ilp64).
pub(super) trait Integer: Copy + 'static {
    const WIDE: bool;
    fn widened(self) -> i64;
    fn of(value: usize) -> Self;
}

impl Integer for i32 {
    const WIDE: bool = false;
    fn widened(self) -> i64 {
        i64::from(self)
    }
    fn of(value: usize) -> Self {
        value as Self
    }
}

impl Integer for i64 {
    const WIDE: bool = true;
    fn widened(self) -> i64 {
        self
    }
    fn of(value: usize) -> Self {
        value as Self
    }
}

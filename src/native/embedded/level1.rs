//! Level 1: vectors. What both interfaces share; sizes and increments are as the caller gave them.

use super::matrix::{self, Vector};
use super::scalar::{Real, Scalar};

/// The number of elements; None if there are none.
fn elements(n: i64) -> Option<usize> {
    usize::try_from(n).ok().filter(|&n| n > 0)
}

/// The same for the routines with one vector that do nothing for an increment that is not positive.
fn elements_ahead(n: i64, inc: i64) -> Option<usize> {
    elements(n).filter(|_| inc > 0)
}

/// y += alpha x.
///
/// # Safety
///
/// The vectors are as a BLAS demands them; the same is the contract of all functions of this file.
pub(super) unsafe fn axpy<S: Scalar>(n: i64, alpha: S, x: *const S, incx: i64, y: *mut S, incy: i64) {
    let Some(n) = elements(n).filter(|_| alpha != S::ZERO) else { return };
    // SAFETY: by the contract of this function.
    unsafe { matrix::axpy(n, alpha, Vector::new(x, incx, n), false, Vector::new(y, incy, n)) };
}

/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn copy<S: Scalar>(n: i64, x: *const S, incx: i64, y: *mut S, incy: i64) {
    let Some(n) = elements(n) else { return };
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    for i in 0..n {
        // SAFETY: by the contract of this function.
        unsafe { y.set(i, x.get(i)) };
    }
}

/// Replaces (x[i], y[i]) by f of them.
///
/// # Safety
///
/// As for [`axpy`].
#[inline(always)]
unsafe fn pairs<S: Scalar>(n: i64, x: *mut S, incx: i64, y: *mut S, incy: i64, f: impl Fn(S, S) -> (S, S)) {
    let Some(n) = elements(n) else { return };
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    for i in 0..n {
        // SAFETY: by the contract of this function.
        unsafe {
            let (new_x, new_y) = f(x.get(i), y.get(i));
            x.set(i, new_x);
            y.set(i, new_y);
        }
    }
}

/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn swap<S: Scalar>(n: i64, x: *mut S, incx: i64, y: *mut S, incy: i64) {
    // SAFETY: by the contract of this function.
    unsafe { pairs(n, x, incx, y, incy, |x, y| (y, x)) };
}

/// The plane rotation x, y = c x + s y, c y - s x.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn rot<S: Scalar>(
    n: i64,
    x: *mut S,
    incx: i64,
    y: *mut S,
    incy: i64,
    c: S::Real,
    s: S::Real,
) {
    // SAFETY: by the contract of this function.
    unsafe { pairs(n, x, incx, y, incy, |x, y| (x.scaled(c) + y.scaled(s), y.scaled(c) - x.scaled(s))) };
}

/// x = alpha x. Unlike beta = 0 elsewhere, alpha = 0 keeps NaN.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn scal<S: Scalar>(n: i64, alpha: S, x: *mut S, incx: i64) {
    let Some(n) = elements_ahead(n, incx).filter(|_| alpha != S::ONE) else { return };
    // SAFETY: by the contract of this function.
    unsafe { matrix::multiply(n, alpha, Vector::new(x, incx, n)) };
}

/// The same with a real factor.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn scal_real<S: Scalar>(n: i64, alpha: S::Real, x: *mut S, incx: i64) {
    let Some(n) = elements_ahead(n, incx).filter(|_| alpha != S::Real::ONE) else { return };
    // SAFETY: by the contract of this function.
    unsafe { matrix::multiply_real(n, alpha, Vector::new(x, incx, n)) };
}

/// The sum of x[i] y[i], with the conjugates of x if `conjugate`.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn dot<S: Scalar>(
    n: i64,
    x: *const S,
    incx: i64,
    conjugate: bool,
    y: *const S,
    incy: i64,
) -> S {
    let Some(n) = elements(n) else { return S::ZERO };
    // SAFETY: by the contract of this function.
    unsafe { matrix::dot(n, Vector::new(x, incx, n), conjugate, Vector::new(y, incy, n)) }
}

/// start + the sum of x[i] y[i], in double precision.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn dot_in_double(
    n: i64,
    start: f32,
    x: *const f32,
    incx: i64,
    y: *const f32,
    incy: i64,
) -> f64 {
    let mut sum = f64::from(start);
    let n = elements(n).unwrap_or(0);
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    for i in 0..n {
        // SAFETY: by the contract of this function.
        sum += unsafe { f64::from(x.get(i)) * f64::from(y.get(i)) };
    }
    sum
}

/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn asum<S: Scalar>(n: i64, x: *const S, incx: i64) -> S::Real {
    let mut sum = S::Real::ZERO;
    let Some(n) = elements_ahead(n, incx) else { return sum };
    let x = Vector::new(x, incx, n);
    for i in 0..n {
        // SAFETY: by the contract of this function.
        sum = sum + unsafe { x.get(i) }.abs1();
    }
    sum
}

/// The first place, counted from 1, of an element that is largest by `abs1`; 0 without elements.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn iamax<S: Scalar>(n: i64, x: *const S, incx: i64) -> usize {
    let Some(n) = elements_ahead(n, incx) else { return 0 };
    let x = Vector::new(x, incx, n);
    // SAFETY: by the contract of this function; n > 0.
    let (mut place, mut largest) = (0, unsafe { x.get(0) }.abs1());
    for i in 1..n {
        // SAFETY: by the contract of this function.
        let size = unsafe { x.get(i) }.abs1();
        if size > largest {
            (place, largest) = (i, size);
        }
    }
    place + 1
}

/// Blue's sum of squares: those that would over- or underflow are summed apart, scaled by powers of two.
struct Squares<R> {
    small: R,
    middle: R,
    big: R,
    /// Once something is big, what is small does not matter.
    any_big: bool,
}

impl<R: Real> Squares<R> {
    fn add(&mut self, x: R) {
        let x = x.abs();
        let square = |x: R| x * x;
        if x > R::BIG {
            self.big = self.big + square(x * R::LOWER);
            self.any_big = true;
        } else if x < R::SMALL {
            if !self.any_big {
                self.small = self.small + square(x * R::RAISE);
            }
        } else {
            self.middle = self.middle + square(x); // and NaN
        }
    }

    fn root(&self) -> R {
        let something = self.middle != R::ZERO; // or NaN
        if self.big > R::ZERO {
            let rest = if something { self.middle * R::LOWER * R::LOWER } else { R::ZERO };
            (self.big + rest).sqrt() / R::LOWER
        } else if self.small > R::ZERO {
            let small = self.small.sqrt() / R::RAISE;
            if !something {
                return small;
            }
            let middle = self.middle.sqrt();
            let (less, more) = if small > middle { (middle, small) } else { (small, middle) };
            let ratio = less / more;
            more * (R::ONE + ratio * ratio).sqrt()
        } else {
            self.middle.sqrt()
        }
    }
}

/// The Euclidean norm, for an increment of any sign.
///
/// # Safety
///
/// As for [`axpy`].
pub(super) unsafe fn nrm2<S: Scalar>(n: i64, x: *const S, incx: i64) -> S::Real {
    let zero = S::Real::ZERO;
    let Some(n) = elements(n) else { return zero };
    let x = Vector::new(x, incx, n);
    let mut squares = Squares { small: zero, middle: zero, big: zero, any_big: false };
    for i in 0..n {
        // SAFETY: by the contract of this function.
        let x = unsafe { x.get(i) };
        squares.add(x.re());
        if S::COMPLEX {
            squares.add(x.im());
        }
    }
    squares.root()
}

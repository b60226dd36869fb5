//! Level 1 of the CBLAS.

use num_complex::Complex;

use super::super::fortran::{rotg, rotg_complex};
use super::super::scalar::{Integer, Real, Scalar};
use super::super::{Entry, entry, level1, of_all, of_complex, of_real, rotations};
use super::functions;

type C32 = Complex<f32>;
type C64 = Complex<f64>;

pub(super) static TABLE: &[&[Entry]] = &[
    of_all!("axpy", axpy),
    of_all!("copy", copy),
    of_all!("swap", swap),
    of_all!("scal", scal),
    of_real!("dot", dot),
    of_complex!("dotu_sub", dotu_sub),
    of_complex!("dotc_sub", dotc_sub),
    of_real!("asum", asum),
    &[entry!("scasum", asum, C32), entry!("dzasum", asum, C64)],
    of_real!("nrm2", nrm2),
    &[entry!("scnrm2", nrm2, C32), entry!("dznrm2", nrm2, C64)],
    &[entry!("isamax", iamax, f32), entry!("idamax", iamax, f64)],
    &[entry!("icamax", iamax, C32), entry!("izamax", iamax, C64)],
    of_real!("rot", rot),
    &[entry!("csrot", rot, C32), entry!("zdrot", rot, C64)],
    &[entry!("csscal", scal_real, C32), entry!("zdscal", scal_real, C64)],
    of_real!("rotm", rotm),
    &[Entry::of_both("srotg", rotg::<f32> as *const ()), Entry::of_both("drotg", rotg::<f64> as *const ())],
    &[Entry::of_both("crotg", rotg_complex::<C32> as *const ())],
    &[Entry::of_both("zrotg", rotg_complex::<C64> as *const ())],
    &[
        Entry::of_both("srotmg", rotmg::<f32> as *const ()),
        Entry::of_both("drotmg", rotmg::<f64> as *const ()),
    ],
    &[Entry::of_both("scabs1", abs1::<C32> as *const ()), Entry::of_both("dcabs1", abs1::<C64> as *const ())],
    &[Entry { name: "dsdot", narrow: dsdot::<i32> as *const (), wide: dsdot::<i64> as *const () }],
    &[Entry { name: "sdsdot", narrow: sdsdot::<i32> as *const (), wide: sdsdot::<i64> as *const () }],
];

functions! {
    fn axpy<S: Scalar>(n: I, alpha: S::Argument, x: *const S, incx: I, y: *mut S, incy: I) {
        level1::axpy(n.widened(), S::of_argument(alpha), x, incx.widened(), y, incy.widened());
    }
    fn copy<S: Scalar>(n: I, x: *const S, incx: I, y: *mut S, incy: I) {
        level1::copy(n.widened(), x, incx.widened(), y, incy.widened());
    }
    fn swap<S: Scalar>(n: I, x: *mut S, incx: I, y: *mut S, incy: I) {
        level1::swap(n.widened(), x, incx.widened(), y, incy.widened());
    }
    fn scal<S: Scalar>(n: I, alpha: S::Argument, x: *mut S, incx: I) {
        level1::scal(n.widened(), S::of_argument(alpha), x, incx.widened());
    }
    fn scal_real<S: Scalar>(n: I, alpha: S::Real, x: *mut S, incx: I) {
        level1::scal_real(n.widened(), alpha, x, incx.widened());
    }
    fn dot<S: Scalar>(n: I, x: *const S, incx: I, y: *const S, incy: I) -> S {
        level1::dot(n.widened(), x, incx.widened(), false, y, incy.widened())
    }
    fn dotu_sub<S: Scalar>(n: I, x: *const S, incx: I, y: *const S, incy: I, result: *mut S) {
        result.write_unaligned(level1::dot(n.widened(), x, incx.widened(), false, y, incy.widened()));
    }
    fn dotc_sub<S: Scalar>(n: I, x: *const S, incx: I, y: *const S, incy: I, result: *mut S) {
        result.write_unaligned(level1::dot(n.widened(), x, incx.widened(), true, y, incy.widened()));
    }
    fn asum<S: Scalar>(n: I, x: *const S, incx: I) -> S::Real {
        level1::asum(n.widened(), x, incx.widened())
    }
    fn nrm2<S: Scalar>(n: I, x: *const S, incx: I) -> S::Real {
        level1::nrm2(n.widened(), x, incx.widened())
    }
    fn iamax<S: Scalar>(n: I, x: *const S, incx: I) -> usize {
        // Counted from 0 here, where no element and the first one are the same.
        level1::iamax(n.widened(), x, incx.widened()).saturating_sub(1)
    }
    fn rot<S: Scalar>(n: I, x: *mut S, incx: I, y: *mut S, incy: I, c: S::Real, s: S::Real) {
        level1::rot(n.widened(), x, incx.widened(), y, incy.widened(), c, s);
    }
    fn rotm<S: Real>(n: I, x: *mut S, incx: I, y: *mut S, incy: I, parameters: *const S) {
        rotations::rotm(n.widened(), x, incx.widened(), y, incy.widened(), parameters);
    }
}

/// # Safety
///
/// An argument.
unsafe extern "C-unwind" fn abs1<S: Scalar>(x: *const S) -> S::Real {
    // SAFETY: by the contract of this function.
    unsafe { x.read_unaligned() }.abs1()
}

/// # Safety
///
/// Arguments that may be written; five parameters.
unsafe extern "C-unwind" fn rotmg<R: Real>(d1: *mut R, d2: *mut R, x1: *mut R, y1: R, parameters: *mut R) {
    // SAFETY: by the contract of this function.
    unsafe { rotations::rotmg(d1, d2, x1, y1, parameters) };
}

/// # Safety
///
/// As for any BLAS function.
unsafe extern "C-unwind" fn dsdot<I: Integer>(n: I, x: *const f32, incx: I, y: *const f32, incy: I) -> f64 {
    // SAFETY: by the contract of this function.
    unsafe { level1::dot_in_double(n.widened(), 0.0, x, incx.widened(), y, incy.widened()) }
}

/// # Safety
///
/// As for any BLAS function.
unsafe extern "C-unwind" fn sdsdot<I: Integer>(
    n: I,
    start: f32,
    x: *const f32,
    incx: I,
    y: *const f32,
    incy: I,
) -> f32 {
    // SAFETY: by the contract of this function.
    unsafe { level1::dot_in_double(n.widened(), start, x, incx.widened(), y, incy.widened()) as f32 }
}

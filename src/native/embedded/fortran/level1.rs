//! Level 1 in Fortran.

use num_complex::Complex;

use super::super::scalar::{Integer, Real, Scalar};
use super::super::{Entry, entry, level1, of_all, of_complex, of_real, rotations};
use super::{functions, int, value};

type C32 = Complex<f32>;
type C64 = Complex<f64>;

pub(super) static TABLE: &[&[Entry]] = &[
    of_all!("axpy", axpy),
    of_all!("copy", copy),
    of_all!("swap", swap),
    of_all!("scal", scal),
    of_real!("dot", dot),
    of_complex!("dotu", dot),
    of_complex!("dotc", dotc),
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
    fn axpy<S: Scalar>(n: *const I, alpha: *const S, x: *const S, incx: *const I, y: *mut S, incy: *const I) {
        level1::axpy(int(n), value(alpha), x, int(incx), y, int(incy));
    }
    fn copy<S: Scalar>(n: *const I, x: *const S, incx: *const I, y: *mut S, incy: *const I) {
        level1::copy(int(n), x, int(incx), y, int(incy));
    }
    fn swap<S: Scalar>(n: *const I, x: *mut S, incx: *const I, y: *mut S, incy: *const I) {
        level1::swap(int(n), x, int(incx), y, int(incy));
    }
    fn scal<S: Scalar>(n: *const I, alpha: *const S, x: *mut S, incx: *const I) {
        level1::scal(int(n), value(alpha), x, int(incx));
    }
    fn scal_real<S: Scalar>(n: *const I, alpha: *const S::Real, x: *mut S, incx: *const I) {
        level1::scal_real(int(n), value(alpha), x, int(incx));
    }
    fn dot<S: Scalar>(n: *const I, x: *const S, incx: *const I, y: *const S, incy: *const I) -> S {
        level1::dot(int(n), x, int(incx), false, y, int(incy))
    }
    fn dotc<S: Scalar>(n: *const I, x: *const S, incx: *const I, y: *const S, incy: *const I) -> S {
        level1::dot(int(n), x, int(incx), true, y, int(incy))
    }
    fn asum<S: Scalar>(n: *const I, x: *const S, incx: *const I) -> S::Real {
        level1::asum(int(n), x, int(incx))
    }
    fn nrm2<S: Scalar>(n: *const I, x: *const S, incx: *const I) -> S::Real {
        level1::nrm2(int(n), x, int(incx))
    }
    fn iamax<S: Scalar>(n: *const I, x: *const S, incx: *const I) -> I {
        I::of(level1::iamax(int(n), x, int(incx)))
    }
    fn rot<S: Scalar>(
        n: *const I, x: *mut S, incx: *const I, y: *mut S, incy: *const I, c: *const S::Real, s: *const S::Real,
    ) {
        level1::rot(int(n), x, int(incx), y, int(incy), value(c), value(s));
    }
    fn rotm<S: Real>(n: *const I, x: *mut S, incx: *const I, y: *mut S, incy: *const I, parameters: *const S) {
        rotations::rotm(int(n), x, int(incx), y, int(incy), parameters);
    }
}

/// # Safety
///
/// An argument.
unsafe extern "C-unwind" fn abs1<S: Scalar>(x: *const S) -> S::Real {
    // SAFETY: by the contract of this function.
    unsafe { value(x) }.abs1()
}

/// # Safety
///
/// Arguments, which may be written.
pub(in super::super) unsafe extern "C-unwind" fn rotg<R: Real>(a: *mut R, b: *mut R, c: *mut R, s: *mut R) {
    // SAFETY: by the contract of this function.
    unsafe {
        let (r, z, cosine, sine) = rotations::rotg(value(a), value(b));
        a.write_unaligned(r);
        b.write_unaligned(z);
        c.write_unaligned(cosine);
        s.write_unaligned(sine);
    }
}

/// # Safety
///
/// Arguments, which may be written but for b.
pub(in super::super) unsafe extern "C-unwind" fn rotg_complex<S: Scalar>(
    a: *mut S,
    b: *const S,
    c: *mut S::Real,
    s: *mut S,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let (r, cosine, sine) = rotations::rotg_complex(value(a), value(b));
        a.write_unaligned(r);
        c.write_unaligned(cosine);
        s.write_unaligned(sine);
    }
}

/// # Safety
///
/// Arguments, which may be written but for y1; five parameters.
unsafe extern "C-unwind" fn rotmg<R: Real>(
    d1: *mut R,
    d2: *mut R,
    x1: *mut R,
    y1: *const R,
    parameters: *mut R,
) {
    // SAFETY: by the contract of this function.
    unsafe { rotations::rotmg(d1, d2, x1, value(y1), parameters) };
}

/// # Safety
///
/// As for any BLAS function.
unsafe extern "C-unwind" fn dsdot<I: Integer>(
    n: *const I,
    x: *const f32,
    incx: *const I,
    y: *const f32,
    incy: *const I,
) -> f64 {
    // SAFETY: by the contract of this function.
    unsafe { level1::dot_in_double(int(n), 0.0, x, int(incx), y, int(incy)) }
}

/// # Safety
///
/// As for any BLAS function.
unsafe extern "C-unwind" fn sdsdot<I: Integer>(
    n: *const I,
    start: *const f32,
    x: *const f32,
    incx: *const I,
    y: *const f32,
    incy: *const I,
) -> f32 {
    // SAFETY: by the contract of this function.
    unsafe { level1::dot_in_double(int(n), value(start), x, int(incx), y, int(incy)) as f32 }
}

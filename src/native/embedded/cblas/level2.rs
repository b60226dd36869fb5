//! Level 2 of the CBLAS.

use std::ffi::c_int;

use super::super::scalar::{Integer, Op, Scalar};
use super::super::triangle::{self, Given};
use super::super::{Entry, level2, of_all, of_complex, of_real};
use super::{enter, functions, op, unit, upper};

pub(super) static TABLE: &[&[Entry]] = &[
    of_all!("gemv", gemv),
    of_all!("gbmv", gbmv),
    of_real!("ger", geru),
    of_complex!("geru", geru),
    of_complex!("gerc", gerc),
    of_real!("symv", hemv),
    of_real!("sbmv", hbmv),
    of_real!("spmv", hpmv),
    of_complex!("hemv", hemv),
    of_complex!("hbmv", hbmv),
    of_complex!("hpmv", hpmv),
    of_all!("trmv", trmv),
    of_all!("trsv", trsv),
    of_all!("tbmv", tbmv),
    of_all!("tbsv", tbsv),
    of_all!("tpmv", tpmv),
    of_all!("tpsv", tpsv),
    of_real!("syr", her),
    of_real!("spr", hpr),
    of_complex!("her", her),
    of_complex!("hpr", hpr),
    of_real!("syr2", her2),
    of_real!("spr2", hpr2),
    of_complex!("her2", her2),
    of_complex!("hpr2", hpr2),
];

/// The operation for the stored matrix.
fn stored_op(value: c_int, row_major: bool) -> Option<Op> {
    if row_major { op(value).map(Op::of_transposed) } else { op(value) }
}

/// The places of the increments in a Hermitian update of rank 2: the reference CBLAS exchanges the vectors of a row-major one.
fn exchanged_vectors<S: Scalar>() -> &'static [(i32, i32)] {
    if S::COMPLEX { &[(6, 8)] } else { &[] }
}

functions! {
    fn gemv<S: Scalar>(
        layout: c_int, trans: c_int, m: I, n: I, alpha: S::Argument, a: *const S, lda: I,
        x: *const S, incx: I, beta: S::Argument, y: *mut S, incy: I,
    ) {
        enter::<S, I>("gemv", layout, &[(3, 4)], |row| {
            let (m, n) = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, x, y) = ((a, lda.widened()), (x, incx.widened()), (y, incy.widened()));
            level2::gemv(stored_op(trans, row), (m, n), alpha, a, x, beta, y)
        });
    }
    fn gbmv<S: Scalar>(
        layout: c_int, trans: c_int, m: I, n: I, kl: I, ku: I, alpha: S::Argument, a: *const S, lda: I,
        x: *const S, incx: I, beta: S::Argument, y: *mut S, incy: I,
    ) {
        enter::<S, I>("gbmv", layout, &[(3, 4), (5, 6)], |row| {
            let (m, n) = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (kl, ku) = if row { (ku.widened(), kl.widened()) } else { (kl.widened(), ku.widened()) };
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, x, y) = ((a, lda.widened()), (x, incx.widened()), (y, incy.widened()));
            level2::gbmv(stored_op(trans, row), (m, n), (kl, ku), alpha, a, x, beta, y)
        });
    }
    fn geru<S: Scalar>(
        layout: c_int, m: I, n: I, alpha: S::Argument, x: *const S, incx: I, y: *const S, incy: I,
        a: *mut S, lda: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "geru" } else { "ger" }, layout, &[(2, 3), (6, 8)], |row| {
            let (m, n, alpha, a) = (m.widened(), n.widened(), S::of_argument(alpha), (a, lda.widened()));
            let (x, y) = ((x, incx.widened(), false), (y, incy.widened(), false));
            if row { level2::ger((n, m), alpha, y, x, a) } else { level2::ger((m, n), alpha, x, y, a) }
        });
    }
    fn gerc<S: Scalar>(
        layout: c_int, m: I, n: I, alpha: S::Argument, x: *const S, incx: I, y: *const S, incy: I,
        a: *mut S, lda: I,
    ) {
        enter::<S, I>("gerc", layout, &[(2, 3), (6, 8)], |row| {
            let (m, n, alpha, a) = (m.widened(), n.widened(), S::of_argument(alpha), (a, lda.widened()));
            let (x, y) = ((x, incx.widened(), false), (y, incy.widened(), true));
            if row { level2::ger((n, m), alpha, y, x, a) } else { level2::ger((m, n), alpha, x, y, a) }
        });
    }
    fn hemv<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, alpha: S::Argument, a: *const S, lda: I, x: *const S, incx: I,
        beta: S::Argument, y: *mut S, incy: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "hemv" } else { "symv" }, layout, &[], |row| {
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let a = (Given::Full(a, lda.widened()), row);
            let (x, y) = ((x, incx.widened()), (y, incy.widened()));
            triangle::hemv(upper(uplo, row), n.widened(), alpha, a, x, beta, y)
        });
    }
    fn hbmv<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, k: I, alpha: S::Argument, a: *const S, lda: I, x: *const S, incx: I,
        beta: S::Argument, y: *mut S, incy: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "hbmv" } else { "sbmv" }, layout, &[], |row| {
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let a = (Given::Band(k.widened(), a, lda.widened()), row);
            let (x, y) = ((x, incx.widened()), (y, incy.widened()));
            triangle::hemv(upper(uplo, row), n.widened(), alpha, a, x, beta, y)
        });
    }
    fn hpmv<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, alpha: S::Argument, a: *const S, x: *const S, incx: I,
        beta: S::Argument, y: *mut S, incy: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "hpmv" } else { "spmv" }, layout, &[], |row| {
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (x, y) = ((x, incx.widened()), (y, incy.widened()));
            triangle::hemv(upper(uplo, row), n.widened(), alpha, (Given::Packed(a), row), x, beta, y)
        });
    }
    fn trmv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, a: *const S, lda: I, x: *mut S, incx: I,
    ) {
        enter::<S, I>("trmv", layout, &[], |row| {
            let (a, x) = (Given::Full(a, lda.widened()), (x, incx.widened()));
            triangle::trmv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn trsv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, a: *const S, lda: I, x: *mut S, incx: I,
    ) {
        enter::<S, I>("trsv", layout, &[], |row| {
            let (a, x) = (Given::Full(a, lda.widened()), (x, incx.widened()));
            triangle::trsv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn tbmv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, k: I, a: *const S, lda: I, x: *mut S,
        incx: I,
    ) {
        enter::<S, I>("tbmv", layout, &[], |row| {
            let (a, x) = (Given::Band(k.widened(), a, lda.widened()), (x, incx.widened()));
            triangle::trmv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn tbsv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, k: I, a: *const S, lda: I, x: *mut S,
        incx: I,
    ) {
        enter::<S, I>("tbsv", layout, &[], |row| {
            let (a, x) = (Given::Band(k.widened(), a, lda.widened()), (x, incx.widened()));
            triangle::trsv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn tpmv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, a: *const S, x: *mut S, incx: I,
    ) {
        enter::<S, I>("tpmv", layout, &[], |row| {
            let (a, x) = (Given::Packed(a), (x, incx.widened()));
            triangle::trmv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn tpsv<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, diag: c_int, n: I, a: *const S, x: *mut S, incx: I,
    ) {
        enter::<S, I>("tpsv", layout, &[], |row| {
            let (a, x) = (Given::Packed(a), (x, incx.widened()));
            triangle::trsv(upper(uplo, row), stored_op(trans, row), unit(diag), n.widened(), a, x)
        });
    }
    fn her<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, alpha: S::Real, x: *const S, incx: I, a: *mut S, lda: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "her" } else { "syr" }, layout, &[], |row| {
            let a = (Given::Full(a.cast_const(), lda.widened()), row);
            triangle::her(upper(uplo, row), n.widened(), alpha, (x, incx.widened()), a)
        });
    }
    fn hpr<S: Scalar>(layout: c_int, uplo: c_int, n: I, alpha: S::Real, x: *const S, incx: I, a: *mut S) {
        enter::<S, I>(if S::COMPLEX { "hpr" } else { "spr" }, layout, &[], |row| {
            let a = (Given::Packed(a.cast_const()), row);
            triangle::her(upper(uplo, row), n.widened(), alpha, (x, incx.widened()), a)
        });
    }
    fn her2<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, alpha: S::Argument, x: *const S, incx: I, y: *const S, incy: I,
        a: *mut S, lda: I,
    ) {
        enter::<S, I>(if S::COMPLEX { "her2" } else { "syr2" }, layout, exchanged_vectors::<S>(), |row| {
            let a = (Given::Full(a.cast_const(), lda.widened()), row);
            let (x, y) = ((x, incx.widened()), (y, incy.widened()));
            let alpha = S::of_argument(alpha);
            if row && S::COMPLEX {
                triangle::her2(upper(uplo, row), n.widened(), alpha.conj(), y, x, a)
            } else {
                triangle::her2(upper(uplo, row), n.widened(), alpha, x, y, a)
            }
        });
    }
    fn hpr2<S: Scalar>(
        layout: c_int, uplo: c_int, n: I, alpha: S::Argument, x: *const S, incx: I, y: *const S, incy: I,
        a: *mut S,
    ) {
        enter::<S, I>(if S::COMPLEX { "hpr2" } else { "spr2" }, layout, exchanged_vectors::<S>(), |row| {
            let a = (Given::Packed(a.cast_const()), row);
            let (x, y) = ((x, incx.widened()), (y, incy.widened()));
            let alpha = S::of_argument(alpha);
            if row && S::COMPLEX {
                triangle::her2(upper(uplo, row), n.widened(), alpha.conj(), y, x, a)
            } else {
                triangle::her2(upper(uplo, row), n.widened(), alpha, x, y, a)
            }
        });
    }
}

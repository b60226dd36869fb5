//! Level 2 in Fortran.

use super::super::scalar::{Integer, Scalar};
use super::super::triangle::{self, Given};
use super::super::{Entry, level2, of_all, of_complex, of_real};
use super::{functions, int, op, report, unit, upper, value};

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

functions! {
    fn gemv<S: Scalar>(
        trans: *const u8, m: *const I, n: *const I, alpha: *const S, a: *const S, lda: *const I,
        x: *const S, incx: *const I, beta: *const S, y: *mut S, incy: *const I,
    ) {
        let (x, y) = ((x, int(incx)), (y, int(incy)));
        let result = level2::gemv(op(trans), (int(m), int(n)), value(alpha), (a, int(lda)), x, value(beta), y);
        report::<S, I>(b"GEMV ", result);
    }
    fn gbmv<S: Scalar>(
        trans: *const u8, m: *const I, n: *const I, kl: *const I, ku: *const I, alpha: *const S, a: *const S,
        lda: *const I, x: *const S, incx: *const I, beta: *const S, y: *mut S, incy: *const I,
    ) {
        let (x, y, band) = ((x, int(incx)), (y, int(incy)), (int(kl), int(ku)));
        let result =
            level2::gbmv(op(trans), (int(m), int(n)), band, value(alpha), (a, int(lda)), x, value(beta), y);
        report::<S, I>(b"GBMV ", result);
    }
    fn geru<S: Scalar>(
        m: *const I, n: *const I, alpha: *const S, x: *const S, incx: *const I, y: *const S, incy: *const I,
        a: *mut S, lda: *const I,
    ) {
        let (x, y) = ((x, int(incx), false), (y, int(incy), false));
        let result = level2::ger((int(m), int(n)), value(alpha), x, y, (a, int(lda)));
        report::<S, I>(if S::COMPLEX { b"GERU " } else { b"GER  " }, result);
    }
    fn gerc<S: Scalar>(
        m: *const I, n: *const I, alpha: *const S, x: *const S, incx: *const I, y: *const S, incy: *const I,
        a: *mut S, lda: *const I,
    ) {
        let (x, y) = ((x, int(incx), false), (y, int(incy), true));
        let result = level2::ger((int(m), int(n)), value(alpha), x, y, (a, int(lda)));
        report::<S, I>(b"GERC ", result);
    }
    fn hemv<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S, a: *const S, lda: *const I, x: *const S, incx: *const I,
        beta: *const S, y: *mut S, incy: *const I,
    ) {
        let (a, x, y) = (Given::Full(a, int(lda)), (x, int(incx)), (y, int(incy)));
        let result = triangle::hemv(upper(uplo), int(n), value(alpha), (a, false), x, value(beta), y);
        report::<S, I>(if S::COMPLEX { b"HEMV " } else { b"SYMV " }, result);
    }
    fn hbmv<S: Scalar>(
        uplo: *const u8, n: *const I, k: *const I, alpha: *const S, a: *const S, lda: *const I, x: *const S,
        incx: *const I, beta: *const S, y: *mut S, incy: *const I,
    ) {
        let (a, x, y) = (Given::Band(int(k), a, int(lda)), (x, int(incx)), (y, int(incy)));
        let result = triangle::hemv(upper(uplo), int(n), value(alpha), (a, false), x, value(beta), y);
        report::<S, I>(if S::COMPLEX { b"HBMV " } else { b"SBMV " }, result);
    }
    fn hpmv<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S, a: *const S, x: *const S, incx: *const I,
        beta: *const S, y: *mut S, incy: *const I,
    ) {
        let (a, x, y) = (Given::Packed(a), (x, int(incx)), (y, int(incy)));
        let result = triangle::hemv(upper(uplo), int(n), value(alpha), (a, false), x, value(beta), y);
        report::<S, I>(if S::COMPLEX { b"HPMV " } else { b"SPMV " }, result);
    }
    fn trmv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, a: *const S, lda: *const I,
        x: *mut S, incx: *const I,
    ) {
        let a = Given::Full(a, int(lda));
        let result = triangle::trmv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TRMV ", result);
    }
    fn trsv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, a: *const S, lda: *const I,
        x: *mut S, incx: *const I,
    ) {
        let a = Given::Full(a, int(lda));
        let result = triangle::trsv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TRSV ", result);
    }
    fn tbmv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, k: *const I, a: *const S,
        lda: *const I, x: *mut S, incx: *const I,
    ) {
        let a = Given::Band(int(k), a, int(lda));
        let result = triangle::trmv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TBMV ", result);
    }
    fn tbsv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, k: *const I, a: *const S,
        lda: *const I, x: *mut S, incx: *const I,
    ) {
        let a = Given::Band(int(k), a, int(lda));
        let result = triangle::trsv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TBSV ", result);
    }
    fn tpmv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, a: *const S, x: *mut S, incx: *const I,
    ) {
        let a = Given::Packed(a);
        let result = triangle::trmv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TPMV ", result);
    }
    fn tpsv<S: Scalar>(
        uplo: *const u8, trans: *const u8, diag: *const u8, n: *const I, a: *const S, x: *mut S, incx: *const I,
    ) {
        let a = Given::Packed(a);
        let result = triangle::trsv(upper(uplo), op(trans), unit(diag), int(n), a, (x, int(incx)));
        report::<S, I>(b"TPSV ", result);
    }
    fn her<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S::Real, x: *const S, incx: *const I, a: *mut S, lda: *const I,
    ) {
        let a = Given::Full(a.cast_const(), int(lda));
        let result = triangle::her(upper(uplo), int(n), value(alpha), (x, int(incx)), (a, false));
        report::<S, I>(if S::COMPLEX { b"HER  " } else { b"SYR  " }, result);
    }
    fn hpr<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S::Real, x: *const S, incx: *const I, a: *mut S,
    ) {
        let a = Given::Packed(a.cast_const());
        let result = triangle::her(upper(uplo), int(n), value(alpha), (x, int(incx)), (a, false));
        report::<S, I>(if S::COMPLEX { b"HPR  " } else { b"SPR  " }, result);
    }
    fn her2<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S, x: *const S, incx: *const I, y: *const S, incy: *const I,
        a: *mut S, lda: *const I,
    ) {
        let (x, y, a) = ((x, int(incx)), (y, int(incy)), Given::Full(a.cast_const(), int(lda)));
        let result = triangle::her2(upper(uplo), int(n), value(alpha), x, y, (a, false));
        report::<S, I>(if S::COMPLEX { b"HER2 " } else { b"SYR2 " }, result);
    }
    fn hpr2<S: Scalar>(
        uplo: *const u8, n: *const I, alpha: *const S, x: *const S, incx: *const I, y: *const S, incy: *const I,
        a: *mut S,
    ) {
        let (x, y, a) = ((x, int(incx)), (y, int(incy)), Given::Packed(a.cast_const()));
        let result = triangle::her2(upper(uplo), int(n), value(alpha), x, y, (a, false));
        report::<S, I>(if S::COMPLEX { b"HPR2 " } else { b"SPR2 " }, result);
    }
}

//! Level 3 in Fortran. Of DGEMM there is an exported one.

use super::super::scalar::{Integer, Scalar};
use super::super::triangular::{Task, triangular};
use super::super::{Entry, entry, level3, of_all, of_complex};
use super::{functions, int, left, op, report, unit, upper, value};

pub(super) static TABLE: &[&[Entry]] = &[
    &[entry!("sgemm", gemm, f32)],
    of_complex!("gemm", gemm),
    of_all!("symm", symm),
    of_complex!("hemm", hemm),
    of_all!("syrk", syrk),
    of_complex!("herk", herk),
    of_all!("syr2k", syr2k),
    of_complex!("her2k", her2k),
    of_all!("trmm", trmm),
    of_all!("trsm", trsm),
];

functions! {
    fn gemm<S: Scalar>(
        transa: *const u8, transb: *const u8, m: *const I, n: *const I, k: *const I, alpha: *const S,
        a: *const S, lda: *const I, b: *const S, ldb: *const I, beta: *const S, c: *mut S, ldc: *const I,
    ) {
        let (a, b, c) = ((a, int(lda)), (b, int(ldb)), (c, int(ldc)));
        let sizes = (int(m), int(n), int(k));
        let result = level3::gemm((op(transa), op(transb)), sizes, value(alpha), a, b, value(beta), c);
        report::<S, I>(b"GEMM ", result);
    }
    fn symm<S: Scalar>(
        side: *const u8, uplo: *const u8, m: *const I, n: *const I, alpha: *const S, a: *const S, lda: *const I,
        b: *const S, ldb: *const I, beta: *const S, c: *mut S, ldc: *const I,
    ) {
        let (a, b, c) = ((a, int(lda)), (b, int(ldb)), (c, int(ldc)));
        let (side, uplo, sizes) = (left(side), upper(uplo), (int(m), int(n)));
        let result = level3::symm(false, side, uplo, sizes, value(alpha), a, b, value(beta), c);
        report::<S, I>(b"SYMM ", result);
    }
    fn hemm<S: Scalar>(
        side: *const u8, uplo: *const u8, m: *const I, n: *const I, alpha: *const S, a: *const S, lda: *const I,
        b: *const S, ldb: *const I, beta: *const S, c: *mut S, ldc: *const I,
    ) {
        let (a, b, c) = ((a, int(lda)), (b, int(ldb)), (c, int(ldc)));
        let (side, uplo, sizes) = (left(side), upper(uplo), (int(m), int(n)));
        let result = level3::symm(true, side, uplo, sizes, value(alpha), a, b, value(beta), c);
        report::<S, I>(b"HEMM ", result);
    }
    fn syrk<S: Scalar>(
        uplo: *const u8, trans: *const u8, n: *const I, k: *const I, alpha: *const S, a: *const S, lda: *const I,
        beta: *const S, c: *mut S, ldc: *const I,
    ) {
        let (a, c, sizes) = ((a, int(lda)), (c, int(ldc)), (int(n), int(k)));
        let result = level3::syrk(upper(uplo), op(trans), sizes, value(alpha), a, value(beta), c);
        report::<S, I>(b"SYRK ", result);
    }
    fn herk<S: Scalar>(
        uplo: *const u8, trans: *const u8, n: *const I, k: *const I, alpha: *const S::Real, a: *const S,
        lda: *const I, beta: *const S::Real, c: *mut S, ldc: *const I,
    ) {
        let (a, c, sizes) = ((a, int(lda)), (c, int(ldc)), (int(n), int(k)));
        let result = level3::herk(upper(uplo), op(trans), sizes, value(alpha), a, value(beta), c);
        report::<S, I>(b"HERK ", result);
    }
    fn syr2k<S: Scalar>(
        uplo: *const u8, trans: *const u8, n: *const I, k: *const I, alpha: *const S, a: *const S, lda: *const I,
        b: *const S, ldb: *const I, beta: *const S, c: *mut S, ldc: *const I,
    ) {
        let (a, b, c, sizes) = ((a, int(lda)), (b, int(ldb)), (c, int(ldc)), (int(n), int(k)));
        let result = level3::syr2k(false, upper(uplo), op(trans), sizes, value(alpha), a, b, value(beta), c);
        report::<S, I>(b"SYR2K", result);
    }
    fn her2k<S: Scalar>(
        uplo: *const u8, trans: *const u8, n: *const I, k: *const I, alpha: *const S, a: *const S, lda: *const I,
        b: *const S, ldb: *const I, beta: *const S::Real, c: *mut S, ldc: *const I,
    ) {
        let (a, b, c, sizes) = ((a, int(lda)), (b, int(ldb)), (c, int(ldc)), (int(n), int(k)));
        let beta = S::from_real(value(beta));
        let result = level3::syr2k(true, upper(uplo), op(trans), sizes, value(alpha), a, b, beta, c);
        report::<S, I>(b"HER2K", result);
    }
    fn trmm<S: Scalar>(
        side: *const u8, uplo: *const u8, trans: *const u8, diag: *const u8, m: *const I, n: *const I,
        alpha: *const S, a: *const S, lda: *const I, b: *mut S, ldb: *const I,
    ) {
        let flags = (left(side), upper(uplo), op(trans), unit(diag));
        let (a, b, sizes) = ((a, int(lda)), (b, int(ldb)), (int(m), int(n)));
        let result = triangular(Task::Multiply, flags, sizes, value(alpha), a, b);
        report::<S, I>(b"TRMM ", result);
    }
    fn trsm<S: Scalar>(
        side: *const u8, uplo: *const u8, trans: *const u8, diag: *const u8, m: *const I, n: *const I,
        alpha: *const S, a: *const S, lda: *const I, b: *mut S, ldb: *const I,
    ) {
        let flags = (left(side), upper(uplo), op(trans), unit(diag));
        let (a, b, sizes) = ((a, int(lda)), (b, int(ldb)), (int(m), int(n)));
        let result = triangular(Task::Solve, flags, sizes, value(alpha), a, b);
        report::<S, I>(b"TRSM ", result);
    }
}

//! Level 3 of the CBLAS. Of DGEMM there is an exported one.

use std::ffi::c_int;

use super::super::scalar::{Integer, Op, Scalar};
use super::super::triangular::{Task, triangular};
use super::super::{Entry, entry, level3, of_all, of_complex};
use super::{enter, functions, left, op, unit, upper};

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

/// The operation of a rank-k update for the stored matrix, if the routine has it.
fn update_op<S: Scalar>(hermitian: bool, value: c_int, row_major: bool) -> Option<Op> {
    let op = op(value).filter(|op| level3::update_ops::<S>(hermitian).contains(op))?;
    Some(match op {
        op if !row_major => op,
        Op::No if hermitian => Op::ConjugateTranspose,
        Op::No => Op::Transpose,
        _ => Op::No,
    })
}

functions! {
    fn gemm<S: Scalar>(
        layout: c_int, transa: c_int, transb: c_int, m: I, n: I, k: I, alpha: S::Argument, a: *const S, lda: I,
        b: *const S, ldb: I, beta: S::Argument, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("gemm", layout, &[(4, 5), (9, 11)], |row| {
            let (op_a, op_b) = (Some(op(transa).ok_or(1)?), Some(op(transb).ok_or(2)?));
            let (m, n, k) = (m.widened(), n.widened(), k.widened());
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, b, c) = ((a, lda.widened()), (b, ldb.widened()), (c, ldc.widened()));
            if row {
                level3::gemm((op_b, op_a), (n, m, k), alpha, b, a, beta, c)
            } else {
                level3::gemm((op_a, op_b), (m, n, k), alpha, a, b, beta, c)
            }
        });
    }
    fn symm<S: Scalar>(
        layout: c_int, side: c_int, uplo: c_int, m: I, n: I, alpha: S::Argument, a: *const S, lda: I,
        b: *const S, ldb: I, beta: S::Argument, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("symm", layout, &[(4, 5)], |row| {
            let sizes = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, b, c) = ((a, lda.widened()), (b, ldb.widened()), (c, ldc.widened()));
            level3::symm(false, left(side, row), upper(uplo, row), sizes, alpha, a, b, beta, c)
        });
    }
    fn hemm<S: Scalar>(
        layout: c_int, side: c_int, uplo: c_int, m: I, n: I, alpha: S::Argument, a: *const S, lda: I,
        b: *const S, ldb: I, beta: S::Argument, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("hemm", layout, &[(4, 5)], |row| {
            let sizes = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, b, c) = ((a, lda.widened()), (b, ldb.widened()), (c, ldc.widened()));
            level3::symm(true, left(side, row), upper(uplo, row), sizes, alpha, a, b, beta, c)
        });
    }
    fn syrk<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, n: I, k: I, alpha: S::Argument, a: *const S, lda: I,
        beta: S::Argument, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("syrk", layout, &[], |row| {
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, c, sizes) = ((a, lda.widened()), (c, ldc.widened()), (n.widened(), k.widened()));
            level3::syrk(upper(uplo, row), update_op::<S>(false, trans, row), sizes, alpha, a, beta, c)
        });
    }
    fn herk<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, n: I, k: I, alpha: S::Real, a: *const S, lda: I,
        beta: S::Real, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("herk", layout, &[], |row| {
            let (a, c, sizes) = ((a, lda.widened()), (c, ldc.widened()), (n.widened(), k.widened()));
            level3::herk(upper(uplo, row), update_op::<S>(true, trans, row), sizes, alpha, a, beta, c)
        });
    }
    fn syr2k<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, n: I, k: I, alpha: S::Argument, a: *const S, lda: I,
        b: *const S, ldb: I, beta: S::Argument, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("syr2k", layout, &[], |row| {
            let (alpha, beta) = (S::of_argument(alpha), S::of_argument(beta));
            let (a, b, c) = ((a, lda.widened()), (b, ldb.widened()), (c, ldc.widened()));
            let (op, sizes) = (update_op::<S>(false, trans, row), (n.widened(), k.widened()));
            level3::syr2k(false, upper(uplo, row), op, sizes, alpha, a, b, beta, c)
        });
    }
    fn her2k<S: Scalar>(
        layout: c_int, uplo: c_int, trans: c_int, n: I, k: I, alpha: S::Argument, a: *const S, lda: I,
        b: *const S, ldb: I, beta: S::Real, c: *mut S, ldc: I,
    ) {
        enter::<S, I>("her2k", layout, &[], |row| {
            // The transposed of the sum has the other alpha with each product.
            let (alpha, beta) = (S::of_argument(alpha).conj_if(row), S::from_real(beta));
            let (a, b, c) = ((a, lda.widened()), (b, ldb.widened()), (c, ldc.widened()));
            let (op, sizes) = (update_op::<S>(true, trans, row), (n.widened(), k.widened()));
            level3::syr2k(true, upper(uplo, row), op, sizes, alpha, a, b, beta, c)
        });
    }
    fn trmm<S: Scalar>(
        layout: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: I, n: I, alpha: S::Argument,
        a: *const S, lda: I, b: *mut S, ldb: I,
    ) {
        enter::<S, I>("trmm", layout, &[(6, 7)], |row| {
            let flags = (left(side, row), upper(uplo, row), op(trans), unit(diag));
            let sizes = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (alpha, a, b) = (S::of_argument(alpha), (a, lda.widened()), (b, ldb.widened()));
            triangular(Task::Multiply, flags, sizes, alpha, a, b)
        });
    }
    fn trsm<S: Scalar>(
        layout: c_int, side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: I, n: I, alpha: S::Argument,
        a: *const S, lda: I, b: *mut S, ldb: I,
    ) {
        enter::<S, I>("trsm", layout, &[(6, 7)], |row| {
            let flags = (left(side, row), upper(uplo, row), op(trans), unit(diag));
            let sizes = if row { (n.widened(), m.widened()) } else { (m.widened(), n.widened()) };
            let (alpha, a, b) = (S::of_argument(alpha), (a, lda.widened()), (b, ldb.widened()));
            triangular(Task::Solve, flags, sizes, alpha, a, b)
        });
    }
}

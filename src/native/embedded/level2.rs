//! Level 2: a general matrix and vectors. What both interfaces share: the checks in the order of the reference BLAS, whose places they
//! report, and the loops.

use super::checks::{Checked, increment, leading, size};
use super::matrix::{Matrix, Vector, axpy, dot, scale};
use super::scalar::{Op, Scalar};

/// The stored entries of a column: from row `first` on.
struct Column<S> {
    entries: Vector<S>,
    first: usize,
    count: usize,
}

/// y += alpha op(A) x, where A is given by its columns.
///
/// # Safety
///
/// The columns lie in the matrix, and the vectors are as long as it demands.
unsafe fn add_product<S: Scalar>(
    op: Op,
    columns: usize,
    column: impl Fn(usize) -> Column<S>,
    alpha: S,
    x: Vector<S>,
    y: Vector<S>,
) {
    for j in 0..columns {
        let Column { entries, first, count } = column(j);
        // SAFETY: by the contract of this function.
        unsafe {
            if op.transposes() {
                let sum = dot(count, entries, op.conjugates(), x.from(first));
                y.set(j, y.get(j) + alpha * sum);
            } else {
                axpy(count, alpha * x.get(j), entries, op.conjugates(), y.from(first));
            }
        }
    }
}

/// y = alpha op(A) x + beta y.
///
/// # Safety
///
/// Matrices and vectors are as a BLAS demands them; the same is the contract of all functions of this file.
pub(super) unsafe fn gemv<S: Scalar>(
    op: Option<Op>,
    (m, n): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (x, incx): (*const S, i64),
    beta: S,
    (y, incy): (*mut S, i64),
) -> Checked {
    let op = op.ok_or(1)?;
    let (m, n) = (size(m, 2)?, size(n, 3)?);
    let a = Matrix::new(a, leading(lda, m, 6)?);
    let (incx, incy) = (increment(incx, 8)?, increment(incy, 11)?);
    let column = |j| Column { entries: a.column(j), first: 0, count: m };
    // SAFETY: by the contract of this function.
    unsafe { general(op, (m, n), column, alpha, (x, incx), beta, (y, incy)) };
    Ok(())
}

/// The same for a matrix with kl diagonals below and ku above the main one.
///
/// # Safety
///
/// As for [`gemv`].
#[allow(clippy::too_many_arguments, reason = "the BLAS has that many")]
pub(super) unsafe fn gbmv<S: Scalar>(
    op: Option<Op>,
    (m, n): (i64, i64),
    (kl, ku): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (x, incx): (*const S, i64),
    beta: S,
    (y, incy): (*mut S, i64),
) -> Checked {
    let op = op.ok_or(1)?;
    let (m, n) = (size(m, 2)?, size(n, 3)?);
    let (kl, ku) = (size(kl, 4)?, size(ku, 5)?);
    let a = Matrix::new(a, leading(lda, kl.saturating_add(ku).saturating_add(1), 8)?);
    let (incx, incy) = (increment(incx, 10)?, increment(incy, 13)?);
    let column = |j: usize| {
        let first = j.saturating_sub(ku);
        let end = j.saturating_add(kl).saturating_add(1).min(m);
        // The main diagonal is row ku of what is stored.
        let entries = a.block(ku - (j - first), j).column(0);
        Column { entries, first, count: end.saturating_sub(first) }
    };
    // SAFETY: by the contract of this function.
    unsafe { general(op, (m, n), column, alpha, (x, incx), beta, (y, incy)) };
    Ok(())
}

/// # Safety
///
/// As for [`gemv`].
unsafe fn general<S: Scalar>(
    op: Op,
    (m, n): (usize, usize),
    column: impl Fn(usize) -> Column<S>,
    alpha: S,
    (x, incx): (*const S, i64),
    beta: S,
    (y, incy): (*mut S, i64),
) {
    if m == 0 || n == 0 {
        return; // and y is not scaled
    }
    let (long_x, long_y) = if op.transposes() { (m, n) } else { (n, m) };
    let y = Vector::new(y, incy, long_y);
    // SAFETY: by the contract of this function.
    unsafe {
        scale(long_y, beta, y);
        if alpha != S::ZERO {
            add_product(op, n, column, alpha, Vector::new(x, incx, long_x), y);
        }
    }
}

/// A += alpha x y^T, with the conjugates of x or y where asked for.
///
/// # Safety
///
/// As for [`gemv`].
pub(super) unsafe fn ger<S: Scalar>(
    (m, n): (i64, i64),
    alpha: S,
    (x, incx, conjugate_x): (*const S, i64, bool),
    (y, incy, conjugate_y): (*const S, i64, bool),
    (a, lda): (*mut S, i64),
) -> Checked {
    let (m, n) = (size(m, 1)?, size(n, 2)?);
    let (incx, incy) = (increment(incx, 5)?, increment(incy, 7)?);
    let a = Matrix::new(a, leading(lda, m, 9)?);
    if m == 0 || n == 0 || alpha == S::ZERO {
        return Ok(());
    }
    let (x, y) = (Vector::new(x, incx, m), Vector::new(y, incy, n));
    for j in 0..n {
        // SAFETY: by the contract of this function.
        unsafe {
            let factor = y.get(j).conj_if(conjugate_y);
            if factor != S::ZERO {
                axpy(m, alpha * factor, x, conjugate_x, a.column(j));
            }
        }
    }
    Ok(())
}

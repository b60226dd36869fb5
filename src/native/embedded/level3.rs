//! Level 3: matrices. What both interfaces share: the checks in the order of the reference BLAS, whose places they report, and
//! the reduction of everything to products of general matrices by blocks. Only for triangular diagonal blocks there are loops:
//! a zero beside the triangle is no factor, or it would make NaN of Inf.

use super::checks::{Checked, leading, one_of, size};
use super::matrix::{Matrix, Vector, scale, scale_real};
use super::scalar::{Op, Product, Scalar};
use super::triangle::make_real;

/// The order of diagonal blocks: they fit on the stack.
pub(super) const BLOCK: usize = 32;

type Square<S> = [S; BLOCK * BLOCK];

/// C = alpha op(A) op(B) + beta C.
///
/// # Safety
///
/// The matrices are as a BLAS demands them; the same is the contract of all functions of this file.
pub(super) unsafe fn gemm<S: Scalar>(
    (op_a, op_b): (Option<Op>, Option<Op>),
    (m, n, k): (i64, i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (b, ldb): (*const S, i64),
    beta: S,
    (c, ldc): (*mut S, i64),
) -> Checked {
    let ops = (op_a.ok_or(1)?, op_b.ok_or(2)?);
    let (m, n, k) = (size(m, 3)?, size(n, 4)?, size(k, 5)?);
    let a = Matrix::new(a, leading(lda, if ops.0.transposes() { k } else { m }, 8)?);
    let b = Matrix::new(b, leading(ldb, if ops.1.transposes() { n } else { k }, 10)?);
    let c = Matrix::new(c, leading(ldc, m, 13)?);
    // SAFETY: by the contract of this function.
    unsafe {
        scale_matrix(m, n, beta, c);
        Product { ops, m, n, k, alpha, a, b, c }.add();
    }
    Ok(())
}

/// # Safety
///
/// As for [`gemm`].
pub(super) unsafe fn scale_matrix<S: Scalar>(m: usize, n: usize, beta: S, c: Matrix<S>) {
    if m == 0 || beta == S::ONE {
        return;
    }
    for j in 0..n {
        // SAFETY: by the contract of this function.
        unsafe { scale(m, beta, c.column(j)) };
    }
}

/// The transposition that makes the other triangle of a matrix.
fn mirror(hermitian: bool) -> Op {
    if hermitian { Op::ConjugateTranspose } else { Op::Transpose }
}

/// C = alpha A B + beta C, or alpha B A + beta C, for a symmetric or Hermitian A.
///
/// # Safety
///
/// As for [`gemm`].
#[allow(clippy::too_many_arguments, reason = "the BLAS has that many")]
pub(super) unsafe fn symm<S: Scalar>(
    hermitian: bool,
    left: Option<bool>,
    upper: Option<bool>,
    (m, n): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (b, ldb): (*const S, i64),
    beta: S,
    (c, ldc): (*mut S, i64),
) -> Checked {
    let (left, upper) = (left.ok_or(1)?, upper.ok_or(2)?);
    let (m, n) = (size(m, 3)?, size(n, 4)?);
    let order = if left { m } else { n };
    let a = Matrix::new(a, leading(lda, order, 7)?);
    let b = Matrix::new(b, leading(ldb, m, 9)?);
    let c = Matrix::new(c, leading(ldc, m, 12)?);
    // SAFETY: by the contract of this function.
    unsafe {
        scale_matrix(m, n, beta, c);
        if alpha == S::ZERO || m == 0 || n == 0 {
            return Ok(());
        }
        for first in (0..order).step_by(BLOCK) {
            let count = BLOCK.min(order - first);
            // The lines `first..` of C, from those lines of A and as many others as there are.
            let add = |op: Op, a: Matrix<S>, other: usize, others: usize| {
                let product = if left {
                    let (b, c) = (b.block(other, 0), c.block(first, 0));
                    Product { ops: (op, Op::No), m: count, n, k: others, alpha, a, b, c }
                } else {
                    let op = op.of_mirrored(hermitian);
                    let (b, c) = (b.block(0, other), c.block(0, first));
                    Product { ops: (Op::No, op), m, n: count, k: others, alpha, a: b, b: a, c }
                };
                product.add();
            };
            let end = first + count;
            let mut square = [S::ZERO; BLOCK * BLOCK];
            mirror_block(hermitian, upper, count, a.block(first, first), &mut square);
            let square = Matrix { at: square.as_mut_ptr(), ld: BLOCK };
            // Rows of A for the left side; on the right side columns, which are their mirror images.
            add(Op::No, square, first, count);
            let (before, after) = (mirror(hermitian), Op::No);
            if upper {
                add(before, a.block(0, first), 0, first);
                add(after, a.block(first, end), end, order - end);
            } else {
                add(after, a.block(first, 0), 0, first);
                add(before, a.block(end, first), end, order - end);
            }
        }
    }
    Ok(())
}

/// A whole diagonal block from its triangle.
///
/// # Safety
///
/// As for [`gemm`]; count <= BLOCK.
unsafe fn mirror_block<S: Scalar>(
    hermitian: bool,
    upper: bool,
    count: usize,
    a: Matrix<S>,
    square: &mut Square<S>,
) {
    for j in 0..count {
        let column = a.column(j);
        for i in if upper { 0..j } else { j + 1..count } {
            // SAFETY: by the contract of this function.
            let value = unsafe { column.get(i) };
            square[i + j * BLOCK] = value;
            square[j + i * BLOCK] = value.conj_if(hermitian);
        }
        // SAFETY: by the contract of this function.
        let value = unsafe { column.get(j) };
        square[j + j * BLOCK] = if hermitian { S::from_real(value.re()) } else { value };
    }
}

/// The n x n result of a rank-k update: one triangle of C.
struct Update<S> {
    hermitian: bool,
    upper: bool,
    op: Op,
    n: usize,
    k: usize,
    c: Matrix<S>,
}

impl<S: Scalar> Update<S> {
    /// C += alpha op(A) op(B)^T, or ^H.
    fn products(
        &self,
        alpha: S,
        a: Matrix<S>,
        b: Matrix<S>,
    ) -> impl Fn(usize, usize, usize, usize) -> Product<S> {
        let Self { op, k, c, hermitian, .. } = *self;
        let ops = if op.transposes() { (op, Op::No) } else { (Op::No, mirror(hermitian)) };
        move |i, rows, j, columns| {
            let (a, b) = (a.block_of(op, i, 0), b.block_of(op, j, 0));
            Product { ops, m: rows, n: columns, k, alpha, a, b, c: c.block(i, j) }
        }
    }

    /// The triangle of C is scaled by beta; the imaginary part of the diagonal is lost.
    ///
    /// # Safety
    ///
    /// As for [`gemm`].
    unsafe fn scale(&self, beta: impl Fn(usize, Vector<S>)) {
        for j in 0..self.n {
            let (first, count) = if self.upper { (0, j + 1) } else { (j, self.n - j) };
            beta(count, self.c.column(j).from(first));
            if self.hermitian {
                // SAFETY: by the contract of this function.
                unsafe { make_real(self.c.block(j, j).at) };
            }
        }
    }

    /// Adds a product to the triangle.
    ///
    /// # Safety
    ///
    /// As for [`gemm`].
    unsafe fn add(&self, product: impl Fn(usize, usize, usize, usize) -> Product<S>) {
        let n = self.n;
        for first in (0..n).step_by(BLOCK) {
            let count = BLOCK.min(n - first);
            let end = first + count;
            let beside = if self.upper { (0, first) } else { (end, n - end) };
            let mut square: Square<S> = [S::ZERO; BLOCK * BLOCK];
            let whole = Matrix { at: square.as_mut_ptr(), ld: BLOCK };
            // SAFETY: by the contract of this function.
            unsafe {
                product(beside.0, beside.1, first, count).add();
                Product { c: whole, ..product(first, count, first, count) }.add();
                for j in 0..count {
                    let column = self.c.block(first, first + j).column(0);
                    for i in if self.upper { 0..j + 1 } else { j..count } {
                        column.set(i, column.get(i) + whole.column(j).get(i));
                    }
                    if self.hermitian {
                        make_real(column.place(j));
                    }
                }
            }
        }
    }
}

/// The operations of a rank-k update: a symmetric one of complex matrices knows no conjugates, a Hermitian one needs them.
pub(super) fn update_ops<S: Scalar>(hermitian: bool) -> &'static [Op] {
    match (S::COMPLEX, hermitian) {
        (false, _) => &[Op::No, Op::Transpose, Op::ConjugateTranspose],
        (true, false) => &[Op::No, Op::Transpose],
        (true, true) => &[Op::No, Op::ConjugateTranspose],
    }
}

/// C = alpha op(A) op(A)^T + beta C.
///
/// # Safety
///
/// As for [`gemm`].
pub(super) unsafe fn syrk<S: Scalar>(
    upper: Option<bool>,
    op: Option<Op>,
    (n, k): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    beta: S,
    c: (*mut S, i64),
) -> Checked {
    let (update, a) = check_syrk(false, upper, op, (n, k), (a, lda), c)?;
    // SAFETY: by the contract of this function.
    unsafe {
        if beta != S::ONE {
            update.scale(|count, column| scale(count, beta, column));
        }
        if alpha != S::ZERO && update.k > 0 {
            update.add(update.products(alpha, a, a));
        }
    }
    Ok(())
}

/// C = alpha op(A) op(A)^H + beta C.
///
/// # Safety
///
/// As for [`gemm`].
pub(super) unsafe fn herk<S: Scalar>(
    upper: Option<bool>,
    op: Option<Op>,
    (n, k): (i64, i64),
    alpha: S::Real,
    (a, lda): (*const S, i64),
    beta: S::Real,
    c: (*mut S, i64),
) -> Checked {
    let (update, a) = check_syrk(true, upper, op, (n, k), (a, lda), c)?;
    // SAFETY: by the contract of this function.
    unsafe {
        if beta != S::Real::ONE {
            update.scale(|count, column| scale_real(count, beta, column));
        }
        if alpha != S::Real::ZERO && update.k > 0 {
            update.add(update.products(S::from_real(alpha), a, a));
        }
    }
    Ok(())
}

fn check_syrk<S: Scalar>(
    hermitian: bool,
    upper: Option<bool>,
    op: Option<Op>,
    (n, k): (i64, i64),
    (a, lda): (*const S, i64),
    (c, ldc): (*mut S, i64),
) -> Checked<(Update<S>, Matrix<S>)> {
    let (upper, op) = (upper.ok_or(1)?, one_of(op, update_ops::<S>(hermitian), 2)?);
    let (n, k) = (size(n, 3)?, size(k, 4)?);
    let a = Matrix::new(a, leading(lda, if op.transposes() { k } else { n }, 7)?);
    let c = Matrix::new(c, leading(ldc, n, 10)?);
    Ok((Update { hermitian, upper, op, n, k, c }, a))
}

/// C = alpha op(A) op(B)^T + alpha op(B) op(A)^T + beta C; Hermitian: ^H, and the second alpha conjugated.
///
/// # Safety
///
/// As for [`gemm`].
#[allow(clippy::too_many_arguments, reason = "the BLAS has that many")]
pub(super) unsafe fn syr2k<S: Scalar>(
    hermitian: bool,
    upper: Option<bool>,
    op: Option<Op>,
    (n, k): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (b, ldb): (*const S, i64),
    beta: S,
    (c, ldc): (*mut S, i64),
) -> Checked {
    let (upper, op) = (upper.ok_or(1)?, one_of(op, update_ops::<S>(hermitian), 2)?);
    let (n, k) = (size(n, 3)?, size(k, 4)?);
    let stored = if op.transposes() { k } else { n };
    let a = Matrix::new(a, leading(lda, stored, 7)?);
    let b = Matrix::new(b, leading(ldb, stored, 9)?);
    let c = Matrix::new(c, leading(ldc, n, 12)?);
    let update = Update { hermitian, upper, op, n, k, c };
    // SAFETY: by the contract of this function.
    unsafe {
        if beta != S::ONE {
            // The beta of a Hermitian update is real.
            update.scale(|count, column| {
                if hermitian { scale_real(count, beta.re(), column) } else { scale(count, beta, column) }
            });
        }
        if alpha != S::ZERO && k > 0 {
            update.add(update.products(alpha, a, b));
            update.add(update.products(alpha.conj_if(hermitian), b, a));
        }
    }
    Ok(())
}

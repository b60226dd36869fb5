//! Level 3: products with a triangular matrix, and systems of one. The triangle is halved until it is a block; what is beside
//! the two halves is a general matrix.

use super::checks::{Checked, leading, size};
use super::level3::{BLOCK, scale_matrix};
use super::matrix::{Matrix, axpy, multiply};
use super::scalar::{Op, Product, Scalar};
use super::triangle::Triangle;

/// What is done to B.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Multiply,
    Solve,
}

/// The arguments that stay the same for every part.
#[derive(Clone, Copy)]
struct Call {
    task: Task,
    left: bool,
    upper: bool,
    op: Op,
    unit: bool,
    /// The columns of B with A on the left, the rows with A on the right.
    lines: usize,
}

/// B = alpha op(A) B or alpha B op(A) with a triangular A, or with its inverse.
///
/// # Safety
///
/// The matrices are as a BLAS demands them; the same is the contract of all functions of this file.
pub(super) unsafe fn triangular<S: Scalar>(
    task: Task,
    (left, upper, op, unit): (Option<bool>, Option<bool>, Option<Op>, Option<bool>),
    (m, n): (i64, i64),
    alpha: S,
    (a, lda): (*const S, i64),
    (b, ldb): (*mut S, i64),
) -> Checked {
    let (left, upper, op, unit) = (left.ok_or(1)?, upper.ok_or(2)?, op.ok_or(3)?, unit.ok_or(4)?);
    let (m, n) = (size(m, 5)?, size(n, 6)?);
    let (order, lines) = if left { (m, n) } else { (n, m) };
    let a = Matrix::new(a, leading(lda, order, 9)?);
    let b = Matrix::new(b, leading(ldb, m, 11)?);
    // SAFETY: by the contract of this function.
    unsafe {
        scale_matrix(m, n, alpha, b);
        if m != 0 && n != 0 && alpha != S::ZERO {
            Call { task, left, upper, op, unit, lines }.run(a, order, b);
        }
    }
    Ok(())
}

impl Call {
    /// op(A) is an upper triangle.
    fn acts_as_upper(self) -> bool {
        self.upper != self.op.transposes()
    }

    /// # Safety
    ///
    /// As for [`triangular`].
    unsafe fn run<S: Scalar>(self, a: Matrix<S>, order: usize, b: Matrix<S>) {
        if order <= BLOCK {
            // SAFETY: by the contract of this function.
            return unsafe { self.block(a, order, b) };
        }
        let half = (order / 2).next_multiple_of(BLOCK);
        let rest = order - half;
        let second = if self.left { b.block(half, 0) } else { b.block(0, half) };
        let first = (a, half, b);
        let second = (a.block(half, half), rest, second);
        // The lines of B in `target` need those in `source`, and not the other way round.
        let (target, source) =
            if self.left == self.acts_as_upper() { (first, second) } else { (second, first) };
        let beside =
            if self.acts_as_upper() { a.block_of(self.op, 0, half) } else { a.block_of(self.op, half, 0) };
        let alpha = if self.task == Task::Multiply { S::ONE } else { -S::ONE };
        let (k, c) = (source.1, target.2);
        let product = if self.left {
            let ops = (self.op, Op::No);
            Product { ops, m: target.1, n: self.lines, k, alpha, a: beside, b: source.2, c }
        } else {
            let ops = (Op::No, self.op);
            Product { ops, m: self.lines, n: target.1, k, alpha, a: source.2, b: beside, c }
        };
        // SAFETY: by the contract of this function.
        unsafe {
            match self.task {
                Task::Multiply => {
                    self.run(target.0, target.1, target.2);
                    product.add();
                    self.run(source.0, source.1, source.2);
                }
                Task::Solve => {
                    self.run(source.0, source.1, source.2);
                    product.add();
                    self.run(target.0, target.1, target.2);
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`triangular`].
    unsafe fn block<S: Scalar>(self, a: Matrix<S>, order: usize, b: Matrix<S>) {
        if !self.left {
            // SAFETY: by the contract of this function.
            return unsafe { self.block_on_the_right(a, order, b) };
        }
        let triangle = Triangle::full(a.at, order, self.upper, a.ld);
        for j in 0..self.lines {
            // SAFETY: by the contract of this function.
            unsafe {
                match self.task {
                    Task::Multiply => triangle.multiply(self.op, self.unit, b.column(j)),
                    Task::Solve => triangle.solve(self.op, self.unit, b.column(j)),
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`triangular`].
    unsafe fn block_on_the_right<S: Scalar>(self, a: Matrix<S>, order: usize, b: Matrix<S>) {
        let ascending = self.acts_as_upper() == (self.task == Task::Solve);
        for step in 0..order {
            let j = if ascending { step } else { order - 1 - step };
            let (factors, column) = (a.column_of(self.op, j), b.column(j));
            // SAFETY: by the contract of this function.
            unsafe {
                let factor = |h: usize| factors.get(h).conj_if(self.op.conjugates());
                if self.task == Task::Multiply && !self.unit {
                    multiply(self.lines, factor(j), column);
                }
                for h in if self.acts_as_upper() { 0..j } else { j + 1..order } {
                    let factor = if self.task == Task::Multiply { factor(h) } else { -factor(h) };
                    if factor != S::ZERO {
                        axpy(self.lines, factor, b.column(h), false, column);
                    }
                }
                if self.task == Task::Solve && !self.unit {
                    multiply(self.lines, S::ONE.over(factor(j)), column);
                }
            }
        }
    }
}

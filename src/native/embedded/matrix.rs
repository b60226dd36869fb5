//! Vectors and matrices as the caller stores them, and the loops that all routines are made of.
//!
//! Addresses need no alignment (old Fortran programs put doubles at multiples of 4), and arithmetic with them wraps: what is
//! computed for a matrix without elements is never read.

use super::scalar::{Op, Product, Scalar};

/// Elements at equal distances.
#[derive(Clone, Copy)]
pub(super) struct Vector<S> {
    at: *mut S,
    step: isize,
}

impl<S: Scalar> Vector<S> {
    /// The n elements of a BLAS vector: with a negative increment the first one is the last in memory.
    pub fn new(at: *const S, increment: i64, n: usize) -> Self {
        let step = increment as isize;
        let back = if step < 0 { (n as isize).wrapping_sub(1).wrapping_mul(step) } else { 0 };
        Self { at: at.cast_mut().wrapping_offset(back.wrapping_neg()), step }
    }

    pub fn contiguous(at: *mut S) -> Self {
        Self { at, step: 1 }
    }

    pub fn place(self, i: usize) -> *mut S {
        self.at.wrapping_offset((i as isize).wrapping_mul(self.step))
    }

    /// What begins with element i.
    pub fn from(self, i: usize) -> Self {
        Self { at: self.place(i), step: self.step }
    }

    /// # Safety
    ///
    /// The vector has an element i.
    pub unsafe fn get(self, i: usize) -> S {
        // SAFETY: by the contract of this function.
        unsafe { self.place(i).read_unaligned() }
    }

    /// # Safety
    ///
    /// The vector has an element i, which may be written.
    pub unsafe fn set(self, i: usize, value: S) {
        // SAFETY: by the contract of this function.
        unsafe { self.place(i).write_unaligned(value) };
    }
}

/// A column-major matrix.
#[derive(Clone, Copy)]
pub(super) struct Matrix<S> {
    pub at: *mut S,
    pub ld: usize,
}

impl<S: Scalar> Matrix<S> {
    pub fn new(at: *const S, ld: usize) -> Self {
        Self { at: at.cast_mut(), ld }
    }

    /// What begins with entry (i, j).
    pub fn block(self, i: usize, j: usize) -> Self {
        Self { at: self.at.wrapping_add(i.wrapping_add(j.wrapping_mul(self.ld))), ld: self.ld }
    }

    /// The part of the stored matrix that begins with entry (i, j) of op(X).
    pub fn block_of(self, op: Op, i: usize, j: usize) -> Self {
        if op.transposes() { self.block(j, i) } else { self.block(i, j) }
    }

    pub fn column(self, j: usize) -> Vector<S> {
        Vector::contiguous(self.block(0, j).at)
    }

    /// Column j of op(X), not conjugated.
    pub fn column_of(self, op: Op, j: usize) -> Vector<S> {
        if op.transposes() {
            Vector { at: self.block(j, 0).at, step: self.ld as isize }
        } else {
            self.column(j)
        }
    }
}

/// y[i] = f(x[i], y[i]) for i < n.
///
/// # Safety
///
/// The vectors have n elements, and y may be written.
#[inline(always)]
unsafe fn update<S: Scalar>(n: usize, x: Vector<S>, y: Vector<S>, f: impl Fn(S, S) -> S) {
    // SAFETY: by the contract of this function.
    unsafe {
        if x.step == 1 && y.step == 1 {
            for i in 0..n {
                let (x, y) = (x.at.add(i), y.at.add(i));
                y.write_unaligned(f(x.read_unaligned(), y.read_unaligned()));
            }
        } else {
            for i in 0..n {
                y.set(i, f(x.get(i), y.get(i)));
            }
        }
    }
}

/// y += t x, or t conj(x).
///
/// # Safety
///
/// The vectors have n elements, and y may be written.
pub(super) unsafe fn axpy<S: Scalar>(n: usize, t: S, x: Vector<S>, conjugate: bool, y: Vector<S>) {
    // SAFETY: by the contract of this function.
    unsafe {
        if S::COMPLEX && conjugate {
            update(n, x, y, |x, y| y + t * x.conj());
        } else {
            update(n, x, y, |x, y| y + t * x);
        }
    }
}

/// The sum of x[i] y[i], or of conj(x[i]) y[i].
///
/// # Safety
///
/// The vectors have n elements.
pub(super) unsafe fn dot<S: Scalar>(n: usize, x: Vector<S>, conjugate: bool, y: Vector<S>) -> S {
    // SAFETY: by the contract of this function.
    unsafe {
        if S::COMPLEX && conjugate {
            sum_of_products(n, x, y, |x, y| x.conj() * y)
        } else {
            sum_of_products(n, x, y, |x, y| x * y)
        }
    }
}

/// # Safety
///
/// As for [`dot`].
#[inline(always)]
unsafe fn sum_of_products<S: Scalar>(n: usize, x: Vector<S>, y: Vector<S>, f: impl Fn(S, S) -> S) -> S {
    /// Sums that are made side by side, in vector registers.
    const LANES: usize = 8;
    let mut total = S::ZERO;
    let mut done = 0;
    // SAFETY: by the contract of this function.
    unsafe {
        if x.step == 1 && y.step == 1 && n >= LANES {
            let mut sums = [S::ZERO; LANES];
            while n - done >= LANES {
                for lane in 0..LANES {
                    let i = done + lane;
                    sums[lane] = sums[lane] + f(x.at.add(i).read_unaligned(), y.at.add(i).read_unaligned());
                }
                done += LANES;
            }
            for sum in sums {
                total = total + sum;
            }
        }
        for i in done..n {
            total = total + f(x.get(i), y.get(i));
        }
    }
    total
}

/// y = beta y; for beta = 0 it is not read.
///
/// # Safety
///
/// The vector has n elements, which may be written.
pub(super) unsafe fn scale<S: Scalar>(n: usize, beta: S, y: Vector<S>) {
    // SAFETY: by the contract of this function.
    unsafe {
        if beta == S::ZERO {
            fill(n, y);
        } else if beta != S::ONE {
            update(n, y, y, |_, y| beta * y);
        }
    }
}

/// The same with a real factor, which does not bring real and imaginary parts together.
///
/// # Safety
///
/// As for [`scale`].
pub(super) unsafe fn scale_real<S: Scalar>(n: usize, beta: S::Real, y: Vector<S>) {
    // SAFETY: by the contract of this function.
    unsafe {
        if beta == S::Real::ZERO {
            fill(n, y);
        } else if beta != S::Real::ONE {
            multiply_real(n, beta, y);
        }
    }
}

/// y = factor y, whatever the factor is.
///
/// # Safety
///
/// As for [`scale`].
pub(super) unsafe fn multiply<S: Scalar>(n: usize, factor: S, y: Vector<S>) {
    // SAFETY: by the contract of this function.
    unsafe { update(n, y, y, |_, y| factor * y) };
}

/// # Safety
///
/// As for [`scale`].
pub(super) unsafe fn multiply_real<S: Scalar>(n: usize, factor: S::Real, y: Vector<S>) {
    // SAFETY: by the contract of this function.
    unsafe { update(n, y, y, |_, y| y.scaled(factor)) };
}

/// # Safety
///
/// As for [`scale`].
unsafe fn fill<S: Scalar>(n: usize, y: Vector<S>) {
    for i in 0..n {
        // SAFETY: by the contract of this function.
        unsafe { y.set(i, S::ZERO) };
    }
}

impl<S: Scalar> Product<S> {
    /// Adds the product to C.
    ///
    /// # Safety
    ///
    /// The matrices are as a BLAS demands them.
    pub unsafe fn add(&self) {
        if self.m == 0 || self.n == 0 || self.k == 0 || self.alpha == S::ZERO {
            return;
        }
        // SAFETY: by the contract of this function.
        unsafe {
            if !S::fast_product(self) {
                self.add_in_blocks();
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Self::add`].
    unsafe fn add_in_blocks(&self) {
        /// A block of A, which every column of C needs, stays in the second-level cache.
        const ROWS: usize = 256;
        const DEPTH: usize = 64;
        for i in (0..self.m).step_by(ROWS) {
            for h in (0..self.k).step_by(DEPTH) {
                let block = Self {
                    m: ROWS.min(self.m - i),
                    k: DEPTH.min(self.k - h),
                    a: self.a.block_of(self.ops.0, i, h),
                    b: self.b.block_of(self.ops.1, h, 0),
                    c: self.c.block(i, 0),
                    ..*self
                };
                for j in 0..self.n {
                    // SAFETY: by the contract of this function.
                    unsafe { block.add_column(j) };
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Self::add`].
    unsafe fn add_column(&self, j: usize) {
        let (op, conjugate_b) = (self.ops.0, self.ops.1.conjugates());
        let (b, c) = (self.b.column_of(self.ops.1, j), self.c.column(j));
        // SAFETY: by the contract of this function.
        unsafe {
            if op.transposes() {
                for i in 0..self.m {
                    // conj(a) conj(b) is the conjugate of a b.
                    let conjugate = op.conjugates() != conjugate_b;
                    let sum = dot(self.k, self.a.column(i), conjugate, b).conj_if(conjugate_b);
                    c.set(i, c.get(i) + self.alpha * sum);
                }
            } else {
                for h in 0..self.k {
                    let t = self.alpha * b.get(h).conj_if(conjugate_b);
                    axpy(self.m, t, self.a.column(h), op.conjugates(), c);
                }
            }
        }
    }
}

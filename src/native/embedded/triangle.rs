//! Level 2: a triangle and vectors. It may be stored as a part of a matrix, as a band, or packed: the loops are the same.
//!
//! A row-major triangle is taken for what it is when read by columns: the other triangle of the transposed matrix. For a
//! Hermitian matrix that is the conjugate, and then `conjugate` is set.

use super::checks::{Checked, increment, leading, size};
use super::matrix::{Vector, axpy, dot, scale};
use super::scalar::{Op, Scalar};

/// How a triangle is given, before anything of it has been checked: where it is, and the number of its off-diagonals and its
/// leading dimension as far as it has them.
#[derive(Clone, Copy)]
pub(super) enum Given<S> {
    Full(*const S, i64),
    Band(i64, *const S, i64),
    Packed(*const S),
}

impl<S: Scalar> Given<S> {
    /// How much further the arguments after the matrix are than for a full one.
    fn shift(self) -> i32 {
        match self {
            Self::Full(..) => 0,
            Self::Band(..) => 1,
            Self::Packed(_) => -1,
        }
    }

    /// The off-diagonals that are stored; their number comes right after n.
    fn reach(self, place: i32) -> Checked<usize> {
        if let Self::Band(k, ..) = self { size(k, place) } else { Ok(usize::MAX) }
    }

    /// `place` is that of the leading dimension.
    fn check(self, upper: bool, n: usize, reach: usize, place: i32) -> Checked<Triangle<S>> {
        let (at, ld) = match self {
            Self::Full(at, ld) => (at, Some(leading(ld, n, place)?)),
            Self::Band(_, at, ld) => (at, Some(leading(ld, reach.saturating_add(1), place)?)),
            Self::Packed(at) => (at, None),
        };
        let band = matches!(self, Self::Band(..));
        Ok(Triangle { at: at.cast_mut(), n, upper, reach, band, ld })
    }
}

/// The stored triangle of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Triangle<S> {
    at: *mut S,
    n: usize,
    upper: bool,
    reach: usize,
    band: bool,
    /// None: packed.
    ld: Option<usize>,
}

/// A column: its diagonal entry, and what is stored above or below it from row `first` on.
struct Column<S> {
    diagonal: *mut S,
    entries: Vector<S>,
    first: usize,
    count: usize,
}

impl<S: Scalar> Triangle<S> {
    pub fn full(at: *mut S, n: usize, upper: bool, ld: usize) -> Self {
        Self { at, n, upper, reach: usize::MAX, band: false, ld: Some(ld) }
    }

    /// Column j < n.
    fn column(&self, j: usize) -> Column<S> {
        let diagonal = match self.ld {
            Some(ld) => {
                let row = match (self.band, self.upper) {
                    (false, _) => j,
                    (true, true) => self.reach,
                    (true, false) => 0,
                };
                j.wrapping_mul(ld).wrapping_add(row)
            }
            None if self.upper => j.wrapping_mul(j.wrapping_add(3)) / 2,
            None => j.wrapping_mul((2 * self.n).wrapping_sub(j).wrapping_add(1)) / 2,
        };
        let diagonal = self.at.wrapping_add(diagonal);
        let count = self.reach.min(if self.upper { j } else { self.n - 1 - j });
        let (first, entries) = if self.upper {
            (j - count, diagonal.wrapping_sub(count))
        } else {
            (j + 1, diagonal.wrapping_add(1))
        };
        Column { diagonal, entries: Vector::contiguous(entries), first, count }
    }

    /// The columns in an order in which op(A) x (or, from the end, its inverse) can replace x.
    fn order(&self, op: Op, inverse: bool) -> impl Iterator<Item = usize> {
        let (n, ascending) = (self.n, (self.upper != op.transposes()) != inverse);
        (0..n).map(move |step| if ascending { step } else { n - 1 - step })
    }

    /// x = op(A) x.
    ///
    /// # Safety
    ///
    /// Matrix and vector are as a BLAS demands them; the same is the contract of all functions of this file.
    pub unsafe fn multiply(&self, op: Op, unit: bool, x: Vector<S>) {
        for j in self.order(op, false) {
            let Column { diagonal, entries, first, count } = self.column(j);
            // SAFETY: by the contract of this function.
            unsafe {
                let old = x.get(j);
                if !op.transposes() && old == S::ZERO {
                    continue;
                }
                let mut new = old;
                if !unit {
                    new = old * diagonal.read_unaligned().conj_if(op.conjugates());
                }
                if op.transposes() {
                    new = new + dot(count, entries, op.conjugates(), x.from(first));
                } else {
                    axpy(count, old, entries, op.conjugates(), x.from(first));
                }
                x.set(j, new);
            }
        }
    }

    /// Solves op(A) y = x; y replaces x.
    ///
    /// # Safety
    ///
    /// As for [`Self::multiply`].
    pub unsafe fn solve(&self, op: Op, unit: bool, x: Vector<S>) {
        for j in self.order(op, true) {
            let Column { diagonal, entries, first, count } = self.column(j);
            // SAFETY: by the contract of this function.
            unsafe {
                let mut value = x.get(j);
                if op.transposes() {
                    value = value - dot(count, entries, op.conjugates(), x.from(first));
                } else if value == S::ZERO {
                    continue; // whatever the diagonal is
                }
                if !unit {
                    value = value.over(diagonal.read_unaligned().conj_if(op.conjugates()));
                }
                x.set(j, value);
                if !op.transposes() {
                    axpy(count, -value, entries, op.conjugates(), x.from(first));
                }
            }
        }
    }
}

/// y = alpha A x + beta y for a symmetric or Hermitian A.
///
/// # Safety
///
/// As for [`Triangle::multiply`].
pub(super) unsafe fn hemv<S: Scalar>(
    upper: Option<bool>,
    n: i64,
    alpha: S,
    (a, conjugate): (Given<S>, bool),
    (x, incx): (*const S, i64),
    beta: S,
    (y, incy): (*mut S, i64),
) -> Checked {
    let upper = upper.ok_or(1)?;
    let n = size(n, 2)?;
    let (reach, shift) = (a.reach(3)?, a.shift());
    let a = a.check(upper, n, reach, 5 + shift)?;
    let (incx, incy) = (increment(incx, 7 + shift)?, increment(incy, 10 + shift)?);
    if n == 0 {
        return Ok(());
    }
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    // SAFETY: by the contract of this function.
    unsafe {
        scale(n, beta, y);
        if alpha == S::ZERO {
            return Ok(());
        }
        for j in 0..n {
            let Column { diagonal, entries, first, count } = a.column(j);
            let t = alpha * x.get(j);
            axpy(count, t, entries, conjugate, y.from(first));
            // The other triangle has the conjugates.
            let sum = dot(count, entries, !conjugate, x.from(first));
            y.set(j, y.get(j) + t.scaled(diagonal.read_unaligned().re()) + alpha * sum);
        }
    }
    Ok(())
}

/// What both triangular routines check: op, unit, the triangle, and x.
fn triangular<S: Scalar>(
    upper: Option<bool>,
    op: Option<Op>,
    unit: Option<bool>,
    n: i64,
    a: Given<S>,
    (x, incx): (*mut S, i64),
) -> Checked<(Op, bool, Triangle<S>, Vector<S>)> {
    let (upper, op, unit) = (upper.ok_or(1)?, op.ok_or(2)?, unit.ok_or(3)?);
    let n = size(n, 4)?;
    let (reach, shift) = (a.reach(5)?, a.shift());
    let a = a.check(upper, n, reach, 6 + shift)?;
    let incx = increment(incx, 8 + shift)?;
    Ok((op, unit, a, Vector::new(x, incx, n)))
}

/// x = op(A) x.
///
/// # Safety
///
/// As for [`Triangle::multiply`].
pub(super) unsafe fn trmv<S: Scalar>(
    upper: Option<bool>,
    op: Option<Op>,
    unit: Option<bool>,
    n: i64,
    a: Given<S>,
    x: (*mut S, i64),
) -> Checked {
    let (op, unit, a, x) = triangular(upper, op, unit, n, a, x)?;
    // SAFETY: by the contract of this function.
    unsafe { a.multiply(op, unit, x) };
    Ok(())
}

/// x = the inverse of op(A), times x.
///
/// # Safety
///
/// As for [`Triangle::multiply`].
pub(super) unsafe fn trsv<S: Scalar>(
    upper: Option<bool>,
    op: Option<Op>,
    unit: Option<bool>,
    n: i64,
    a: Given<S>,
    x: (*mut S, i64),
) -> Checked {
    let (op, unit, a, x) = triangular(upper, op, unit, n, a, x)?;
    // SAFETY: by the contract of this function.
    unsafe { a.solve(op, unit, x) };
    Ok(())
}

/// Forgets what the imaginary part of a Hermitian diagonal is.
///
/// # Safety
///
/// A number that may be written.
pub(super) unsafe fn make_real<S: Scalar>(diagonal: *mut S) {
    if S::COMPLEX {
        // SAFETY: by the contract of this function.
        unsafe { diagonal.write_unaligned(S::from_real(diagonal.read_unaligned().re())) };
    }
}

/// A += alpha x x^H for a symmetric or Hermitian A.
///
/// # Safety
///
/// As for [`Triangle::multiply`].
pub(super) unsafe fn her<S: Scalar>(
    upper: Option<bool>,
    n: i64,
    alpha: S::Real,
    (x, incx): (*const S, i64),
    (a, conjugate): (Given<S>, bool),
) -> Checked {
    let upper = upper.ok_or(1)?;
    let n = size(n, 2)?;
    let incx = increment(incx, 5)?;
    let a = a.check(upper, n, usize::MAX, 7)?;
    if alpha == S::Real::ZERO {
        return Ok(());
    }
    let x = Vector::new(x, incx, n);
    for j in 0..n {
        let Column { diagonal, entries, first, count } = a.column(j);
        // SAFETY: by the contract of this function.
        unsafe {
            let value = x.get(j);
            if value != S::ZERO {
                let t = value.scaled(alpha).conj_if(!conjugate);
                axpy(count, t, x.from(first), conjugate, entries);
                axpy(1, t, x.from(j), conjugate, Vector::contiguous(diagonal));
            }
            make_real(diagonal);
        }
    }
    Ok(())
}

/// A += alpha x y^H + conj(alpha) y x^H for a symmetric or Hermitian A.
///
/// # Safety
///
/// As for [`Triangle::multiply`].
pub(super) unsafe fn her2<S: Scalar>(
    upper: Option<bool>,
    n: i64,
    alpha: S,
    (x, incx): (*const S, i64),
    (y, incy): (*const S, i64),
    (a, conjugate): (Given<S>, bool),
) -> Checked {
    let upper = upper.ok_or(1)?;
    let n = size(n, 2)?;
    let (incx, incy) = (increment(incx, 5)?, increment(incy, 7)?);
    let a = a.check(upper, n, usize::MAX, 9)?;
    if alpha == S::ZERO {
        return Ok(());
    }
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    for j in 0..n {
        let Column { diagonal, entries, first, count } = a.column(j);
        // SAFETY: by the contract of this function.
        unsafe {
            let (xj, yj) = (x.get(j), y.get(j));
            if xj != S::ZERO || yj != S::ZERO {
                let with_x = (alpha * yj.conj()).conj_if(conjugate);
                let with_y = (alpha * xj).conj_if(!conjugate);
                axpy(count, with_x, x.from(first), conjugate, entries);
                axpy(count, with_y, y.from(first), conjugate, entries);
                axpy(1, with_x, x.from(j), conjugate, Vector::contiguous(diagonal));
                axpy(1, with_y, y.from(j), conjugate, Vector::contiguous(diagonal));
            }
            make_real(diagonal);
        }
    }
    Ok(())
}

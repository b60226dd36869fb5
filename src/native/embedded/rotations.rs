//! Level 1: the making of rotations, and the modified ones.

use super::matrix::Vector;
use super::scalar::{Real, Scalar};

/// What is divided by so that sums of squares neither over- nor underflow.
fn unit<R: Real>(size: R) -> R {
    size.larger(R::SAFE_MIN).smaller(R::SAFE_MAX)
}

/// (r, z, c, s) such that the rotation takes (a, b) to (r, 0); z tells c and s in one number.
pub(super) fn rotg<R: Real>(a: R, b: R) -> (R, R, R, R) {
    let (size_a, size_b) = (a.abs(), b.abs());
    if size_b == R::ZERO {
        return (a, R::ZERO, R::ONE, R::ZERO);
    }
    if size_a == R::ZERO {
        return (b, R::ONE, R::ZERO, R::ONE);
    }
    let a_is_larger = size_a > size_b;
    let unit = unit(size_a.larger(size_b));
    let (x, y) = (a / unit, b / unit);
    let length = unit * (x * x + y * y).sqrt();
    let r = length.copysign(if a_is_larger { a } else { b });
    let (c, s) = (a / r, b / r);
    let z = if a_is_larger {
        s
    } else if c != R::ZERO {
        R::ONE / c
    } else {
        R::ONE
    };
    (r, z, c, s)
}

/// (r, c, s) such that r = c a + s b and 0 = c b - conj(s) a, with a real c. Of a complex number r has the direction of a.
pub(super) fn rotg_complex<S: Scalar>(a: S, b: S) -> (S, S::Real, S) {
    let (zero, one) = (S::Real::ZERO, S::Real::ONE);
    if b == S::ZERO {
        return (a, one, S::ZERO);
    }
    // A number as a unit, and a value of ordinary size in that unit.
    let normal = |x: S| {
        let unit = unit(x.re().abs().larger(x.im().abs()));
        (unit, x.shrunk(unit))
    };
    let length = |x: S| (x.re() * x.re() + x.im() * x.im()).sqrt();
    let (unit_b, y) = normal(b);
    let length_b = length(y);
    if a == S::ZERO {
        return (S::from_real(length_b * unit_b), zero, y.conj().shrunk(length_b));
    }
    let (unit_a, x) = normal(a);
    let length_a = length(x);
    let unit = unit_a.larger(unit_b);
    let (in_a, in_b) = (length_a * (unit_a / unit), length_b * (unit_b / unit));
    let sum = (in_a * in_a + in_b * in_b).sqrt();
    let direction = x.shrunk(length_a);
    let s = y.conj().scaled((unit_b / unit) / sum) * direction;
    (direction.scaled(sum).scaled(unit), in_a / sum, s)
}

/// The numbers of a modified rotation: a flag that tells which of the four entries count, then h11, h21, h12, h22.
type Parameters<R> = [R; 5];

/// # Safety
///
/// As for a vector of five elements.
unsafe fn parameters<R: Real>(at: *const R) -> Parameters<R> {
    // SAFETY: by the contract of this function.
    [0, 1, 2, 3, 4].map(|i| unsafe { Vector::contiguous(at.cast_mut()).get(i) })
}

/// Applies a modified rotation.
///
/// # Safety
///
/// The vectors and the five parameters are as a BLAS demands them.
pub(super) unsafe fn rotm<R: Real>(n: i64, x: *mut R, incx: i64, y: *mut R, incy: i64, at: *const R) {
    // SAFETY: the flag is always there.
    let flag = unsafe { at.read_unaligned() };
    let (zero, one) = (R::ZERO, R::ONE);
    if flag + one + one == zero {
        return;
    }
    let Ok(n) = usize::try_from(n) else { return };
    // SAFETY: all five are memory of the caller.
    let [_, h11, h21, h12, h22] = unsafe { parameters(at) };
    let [h11, h21, h12, h22] = if flag < zero {
        [h11, h21, h12, h22]
    } else if flag == zero {
        [one, h21, h12, one]
    } else {
        [h11, -one, one, h22]
    };
    let (x, y) = (Vector::new(x, incx, n), Vector::new(y, incy, n));
    for i in 0..n {
        // SAFETY: by the contract of this function.
        unsafe {
            let (w, z) = (x.get(i), y.get(i));
            x.set(i, w * h11 + z * h12);
            y.set(i, w * h21 + z * h22);
        }
    }
}

/// A modified rotation in the making: it takes (sqrt(d1) x1, sqrt(d2) y1) to a multiple of (1, 0).
struct Modified<R> {
    flag: R,
    h: [[R; 2]; 2],
    d: [R; 2],
    x: R,
}

impl<R: Real> Modified<R> {
    /// No rotation of real numbers does it: all is set to zero.
    fn impossible() -> Self {
        let zero = R::ZERO;
        Self { flag: -R::ONE, h: [[zero; 2]; 2], d: [zero; 2], x: zero }
    }

    /// None: the identity does.
    fn make([d1, d2]: [R; 2], x1: R, y1: R) -> Option<Self> {
        let (zero, one) = (R::ZERO, R::ONE);
        if d1 < zero {
            return Some(Self::impossible());
        }
        let p2 = d2 * y1;
        if p2 == zero {
            return None;
        }
        let p1 = d1 * x1;
        let (q1, q2) = (p1 * x1, p2 * y1);
        let mut made = if q1.abs() > q2.abs() {
            let (h21, h12) = (-y1 / x1, p2 / p1);
            let u = one - h12 * h21;
            if u > zero {
                Self { flag: zero, h: [[one, h12], [h21, one]], d: [d1 / u, d2 / u], x: x1 * u }
            } else {
                return Some(Self::impossible()); // by rounding alone, since |q1| > |q2|
            }
        } else if q2 < zero {
            return Some(Self::impossible());
        } else {
            let (h11, h22) = (p1 / p2, x1 / y1);
            let u = one + h11 * h22;
            Self { flag: one, h: [[h11, one], [-one, h22]], d: [d2 / u, d1 / u], x: y1 * u }
        };
        made.rescale(0);
        made.rescale(1);
        Some(made)
    }

    /// Keeps a factor d in a range by powers of 4096 that go to its row.
    fn rescale(&mut self, row: usize) {
        let (step, top, bottom) = (R::of(4096.0), R::of(16_777_216.0), R::of(5.960_464_5e-8));
        let square = step * step;
        let d = &mut self.d[row];
        // What is not finite would never get there.
        while *d != R::ZERO && d.is_finite() && (d.abs() <= bottom || d.abs() >= top) {
            let factor = if d.abs() <= bottom {
                *d = *d * square;
                R::ONE / step
            } else {
                *d = *d / square;
                step
            };
            self.h[row] = self.h[row].map(|entry| entry * factor);
            if row == 0 {
                self.x = self.x * factor;
            }
            self.flag = -R::ONE;
        }
    }
}

/// # Safety
///
/// The addresses are as a BLAS demands them.
pub(super) unsafe fn rotmg<R: Real>(d1: *mut R, d2: *mut R, x1: *mut R, y1: R, parameters: *mut R) {
    let parameters = Vector::contiguous(parameters);
    // SAFETY: by the contract of this function; entries that the flag implies are left alone.
    unsafe {
        let d = [d1.read_unaligned(), d2.read_unaligned()];
        let Some(made) = Modified::make(d, x1.read_unaligned(), y1) else {
            parameters.set(0, -(R::ONE + R::ONE));
            return;
        };
        d1.write_unaligned(made.d[0]);
        d2.write_unaligned(made.d[1]);
        x1.write_unaligned(made.x);
        let [[h11, h12], [h21, h22]] = made.h;
        parameters.set(0, made.flag);
        if made.flag != R::ZERO {
            parameters.set(1, h11);
            parameters.set(4, h22);
        }
        if made.flag != R::ONE {
            parameters.set(2, h21);
            parameters.set(3, h12);
        }
    }
}

//! A look at a few elements of a call, to guess how many moduli its data need: integers, indicators or single precision need far
//! fewer than ordinary real data, and then an emulation may be worth it that else is not. What the guess leads to is decided by the
//! plan, which looks at everything.

use crate::gemm::{Gemm, Lines};
use crate::ozaki::moduli::{MAX_MODULI, crt};
use crate::ozaki::scan::Scan;
use crate::ozaki::wide::Magnitude;

/// Lines of each operand that are looked at, and elements of each: some microseconds where they are far apart in memory.
const LINES: usize = 4;
const ELEMENTS: usize = 64;

/// The moduli that hold the exact product of data like those that a sample shows, at most [`MAX_MODULI`].
///
/// # Safety
///
/// A and B of the call can be read.
pub unsafe fn moduli(call: &Gemm, check: bool) -> usize {
    // SAFETY: passed on from the caller.
    let [a, b] = [&call.a, &call.b].map(|lines| unsafe { sample(lines) });
    if !a.is_finite() || !b.is_finite() {
        return MAX_MODULI;
    }
    // |a'| < 2^bits when all elements are integers: |C'| < 2^(bits of both) k.
    let bits = |scan: &Scan| if scan.nonzeros == 0 { 0 } else { scan.exponent() - scan.lowest_bit() };
    let largest = Magnitude::new(call.k as u64, bits(&a) + bits(&b));
    let holds = |n: &usize| largest <= Magnitude::limit(crt(*n).limit(check));
    (2..=MAX_MODULI).find(holds).unwrap_or(MAX_MODULI)
}

/// # Safety
///
/// The matrix can be read.
unsafe fn sample(lines: &Lines) -> Scan {
    let mut values = [0.0; ELEMENTS];
    let mut scan = Scan::EMPTY;
    for l in 0..LINES {
        let line = spread(l, LINES, lines.count);
        for (h, value) in values.iter_mut().enumerate() {
            let at = line * lines.line_stride + spread(h, ELEMENTS, lines.length) * lines.element_stride;
            // SAFETY: inside of the matrix; no address needs alignment.
            *value = unsafe { lines.pointer().wrapping_add(at).read_unaligned() };
        }
        scan = scan.merge(Scan::of(&values));
    }
    scan
}

/// The place of sample number i of so many, among `all`: first and last and evenly between.
fn spread(i: usize, of: usize, all: usize) -> usize {
    (all - 1) * i / (of - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Sizes, Transpose};

    fn of(a: &[f64], b: &[f64], n: usize) -> usize {
        let mut c = vec![0.0; n * n];
        let sizes = Sizes { m: n, n, k: n, lda: n, ldb: n, ldc: n };
        let transposes = (Transpose::No, Transpose::No);
        let call = Gemm::new(transposes, sizes, (1.0, 0.0), a.as_ptr(), b.as_ptr(), c.as_mut_ptr()).unwrap();
        // SAFETY: the matrices are as large as the call says.
        unsafe { moduli(&call, false) }
    }

    #[test]
    fn exact_data_are_seen() {
        let n = 200;
        let filled = |f: &dyn Fn(usize) -> f64| -> Vec<f64> { (0..n * n).map(f).collect() };
        let integers = filled(&|at| (at * 7919 % 19) as f64 - 9.0);
        let signs = filled(&|at| if at * 7919 % 5 < 2 { 1.0 } else { -1.0 });
        let real = filled(&|at| 1.0 / (at + 3) as f64);
        assert_eq!(of(&signs, &signs, n), 2);
        assert_eq!(of(&integers, &integers, n), 3);
        assert!((8..=10).contains(&of(&signs, &real, n)));
        assert!(of(&real, &real, n) > 14);
        // The ends of all lines are looked at.
        let last = filled(&|at| if at == n * n - 1 { 0.1 } else { 1.0 });
        assert!(of(&last, &signs, n) > 7 && of(&signs, &last, n) > 7);
        let nothing = filled(&|_| 0.0);
        assert_eq!(of(&nothing, &nothing, n), 2);
        let nan = filled(&|_| f64::NAN);
        assert_eq!(of(&nan, &signs, n), MAX_MODULI);
    }
}

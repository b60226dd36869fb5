//! How wide the integers of a native BLAS are, found by asking it: its own `i?amax` gets a length that is 3 in the lower 32 bits
//! and negative in all 64. A library with narrow integers finds the largest of three numbers, one with wide integers finds
//! nothing, and neither reads beyond the three.
//!
//! File names say nothing for certain: any library may be called libblas.so.3. And the answer is believed only from a function that
//! is right about a plain length of 3 too; what returns a constant, as stubs do, or something else altogether, is no answer.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{find, linked};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integers {
    Narrow,
    Wide,
}

type Isamax = unsafe extern "C-unwind" fn(n: *const i64, x: *const f32, step: *const i64) -> u32;
type CblasIsamax = unsafe extern "C-unwind" fn(n: i64, x: *const f32, step: i64) -> u32;

/// -2^32 + 3.
const QUESTION: i64 = -0xFFFF_FFFD;

/// The integers of the library that has the function `provider`, one of the CBLAS or of the Fortran BLAS; None if it gives no
/// clear answer.
///
/// # Safety
///
/// A function of a BLAS: a function `isamax_` or `cblas_isamax` beside it is one of that BLAS.
pub unsafe fn of(provider: NonNull<c_void>, cblas: bool) -> Option<Integers> {
    let name = if cblas { c"cblas_isamax" } else { c"isamax_" };
    // No lock of ours is held while foreign code runs.
    let function = linked::companion(provider).or_else(|| find::beside(provider, name))?;
    // SAFETY: by the contract of this function.
    unsafe { ask(function, cblas) }
}

/// # Safety
///
/// An `isamax_`, or with `cblas` a `cblas_isamax`.
unsafe fn ask(function: NonNull<c_void>, cblas: bool) -> Option<Integers> {
    // The largest is last for the plain length and second for the question: no constant is right for both.
    let plain = [1.0f32, 2.0, 4.0];
    let x = [1.0f32, 4.0, 2.0];
    // The place, from 1; the CBLAS counts from 0. What is above 32 bits of a narrow result is left there by chance.
    let place = |n: i64, x: &[f32; 3]| -> u32 {
        let step = 1i64;
        // SAFETY: by the contract of this function; little-endian integers hold their lower half at the same address.
        unsafe {
            if cblas {
                std::mem::transmute::<NonNull<c_void>, CblasIsamax>(function)(n, x.as_ptr(), step)
            } else {
                std::mem::transmute::<NonNull<c_void>, Isamax>(function)(
                    &raw const n,
                    x.as_ptr(),
                    &raw const step,
                )
            }
        }
    };
    let first = u32::from(!cblas);
    match (place(3, &plain), place(QUESTION, &x)) {
        (last, answer) if last != first + 2 || answer > first + 1 => None,
        (_, 0) => Some(Integers::Wide),
        (_, answer) if answer == first + 1 => Some(Integers::Narrow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place of the largest, from 1; 0 for none.
    unsafe fn largest(n: i64, x: *const f32) -> u32 {
        (0..n.max(0) as usize).fold(0, |best, at| {
            // SAFETY: x has n entries.
            let is_larger = |than: u32| unsafe { *x.add(at) > *x.add(than as usize - 1) };
            if best == 0 || is_larger(best) { at as u32 + 1 } else { best }
        })
    }

    unsafe extern "C-unwind" fn narrow(n: *const i64, x: *const f32, _: *const i64) -> u32 {
        // SAFETY: an isamax with integers of 32 bits.
        unsafe { largest(i64::from(n.cast::<i32>().read()), x) }
    }

    unsafe extern "C-unwind" fn wide(n: *const i64, x: *const f32, _: *const i64) -> u32 {
        // SAFETY: an isamax with integers of 64 bits.
        unsafe { largest(n.read(), x) }
    }

    unsafe extern "C-unwind" fn cblas_narrow(n: i64, x: *const f32, _: i64) -> u32 {
        // SAFETY: as above.
        unsafe { largest(i64::from(n as i32), x).saturating_sub(1) }
    }

    unsafe extern "C-unwind" fn cblas_wide(n: i64, x: *const f32, _: i64) -> u32 {
        // SAFETY: as above.
        unsafe { largest(n, x).saturating_sub(1) }
    }

    extern "C-unwind" fn constant<const VALUE: u32>() -> u32 {
        VALUE
    }

    fn answer(function: *const (), cblas: bool) -> Option<Integers> {
        // SAFETY: the functions above have the signatures, or take no arguments.
        unsafe { ask(NonNull::new(function.cast_mut().cast()).unwrap(), cblas) }
    }

    #[test]
    fn both_widths_are_told_apart() {
        assert_eq!(answer(narrow as *const (), false), Some(Integers::Narrow));
        assert_eq!(answer(wide as *const (), false), Some(Integers::Wide));
        assert_eq!(answer(cblas_narrow as *const (), true), Some(Integers::Narrow));
        assert_eq!(answer(cblas_wide as *const (), true), Some(Integers::Wide));
    }

    #[test]
    fn what_returns_a_constant_is_no_answer() {
        let constants: [*const (); 5] = [
            constant::<0> as *const (),
            constant::<1> as *const (),
            constant::<2> as *const (),
            constant::<3> as *const (),
            constant::<{ u32::MAX }> as *const (),
        ];
        for function in constants {
            assert_eq!(answer(function, false), None);
            assert_eq!(answer(function, true), None);
        }
    }

    /// Counting from the other end would otherwise look like one of the answers.
    #[test]
    fn a_function_of_the_other_interface_is_no_answer() {
        // SAFETY: an isamax whose places are those of the CBLAS.
        unsafe extern "C-unwind" fn from_zero(n: *const i64, x: *const f32, _: *const i64) -> u32 {
            unsafe { cblas_wide(n.read(), x, 1) }
        }
        assert_eq!(answer(from_zero as *const (), false), None);
    }
}

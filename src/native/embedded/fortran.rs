//! The Fortran interface: everything by address, and a function result as gfortran returns it. The hidden lengths of strings
//! are not declared, as in `abi/fortran.rs`.

mod level1;
mod level2;
mod level3;

use std::ffi::CStr;

pub(super) use level1::{rotg, rotg_complex};

use super::checks::Checked;
use super::scalar::{Integer, Op, Scalar};
use super::{Entry, handlers, plain_is_wide};
use crate::native::builtin;

/// # Safety
///
/// An integer argument.
unsafe fn int<I: Integer>(at: *const I) -> i64 {
    // SAFETY: by the contract of this function.
    unsafe { at.read_unaligned().widened() }
}

/// # Safety
///
/// An argument.
unsafe fn value<T: Copy>(at: *const T) -> T {
    // SAFETY: by the contract of this function.
    unsafe { at.read_unaligned() }
}

/// # Safety
///
/// A string argument, of which the first letter counts.
unsafe fn letter(at: *const u8) -> u8 {
    // SAFETY: by the contract of this function.
    unsafe { at.read() }.to_ascii_uppercase()
}

/// # Safety
///
/// As for [`letter`].
unsafe fn op(at: *const u8) -> Option<Op> {
    // SAFETY: by the contract of this function.
    match unsafe { letter(at) } {
        b'N' => Some(Op::No),
        b'T' => Some(Op::Transpose),
        b'C' => Some(Op::ConjugateTranspose),
        _ => None,
    }
}

/// # Safety
///
/// As for [`letter`].
unsafe fn either(at: *const u8, yes: u8, no: u8) -> Option<bool> {
    // SAFETY: by the contract of this function.
    let letter = unsafe { letter(at) };
    if letter == yes {
        Some(true)
    } else if letter == no {
        Some(false)
    } else {
        None
    }
}

/// # Safety
///
/// As for [`letter`].
unsafe fn upper(at: *const u8) -> Option<bool> {
    // SAFETY: by the contract of this function.
    unsafe { either(at, b'U', b'L') }
}

/// # Safety
///
/// As for [`letter`].
unsafe fn unit(at: *const u8) -> Option<bool> {
    // SAFETY: by the contract of this function.
    unsafe { either(at, b'U', b'N') }
}

/// # Safety
///
/// As for [`letter`].
unsafe fn left(at: *const u8) -> Option<bool> {
    // SAFETY: by the contract of this function.
    unsafe { either(at, b'L', b'R') }
}

/// Tells the error handler of an illegal argument. The name is without its first letter, but as long as all are: six letters.
///
/// # Safety
///
/// As for [`builtin::xerbla`].
unsafe fn report<S: Scalar, I: Integer>(name: &[u8; 5], result: Checked) {
    let Err(place) = result else { return };
    let mut text = [0u8; 7];
    text[0] = S::LETTER;
    text[1..6].copy_from_slice(name);
    let wide = [c"xerbla_64_", c"xerbla_64", c"xerbla64_", c"scipy_xerbla_64_", c"xerbla_"];
    let names: &[&CStr] = if I::WIDE {
        if plain_is_wide() { &wide } else { &wide[..4] }
    } else {
        &[c"xerbla_", c"scipy_xerbla_"]
    };
    let Ok(routine) = CStr::from_bytes_with_nul(&text) else { return };
    // SAFETY: by the contract of this function.
    unsafe { builtin::xerbla(routine, names, I::WIDE, place) };
}

/// Functions of one scalar type and one integer type I.
macro_rules! functions {
    ($(
        fn $name:ident<$s:ident: $bound:ident>($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? { $($body:tt)* }
    )*) => { $(
        #[allow(clippy::too_many_arguments, reason = "the BLAS has that many")]
        unsafe extern "C-unwind" fn $name<$s: $bound, I: Integer>($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller of a BLAS vouches for its arguments.
            unsafe { $($body)* }
        }
    )* };
}
use functions;

/// The functions by their names without the underscore.
pub(super) static TABLE: [&[&[Entry]]; 4] =
    [level1::TABLE, level2::TABLE, level3::TABLE, &[handlers::FORTRAN]];

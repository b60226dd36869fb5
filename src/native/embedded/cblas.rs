//! The CBLAS interface: sizes by value, complex scalars by address, and matrices of either layout. A row-major matrix is the
//! transposed of what its memory is for Fortran: other sizes, the other triangle, another operation, but the same memory.

mod level1;
mod level2;
mod level3;

use std::ffi::{CStr, c_int};

use super::checks::Checked;
use super::scalar::{Integer, Op, Scalar};
use super::{Entry, handlers, plain_is_wide};
use crate::native::builtin;

fn op(value: c_int) -> Option<Op> {
    match value {
        111 => Some(Op::No),
        112 => Some(Op::Transpose),
        113 => Some(Op::ConjugateTranspose),
        _ => None,
    }
}

/// One of two values; row-major layout makes the other one of it.
fn either(value: c_int, yes: c_int, no: c_int, row_major: bool) -> Option<bool> {
    if value == yes {
        Some(!row_major)
    } else if value == no {
        Some(row_major)
    } else {
        None
    }
}

fn upper(value: c_int, row_major: bool) -> Option<bool> {
    either(value, 121, 122, row_major)
}

fn left(value: c_int, row_major: bool) -> Option<bool> {
    either(value, 141, 142, row_major)
}

fn unit(value: c_int) -> Option<bool> {
    either(value, 132, 131, false)
}

/// Runs a routine, which is told whether the layout is row-major, and reports what is illegal. `stem` is the name without its
/// first letter. The CBLAS counts one argument more than Fortran, and `exchanged` are pairs of places (of the CBLAS) that have
/// changed places in what a row-major call turns into.
///
/// # Safety
///
/// As for [`builtin::cblas_xerbla`].
unsafe fn enter<S: Scalar, I: Integer>(
    stem: &str,
    layout: c_int,
    exchanged: &[(i32, i32)],
    routine: impl FnOnce(bool) -> Checked,
) {
    let row_major = match layout {
        101 => true,
        102 => false,
        // SAFETY: by the contract of this function.
        _ => return unsafe { report::<S, I>(stem, 1, 1) },
    };
    let Err(place) = routine(row_major) else { return };
    let handed = place + 1;
    let exchange = |&(a, b): &(i32, i32)| match handed {
        place if place == a => Some(b),
        place if place == b => Some(a),
        _ => None,
    };
    let exchanged = exchanged.iter().filter(|_| row_major).find_map(exchange);
    // SAFETY: by the contract of this function.
    unsafe { report::<S, I>(stem, exchanged.unwrap_or(handed), handed) };
}

/// # Safety
///
/// As for [`builtin::cblas_xerbla`].
#[cold]
unsafe fn report<S: Scalar, I: Integer>(stem: &str, place: i32, handed: i32) {
    let mut text = [0u8; 16];
    let name = b"cblas_".iter().copied().chain([S::LETTER.to_ascii_lowercase()]).chain(stem.bytes());
    // The last byte stays 0.
    for (to, from) in text[..15].iter_mut().zip(name) {
        *to = from;
    }
    let wide = [c"cblas_xerbla64_", c"cblas_xerbla_64", c"scipy_cblas_xerbla64_", c"cblas_xerbla"];
    let names: &[&CStr] = if I::WIDE {
        if plain_is_wide() { &wide } else { &wide[..3] }
    } else {
        &[c"cblas_xerbla", c"scipy_cblas_xerbla"]
    };
    let Ok(routine) = CStr::from_bytes_until_nul(&text) else { return };
    // SAFETY: by the contract of this function.
    unsafe { builtin::cblas_xerbla(routine, names, place, handed) };
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

/// The functions by their names without the prefix.
pub(super) static TABLE: [&[&[Entry]]; 4] = [level1::TABLE, level2::TABLE, level3::TABLE, &[handlers::CBLAS]];

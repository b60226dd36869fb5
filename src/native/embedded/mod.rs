//! The embedded BLAS, for programs that have no other: what the reference BLAS has of levels 1, 2 and 3 (but DGEMM, which is
//! exported), with its checks, in plain loops that the compiler makes vector code of. Only level 3 of double precision goes
//! through the kernels of the builtin DGEMM.
//!
//! The files from `scalar` to `triangular` are generic over the type of numbers, and know neither Fortran nor CBLAS; `fortran`
//! and `cblas` are the functions with the C interfaces, generic also over the type of integers. Nothing here allocates, but in
//! the kernels of the builtin.

mod cblas;
mod checks;
mod fortran;
mod handlers;
mod level1;
mod level2;
mod level3;
mod matrix;
mod rotations;
mod scalar;
mod triangle;
mod triangular;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::options;

/// A function under its Fortran name without underscores, or its CBLAS name without prefix.
struct Entry {
    name: &'static str,
    narrow: *const (),
    wide: *const (),
}

// SAFETY: addresses of functions.
unsafe impl Sync for Entry {}

impl Entry {
    /// A function without integers.
    const fn of_both(name: &'static str, function: *const ()) -> Self {
        Self { name, narrow: function, wide: function }
    }
}

macro_rules! entry {
    ($name:expr, $function:ident, $scalar:ty) => {
        $crate::native::embedded::Entry {
            name: $name,
            narrow: $function::<$scalar, i32> as *const (),
            wide: $function::<$scalar, i64> as *const (),
        }
    };
}
use entry;

/// The entries of a routine for both real types.
macro_rules! of_real {
    ($stem:literal, $function:ident) => {
        &[
            $crate::native::embedded::entry!(concat!("s", $stem), $function, f32),
            $crate::native::embedded::entry!(concat!("d", $stem), $function, f64),
        ]
    };
}
use of_real;

/// The entries of a routine for both complex types.
macro_rules! of_complex {
    ($stem:literal, $function:ident) => {
        &[
            $crate::native::embedded::entry!(concat!("c", $stem), $function, num_complex::Complex<f32>),
            $crate::native::embedded::entry!(concat!("z", $stem), $function, num_complex::Complex<f64>),
        ]
    };
}
use of_complex;

macro_rules! of_all {
    ($stem:literal, $function:ident) => {
        &[
            $crate::native::embedded::entry!(concat!("s", $stem), $function, f32),
            $crate::native::embedded::entry!(concat!("d", $stem), $function, f64),
            $crate::native::embedded::entry!(concat!("c", $stem), $function, num_complex::Complex<f32>),
            $crate::native::embedded::entry!(concat!("z", $stem), $function, num_complex::Complex<f64>),
        ]
    };
}
use of_all;

/// The function of a spelling, with the C interface that the spelling has: Fortran `name_` and CBLAS `cblas_name` have integers
/// of 32 bits (of 64 with OZ2_INTEGER=ilp64), `name_64_`, `name_64`, `name64_`, `cblas_name64_` and `cblas_name_64` of 64. All of
/// them may begin with `scipy_`; those of 32 bits have them always.
pub fn find(name: &CStr) -> Option<NonNull<c_void>> {
    let name = name.to_bytes();
    let (name, plain_is_wide) = match name.strip_prefix(b"scipy_") {
        Some(name) => (name, false),
        None => (name, plain_is_wide()),
    };
    // What a name of wide integers may end with, and of narrow ones; the long endings first.
    let fortran_ends: (&[&[u8]], &[u8]) = (&[b"_64_", b"64_", b"_64"], b"_");
    let cblas_ends: (&[&[u8]], &[u8]) = (&[b"64_", b"_64"], b"");
    let (table, (wide, narrow), name) = match name.strip_prefix(b"cblas_") {
        Some(name) => (&cblas::TABLE, cblas_ends, name),
        None => (&fortran::TABLE, fortran_ends, name),
    };
    let wide_stem = wide.iter().find_map(|end| name.strip_suffix(*end));
    let stem = wide_stem.or_else(|| name.strip_suffix(narrow))?;
    let entry = table.iter().copied().flatten().copied().flatten().find(|e| e.name.as_bytes() == stem)?;
    let address = if wide_stem.is_some() || plain_is_wide { entry.wide } else { entry.narrow };
    NonNull::new(address.cast_mut().cast())
}

/// Names without a suffix have integers of 64 bits.
fn plain_is_wide() -> bool {
    options::current().integer == options::Integer::Ilp64
}

//! The error handlers and `lsame` of the reference BLAS, for programs that call them and have none. What the reference ends the program
//! for is only said here: no call of ours ends a program.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::Entry;
use crate::native::builtin::complain;

/// Under Fortran names; LOGICAL and INTEGER have the width of the name.
pub const FORTRAN: &[Entry] = &[
    Entry::of_both("lsame", lsame as *const ()),
    Entry { name: "xerbla", narrow: xerbla::<i32> as *const (), wide: xerbla::<i64> as *const () },
    Entry {
        name: "xerbla_array",
        narrow: xerbla_array::<i32> as *const (),
        wide: xerbla_array::<i64> as *const (),
    },
];

/// The handler of the CBLAS; its first argument is wide enough in either case.
pub const CBLAS: &[Entry] = &[Entry::of_both("xerbla", cblas_xerbla as *const ())];

/// Are two letters the same, in either case? The register holds a LOGICAL of any width.
unsafe extern "C" fn lsame(a: *const c_char, b: *const c_char) -> i64 {
    // SAFETY: by the contract of the BLAS, here and below.
    unsafe { i64::from((*a.cast::<u8>()).eq_ignore_ascii_case(&*b.cast::<u8>())) }
}

/// Names of routines are as long as this, filled up with blanks, where the hidden length is missing.
const USUAL: usize = 6;
/// No routine has a longer name: what claims to be longer is no length.
const LONGEST: usize = 32;

/// A name without blanks at its end.
unsafe fn name_of(start: *const c_char, length: usize) -> String {
    let length = if (1..=LONGEST).contains(&length) { length } else { USUAL };
    let mut name = String::new();
    for at in 0..length {
        // SAFETY: by the contract of the BLAS; a zero ends a name of C.
        match unsafe { start.cast::<u8>().add(at).read() } {
            0 => break,
            letter => name.push(char::from(letter)),
        }
    }
    name.trim_end().to_owned()
}

unsafe extern "C" fn xerbla<I: Into<i64>>(name: *const c_char, info: *const I, length: usize) {
    // SAFETY: by the contract of the BLAS.
    unsafe { complain(&name_of(name, length), info.read_unaligned().into() as i32) };
}

/// The same with an explicit length: of the name as an array of letters.
unsafe extern "C" fn xerbla_array<I: Into<i64>>(name: *const c_char, length: *const I, info: *const I) {
    // SAFETY: by the contract of the BLAS.
    unsafe {
        let length = usize::try_from(length.read_unaligned().into()).unwrap_or(0);
        complain(&name_of(name, length), info.read_unaligned().into() as i32);
    }
}

/// Further arguments, for the form, are not looked at.
unsafe extern "C" fn cblas_xerbla(place: c_int, name: *const c_char, _form: *const c_void) {
    // SAFETY: by the contract of the CBLAS.
    complain(&unsafe { CStr::from_ptr(name) }.to_string_lossy(), place);
}

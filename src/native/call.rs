//! The C signatures of a native DGEMM.

use std::ffi::{c_char, c_int, c_void};

/// A Fortran DGEMM with its two hidden string lengths. Integers are behind untyped pointers: their width is the spelling's.
pub type Fortran = unsafe extern "C-unwind" fn(
    transa: *const c_char,
    transb: *const c_char,
    m: *const c_void,
    n: *const c_void,
    k: *const c_void,
    alpha: *const f64,
    a: *const f64,
    lda: *const c_void,
    b: *const f64,
    ldb: *const c_void,
    beta: *const f64,
    c: *mut f64,
    ldc: *const c_void,
    length_transa: usize,
    length_transb: usize,
);

/// A CBLAS DGEMM. Integers of either width travel as 64 bits: the upper half of a narrow one is not looked at.
pub type Cblas = unsafe extern "C-unwind" fn(
    layout: c_int,
    transa: c_int,
    transb: c_int,
    m: i64,
    n: i64,
    k: i64,
    alpha: f64,
    a: *const f64,
    lda: i64,
    b: *const f64,
    ldb: i64,
    beta: f64,
    c: *mut f64,
    ldc: i64,
);

/// The error handler of a Fortran BLAS.
pub type Xerbla = unsafe extern "C-unwind" fn(name: *const c_char, info: *const c_void, length: usize);

/// The error handler of a CBLAS.
pub type CblasXerbla =
    unsafe extern "C-unwind" fn(info: c_int, routine: *const c_char, form: *const c_char, ...);

//! The embedded BLAS, for programs that have no other: DGEMM and the error handlers of the documented interface.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use super::call::{CblasXerbla, Xerbla};
use super::find;
use crate::engine::cpu::{team, threads};
use crate::gemm::{Gemm, Rectangle};
use crate::options;

/// Below this m n k a second thread costs more than it brings.
const WORTH_A_TEAM: f64 = 96.0 * 96.0 * 96.0;

/// The call with the threads that the options allow.
///
/// # Safety
///
/// As for [`gemm`].
pub unsafe fn gemm_for_caller(call: &Gemm) {
    let allowed = || {
        if threads::in_parallel_region() { 1 } else { options::current().threads.unwrap_or_else(threads::automatic) }
    };
    let threads = if call.multiplications() < WORTH_A_TEAM { 1 } else { allowed() };
    // SAFETY: by the contract of this function.
    unsafe { gemm(call, threads) }
}

/// C = alpha op(A) op(B) + beta C, in the floating-point environment of the caller.
///
/// # Safety
///
/// The matrices are as a BLAS demands them.
pub unsafe fn gemm(call: &Gemm, threads: usize) {
    let parts = threads.min(call.m.max(call.n).div_ceil(64)).max(1);
    let split_columns = call.n >= call.m;
    let length = if split_columns { call.n } else { call.m };
    let step = length.div_ceil(parts).next_multiple_of(8);
    let part = |number: usize| {
        let first = number * step;
        let count = step.min(length.saturating_sub(first));
        if split_columns {
            Rectangle { i: 0, j: first, rows: call.m, columns: count }
        } else {
            Rectangle { i: first, j: 0, rows: count, columns: call.n }
        }
    };
    let outcome = team::run(threads, length.div_ceil(step), &|number| {
        // SAFETY: the parts are disjoint.
        unsafe { one_thread(&call.part(part(number))) }
    });
    debug_assert!(outcome.is_ok());
}

unsafe fn one_thread(call: &Gemm) {
    let (a, b, c) = (&call.a, &call.b, &call.c);
    // SAFETY: by the contract of the caller.
    unsafe {
        matrixmultiply::dgemm(
            call.m,
            call.k,
            call.n,
            call.alpha,
            a.pointer(),
            a.line_stride as isize,
            a.element_stride as isize,
            b.pointer(),
            b.element_stride as isize,
            b.line_stride as isize,
            call.beta,
            c.pointer(),
            1,
            c.ld as isize,
        );
    }
}

/// Calls the program's xerbla_ (the first of `names` that exists) with the place of the illegal argument, and returns if that
/// returns; without one, one line goes to stderr.
///
/// # Safety
///
/// A function of one of these names, if there is any, is an error handler of the BLAS.
pub unsafe fn xerbla(names: &[&CStr], wide: bool, place: i32) {
    let routine = c"DGEMM ";
    let Some(address) = find::overridable(names) else { return complain("DGEMM", place) };
    let (narrow_place, wide_place) = (place, i64::from(place));
    let info: *const c_void = if wide { (&raw const wide_place).cast() } else { (&raw const narrow_place).cast() };
    // SAFETY: by the contract of this function.
    unsafe {
        let function = std::mem::transmute::<NonNull<c_void>, Xerbla>(address);
        function(routine.as_ptr(), info, routine.count_bytes());
    }
}

/// The same for the CBLAS.
///
/// # Safety
///
/// As for [`xerbla`].
pub unsafe fn cblas_xerbla(names: &[&CStr], place: i32) {
    let Some(address) = find::overridable(names) else { return complain("cblas_dgemm", place) };
    let (routine, form): (*const c_char, *const c_char) = (c"cblas_dgemm".as_ptr(), c"".as_ptr());
    // SAFETY: by the contract of this function.
    unsafe {
        let function = std::mem::transmute::<NonNull<c_void>, CblasXerbla>(address);
        function(place as c_int, routine, form);
    }
}

/// What the reference xerbla says, without its end of the program.
fn complain(routine: &str, place: i32) {
    use std::io::Write;
    let line = format!(" ** On entry to {routine} parameter number {place} had an illegal value\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

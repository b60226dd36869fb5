//! The functions of include/oz2blas.h.

use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;

use crate::engine::cpu::fpenv::in_clean_environment;
use crate::engine::process::hold_cancellation;
use crate::observe::{counters, last, stats};
use crate::options::{self, SetResult};

/// Copies a text as snprintf does: at most size - 1 bytes and always a zero; returns the whole length.
///
/// # Safety
///
/// `to` is null or can hold `size` bytes.
unsafe fn give(text: &str, to: *mut c_char, size: usize) -> usize {
    if !to.is_null() && size > 0 {
        let count = text.len().min(size - 1);
        // SAFETY: count + 1 <= size bytes by the contract of this function.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count);
            *to.add(count) = 0;
        }
    }
    text.len()
}

/// A C string as UTF-8; None for null or other bytes.
///
/// # Safety
///
/// `text` is null or a C string that lives long enough.
unsafe fn take<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: by the contract of this function.
    if text.is_null() { None } else { unsafe { CStr::from_ptr(text) }.to_str().ok() }
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn oz2_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The statistics of the process as JSON. Like snprintf: writes at most `size` bytes, always terminates them, and returns the
/// length of the whole text without its zero. `json` may be null if `size` is 0.
///
/// # Safety
///
/// `json` is null or can hold `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oz2_get_stats(json: *mut c_char, size: usize) -> usize {
    let text = catch_unwind(|| in_clean_environment(stats::json)).unwrap_or_default();
    // SAFETY: by the contract of this function.
    unsafe { give(&text, json, size) }
}

/// The last outermost GEMM of the calling thread as JSON ({"route":"none"} before one); returns as oz2_get_stats does.
///
/// # Safety
///
/// `json` is null or can hold `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oz2_last_call(json: *mut c_char, size: usize) -> usize {
    let text = catch_unwind(|| in_clean_environment(last::json)).unwrap_or_default();
    // SAFETY: by the contract of this function.
    unsafe { give(&text, json, size) }
}

/// Sets all counters of the statistics to zero.
#[unsafe(no_mangle)]
pub extern "C" fn oz2_reset_stats() {
    counters::reset();
}

/// Sets an option for all calls that start from now on; it wins over the environment. `name` is in any case, without OZ2_.
/// Returns 0 done, 1 unknown name, 2 bad value, 3 too late (after the first GEMM call, for what is read once).
///
/// # Safety
///
/// `name` and `value` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oz2_set_option(name: *const c_char, value: *const c_char) -> c_int {
    let _unbroken = hold_cancellation();
    // SAFETY: by the contract of this function.
    let (name, value) = unsafe { (take(name), take(value)) };
    let Some(name) = name else { return SetResult::UnknownName as c_int };
    let Some(value) = value else { return SetResult::BadValue as c_int };
    let set = || in_clean_environment(|| options::set_option(name, value, super::has_started()));
    catch_unwind(set).unwrap_or(SetResult::BadValue) as c_int
}

/// The value of an option in force, as it was written; returns as oz2_get_stats does, and 0 with an empty text for an unknown
/// name.
///
/// # Safety
///
/// `name` is null or a C string; `value` is null or can hold `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oz2_get_option(name: *const c_char, value: *mut c_char, size: usize) -> usize {
    let _unbroken = hold_cancellation();
    // SAFETY: by the contract of this function.
    let name = unsafe { take(name) };
    let text = catch_unwind(|| in_clean_environment(|| name.and_then(options::get_option)))
        .ok()
        .flatten()
        .unwrap_or_default();
    // SAFETY: by the contract of this function.
    unsafe { give(text, value, size) }
}

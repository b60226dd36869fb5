//! What a test says to the device beside CUDA: all names begin with `softgpu_`.

use std::ffi::{CStr, c_char, c_int};

use super::module::function_by_name;
use super::put;
use crate::config::Config;
use crate::faults::{self, Faults};
use crate::state::lock;
use crate::status::{INVALID_VALUE, SUCCESS, Status};

unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() { "" } else { CStr::from_ptr(text).to_str().unwrap_or("?") }
}

/// 0, or 1 with a line on stderr.
fn told(result: Result<(), String>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("softgpu: {message}");
            1
        }
    }
}

/// Orders failures, as SOFTGPU_FAULT does, in place of those before, and all counts begin anew. An empty text or null orders
/// none, and lost devices are well again (`softgpu_revive`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_set_faults(order: *const c_char) -> c_int {
    told(faults::parse(text(order)).map(|ordered| {
        let mut state = lock();
        if ordered.is_empty() {
            state.revive();
        }
        state.faults = Faults::new(ordered);
    }))
}

/// The device as at the start of a process with these switches over those of the environment, as in `mode=random seed=7`.
/// Everything that was allocated, created or loaded is gone, and its handles are invalid for ever; primary contexts are to be
/// retained again. Whether cuInit was called stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_configure(switches: *const c_char) -> c_int {
    let mut config = Config::from_environment();
    told(config.apply(text(switches)).map(|()| lock().reset(config)))
}

/// `softgpu_configure` with nothing but the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_reset() {
    lock().reset(Config::from_environment());
}

/// Lost devices are well again, with all their memory and handles; work that was queued is gone. A device on which something
/// wrote outside an allocation stays lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_revive() {
    lock().revive();
}

/// The status that a device is lost with, 0 while it is well, -1 where there is no such device. Red zones are looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_lost(device: c_int) -> Status {
    let mut state = lock();
    state.check_red_zones("when asked");
    usize::try_from(device).ok().and_then(|device| state.lost.get(device).copied()).unwrap_or(-1)
}

/// Bytes of device memory in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_used(device: c_int) -> u64 {
    usize::try_from(device).ok().and_then(|device| lock().memory.used.get(device).copied()).unwrap_or(0)
}

/// Executable graphs that were not destroyed: finds a store of them without a bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_graphs() -> c_int {
    lock().executables.len() as c_int
}

/// How often everything was called since the failures were last ordered: lines `name count`. Like snprintf: the length
/// needed, and always terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_counts(target: *mut c_char, size: usize) -> usize {
    let report = lock().faults.report();
    if !target.is_null() && size > 0 {
        let length = report.len().min(size - 1);
        target.copy_from(report.as_ptr().cast(), length);
        target.add(length).write(0);
    }
    report.len()
}

/// A function for cuLaunchKernel by the name of its kernel, with no PTX behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_function(out: *mut usize, name: *const c_char) -> Status {
    if name.is_null() {
        return INVALID_VALUE;
    }
    let found = function_by_name(&mut lock(), text(name));
    found.and_then(|handle| put(out, handle)).err().unwrap_or(SUCCESS)
}

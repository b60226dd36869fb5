//! Start, devices, primary contexts, names of errors.

use std::ffi::{CStr, c_char, c_int, c_uint};

use super::put;
use crate::context;
use crate::state::{State, enter};
use crate::status::{
    INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, Outcome, SUCCESS, Status, describe,
};

/// The number of a device that exists.
fn ordinal(state: &State, device: c_int) -> Outcome<usize> {
    state.ready()?;
    usize::try_from(device).ok().filter(|&device| device < state.config.devices).ok_or(INVALID_DEVICE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> Status {
    enter("cuInit", |state| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if state.config.devices == 0 {
            return Err(NO_DEVICE);
        }
        state.initialise();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    enter("cuDriverGetVersion", |state| put(version, state.config.driver))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    enter("cuDeviceGetCount", |state| {
        state.ready()?;
        put(count, state.config.devices as c_int)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, number: c_int) -> Status {
    enter("cuDeviceGet", |state| {
        ordinal(state, number)?;
        put(device, number)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, size: c_int, device: c_int) -> Status {
    enter("cuDeviceGetName", |state| {
        let text = format!("softgpu {}", ordinal(state, device)?);
        if name.is_null() || size <= 0 {
            return Err(INVALID_VALUE);
        }
        let length = text.len().min(size as usize - 1);
        name.copy_from(text.as_ptr().cast(), length);
        name.add(length).write(0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Status {
    enter("cuDeviceGetUuid_v2", |state| {
        let mut bytes = *b"software device ";
        bytes[15] = ordinal(state, device)? as u8;
        put(uuid, bytes)
    })
}

/// The shared memory that a kernel may ask for with cuFuncSetAttribute (CUDA C++ Programming Guide, compute capabilities).
pub fn most_dynamic_bytes(capability: c_int) -> u32 {
    1024 * match capability {
        ..80 => 64,
        80 | 87 => 163,
        86 | 89 | 120.. => 99,
        _ => 227,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status {
    enter("cuDeviceGetAttribute", |state| {
        ordinal(state, device)?;
        let capability = state.config.capability;
        let found = match attribute {
            1..=3 => 1024,                    // threads of a block: all, x, y
            4 => 64,                          // z
            5 => c_int::MAX,                  // blocks of a grid: x
            6 | 7 => 65535,                   // y, z
            8 => 49152,                       // shared memory of a block
            10 => 32,                         // lanes of a warp
            11 => c_int::MAX,                 // pitch of a 2-D copy
            12 => 65536,                      // registers of a block
            13 => 1_500_000,                  // clock, kHz
            16 => 4,                          // multiprocessors
            15 | 19 | 31 | 40 | 41 | 83 => 1, // overlap, mapped host memory, kernels at a time, copy engines, unified addresses, managed memory
            33 => device,                     // PCI bus
            36 => 2_000_000,                  // memory clock, kHz
            37 => 1024,                       // memory bus, bits
            38 => 8 << 20,                    // L2 cache
            39 => 2048,                       // threads of a multiprocessor
            75 => capability / 10,
            76 => capability % 10,
            81 | 97 => most_dynamic_bytes(capability) as c_int, // shared memory: of a multiprocessor, of a block opted in
            82 => 65536,                                        // registers of a multiprocessor
            91 | 99 | 115 => 1, // host pointers of registered memory, host registration, memory pools
            _ => 0,
        };
        put(value, found)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    enter("cuDeviceTotalMem_v2", |state| {
        ordinal(state, device)?;
        put(bytes, state.memory.limit() as usize)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(handle: *mut usize, device: c_int) -> Status {
    enter("cuDevicePrimaryCtxRetain", |state| {
        let device = ordinal(state, device)?;
        put(handle, context::handle(device))?;
        state.contexts.retained[device] += 1;
        Ok(())
    })
}

/// What the end of a primary context takes with it.
fn end_context(state: &mut State, device: usize) {
    state.finish_device(Some(device));
    state.check_red_zones("at the end of a context");
    state.memory.release_device(device);
    state.streams.forget_device(device);
    state.modules.retain(|_, module| module.device != device);
    state.functions.retain(|_, function| function.device != Some(device));
    state.blas.retain(|_, handle| handle.device != device);
    state.lost[device] = SUCCESS;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    enter("cuDevicePrimaryCtxRelease_v2", |state| {
        let device = ordinal(state, device)?;
        let count = &mut state.contexts.retained[device];
        *count = count.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if *count == 0 {
            end_context(state, device);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> Status {
    enter("cuDevicePrimaryCtxReset_v2", |state| {
        let device = ordinal(state, device)?;
        end_context(state, device);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Status {
    enter("cuDevicePrimaryCtxGetState", |state| {
        let device = ordinal(state, device)?;
        put(flags, 0)?;
        put(active, state.contexts.active(device).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) -> Status {
    enter("cuDevicePrimaryCtxSetFlags_v2", |state| ordinal(state, device).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(handle: *mut usize) -> Status {
    enter("cuCtxGetCurrent", |state| {
        state.ready()?;
        put(handle, context::current())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(handle: usize) -> Status {
    enter("cuCtxSetCurrent", |state| {
        state.ready()?;
        state.contexts.set(handle)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(handle: usize) -> Status {
    enter("cuCtxPushCurrent_v2", |state| {
        state.ready()?;
        state.contexts.push(handle)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(handle: *mut usize) -> Status {
    enter("cuCtxPopCurrent_v2", |state| {
        state.ready()?;
        let popped = state.contexts.pop()?;
        // The caller need not want it.
        if handle.is_null() { Ok(()) } else { put(handle, popped) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Status {
    enter("cuCtxGetDevice", |state| {
        state.ready()?;
        put(device, state.contexts.current_device()? as c_int)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> Status {
    enter("cuCtxSynchronize", |state| {
        let device = state.device()?;
        state.finish_device(Some(device));
        state.verdict(device)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    enter("cuCtxGetStreamPriorityRange", |state| {
        state.device()?;
        put(least, 0)?;
        put(greatest, -5)
    })
}

unsafe fn put_text(target: *mut *const c_char, text: Option<&'static CStr>) -> Outcome {
    put(target, text.map_or(std::ptr::null(), CStr::as_ptr))?;
    text.map(drop).ok_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: Status, name: *mut *const c_char) -> Status {
    enter("cuGetErrorName", |_| put_text(name, describe(error).map(|(name, _)| name)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: Status, text: *mut *const c_char) -> Status {
    enter("cuGetErrorString", |_| put_text(text, describe(error).map(|(_, text)| text)))
}

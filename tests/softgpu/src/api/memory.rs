//! Memory of the device, page-locked memory, and what is known of a pointer.

use std::ffi::{c_int, c_uint, c_void};

use super::put;
use crate::context;
use crate::memory::Kind;
use crate::ops::Op;
use crate::state::{State, enter};
use crate::status::{INVALID_VALUE, Outcome, Status};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    enter("cuMemGetInfo_v2", |state| {
        let device = state.device()?;
        put(free, (state.memory.limit() - state.memory.used[device]) as usize)?;
        put(total, state.memory.limit() as usize)
    })
}

unsafe fn allocate(state: &mut State, kind: Kind, out: *mut u64, bytes: usize, flags: u32) -> Outcome {
    let device = state.device()?;
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    put(out, state.memory.allocate(kind, device, bytes, flags)?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> Status {
    enter("cuMemAlloc_v2", |state| allocate(state, Kind::Device, out, bytes, 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(out: *mut u64, bytes: usize, flags: c_uint) -> Status {
    enter("cuMemAllocManaged", |state| {
        if flags != 1 && flags != 2 {
            return Err(INVALID_VALUE); // attached to all streams or, for now, to the host
        }
        allocate(state, Kind::Managed, out, bytes, flags)
    })
}

/// The memory exists for the host at once, and for streams once this one gets there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: usize) -> Status {
    enter("cuMemAllocAsync", |state| {
        let key = state.stream(stream)?;
        let device = state.streams.get(key)?.device;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let address = state.memory.allocate(Kind::Device, device, bytes, 0)?;
        if let Some(block) = state.memory.get_mut(address) {
            block.born = false;
        }
        state.push(key, Op::Born(address));
        put(out, address)
    })
}

/// The device of an allocation of the driver's that nobody has given back yet.
fn freeable(state: &State, address: u64, pinned: bool) -> Outcome<usize> {
    match state.memory.block(address) {
        Some((base, block))
            if base == address
                && !block.dying
                && block.kind != Kind::Registered
                && (block.kind == Kind::Pinned) == pinned =>
        {
            Ok(block.device)
        }
        _ => Err(INVALID_VALUE),
    }
}

/// Waits for the device, as the driver does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Status {
    enter("cuMemFree_v2", |state| {
        state.device()?;
        if address == 0 {
            return Ok(());
        }
        let device = freeable(state, address, false)?;
        state.finish_device(Some(device));
        let verdict = state.verdict(device);
        state.memory.release(address);
        verdict
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> Status {
    enter("cuMemFreeAsync", |state| {
        let key = state.stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        freeable(state, address, false)?;
        if let Some(block) = state.memory.get_mut(address) {
            block.dying = true;
        }
        state.push(key, Op::Free(address));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status {
    enter("cuMemHostAlloc", |state| allocate(state, Kind::Pinned, out.cast(), bytes, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Status {
    enter("cuMemAllocHost_v2", |state| allocate(state, Kind::Pinned, out.cast(), bytes, 0))
}

/// Waits for all devices, as the driver does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> Status {
    enter("cuMemFreeHost", |state| {
        state.device()?;
        let device = freeable(state, pointer as u64, true)?;
        state.finish_device(None);
        let verdict = state.verdict(device);
        state.memory.release(pointer as u64);
        verdict
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Status {
    enter("cuMemHostRegister_v2", |state| {
        let device = state.device()?;
        state.memory.register(device, pointer as u64, bytes, flags)
    })
}

/// Waits for all devices, as the driver does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> Status {
    enter("cuMemHostUnregister", |state| {
        let device = state.device()?;
        state.finish_device(None);
        state.memory.unregister(pointer as u64)?;
        state.verdict(device)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    out: *mut u64,
    pointer: *mut c_void,
    flags: c_uint,
) -> Status {
    enter("cuMemHostGetDevicePointer_v2", |state| {
        state.device()?;
        match state.memory.block(pointer as u64) {
            Some((_, block)) if flags == 0 && matches!(block.kind, Kind::Pinned | Kind::Registered) => {
                put(out, pointer as u64)
            }
            _ => Err(INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> Status {
    enter("cuMemHostGetFlags", |state| {
        state.device()?;
        match state.memory.block(pointer as u64) {
            Some((_, block)) if matches!(block.kind, Kind::Pinned | Kind::Registered) => {
                put(flags, block.flags)
            }
            _ => Err(INVALID_VALUE),
        }
    })
}

/// One attribute of a pointer; `unknown` allows an address in no allocation, which gives zeros.
unsafe fn attribute(state: &State, value: *mut c_void, which: c_int, address: u64, unknown: bool) -> Outcome {
    let found = state.memory.block(address);
    if found.is_none() && !unknown {
        return Err(INVALID_VALUE);
    }
    let host_visible = found.is_some_and(|(_, block)| block.kind != Kind::Device);
    let on_host = found.is_some_and(|(_, block)| matches!(block.kind, Kind::Pinned | Kind::Registered));
    match which {
        // Context, memory type, device pointer, host pointer, buffer id, is managed, device, start and size of the range, mapped.
        1 => put(value.cast(), found.map_or(0, |(_, block)| context::handle(block.device))),
        2 => put(value.cast(), found.map_or(0, |_| if on_host { 1u32 } else { 2 })),
        3 => put(value.cast(), found.map_or(0, |_| address)),
        4 if host_visible || unknown => put(value.cast(), if host_visible { address } else { 0 }),
        7 => put(value.cast(), found.map_or(0, |(base, _)| base)),
        8 => put(value.cast(), u32::from(found.is_some_and(|(_, block)| block.kind == Kind::Managed))),
        9 => put(value.cast(), found.map_or(-2, |(_, block)| block.device as c_int)),
        11 => put(value.cast(), found.map_or(0, |(base, _)| base)),
        12 => put(value.cast(), found.map_or(0, |(_, block)| block.bytes)),
        13 => put(value.cast(), u8::from(found.is_some())),
        _ => Err(INVALID_VALUE),
    }
}

/// Fails for memory that the driver does not know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, which: c_int, address: u64) -> Status {
    enter("cuPointerGetAttribute", |state| {
        state.ready()?;
        attribute(state, value, which, address, false)
    })
}

/// Does not fail for memory that the driver does not know: its memory type is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    which: *const c_int,
    values: *mut *mut c_void,
    address: u64,
) -> Status {
    enter("cuPointerGetAttributes", |state| {
        state.ready()?;
        if which.is_null() || values.is_null() {
            return Err(INVALID_VALUE);
        }
        (0..count as usize).try_for_each(|i| attribute(state, *values.add(i), *which.add(i), address, true))
    })
}

//! Copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use crate::memory::Memory;
use crate::ops::{Copy, Op};
use crate::state::{State, enter};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome, Status};

/// Whether an address is pageable memory, of which the device knows nothing.
fn pageable(state: &State, address: u64, bytes: usize) -> Outcome<bool> {
    if Memory::is_device_address(address) {
        return Ok(false);
    }
    match state.memory.block(address) {
        None => Ok(true),
        Some((base, block)) if (address - base) as usize + bytes <= block.bytes => Ok(false),
        // The driver refuses a copy that begins in page-locked memory and ends behind it.
        Some(_) => Err(INVALID_VALUE),
    }
}

/// Queues a copy as the driver does it: page-locked and device memory later, pageable sources read now, and pageable targets
/// written before it returns.
unsafe fn copy(state: &mut State, stream: usize, mut copy: Copy, wait: bool) -> Outcome {
    let key = state.stream(stream)?;
    let device = state.streams.get(key)?.device;
    if copy.width == 0 || copy.rows == 0 {
        return Ok(());
    }
    if copy.source == 0 || copy.target == 0 {
        return Err(INVALID_VALUE);
    }
    let span = |pitch: usize| (copy.rows - 1) * pitch + copy.width;
    let source_pageable = pageable(state, copy.source, span(copy.source_pitch))?;
    let target_pageable = pageable(state, copy.target, span(copy.target_pitch))?;
    (copy.source_pageable, copy.target_pageable) = (source_pageable, target_pageable);
    let number = if source_pageable && !target_pageable {
        let mut bytes = Vec::with_capacity(copy.width * copy.rows);
        for row in 0..copy.rows {
            let start = (copy.source as usize + row * copy.source_pitch) as *const u8;
            bytes.extend_from_slice(std::slice::from_raw_parts(start, copy.width));
        }
        let Copy { target, width, target_pitch: pitch, .. } = copy;
        state.push(key, Op::Staged { target, width, pitch, bytes })
    } else {
        state.push(key, Op::Copy(copy))
    };
    if wait || target_pageable {
        state.finish((key, number));
        return state.verdict(device);
    }
    Ok(())
}

fn flat(target: u64, source: u64, bytes: usize) -> Copy {
    let (target_pageable, source_pageable) = (false, false);
    let (target_pitch, source_pitch) = (bytes, bytes);
    Copy {
        target,
        source,
        width: bytes,
        rows: 1,
        target_pitch,
        source_pitch,
        target_pageable,
        source_pageable,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(target: u64, source: *const c_void, bytes: usize) -> Status {
    enter("cuMemcpyHtoD_v2", |state| copy(state, 0, flat(target, source as u64, bytes), true))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(target: *mut c_void, source: u64, bytes: usize) -> Status {
    enter("cuMemcpyDtoH_v2", |state| copy(state, 0, flat(target as u64, source, bytes), true))
}

/// Does not wait: as in CUDA, a copy within the device is asynchronous.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: usize) -> Status {
    enter("cuMemcpyDtoD_v2", |state| copy(state, 0, flat(target, source, bytes), false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    target: u64,
    source: *const c_void,
    bytes: usize,
    stream: usize,
) -> Status {
    enter("cuMemcpyHtoDAsync_v2", |state| copy(state, stream, flat(target, source as u64, bytes), false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    target: *mut c_void,
    source: u64,
    bytes: usize,
    stream: usize,
) -> Status {
    enter("cuMemcpyDtoHAsync_v2", |state| copy(state, stream, flat(target as u64, source, bytes), false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    target: u64,
    source: u64,
    bytes: usize,
    stream: usize,
) -> Status {
    enter("cuMemcpyDtoDAsync_v2", |state| copy(state, stream, flat(target, source, bytes), false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(target: u64, source: u64, bytes: usize, stream: usize) -> Status {
    enter("cuMemcpyAsync", |state| copy(state, stream, flat(target, source, bytes), false))
}

/// One side of a CUDA_MEMCPY2D.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Side2D {
    pub x: usize,
    pub y: usize,
    /// 1 host, 2 device, 4 unified (the address is in `device`).
    pub kind: c_uint,
    pub host: u64,
    pub device: u64,
    pub array: usize,
    pub pitch: usize,
}

/// CUDA_MEMCPY2D.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Memcpy2D {
    pub source: Side2D,
    pub target: Side2D,
    pub width: usize,
    pub height: usize,
}

/// CU_DEVICE_ATTRIBUTE_MAX_PITCH: a copy with longer rows is refused.
const MOST_PITCH: usize = c_int::MAX as usize;

impl Side2D {
    fn address(&self, width: usize) -> Outcome<u64> {
        let start = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            3 => return Err(NOT_SUPPORTED),
            _ => return Err(INVALID_VALUE),
        };
        if self.pitch < width + self.x || self.pitch > MOST_PITCH {
            return Err(INVALID_VALUE);
        }
        Ok(start + (self.y * self.pitch + self.x) as u64)
    }
}

unsafe fn copy_2d(state: &mut State, what: *const Memcpy2D, stream: usize, wait: bool) -> Outcome {
    let Memcpy2D { source, target, width, height } = what.as_ref().copied().ok_or(INVALID_VALUE)?;
    let rows = Copy {
        rows: height,
        target_pitch: target.pitch,
        source_pitch: source.pitch,
        ..flat(target.address(width)?, source.address(width)?, width)
    };
    copy(state, stream, rows, wait)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(what: *const Memcpy2D, stream: usize) -> Status {
    enter("cuMemcpy2DAsync_v2", |state| copy_2d(state, what, stream, false))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2D_v2(what: *const Memcpy2D) -> Status {
    enter("cuMemcpy2D_v2", |state| copy_2d(state, what, 0, true))
}

fn set(state: &mut State, address: u64, pattern: &[u8], count: usize, stream: usize) -> Outcome {
    let key = state.stream(stream)?;
    if !address.is_multiple_of(pattern.len() as u64) {
        return Err(INVALID_VALUE);
    }
    if count > 0 {
        state.push(key, Op::Set { target: address, pattern: pattern.to_vec(), count });
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: usize) -> Status {
    enter("cuMemsetD8Async", |state| set(state, address, &[value], count, stream))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32Async(
    address: u64,
    value: c_uint,
    count: usize,
    stream: usize,
) -> Status {
    enter("cuMemsetD32Async", |state| set(state, address, &value.to_ne_bytes(), count, stream))
}

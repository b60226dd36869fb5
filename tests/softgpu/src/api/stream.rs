//! Streams and events.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Instant;

use super::put;
use crate::ops::Op;
use crate::state::{State, enter};
use crate::status::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome, Status};
use crate::stream::Event;

unsafe fn create(state: &mut State, out: *mut usize, flags: c_uint, priority: c_int) -> Outcome {
    let device = state.device()?;
    if flags > 1 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    let handle = state.handle();
    state.streams.add(handle, device, flags, priority.clamp(-5, 0));
    put(out, handle)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(out: *mut usize, flags: c_uint) -> Status {
    enter("cuStreamCreate", |state| create(state, out, flags, 0))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    out: *mut usize,
    flags: c_uint,
    priority: c_int,
) -> Status {
    enter("cuStreamCreateWithPriority", |state| create(state, out, flags, priority))
}

/// Returns at once; what is queued is still done, some time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: usize) -> Status {
    enter("cuStreamDestroy_v2", |state| {
        if stream <= 2 {
            return Err(INVALID_HANDLE);
        }
        let key = state.stream(stream)?;
        state.streams.destroy(key)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: usize) -> Status {
    enter("cuStreamSynchronize", |state| {
        let key = state.stream(stream)?;
        let device = state.streams.get(key)?.device;
        state.finish_stream(key);
        state.verdict(device)
    })
}

/// Every question does a little of the work, so that who asks again and again gets an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: usize) -> Status {
    enter("cuStreamQuery", |state| {
        let key = state.stream(stream)?;
        let device = state.streams.get(key)?.device;
        if state.streams.reached((key, state.streams.issued(key))) {
            return state.verdict(device);
        }
        state.step(key);
        Err(NOT_READY)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(stream: usize, priority: *mut c_int) -> Status {
    enter("cuStreamGetPriority", |state| {
        let key = state.stream(stream)?;
        put(priority, state.streams.get(key)?.priority)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetFlags(stream: usize, flags: *mut c_uint) -> Status {
    enter("cuStreamGetFlags", |state| {
        let key = state.stream(stream)?;
        put(flags, state.streams.get(key)?.flags)
    })
}

/// No stream is ever captured here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_int) -> Status {
    enter("cuStreamIsCapturing", |state| {
        state.stream(stream)?;
        put(status, 0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> Status {
    enter("cuStreamWaitEvent", |state| {
        let key = state.stream(stream)?;
        let event = state.streams.events.get(&event).ok_or(INVALID_HANDLE)?;
        if let Some(point) = event.point {
            state.push(key, Op::Wait { point });
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> Status {
    enter("cuLaunchHostFunc", |state| {
        let key = state.stream(stream)?;
        let function = function.ok_or(INVALID_VALUE)?;
        state.push(key, Op::HostFunction { function, data: data as usize });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(out: *mut usize, flags: c_uint) -> Status {
    enter("cuEventCreate", |state| {
        let device = state.device()?;
        let handle = state.handle();
        put(out, handle)?;
        state
            .streams
            .events
            .insert(handle, Event { device, timing: flags & 2 == 0, point: None, time: None });
        Ok(())
    })
}

/// The event, on a device that is not lost.
fn event(state: &State, handle: usize) -> Outcome<&Event> {
    state.ready()?;
    let event = state.streams.events.get(&handle).ok_or(INVALID_HANDLE)?;
    state.well(event.device)?;
    Ok(event)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(handle: usize) -> Status {
    enter("cuEventDestroy_v2", |state| {
        event(state, handle)?;
        state.streams.events.remove(&handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(handle: usize, stream: usize) -> Status {
    enter("cuEventRecord", |state| {
        let key = state.stream(stream)?;
        let device = state.streams.get(key)?.device;
        if event(state, handle)?.device != device {
            return Err(INVALID_HANDLE); // an event belongs to the streams of one context
        }
        let number = state.push(key, Op::Record { event: handle });
        // Its number was not known before it was queued, and by now it may be done.
        let done = state.streams.reached((key, number));
        if let Some(event) = state.streams.events.get_mut(&handle) {
            event.point = Some((key, number));
            event.time = done.then(Instant::now);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(handle: usize) -> Status {
    enter("cuEventQuery", |state| {
        let event = event(state, handle)?;
        let device = event.device;
        match event.point {
            Some(point) if !state.streams.reached(point) => {
                state.step(point.0);
                Err(NOT_READY)
            }
            _ => state.verdict(device),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(handle: usize) -> Status {
    enter("cuEventSynchronize", |state| {
        let event = event(state, handle)?;
        let device = event.device;
        if let Some(point) = event.point {
            state.finish(point);
        }
        state.verdict(device)
    })
}

unsafe fn elapsed(state: &State, milliseconds: *mut f32, from: usize, to: usize) -> Outcome {
    let (from, to) = (event(state, from)?, event(state, to)?);
    let recorded = |event: &Event| event.timing && event.point.is_some();
    if !recorded(from) || !recorded(to) {
        return Err(INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (from.time, to.time) else { return Err(NOT_READY) };
    put(milliseconds, end.saturating_duration_since(start).as_secs_f32() * 1e3)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> Status {
    enter("cuEventElapsedTime", |state| elapsed(state, milliseconds, from, to))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: usize, to: usize) -> Status {
    enter("cuEventElapsedTime_v2", |state| elapsed(state, milliseconds, from, to))
}

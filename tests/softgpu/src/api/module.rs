//! Modules, functions, launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::context::most_dynamic_bytes;
use super::put;
use crate::kernel::{self, Function, Launch, Module};
use crate::ops::Op;
use crate::state::{State, enter};
use crate::status::{
    INVALID_CLUSTER_SIZE, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, OUT_OF_RESOURCES, Outcome, Status,
};

/// What every kernel may ask for without being allowed more.
const FREE_DYNAMIC_BYTES: u32 = 48 << 10;

/// Loads PTX; what is wrong with it goes to stderr, and is returned for the log.
unsafe fn load(state: &mut State, out: *mut usize, image: *const c_void) -> Result<(), (Status, String)> {
    let plain = |status: Status| (status, String::new());
    let device = state.device().map_err(plain)?;
    if image.is_null() || out.is_null() {
        return Err(plain(INVALID_VALUE));
    }
    let text = CStr::from_ptr(image.cast()).to_bytes();
    let functions = kernel::load(text, state.config.capability, state.config.driver)
        .inspect_err(|(_, message)| eprintln!("softgpu: {message}"))?;
    let handle = state.handle();
    state.modules.insert(handle, Module { device, functions });
    put(out, handle).map_err(plain)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut usize, image: *const c_void) -> Status {
    enter("cuModuleLoadData", |state| load(state, out, image).map_err(|(status, _)| status))
}

/// Of the options, the log buffers are served: 3 and 4 for information, 5 and 6 for errors; address and size, and the size is
/// then what was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    out: *mut usize,
    image: *const c_void,
    count: c_uint,
    options: *const c_int,
    values: *mut *mut c_void,
) -> Status {
    enter("cuModuleLoadDataEx", |state| {
        let result = load(state, out, image);
        let message = result.as_ref().err().map_or("", |(_, message)| message);
        let option = |wanted: c_int| (0..count as usize).find(|&i| *options.add(i) == wanted);
        for (buffer, size, text) in [(3, 4, ""), (5, 6, message)] {
            let (Some(buffer), Some(size)) = (option(buffer), option(size)) else { continue };
            let (target, room) = ((*values.add(buffer)).cast::<c_char>(), *values.add(size) as usize);
            if target.is_null() || room == 0 {
                continue;
            }
            let length = text.len().min(room - 1);
            target.copy_from(text.as_ptr().cast(), length);
            target.add(length).write(0);
            *values.add(size) = length as *mut c_void;
        }
        result.map_err(|(status, _)| status)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(handle: usize) -> Status {
    enter("cuModuleUnload", |state| {
        state.device()?;
        state.modules.remove(&handle).ok_or(INVALID_HANDLE)?;
        state.functions.retain(|_, function| function.module != Some(handle));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(out: *mut usize, handle: usize, name: *const c_char) -> Status {
    enter("cuModuleGetFunction", |state| {
        state.device()?;
        let module = state.modules.get(&handle).ok_or(INVALID_HANDLE)?;
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        let name = CStr::from_ptr(name).to_bytes();
        let loaded = module.functions.iter().find(|loaded| loaded.entry.name().as_bytes() == name);
        let (loaded, device) = (*loaded.ok_or(NOT_FOUND)?, Some(module.device));
        let function =
            Function { loaded, module: Some(handle), device, most_dynamic_bytes: FREE_DYNAMIC_BYTES };
        put(out, add_function(state, function))
    })
}

pub fn add_function(state: &mut State, function: Function) -> usize {
    let handle = state.handle();
    state.functions.insert(handle, function);
    handle
}

/// A kernel of this name for any device, with no PTX behind it: for tests.
pub fn function_by_name(state: &mut State, name: &str) -> Outcome<usize> {
    let entry = kernel::find(name).ok_or(NOT_FOUND)?;
    let loaded = kernel::Loaded { entry, most_threads: 1024, cluster: 1 };
    Ok(add_function(
        state,
        Function { loaded, module: None, device: None, most_dynamic_bytes: FREE_DYNAMIC_BYTES },
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, handle: usize) -> Status {
    enter("cuFuncGetAttribute", |state| {
        let function = state.functions.get(&handle).ok_or(INVALID_HANDLE)?;
        let capability = state.config.capability;
        let found = match attribute {
            0 => function.loaded.most_threads as c_int,
            4 => 32, // registers
            5 => 80, // PTX version
            6 => capability,
            8 => function.most_dynamic_bytes as c_int,
            _ => 0,
        };
        put(value, found)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(handle: usize, attribute: c_int, value: c_int) -> Status {
    enter("cuFuncSetAttribute", |state| {
        let most = most_dynamic_bytes(state.config.capability);
        let function = state.functions.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        if attribute == 8 {
            let bytes = u32::try_from(value).ok().filter(|&bytes| bytes <= most).ok_or(INVALID_VALUE)?;
            function.most_dynamic_bytes = bytes;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    handle: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    threads_x: c_uint,
    threads_y: c_uint,
    threads_z: c_uint,
    dynamic_bytes: c_uint,
    stream: usize,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    enter("cuLaunchKernel", |state| {
        state.device()?;
        let key = state.stream(stream)?;
        let device = state.streams.get(key)?.device;
        let sizes = [[grid_x, grid_y, grid_z], [threads_x, threads_y, threads_z]];
        let launch = launch_of(state, handle, device, sizes, dynamic_bytes, arguments, extra)?;
        state.push(key, Op::Launch(launch));
        Ok(())
    })
}

/// A launch of a function on a device, with a copy of its arguments, or what is wrong with it.
pub unsafe fn launch_of(
    state: &State,
    handle: usize,
    device: usize,
    [grid, threads]: [[c_uint; 3]; 2],
    dynamic_bytes: c_uint,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome<Launch> {
    let function = state.functions.get(&handle).ok_or(INVALID_HANDLE)?;
    if function.device.is_some_and(|own| own != device) {
        return Err(INVALID_HANDLE); // the function of one context, the stream of another
    }
    let all = threads.iter().map(|&t| u64::from(t)).product::<u64>();
    if grid.contains(&0) || all == 0 || grid[0] > c_int::MAX as u32 || grid[1].max(grid[2]) > 65535 {
        return Err(INVALID_VALUE);
    }
    if all > 1024 || threads[2] > 64 || dynamic_bytes > function.most_dynamic_bytes {
        return Err(INVALID_VALUE);
    }
    if all > u64::from(function.loaded.most_threads) {
        return Err(OUT_OF_RESOURCES); // more threads than __launch_bounds__ promised
    }
    if !grid[0].is_multiple_of(function.loaded.cluster) {
        return Err(INVALID_CLUSTER_SIZE);
    }
    let entry = function.loaded.entry;
    if !extra.is_null() || (arguments.is_null() && !entry.sizes().is_empty()) {
        return Err(INVALID_VALUE);
    }
    let argument = |(i, &size): (usize, &u32)| {
        std::slice::from_raw_parts((*arguments.add(i)).cast::<u8>(), size as usize).to_vec()
    };
    let arguments = entry.sizes().iter().enumerate().map(argument).collect();
    Ok(Launch { kernel: entry, arguments, grid, threads, dynamic_bytes: dynamic_bytes as usize })
}

//! A thin layer for Rust tests that link this crate: what is wrong panics.

use std::ffi::{CString, c_void};

use crate::api::{context, control, copy, memory, module};

/// Dynamic shared memory of every launch.
const DYNAMIC_BYTES: u32 = 4096;

/// One argument of a kernel.
#[derive(Clone, Copy)]
pub enum Argument {
    Pointer(u64),
    Int(i32),
    Long(i64),
    Double(f64),
}

fn ok(what: &str, status: i32) {
    assert_eq!(status, 0, "{what}");
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("no NUL in it")
}

/// The device as at the start of a process with these switches (`softgpu_configure`).
pub fn configure(switches: &str) {
    // SAFETY: a string, here and below.
    ok(switches, unsafe { control::softgpu_configure(c_string(switches).as_ptr()) });
}

/// Orders failures (`softgpu_set_faults`).
pub fn set_faults(order: &str) {
    ok(order, unsafe { control::softgpu_set_faults(c_string(order).as_ptr()) });
}

/// How often an entry point was called, or a launch done, since failures were last ordered.
pub fn count(name: &str) -> u64 {
    let mut text = vec![0u8; 1 << 16];
    // SAFETY: the text is as long as said.
    let length = unsafe { control::softgpu_counts(text.as_mut_ptr().cast(), text.len()) };
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Starts CUDA and makes the primary context of a device current.
pub fn start(device: i32) {
    let mut handle = 0;
    // SAFETY: results go to local variables.
    unsafe {
        ok("cuInit", context::cuInit(0));
        ok("cuDevicePrimaryCtxRetain", context::cuDevicePrimaryCtxRetain(&mut handle, device));
        ok("cuCtxSetCurrent", context::cuCtxSetCurrent(handle));
    }
}

/// Device memory with these values.
pub fn upload<T: Copy>(values: &[T]) -> u64 {
    let mut address = 0;
    // SAFETY: as many bytes as the values have.
    unsafe {
        ok("cuMemAlloc_v2", memory::cuMemAlloc_v2(&mut address, size_of_val(values)));
        let status = copy::cuMemcpyHtoD_v2(address, values.as_ptr().cast(), size_of_val(values));
        ok("cuMemcpyHtoD_v2", status);
    }
    address
}

/// The values in device memory, once everything on the device is done.
pub fn download<T: Copy + Default>(address: u64, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    // SAFETY: as many bytes as the values have; every bit pattern is a value for the types that tests use.
    unsafe {
        ok("cuCtxSynchronize", context::cuCtxSynchronize());
        let status = copy::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, count * size_of::<T>());
        ok("cuMemcpyDtoH_v2", status);
    }
    values
}

/// Queues a kernel by its name. The status of cuLaunchKernel.
pub fn launch(stream: usize, name: &str, grid: [u32; 3], threads: [u32; 3], arguments: &[Argument]) -> i32 {
    let mut function = 0;
    ok(name, unsafe { control::softgpu_function(&mut function, c_string(name).as_ptr()) });
    let mut values: Vec<u64> = arguments
        .iter()
        .map(|argument| match *argument {
            Argument::Pointer(address) => address,
            Argument::Int(value) => u64::from(value as u32),
            Argument::Long(value) => value as u64,
            Argument::Double(value) => value.to_bits(),
        })
        .collect();
    let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
    let (parameters, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
    let [gx, gy, gz] = grid;
    let [tx, ty, tz] = threads;
    // SAFETY: every argument has at least the bytes that the kernel takes.
    unsafe {
        module::cuLaunchKernel(function, gx, gy, gz, tx, ty, tz, DYNAMIC_BYTES, stream, parameters, none)
    }
}

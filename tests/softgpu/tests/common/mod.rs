//! What the tests of the device share.

#![allow(dead_code)] // no test file uses all of it

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard};

use softgpu::api::{context::*, memory::*, stream::*};
use softgpu::testing::{configure, start};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The device with these switches, device 0 current; one test at a time has it.
pub fn device(switches: &str) -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    configure(switches);
    start(0);
    guard
}

/// Every way in which work may be ordered.
pub const MODES: [&str; 6] = [
    "mode=eager",
    "mode=lazy",
    "mode=random seed=1",
    "mode=random seed=2",
    "mode=lazy order=reverse",
    "mode=random seed=3 order=reverse",
];

pub fn created(create: impl Fn(&mut usize) -> c_int) -> usize {
    let mut handle = 0;
    assert_eq!(create(&mut handle), 0);
    handle
}

pub fn new_stream() -> usize {
    created(|out| unsafe { cuStreamCreate(out, 1) })
}

pub fn new_event() -> usize {
    created(|out| unsafe { cuEventCreate(out, 0) })
}

pub fn alloc(bytes: usize) -> u64 {
    let mut address = 0;
    assert_eq!(unsafe { cuMemAlloc_v2(&mut address, bytes) }, 0);
    address
}

pub fn synchronize() -> c_int {
    unsafe { cuCtxSynchronize() }
}

pub fn pinned<T: Copy>(values: &[T]) -> *mut T {
    let mut pointer = std::ptr::null_mut();
    unsafe {
        assert_eq!(cuMemHostAlloc(&mut pointer, size_of_val(values), 0), 0);
        pointer.cast::<T>().copy_from(values.as_ptr(), values.len());
    }
    pointer.cast()
}

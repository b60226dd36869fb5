//! Where the matrices of a call are, and what is done where no engine of the host can reach them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::CUdeviceptr;

use super::device::Current;
use super::library::{Fault, Libraries};
use crate::engine::cpu::workspace::vector;
use crate::gemm::{Gemm, Lines};
use crate::native::builtin;

/// Where a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    /// Memory that the host and every device reach.
    Managed,
    /// The memory of the device with this ordinal.
    Device(usize),
}

impl Place {
    pub fn of(libraries: &Libraries, address: usize) -> Self {
        const MEMORY_TYPE: c_int = 2;
        const IS_MANAGED: c_int = 8;
        const DEVICE_ORDINAL: c_int = 9;
        const DEVICE: c_uint = 2;
        let (mut kind, mut managed, mut ordinal) = (0u32, 0u32, 0i32);
        let mut attributes = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL];
        let mut values: [*mut c_void; 3] =
            [(&raw mut kind).cast(), (&raw mut managed).cast(), (&raw mut ordinal).cast()];
        let count = values.len() as c_uint;
        // SAFETY: the call writes the three numbers; it takes any address.
        let asked = unsafe {
            let (attributes, values) = (attributes.as_mut_ptr(), values.as_mut_ptr());
            libraries.driver.cuPointerGetAttributes(count, attributes, values, address as CUdeviceptr)
        };
        match (asked, usize::try_from(ordinal)) {
            (Ok(()), _) if managed != 0 => Self::Managed,
            (Ok(()), Ok(ordinal)) if kind == DEVICE => Self::Device(ordinal),
            _ => Self::Host,
        }
    }

    /// Kernels can use the matrix where it is.
    pub fn is_reachable(self) -> bool {
        self != Self::Host
    }
}

/// The places of A, B and C.
pub fn places(libraries: &Libraries, call: &Gemm) -> [Place; 3] {
    [call.a.pointer().addr(), call.b.pointer().addr(), call.c.pointer().addr()]
        .map(|address| Place::of(libraries, address))
}

/// The devices whose memory holds a matrix of the call.
pub fn devices(places: &[Place]) -> impl Iterator<Item = usize> + '_ {
    places.iter().filter_map(|place| if let Place::Device(ordinal) = place { Some(*ordinal) } else { None })
}

/// The context of a device, current while the value lives.
fn context_of(libraries: &Libraries, ordinal: usize) -> Result<Current<'_>, Fault> {
    let (mut device, mut context) = (0, null_mut());
    // SAFETY: each call writes what it is given an address for.
    unsafe {
        libraries.driver.cuDeviceGet(&raw mut device, ordinal as c_int)?;
        libraries.driver.cuDevicePrimaryCtxRetain(&raw mut context, device)?;
    }
    Current::enter(libraries, context)
}

/// A copy of a matrix on the host, without gaps.
fn fetch(libraries: &Libraries, lines: &Lines, ordinal: usize) -> Result<Vec<f64>, Fault> {
    let (runs, length, distance) = lines.runs();
    let mut out = vector(runs * length, 0.0).map_err(|_| Fault::Memory)?;
    let _current = context_of(libraries, ordinal)?;
    // What the program has queued may still write the matrix.
    // SAFETY: elements of the matrix; the copies have ended when the calls return.
    unsafe {
        libraries.driver.cuCtxSynchronize()?;
        for (run, to) in out.chunks_exact_mut(length).enumerate() {
            let from = lines.pointer().wrapping_add(run * distance) as CUdeviceptr;
            libraries.driver.cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, 8 * length)?;
        }
    }
    Ok(out)
}

/// A call with A and B where the host can read them: copies of those that are in the memory of a device.
pub struct OnHost {
    pub call: Gemm,
    _copies: [Option<Vec<f64>>; 2],
}

impl OnHost {
    pub fn new(libraries: &Libraries, call: &Gemm, places: &[Place; 3]) -> Result<Self, Fault> {
        let mut there = *call;
        let mut copies = [None, None];
        for ((lines, copy), place) in [&mut there.a, &mut there.b].into_iter().zip(&mut copies).zip(places) {
            if let Place::Device(ordinal) = *place {
                let values = copy.insert(fetch(libraries, lines, ordinal)?);
                *lines = lines.dense_at(values.as_ptr());
            }
        }
        Ok(Self { call: there, _copies: copies })
    }
}

/// Computes a call of which some matrices are in the memory of a device by the builtin DGEMM on copies of those: a native BLAS
/// would read addresses that the host cannot reach. C is written only at the end.
///
/// # Safety
///
/// As for [`crate::engine::Engine::gemm`].
pub unsafe fn through_host(
    libraries: &Libraries,
    call: &Gemm,
    places: &[Place; 3],
    threads: usize,
) -> Result<(), Fault> {
    let OnHost { call: mut there, _copies } = OnHost::new(libraries, call, places)?;
    let mut c = match places[2] {
        Place::Device(ordinal) => Some(fetch(libraries, &call.c.as_lines(), ordinal)?),
        _ => None,
    };
    if let Some(c) = &mut c {
        there.c = call.c.dense_at(c.as_mut_ptr());
    }
    // SAFETY: the matrices that are not copies are the caller's.
    unsafe { builtin::gemm(&there, threads) };
    if let (Some(c), Place::Device(ordinal)) = (c, places[2]) {
        let _current = context_of(libraries, ordinal)?;
        for (j, column) in c.chunks_exact(call.m).enumerate() {
            let to = call.c.pointer().wrapping_add(j * call.c.ld) as CUdeviceptr;
            // SAFETY: a column of C.
            unsafe { libraries.driver.cuMemcpyHtoD_v2(to, column.as_ptr().cast(), 8 * call.m)? };
        }
    }
    Ok(())
}

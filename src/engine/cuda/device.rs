//! One GPU: its primary context, streams, modules, cuBLAS handle, and memory that is kept from call to call.
//!
//! Everything is made once and never destroyed: at exit the driver may be gone before us, and what the process held goes with
//! it. The host program's current context is put back after every call ([`Current`]).

use std::ffi::{CStr, c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::cublas::sys::cublasHandle_t;
use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};

use super::graph::Replays;
use super::library::{Fault, Libraries};
use super::product::Fused;

/// Memory of the device that is kept and grows: each use has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Region {
    RawA,
    RawB,
    PlanesA,
    PlanesB,
    Sums,
    Residues,
    Bounds,
    C0,
    C1,
    Lines,
    Constants,
}

const REGIONS: usize = 11;

/// The events of a device.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Event {
    /// The operands of a block are on the device.
    Loaded,
    /// The raw operands have been read and may be overwritten.
    Consumed,
    /// The result of a block is in its region.
    Done0,
    Done1,
    /// A half of the staging memory may be used again.
    Staged0,
    Staged1,
}

const EVENTS: usize = 6;

/// Bytes of a half of the pinned staging memory. Tests make it small, so that a matrix takes many halves.
pub static STAGING: AtomicUsize = AtomicUsize::new(32 << 20);
const CUBLAS_WORKSPACE: usize = 32 << 20;
const STREAM_NON_BLOCKING: c_uint = 1;
const EVENT_DISABLE_TIMING: c_uint = 2;

/// The kernels, one module for each source so that a stale one is named by its file.
const SOURCES: [(&str, [&str; 2], &[&CStr]); 5] = [
    (
        "scan",
        [
            include_str!("../../../kernels/ptx/scan.compute_75.ptx"),
            include_str!("../../../kernels/ptx/scan.compute_80.ptx"),
        ],
        &[c"oz2_scan"],
    ),
    (
        "bound",
        [
            include_str!("../../../kernels/ptx/bound.compute_75.ptx"),
            include_str!("../../../kernels/ptx/bound.compute_80.ptx"),
        ],
        &[
            c"oz2_magnitudes",
            c"oz2_add_bounds",
            c"oz2_needs",
            c"oz2_meet",
            c"oz2_maxima",
            c"oz2_largest_bits",
            c"oz2_largest_leading",
        ],
    ),
    (
        "residues",
        [
            include_str!("../../../kernels/ptx/residues.compute_75.ptx"),
            include_str!("../../../kernels/ptx/residues.compute_80.ptx"),
        ],
        &[c"oz2_residues", c"oz2_residues_strassen_1", c"oz2_residues_strassen_2"],
    ),
    (
        "reduce",
        [
            include_str!("../../../kernels/ptx/reduce.compute_75.ptx"),
            include_str!("../../../kernels/ptx/reduce.compute_80.ptx"),
        ],
        &[c"oz2_reduce"],
    ),
    (
        "reconstruct",
        [
            include_str!("../../../kernels/ptx/reconstruct.compute_75.ptx"),
            include_str!("../../../kernels/ptx/reconstruct.compute_80.ptx"),
        ],
        &[c"oz2_reconstruct", c"oz2_reconstruct_strassen_1", c"oz2_reconstruct_strassen_2"],
    ),
];

/// The number of a kernel: its place in the list of all entries of SOURCES.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Kernel {
    Scan,
    Magnitudes,
    AddBounds,
    Needs,
    Meet,
    Maxima,
    LargestBits,
    LargestLeading,
    Residues,
    ResiduesStrassen1,
    ResiduesStrassen2,
    Reduce,
    Reconstruct,
    ReconstructStrassen1,
    ReconstructStrassen2,
}

const KERNELS: usize = 15;

pub struct Device {
    pub libraries: &'static Libraries,
    context: CUcontext,
    /// Kernels and products.
    pub compute: CUstream,
    /// Copies to the device.
    pub load: CUstream,
    /// Copies from the device.
    pub store: CUstream,
    events: [CUevent; EVENTS],
    functions: [CUfunction; KERNELS],
    pub blas: cublasHandle_t,
    /// The product with the reduction inside, where it was asked for and has passed its test.
    pub fused: Option<Fused>,
    pub replays: Replays,
    ordinal: usize,
    regions: [(CUdeviceptr, usize); REGIONS],
    staging: [(*mut u8, usize); 2],
}

// SAFETY: handles and addresses that any thread may use while it holds the lock of the device.
unsafe impl Send for Device {}

/// Makes the context of a device current while it lives.
pub struct Current<'a>(&'a Libraries);

impl<'a> Current<'a> {
    pub fn enter(libraries: &'a Libraries, context: CUcontext) -> Result<Self, Fault> {
        // SAFETY: a context that was retained and is never released.
        unsafe { libraries.driver.cuCtxPushCurrent_v2(context)? };
        Ok(Self(libraries))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: pops what enter pushed. A failure leaves nothing to do.
        let _ = unsafe { self.0.driver.cuCtxPopCurrent_v2(&raw mut context) };
    }
}

impl Device {
    /// Opens a device: context, streams, kernels, cuBLAS.
    pub fn open(libraries: &'static Libraries, ordinal: usize) -> Result<Self, Fault> {
        let driver = &libraries.driver;
        // SAFETY: every call writes what it is given an address for, and gets handles that earlier calls made.
        unsafe {
            let mut device = 0;
            driver.cuDeviceGet(&raw mut device, ordinal as c_int)?;
            let major = attribute(libraries, device, COMPUTE_CAPABILITY_MAJOR)?;
            let mut context = null_mut();
            driver.cuDevicePrimaryCtxRetain(&raw mut context, device)?;
            let _current = Current::enter(libraries, context)?;
            let mut streams = [null_mut(); 3];
            for stream in &mut streams {
                driver.cuStreamCreate(stream, STREAM_NON_BLOCKING)?;
            }
            let mut events = [null_mut(); EVENTS];
            for event in &mut events {
                driver.cuEventCreate(event, EVENT_DISABLE_TIMING)?;
            }
            let [compute, load, store] = streams;
            let mut blas = null_mut();
            libraries.cublas.cublasCreate_v2(&raw mut blas)?;
            libraries.cublas.cublasSetStream_v2(blas, compute)?;
            // After the stream: setting that resets the workspace. Without one of our own cuBLAS would take memory of its own
            // at the first product; a small device may have to do with that.
            let mut workspace = 0;
            if driver.cuMemAlloc_v2(&raw mut workspace, CUBLAS_WORKSPACE).is_ok() {
                libraries.cublas.cublasSetWorkspace_v2(blas, workspace, CUBLAS_WORKSPACE)?;
            }
            Ok(Self {
                libraries,
                context,
                compute,
                load,
                store,
                events,
                functions: load_kernels(libraries, usize::from(major >= 8))?,
                blas,
                fused: None,
                replays: Replays::default(),
                ordinal,
                regions: [(0, 0); REGIONS],
                staging: [(null_mut(), 0); 2],
            })
        }
    }

    pub fn enter(&self) -> Result<Current<'static>, Fault> {
        Current::enter(self.libraries, self.context)
    }

    fn attribute(&self, which: c_int) -> Result<c_int, Fault> {
        let mut device = 0;
        // SAFETY: the call writes the handle.
        unsafe { self.libraries.driver.cuDeviceGet(&raw mut device, self.ordinal as c_int)? };
        attribute(self.libraries, device, which)
    }

    /// The compute capability, as in 9.0.
    pub fn capability(&self) -> Result<(c_int, c_int), Fault> {
        Ok((self.attribute(COMPUTE_CAPABILITY_MAJOR)?, self.attribute(COMPUTE_CAPABILITY_MINOR)?))
    }

    pub fn multiprocessors(&self) -> Result<usize, Fault> {
        const MULTIPROCESSORS: c_int = 16;
        Ok(self.attribute(MULTIPROCESSORS)?.max(1) as usize)
    }

    /// Bytes that the regions hold.
    pub fn held(&self) -> usize {
        self.regions.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that the device has left.
    pub fn free(&self) -> Result<usize, Fault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes both numbers.
        unsafe { self.libraries.driver.cuMemGetInfo_v2(&raw mut free, &raw mut total)? };
        Ok(free)
    }

    /// Bytes of a region.
    pub fn size(&self, which: Region) -> usize {
        self.regions[which as usize].1
    }

    /// A region of at least `bytes`; growing it loses what it held.
    pub fn region(&mut self, which: Region, bytes: usize) -> Result<CUdeviceptr, Fault> {
        let (address, size) = self.regions[which as usize];
        if size >= bytes && address != 0 {
            return Ok(address);
        }
        self.give_back(which)?;
        let mut address = 0;
        let bytes = bytes.max(256);
        // SAFETY: the call writes the address.
        unsafe { self.libraries.driver.cuMemAlloc_v2(&raw mut address, bytes)? };
        self.regions[which as usize] = (address, bytes);
        Ok(address)
    }

    /// A region that [`Device::region`] has made.
    pub fn existing(&self, which: Region) -> CUdeviceptr {
        self.regions[which as usize].0
    }

    /// Gives a region back; what it held is lost.
    pub fn give_back(&mut self, which: Region) -> Result<(), Fault> {
        let (address, _) = std::mem::take(&mut self.regions[which as usize]);
        if address != 0 {
            // SAFETY: an address from cuMemAlloc; freeing waits for the work that uses it.
            unsafe { self.libraries.driver.cuMemFree_v2(address)? };
        }
        Ok(())
    }

    /// Gives all regions back, so that smaller ones can be had.
    pub fn give_all_back(&mut self) -> Result<(), Fault> {
        use Region::*;
        let all = [RawA, RawB, PlanesA, PlanesB, Sums, Residues, Bounds, C0, C1, Lines, Constants];
        all.into_iter().map(|which| self.give_back(which)).fold(Ok(()), Result::and)
    }

    /// A half of the staging memory, of at least `bytes`: page-locked, so that copies run beside everything else.
    pub fn staging(&mut self, half: usize, bytes: usize) -> Result<*mut u8, Fault> {
        let (address, size) = self.staging[half];
        if size >= bytes {
            return Ok(address);
        }
        self.staging[half] = (null_mut(), 0);
        let driver = &self.libraries.driver;
        // SAFETY: an address from cuMemHostAlloc that no copy uses: every user waits for its copies.
        unsafe {
            if !address.is_null() {
                driver.cuMemFreeHost(address.cast())?;
            }
            let mut address = null_mut();
            driver.cuMemHostAlloc(&raw mut address, bytes, 0)?;
            self.staging[half] = (address.cast(), bytes);
            Ok(address.cast())
        }
    }

    /// Bytes of a half of the staging memory for columns of `column` bytes: a whole number of columns.
    pub fn staging_size(column: usize) -> usize {
        (STAGING.load(Ordering::Relaxed) / column).max(1) * column
    }

    pub fn record(&self, event: Event, stream: CUstream) -> Result<(), Fault> {
        // SAFETY: handles of this device.
        unsafe { self.libraries.driver.cuEventRecord(self.events[event as usize], stream) }
    }

    /// Work that comes to the stream later waits for the event.
    pub fn wait(&self, stream: CUstream, event: Event) -> Result<(), Fault> {
        // SAFETY: handles of this device.
        unsafe { self.libraries.driver.cuStreamWaitEvent(stream, self.events[event as usize], 0) }
    }

    /// This thread waits for the event.
    pub fn wait_here(&self, event: Event) -> Result<(), Fault> {
        // SAFETY: a handle of this device.
        unsafe { self.libraries.driver.cuEventSynchronize(self.events[event as usize]) }
    }

    /// This thread waits for all work of a stream.
    pub fn wait_for(&self, stream: CUstream) -> Result<(), Fault> {
        // SAFETY: a handle of this device.
        unsafe { self.libraries.driver.cuStreamSynchronize(stream) }
    }

    /// Copies [bytes, columns] of a matrix on the device to another, both with their distance between columns in bytes.
    pub fn copy_columns(
        &self,
        from: CUdeviceptr,
        from_pitch: usize,
        to: CUdeviceptr,
        to_pitch: usize,
        [bytes, columns]: [usize; 2],
        stream: CUstream,
    ) -> Result<(), Fault> {
        use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype::CU_MEMORYTYPE_DEVICE};
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from,
            srcArray: null_mut(),
            srcPitch: from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CU_MEMORYTYPE_DEVICE,
            dstHost: null_mut(),
            dstDevice: to,
            dstArray: null_mut(),
            dstPitch: to_pitch,
            WidthInBytes: bytes,
            Height: columns,
        };
        // SAFETY: the callers name matrices of this size.
        unsafe { self.libraries.driver.cuMemcpy2DAsync_v2(&raw const copy, stream) }
    }

    /// This thread waits for everything.
    pub fn finish(&self) -> Result<(), Fault> {
        [self.load, self.compute, self.store].into_iter().try_for_each(|stream| self.wait_for(stream))
    }

    pub fn function(&self, kernel: Kernel) -> CUfunction {
        self.functions[kernel as usize]
    }
}

const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

fn attribute(libraries: &Libraries, device: c_int, which: c_int) -> Result<c_int, Fault> {
    let mut value = 0;
    // SAFETY: the call writes the value.
    unsafe { libraries.driver.cuDeviceGetAttribute(&raw mut value, which, device)? };
    Ok(value)
}

/// The entries of all sources, in the order of [`Kernel`]. `generation` 0: for compute capability 7.5, 1: for 8.0 and later.
fn load_kernels(libraries: &Libraries, generation: usize) -> Result<[CUfunction; KERNELS], Fault> {
    let mut functions = [null_mut(); KERNELS];
    let mut number = 0;
    for (file, texts, entries) in SOURCES {
        for function in load_module(libraries, file, texts[generation], entries)? {
            functions[number] = function;
            number += 1;
        }
    }
    Ok(functions)
}

/// Loads the PTX of a file; its entries, in this order.
pub fn load_module(
    libraries: &Libraries,
    file: &str,
    text: &str,
    entries: &[&CStr],
) -> Result<Vec<CUfunction>, Fault> {
    // The text must end in a zero.
    let text = std::ffi::CString::new(text).map_err(|_| Fault::Status("a kernel file", 0))?;
    let mut module: CUmodule = null_mut();
    let mut functions = vec![null_mut(); entries.len()];
    // SAFETY: the driver reads the text and writes the handles.
    unsafe {
        let image = text.as_ptr().cast();
        libraries
            .driver
            .cuModuleLoadDataEx(&raw mut module, image, 0, null_mut(), null_mut())
            .inspect_err(|fault| tracing::debug!(file, ?fault, "a kernel file cannot be loaded"))?;
        for (function, entry) in functions.iter_mut().zip(entries) {
            libraries.driver.cuModuleGetFunction(function, module, entry.as_ptr())?;
        }
    }
    Ok(functions)
}

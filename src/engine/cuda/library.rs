//! The CUDA driver and cuBLAS, found and opened at the first call that wants them: nothing is linked, and a missing library
//! is an ordinary answer. Functions return plain integers: a status that this version has never heard of is only a number.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use cudarc::cublas::sys::cublasHandle_t;
use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUmodule, CUstream,
};

use crate::engine::process;
use crate::native::objects;
use crate::options;

/// A status that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device has not enough memory.
    Memory,
    /// Another status of the named function.
    Status(&'static str, c_int),
}

const OUT_OF_MEMORY: c_int = 2;
const CUBLAS_ALLOC_FAILED: c_int = 3;

/// Success is 0 in both libraries.
pub fn check(function: &'static str, status: c_int) -> Result<(), Fault> {
    match status {
        0 => Ok(()),
        OUT_OF_MEMORY if function.starts_with("cu") && !function.starts_with("cublas") => Err(Fault::Memory),
        CUBLAS_ALLOC_FAILED if function.starts_with("cublas") => Err(Fault::Memory),
        status => Err(Fault::Status(function, status)),
    }
}

/// A table of functions of one library, and for each a method that turns its status into a Result.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($name:ident ( $($argument:ident : $type:ty),* ) ;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names of the functions")]
        pub struct $table {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc,
            reason = "the functions of the library, as its documentation describes them")]
        impl $table {
            /// All functions, or the name of the first that the library lacks.
            fn load(library: *mut c_void) -> Result<Self, &'static str> {
                $(
                    // SAFETY: an open library; a valid name.
                    let address = unsafe { libc::dlsym(library, concat!(stringify!($name), "\0").as_ptr().cast()) };
                    if address.is_null() {
                        return Err(stringify!($name));
                    }
                    // SAFETY: the function has this signature by its documentation.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(address)
                    };
                )*
                Ok(Self { $($name),* })
            }

            $(
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Fault> {
                    // SAFETY: by the contract of this function.
                    check(stringify!($name), unsafe { (self.$name)($($argument),*) })
                }
            )*
        }
    };
}

table! {
    /// The driver. Functions with several versions are named as the headers of CUDA 12 name them.
    Driver {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut c_int, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: c_int);
        cuCtxPushCurrent_v2(context: CUcontext);
        cuCtxPopCurrent_v2(context: *mut CUcontext);
        cuCtxSynchronize();
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(address: CUdeviceptr);
        cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(address: *mut c_void);
        cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
        cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
        cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpy2DAsync_v2(copy: *const cudarc::driver::sys::CUDA_MEMCPY2D, stream: CUstream);
        cuMemsetD8Async(to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream);
        cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventSynchronize(event: CUevent);
        cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
            values: *mut *mut c_void);
        cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
        cuTensorMapEncodeTiled(map: *mut c_void, data_type: c_int, rank: c_uint, address: CUdeviceptr, sizes: *const u64,
            strides: *const u64, boxes: *const c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int,
            l2_promotion: c_int, fill: c_int);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void,
            extra: *mut *mut c_void);
        cuPointerGetAttributes(count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: CUdeviceptr);
    }
}

table! {
    /// Graphs of kernels. A driver without them is one that launches every kernel by itself.
    Graphs {
        cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
        cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize,
            parameters: *const CUDA_KERNEL_NODE_PARAMS_v2);
        cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: u64);
        cuGraphExecKernelNodeSetParams_v2(executable: CUgraphExec, node: CUgraphNode,
            parameters: *const CUDA_KERNEL_NODE_PARAMS_v2);
        cuGraphLaunch(executable: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(executable: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);
    }
}

table! {
    /// cuBLAS.
    Cublas {
        cublasCreate_v2(handle: *mut cublasHandle_t);
        cublasSetStream_v2(handle: cublasHandle_t, stream: CUstream);
        cublasSetWorkspace_v2(handle: cublasHandle_t, workspace: CUdeviceptr, bytes: usize);
        cublasGemmStridedBatchedEx(handle: cublasHandle_t, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int,
            alpha: *const i32, a: CUdeviceptr, a_type: c_int, lda: c_int, a_stride: i64, b: CUdeviceptr,
            b_type: c_int, ldb: c_int, b_stride: i64, beta: *const i32, c: CUdeviceptr, c_type: c_int, ldc: c_int,
            c_stride: i64, count: c_int, compute: c_int, algorithm: c_int);
    }
}

/// Both libraries, the driver in two tables.
pub struct Libraries {
    pub driver: Driver,
    pub graphs: Option<Graphs>,
    pub cublas: Cublas,
}

/// An open library by name, already loaded (`only_loaded`) or loaded now; it stays open. None while the process ends.
fn open(file: &str, only_loaded: bool) -> Option<*mut c_void> {
    if process::ending() {
        return None;
    }
    let name = CString::new(file).ok()?;
    let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | if only_loaded { libc::RTLD_NOLOAD } else { 0 };
    // SAFETY: a valid name.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!handle.is_null()).then_some(handle)
}

/// Folders of Python packages that hold CUDA libraries, beside the packages that the program has loaded.
fn python_folders() -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    for file in objects::files() {
        let marks = ["/site-packages/", "/dist-packages/"];
        let Some((at, mark)) = marks.iter().find_map(|mark| file.find(mark).map(|at| (at, mark))) else {
            continue;
        };
        let packages = &file[..at + mark.len()];
        for folder in ["nvidia/cu13/lib", "nvidia/cublas/lib"] {
            let folder = format!("{packages}{folder}");
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// Opens the first of the names: what the program has loaded, then the user's folder, the system, Python packages.
fn first_of(names: &[&str], folders: &[String]) -> Option<*mut c_void> {
    let loaded = names.iter().find_map(|name| open(name, true));
    let users = options::current().cuda_path.as_deref();
    let in_folder = |folder: &str| names.iter().find_map(|name| open(&format!("{folder}/{name}"), false));
    loaded
        .or_else(|| users.and_then(in_folder))
        .or_else(|| names.iter().find_map(|name| open(name, false)))
        .or_else(|| folders.iter().find_map(|folder| in_folder(folder)))
}

impl Libraries {
    /// Finds and opens both; the error says what is missing. cuBLAS, which takes a sixth of a gigabyte, is opened only after a
    /// driver with a device has been found.
    pub fn find() -> Result<Self, String> {
        let handle = first_of(&["libcuda.so.1", "libcuda.so"], &[]).ok_or("no CUDA driver (libcuda.so.1)")?;
        let driver = Driver::load(handle).map_err(|name| format!("the CUDA driver lacks {name}"))?;
        let lacks = |name: &&'static str| tracing::debug!(name, "the CUDA driver has no graphs");
        let graphs = Graphs::load(handle).inspect_err(lacks).ok();
        let (mut count, mut version) = (0, 0);
        // SAFETY: each call writes the integer that it is given.
        let started = unsafe {
            driver
                .cuInit(0)
                .and_then(|()| driver.cuDriverGetVersion(&raw mut version))
                .and_then(|()| driver.cuDeviceGetCount(&raw mut count))
        };
        started.map_err(|fault| format!("the CUDA driver does not start ({fault:?})"))?;
        if count == 0 {
            return Err("no CUDA device".to_owned());
        }
        // cuBLAS 13 needs a driver of its own generation.
        let names: &[&str] =
            if version >= 13000 { &["libcublas.so.13", "libcublas.so.12"] } else { &["libcublas.so.12"] };
        let handle = first_of(names, &python_folders()).ok_or("no cuBLAS (libcublas.so.12 or .13)")?;
        let cublas = Cublas::load(handle).map_err(|name| format!("cuBLAS lacks {name}"))?;
        Ok(Self { driver, graphs, cublas })
    }

    pub fn device_count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        // SAFETY: the call writes the integer.
        unsafe { self.driver.cuDeviceGetCount(&raw mut count)? };
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The name of a device, for the log and `oz2run --doctor`.
    pub fn device_name(&self, device: c_int) -> String {
        let mut name = [0u8; 128];
        // SAFETY: the call writes at most the length that it is given.
        let done =
            unsafe { self.driver.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, device) };
        match (done, CStr::from_bytes_until_nul(&name)) {
            (Ok(()), Ok(name)) => name.to_string_lossy().into_owned(),
            _ => "unknown".to_owned(),
        }
    }
}

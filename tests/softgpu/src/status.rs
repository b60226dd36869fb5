//! Status numbers of the CUDA driver and of cuBLAS, and the driver's names for them.

use std::ffi::{CStr, c_int};

/// A status as CUDA returns it. Never an enum: callers hand us, and get, any number.
pub type Status = c_int;
/// What the inside of an entry point returns; the error is never 0.
pub type Outcome<T = ()> = Result<T, Status>;

pub const SUCCESS: Status = 0;

macro_rules! statuses {
    ($($name:ident = $value:literal, $full:literal, $text:literal;)*) => {
        $(pub const $name: Status = $value;)*
        /// Name and description of a status of the driver.
        pub fn describe(status: Status) -> Option<(&'static CStr, &'static CStr)> {
            match status {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($value => Some(($full, $text)),)*
                _ => None,
            }
        }
    };
}

statuses! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    DEINITIALIZED = 4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    NO_BINARY_FOR_GPU = 209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE = 214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        c"the provided PTX was compiled with an unsupported toolchain.";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered";
    OUT_OF_RESOURCES = 701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed";
    ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part or all of the requested memory range is already mapped";
    NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure";
    NOT_PERMITTED = 800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    DRIVER_MISMATCH = 803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system has unsupported display driver / cuda driver combination";
    INVALID_CLUSTER_SIZE = 912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"invalid cluster size";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"unknown error";
}

/// Statuses of cuBLAS.
pub mod blas {
    use super::Status;
    pub const NOT_INITIALIZED: Status = 1;
    pub const ALLOC_FAILED: Status = 3;
    pub const INVALID_VALUE: Status = 7;
    pub const EXECUTION_FAILED: Status = 13;
    pub const INTERNAL_ERROR: Status = 14;
    pub const NOT_SUPPORTED: Status = 15;
}

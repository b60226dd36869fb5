//! The entry points, with the names and the arguments that CUDA gives them. Handles are plain numbers here.

pub mod blas;
pub mod context;
pub mod control;
pub mod copy;
pub mod graph;
pub mod memory;
pub mod module;
pub mod stream;
pub mod tensor;

use crate::status::{INVALID_VALUE, Outcome};

/// Writes a result where the caller wants it.
///
/// # Safety
/// `target` is null or can be written.
unsafe fn put<T>(target: *mut T, value: T) -> Outcome {
    if target.is_null() {
        return Err(INVALID_VALUE);
    }
    target.write_unaligned(value);
    Ok(())
}

//! Tensor maps: what a kernel with TMA takes an array by. A real map is a secret of the driver; this one says what it was made of
//! (kernels/product_wgmma.cu, SoftMap).

use std::ffi::{c_int, c_uint};

use super::put;
use crate::state::enter;
use crate::status::{INVALID_VALUE, Status};

const UINT8: c_int = 0;
const SWIZZLE_128B: c_int = 3;
const WORDS: usize = 16;

/// Serves what the product kernels ask for: three dimensions of bytes, 128-byte swizzle, zeros outside. Everything else, and what the
/// CUDA driver API forbids, is an invalid value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; WORDS],
    data_type: c_int,
    rank: c_uint,
    address: u64,
    sizes: *const u64,
    strides: *const u64,
    boxes: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_int,
    swizzle: c_int,
    _l2_promotion: c_int,
    fill: c_int,
) -> Status {
    enter("cuTensorMapEncodeTiled", |_| {
        if data_type != UINT8 || rank != 3 || interleave != 0 || swizzle != SWIZZLE_128B || fill != 0 {
            return Err(INVALID_VALUE);
        }
        let (sizes, strides) = (std::slice::from_raw_parts(sizes, 3), std::slice::from_raw_parts(strides, 2));
        let (boxes, steps) =
            (std::slice::from_raw_parts(boxes, 3), std::slice::from_raw_parts(element_strides, 3));
        let allowed = !map.is_null()
            && (map as usize).is_multiple_of(64)
            && address.is_multiple_of(16)
            && sizes.iter().all(|&size| size > 0 && size <= 1 << 32)
            && strides.iter().all(|&stride| stride.is_multiple_of(16) && stride < 1 << 40)
            && boxes.iter().all(|&side| side > 0 && side <= 256)
            && boxes[0] <= 128
            && steps == [1, 1, 1];
        if !allowed {
            return Err(INVALID_VALUE);
        }
        let mut words = [0; WORDS];
        words[0] = address;
        words[1..4].copy_from_slice(sizes);
        words[4..6].copy_from_slice(strides);
        words[6..9].copy_from_slice(&[boxes[0].into(), boxes[1].into(), boxes[2].into()]);
        put(map, words)
    })
}

//! cuBLAS: handles, and the products of 8-bit integers and of doubles.

use std::ffi::{c_int, c_void};

use super::put;
use crate::ops::Op;
use crate::products::{Operand, Product, Scalar, Type};
use crate::state::{BlasError, State, enter_blas};
use crate::status::{Status, blas};

/// What cublasGetVersion says, and the parts of it that cublasGetProperty says.
const VERSION: c_int = 12_08_04;

pub struct Handle {
    pub device: usize,
    /// As the caller gave it.
    stream: usize,
    workspace: Option<(u64, usize)>,
    /// alpha and beta are pointers of the device.
    device_scalars: bool,
    math: c_int,
}

type Result<T = ()> = std::result::Result<T, BlasError>;

fn own<T>(status: Status) -> Result<T> {
    Err(BlasError::Own(status))
}

fn handle(state: &mut State, handle: usize) -> Result<&mut Handle> {
    state.blas.get_mut(&handle).ok_or(BlasError::Own(blas::NOT_INITIALIZED))
}

/// A handle whose device is the current one and not lost.
fn usable(state: &mut State, number: usize) -> Result<&mut Handle> {
    let owner = handle(state, number)?.device;
    let current = state.device()?;
    if current != owner {
        eprintln!("softgpu: a cuBLAS handle of device {owner} is used with device {current} current");
        return own(blas::EXECUTION_FAILED);
    }
    handle(state, number)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(out: *mut usize) -> Status {
    enter_blas("cublasCreate_v2", |state| {
        let device = state.device().or_else(|_| own(blas::NOT_INITIALIZED))?;
        let number = state.handle();
        put(out, number).or_else(|_| own(blas::INVALID_VALUE))?;
        let handle = Handle { device, stream: 0, workspace: None, device_scalars: false, math: 0 };
        state.blas.insert(number, handle);
        Ok(())
    })
}

/// Waits for the device, as cuBLAS does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(number: usize) -> Status {
    enter_blas("cublasDestroy_v2", |state| {
        let device = handle(state, number)?.device;
        state.finish_device(Some(device));
        state.blas.remove(&number);
        state.verdict(device)?;
        Ok(())
    })
}

/// Puts the workspace back to cuBLAS's own, as the real one does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetStream_v2(number: usize, stream: usize) -> Status {
    enter_blas("cublasSetStream_v2", |state| {
        let handle = handle(state, number)?;
        (handle.stream, handle.workspace) = (stream, None);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetStream_v2(number: usize, stream: *mut usize) -> Status {
    enter_blas("cublasGetStream_v2", |state| {
        let current = handle(state, number)?.stream;
        put(stream, current).or_else(|_| own(blas::INVALID_VALUE))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetWorkspace_v2(number: usize, address: u64, bytes: usize) -> Status {
    enter_blas("cublasSetWorkspace_v2", |state| {
        let device = usable(state, number)?.device;
        let known =
            bytes == 0 || state.memory.block(address).is_some_and(|(_, block)| block.device == device);
        if !address.is_multiple_of(256) || !known {
            return own(blas::INVALID_VALUE);
        }
        handle(state, number)?.workspace = (bytes > 0).then_some((address, bytes));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetMathMode(number: usize, mode: c_int) -> Status {
    enter_blas("cublasSetMathMode", |state| {
        handle(state, number)?.math = mode;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetMathMode(number: usize, mode: *mut c_int) -> Status {
    enter_blas("cublasGetMathMode", |state| {
        let math = handle(state, number)?.math;
        put(mode, math).or_else(|_| own(blas::INVALID_VALUE))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetPointerMode_v2(number: usize, mode: c_int) -> Status {
    enter_blas("cublasSetPointerMode_v2", |state| {
        let handle = handle(state, number)?;
        if !(0..=1).contains(&mode) {
            return own(blas::INVALID_VALUE);
        }
        handle.device_scalars = mode == 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(_number: usize, version: *mut c_int) -> Status {
    enter_blas("cublasGetVersion_v2", |_| put(version, VERSION).or_else(|_| own(blas::INVALID_VALUE)))
}

/// 0 the major version, 1 the minor, 2 the patch level. Needs no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(which: c_int, value: *mut c_int) -> Status {
    enter_blas("cublasGetProperty", |_| {
        let part = match which {
            0 => VERSION / 10000,
            1 => VERSION / 100 % 100,
            2 => VERSION % 100,
            _ => return own(blas::INVALID_VALUE),
        };
        put(value, part).or_else(|_| own(blas::INVALID_VALUE))
    })
}

/// The arguments of a product, as cuBLAS has them but with the wider integers.
struct Arguments {
    transpose: [c_int; 2],
    sizes: [i64; 3],
    alpha: *const c_void,
    beta: *const c_void,
    /// Address, type, leading dimension and stride of A, B and C.
    operands: [(u64, c_int, i64, i64); 3],
    batch: i64,
    compute: c_int,
}

/// cudaDataType_t: 8-bit integers, 32-bit integers, doubles.
const R_8I: c_int = 3;
const R_32I: c_int = 10;
const R_64F: c_int = 1;

unsafe fn product(state: &mut State, number: usize, arguments: &Arguments) -> Result {
    let Handle { device, stream, workspace, device_scalars, .. } = *usable(state, number)?;
    let [m, n, k] = arguments.sizes;
    let rows = |transposed: c_int, plain: i64, other: i64| if transposed == 0 { plain } else { other };
    let [ta, tb] = arguments.transpose;
    let least = [rows(ta, m, k), rows(tb, k, n), m];
    let dimensions = arguments.operands.iter().zip(least).all(|(operand, least)| operand.2 >= least.max(1));
    if m < 0 || n < 0 || k < 0 || arguments.batch < 0 || !dimensions {
        return own(blas::INVALID_VALUE);
    }
    if !(0..=2).contains(&ta)
        || !(0..=2).contains(&tb)
        || arguments.alpha.is_null()
        || arguments.beta.is_null()
    {
        return own(blas::INVALID_VALUE);
    }
    let types = arguments.operands.map(|operand| operand.1);
    let kind = match (types, arguments.compute) {
        ([R_8I, R_8I, R_32I], 72 | 73) => Type::Int8, // CUBLAS_COMPUTE_32I and its pedantic form
        ([R_64F, R_64F, R_64F], 70 | 71) => Type::Double,
        _ => return own(blas::NOT_SUPPORTED),
    };
    if kind == Type::Int8 {
        // "Only supported with A, B being 4-byte aligned and lda, ldb being multiples of 4" (cublasGemmEx).
        let aligned = |operand: &(u64, c_int, i64, i64)| {
            operand.0.is_multiple_of(4) && operand.2 % 4 == 0 && operand.3 % 4 == 0
        };
        if !arguments.operands[..2].iter().all(aligned) || !arguments.operands[2].0.is_multiple_of(4) {
            return own(blas::NOT_SUPPORTED);
        }
    }
    if m == 0 || n == 0 || arguments.batch == 0 {
        return Ok(());
    }
    let size = if kind == Type::Int8 { 4 } else { 8 };
    let scalar = |pointer: *const c_void| {
        if device_scalars {
            return Scalar::Device(pointer as u64);
        }
        let mut bytes = [0; 8];
        bytes.as_mut_ptr().copy_from(pointer.cast(), size);
        Scalar::Host(bytes)
    };
    let [a, b, c] =
        arguments.operands.map(|(address, _, ld, stride)| Operand { address, ld: ld as usize, stride });
    let product = Product {
        kind,
        transposed: [ta != 0, tb != 0],
        m: m as usize,
        n: n as usize,
        k: k as usize,
        alpha: scalar(arguments.alpha),
        beta: scalar(arguments.beta),
        a,
        b,
        c,
        batch: arguments.batch as usize,
        workspace,
    };
    let key = state.stream(stream)?;
    if state.streams.get(key)?.device != device {
        return own(blas::EXECUTION_FAILED);
    }
    state.push(key, Op::Product(Box::new(product)));
    Ok(())
}

/// The 32-bit and the 64-bit form of each product.
macro_rules! products {
    ($($int:ty: $ex:ident, $strided:ident, $double:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ex(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, alpha: *const c_void,
            a: u64, a_type: c_int, lda: $int, b: u64, b_type: c_int, ldb: $int, beta: *const c_void,
            c: u64, c_type: c_int, ldc: $int, compute: c_int, _algorithm: c_int,
        ) -> Status {
            let operands = [(a, a_type, lda.into(), 0), (b, b_type, ldb.into(), 0), (c, c_type, ldc.into(), 0)];
            let (transpose, sizes) = ([transa, transb], [m.into(), n.into(), k.into()]);
            let arguments = Arguments { transpose, sizes, alpha, beta, operands, batch: 1, compute };
            enter_blas(stringify!($ex), |state| product(state, handle, &arguments))
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $strided(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, alpha: *const c_void,
            a: u64, a_type: c_int, lda: $int, stride_a: i64, b: u64, b_type: c_int, ldb: $int, stride_b: i64,
            beta: *const c_void, c: u64, c_type: c_int, ldc: $int, stride_c: i64, batch: $int, compute: c_int,
            _algorithm: c_int,
        ) -> Status {
            let operands = [
                (a, a_type, lda.into(), stride_a), (b, b_type, ldb.into(), stride_b), (c, c_type, ldc.into(), stride_c),
            ];
            let (transpose, sizes) = ([transa, transb], [m.into(), n.into(), k.into()]);
            let arguments = Arguments { transpose, sizes, alpha, beta, operands, batch: batch.into(), compute };
            enter_blas(stringify!($strided), |state| product(state, handle, &arguments))
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $double(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, alpha: *const f64,
            a: u64, lda: $int, b: u64, ldb: $int, beta: *const f64, c: u64, ldc: $int,
        ) -> Status {
            let operands = [(a, R_64F, lda.into(), 0), (b, R_64F, ldb.into(), 0), (c, R_64F, ldc.into(), 0)];
            let (transpose, sizes) = ([transa, transb], [m.into(), n.into(), k.into()]);
            let (alpha, beta) = (alpha.cast(), beta.cast());
            let arguments = Arguments { transpose, sizes, alpha, beta, operands, batch: 1, compute: 70 };
            enter_blas(stringify!($double), |state| product(state, handle, &arguments))
        }
    )*};
}

products! {
    c_int: cublasGemmEx, cublasGemmStridedBatchedEx, cublasDgemm_v2;
    i64: cublasGemmEx_64, cublasGemmStridedBatchedEx_64, cublasDgemm_v2_64;
}

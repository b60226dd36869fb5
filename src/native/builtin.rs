//! The embedded BLAS, for programs that have no other: DGEMM and the error handlers of the documented interface.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::{CblasXerbla, Xerbla};
use super::find;
use crate::engine::cpu::{team, threads};
use crate::gemm::{Gemm, Rectangle};
use crate::options;

/// What stands for this BLAS where others have the name of a file.
pub const NAME: &str = "builtin";

/// Below this m n k a second thread costs more than it brings.
const WORTH_A_TEAM: u64 = 320 * 320 * 320;

/// The call with the threads that the options allow.
///
/// # Safety
///
/// As for [`gemm`].
pub unsafe fn gemm_for_caller(call: &Gemm) {
    let allowed = || {
        if threads::in_parallel_region() {
            1
        } else {
            options::current().threads.unwrap_or_else(threads::automatic)
        }
    };
    let threads = if call.multiplications() < WORTH_A_TEAM { 1 } else { allowed() };
    // SAFETY: by the contract of this function.
    unsafe { gemm(call, threads) }
}

/// C = alpha op(A) op(B) + beta C for alpha != 0, in the floating-point environment of the caller.
///
/// # Safety
///
/// The matrices are as a BLAS demands them.
pub unsafe fn gemm(call: &Gemm, threads: usize) {
    // Parts along the longer side of C, at multiples of 8 for the sake of the kernels.
    let split_columns = call.n >= call.m;
    let length = if split_columns { call.n } else { call.m };
    let step = length.div_ceil(threads.max(1)).next_multiple_of(8);
    let part = |number: usize| {
        let first = number * step;
        let count = step.min(length - first);
        if split_columns {
            Rectangle { i: 0, j: first, rows: call.m, columns: count }
        } else {
            Rectangle { i: first, j: 0, rows: count, columns: call.n }
        }
    };
    let written: [AtomicBool; MOST_PARTS] = [const { AtomicBool::new(false) }; MOST_PARTS];
    let parts = length.div_ceil(step);
    let one = |number: usize| {
        // SAFETY: the parts are disjoint.
        unsafe { one_thread(&call.part(part(number))) };
        written[number].store(true, Ordering::Release);
    };
    if parts > MOST_PARTS {
        // SAFETY: by the contract of this function.
        return unsafe { gemm(call, MOST_PARTS) };
    }
    // A panic in a kernel comes before it writes (it checks its table of caches): the plain loop does what is missing.
    if team::run(threads, parts, &one).is_err() {
        for number in (0..parts).filter(|&number| !written[number].load(Ordering::Acquire)) {
            // SAFETY: as above.
            unsafe { plain(&call.part(part(number))) };
        }
    }
}

/// More threads than this do not help the builtin.
const MOST_PARTS: usize = 64;

/// Columns of C for which the kernels pack at a time: what they need of memory grows with this.
const PANEL_COLUMNS: usize = 2048;
/// Bytes that the kernels allocate for that many columns, with room to spare. They abort where they get none, so we ask first.
const PANEL_BYTES: usize = 16 << 20;

/// # Safety
///
/// As for [`gemm`].
unsafe fn one_thread(call: &Gemm) {
    let aligned = [call.a.pointer().addr(), call.b.pointer().addr(), call.c.pointer().addr()]
        .iter()
        .all(|address| address.is_multiple_of(align_of::<f64>()));
    if !aligned || !caches_are_known() || !memory_is_there() {
        // SAFETY: by the contract of this function.
        return unsafe { plain(call) };
    }
    for j in (0..call.n).step_by(PANEL_COLUMNS) {
        let columns = PANEL_COLUMNS.min(call.n - j);
        // SAFETY: by the contract of this function; the addresses are aligned.
        unsafe { kernels(&call.part(Rectangle { i: 0, j, rows: call.m, columns })) };
    }
}

/// The kernels block by the sizes of the caches, which some virtual machines hide.
fn caches_are_known() -> bool {
    gemm_common::cache::CACHE_INFO.iter().all(|cache| cache.cache_bytes != 0)
}

fn memory_is_there() -> bool {
    let mut room = Vec::<u8>::new();
    let there = room.try_reserve_exact(PANEL_BYTES).is_ok();
    // An allocation that nobody looks at may be left out by the compiler, and then it never fails.
    std::hint::black_box(&room);
    there
}

/// One panel by the kernels of the crate `gemm` for this CPU.
///
/// # Safety
///
/// As for [`gemm`], and the addresses are aligned.
unsafe fn kernels(call: &Gemm) {
    let (a, b, c) = (&call.a, &call.b, &call.c);
    macro_rules! with {
        ($simd:expr, $lanes:literal, $kernel:ident) => {
            gemm_common::gemm::gemm_basic_generic::<
                _,
                f64,
                $lanes,
                { $kernel::f64::MR_DIV_N * $lanes },
                { $kernel::f64::NR },
                { $kernel::f64::MR_DIV_N },
                { $kernel::f64::H_M },
                { $kernel::f64::H_N },
            >(
                $simd,
                call.m,
                call.n,
                call.k,
                c.pointer(),
                c.ld as isize,
                1,
                call.beta != 0.0, // C is not read for beta = 0
                a.pointer(),
                a.element_stride as isize,
                a.line_stride as isize,
                b.pointer(),
                b.line_stride as isize,
                b.element_stride as isize,
                call.beta, // the crate's alpha is the factor of C
                call.alpha,
                false,
                false,
                false,
                |a, b, c| a * b + c,
                &$kernel::f64::UKR,
                &$kernel::f64::H_UKR,
                false,
                gemm_common::Parallelism::None,
            )
        };
    }
    // SAFETY: by the contract of this function.
    unsafe {
        use gemm_f64::microkernel::scalar;
        #[cfg(target_arch = "x86_64")]
        {
            use gemm_common::simd::{MixedSimd, V3, V4};
            use gemm_f64::microkernel::{avx512f, fma};
            // Our own detection first: it also asks whether the system saves the registers.
            if is_x86_feature_detected!("avx512f")
                && let Some(simd) = <V4 as MixedSimd<f64, f64, f64, f64>>::try_new()
            {
                return with!(simd, 8, avx512f);
            }
            if is_x86_feature_detected!("fma")
                && let Some(simd) = <V3 as MixedSimd<f64, f64, f64, f64>>::try_new()
            {
                return with!(simd, 4, fma);
            }
        }
        with!(gemm_common::simd::Scalar, 1, scalar);
    }
}

/// The definition, without memory or alignment.
///
/// # Safety
///
/// As for [`gemm`].
unsafe fn plain(call: &Gemm) {
    let (a, b, c) = (&call.a, &call.b, &call.c);
    for j in 0..call.n {
        for i in 0..call.m {
            // SAFETY: elements of the matrices.
            unsafe {
                let mut sum = 0.0;
                for h in 0..call.k {
                    let x = a.pointer().add(i * a.line_stride + h * a.element_stride).read_unaligned();
                    let y = b.pointer().add(j * b.line_stride + h * b.element_stride).read_unaligned();
                    sum += x * y;
                }
                let entry = c.pointer().add(i + j * c.ld);
                let product = call.alpha * sum;
                let value =
                    if call.beta == 0.0 { product } else { product + call.beta * entry.read_unaligned() };
                entry.write_unaligned(value);
            }
        }
    }
}

/// Calls the program's xerbla_ (the first of `names` that exists) with the routine (six letters, blanks at the end) and the
/// place of the illegal argument, and returns if that returns; without one, one line goes to stderr.
///
/// # Safety
///
/// A function of one of these names, if there is any, is an error handler of the BLAS.
pub unsafe fn xerbla(routine: &CStr, names: &[&CStr], wide: bool, place: i32) {
    let Some(address) = handler(names, place) else { return complain(&routine.to_string_lossy(), place) };
    let (narrow_place, wide_place) = (place, i64::from(place));
    let info: *const c_void =
        if wide { (&raw const wide_place).cast() } else { (&raw const narrow_place).cast() };
    // SAFETY: by the contract of this function.
    unsafe {
        let function = std::mem::transmute::<NonNull<c_void>, Xerbla>(address);
        function(routine.as_ptr(), info, routine.count_bytes());
    }
}

/// The same for the CBLAS. `place` is that of the argument. `handed` is what the reference CBLAS hands to the handler: for a
/// row-major call it has not yet been turned back, which handlers made for it do if the variable RowMajorStrg says so. A handler
/// whose object does not have that variable cannot do so, and gets the place.
///
/// # Safety
///
/// As for [`xerbla`]; a variable RowMajorStrg, if there is any, is that of the CBLAS.
pub unsafe fn cblas_xerbla(routine: &CStr, names: &[&CStr], place: i32, handed: i32) {
    let Some(address) = handler(names, place) else { return complain(&routine.to_string_lossy(), place) };
    let of_handler = |variable: &NonNull<c_void>| find::provider(*variable) == find::provider(address);
    let row_major = if handed == place { None } else { find::overridable(&[c"RowMajorStrg"]) };
    let row_major = row_major.filter(of_handler).map(NonNull::cast::<c_int>);
    let handed = if row_major.is_some() { handed } else { place };
    let form: *const c_char = c"".as_ptr();
    // SAFETY: by the contract of this function.
    unsafe {
        let before = row_major.map(|variable| variable.replace(1));
        let function = std::mem::transmute::<NonNull<c_void>, CblasXerbla>(address);
        function(handed as c_int, routine.as_ptr(), form);
        if let (Some(variable), Some(before)) = (row_major, before) {
            variable.write(before);
        }
    }
}

/// The program's error handler. Place 0 (legal sizes that no memory can hold) has no number that it would understand.
fn handler(names: &[&CStr], place: i32) -> Option<NonNull<c_void>> {
    if place == 0 { None } else { find::overridable(names) }
}

/// What the reference xerbla says, without its end of the program.
pub(super) fn complain(routine: &str, place: i32) {
    use std::io::Write;
    let routine = routine.trim_end();
    let line = if place == 0 {
        format!(" ** On entry to {routine} the matrices are larger than the address space\n")
    } else {
        format!(" ** On entry to {routine} parameter number {place} had an illegal value\n")
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
}

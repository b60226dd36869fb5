//! Reading lines of A and B, and reading and writing columns of C: with the reconstruction of the kernels the only place of the
//! CPU engines that touches the caller's memory. No address needs alignment, and nothing outside the matrices is read or written.

use super::kernels::{Buffer, DEPTH, Order, PANEL};
use crate::gemm::{Lines, MatMut};

/// Runs of a strided matrix from the one in use to the one to prefetch: as far as the memory is slow.
pub const AHEAD: usize = 24;

/// A hint that what is there will be read soon; any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Fills a buffer with elements first.., `count` of them (at most DEPTH), of the lines line.., `lines` of them (at most PANEL),
/// and with zeros around them.
///
/// # Safety
///
/// The elements lie inside the matrix and can be read.
#[inline(always)]
pub unsafe fn gather(
    from: &Lines,
    (line, lines): (usize, usize),
    (first, count): (usize, usize),
    out: &mut Buffer,
) {
    debug_assert!(line + lines <= from.count && first + count <= from.length);
    debug_assert!(lines <= PANEL && count <= DEPTH);
    if lines < PANEL || count < DEPTH {
        out.values.fill(0.0);
    }
    let start = from.pointer().wrapping_add(line * from.line_stride + first * from.element_stride);
    let contiguous = if from.element_stride == 1 { Order::LineMajor } else { Order::ElementMajor };
    // The matrix in memory: `runs` runs of `length` elements.
    let (runs, length, stride, width) = match contiguous {
        Order::LineMajor => (lines, count, from.line_stride, DEPTH),
        Order::ElementMajor => (count, lines, from.element_stride, PANEL),
    };
    if out.order == contiguous {
        for (run, to) in out.values.chunks_exact_mut(width).take(runs).enumerate() {
            // SAFETY: a run lies inside the matrix; bytes have no alignment.
            unsafe {
                let run = start.wrapping_add(run * stride).cast::<u8>();
                std::ptr::copy_nonoverlapping(run, to.as_mut_ptr().cast(), length * size_of::<f64>());
            }
        }
        return;
    }
    // Eight runs at a time are turned by 90 degrees: one cache line of each.
    const BLOCK: usize = 8;
    let other = PANEL * DEPTH / width;
    for run in (0..runs).step_by(BLOCK) {
        for r in run..run + BLOCK {
            for line in 0..length.div_ceil(BLOCK) {
                prefetch(start.wrapping_add((r + AHEAD).wrapping_mul(stride) + BLOCK * line));
            }
        }
        for at in (0..length).step_by(BLOCK) {
            let (height, reach) = (BLOCK.min(runs - run), BLOCK.min(length - at));
            let mut block = [[0.0; BLOCK]; BLOCK];
            for (r, row) in block[..height].iter_mut().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let from = start.wrapping_add((run + r) * stride + at).cast::<u8>();
                    if reach == BLOCK {
                        std::ptr::copy_nonoverlapping(from, row.as_mut_ptr().cast(), size_of_val(row));
                    } else {
                        std::ptr::copy_nonoverlapping(
                            from,
                            row.as_mut_ptr().cast(),
                            reach * size_of::<f64>(),
                        );
                    }
                }
            }
            for h in 0..reach {
                let to = &mut out.values[(at + h) * other + run..][..BLOCK];
                for (r, to) in to.iter_mut().enumerate() {
                    *to = block[r][h];
                }
            }
        }
    }
}

/// Copies rows i.. of column j of C to `out`.
///
/// # Safety
///
/// The entries lie inside C and can be read.
pub unsafe fn read_column(c: &MatMut, i: usize, j: usize, out: &mut [f64]) {
    debug_assert!(i + out.len() <= c.rows && j < c.columns);
    for (r, x) in out.iter_mut().enumerate() {
        // SAFETY: by the contract of this function.
        *x = unsafe { c.pointer().add(i + r + j * c.ld).read_unaligned() };
    }
}

/// Copies `values` to rows i.. of column j of C.
///
/// # Safety
///
/// The entries lie inside C and can be written, and no other thread uses them.
pub unsafe fn write_column(c: &MatMut, i: usize, j: usize, values: &[f64]) {
    debug_assert!(i + values.len() <= c.rows && j < c.columns);
    for (r, &x) in values.iter().enumerate() {
        // SAFETY: by the contract of this function.
        unsafe { c.pointer().add(i + r + j * c.ld).write_unaligned(x) };
    }
}

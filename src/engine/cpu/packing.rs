//! Reading lines of A and B, and reading and writing columns of C: the only place of the CPU engines that touches the
//! caller's memory. No address needs alignment, and nothing outside the matrices is read or written.

use crate::gemm::{Lines, MatMut};

/// Lines that are gathered together, so that strided lines are read in runs of a cache line.
pub const GROUP: usize = 8;
/// Elements of a line that are gathered at a time; with GROUP lines 8 KB, small enough for the stack of any thread.
pub const RUN: usize = 128;

/// Room for a group of lines.
pub type Gathered = [[f64; RUN]; GROUP];

/// Copies elements first.., `count` of them (at most RUN), of the lines line.. (at most GROUP) to `out`.
///
/// # Safety
///
/// The elements lie inside the matrix and can be read.
pub unsafe fn gather(
    from: &Lines,
    line: usize,
    lines: usize,
    first: usize,
    count: usize,
    out: &mut Gathered,
) {
    debug_assert!(line + lines <= from.count && first + count <= from.length);
    // SAFETY: inside the matrix by the contract of this function; read_unaligned asks for no alignment.
    let read = |l: usize, h: usize| unsafe {
        from.pointer().add((line + l) * from.line_stride + (first + h) * from.element_stride).read_unaligned()
    };
    if from.element_stride == 1 {
        for (l, row) in out[..lines].iter_mut().enumerate() {
            for (h, x) in row[..count].iter_mut().enumerate() {
                *x = read(l, h);
            }
        }
    } else {
        for h in 0..count {
            for (l, row) in out[..lines].iter_mut().enumerate() {
                row[h] = read(l, h);
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

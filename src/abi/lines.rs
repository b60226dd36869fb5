//! The rows and columns of C that an engine leaves to the native BLAS: first rows over all columns, then columns over the other
//! rows, so that no entry gets beta C twice.
//!
//! They are gathered, so that the native BLAS goes through the other operand once for many of them; where there is no memory for
//! that, it gets them one at a time in place. Only moves numbers, so it may run in any floating-point environment.

use crate::gemm::{Gemm, Lines, MatMut, Rectangle};
use crate::ozaki::plan::Out;

/// Elements that are gathered at a time, at most (but one line at least).
const ELEMENTS: usize = 4 << 20;

/// # Safety
///
/// The matrices of the call are as a BLAS demands them.
pub(super) unsafe fn compute(call: &Gemm, out: &Out, native: &mut dyn FnMut(&Gemm)) {
    let at_once = |other: usize| (ELEMENTS / (call.k + other)).max(1);
    for rows in out.rows.chunks(at_once(call.n)) {
        // SAFETY: by the contract of this function, here and below.
        if unsafe { gathered_rows(call, rows, native) }.is_none() {
            for &i in rows {
                native(&call.part(Rectangle { i, j: 0, rows: 1, columns: call.n }));
            }
        }
    }
    for columns in out.columns.chunks(at_once(call.m)) {
        if unsafe { gathered_columns(call, columns, &out.rows, native) }.is_none() {
            for &j in columns {
                let column = Rectangle { i: 0, j, rows: call.m, columns: 1 };
                column.without(&out.rows, &[]).iter().for_each(|part| native(&call.part(*part)));
            }
        }
    }
}

/// None where there is no memory.
unsafe fn gathered_rows(call: &Gemm, rows: &[usize], native: &mut dyn FnMut(&Gemm)) -> Option<()> {
    let (r, n) = (rows.len(), call.n);
    // SAFETY: elements of A, here and below of the matrices of the call.
    let lines = unsafe { gather(&call.a, rows)? };
    let mut c = zeros(r.checked_mul(n)?)?;
    let at = |i: usize, j: usize| call.c.pointer().wrapping_add(i + j * call.c.ld);
    if call.beta.to_bits() << 1 != 0 {
        for (j, column) in c.chunks_exact_mut(r).enumerate() {
            for (c, &i) in column.iter_mut().zip(rows) {
                *c = unsafe { at(i, j).read_unaligned() };
            }
        }
    }
    let (a, to) = (Lines::dense(lines.as_ptr(), r, call.k), MatMut::own(c.as_mut_ptr(), r, n, r));
    native(&Gemm { m: r, a, c: to, ..*call });
    for (j, column) in c.chunks_exact(r).enumerate() {
        for (&c, &i) in column.iter().zip(rows) {
            unsafe { at(i, j).write_unaligned(c) };
        }
    }
    Some(())
}

/// All but the entries of `done`, which are complete. None where there is no memory.
unsafe fn gathered_columns(
    call: &Gemm,
    columns: &[usize],
    done: &[usize],
    native: &mut dyn FnMut(&Gemm),
) -> Option<()> {
    let (s, m) = (columns.len(), call.m);
    // SAFETY: elements of B, here and below of the matrices of the call.
    let lines = unsafe { gather(&call.b, columns)? };
    let mut c = zeros(s.checked_mul(m)?)?;
    let at = |i: usize, j: usize| call.c.pointer().wrapping_add(i + j * call.c.ld);
    if call.beta.to_bits() << 1 != 0 {
        for (column, &j) in c.chunks_exact_mut(m).zip(columns) {
            for (i, c) in column.iter_mut().enumerate() {
                *c = unsafe { at(i, j).read_unaligned() };
            }
        }
    }
    let (b, to) = (Lines::dense(lines.as_ptr(), s, call.k), MatMut::own(c.as_mut_ptr(), m, s, m));
    native(&Gemm { n: s, b, c: to, ..*call });
    for (column, &j) in c.chunks_exact(m).zip(columns) {
        let mut done = done.iter().copied().peekable();
        for (i, &c) in column.iter().enumerate() {
            if done.next_if_eq(&i).is_none() {
                unsafe { at(i, j).write_unaligned(c) };
            }
        }
    }
    Some(())
}

/// Some lines of an operand, one after the other.
///
/// # Safety
///
/// They can be read.
unsafe fn gather(from: &Lines, lines: &[usize]) -> Option<Vec<f64>> {
    let mut out = zeros(lines.len().checked_mul(from.length)?)?;
    for (to, &line) in out.chunks_exact_mut(from.length).zip(lines) {
        for (h, to) in to.iter_mut().enumerate() {
            let at = from.pointer().wrapping_add(line * from.line_stride + h * from.element_stride);
            // SAFETY: by the contract of this function.
            *to = unsafe { at.read_unaligned() };
        }
    }
    Some(out)
}

pub(super) fn zeros(count: usize) -> Option<Vec<f64>> {
    let mut out = Vec::new();
    #[cfg(test)]
    if crate::engine::cpu::workspace::faults::fails_now() {
        return None;
    }
    out.try_reserve_exact(count).ok()?;
    out.resize(count, 0.0);
    Some(out)
}

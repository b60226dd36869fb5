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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::cpu::workspace::faults;
    use crate::gemm::{Sizes, Transpose};
    use crate::native::builtin;

    const M: usize = 13;
    const N: usize = 11;
    const K: usize = 7;

    /// C after the lines `out` of a call with beta, and the calls that were made for them; memory fails from the n-th time on.
    fn computed(out: &Out, beta: f64, transposed: bool, fails: Option<usize>) -> (Vec<f64>, usize) {
        let a: Vec<f64> = (0..M * K).map(|at| (at * at % 17) as f64 - 8.0).collect();
        let b: Vec<f64> = (0..K * N).map(|at| (at * at % 13) as f64 - 6.0).collect();
        let mut c: Vec<f64> = (0..M * N).map(|at| at as f64).collect();
        let (t, lda, ldb) = if transposed { (Transpose::Yes, K, N) } else { (Transpose::No, M, K) };
        let sizes = Sizes { m: M, n: N, k: K, lda, ldb, ldc: M };
        let call = Gemm::new((t, t), sizes, (2.0, beta), a.as_ptr(), b.as_ptr(), c.as_mut_ptr()).unwrap();
        let mut calls = 0;
        faults::plan(fails, true);
        // SAFETY: the matrices are as large as the call says.
        unsafe {
            compute(&call, out, &mut |part| {
                calls += 1;
                builtin::gemm(part, 1);
            });
        }
        faults::plan(None, false);
        (c, calls)
    }

    #[test]
    fn each_entry_of_the_lines_is_computed_once_and_no_other() {
        let all = |count: usize| Out { rows: (0..count).collect(), ..Out::default() };
        for (beta, transposed) in [(0.0, false), (3.0, false), (3.0, true)] {
            let (whole, _) = computed(&all(M), beta, transposed, None);
            for (rows, columns) in [(vec![0, 5, 12], vec![]), (vec![], vec![0, 10]), (vec![3, 4], vec![2, 9])]
            {
                let out = Out { rows, columns, not_finite: 0 };
                // With memory for all, for the rows alone, and for nothing.
                for (fails, at_once) in [(None, true), (Some(2), false), (Some(0), false)] {
                    let (c, calls) = computed(&out, beta, transposed, fails);
                    for (at, &c) in c.iter().enumerate() {
                        let is_out = out.rows.contains(&(at % M)) || out.columns.contains(&(at / M));
                        assert_eq!(c, if is_out { whole[at] } else { at as f64 }, "entry {at}");
                    }
                    let groups = usize::from(!out.rows.is_empty()) + usize::from(!out.columns.is_empty());
                    assert!(!at_once || calls == groups);
                }
            }
        }
    }
}

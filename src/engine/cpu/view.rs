//! How the lines of a call are looked at: some count as zeros because the native BLAS computes them, and the inner dimension may be
//! balanced (NUMERICS section 3, steps 5c, 5d and 6).

use std::sync::atomic::{AtomicU32, Ordering};

use super::kernels::{DEPTH, PANEL, Side};
use super::workspace::empty;
use crate::gemm::Gemm;
use crate::ozaki::plan::Out;
use crate::route::Reason;

/// Powers of two for the elements of both operands: element h of line l is multiplied by 2^(lines[l] + inner[h]).
#[derive(Debug)]
pub struct Balance {
    /// -e of each line, so that its elements stay within the range of doubles whatever `inner` is.
    lines: [Vec<i32>; 2],
    /// d_h for the rows of op(A), -d_h for the columns of op(B).
    inner: [Vec<i32>; 2],
}

impl Balance {
    /// From the exponents of the lines and d_h.
    pub fn new(exponents: [&[i32]; 2], d: Vec<i32>) -> Result<Self, Reason> {
        let negative = |values: &[i32]| -> Result<Vec<i32>, Reason> {
            let mut out = empty(values.len())?;
            out.extend(values.iter().map(|x| -x));
            Ok(out)
        };
        let lines = [negative(exponents[0])?, negative(exponents[1])?];
        let opposite = negative(&d)?;
        Ok(Self { lines, inner: [d, opposite] })
    }
}

/// A way to look at the lines of a call.
#[derive(Debug)]
pub struct View {
    /// Bit l of word p: line 32 p + l counts as zeros.
    out: [Vec<AtomicU32>; 2],
    balance: Option<Balance>,
}

/// The side of an operand.
#[derive(Clone, Copy)]
pub struct SideView<'a> {
    out: &'a [AtomicU32],
    /// The powers of the lines and of the inner dimension.
    pub balance: Option<(&'a [i32], &'a [i32])>,
}

// A word of bits for each panel.
const _: () = assert!(PANEL == u32::BITS as usize);

impl View {
    /// All lines as they are.
    pub fn new(call: &Gemm) -> Result<Self, Reason> {
        let none = |lines: usize| -> Result<Vec<AtomicU32>, Reason> {
            let mut out = empty(lines.div_ceil(PANEL))?;
            out.resize_with(lines.div_ceil(PANEL), || AtomicU32::new(0));
            Ok(out)
        };
        Ok(Self { out: [none(call.m)?, none(call.n)?], balance: None })
    }

    /// Bytes for each line, at most.
    pub const BYTES: usize = 2 * size_of::<i32>();

    /// The same lines out, with another balance.
    pub fn balanced(&self, balance: Option<Balance>) -> Result<Self, Reason> {
        let copy = |words: &Vec<AtomicU32>| -> Result<Vec<AtomicU32>, Reason> {
            let mut out = empty(words.len())?;
            out.extend(words.iter().map(|word| AtomicU32::new(word.load(Ordering::Relaxed))));
            Ok(out)
        };
        Ok(Self { out: [copy(&self.out[0])?, copy(&self.out[1])?], balance })
    }

    pub fn side(&self, side: Side) -> SideView<'_> {
        let number = side as usize;
        let balance = self.balance.as_ref();
        SideView {
            out: &self.out[number],
            balance: balance.map(|b| (&b.lines[number][..], &b.inner[number][..])),
        }
    }

    /// d_h; None where nothing is balanced.
    pub fn inner(&self) -> Option<&[i32]> {
        self.balance.as_ref().map(|balance| &balance.inner[0][..])
    }

    /// Lines of a panel count as zeros from now on.
    pub fn take_out(&self, side: Side, panel: usize, bits: u32) {
        self.out[side as usize][panel].fetch_or(bits, Ordering::Relaxed);
    }

    /// A line counts as zeros from now on.
    pub fn take_line_out(&self, side: Side, line: usize) {
        self.take_out(side, line / PANEL, 1 << (line % PANEL));
    }

    /// Lines that are out.
    pub fn count_out(&self) -> usize {
        self.out.iter().flatten().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// The numbers of the lines that are out.
    pub fn lines_out(&self, side: Side) -> Result<Vec<usize>, Reason> {
        let words = &self.out[side as usize];
        let count = words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum();
        let mut out = empty(count)?;
        for (p, word) in words.iter().enumerate() {
            let bits = word.load(Ordering::Relaxed);
            out.extend((0..PANEL).filter(|l| bits >> l & 1 == 1).map(|l| p * PANEL + l));
        }
        Ok(out)
    }

    /// The lines that are out, all of them because they are not finite.
    pub fn not_finite(&self) -> Result<Out, Reason> {
        let (rows, columns) = (self.lines_out(Side::Rows)?, self.lines_out(Side::Columns)?);
        let not_finite = rows.len() + columns.len();
        Ok(Out { rows, columns, not_finite })
    }
}

impl SideView<'_> {
    /// The lines of a panel of the operand that are out.
    pub fn out(&self, panel: usize) -> u32 {
        self.out[panel].load(Ordering::Relaxed)
    }

    /// What [`super::kernels::Change::scale`] wants for lines line.. and elements first..
    pub fn scale(&self, line: usize, first: usize) -> Option<([i32; PANEL], [i32; DEPTH])> {
        self.balance.map(|(lines, inner)| (cut(lines, line), cut(inner, first)))
    }

    /// What the kernels multiply line l by, if it is 2^s by the plan.
    pub fn shift(&self, l: usize, s: i32) -> i32 {
        self.balance.map_or(s, |(lines, _)| s - lines[l])
    }
}

/// The values from `first` on, and zeros behind the last.
fn cut<const N: usize>(values: &[i32], first: usize) -> [i32; N] {
    let mut out = [0; N];
    for (out, &x) in out.iter_mut().zip(&values[first..]) {
        *out = x;
    }
    out
}

//! What is made of a buffer of elements before the ordinary steps see them: lines taken out, an inner dimension that is balanced. One
//! source, which each table compiles for its CPU.

use super::{Buffer, Chunk, DEPTH, Order, PANEL};
use crate::ozaki::balance::{self, EMPTY};

/// A change of a buffer; in the order of its members.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Lines that are zeros from now on: bit l is line l.
    pub out: u32,
    /// Element h of line l is multiplied by 2^(.0[l] + .1[h]), see [`balance::scaled`].
    pub scale: Option<(&'a [i32; PANEL], &'a [i32; DEPTH])>,
}

impl Change<'_> {
    pub fn is_none(&self) -> bool {
        self.out == 0 && self.scale.is_none()
    }
}

#[inline(always)]
fn for_each(buffer: &mut Buffer, f: impl Fn(usize, usize, f64) -> f64) {
    match buffer.order {
        Order::LineMajor => {
            for (l, line) in buffer.values.chunks_exact_mut(DEPTH).enumerate() {
                line.iter_mut().enumerate().for_each(|(h, x)| *x = f(l, h, *x));
            }
        }
        Order::ElementMajor => {
            for (h, elements) in buffer.values.chunks_exact_mut(PANEL).enumerate() {
                elements.iter_mut().enumerate().for_each(|(l, x)| *x = f(l, h, *x));
            }
        }
    }
}

#[inline(always)]
pub fn change(buffer: &mut Buffer, change: &Change) {
    if change.out != 0 {
        for_each(buffer, |l, _, x| if change.out >> l & 1 == 1 { 0.0 } else { x });
    }
    if let Some((lines, inner)) = change.scale {
        for_each(buffer, |l, h, x| balance::scaled(x, lines[l] + inner[h]));
    }
}

/// For every element of a chunk what [`balance::Inner`] has of all lines of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerOfPanel {
    pub most: [i32; DEPTH],
    pub sum: [i32; DEPTH],
    pub count: [i32; DEPTH],
}

impl InnerOfPanel {
    pub const NONE: Self = Self { most: [EMPTY; DEPTH], sum: [0; DEPTH], count: [0; DEPTH] };
}

/// Adds the exponents of the elements of a chunk, relative to the exponents of their lines.
///
/// # Safety
///
/// The chunk can be read.
#[inline(always)]
pub unsafe fn add_inner(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut InnerOfPanel) {
    let InnerOfPanel { most, sum, count } = out;
    let mut add = |l: usize, h: usize| {
        // SAFETY: by the contract of this function; nothing need be aligned.
        let exponent = balance::exponent(unsafe { chunk.at(l, h).read_unaligned() });
        let live = exponent != EMPTY;
        let relative = if live { exponent - exponents[l] } else { 0 };
        most[h] = most[h].max(if live { relative } else { EMPTY });
        sum[h] += relative;
        count[h] += i32::from(live);
    };
    match chunk.order {
        Order::LineMajor => (0..PANEL).for_each(|l| (0..DEPTH).for_each(|h| add(l, h))),
        Order::ElementMajor => (0..DEPTH).for_each(|h| (0..PANEL).for_each(|l| add(l, h))),
    }
}

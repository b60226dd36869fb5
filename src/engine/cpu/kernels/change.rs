//! What is made of a buffer of elements before the ordinary steps see them: lines taken out, an inner dimension that is balanced, other
//! digits than the first. One source, which each table compiles for its CPU.

use super::{Buffer, Chunk, DEPTH, Order, PANEL};
use crate::ozaki::balance::{self, EMPTY};
use crate::ozaki::bound::second_magnitude;

/// Which digit of an element is taken for its magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digit {
    /// The first seven bits.
    First,
    /// The next seven.
    Second,
    /// 1 for a nonzero.
    Presence,
}

/// A change of a buffer; in the order of its members.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Lines that are zeros from now on: bit l is line l.
    pub out: u32,
    /// Element h of line l is multiplied by 2^(.0[l] + .1[h]), see [`balance::scaled`].
    pub scale: Option<(&'a [i32; PANEL], &'a [i32; DEPTH])>,
    /// Elements become integers: this digit, for lines of these exponents.
    pub digit: Option<(Digit, &'a [i32; PANEL])>,
}

impl Change<'_> {
    pub fn is_none(&self) -> bool {
        self.out == 0 && self.scale.is_none() && self.digit.is_none()
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
    match change.digit {
        None | Some((Digit::First, _)) => {}
        Some((Digit::Second, exponents)) => {
            for_each(buffer, |l, _, x| f64::from(second_magnitude(x, exponents[l])));
        }
        Some((Digit::Presence, _)) => for_each(buffer, |_, _, x| if x == 0.0 { 0.0 } else { 1.0 }),
    }
}

/// The exponents with which [`Digit::Second`] and [`Digit::Presence`] go into step *magnitudes*: an integer below 128 is its own
/// magnitude.
pub const OF_DIGITS: [i32; PANEL] = [7; PANEL];

/// Raises `out[h]` to the largest exponent of an element h, relative to the exponent of its line.
///
/// # Safety
///
/// The chunk can be read.
#[inline(always)]
pub unsafe fn raise_inner(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut [i32; DEPTH]) {
    // SAFETY: by the contract of this function; nothing need be aligned.
    let relative = |l: usize, h: usize| unsafe {
        match balance::exponent(chunk.at(l, h).read_unaligned()) {
            EMPTY => EMPTY,
            exponent => exponent - exponents[l],
        }
    };
    match chunk.order {
        Order::LineMajor => {
            for l in 0..PANEL {
                for (h, out) in out.iter_mut().enumerate() {
                    *out = (*out).max(relative(l, h));
                }
            }
        }
        Order::ElementMajor => {
            for (h, out) in out.iter_mut().enumerate() {
                *out = (0..PANEL).fold(*out, |most, l| most.max(relative(l, h)));
            }
        }
    }
}

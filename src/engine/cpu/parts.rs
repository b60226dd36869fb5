//! The way from the caller's matrices to the kernels: parts of an operand, panel by panel, chunk by chunk.

use std::ops::Range;

use super::driver::Run;
use super::kernels::{Buffer, Change, Chunk, DEPTH, Order, PANEL, Side};
use super::packing::AHEAD;
use super::view::SideView;
use crate::gemm::Lines;

/// Lines of an operand, and the elements of the inner dimension, that are to be packed.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub side: Side,
    pub operand: &'a Lines,
    pub first_line: usize,
    pub lines: usize,
    pub first: usize,
    pub count: usize,
    pub view: SideView<'a>,
}

/// Panels that lie side by side in memory and are read together: a kilobyte of each run instead of a quarter.
pub const GROUP: usize = 4;

impl<'a> Part<'a> {
    /// Some elements of the same lines.
    pub fn elements(&self, first: usize, count: usize) -> Part<'a> {
        Part { first, count, ..*self }
    }

    fn group(&self) -> usize {
        if self.operand.element_stride == 1 { 1 } else { GROUP }
    }

    /// Groups of panels that are read together.
    pub fn groups(&self) -> usize {
        self.lines.div_ceil(PANEL).div_ceil(self.group())
    }

    /// The panels of a group.
    pub fn panels(&self, group: usize) -> Range<usize> {
        let first = group * self.group();
        first..(first + self.group()).min(self.lines.div_ceil(PANEL))
    }

    /// The lines of a panel.
    pub fn lines_of(&self, p: usize) -> Range<usize> {
        let end = ((p + 1) * PANEL).min(self.lines);
        self.first_line + p * PANEL..self.first_line + end
    }
}

impl Run<'_> {
    /// Calls f(panel, chunk, first element) for the chunks of some panels of a part; panels that lie side by side in memory take
    /// turns.
    ///
    /// # Safety
    ///
    /// The matrix can be read.
    pub unsafe fn for_each_chunk(
        &self,
        part: &Part,
        panels: Range<usize>,
        mut f: impl FnMut(usize, &Chunk, usize),
    ) {
        let mut buffer = None;
        let chunks = (0..part.count).step_by(DEPTH);
        for (first, p) in chunks.flat_map(|first| panels.clone().map(move |p| (first, p))) {
            // SAFETY: by the contract of this function.
            unsafe { self.with_chunk(part, p, first, &mut buffer, |chunk| f(p, chunk, first)) };
        }
    }

    /// Calls f(chunk) for the elements `first`.. of a panel of a part, both counted from its start. `buffer` is for chunks that the
    /// kernels cannot take from the matrix.
    ///
    /// # Safety
    ///
    /// The matrix can be read.
    pub unsafe fn with_chunk(
        &self,
        part: &Part,
        p: usize,
        first: usize,
        buffer: &mut Option<Buffer>,
        f: impl FnOnce(&Chunk),
    ) {
        let kernels = self.kernels;
        let order = (kernels.order)(part.side);
        let matrix = part.operand;
        let (stored, stride, next) = if matrix.element_stride == 1 {
            (Order::LineMajor, matrix.line_stride, DEPTH)
        } else {
            (Order::ElementMajor, matrix.element_stride, AHEAD.wrapping_mul(matrix.element_stride))
        };
        let out = part.view.out(part.first_line / PANEL + p);
        let changes = out != 0 || part.view.balance.is_some();
        let (line, lines) = (part.first_line + p * PANEL, PANEL.min(part.lines - p * PANEL));
        let count = DEPTH.min(part.count - first);
        if kernels.direct && stored == order && lines == PANEL && count == DEPTH && !changes {
            let at = line * matrix.line_stride + (part.first + first) * matrix.element_stride;
            let start = matrix.pointer().wrapping_add(at);
            f(&Chunk { start, stride, order, ahead: next.wrapping_mul(size_of::<f64>()) });
            return;
        }
        let buffer = buffer.get_or_insert_with(|| Buffer::new(order));
        // SAFETY: the part is inside of the matrix.
        unsafe { (kernels.gather)(matrix, (line, lines), (part.first + first, count), buffer) };
        if changes {
            let scale = part.view.scale(line, part.first + first);
            let scale = scale.as_ref().map(|(lines, inner)| (lines, inner));
            // SAFETY: the CPU runs the kernels.
            unsafe { (kernels.change)(buffer, &Change { out, scale }) };
        }
        f(&buffer.chunk());
    }
}

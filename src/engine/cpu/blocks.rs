//! Blocks and tiles of C: what the workspace can hold at a time, and where everything lies in it.

use super::kernels::{PANEL, TILE};
use crate::gemm::Rectangle;
use crate::route::Reason;

/// A block of C and the part of the inner dimension that is held for it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Rows of C, a multiple of PANEL.
    pub rows: usize,
    /// Columns of C, a multiple of PANEL.
    pub columns: usize,
    /// Elements of the inner dimension, at most 2^16.
    pub length: usize,
}

/// Larger blocks would not be faster: the panels of a block are made anew for a part of the other operand this large.
const MOST_LINES: usize = 512;
/// The 32-bit sums would hold 2^16 products of residues; from some thousand on the reduction is cheap beside the products.
const MOST_LENGTH: usize = 4096;

impl Blocks {
    pub fn largest(m: usize, n: usize, k: usize) -> Self {
        let lines = |count: usize| count.next_multiple_of(PANEL).min(MOST_LINES);
        Self { rows: lines(m), columns: lines(n), length: k.min(MOST_LENGTH) }
    }

    /// Elements of the packed panels for `lines` lines and `planes` moduli.
    pub fn panel_elements(&self, lines: usize, planes: usize) -> usize {
        lines * planes * self.length
    }

    /// Tiles of the block.
    pub fn tiles(&self) -> usize {
        self.rows * self.columns / TILE
    }

    /// Bytes for the panels of both operands and `entry_bytes` for each entry of the block.
    fn bytes(&self, planes: usize, entry_bytes: usize) -> usize {
        let panels = self.panel_elements(self.rows + self.columns, planes) * size_of::<i16>();
        panels + self.rows * self.columns * entry_bytes + self.tiles()
    }

    /// The next smaller blocks, or None below the smallest.
    pub fn smaller(self) -> Option<Self> {
        let halved = |lines: usize| (lines / 2).next_multiple_of(PANEL);
        if self.length > 256 {
            Some(Self { length: self.length.div_ceil(2), ..self })
        } else if self.rows.max(self.columns) > PANEL {
            if self.rows >= self.columns {
                Some(Self { rows: halved(self.rows), ..self })
            } else {
                Some(Self { columns: halved(self.columns), ..self })
            }
        } else if self.length > 1 {
            Some(Self { length: self.length.div_ceil(2), ..self })
        } else {
            None
        }
    }

    /// Calls `take` with the bytes of ever smaller blocks until it succeeds.
    pub fn fit<T>(
        self,
        planes: usize,
        entry_bytes: usize,
        mut take: impl FnMut(&Self, usize) -> Result<T, Reason>,
    ) -> Result<(Self, T), Reason> {
        let mut blocks = self;
        loop {
            match take(&blocks, blocks.bytes(planes, entry_bytes)) {
                Ok(taken) => return Ok((blocks, taken)),
                Err(reason) => blocks = blocks.smaller().ok_or(reason)?,
            }
        }
    }
}

/// The blocks of C, column of blocks by column of blocks.
pub fn rectangles(m: usize, n: usize, blocks: &Blocks) -> impl Iterator<Item = Rectangle> + Clone + use<> {
    let Blocks { rows, columns, .. } = *blocks;
    (0..n).step_by(columns).flat_map(move |j| {
        (0..m).step_by(rows).map(move |i| Rectangle {
            i,
            j,
            rows: rows.min(m - i),
            columns: columns.min(n - j),
        })
    })
}

/// The tiles of a block in the order of their numbers: down the first column of tiles first.
pub fn tiles(at: Rectangle) -> impl Iterator<Item = Rectangle> {
    rectangles(at.rows, at.columns, &Blocks { rows: PANEL, columns: PANEL, length: 1 })
        .map(move |tile| Rectangle { i: at.i + tile.i, j: at.j + tile.j, ..tile })
}

/// The `tile`-th tile of a block, as panel of A, panel of B, rows and columns.
pub fn tile_panels(at: Rectangle, tile: usize) -> (usize, usize, usize, usize) {
    let down = at.rows.div_ceil(PANEL);
    let (p, q) = (tile % down, tile / down);
    (p, q, PANEL.min(at.rows - p * PANEL), PANEL.min(at.columns - q * PANEL))
}

/// The lines of plane l of panel p, of which `lines` are in use.
pub fn plane(panels: &[i16], planes: usize, length: usize, p: usize, l: usize, lines: usize) -> &[i16] {
    &panels[(p * planes + l) * PANEL * length..][..lines * length]
}

/// Entries of a block with its tiles padded.
pub fn padded(at: &Rectangle) -> usize {
    at.rows.next_multiple_of(PANEL) * at.columns.next_multiple_of(PANEL)
}

/// The elements of the inner dimension from `first` on that a block holds at a time.
pub fn span(first: usize, blocks: &Blocks, length: usize) -> usize {
    blocks.length.min(length - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_shrink_to_the_smallest_and_then_end() {
        let mut blocks = Blocks::largest(100_000, 3, 1 << 20);
        assert_eq!(blocks, Blocks { rows: 512, columns: 32, length: 4096 });
        let mut bytes = blocks.bytes(20, 1);
        while let Some(next) = blocks.smaller() {
            assert!(next.bytes(20, 1) < bytes, "{next:?}");
            assert!(
                next.rows.is_multiple_of(PANEL) && next.columns.is_multiple_of(PANEL) && next.length >= 1
            );
            bytes = next.bytes(20, 1);
            blocks = next;
        }
        assert_eq!(blocks, Blocks { rows: PANEL, columns: PANEL, length: 1 });
    }

    #[test]
    fn fit_takes_the_first_that_there_is_room_for() {
        let room =
            |_: &Blocks, bytes: usize| if bytes <= 1 << 20 { Ok(bytes) } else { Err(Reason::NoMemory) };
        let (blocks, bytes) = Blocks::largest(5000, 5000, 5000).fit(20, 1, room).unwrap();
        assert!(bytes <= 1 << 20 && blocks.rows >= PANEL);
        let none = |_: &Blocks, _: usize| Err::<(), _>(Reason::NoMemory);
        assert_eq!(Blocks::largest(5, 5, 5).fit(2, 1, none), Err(Reason::NoMemory));
    }
}

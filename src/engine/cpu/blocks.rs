//! Blocks of C: what the workspace can hold at a time, what a thread computes at a time, and where everything lies.

use super::kernels::{Blocking, DEPTH, Kernels, PANEL, Place, TILE};
use super::workspace::piece_bytes;
use crate::gemm::Rectangle;
use crate::route::Reason;

/// A block of C and the part of the inner dimension that is held for it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Rows of C, a multiple of PANEL.
    pub rows: usize,
    /// Columns of C, a multiple of PANEL.
    pub columns: usize,
    /// Elements of the inner dimension, a multiple of DEPTH, at most 2^16.
    pub length: usize,
}

/// The 32-bit sums hold 2^16 products of residues.
pub const MOST_LENGTH: usize = 1 << 16;

impl Blocks {
    /// The whole call, but for the inner dimension.
    pub fn largest(m: usize, n: usize, k: usize) -> Self {
        Self {
            rows: m.next_multiple_of(PANEL),
            columns: n.next_multiple_of(PANEL),
            length: k.next_multiple_of(DEPTH).min(MOST_LENGTH),
        }
    }

    /// The next smaller blocks, or None below the smallest. The panels of one operand are made anew for each block of the other,
    /// so blocks shrink to squares first; a short inner dimension costs one more reduction for each part.
    pub fn smaller(self) -> Option<Self> {
        let halved = |lines: usize| (lines / 2).next_multiple_of(PANEL);
        let shorter = |length: usize| (length / 2).next_multiple_of(DEPTH);
        let most = self.rows.max(self.columns);
        if self.length > 4096 || (most <= 512 && self.length > 256) {
            Some(Self { length: shorter(self.length), ..self })
        } else if most > PANEL {
            if self.rows >= self.columns {
                Some(Self { rows: halved(self.rows), ..self })
            } else {
                Some(Self { columns: halved(self.columns), ..self })
            }
        } else if self.length > DEPTH {
            Some(Self { length: shorter(self.length), ..self })
        } else {
            None
        }
    }

    /// Calls `take` with ever smaller blocks until it succeeds.
    pub fn fit<T>(self, mut take: impl FnMut(&Self) -> Result<T, Reason>) -> Result<(Self, T), Reason> {
        let mut blocks = self;
        loop {
            match take(&blocks) {
                Ok(taken) => return Ok((blocks, taken)),
                Err(reason) => blocks = blocks.smaller().ok_or(reason)?,
            }
        }
    }

    /// The elements of the inner dimension from `first` on that a block holds at a time.
    pub fn span(&self, first: usize, k: usize) -> usize {
        self.length.min(k - first)
    }
}

/// The blocks of C, column of blocks by column of blocks.
pub fn rectangles(
    m: usize,
    n: usize,
    (rows, columns): (usize, usize),
) -> impl Iterator<Item = Rectangle> + Clone + use<> {
    (0..n).step_by(columns).flat_map(move |j| {
        (0..m).step_by(rows).map(move |i| Rectangle {
            i,
            j,
            rows: rows.min(m - i),
            columns: columns.min(n - j),
        })
    })
}

/// The parts of such a size of a rectangle, down its first columns first.
pub fn parts(at: Rectangle, size: (usize, usize)) -> impl Iterator<Item = Rectangle> + Clone {
    rectangles(at.rows, at.columns, size).map(move |part| Rectangle {
        i: at.i + part.i,
        j: at.j + part.j,
        ..part
    })
}

/// The tiles of a rectangle in the order of their numbers: down the first column of tiles first.
pub fn tiles(at: Rectangle) -> impl Iterator<Item = Rectangle> + Clone {
    parts(at, (PANEL, PANEL))
}

/// Tiles of a rectangle.
pub fn tile_count(at: &Rectangle) -> usize {
    at.rows.div_ceil(PANEL) * at.columns.div_ceil(PANEL)
}

/// A block of C cut into tasks: what a thread computes at a time.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    at: Rectangle,
    rows: usize,
    columns: usize,
    down: usize,
    pub count: usize,
}

/// So many tasks for each thread keep all of them busy to the end.
const TASKS_A_THREAD: usize = 4;
/// Columns of a task below this are not worth the panels of rows that they use.
const LEAST_ACROSS: usize = 4;

impl Tasks {
    pub fn new(at: Rectangle, blocking: Blocking, threads: usize) -> Self {
        let (mut down, mut across) = (blocking.down, blocking.across);
        let panels = (at.rows.div_ceil(PANEL), at.columns.div_ceil(PANEL));
        let count = |down: usize, across: usize| panels.0.div_ceil(down) * panels.1.div_ceil(across);
        while threads > 1 && count(down, across) < TASKS_A_THREAD * threads {
            if across > LEAST_ACROSS {
                across = across.div_ceil(2);
            } else if down > LEAST_ACROSS {
                down = down.div_ceil(2);
            } else {
                break;
            }
        }
        // Equal shares rather than a small rest.
        let even = |panels: usize, size: usize| panels.div_ceil(panels.div_ceil(size));
        let (down, across) = (even(panels.0, down), even(panels.1, across));
        Self {
            at,
            rows: down * PANEL,
            columns: across * PANEL,
            down: panels.0.div_ceil(down),
            count: count(down, across),
        }
    }

    /// Tasks of the same size for another block, no larger: they are no more.
    pub fn within(&self, at: Rectangle) -> Self {
        let down = at.rows.div_ceil(self.rows);
        Self { at, down, count: down * at.columns.div_ceil(self.columns), ..*self }
    }

    /// Tiles of the largest task.
    pub fn most_tiles(&self) -> usize {
        self.rows.min(self.at.rows).div_ceil(PANEL) * self.columns.min(self.at.columns).div_ceil(PANEL)
    }

    /// Panels of rows of the largest task.
    pub fn panels_down(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Where the task is in C.
    pub fn rectangle(&self, task: usize) -> Rectangle {
        let (i, j) = (task % self.down * self.rows, task / self.down * self.columns);
        Rectangle {
            i: self.at.i + i,
            j: self.at.j + j,
            rows: self.rows.min(self.at.rows - i),
            columns: self.columns.min(self.at.columns - j),
        }
    }
}

/// Packed lines of an operand: for each plane the panels one after the other.
#[derive(Clone, Copy)]
pub struct Packed {
    start: *mut u8,
    /// Bytes from panel to panel, and from plane to plane.
    pub panel: usize,
    plane: usize,
    /// Elements of a packed line.
    pub length: usize,
    /// See [`Place::stream`].
    stream: bool,
}

// SAFETY: whoever uses the memory sees to it that nobody else writes what it reads.
unsafe impl Send for Packed {}
// SAFETY: as above.
unsafe impl Sync for Packed {}

impl Packed {
    /// Planes that start at equal places in the cache would push each other out while all of them are written.
    const APART: usize = 33 * 64;

    fn plane_bytes(kernels: &Kernels, lines: usize, length: usize) -> usize {
        let bytes = piece_bytes(lines * length * kernels.element);
        if bytes < 8 * Self::APART { bytes } else { bytes + Self::APART }
    }

    pub fn bytes(kernels: &Kernels, lines: usize, length: usize, planes: usize) -> usize {
        planes * Self::plane_bytes(kernels, lines, length)
    }

    /// `start` has room for the same `bytes`. `lines` is a multiple of PANEL, `length` of DEPTH.
    pub fn new(start: *mut u8, kernels: &Kernels, lines: usize, length: usize) -> Self {
        let panel = PANEL * length * kernels.element;
        Self { start, panel, plane: Self::plane_bytes(kernels, lines, length), length, stream: false }
    }

    /// See [`Place::stream`].
    pub fn streamed(self, stream: bool) -> Self {
        Self { stream, ..self }
    }

    /// The same memory for lines of another length, at most that of `new`.
    pub fn with_length(self, kernels: &Kernels, length: usize) -> Self {
        Self { panel: PANEL * length * kernels.element, length, ..self }
    }

    /// The same so many bytes further on.
    pub fn moved(self, bytes: usize) -> Self {
        Self { start: self.start.wrapping_add(bytes), ..self }
    }

    /// Where elements `first`.. of panel p go, from plane l on.
    pub fn place(&self, l: usize, p: usize, first: usize) -> Place {
        let panel = self.panel(l, p);
        Place { panel, plane: self.plane, length: self.length, first, stream: self.stream }
    }

    /// Panel p of plane l.
    pub fn panel(&self, l: usize, p: usize) -> *mut u8 {
        self.start.wrapping_add(l * self.plane + p * self.panel)
    }
}

/// Bytes of the residues of `tiles` tiles.
pub fn residue_bytes(tiles: usize, moduli: usize) -> usize {
    tiles * moduli * TILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_shrink_to_the_smallest_and_then_end() {
        let mut blocks = Blocks::largest(100_000, 3, 1 << 20);
        assert_eq!(blocks, Blocks { rows: 100_000, columns: 32, length: 65536 });
        let size = |b: &Blocks| (b.rows + b.columns) * b.length;
        while let Some(next) = blocks.smaller() {
            assert!(size(&next) < size(&blocks), "{next:?}");
            assert!(next.rows.is_multiple_of(PANEL) && next.columns.is_multiple_of(PANEL));
            assert!(next.length.is_multiple_of(DEPTH) && next.length > 0);
            blocks = next;
        }
        assert_eq!(blocks, Blocks { rows: PANEL, columns: PANEL, length: DEPTH });
    }

    #[test]
    fn fit_takes_the_first_that_there_is_room_for() {
        let room = |b: &Blocks| if b.rows * b.length <= 1 << 20 { Ok(b.rows) } else { Err(Reason::NoMemory) };
        let (blocks, rows) = Blocks::largest(5000, 5000, 5000).fit(room).unwrap();
        assert!(rows == blocks.rows && rows * blocks.length <= 1 << 20);
        let none = |_: &Blocks| Err::<(), _>(Reason::NoMemory);
        assert_eq!(Blocks::largest(5, 5, 5).fit(none), Err(Reason::NoMemory));
    }

    #[test]
    fn tasks_cover_a_block_once() {
        for (rows, columns) in [(1, 1), (32, 33), (500, 70), (70, 500), (2048, 2048), (31, 5000)] {
            for threads in [1, 2, 7] {
                let at = Rectangle { i: 64, j: 32, rows, columns };
                let tasks = Tasks::new(at, Blocking { down: 16, across: 16, depth: 4096 }, threads);
                let all: Vec<Rectangle> = (0..tasks.count).map(|task| tasks.rectangle(task)).collect();
                assert!(all.iter().all(|task| tile_count(task) <= tasks.most_tiles()));
                let covered: usize = all.iter().map(|task| task.rows * task.columns).sum();
                assert_eq!(covered, rows * columns);
                let part = Rectangle { rows: rows.div_ceil(2), columns: columns.div_ceil(3), ..at };
                let fewer = tasks.within(part);
                assert!(fewer.count <= tasks.count && fewer.most_tiles() <= tasks.most_tiles());
                let covered: usize =
                    (0..fewer.count).map(|t| fewer.rectangle(t)).map(|t| t.rows * t.columns).sum();
                assert_eq!(covered, part.rows * part.columns);
                assert!(all.iter().all(|t| t.i + t.rows <= 64 + rows && t.j + t.columns <= 32 + columns));
                assert!(all.iter().all(|t| t.i.is_multiple_of(PANEL) && t.j.is_multiple_of(PANEL)));
            }
        }
    }
}

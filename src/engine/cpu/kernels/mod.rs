//! The kernels: the steps of the scheme for one kind of CPU each, in one table. A new kind is one file with one table, whose
//! steps are compared bit for bit with `ozaki::reference` (tests/steps.rs runs every table that the CPU can run).
//!
//! Lines (rows of op(A), columns of op(B)) come in as [`Chunk`]s and are packed to panels; how elements lie in a panel and
//! residues in a tile is the business of the kernels alone ([`Kernels::element_at`], [`Kernels::residue_at`] tell it).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::gemm::{Lines, MatMut, Rectangle};
use crate::ozaki::moduli::LEGAL;
use crate::ozaki::needs::Bounds;
use crate::ozaki::reconstruct::Reconstruct;
use crate::ozaki::scan::Scan;

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod change;
pub mod portable;
pub mod sums;

pub use change::{Change, InnerOfPanel};
pub use sums::{Chunks, Combinations, Sum};

/// Lines of a panel, and so rows and columns of a tile of C.
pub const PANEL: usize = 32;
/// Entries of a tile.
pub const TILE: usize = PANEL * PANEL;
/// Elements of the inner dimension in a chunk; the inner dimension is padded to a multiple with zeros.
pub const DEPTH: usize = 64;

/// Bytes of a cache line, where hints are concerned.
pub const CACHE_LINE: usize = 64;

/// An operand: its lines are the rows of op(A) or the columns of op(B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Rows,
    Columns,
}

/// What of an element goes into the bound products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digit {
    /// Its magnitude: the first seven bits.
    First,
    /// The next seven.
    Second,
    /// 1 for a nonzero.
    Presence,
}

/// How a chunk is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Element h of line l is values[l * DEPTH + h].
    LineMajor,
    /// Element h of line l is values[h * PANEL + l].
    ElementMajor,
}

/// DEPTH elements of PANEL lines, in the caller's matrix or in a [`Buffer`]. The elements need not be aligned.
#[derive(Clone, Copy)]
pub struct Chunk {
    pub start: *const f64,
    /// Elements from line to line in the order LineMajor, from element to element of a line in the other.
    pub stride: usize,
    pub order: Order,
    /// Bytes from here to what will be read next, as a hint.
    pub ahead: usize,
}

impl Chunk {
    /// Where element h of line l is.
    #[inline(always)]
    pub fn at(&self, l: usize, h: usize) -> *const f64 {
        self.start.wrapping_add(match self.order {
            Order::LineMajor => l * self.stride + h,
            Order::ElementMajor => h * self.stride + l,
        })
    }
}

/// Room for a chunk that is not in the wanted order in the matrix, or not whole: zero where the matrix has ended.
#[repr(C, align(64))]
pub struct Buffer {
    pub values: [f64; PANEL * DEPTH],
    pub order: Order,
}

impl Buffer {
    pub fn new(order: Order) -> Self {
        Self { values: [0.0; PANEL * DEPTH], order }
    }

    pub fn chunk(&self) -> Chunk {
        let stride = if self.order == Order::LineMajor { DEPTH } else { PANEL };
        Chunk { start: self.values.as_ptr(), stride, order: self.order, ahead: 0 }
    }
}

/// The sums that step *bound* needs, of the 7-bit magnitudes of the lines of a panel and of their squares: sixteen partial sums for
/// each line, so that a register can be added without a look at its parts. For at most [`LineSums::CHUNKS`] chunks.
#[repr(C, align(64))]
pub struct LineSums {
    pub sum: [[i32; 16]; PANEL],
    pub squares: [[i32; 16]; PANEL],
}

impl LineSums {
    /// A chunk adds at most 64 127^2 to a partial sum.
    pub const CHUNKS: usize = 1024;
    pub const ZERO: Self = Self { sum: [[0; 16]; PANEL], squares: [[0; 16]; PANEL] };

    /// The sums of line l.
    pub fn of(&self, l: usize) -> (u64, u64) {
        let total = |parts: &[i32; 16]| parts.iter().map(|&part| part as u64).sum();
        (total(&self.sum[l]), total(&self.squares[l]))
    }
}

/// Where a chunk goes in packed panels.
#[derive(Clone, Copy)]
pub struct Place {
    /// The panel in its first plane; that of plane l is l * `plane` bytes on.
    pub panel: *mut u8,
    pub plane: usize,
    /// Elements of a packed line, a multiple of DEPTH.
    pub length: usize,
    /// The first element of the chunk, a multiple of DEPTH.
    pub first: usize,
    /// A hint: nothing of all that is packed will be in a near cache when it is read, so it need not go through one.
    pub stream: bool,
}

/// Memory that will be read soon, as a hint: so many cache lines of it for each DEPTH elements of a product.
#[derive(Clone, Copy)]
pub struct Stream {
    pub at: *const u8,
    pub lines: usize,
}

impl Stream {
    pub const NONE: Self = Self { at: std::ptr::null(), lines: 0 };
}

/// The sums of tiles below each other over a part of the inner dimension.
#[derive(Clone, Copy)]
pub struct Product {
    /// The first panel of rows and the panel of columns at the first element to use.
    pub rows: *const u8,
    pub columns: *const u8,
    /// Bytes from one panel of rows to the next.
    pub panel: usize,
    /// Elements of a packed line, and how many of them to use, at most 2^16; multiples of DEPTH.
    pub length: usize,
    pub count: usize,
    /// Add to the sums that are there.
    pub add: bool,
    /// What comes next, over all tiles.
    pub next: Stream,
    /// What comes next in the first panel of rows, over its tile; in the others at the same place.
    pub next_rows: Stream,
}

impl Product {
    /// One tile over whole lines, and nothing is known of what comes next.
    pub fn whole(rows: *const u8, columns: *const u8, length: usize) -> Self {
        let (next, next_rows) = (Stream::NONE, Stream::NONE);
        Self { rows, columns, panel: 0, length, count: length, add: false, next, next_rows }
    }

    /// The product of each tile by itself.
    pub fn tiles<'a>(&self, sums: &'a mut [Tile]) -> impl Iterator<Item = (Self, &'a mut Tile)> + use<'a> {
        let first = *self;
        let of = move |p| {
            let moved = |at: *const u8| at.wrapping_add(p * first.panel);
            let next_rows = Stream { at: moved(first.next_rows.at), ..first.next_rows };
            Self { rows: moved(first.rows), next_rows, ..first }
        };
        sums.iter_mut().enumerate().map(move |(p, sums)| (of(p), sums))
    }
}

/// Residues of one modulus in tiles: those of the next tile are `tile` bytes on.
#[derive(Clone, Copy)]
pub struct Earlier {
    pub residues: *const i8,
    pub tile: usize,
}

impl Earlier {
    /// Those of tile `at`.
    pub fn of(&self, at: usize) -> *const i8 {
        self.residues.wrapping_add(at * self.tile)
    }
}

/// The product of one modulus for a block of tiles, each `down` by `across`, reduced to residues.
pub struct Pass {
    /// The first panel of each operand in the plane of the modulus, at the first element to use.
    pub rows: *const u8,
    pub columns: *const u8,
    /// Bytes from panel to panel.
    pub panel: usize,
    /// Elements of a packed line, and how many of them to use; multiples of DEPTH.
    pub length: usize,
    pub count: usize,
    pub down: usize,
    pub across: usize,
    /// The number of the modulus, and the factor q_l of the CRT that goes into its residues.
    pub modulus: usize,
    pub factor: i32,
    /// The residues of this modulus in the first tile; those of the next tile are `tile` bytes on. Tiles are numbered down the
    /// first column of tiles first.
    pub residues: *mut i8,
    pub tile: usize,
    /// Residues to add to, in this place or in another one.
    pub earlier: Option<Earlier>,
    /// What the next pass reads first, as a hint.
    pub next_rows: *const u8,
    pub next_columns: *const u8,
}

/// Step *reconstruct* of a block.
pub struct Reconstruction<'a> {
    pub with: &'a Reconstruct,
    /// The residues of modulus l in tile t start at ((t * moduli) + l) * TILE. They carry the factor q_l.
    pub residues: *const i8,
    pub moduli: usize,
    /// The block of C.
    pub at: Rectangle,
    pub beta: f64,
    pub c: &'a MatMut,
    /// s_i of the rows and t_j of the columns of the block.
    pub rows: &'a [i32],
    pub columns: &'a [i32],
    /// Told of every tile that is complete.
    pub written: &'a [AtomicBool],
    /// With the self-check: a tile that has a value out of range is not written.
    pub check: Option<&'a Peak>,
}

/// The largest |C'| / P of the tiles that the self-check has let pass.
#[derive(Default)]
pub struct Peak(AtomicU64);

impl Peak {
    /// Whether a tile may be written whose largest |C'| / P this is.
    pub fn admits(&self, of_tile: f64) -> bool {
        let legal = of_tile <= LEGAL;
        if legal {
            // The bits of doubles from 0 on are in the order of the doubles.
            self.0.fetch_max(of_tile.to_bits(), Ordering::Relaxed);
        }
        legal
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Reconstruction<'_> {
    pub fn tiles(&self) -> usize {
        self.at.rows.div_ceil(PANEL) * self.at.columns.div_ceil(PANEL)
    }

    /// A tile relative to the block; empty behind the last.
    pub fn place(&self, tile: usize) -> Rectangle {
        let down = self.at.rows.div_ceil(PANEL);
        let (i, j) = (tile % down * PANEL, tile / down * PANEL);
        let columns = self.at.columns.saturating_sub(j);
        Rectangle { i, j, rows: PANEL.min(self.at.rows - i), columns: PANEL.min(columns) }
    }

    /// The residues of a tile.
    pub fn tile_residues(&self, tile: usize) -> *const i8 {
        self.residues.wrapping_add(tile * self.moduli * TILE)
    }

    /// A tile is complete in C.
    pub fn complete(&self, tile: usize) {
        self.written[tile].store(true, Ordering::Release);
    }
}

/// Panels that a block should have, for lines of a length: what the caches of this kind of CPU like.
#[derive(Clone, Copy, Debug)]
pub struct Blocking {
    pub down: usize,
    pub across: usize,
    /// Elements of the inner dimension in a pass.
    pub depth: usize,
}

pub type Gather = unsafe fn(from: &Lines, lines: (usize, usize), elements: (usize, usize), out: &mut Buffer);

/// See [`Bounds::raise_needs`].
pub type RaiseNeeds = unsafe fn(bounds: &Bounds, row_needs: &mut [i64], column_needs: &mut [i64]) -> bool;

/// The steps of one kind of CPU. All functions are unsafe: the CPU must be of that kind, and pointers must reach what their
/// documentation says.
pub struct Kernels {
    pub name: &'static str,
    /// This CPU can run them.
    pub available: fn() -> bool,
    /// The order in which the chunks of each side are wanted.
    pub order: fn(side: Side) -> Order,
    /// Chunks may be in the caller's matrix; else they are in a buffer always.
    pub direct: bool,
    /// Bytes of a packed element.
    pub element: usize,
    pub blocking: fn(length: usize) -> Blocking,
    /// Where element `h` of line `l` is in a plane of a panel of lines of `length` elements, in elements.
    pub element_at: fn(side: Side, length: usize, l: usize, h: usize) -> usize,
    /// Where the residue of entry (i, j) is in a tile.
    pub residue_at: fn(i: usize, j: usize) -> usize,
    /// Fills a buffer with elements of lines, each given as (first, number), at most DEPTH of PANEL.
    pub gather: Gather,
    /// Exponents of the elements of each line, merged into `out`.
    pub scan: unsafe fn(chunk: &Chunk, out: &mut [Scan; PANEL]),
    /// A digit of the elements of lines with the given exponents, and the sums of the digits, added to `sums`. Without a `place`
    /// the sums alone. The order of the elements of a chunk is the same on both sides, but not the one of [`Kernels::element_at`].
    pub magnitudes: unsafe fn(
        digit: Digit,
        side: Side,
        chunk: &Chunk,
        exponents: &[i32; PANEL],
        sums: &mut LineSums,
        place: Option<Place>,
    ),
    /// The element of a chunk whose magnitude is at the place of element `h`.
    pub magnitude_at: fn(h: usize) -> usize,
    /// Residues of RN_int(x 2^(s of the line)), all below 2^bits, modulo the first `moduli` moduli.
    pub residues:
        unsafe fn(side: Side, chunk: &Chunk, s: &[i32; PANEL], bits: i32, moduli: usize, place: Place),
    /// The sums of tiles: entry (i, j) of one is `tile[j * PANEL + i]`. |elements| <= 128, and all parts that are added together have
    /// at most 2^16 elements, so that a sum fits 32 bits.
    pub product: unsafe fn(product: &Product, sums: &mut [Tile]),
    /// Step *product* and the reduction of its sums to residues.
    pub pass: unsafe fn(pass: &Pass),
    /// Nothing can fail between the first and the last write of a tile. With a check all of a tile is looked at before the first.
    pub reconstruct: unsafe fn(block: &Reconstruction),
    /// [`change::change`] and [`change::add_inner`], compiled for this CPU.
    pub change: unsafe fn(buffer: &mut Buffer, change: &Change),
    pub add_inner: unsafe fn(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut InnerOfPanel),
    /// [`needs::lower_bounds`](crate::ozaki::needs::lower_bounds), [`Bounds::raise_needs`] and [`Bounds::largest_key`], compiled for
    /// this CPU.
    pub lower_bounds: unsafe fn(products: &[Tile; 4], out: &mut [i64; TILE]),
    pub raise_needs: RaiseNeeds,
    pub largest: unsafe fn(bounds: &Bounds, row_needs: &[i64], column_needs: &[i64]) -> i64,
    /// [`sums::combine`] and [`sums::sum`], compiled for this CPU.
    pub combine: unsafe fn(what: &Combinations),
    pub sum: unsafe fn(what: &Sum),
}

/// The 32-bit sums of a tile.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Tile(pub [i32; TILE]);

/// Every table of this build, for the tests and for `oz2run --doctor`.
#[cfg(target_arch = "x86_64")]
pub static ALL: &[&Kernels] = &[
    &amx::KERNELS,
    &avx512::KERNELS,
    &avx512::WITHOUT_IFMA,
    &avx2::WITH_VNNI,
    &avx2::KERNELS,
    &portable::KERNELS,
];
#[cfg(not(target_arch = "x86_64"))]
pub static ALL: &[&Kernels] = &[&portable::KERNELS];

/// Those that this CPU can run.
pub fn runnable() -> impl Iterator<Item = &'static Kernels> {
    ALL.iter().copied().filter(|kernels| (kernels.available)())
}

//! Strassen's form (`ozaki::strassen`) in the walk of a block of C: packing its operands, and the residues of C from their products.
//!
//! With L levels the rows, the columns and the inner dimension of a block are cut into 2^L equal parts of whole panels and chunks,
//! filled up with zeros. The 4^L pieces of each operand become 7^L operands of products, which are as large as a piece; combinations
//! are formed while the residues of the pieces are in the cache. A task computes the same tiles of all 4^L pieces of C.

use super::blocks::Packed;
use super::driver::{Planned, Run};
use super::kernels::{Buffer, Chunks, Combinations, DEPTH, Earlier, Kernels, PANEL, Pass, Side, Sum, TILE};
use super::parts::{GROUP, Part};
use crate::ozaki::moduli::{MODULI, crt};
use crate::ozaki::strassen::{Block, MOST_LEVELS, PLACES_OF_COLUMNS, PLACES_OF_ROWS, PRODUCTS, STEPS, Step};

/// So many pieces there are of each operand at most.
const MOST_PARTS: usize = 1 << MOST_LEVELS;

/// How a block is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub levels: usize,
}

/// What the parts of the rows, the columns and the inner dimension are multiples of.
pub const GRANULES: [usize; 3] = [PANEL, PANEL, DEPTH];

impl Cut {
    /// Parts of the lines and of the inner dimension.
    pub fn parts(self) -> usize {
        1 << self.levels
    }

    /// Pieces of a matrix.
    pub fn pieces(self) -> usize {
        self.parts() * self.parts()
    }

    /// Operands of products on each side.
    pub fn operands(self) -> usize {
        PRODUCTS.pow(self.levels as u32)
    }

    /// Lines of a part.
    pub fn lines(self, lines: usize) -> usize {
        lines.div_ceil(PANEL).div_ceil(self.parts()) * PANEL
    }

    /// Elements of a part of the inner dimension.
    pub fn length(self, length: usize) -> usize {
        length.div_ceil(DEPTH).div_ceil(self.parts()) * DEPTH
    }

    /// The part of the lines and of the columns in which a piece of C is.
    pub fn piece(self, number: usize) -> (usize, usize) {
        (0..self.levels).rev().fold((0, 0), |(i, j), level| {
            let quadrant = number >> (2 * level) & 3;
            (2 * i + quadrant / 2, 2 * j + quadrant % 2)
        })
    }

    /// The place among the operands at which a piece of an operand is before they are formed.
    fn operand(self, side: Side, part: usize, inner: usize) -> usize {
        let places = match side {
            Side::Rows => PLACES_OF_ROWS,
            Side::Columns => PLACES_OF_COLUMNS,
        };
        (0..self.levels)
            .rev()
            .fold(0, |place, level| PRODUCTS * place + places[part >> level & 1][inner >> level & 1])
    }

    /// Bytes that a thread needs beside the residues of a task of so many tiles, and before that for the packing.
    pub fn scratch_bytes(self, kernels: &Kernels, tiles: usize, moduli: usize) -> usize {
        let packing = if self.levels > 0 { Operands::bytes(self, kernels, PANEL, DEPTH, moduli) } else { 0 };
        packing.max((0..self.levels).map(|level| 2 * 4usize.pow(level as u32) * tiles * TILE).sum())
    }
}

/// The packed operands of one side, one after the other.
#[derive(Clone, Copy)]
pub struct Operands {
    first: Packed,
    /// Bytes from one to the next.
    apart: usize,
}

impl Operands {
    pub fn bytes(cut: Cut, kernels: &Kernels, lines: usize, length: usize, moduli: usize) -> usize {
        cut.operands() * Packed::bytes(kernels, lines, length, moduli)
    }

    /// For parts of so many lines and elements; `start` has room for the same `bytes`.
    pub fn new(start: *mut u8, kernels: &Kernels, lines: usize, length: usize, moduli: usize) -> Self {
        let apart = Packed::bytes(kernels, lines, length, moduli);
        Self { first: Packed::new(start, kernels, lines, length), apart }
    }

    /// The same memory for parts of fewer elements.
    pub fn with_length(self, kernels: &Kernels, length: usize) -> Self {
        Self { first: self.first.with_length(kernels, length), ..self }
    }

    /// See [`Packed::streamed`].
    pub fn streamed(self, stream: bool) -> Self {
        Self { first: self.first.streamed(stream), ..self }
    }

    pub fn get(&self, number: usize) -> Packed {
        self.first.moved(number * self.apart)
    }
}

impl Run<'_> {
    /// The residues of the operands of products for some panels of a part. Those of a chunk of the pieces go to `scratch` first, which
    /// has room for the operands of a chunk of a panel and stays in the cache.
    ///
    /// # Safety
    ///
    /// The matrix can be read, and nobody else uses the panels and the scratch.
    #[inline(never)] // Its buffers would take stack from calls without a level too.
    pub unsafe fn pack_operands(
        &self,
        planned: &Planned,
        part: &Part,
        cut: Cut,
        operands: &Operands,
        group: usize,
        scratch: *mut u8,
    ) {
        let (kernels, moduli, side) = (self.kernels, planned.plan.moduli, part.side);
        let piece = Part { lines: cut.lines(part.lines), ..*part };
        let panels = piece.panels(group);
        let of_part = piece.lines / PANEL;
        let mut of_panels = [[([0; PANEL], 0); GROUP]; MOST_PARTS];
        for (number, of_panels) in of_panels[..cut.parts()].iter_mut().enumerate() {
            for (of_panel, p) in of_panels.iter_mut().zip(panels.clone()) {
                let p = number * of_part + p;
                if p * PANEL < part.lines {
                    *of_panel = planned.shifts(part, p);
                }
            }
        }
        let mut buffer = None;
        let nothing = Buffer::new((kernels.order)(side));
        let length = cut.length(part.count);
        let scratch = Operands::new(scratch, kernels, PANEL, DEPTH, moduli);
        for (at, p) in (0..length).step_by(DEPTH).flat_map(|at| panels.clone().map(move |p| (at, p))) {
            for (number, inner) in (0..cut.parts()).flat_map(|i| (0..cut.parts()).map(move |h| (i, h))) {
                let place = scratch.get(cut.operand(side, number, inner)).place(0, 0, 0);
                let first = inner * length + at;
                let (s, bits) = &of_panels[number][p - panels.start];
                let from = number * of_part + p;
                // SAFETY: by the contract of this function, here and below.
                unsafe {
                    if from * PANEL < part.lines && first < part.count {
                        self.with_chunk(part, from, first, &mut buffer, |chunk| {
                            (kernels.residues)(side, chunk, s, *bits, moduli, place);
                        });
                    } else {
                        (kernels.residues)(side, &nothing.chunk(), s, 0, moduli, place);
                    }
                }
            }
            unsafe { self.combine(side, moduli, cut, &scratch, (operands, p, at)) };
        }
    }

    /// All combinations of a chunk: first those of the outer level for each place of the inner one, then those of the inner level,
    /// which go to panel `p` of the operands, elements `at`.. of it.
    ///
    /// # Safety
    ///
    /// The pieces are in the scratch, and nobody else uses it and the panels.
    unsafe fn combine(
        &self,
        side: Side,
        moduli: usize,
        cut: Cut,
        scratch: &Operands,
        (operands, p, at): (&Operands, usize, usize),
    ) {
        for level in 0..cut.levels {
            let inner = Cut { levels: cut.levels - level - 1 };
            let apart = inner.operands();
            let parts = |i| (0..inner.parts()).map(move |h| (i, h));
            for outer in (0..cut.operands()).step_by(PRODUCTS * apart) {
                for (i, h) in (0..inner.parts()).flat_map(parts) {
                    let first = outer + inner.operand(side, i, h);
                    let from =
                        Chunks { place: scratch.get(first).place(0, 0, 0), apart: apart * scratch.apart };
                    let last = inner.levels == 0;
                    let to = if last {
                        Chunks { place: operands.get(first).place(0, p, at), apart: operands.apart }
                    } else {
                        from
                    };
                    // SAFETY: by the contract of this function.
                    unsafe { (self.kernels.combine)(&Combinations { side, moduli, from, to, last }) };
                }
            }
        }
    }

    /// The residues of C for the tiles `down` by `across` of every piece, whose first panels are p and q. Those of a piece follow each
    /// other as in [`Run::multiply`], and the pieces too.
    ///
    /// # Safety
    ///
    /// The operands are packed, and nobody else uses the residues and the scratch.
    pub unsafe fn multiply_pieces(
        &self,
        moduli: usize,
        cut: Cut,
        operands: (&Operands, &Operands),
        (first, size): ((usize, usize), (usize, usize)),
        (residues, scratch): (*mut i8, *mut i8),
        add: bool,
    ) {
        let tiles = size.0 * size.1;
        for l in 0..moduli {
            let walk = Walk { run: self, operands, first, size, modulus: l, factor: crt(moduli).inverses[l] };
            let c = Residues {
                start: residues.wrapping_add(l * TILE),
                piece: tiles * moduli * TILE,
                tile: moduli * TILE,
            };
            // SAFETY: by the contract of this function.
            unsafe { walk.product(cut.levels, 0, (l + 1, 0), c, scratch, (add.then_some(c), false)) };
        }
    }
}

/// Residues of one modulus.
#[derive(Clone, Copy)]
struct Residues {
    start: *mut i8,
    /// Bytes from piece to piece and from tile to tile.
    piece: usize,
    tile: usize,
}

impl Residues {
    /// From piece `number` on.
    fn at_piece(self, number: usize) -> Self {
        Self { start: self.start.wrapping_add(number * self.piece), ..self }
    }

    /// Those of the first piece, for others to be added to.
    fn as_earlier(self) -> Earlier {
        Earlier { residues: self.start, tile: self.tile }
    }
}

/// The products of a task for one modulus.
struct Walk<'a> {
    run: &'a Run<'a>,
    operands: (&'a Operands, &'a Operands),
    first: (usize, usize),
    size: (usize, usize),
    modulus: usize,
    factor: i32,
}

impl Walk<'_> {
    /// The product of operand `number` of both sides, with levels below it, or its negative, added to what is `earlier` and put to `c`.
    /// `next` are modulus and number of the product after it, as a hint.
    ///
    /// # Safety
    ///
    /// As for [`Run::multiply_pieces`].
    unsafe fn product(
        &self,
        levels: usize,
        number: usize,
        next: (usize, usize),
        c: Residues,
        scratch: *mut i8,
        (earlier, negate): (Option<Residues>, bool),
    ) {
        if levels == 0 {
            // SAFETY: by the contract of this function, here and below.
            unsafe { self.pass(number, next, c, (earlier, negate)) };
            return;
        }
        let tiles = self.size.0 * self.size.1;
        let (below, pieces) = (PRODUCTS.pow(levels as u32 - 1), 4usize.pow(levels as u32 - 1));
        let block = |at: usize| Residues {
            start: scratch.wrapping_add(at * pieces * tiles * TILE),
            piece: tiles * TILE,
            tile: TILE,
        };
        let (x, y, scratch) = (block(0), block(1), block(2).start);
        let quadrant = |of: Residues, q: usize| of.at_piece(q * pieces);
        let take = |y: Option<Residues>, q: usize| {
            let earlier = earlier.map(|earlier| quadrant(earlier, q));
            // SAFETY: by the contract of this function.
            unsafe { self.take(x, y, quadrant(c, q), pieces, earlier) };
        };
        let first_of = |m: usize| number + m * below;
        for (at, step) in STEPS.iter().enumerate() {
            let (m, into, from, negate) = match *step {
                Step::Set(m, into) => (m, into, None, negate),
                Step::Add(m, into) => (m, into, Some(into), negate),
                Step::AddX(m, q) => (m, Block::C(q), Some(Block::X), negate),
                Step::SubtractFromX(m, q) => (m, Block::C(q), Some(Block::X), !negate),
                Step::TakeXAndY(q) => {
                    take(Some(y), q);
                    continue;
                }
            };
            let residues = |block: Block| match block {
                Block::C(q) => quadrant(c, q),
                Block::X => x,
                Block::Y => y,
            };
            let from = match (from, into) {
                // X and what is earlier have to meet in C first.
                (Some(Block::X), Block::C(q)) if earlier.is_some() => {
                    take(None, q);
                    Some(into)
                }
                _ => from,
            };
            let after = STEPS[at + 1..].iter().find_map(Step::product);
            let next = after.map_or(next, |m| (self.modulus, first_of(m)));
            let earlier = from.map(residues);
            unsafe {
                self.product(levels - 1, first_of(m), next, residues(into), scratch, (earlier, negate))
            };
        }
    }

    /// X, or X + Y, added to what is `earlier`, to some pieces of C.
    ///
    /// # Safety
    ///
    /// As for [`Run::multiply_pieces`].
    unsafe fn take(
        &self,
        x: Residues,
        y: Option<Residues>,
        c: Residues,
        pieces: usize,
        earlier: Option<Residues>,
    ) {
        for piece in 0..pieces {
            let of = |block: Residues| block.at_piece(piece);
            let sum = Sum {
                modulus: self.modulus,
                tiles: self.size.0 * self.size.1,
                x: of(x).start,
                y: y.map(|y| of(y).start.cast_const()),
                out: of(c).start,
                apart: c.tile,
                earlier: earlier.map(|earlier| of(earlier).as_earlier()),
            };
            // SAFETY: by the contract of this function.
            unsafe { (self.run.kernels.sum)(&sum) };
        }
    }

    /// # Safety
    ///
    /// As for [`Run::multiply_pieces`].
    unsafe fn pass(
        &self,
        number: usize,
        next: (usize, usize),
        c: Residues,
        (earlier, negate): (Option<Residues>, bool),
    ) {
        let kernels = self.run.kernels;
        let (p, q) = self.first;
        let panels = |l: usize, number: usize| {
            (self.operands.0.get(number).panel(l, p), self.operands.1.get(number).panel(l, q))
        };
        let Packed { length, panel, .. } = self.operands.0.get(number);
        let (rows, columns) = panels(self.modulus, number);
        let depth = (kernels.blocking)(length).depth;
        for first in (0..length).step_by(depth) {
            let count = depth.min(length - first);
            let at = |(rows, columns): (*mut u8, *mut u8), first: usize| {
                let offset = |side| (kernels.element_at)(side, length, 0, first) * kernels.element;
                let rows = rows.wrapping_add(offset(Side::Rows)).cast_const();
                (rows, columns.wrapping_add(offset(Side::Columns)).cast_const())
            };
            let next = if first + count < length {
                at((rows, columns), first + count)
            } else {
                at(panels(next.0, next.1), 0)
            };
            let (rows, columns) = at((rows, columns), first);
            let pass = Pass {
                rows,
                columns,
                panel,
                length,
                count,
                down: self.size.0,
                across: self.size.1,
                modulus: self.modulus,
                factor: if negate { MODULI[self.modulus] - self.factor } else { self.factor },
                residues: c.start,
                tile: c.tile,
                earlier: if first > 0 { Some(c) } else { earlier }.map(Residues::as_earlier),
                next_rows: next.0,
                next_columns: next.1,
            };
            // SAFETY: by the contract of this function.
            unsafe { (kernels.pass)(&pass) };
        }
    }
}

//! One block of C: the memory it needs, its tasks, and its way through residues, product, reduce and reconstruct.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::blocks::{Blocks, Tasks, residue_bytes, tile_count, tiles};
use super::check::Check;
use super::driver::{Planned, Run};
use super::kernels::{Kernels, PANEL, Reconstruction, Side, TILE};
use super::packing::{read_column, write_column};
use super::parts::Part;
use super::strassen::{Cut, GRANULES, Operands};
use super::team::{self, Panicked};
use super::workspace::{Arena, empty, piece_bytes};
use crate::engine::Phases;
use crate::gemm::{MatMut, Rectangle};
use crate::ozaki::reconstruct::Reconstruct;
use crate::route::Reason;

/// Packed residues of so many bytes are streamed to memory: smaller ones are still near when they are read (docs/measured/amx.md).
const STREAMED: usize = 96 << 20;

impl Run<'_> {
    /// The largest blocks that there is room for, with as many levels of Strassen's form as are wanted, or fewer.
    pub fn blocks(&self, moduli: usize) -> Result<(Blocks, Room), Reason> {
        let (call, wanted) = (self.call, self.settings.strassen);
        let largest = Blocks::largest(call.m, call.n, call.k);
        let may_have =
            |&Blocks { rows, columns, length }: &Blocks| wanted.for_block([rows, columns, length], GRANULES);
        let with = |levels: usize| {
            largest.fit(|blocks| match levels > may_have(blocks) {
                true => Err(Reason::NoMemory),
                false => self.room(blocks, Cut { levels }, moduli),
            })
        };
        (1..=may_have(&largest)).rev().find_map(|levels| with(levels).ok()).map_or_else(|| with(0), Ok)
    }

    fn room(&self, blocks: &Blocks, cut: Cut, moduli: usize) -> Result<Room, Reason> {
        let kernels = self.kernels;
        let (rows, columns, length) =
            (cut.lines(blocks.rows), cut.lines(blocks.columns), cut.length(blocks.length));
        let at = Rectangle { i: 0, j: 0, rows, columns };
        let tasks = Tasks::new(at, (kernels.blocking)(length), self.threads);
        // Without a second part of the inner dimension residues live no longer than their task: one set for each thread. Smaller
        // blocks at the border have no more or larger tasks.
        let by_task = blocks.length < self.call.k;
        let seats = self.threads.min(tasks.count);
        let tiles = tasks.most_tiles() * cut.pieces();
        let task = residue_bytes(tiles, moduli);
        let sets = if by_task { tasks.count } else { seats };
        let scratch = cut.scratch_bytes(kernels, tasks.most_tiles(), moduli);
        let operands = |lines| Operands::bytes(cut, kernels, lines, length, moduli);
        let overflow = || {
            let elements = (rows + columns).checked_mul(length)?.checked_mul(cut.operands())?;
            let packed = elements.checked_mul(moduli * kernels.element)?;
            packed.checked_add(task.checked_mul(sets)?)?.checked_add(scratch.checked_mul(self.threads)?)
        };
        overflow().ok_or(Reason::NoMemory)?;
        let (a_bytes, b_bytes) = (operands(rows), operands(columns));
        let (residues, scratch) = (piece_bytes(task), piece_bytes(scratch));
        let bytes = piece_bytes(a_bytes) + piece_bytes(b_bytes) + sets * residues + self.threads * scratch;
        let arena = Arena::take(bytes, self.limit())?;
        let mut pieces = arena.pieces();
        let (a, b) = (pieces.next(a_bytes), pieces.next(b_bytes));
        let mut written = empty(tasks.count * tiles)?;
        written.resize_with(tasks.count * tiles, || AtomicBool::new(false));
        // Strassen's form stores its operands from a scratch, past the caches always.
        let stream = cut.levels == 0 && a_bytes + b_bytes >= STREAMED;
        Ok(Room {
            cut,
            a: Operands::new(a, kernels, rows, length, moduli).streamed(stream),
            b: Operands::new(b, kernels, columns, length, moduli).streamed(stream),
            residues: Residues { start: pieces.next(sets * residues).cast(), set: residues },
            scratch: Residues { start: pieces.next(self.threads * scratch).cast(), set: scratch },
            by_task,
            tasks,
            tiles,
            written,
            arena,
        })
    }
}

/// The residues of products: one set for each task, or thread, that is in work.
pub struct Residues {
    start: *mut i8,
    set: usize,
}

// SAFETY: each task has a set of its own.
unsafe impl Sync for Residues {}

impl Residues {
    fn set(&self, number: usize) -> *mut i8 {
        self.start.wrapping_add(number * self.set)
    }
}

/// The memory of the blocks, one after the other.
pub struct Room {
    pub cut: Cut,
    a: Operands,
    b: Operands,
    residues: Residues,
    /// For each thread what Strassen's form needs beside them.
    scratch: Residues,
    /// Each task of a block has a set of residues, kept from one part of the inner dimension to the next; else each thread has one.
    by_task: bool,
    /// The tasks of a part of a whole block.
    tasks: Tasks,
    /// Tiles of the largest task in all pieces of C.
    tiles: usize,
    /// For each task so many: the tile is complete in C.
    written: Vec<AtomicBool>,
    pub arena: Box<Arena>,
}

/// One block of C on its way through residues, product, reduce and reconstruct.
pub struct Block<'a> {
    pub run: &'a Run<'a>,
    pub planned: &'a Planned,
    pub reconstruct: &'a Reconstruct,
    pub check: Option<&'a Check>,
    pub at: Rectangle,
    pub blocks: &'a Blocks,
    pub room: &'a Room,
}

impl Block<'_> {
    /// The tasks, as rectangles of the first piece of C, filled up to whole panels.
    fn tasks(&self) -> Tasks {
        let cut = self.room.cut;
        self.room.tasks.within(Rectangle {
            rows: cut.lines(self.at.rows),
            columns: cut.lines(self.at.columns),
            ..self.at
        })
    }

    /// The rectangles of C that are computed in a task, each with the number of its first tile among those of the task. Their tiles
    /// follow each other.
    fn rectangles(&self, task: Rectangle) -> impl Iterator<Item = (Rectangle, usize)> + use<> {
        let (at, cut) = (self.at, self.room.cut);
        let (down, all) = (task.rows.div_ceil(PANEL), tile_count(&task));
        (0..cut.pieces()).flat_map(move |number| {
            let (r, c) = cut.piece(number);
            let (i, j) = (task.i + r * cut.lines(at.rows), task.j + c * cut.lines(at.columns));
            let rows = task.rows.min((at.i + at.rows).saturating_sub(i));
            let columns = task.columns.min((at.j + at.columns).saturating_sub(j));
            // Column of tiles by column of tiles where the block ends above the last tiles.
            let width = if rows.div_ceil(PANEL) == down { task.columns } else { PANEL };
            let columns_of_tiles = (0..columns).step_by(width).filter(move |_| rows > 0);
            columns_of_tiles.map(move |first| {
                let part = Rectangle { i, j: j + first, rows, columns: width.min(columns - first) };
                (part, number * all + first / PANEL * down)
            })
        })
    }

    /// The flags of the tiles of a rectangle that is computed in a task.
    fn written(&self, task: usize, at: &Rectangle, first: usize) -> &[AtomicBool] {
        &self.room.written[task * self.room.tiles + first..][..tile_count(at)]
    }

    /// The tiles that are not complete.
    pub fn missing(&self) -> impl Iterator<Item = Rectangle> {
        let tasks = self.tasks();
        let all = (0..tasks.count).flat_map(move |task| {
            self.rectangles(tasks.rectangle(task)).map(move |(at, first)| (task, at, first))
        });
        all.flat_map(|(task, at, first)| {
            let written = self.written(task, &at, first);
            tiles(at).zip(written).filter(|(_, done)| !done.load(Ordering::Acquire)).map(|(tile, _)| tile)
        })
    }

    /// `b_holds` names what the panels of B hold: (first column, first element). It is kept from block to block.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    pub unsafe fn compute(
        &self,
        b_holds: &mut Option<(usize, usize)>,
        phases: &mut Phases,
    ) -> Result<(), Panicked> {
        let (run, at) = (self.run, self.at);
        let call = run.call;
        self.room.written.iter().for_each(|done| done.store(false, Ordering::Relaxed));
        for first in (0..call.k).step_by(self.blocks.length) {
            let count = self.blocks.span(first, call.k);
            let length = self.room.cut.length(count);
            let (a, b) =
                (self.room.a.with_length(run.kernels, length), self.room.b.with_length(run.kernels, length));
            let clock = Instant::now();
            let part = |side, operand, first_line, lines| {
                let view = self.planned.view.side(side);
                Part { side, operand, first_line, lines, first, count, view }
            };
            let rows = part(Side::Rows, &call.a, at.i, at.rows);
            let columns = part(Side::Columns, &call.b, at.j, at.columns);
            let parts = [(rows, a), (columns, b)];
            let needed = if *b_holds == Some((at.j, first)) { 1 } else { 2 };
            *b_holds = None;
            // SAFETY: A and B can be read by the contract of this function.
            unsafe {
                run.residues(self.planned, self.room.cut, &parts[..needed], &|seat| {
                    self.room.scratch.set(seat).cast()
                })?
            };
            *b_holds = Some((at.j, first));
            phases.residues += clock.elapsed();
            let clock = Instant::now();
            // SAFETY: by the contract of this function.
            unsafe { self.products(&a, &b, first > 0, first + count == call.k)? };
            phases.product += clock.elapsed();
        }
        Ok(())
    }

    /// The products of all tasks for the part of the inner dimension that is packed, and C after the last part.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`]; the panels are packed.
    unsafe fn products(&self, a: &Operands, b: &Operands, add: bool, last: bool) -> Result<(), Panicked> {
        let (room, run, moduli) = (self.room, self.run, self.planned.plan.moduli);
        let tasks = self.tasks();
        let next = AtomicUsize::new(0);
        let seats = run.threads.min(tasks.count);
        team::run(seats, seats, &|seat| {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks.count {
                    break;
                }
                let at = tasks.rectangle(task);
                let residues = room.residues.set(if room.by_task { task } else { seat });
                let (p, q) = ((at.i - self.at.i) / PANEL, (at.j - self.at.j) / PANEL);
                let size = (at.rows.div_ceil(PANEL), at.columns.div_ceil(PANEL));
                // SAFETY: by the contract of this function; the set of residues and the tiles of C belong to this task, the scratch
                // to this seat.
                unsafe {
                    if room.cut.levels == 0 {
                        run.multiply(moduli, (a.get(0), b.get(0)), (p, q), size, residues, add);
                    } else {
                        let both = (residues, room.scratch.set(seat));
                        run.multiply_pieces(moduli, room.cut, (a, b), ((p, q), size), both, add);
                    }
                    if !last {
                        continue;
                    }
                    for (at, first) in self.rectangles(at) {
                        let residues = residues.wrapping_add(first * moduli * TILE);
                        let written = self.written(task, &at, first);
                        self.reconstruct(run.kernels, at, residues, written);
                        if let Some(check) = self.check {
                            self.repair(check, at, residues, written);
                        }
                    }
                }
            }
        })
    }

    /// C of some tiles from their residues.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`]; the residues are there, as these kernels have made them.
    pub unsafe fn reconstruct(
        &self,
        kernels: &Kernels,
        at: Rectangle,
        residues: *const i8,
        written: &[AtomicBool],
    ) {
        let (plan, call) = (&self.planned.plan, self.run.call);
        let whole = Reconstruction {
            with: self.reconstruct,
            residues,
            moduli: plan.moduli,
            at,
            beta: call.beta,
            c: &call.c,
            rows: &plan.rows[at.i..][..at.rows],
            columns: &plan.columns[at.j..][..at.columns],
            written,
            check: self.check.map(|check| &check.peak),
        };
        if plan.out.count() == 0 {
            // SAFETY: by the contract of this function, here and below.
            unsafe { (kernels.reconstruct)(&whole) };
            return;
        }
        // Lines that the native BLAS computes are not touched: tiles that have some are made beside C.
        for (number, tile) in tiles(at).enumerate() {
            let is_out = |side, first: usize| self.planned.view.side(side).out(first / PANEL);
            let (rows_out, columns_out) = (is_out(Side::Rows, tile.i), is_out(Side::Columns, tile.j));
            let stays = |out: u32, l: usize| out >> l & 1 == 0;
            let rows = &plan.rows[tile.i..][..tile.rows];
            let columns = &plan.columns[tile.j..][..tile.columns];
            let residues = whole.tile_residues(number);
            if rows_out == 0 && columns_out == 0 {
                let written = &written[number..=number];
                let tile = Reconstruction { residues, at: tile, rows, columns, written, ..whole };
                unsafe { (kernels.reconstruct)(&tile) };
                continue;
            }
            let mut beside = [0.0; TILE];
            for j in 0..tile.columns {
                let column = &mut beside[j * PANEL..][..tile.rows];
                // Where the native BLAS computes, C may hold what must not be computed with.
                if call.beta != 0.0 && stays(columns_out, j) {
                    unsafe { read_column(&call.c, tile.i, tile.j + j, column) };
                    let out = column.iter_mut().enumerate().filter(|(i, _)| !stays(rows_out, *i));
                    out.for_each(|(_, c)| *c = 0.0);
                }
            }
            let c = MatMut::own(beside.as_mut_ptr(), tile.rows, tile.columns, PANEL);
            let own = Rectangle { i: 0, j: 0, ..tile };
            let unseen = [AtomicBool::new(false)];
            let part = Reconstruction { residues, at: own, c: &c, rows, columns, written: &unseen, ..whole };
            unsafe { (kernels.reconstruct)(&part) };
            if !unseen[0].load(Ordering::Relaxed) {
                continue;
            }
            for j in (0..tile.columns).filter(|&j| stays(columns_out, j)) {
                for i in (0..tile.rows).filter(|&i| stays(rows_out, i)) {
                    unsafe { write_column(&call.c, tile.i + i, tile.j + j, &beside[j * PANEL + i..][..1]) };
                }
            }
            written[number].store(true, Ordering::Release);
        }
    }
}

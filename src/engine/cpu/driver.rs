//! The walk of an emulated call on the CPU: scan, bound, plan, then block by block residues, product, reduce, reconstruct.
//!
//! All sums are exact integers, so the result does not depend on blocks or threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::blocks::{Blocks, Packed, Tasks, rectangles, residue_bytes, tile_count, tiles};
use super::check::Check;
use super::kernels::{Kernels, PANEL, Pass, Reconstruction, Side, TILE};
use super::packing::{read_column, write_column};
use super::parts::{GROUP, Part};
use super::strassen::{Cut, GRANULES, Operands};
use super::team::{self, Panicked};
use super::view::View;
use super::workspace::{Arena, Charge, DEFAULT_BYTES, empty, piece_bytes};
use crate::engine::{Outcome, Phases, Report, Settings};
use crate::gemm::{Gemm, MatMut, Rectangle};
use crate::ozaki::moduli::crt;
use crate::ozaki::plan::{NoPlan, Plan};
use crate::ozaki::reconstruct::Reconstruct;
use crate::route::Reason;

/// Below this many 8-bit multiplications another thread costs more than it brings.
const WORTH_A_TEAM: u64 = 4_000_000;

/// Packed residues of more bytes than this are streamed to memory: some times what second caches hold.
const STREAMED: usize = 96 << 20;

impl From<Panicked> for Reason {
    fn from(_: Panicked) -> Self {
        Self::EngineFault
    }
}

impl From<NoPlan> for Reason {
    fn from(none: NoPlan) -> Self {
        match none {
            NoPlan::Range => Self::Range,
            NoPlan::NotProvable => Self::NotProvable,
            NoPlan::NotFinite => Self::NonFinite,
        }
    }
}

/// A call on its way.
pub struct Run<'a> {
    pub kernels: &'static Kernels,
    pub call: &'a Gemm,
    pub settings: &'a Settings,
    pub threads: usize,
}

/// What the plan stage leaves for the computation.
pub struct Planned {
    pub plan: Plan,
    /// The largest T + 1 that is proved (None in the modes that prove nothing).
    pub bound: Option<f64>,
    /// The exponents e of the rows and columns in the view: |x| < 2^e.
    pub exponents: (Vec<i32>, Vec<i32>),
    pub view: View,
    pub phases: Phases,
    /// Memory came fresh from the system.
    pub fresh: bool,
}

impl Planned {
    /// For a panel of a part what the kernels multiply its lines by, and a bound for the bits of the results.
    pub fn shifts(&self, part: &Part, p: usize) -> ([i32; PANEL], i32) {
        let (scales, exponents) = match part.side {
            Side::Rows => (&self.plan.rows, &self.exponents.0),
            Side::Columns => (&self.plan.columns, &self.exponents.1),
        };
        let (mut shifts, lines) = ([0; PANEL], part.lines_of(p));
        for (s, l) in shifts.iter_mut().zip(lines.clone()) {
            *s = part.view.shift(l, scales[l]);
        }
        let bits = shifts.iter().zip(&exponents[lines]).map(|(s, e)| s + e).max().unwrap_or(0);
        (shifts, bits)
    }
}

/// # Safety
///
/// As for [`crate::engine::Engine::gemm`]; the CPU can run the kernels.
pub unsafe fn gemm(kernels: &'static Kernels, call: &Gemm, settings: &Settings) -> Outcome {
    let run = Run::new(kernels, call, settings);
    // SAFETY: passed on from the caller, here and below.
    match unsafe { run.plan() } {
        Ok(planned) => unsafe { run.compute(planned) },
        Err(reason) => Outcome::Declined(reason),
    }
}

/// # Safety
///
/// A and B of the call can be read; the CPU can run the kernels.
pub unsafe fn plan(
    kernels: &'static Kernels,
    call: &Gemm,
    settings: &Settings,
) -> Result<(Plan, Option<f64>), Reason> {
    // SAFETY: passed on from the caller.
    unsafe { Run::new(kernels, call, settings).plan().map(|planned| (planned.plan, planned.bound)) }
}

impl<'a> Run<'a> {
    pub fn new(kernels: &'static Kernels, call: &'a Gemm, settings: &'a Settings) -> Self {
        let small = call.multiplications().saturating_mul(settings.moduli as u64) <= WORTH_A_TEAM;
        let threads = if small { 1 } else { settings.threads };
        Self { kernels, call, settings, threads }
    }

    pub fn limit(&self) -> usize {
        self.settings.workspace.unwrap_or(DEFAULT_BYTES)
    }

    pub fn charge(&self, bytes: usize) -> Result<Charge, Reason> {
        Charge::take(bytes, self.limit())
    }

    /// The residues of both operands for a block of C, those of B unless they are there already.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn residues(
        &self,
        planned: &Planned,
        cut: Cut,
        parts: &[(Part, Operands)],
    ) -> Result<(), Panicked> {
        let groups = |part: &Part| Part { lines: cut.lines(part.lines), ..*part }.groups();
        team::run(self.threads, parts.iter().map(|(part, _)| groups(part)).sum(), &|mut group| {
            for (part, operands) in parts {
                if group >= groups(part) {
                    group -= groups(part);
                    continue;
                }
                // SAFETY: by the contract of this function; no other task has these panels.
                unsafe {
                    match cut.levels {
                        0 => self.pack(planned, part, &operands.get(0), group),
                        _ => self.pack_operands(planned, part, cut, operands, group),
                    }
                }
                return;
            }
        })
    }

    /// The residues of a group of panels.
    ///
    /// # Safety
    ///
    /// The matrix can be read, and nobody else uses the panels.
    pub unsafe fn pack(&self, planned: &Planned, part: &Part, packed: &Packed, group: usize) {
        let moduli = planned.plan.moduli;
        let panels = part.panels(group);
        let mut of_panels = [([0; PANEL], 0); GROUP];
        for (of_panel, p) in of_panels.iter_mut().zip(panels.clone()) {
            *of_panel = planned.shifts(part, p);
        }
        // SAFETY: by the contract of this function.
        unsafe {
            self.for_each_chunk(part, panels.clone(), |p, chunk, at| {
                let (s, bits) = &of_panels[p - panels.start];
                (self.kernels.residues)(part.side, chunk, s, *bits, moduli, packed.place(0, p, at));
            });
        }
    }

    /// The residues of the products of a block of tiles, whose first panels are p and q: modulus by modulus, so that the rows of one
    /// modulus stay in the cache.
    ///
    /// # Safety
    ///
    /// The panels are packed, and nobody else uses the residues.
    pub unsafe fn multiply(
        &self,
        moduli: usize,
        (a, b): (Packed, Packed),
        (p, q): (usize, usize),
        (down, across): (usize, usize),
        residues: *mut i8,
        add: bool,
    ) {
        let kernels = self.kernels;
        let crt = crt(moduli);
        let depth = (kernels.blocking)(a.length).depth;
        for first in (0..a.length).step_by(depth) {
            let count = depth.min(a.length - first);
            let offset = |side| (kernels.element_at)(side, a.length, 0, first) * kernels.element;
            for l in 0..moduli {
                let rows = |l: usize| a.panel(l, p).wrapping_add(offset(Side::Rows)).cast_const();
                let columns = |l: usize| b.panel(l, q).wrapping_add(offset(Side::Columns)).cast_const();
                let pass = Pass {
                    rows: rows(l),
                    columns: columns(l),
                    panel: a.panel,
                    length: a.length,
                    count,
                    down,
                    across,
                    modulus: l,
                    factor: crt.inverses[l],
                    residues: residues.wrapping_add(l * TILE),
                    tile: moduli * TILE,
                    add: add || first > 0,
                    next_rows: rows(l + 1),
                    next_columns: columns(l + 1),
                };
                // SAFETY: by the contract of this function.
                unsafe { (kernels.pass)(&pass) };
            }
        }
    }

    /// The emulated product, block by block. Nothing can fail for want of memory after the first write to C.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    unsafe fn compute(&self, planned: Planned) -> Outcome {
        let call = self.call;
        let Planned { plan, bound, .. } = &planned;
        let (moduli, way, bound) = (plan.moduli, plan.way, *bound);
        let (blocks, room) = match self.blocks(moduli) {
            Ok(room) => room,
            Err(reason) => return Outcome::Declined(reason),
        };
        let reconstruct = Reconstruct::new(crt(moduli), call.alpha);
        let all = rectangles(call.m, call.n, (blocks.rows, blocks.columns));
        let mut b_holds = None;
        let mut phases = planned.phases;
        let check = self.settings.check.then(Check::default);
        let report = |out, phases, fresh| Report {
            moduli,
            way,
            bound,
            out,
            phases,
            fresh,
            checked: check.as_ref().map(Check::outcome),
            strassen: room.cut.levels,
        };
        for (number, at) in all.clone().enumerate() {
            let block = Block {
                run: self,
                planned: &planned,
                reconstruct: &reconstruct,
                check: check.as_ref(),
                at,
                blocks: &blocks,
                room: &room,
            };
            // A panic must not get past here: the caller would not know which tiles are written.
            // SAFETY: by the contract of this function.
            let computed =
                catch_unwind(AssertUnwindSafe(|| unsafe { block.compute(&mut b_holds, &mut phases) }));
            let reason = match computed {
                Ok(Ok(())) if check.as_ref().is_none_or(|check| !check.is_hopeless()) => None,
                Ok(Ok(())) => Some(Reason::FailedCheck),
                _ => Some(Reason::EngineFault),
            };
            if let Some(reason) = reason {
                // What is missing: the tiles of this block that are not written, and all later blocks.
                let missing = block.missing().chain(all.skip(number + 1));
                let out = &planned.plan.out;
                let rest = missing.flat_map(|part| part.without(&out.rows, &out.columns)).collect();
                return Outcome::Partial(report(planned.plan.out, phases, true), reason, rest);
            }
        }
        let fresh = planned.fresh || room.arena.fresh;
        room.arena.keep();
        Outcome::Done(report(planned.plan.out, phases, fresh))
    }

    /// The largest blocks that there is room for, with as many levels of Strassen's form as are wanted, or fewer.
    fn blocks(&self, moduli: usize) -> Result<(Blocks, Room), Reason> {
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
        let scratch = cut.scratch_bytes(tasks.most_tiles());
        let operands = |lines| Operands::bytes(cut, kernels, lines, length, moduli);
        let overflow = || {
            let elements = (rows + columns).checked_mul(length)?.checked_mul(cut.operands())?;
            let packed = elements.checked_mul(moduli * kernels.element)?;
            packed.checked_add(task.checked_mul(sets)?)?.checked_add(scratch.checked_mul(seats)?)
        };
        overflow().ok_or(Reason::NoMemory)?;
        let (a_bytes, b_bytes) = (operands(rows), operands(columns));
        let (residues, scratch) = (piece_bytes(task), piece_bytes(scratch));
        let bytes = piece_bytes(a_bytes) + piece_bytes(b_bytes) + sets * residues + seats * scratch;
        let arena = Arena::take(bytes, self.limit())?;
        let mut pieces = arena.pieces();
        let (a, b) = (pieces.next(a_bytes), pieces.next(b_bytes));
        let mut written = empty(tasks.count * tiles)?;
        written.resize_with(tasks.count * tiles, || AtomicBool::new(false));
        // What Strassen's form combines is read again at once.
        let stream = cut.levels == 0 && a_bytes + b_bytes >= STREAMED;
        Ok(Room {
            cut,
            a: Operands::new(a, kernels, rows, length, moduli).streamed(stream),
            b: Operands::new(b, kernels, columns, length, moduli).streamed(stream),
            residues: Residues { start: pieces.next(sets * residues).cast(), set: residues },
            scratch: Residues { start: pieces.next(seats * scratch).cast(), set: scratch },
            by_task,
            tasks,
            tiles,
            written,
            arena,
        })
    }
}

/// The residues of products: one set for each task, or thread, that is in work.
struct Residues {
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
struct Room {
    cut: Cut,
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
    arena: Box<Arena>,
}

/// One block of C on its way through residues, product, reduce and reconstruct.
pub struct Block<'a> {
    pub run: &'a Run<'a>,
    pub planned: &'a Planned,
    reconstruct: &'a Reconstruct,
    pub check: Option<&'a Check>,
    at: Rectangle,
    blocks: &'a Blocks,
    room: &'a Room,
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
    fn missing(&self) -> impl Iterator<Item = Rectangle> {
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
    unsafe fn compute(
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
            unsafe { run.residues(self.planned, self.room.cut, &parts[..needed])? };
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

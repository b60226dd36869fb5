//! The walk of an emulated call on the CPU: scan, bound, plan, then block by block residues, product, reduce, reconstruct.
//!
//! All sums are exact integers, so the result does not depend on blocks or threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::blocks::{Blocks, plane, rectangles, span, tile_panels, tiles};
use super::bound::BoundProduct;
use super::kernels::{Kernels, PANEL, TILE};
use super::packing::{GROUP, Gathered, RUN, gather, read_column, write_column};
use super::team::{self, Panicked};
use super::workspace::{Charge, DEFAULT_BYTES, vector};
use crate::engine::{Outcome, Report, Settings};
use crate::gemm::{Gemm, Lines, Rectangle};
use crate::options::Mode;
use crate::ozaki::bound::Line;
use crate::ozaki::moduli::crt;
use crate::ozaki::plan::{self, NoPlan, Plan};
use crate::ozaki::reconstruct::Reconstruct;
use crate::ozaki::scan::Scan;
use crate::ozaki::wide::Magnitude;
use crate::route::Reason;

/// Below this many 8-bit multiplications another thread costs more than it brings.
const WORTH_A_TEAM: u64 = 4_000_000;

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
        }
    }
}

/// Writes elements of a line (its number, the elements, where to) to packed panels.
pub type Fill<'a> = dyn Fn(usize, &[f64], &mut [i16]) + Sync + 'a;

/// A call on its way.
pub struct Run<'a> {
    pub kernels: &'static Kernels,
    pub call: &'a Gemm,
    settings: &'a Settings,
    pub threads: usize,
}

impl<'a> Run<'a> {
    fn new(kernels: &'static Kernels, call: &'a Gemm, settings: &'a Settings) -> Self {
        let small = call.multiplications().saturating_mul(settings.moduli as u64) <= WORTH_A_TEAM;
        let threads = if small { 1 } else { settings.threads };
        Self { kernels, call, settings, threads }
    }
}

/// # Safety
///
/// As for [`crate::engine::Engine::gemm`].
pub unsafe fn gemm(kernels: &'static Kernels, call: &Gemm, settings: &Settings) -> Outcome {
    let run = Run::new(kernels, call, settings);
    // SAFETY: passed on from the caller, here and below.
    match unsafe { run.plan() } {
        Ok((plan, bound)) => unsafe { run.compute(&plan, bound) },
        Err(reason) => Outcome::Declined(reason),
    }
}

/// # Safety
///
/// A and B of the call can be read.
pub unsafe fn plan(kernels: &'static Kernels, call: &Gemm, settings: &Settings) -> Result<Plan, Reason> {
    // SAFETY: passed on from the caller.
    unsafe { Run::new(kernels, call, settings).plan().map(|(plan, _)| plan) }
}

impl Run<'_> {
    pub fn charge(&self, bytes: usize) -> Result<Charge, Reason> {
        Charge::take(bytes, self.settings.workspace.unwrap_or(DEFAULT_BYTES))
    }

    /// Calls f(line, its first element, elements) for all elements of the given lines, in parts of at most RUN.
    ///
    /// # Safety
    ///
    /// The matrix can be read.
    unsafe fn read_lines(
        lines: &Lines,
        (first_line, count): (usize, usize),
        (first, length): (usize, usize),
        mut f: impl FnMut(usize, usize, &[f64]),
    ) {
        let mut values: Gathered = [[0.0; RUN]; GROUP];
        for group in (0..count).step_by(GROUP) {
            let height = GROUP.min(count - group);
            for at in (0..length).step_by(RUN) {
                let width = RUN.min(length - at);
                // SAFETY: the callers name lines and elements that exist.
                unsafe { gather(lines, first_line + group, height, first + at, width, &mut values) };
                for (l, row) in values[..height].iter().enumerate() {
                    f(group + l, at, &row[..width]);
                }
            }
        }
    }

    /// Scan and the sums of step bound, for every line of an operand.
    ///
    /// # Safety
    ///
    /// The matrix can be read.
    unsafe fn lines(&self, operand: &Lines) -> Result<Vec<Line>, Reason> {
        let mut scans = vector(operand.count, Scan::EMPTY)?;
        team::for_each_chunk(self.threads, &mut scans, PANEL, &|panel, scans| {
            let range = (panel * PANEL, scans.len());
            // SAFETY: by the contract of this function.
            unsafe {
                Self::read_lines(operand, range, (0, operand.length), |l, _, values| {
                    scans[l] = scans[l].merge((self.kernels.scan)(values));
                });
            }
        })?;
        if scans.iter().any(|scan| !scan.is_finite()) {
            return Err(Reason::NonFinite);
        }
        let mut lines = vector(operand.count, Line::new(&Scan::EMPTY))?;
        lines.iter_mut().zip(&scans).for_each(|(line, scan)| *line = Line::new(scan));
        team::for_each_chunk(self.threads, &mut lines, PANEL, &|panel, lines| {
            let range = (panel * PANEL, lines.len());
            // SAFETY: by the contract of this function.
            unsafe {
                Self::read_lines(operand, range, (0, operand.length), |l, _, values| lines[l].add(values));
            }
        })?;
        Ok(lines)
    }

    /// The plan, and the largest T + 1 that it proves (None in the modes that prove nothing).
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn plan(&self) -> Result<(Plan, Option<f64>), Reason> {
        #[cfg(test)]
        super::workspace::faults::panic_if_planned();
        let call = self.call;
        let per_line = size_of::<Line>() + size_of::<Scan>() + size_of::<i32>() + size_of::<u64>();
        let _charge = self.charge((call.m + call.n) * per_line)?;
        // SAFETY: by the contract of this function.
        let (a, b) = unsafe { (self.lines(&call.a)?, self.lines(&call.b)?) };
        let (rows, columns) = (vector(call.m, 0)?, vector(call.n, 0)?);
        let moduli = self.settings.moduli;
        match self.settings.mode {
            Mode::Fast => Ok((plan::fast(moduli, &a, &b, rows, columns)?, None)),
            Mode::Accurate => {
                let (mut row_maxima, mut column_maxima) = (vector(call.m, 0)?, vector(call.n, 0)?);
                // SAFETY: by the contract of this function.
                unsafe { BoundProduct::new(self, &a, &b)? }.for_each(|at, bounds| {
                    let (rows, columns) = (at.i..at.i + at.rows, at.j..at.j + at.columns);
                    bounds.raise_maxima(&mut row_maxima[rows], &mut column_maxima[columns]);
                })?;
                let maxima = (row_maxima.as_slice(), column_maxima.as_slice());
                Ok((plan::accurate(moduli, &a, &b, maxima, rows, columns)?, None))
            }
            // SAFETY: by the contract of this function.
            Mode::Auto | Mode::Native => unsafe { self.certified(&a, &b, rows, columns) },
        }
    }

    /// Mode auto: steps 1 to 4 of NUMERICS section 3.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn certified(
        &self,
        a: &[Line],
        b: &[Line],
        mut row_needs: Vec<i32>,
        mut column_needs: Vec<i32>,
    ) -> Result<(Plan, Option<f64>), Reason> {
        // SAFETY: by the contract of this function.
        let mut product = unsafe { BoundProduct::new(self, a, b)? };
        product.for_each(|at, bounds| {
            let (rows, columns) = (at.i..at.i + at.rows, at.j..at.j + at.columns);
            // SAFETY: by the contract of this function.
            let meet = |i: usize, j: usize| unsafe { self.meet(at.i + i, at.j + j) };
            bounds.raise_needs(
                self.settings.accuracy,
                &mut row_needs[rows],
                &mut column_needs[columns],
                meet,
            );
        })?;
        plan::cap_needs(&mut row_needs, a);
        plan::cap_needs(&mut column_needs, b);
        let mut largest = Magnitude::NONE;
        product.for_each(|at, bounds| {
            let (rows, columns) = (at.i..at.i + at.rows, at.j..at.j + at.columns);
            largest = largest.max(bounds.largest(&row_needs[rows], &column_needs[columns]));
        })?;
        let most = |lines: &[Line]| lines.iter().map(|line| line.nonzeros).max().unwrap_or(0);
        let promise = self.settings.accuracy.promise(most(a).min(most(b)));
        Ok((plan::auto(self.settings.moduli, a, b, largest, row_needs, column_needs)?, Some(promise)))
    }

    /// Do row i of op(A) and column j of op(B) have a nonzero at the same place?
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn meet(&self, i: usize, j: usize) -> bool {
        let (mut x, mut y): (Gathered, Gathered) = ([[0.0; RUN]; GROUP], [[0.0; RUN]; GROUP]);
        (0..self.call.k).step_by(RUN).any(|h| {
            let count = RUN.min(self.call.k - h);
            // SAFETY: i and j are lines of the operands.
            unsafe {
                gather(&self.call.a, i, 1, h, count, &mut x);
                gather(&self.call.b, j, 1, h, count, &mut y);
            }
            x[0][..count].iter().zip(&y[0]).any(|(&x, &y)| x != 0.0 && y != 0.0)
        })
    }

    /// Packs lines first_line.. of an operand: panel p of `out` holds, for each plane, PANEL lines of `length` elements.
    /// `fill(line, elements, out)` writes those of the first plane to `out` and the others at multiples of the plane size.
    ///
    /// # Safety
    ///
    /// The matrix can be read.
    pub unsafe fn pack(
        &self,
        operand: &Lines,
        (first_line, count): (usize, usize),
        (first, length): (usize, usize),
        planes: usize,
        out: &mut [i16],
        fill: &Fill,
    ) -> Result<(), Panicked> {
        let panels = count.div_ceil(PANEL);
        let panel_size = planes * PANEL * length;
        team::for_each_chunk(self.threads, &mut out[..panels * panel_size], panel_size, &|p, panel| {
            let lines = PANEL.min(count - p * PANEL);
            // SAFETY: by the contract of this function.
            unsafe {
                Self::read_lines(
                    operand,
                    (first_line + p * PANEL, lines),
                    (first, length),
                    |l, at, values| {
                        fill(first_line + p * PANEL + l, values, &mut panel[l * length + at..]);
                    },
                );
            }
        })
    }

    /// The emulated product, block by block. Nothing can fail for want of memory after the first write to C.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    unsafe fn compute(&self, plan: &Plan, bound: Option<f64>) -> Outcome {
        let (call, moduli) = (self.call, plan.moduli);
        let report = Report { moduli, bound };
        let room = Blocks::largest(call.m, call.n, call.k).fit(moduli, moduli, |blocks, bytes| {
            let charge = self.charge(bytes)?;
            let a = vector(blocks.panel_elements(blocks.rows, moduli), 0i16)?;
            let b = vector(blocks.panel_elements(blocks.columns, moduli), 0i16)?;
            let residues = vector(blocks.tiles() * moduli * TILE, 0i8)?;
            let mut written = Vec::new();
            written.try_reserve_exact(blocks.tiles()).map_err(|_| Reason::NoMemory)?;
            written.resize_with(blocks.tiles(), || AtomicBool::new(false));
            Ok((charge, a, b, residues, written))
        });
        let (blocks, (_charge, mut a, mut b, mut residues, written)) = match room {
            Ok(room) => room,
            Err(reason) => return Outcome::Declined(reason),
        };
        let reconstruct = Reconstruct::new(crt(moduli), call.alpha);
        let all = rectangles(call.m, call.n, &blocks);
        let mut b_holds = None;
        for (number, at) in all.clone().enumerate() {
            let mut block = Block {
                run: self,
                plan,
                reconstruct: &reconstruct,
                at,
                blocks: &blocks,
                a: &mut a,
                b: &mut b,
                residues: &mut residues,
                written: &written,
            };
            // A panic must not get past here: the caller would not know which tiles are written.
            // SAFETY: by the contract of this function.
            let computed = catch_unwind(AssertUnwindSafe(|| unsafe { block.compute(&mut b_holds) }));
            if !matches!(computed, Ok(Ok(()))) {
                // What is missing: the tiles of this block that are not written, and all later blocks.
                let missing = tiles(at).zip(&written).filter(|(_, done)| !done.load(Ordering::Acquire));
                let rest: Vec<Rectangle> =
                    missing.map(|(tile, _)| tile).chain(all.skip(number + 1)).collect();
                return Outcome::Partial(report, Reason::EngineFault, rest);
            }
        }
        Outcome::Done(report)
    }
}

/// One block of C on its way through residues, product, reduce and reconstruct.
struct Block<'a> {
    run: &'a Run<'a>,
    plan: &'a Plan,
    reconstruct: &'a Reconstruct,
    at: Rectangle,
    blocks: &'a Blocks,
    a: &'a mut [i16],
    b: &'a mut [i16],
    residues: &'a mut [i8],
    written: &'a [AtomicBool],
}

impl Block<'_> {
    /// `b_holds` names what the panels of B hold: (first column, first element). It is kept from block to block.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    unsafe fn compute(&mut self, b_holds: &mut Option<(usize, usize)>) -> Result<(), Panicked> {
        let (run, at, moduli) = (self.run, self.at, self.plan.moduli);
        let call = run.call;
        let tile_count = at.rows.div_ceil(PANEL) * at.columns.div_ceil(PANEL);
        self.written[..tile_count].iter().for_each(|done| done.store(false, Ordering::Relaxed));
        self.residues.fill(0);
        for first in (0..call.k).step_by(self.blocks.length) {
            let length = span(first, self.blocks, call.k);
            let last = first + length == call.k;
            let stride = PANEL * length;
            let (s, t) = (&self.plan.rows, &self.plan.columns);
            let residues = run.kernels.residues;
            // SAFETY: A and B can be read by the contract of this function.
            unsafe {
                run.pack(&call.a, (at.i, at.rows), (first, length), moduli, self.a, &|i, values, out| {
                    residues(values, s[i], moduli, stride, out);
                })?;
                if *b_holds != Some((at.j, first)) {
                    *b_holds = None;
                    run.pack(
                        &call.b,
                        (at.j, at.columns),
                        (first, length),
                        moduli,
                        self.b,
                        &|j, values, out| {
                            residues(values, t[j], moduli, stride, out);
                        },
                    )?;
                    *b_holds = Some((at.j, first));
                }
            }
            let (a, b) = (&*self.a, &*self.b);
            let (plan, reconstruct, written) = (self.plan, self.reconstruct, self.written);
            let chunk = moduli * TILE;
            team::for_each_chunk(
                run.threads,
                &mut self.residues[..tile_count * chunk],
                chunk,
                &|tile, residues| {
                    let (p, q, rows, columns) = tile_panels(at, tile);
                    for (l, residues) in residues.chunks_exact_mut(TILE).enumerate() {
                        let mut sums = [0; TILE];
                        let (a, b) =
                            (plane(a, moduli, length, p, l, rows), plane(b, moduli, length, q, l, columns));
                        (run.kernels.product)(a, b, length, &mut sums);
                        (run.kernels.reduce)(&sums, l, residues);
                    }
                    if last {
                        let part = Rectangle { i: at.i + p * PANEL, j: at.j + q * PANEL, rows, columns };
                        // SAFETY: this tile of C belongs to this task alone, by the contract of this function.
                        unsafe { write_tile(run, plan, reconstruct, part, residues) };
                        written[tile].store(true, Ordering::Release);
                    }
                },
            )?;
        }
        Ok(())
    }
}

/// Reconstructs a tile and writes it, complete. Nothing can fail between its first and its last write.
///
/// # Safety
///
/// C can be read and written in this tile, and nobody else uses the tile.
unsafe fn write_tile(run: &Run, plan: &Plan, with: &Reconstruct, at: Rectangle, residues: &[i8]) {
    let call = run.call;
    let add = call.beta != 0.0;
    let mut out = [0.0; TILE];
    for j in 0..at.columns {
        let column = &mut out[j * PANEL..][..at.rows];
        if add {
            // SAFETY: by the contract of this function.
            unsafe { read_column(&call.c, at.i, at.j + j, column) };
            column.iter_mut().for_each(|c| *c *= call.beta);
        }
        let rows = &plan.rows[at.i..][..at.rows];
        (run.kernels.reconstruct)(with, &residues[j * PANEL..], rows, plan.columns[at.j + j], add, column);
    }
    for j in 0..at.columns {
        // SAFETY: by the contract of this function.
        unsafe { write_column(&call.c, at.i, at.j + j, &out[j * PANEL..][..at.rows]) };
    }
}

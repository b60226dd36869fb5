//! The plan on the CPU: scan and magnitudes of every line, the bound product, and what the plan needs of it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use super::blocks::{Blocks, MOST_LENGTH, Packed, Tasks, rectangles, tiles};
use super::driver::{GROUP, Part, Planned, Run};
use super::kernels::{Blocking, CACHE_LINE, DEPTH, LineSums, PANEL, Side, Stream, TILE, Tile};
use super::team::{self, Panicked, Shared};
use super::workspace::{Arena, empty, piece_bytes, vector};
use crate::engine::Phases;
use crate::gemm::{Lines, Rectangle};
use crate::options::Mode;
use crate::ozaki::bound::Line;
use crate::ozaki::plan::{self, Bounds, Entries, LineTable};
use crate::ozaki::scan::Scan;
use crate::route::Reason;

/// A product over more elements than this is kept for its second use.
const KEPT_FROM: usize = 1024;
/// And so is a product of at most so many entries.
const CACHED_ENTRIES: usize = 1 << 20;

/// Bytes of the rows of a task, for second caches of a megabyte and more.
const ROWS_BYTES: usize = 512 << 10;

/// What is done with a tile of the bound product; entry (i, j) is `g[j * PANEL + i]`.
type Visit<'a> = dyn Fn(Rectangle, Entries) + Sync + 'a;

impl Run<'_> {
    /// # Safety
    ///
    /// A and B can be read; the CPU can run the kernels.
    pub unsafe fn plan(&self) -> Result<Planned, Reason> {
        #[cfg(test)]
        super::workspace::faults::panic_if_planned();
        let call = self.call;
        let per_line = size_of::<Line>() + size_of::<Scan>() + LineTable::BYTES + 4 * size_of::<i64>();
        let _charge = self.charge((call.m + call.n).saturating_mul(per_line))?;
        let mut phases = Phases::default();
        let clock = Instant::now();
        let mut product = BoundProduct::new(self)?;
        // SAFETY: by the contract of this function.
        let (a, b) = unsafe { product.lines()? };
        phases.scan = clock.elapsed();
        let clock = Instant::now();
        let exponents = (exponents(&a)?, exponents(&b)?);
        let (rows, columns) = (vector(call.m, 0)?, vector(call.n, 0)?);
        let moduli = self.settings.moduli;
        let (plan, bound) = match self.settings.mode {
            Mode::Fast => (plan::fast(moduli, &a, &b, rows, columns)?, None),
            // SAFETY: by the contract of this function.
            Mode::Accurate => unsafe {
                let (row_maxima, column_maxima) = product.maxima(&a, &b)?;
                (plan::accurate(moduli, &a, &b, (&row_maxima, &column_maxima), rows, columns)?, None)
            },
            // SAFETY: by the contract of this function.
            Mode::Auto | Mode::Native => unsafe {
                let (plan, promise) = product.certified(&a, &b, rows, columns)?;
                (plan, Some(promise))
            },
        };
        let fresh = product.whole.as_ref().is_some_and(|whole| whole.arena.fresh);
        if let Some(whole) = product.whole {
            whole.arena.keep();
        }
        phases.bound = clock.elapsed();
        Ok(Planned { plan, bound, exponents, phases, fresh })
    }
}

fn exponents(lines: &[Line]) -> Result<Vec<i32>, Reason> {
    let mut out = empty(lines.len())?;
    out.extend(lines.iter().map(|line| line.exponent));
    Ok(out)
}

/// The magnitudes of all lines, packed, where they fit into the workspace; and the product of them after the first pass, if it
/// fits too.
struct Whole {
    a: Packed,
    b: Packed,
    /// G tile by tile: sums of at most 2^16 products fit 32 bits.
    kept: Option<Kept>,
    arena: Box<Arena>,
}

/// The bound product G = A~ B~, tile by tile.
struct BoundProduct<'a> {
    run: &'a Run<'a>,
    whole: Option<Whole>,
    /// G has been computed and kept.
    computed: bool,
}

impl<'a> BoundProduct<'a> {
    fn new(run: &'a Run<'a>) -> Result<Self, Reason> {
        let (m, n) = (run.call.m.next_multiple_of(PANEL), run.call.n.next_multiple_of(PANEL));
        let length = run.call.k.next_multiple_of(DEPTH);
        let kernels = run.kernels;
        let bytes = |lines: usize| Packed::bytes(kernels, lines, length, 1);
        let whole = |keeps: bool| {
            if run.settings.mode == Mode::Fast || length > MOST_LENGTH {
                return None;
            }
            m.checked_add(n)?.checked_mul(2 * length)?; // `bytes` cannot overflow
            let g = if keeps { m.checked_mul(n)?.checked_mul(size_of::<i32>())? } else { 0 };
            let (a, b) = (piece_bytes(bytes(m)), piece_bytes(bytes(n)));
            let arena = Arena::take(a.checked_add(b)?.checked_add(g)?, run.limit()).ok()?;
            let mut pieces = arena.pieces();
            let (a, b) = (pieces.next(a), pieces.next(b));
            Some(Whole {
                a: Packed::new(a, kernels, m, length),
                b: Packed::new(b, kernels, n, length),
                kept: keeps.then(|| Kept(pieces.next(g).cast())),
                arena,
            })
        };
        // To compute a tile of a short product again takes less time than to fetch it from memory, unless a cache holds all.
        let keeps = length > KEPT_FROM || m.saturating_mul(n) <= CACHED_ENTRIES;
        Ok(Self { run, whole: whole(keeps).or_else(|| whole(false)), computed: false })
    }

    /// The statistics of every line; the magnitudes are packed on the way if there is room for all.
    ///
    /// # Safety
    ///
    /// A and B can be read, here and below.
    unsafe fn lines(&mut self) -> Result<(Vec<Line>, Vec<Line>), Reason> {
        let call = self.run.call;
        let empty_line = Line::new(&Scan::EMPTY);
        let (mut a, mut b) = (vector(call.m, empty_line)?, vector(call.n, empty_line)?);
        let (packed_a, packed_b) = self.whole.as_ref().map(|whole| (whole.a, whole.b)).unzip();
        let part = |side, operand: &'a Lines| Part {
            side,
            operand,
            first_line: 0,
            lines: operand.count,
            first: 0,
            count: operand.length,
        };
        let (of_a, of_b) = (part(Side::Rows, &call.a), part(Side::Columns, &call.b));
        let (rows, columns) = (Shared::new(&mut a), Shared::new(&mut b));
        let finite = AtomicBool::new(true);
        team::run(self.run.threads, of_a.groups() + of_b.groups(), &|group| {
            let (part, packed, out, group) = match group.checked_sub(of_a.groups()) {
                None => (&of_a, packed_a, &rows, group),
                Some(group) => (&of_b, packed_b, &columns, group),
            };
            // SAFETY: by the contract of this function; each task has lines of its own.
            if !unsafe { self.panels(part, part.panels(group), packed, out) } {
                finite.store(false, Ordering::Relaxed);
            }
        })?;
        if !finite.into_inner() {
            return Err(Reason::NonFinite);
        }
        Ok((a, b))
    }

    /// The statistics of some panels; false if they have elements that are not finite. The elements are read twice, the second time
    /// out of a cache.
    ///
    /// # Safety
    ///
    /// The operand can be read, and nobody else writes the panels and the statistics of their lines.
    unsafe fn panels(
        &self,
        part: &Part,
        panels: Range<usize>,
        packed: Option<Packed>,
        out: &Shared<Line>,
    ) -> bool {
        let run = self.run;
        let own = |p: usize| p - panels.start;
        let mut scans = [[Scan::EMPTY; PANEL]; GROUP];
        // SAFETY: by the contract of this function.
        unsafe {
            run.for_each_chunk(part, panels.clone(), |p, chunk, _| {
                (run.kernels.scan)(chunk, &mut scans[own(p)]);
            });
        }
        if !scans.iter().flatten().all(Scan::is_finite) {
            return false;
        }
        let exponents = scans.map(|scans| scans.map(|scan| scan.exponent()));
        let mut totals = [[(0, 0); PANEL]; GROUP];
        let mut sums = [LineSums::ZERO; GROUP];
        let fold = |totals: &mut [(u64, u64); PANEL], sums: &mut LineSums| {
            for (l, total) in totals.iter_mut().enumerate() {
                let (sum, squares) = sums.of(l);
                *total = (total.0 + sum, total.1 + squares);
            }
            *sums = LineSums::ZERO;
        };
        // SAFETY: as above.
        unsafe {
            run.for_each_chunk(part, panels.clone(), |p, chunk, at| {
                let place = packed.map(|packed| packed.place(p, at));
                let own = own(p);
                (run.kernels.magnitudes)(part.side, chunk, &exponents[own], &mut sums[own], place);
                if (at / DEPTH + 1).is_multiple_of(LineSums::CHUNKS) {
                    fold(&mut totals[own], &mut sums[own]);
                }
            });
        }
        for p in panels.clone() {
            fold(&mut totals[own(p)], &mut sums[own(p)]);
            // SAFETY: by the contract of this function.
            let out = unsafe { out.chunk(p * PANEL, PANEL) };
            for ((out, scan), (sum, squares)) in out.iter_mut().zip(&scans[own(p)]).zip(totals[own(p)]) {
                *out = Line::with_sums(scan, sum, squares);
            }
        }
        true
    }

    /// Calls f for every tile of G, on all threads.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn for_each(&mut self, a: &[Line], b: &[Line], f: &Visit) -> Result<(), Reason> {
        let (m, n) = (self.run.call.m, self.run.call.n);
        let Some(whole) = &self.whole else {
            // SAFETY: by the contract of this function.
            return unsafe { self.for_each_in_blocks(a, b, f) };
        };
        let run = self.run;
        let at = Rectangle { i: 0, j: 0, rows: m, columns: n };
        // The rows of a task are to stay in a cache over the whole inner dimension, which is not cut here.
        let fitting = (ROWS_BYTES / whole.a.panel).clamp(2, 16);
        let blocking = Blocking { down: fitting, ..(run.kernels.blocking)(whole.a.length) };
        let tasks = Tasks::new(at, blocking, run.threads);
        let down = m.div_ceil(PANEL);
        let kept = whole.kept;
        let (a, b, computed) = (whole.a, whole.b, self.computed);
        team::run(run.threads, tasks.count, &|task| {
            let mut own = Tile([0; TILE]);
            let task_at = tasks.rectangle(task);
            let rows_of_task = task_at.rows.div_ceil(PANEL);
            for tile in tiles(task_at) {
                let (p, q) = (tile.i / PANEL, tile.j / PANEL);
                let sums = match kept {
                    // SAFETY: the tile is inside of the arena and belongs to one task.
                    Some(kept) => unsafe { &mut *kept.tile(q * down + p) },
                    None => &mut own,
                };
                if !computed {
                    // The next panel of columns comes while the rows of the task go by.
                    let lines = (a.panel / CACHE_LINE).div_ceil(rows_of_task * a.length / DEPTH);
                    let part = (tile.i - task_at.i) / PANEL * (a.panel / rows_of_task);
                    let next = Stream { at: b.panel(0, q + 1).wrapping_add(part), lines };
                    // SAFETY: the panels are packed.
                    unsafe { (run.kernels.product)(a.panel(0, p), b.panel(0, q), a.length, next, sums) };
                }
                f(tile, Entries::Short(&sums.0));
            }
        })?;
        self.computed = kept.is_some();
        Ok(())
    }

    /// The same where not all magnitudes fit at once: block by block, packed anew each time.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn for_each_in_blocks(&self, a: &[Line], b: &[Line], f: &Visit) -> Result<(), Reason> {
        let (run, call) = (self.run, self.run.call);
        let kernels = run.kernels;
        let fit = Blocks::largest(call.m, call.n, call.k).fit(|blocks| {
            let bytes = |lines: usize| piece_bytes(Packed::bytes(kernels, lines, blocks.length, 1));
            let entries = blocks.rows.checked_mul(blocks.columns).ok_or(Reason::NoMemory)?;
            let g = entries.checked_mul(size_of::<i64>()).ok_or(Reason::NoMemory)?;
            let panels = (blocks.rows + blocks.columns).checked_mul(2 * blocks.length);
            panels.ok_or(Reason::NoMemory)?;
            let (a, b) = (bytes(blocks.rows), bytes(blocks.columns));
            let arena = Arena::take(a + b, run.limit())?;
            Ok((run.charge(g)?, vector(entries, 0i64)?, a, arena))
        })?;
        let (blocks, (_charge, mut g, rows_bytes, arena)) = fit;
        let start = arena.pieces().next(rows_bytes);
        for at in rectangles(call.m, call.n, (blocks.rows, blocks.columns)) {
            let all: Vec<Rectangle> = tiles(at).collect();
            let g = &mut g[..all.len() * TILE];
            g.fill(0);
            for first in (0..call.k).step_by(blocks.length) {
                let count = blocks.span(first, call.k);
                let length = count.next_multiple_of(DEPTH);
                let packed_a = Packed::new(start, kernels, blocks.rows, length);
                let packed_b = Packed::new(start.wrapping_add(rows_bytes), kernels, blocks.columns, length);
                let rows = Part {
                    side: Side::Rows,
                    operand: &call.a,
                    first_line: at.i,
                    lines: at.rows,
                    first,
                    count,
                };
                let columns = Part {
                    side: Side::Columns,
                    operand: &call.b,
                    first_line: at.j,
                    lines: at.columns,
                    ..rows
                };
                // SAFETY: by the contract of this function.
                unsafe {
                    self.magnitudes(&rows, a, packed_a)?;
                    self.magnitudes(&columns, b, packed_b)?;
                }
                team::for_each_chunk(run.threads, g, TILE, &|number, g| {
                    let tile = &all[number];
                    let (p, q) = ((tile.i - at.i) / PANEL, (tile.j - at.j) / PANEL);
                    let mut sums = Tile([0; TILE]);
                    // SAFETY: the panels are packed.
                    unsafe {
                        let next = Stream { at: std::ptr::null(), lines: 0 };
                        (kernels.product)(packed_a.panel(0, p), packed_b.panel(0, q), length, next, &mut sums)
                    };
                    g.iter_mut().zip(&sums.0).for_each(|(g, &sum)| *g += i64::from(sum));
                })?;
            }
            team::for_each_chunk(run.threads, g, TILE, &|number, g| {
                f(all[number], Entries::Long(g));
            })?;
        }
        Ok(())
    }

    /// Packs the magnitudes of a part.
    ///
    /// # Safety
    ///
    /// The operand can be read, and there is room for the panels.
    unsafe fn magnitudes(&self, part: &Part, lines: &[Line], packed: Packed) -> Result<(), Panicked> {
        team::run(self.run.threads, part.lines.div_ceil(PANEL), &|p| {
            let mut exponents = [0; PANEL];
            for (out, line) in exponents.iter_mut().zip(&lines[part.lines_of(p)]) {
                *out = line.exponent;
            }
            // SAFETY: by the contract of this function.
            unsafe {
                self.run.for_each_chunk(part, p..p + 1, |p, chunk, at| {
                    let place = Some(packed.place(p, at));
                    let mut sums = LineSums::ZERO; // known already
                    (self.run.kernels.magnitudes)(part.side, chunk, &exponents, &mut sums, place);
                });
            }
        })
    }

    /// Mode accurate: R_i and K_j.
    ///
    /// # Safety
    ///
    /// A and B can be read, here and below.
    unsafe fn maxima(&mut self, a: &[Line], b: &[Line]) -> Result<(Vec<u64>, Vec<u64>), Reason> {
        let table = |lines| LineTable::new(lines, self.run.settings.accuracy).ok_or(Reason::NoMemory);
        let (rows, columns) = (table(a)?, table(b)?);
        let (row_maxima, column_maxima) = (maxima(a.len())?, maxima(b.len())?);
        let visit = |at: Rectangle, g: Entries| {
            let bounds = bounds(&rows, &columns, at, g);
            let (mut r, mut k) = ([0; PANEL], [0; PANEL]);
            bounds.raise_maxima(&mut r[..at.rows], &mut k[..at.columns]);
            raise(&row_maxima[at.i..][..at.rows], &r);
            raise(&column_maxima[at.j..][..at.columns], &k);
        };
        // SAFETY: by the contract of this function.
        unsafe { self.for_each(a, b, &visit)? };
        Ok((values(row_maxima)?, values(column_maxima)?))
    }

    /// Mode auto: steps 1 to 4 of NUMERICS section 3. The plan, and the largest T + 1 that it proves.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn certified(
        &mut self,
        a: &[Line],
        b: &[Line],
        mut row_needs: Vec<i32>,
        mut column_needs: Vec<i32>,
    ) -> Result<(plan::Plan, f64), Reason> {
        let run = self.run;
        let accuracy = run.settings.accuracy;
        let table = |lines| LineTable::new(lines, accuracy).ok_or(Reason::NoMemory);
        let (rows, columns) = (table(a)?, table(b)?);
        let (row_raised, column_raised) = (maxima(a.len())?, maxima(b.len())?);
        let visit = |at: Rectangle, g: Entries| {
            let bounds = bounds(&rows, &columns, at, g);
            let (mut r, mut c) = ([0i64; PANEL], [0i64; PANEL]);
            // SAFETY: the lines exist, and A and B can be read; the CPU runs the kernels.
            unsafe {
                let meet = |i: usize, j: usize| share_place(run, at.i + i, at.j + j);
                (run.kernels.raise_needs)(&bounds, &mut r[..at.rows], &mut c[..at.columns], &meet);
            }
            raise(&row_raised[at.i..][..at.rows], &r.map(|need| need as u64));
            raise(&column_raised[at.j..][..at.columns], &c.map(|need| need as u64));
        };
        // SAFETY: by the contract of this function.
        unsafe { self.for_each(a, b, &visit)? };
        for (needs, raised) in [(&mut row_needs, &row_raised), (&mut column_needs, &column_raised)] {
            for (need, raised) in needs.iter_mut().zip(raised) {
                *need = raised.load(Ordering::Relaxed) as i32;
            }
        }
        plan::cap_needs(&mut row_needs, a);
        plan::cap_needs(&mut column_needs, b);
        let (mut row_keys, mut column_keys) = (vector(a.len(), 0i64)?, vector(b.len(), 0i64)?);
        plan::key_needs(&row_needs, a, &mut row_keys);
        plan::key_needs(&column_needs, b, &mut column_keys);
        let largest = AtomicI64::new(i64::MIN);
        let visit = |at: Rectangle, g: Entries| {
            let bounds = bounds(&rows, &columns, at, g);
            let (r, c) = (&row_keys[at.i..][..at.rows], &column_keys[at.j..][..at.columns]);
            // SAFETY: the CPU runs the kernels.
            largest.fetch_max(unsafe { (run.kernels.largest)(&bounds, r, c) }, Ordering::Relaxed);
        };
        // SAFETY: by the contract of this function.
        unsafe { self.for_each(a, b, &visit)? };
        let largest = plan::largest_of_key(largest.into_inner());
        let most = |lines: &[Line]| lines.iter().map(|line| line.nonzeros).max().unwrap_or(0);
        let promise = accuracy.promise(most(a).min(most(b)));
        Ok((plan::auto(run.settings.moduli, a, b, largest, row_needs, column_needs)?, promise))
    }
}

/// Where G is kept.
#[derive(Clone, Copy)]
struct Kept(*mut Tile);
// SAFETY: each tile belongs to one task.
unsafe impl Sync for Kept {}
// SAFETY: as above.
unsafe impl Send for Kept {}

impl Kept {
    fn tile(self, number: usize) -> *mut Tile {
        self.0.wrapping_add(number)
    }
}

fn bounds<'a>(rows: &'a LineTable, columns: &'a LineTable, at: Rectangle, g: Entries<'a>) -> Bounds<'a> {
    Bounds { rows: rows.part(at.i, at.rows), columns: columns.part(at.j, at.columns), g, stride: PANEL }
}

fn maxima(count: usize) -> Result<Vec<AtomicU64>, Reason> {
    let mut out = empty(count)?;
    out.resize_with(count, || AtomicU64::new(0));
    Ok(out)
}

fn values(maxima: Vec<AtomicU64>) -> Result<Vec<u64>, Reason> {
    let mut out = empty(maxima.len())?;
    out.extend(maxima.into_iter().map(AtomicU64::into_inner));
    Ok(out)
}

/// Most values are there already, and looking is cheaper than writing.
fn raise(maxima: &[AtomicU64], by: &[u64]) {
    for (maximum, &by) in maxima.iter().zip(by) {
        if by > maximum.load(Ordering::Relaxed) {
            maximum.fetch_max(by, Ordering::Relaxed);
        }
    }
}

/// Do row i of op(A) and column j of op(B) have a nonzero at the same place?
///
/// # Safety
///
/// The lines exist, and A and B can be read.
unsafe fn share_place(run: &Run, i: usize, j: usize) -> bool {
    let element = |of: &Lines, line: usize, h: usize| {
        let at = line * of.line_stride + h * of.element_stride;
        // SAFETY: by the contract of this function.
        unsafe { of.pointer().wrapping_add(at).read_unaligned() }
    };
    (0..run.call.k).any(|h| element(&run.call.a, i, h) != 0.0 && element(&run.call.b, j, h) != 0.0)
}

//! The statistics of all lines of a call, and integer products of their magnitudes: what the plan is made from.

use std::ops::Range;

use super::blocks::{Blocks, MOST_LENGTH, Packed, Tasks, rectangles, tiles};
use super::driver::Run;
use super::kernels::{
    Blocking, CACHE_LINE, DEPTH, Digit, LineSums, PANEL, Product, Side, Stream, TILE, Tile,
};
use super::parts::{GROUP, Part};
use super::team::{self, Panicked, Shared};
use super::view::View;
use super::workspace::{Arena, piece_bytes, vector};
use crate::gemm::{Lines, Rectangle};
use crate::options::Mode;
use crate::ozaki::bound::Line;
use crate::ozaki::needs::Entries;
use crate::ozaki::scan::Scan;
use crate::route::Reason;

/// Bytes of the rows of a task, for second caches of a megabyte and more.
const ROWS_BYTES: usize = 512 << 10;

/// The magnitudes of all lines, packed, where they fit into the workspace.
pub struct Whole {
    pub a: Packed,
    pub b: Packed,
    /// What the arena has left, and how many bytes.
    left: Option<(*mut u8, usize)>,
    arena: Box<Arena>,
}

// SAFETY: nobody uses what the arena has left but the one call at a time that packs more digits.
unsafe impl Sync for Whole {}

/// A line that takes part in nothing.
const NOTHING: Line = Line { exponent: 0, exact_at: 0, nonzeros: 0, sum: 0, squares: 0 };

/// Which products a pass wants besides G.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    /// The lower bounds of step 5b.
    pub more_bits: bool,
    /// The numbers of places at which both lines have a nonzero (step 5a).
    pub meet: bool,
}

/// The sums of a tile; entry (i, j) is number `j * PANEL + i`.
#[derive(Clone, Copy)]
pub struct Sums<'a> {
    /// G = A~ B~.
    pub g: Entries<'a>,
    /// The lower bounds of step 5b; or G again.
    pub lower: Entries<'a>,
    /// Places at which both lines have a nonzero; or nothing.
    pub meet: Entries<'a>,
}

/// The products of a tile for a part of the inner dimension.
struct Parts {
    /// A~ B~, A~ B~2, A~2 B~, A~2 B~2.
    products: [Tile; 4],
    lower: [i64; TILE],
    meet: Tile,
}

impl Parts {
    fn new() -> Self {
        let none = || Tile([0; TILE]);
        Self { products: [none(), none(), none(), none()], lower: [0; TILE], meet: none() }
    }

    fn sums(&self, wants: Wants) -> Sums<'_> {
        let g = Entries::Short(&self.products[0].0);
        let lower = if wants.more_bits { Entries::Long(&self.lower) } else { g };
        Sums { g, lower, meet: Entries::Short(&self.meet.0) }
    }
}

/// The sums of a tile over several parts.
#[derive(Clone)]
struct Total {
    g: [i64; TILE],
    lower: [i64; TILE],
    meet: [i64; TILE],
}

impl Total {
    const ZERO: Self = Self { g: [0; TILE], lower: [0; TILE], meet: [0; TILE] };

    fn add(&mut self, parts: &Parts, wants: Wants) {
        let add = |to: &mut [i64; TILE], from: &Tile| {
            to.iter_mut().zip(&from.0).for_each(|(to, &x)| *to += i64::from(x));
        };
        add(&mut self.g, &parts.products[0]);
        if wants.more_bits {
            self.lower.iter_mut().zip(&parts.lower).for_each(|(to, x)| *to += x);
        }
        if wants.meet {
            add(&mut self.meet, &parts.meet);
        }
    }

    fn sums(&self, wants: Wants) -> Sums<'_> {
        let lower = Entries::Long(if wants.more_bits { &self.lower } else { &self.g });
        Sums { g: Entries::Long(&self.g), lower, meet: Entries::Long(&self.meet) }
    }
}

/// The statistics of the lines in a view, and products of their magnitudes, tile by tile.
pub struct Products<'a> {
    pub run: &'a Run<'a>,
    pub view: View,
    pub a: Vec<Line>,
    pub b: Vec<Line>,
    pub whole: Option<Whole>,
    /// For each tile, down the first column of tiles first, an upper bound of its largest U_ij, as `Bounds::largest_key` gives it
    /// without needs; empty where nobody has looked yet.
    pub largest: Vec<i64>,
    /// Memory came fresh from the system.
    pub fresh: bool,
}

impl<'a> Products<'a> {
    /// Scans all lines. Those that are not finite are taken out of the view.
    ///
    /// # Safety
    ///
    /// A and B can be read, here and below, as long as this lives.
    pub unsafe fn scan(run: &'a Run<'a>, view: View) -> Result<Self, Reason> {
        let (a, b) = (vector(run.call.m, NOTHING)?, vector(run.call.n, NOTHING)?);
        let mut out = Self { run, view, a, b, whole: None, largest: Vec::new(), fresh: false };
        out.whole = out.place_for_all();
        out.fresh = out.whole.as_ref().is_some_and(|whole| whole.arena.fresh);
        // SAFETY: by the contract of this function.
        unsafe { out.scan_lines()? };
        Ok(out)
    }

    /// The magnitudes of all lines are packed: a look at some tiles of the bound product costs no more than those.
    pub fn are_packed(&self) -> bool {
        self.whole.is_some()
    }

    /// Gives back the memory of what is packed: it is packed anew for any further use.
    pub fn release(&mut self) {
        if let Some(whole) = self.whole.take() {
            whole.arena.keep();
        }
    }

    fn place_for_all(&self) -> Option<Whole> {
        let run = self.run;
        let (m, n) = (run.call.m.next_multiple_of(PANEL), run.call.n.next_multiple_of(PANEL));
        let length = run.call.k.next_multiple_of(DEPTH);
        let kernels = run.kernels;
        let bytes = |lines: usize| Packed::bytes(kernels, lines, length, 1);
        if run.settings.mode == Mode::Fast || length > MOST_LENGTH {
            return None;
        }
        m.checked_add(n)?.checked_mul(2 * length)?; // `bytes` cannot overflow
        let (a, b) = (piece_bytes(bytes(m)), piece_bytes(bytes(n)));
        let arena = Arena::take(a.checked_add(b)?, run.limit()).ok()?;
        let mut pieces = arena.pieces();
        let (a, b) = (pieces.next(a), pieces.next(b));
        let left = pieces.rest();
        let (a, b) = (Packed::new(a, kernels, m, length), Packed::new(b, kernels, n, length));
        Some(Whole { a, b, left, arena })
    }

    /// All elements of the lines of an operand.
    pub fn part(&self, side: Side) -> Part<'_> {
        let operand: &Lines = if side == Side::Rows { &self.run.call.a } else { &self.run.call.b };
        let (lines, count, view) = (operand.count, operand.length, self.view.side(side));
        Part { side, operand, first_line: 0, lines, first: 0, count, view }
    }

    /// The statistics of every line; the magnitudes are packed on the way if there is room for all.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn scan_lines(&mut self) -> Result<(), Reason> {
        let (mut a, mut b) = (std::mem::take(&mut self.a), std::mem::take(&mut self.b));
        let (packed_a, packed_b) = self.whole.as_ref().map(|whole| (whole.a, whole.b)).unzip();
        let (of_a, of_b) = (self.part(Side::Rows), self.part(Side::Columns));
        let (rows, columns) = (Shared::new(&mut a), Shared::new(&mut b));
        let done = team::run(self.run.threads, of_a.groups() + of_b.groups(), &|group| {
            let (part, packed, out, group) = match group.checked_sub(of_a.groups()) {
                None => (&of_a, packed_a, &rows, group),
                Some(group) => (&of_b, packed_b, &columns, group),
            };
            // SAFETY: by the contract of this function; each task has lines of its own.
            unsafe { self.panels(part, part.panels(group), packed, out) };
        });
        (self.a, self.b) = (a, b);
        Ok(done?)
    }

    /// The statistics of some panels. The elements are read twice, the second time out of a cache.
    ///
    /// # Safety
    ///
    /// The operand can be read, and nobody else writes the panels and the statistics of their lines.
    unsafe fn panels(&self, part: &Part, panels: Range<usize>, packed: Option<Packed>, out: &Shared<Line>) {
        let run = self.run;
        let own = |p: usize| p - panels.start;
        let mut scans = [[Scan::EMPTY; PANEL]; GROUP];
        // SAFETY: by the contract of this function.
        unsafe {
            run.for_each_chunk(part, panels.clone(), |p, chunk, _| {
                (run.kernels.scan)(chunk, &mut scans[own(p)]);
            });
        }
        for p in panels.clone() {
            let mut bad = 0;
            for (l, scan) in scans[own(p)].iter_mut().enumerate().filter(|(_, scan)| !scan.is_finite()) {
                bad |= 1 << l;
                *scan = Scan::EMPTY;
            }
            if bad != 0 {
                self.view.take_out(part.side, p, bad);
            }
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
                let place = packed.map(|packed| packed.place(0, p, at));
                let own = own(p);
                (run.kernels.magnitudes)(
                    Digit::First,
                    part.side,
                    chunk,
                    &exponents[own],
                    &mut sums[own],
                    place,
                );
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
    }

    /// A line takes part in nothing from now on.
    pub fn take_out(&mut self, side: Side, line: usize) {
        let lines = if side == Side::Rows { &mut self.a } else { &mut self.b };
        lines[line] = NOTHING;
        self.view.take_line_out(side, line);
    }

    /// Tiles of the call, and the number of one.
    pub fn tiles(&self) -> usize {
        self.run.call.m.div_ceil(PANEL) * self.run.call.n.div_ceil(PANEL)
    }

    pub fn number_of(&self, tile: &Rectangle) -> usize {
        tile.j / PANEL * self.run.call.m.div_ceil(PANEL) + tile.i / PANEL
    }

    /// Calls f for every tile with all that is wanted: block by block, packed anew each time.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn for_each_of(
        &self,
        wants: Wants,
        f: &(dyn Fn(Rectangle, Sums) + Sync),
    ) -> Result<(), Reason> {
        let (run, call) = (self.run, self.run.call);
        let kernels = run.kernels;
        let digits: &[Digit] = match (wants.more_bits, wants.meet) {
            (false, false) => &[Digit::First],
            (true, false) => &[Digit::First, Digit::Second],
            (false, true) => &[Digit::First, Digit::Presence],
            (true, true) => &[Digit::First, Digit::Second, Digit::Presence],
        };
        let fit = Blocks::largest(call.m, call.n, call.k).fit(|blocks| {
            // Sums are kept only from one part of the inner dimension to the next.
            let tiles = (blocks.rows / PANEL).checked_mul(blocks.columns / PANEL).ok_or(Reason::NoMemory)?;
            let kept = if blocks.length < call.k { tiles } else { 0 };
            let charge = run.charge(kept.checked_mul(size_of::<Total>()).ok_or(Reason::NoMemory)?)?;
            let panels = (blocks.rows + blocks.columns).checked_mul(2 * digits.len() * blocks.length);
            panels.ok_or(Reason::NoMemory)?;
            let bytes =
                |lines: usize| piece_bytes(Packed::bytes(kernels, lines, blocks.length, digits.len()));
            let (a, b) = (bytes(blocks.rows), bytes(blocks.columns));
            // What the arena of the magnitudes has left need not come from the system.
            let left = self.whole.as_ref().and_then(|whole| whole.left.filter(|left| left.1 >= a + b));
            let arena = if left.is_some() { None } else { Some(Arena::take(a + b, run.limit())?) };
            let own = arena.as_ref().map(|arena| arena.pieces().next(a + b));
            let start = own.or(left.map(|(start, _)| start)).ok_or(Reason::NoMemory)?;
            Ok((charge, vector(kept, Total::ZERO)?, a, start, arena))
        })?;
        let (blocks, (_charge, mut kept, rows_bytes, start, arena)) = fit;
        for at in rectangles(call.m, call.n, (blocks.rows, blocks.columns)) {
            let all: Vec<Rectangle> = tiles(at).collect();
            kept.fill(Total::ZERO);
            for first in (0..call.k).step_by(blocks.length) {
                let count = blocks.span(first, call.k);
                let length = count.next_multiple_of(DEPTH);
                let a = Packed::new(start, kernels, blocks.rows, length);
                let b = Packed::new(start.wrapping_add(rows_bytes), kernels, blocks.columns, length);
                // SAFETY: by the contract of this function.
                unsafe {
                    let rows =
                        Part { first_line: at.i, lines: at.rows, first, count, ..self.part(Side::Rows) };
                    self.pack(rows, &self.a, digits, a)?;
                    let columns = Part {
                        first_line: at.j,
                        lines: at.columns,
                        first,
                        count,
                        ..self.part(Side::Columns)
                    };
                    self.pack(columns, &self.b, digits, b)?;
                }
                // SAFETY: the panels are packed.
                let multiply = |tile: &Rectangle, of_task: &Rectangle, parts: &mut Parts| unsafe {
                    let (p, q) = ((tile.i - at.i) / PANEL, (tile.j - at.j) / PANEL);
                    let turn = ((tile.i - of_task.i) / PANEL, of_task.rows.div_ceil(PANEL));
                    self.multiply(wants, (a, p), (b, q), turn, parts);
                };
                if kept.is_empty() {
                    let tasks = self.tasks(at, a.length, a.panel * digits.len());
                    team::run(run.threads, tasks.count, &|task| {
                        let mut parts = Parts::new();
                        let task_at = tasks.rectangle(task);
                        for tile in tiles(task_at) {
                            multiply(&tile, &task_at, &mut parts);
                            f(tile, parts.sums(wants));
                        }
                    })?;
                } else {
                    let kept = &mut kept[..all.len()];
                    team::for_each_chunk(run.threads, kept, 1, &|number, total| {
                        let mut parts = Parts::new();
                        multiply(&all[number], &all[number], &mut parts);
                        total[0].add(&parts, wants);
                        if first + count == call.k {
                            f(all[number], total[0].sums(wants));
                        }
                    })?;
                }
            }
        }
        if let Some(arena) = arena {
            arena.keep();
        }
        Ok(())
    }

    /// Packs the digits of the lines of a part, a plane for each.
    ///
    /// # Safety
    ///
    /// The operand can be read, and there is room for the panels.
    unsafe fn pack(
        &self,
        part: Part,
        lines: &[Line],
        digits: &[Digit],
        packed: Packed,
    ) -> Result<(), Panicked> {
        team::run(self.run.threads, part.lines.div_ceil(PANEL), &|p| {
            let mut exponents = [0; PANEL];
            for (out, line) in exponents.iter_mut().zip(&lines[part.lines_of(p)]) {
                *out = line.exponent;
            }
            // SAFETY: by the contract of this function.
            unsafe {
                self.run.for_each_chunk(&part, p..p + 1, |p, chunk, at| {
                    for (plane, &digit) in digits.iter().enumerate() {
                        let place = Some(packed.place(plane, p, at));
                        let mut sums = LineSums::ZERO; // known already
                        (self.run.kernels.magnitudes)(digit, part.side, chunk, &exponents, &mut sums, place);
                    }
                });
            }
        })
    }

    /// The tasks of a rectangle: the rows of a task, so many bytes for a panel, are to stay in a cache.
    pub fn tasks(&self, at: Rectangle, length: usize, panel: usize) -> Tasks {
        let fitting = (ROWS_BYTES / panel).clamp(2, 16);
        let blocking = Blocking { down: fitting, ..(self.run.kernels.blocking)(length) };
        Tasks::new(at, blocking, self.run.threads)
    }

    /// The products of a tile from packed elements. The tile has a turn (number, of so many) in which the next panel of columns comes
    /// to the cache.
    ///
    /// # Safety
    ///
    /// The panels are packed with the digits that are wanted.
    unsafe fn multiply(
        &self,
        wants: Wants,
        (a, p): (Packed, usize),
        (b, q): (Packed, usize),
        (turn, turns): (usize, usize),
        out: &mut Parts,
    ) {
        let kernels = self.run.kernels;
        let list: &[(usize, usize)] = match (wants.more_bits, wants.meet) {
            (false, false) => &[(0, 0)],
            (false, true) => &[(0, 0), (1, 1)],
            (true, false) => &[(0, 0), (0, 1), (1, 0), (1, 1)],
            (true, true) => &[(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)],
        };
        for (number, &(x, y)) in list.iter().enumerate() {
            let same = |list: &[(usize, usize)]| list.iter().filter(|digits| digits.1 == y).count();
            let (part, parts) = (turn * same(list) + same(&list[..number]), turns * same(list));
            let at = b.panel(y, q + 1).wrapping_add(part * (b.panel / parts));
            let next = Stream { at, lines: (b.panel / CACHE_LINE).div_ceil(parts * (b.length / DEPTH)) };
            let is_meet = wants.meet && number + 1 == list.len();
            let out = if is_meet { &mut out.meet } else { &mut out.products[number] };
            // SAFETY: by the contract of this function.
            let whole = Product::whole(a.panel(x, p), b.panel(y, q), a.length);
            unsafe { (kernels.product)(&Product { next, ..whole }, std::slice::from_mut(out)) };
        }
        if wants.more_bits {
            // SAFETY: the CPU runs the kernels.
            unsafe { (kernels.lower_bounds)(&out.products, &mut out.lower) };
        }
    }
}

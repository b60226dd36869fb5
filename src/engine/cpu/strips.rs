//! The bound product G tile by tile, where the magnitudes of all lines are packed.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::blocks::{Packed, parts, tiles};
use super::kernels::{CACHE_LINE, DEPTH, PANEL, Product, Side, Stream, TILE, Tile};
use super::products::{Products, Wants};
use super::team::{self, Shared};
use super::workspace::vector;
use crate::gemm::Rectangle;
use crate::ozaki::needs::Entries;
use crate::route::Reason;

/// Columns of tiles whose sums grow together where the inner dimension is cut: they stay in the second cache, with the rows, which are
/// read again for each part of it.
const STRIP: usize = 8;

/// A part of the inner dimension, and what of the rows comes after it.
#[derive(Clone, Copy)]
struct Inner {
    from: usize,
    count: usize,
    /// Where the next part of a line is, or that of the same lines for the next columns.
    next: usize,
    /// The turn (number, of so many) in which its share comes to the cache.
    turn: (usize, usize),
}

impl Products<'_> {
    /// Calls f for every tile of G that `wanted` says yes to by its number (see `largest`), on all threads: entry (i, j) is
    /// `g[j * PANEL + i]`. Where not all magnitudes fit at once, f is called for the others too.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn for_each(
        &self,
        wanted: &(dyn Fn(usize) -> bool + Sync),
        f: &(dyn Fn(Rectangle, Entries) + Sync),
    ) -> Result<(), Reason> {
        let (m, n) = (self.run.call.m, self.run.call.n);
        let Some(whole) = &self.whole else {
            let wants = Wants { more_bits: false, meet: false };
            // SAFETY: by the contract of this function.
            return unsafe { self.for_each_of(wants, &|at, sums| f(at, sums.g)) };
        };
        let run = self.run;
        let at = Rectangle { i: 0, j: 0, rows: m, columns: n };
        let (a, b) = (whole.a, whole.b);
        let depth = (run.kernels.blocking)(a.length).depth.min(a.length);
        let tasks = self.tasks(at, a.length, a.panel / a.length * depth);
        // Sums of a strip of tiles for each thread, which grow part by part of the inner dimension; of one tile where memory is short.
        let threads = run.threads.min(tasks.count);
        let strip = (tasks.panels_down(), if depth < a.length { STRIP } else { 1 });
        let charge = run.charge(threads * strip.0 * strip.1 * size_of::<Tile>());
        let (down, across) = if charge.is_ok() { strip } else { (1, 1) };
        let mut sums = vector(threads * down * across, Tile([0; TILE]))?;
        let (sums, next) = (Shared::new(&mut sums), AtomicUsize::new(0));
        // From the first tile of a column that is wanted to the last: mostly all of them, or only one.
        let span = |column: Rectangle| {
            let mut panels =
                tiles(column).filter(|tile| wanted(self.number_of(tile))).map(|tile| tile.i / PANEL);
            let first = panels.next()?;
            Some((first, panels.last().unwrap_or(first) + 1 - first))
        };
        team::run(threads, threads, &|thread| {
            // SAFETY: those of this thread.
            let sums = unsafe { sums.chunk(thread * down * across, down * across) };
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks.count {
                    break;
                }
                for strip in parts(tasks.rectangle(task), (down * PANEL, across * PANEL)) {
                    let columns = || parts(strip, (strip.rows, PANEL)).zip((0..).step_by(down));
                    for from in (0..a.length).step_by(depth) {
                        let next = if from + depth < a.length { from + depth } else { 0 };
                        for (number, (column, at)) in columns().enumerate() {
                            let Some((p, count)) = span(column) else { continue };
                            let turn = (number, strip.columns.div_ceil(PANEL));
                            let part = Inner { from, count: depth.min(a.length - from), next, turn };
                            let sums = &mut sums[at..][..count];
                            // SAFETY: the panels are packed.
                            unsafe { self.multiply_part((a, p), (b, column.j / PANEL), part, sums) };
                        }
                    }
                    for (column, at) in columns() {
                        let Some((p, _)) = span(column) else { continue };
                        for tile in tiles(column).filter(|tile| wanted(self.number_of(tile))) {
                            f(tile, Entries::Short(&sums[at + tile.i / PANEL - p].0));
                        }
                    }
                }
            }
        })?;
        Ok(())
    }

    /// The sums of the tiles from panel p of the rows on over a part of the inner dimension, added to those of the parts before.
    ///
    /// # Safety
    ///
    /// The panels are packed.
    unsafe fn multiply_part(
        &self,
        (a, p): (Packed, usize),
        (b, q): (Packed, usize),
        Inner { from, count, next, turn }: Inner,
        sums: &mut [Tile],
    ) {
        let kernels = self.run.kernels;
        let at = |side, packed: Packed, panel, from| {
            let offset = (kernels.element_at)(side, packed.length, 0, from) * kernels.element;
            packed.panel(0, panel).wrapping_add(offset).cast_const()
        };
        let (rows, columns) = (at(Side::Rows, a, p, from), at(Side::Columns, b, q, from));
        // Mostly the same part of the next columns comes next.
        let lines = (b.panel / b.length * count / CACHE_LINE).div_ceil(sums.len() * count / DEPTH);
        let next_columns = Stream { at: at(Side::Columns, b, q + 1, from), lines };
        // Only where the rows are more than one part do they not stay in the cache.
        let steps = count / DEPTH;
        let share =
            if count < a.length { (a.panel / a.length * count / CACHE_LINE).div_ceil(turn.1) } else { 0 };
        let next_rows = at(Side::Rows, a, p, next).wrapping_add(turn.0 * share * CACHE_LINE);
        let product = Product {
            next: next_columns,
            next_rows: Stream { at: next_rows, lines: share.div_ceil(steps) },
            rows,
            columns,
            panel: a.panel,
            length: a.length,
            count,
            add: from > 0,
        };
        // SAFETY: by the contract of this function.
        unsafe { (kernels.product)(&product, sums) };
    }
}

//! The bound product on the CPU: step *bound* for a whole call, block by block.

use super::blocks::{Blocks, padded, plane, rectangles, span, tile_panels, tiles};
use super::driver::Run;
use super::kernels::{PANEL, TILE};
use super::team::{self, Panicked};
use super::workspace::{Charge, vector};
use crate::gemm::Rectangle;
use crate::ozaki::bound::Line;
use crate::ozaki::plan::Bounds;
use crate::route::Reason;

/// The bound product is kept for its second use up to this many entries (32 MB), else computed again.
const KEPT_ENTRIES: usize = 1 << 22;

/// The bound product G = A~ B~, block by block, kept after the first pass where it is small.
pub struct BoundProduct<'a> {
    run: &'a Run<'a>,
    rows: &'a [Line],
    columns: &'a [Line],
    blocks: Blocks,
    a: Vec<i16>,
    b: Vec<i16>,
    /// One block, or all of them one after the other if `keeps`.
    g: Vec<i64>,
    keeps: bool,
    computed: bool,
    _charge: Charge,
}

impl<'a> BoundProduct<'a> {
    /// # Safety
    ///
    /// A and B can be read while this value lives.
    pub unsafe fn new(run: &'a Run<'a>, rows: &'a [Line], columns: &'a [Line]) -> Result<Self, Reason> {
        let (m, n, k) = (run.call.m, run.call.n, run.call.k);
        let take = |blocks: &Blocks, keeps: bool, bytes: usize| {
            // Blocks are padded to whole tiles, so all of them together are the padded matrix.
            let entries = if keeps {
                rectangles(m, n, blocks).map(|at| padded(&at)).sum()
            } else {
                blocks.rows * blocks.columns
            };
            let charge = run.charge(bytes + if keeps { entries * size_of::<i64>() } else { 0 })?;
            let a = vector(blocks.panel_elements(blocks.rows, 1), 0i16)?;
            let b = vector(blocks.panel_elements(blocks.columns, 1), 0i16)?;
            Ok((a, b, vector(entries, 0i64)?, keeps, charge))
        };
        let keep = m.saturating_mul(n) <= KEPT_ENTRIES;
        let fit = Blocks::largest(m, n, k).fit(1, size_of::<i64>(), |blocks, bytes| {
            if keep && let Ok(room) = take(blocks, true, bytes) {
                return Ok(room);
            }
            take(blocks, false, bytes)
        });
        let (blocks, (a, b, g, keeps, _charge)) = fit?;
        Ok(Self { run, rows, columns, blocks, a, b, g, keeps, computed: false, _charge })
    }

    /// Calls f(rectangle, its bounds) for every block.
    pub fn for_each(&mut self, mut f: impl FnMut(Rectangle, &Bounds)) -> Result<(), Reason> {
        let mut start = 0;
        for at in rectangles(self.run.call.m, self.run.call.n, &self.blocks) {
            if !self.computed {
                self.compute(at, start)?;
            }
            // The block is stored tile by tile; the plan reads it tile by tile too.
            let g = &self.g[start..];
            for (tile, part) in tiles(at).enumerate() {
                let mut entries = [0i64; TILE];
                for j in 0..part.columns {
                    let from = &g[tile * TILE + j * PANEL..][..part.rows];
                    entries[j * part.rows..][..part.rows].copy_from_slice(from);
                }
                let rows = &self.rows[part.i..][..part.rows];
                let columns = &self.columns[part.j..][..part.columns];
                f(part, &Bounds { rows, columns, g: &entries[..part.rows * part.columns] });
            }
            if self.keeps {
                start += padded(&at);
            }
        }
        self.computed = self.keeps;
        Ok(())
    }

    fn compute(&mut self, at: Rectangle, start: usize) -> Result<(), Panicked> {
        let run = self.run;
        let (call, kernels) = (run.call, run.kernels);
        let g = &mut self.g[start..start + padded(&at)];
        g.fill(0);
        for first in (0..call.k).step_by(self.blocks.length) {
            let length = span(first, &self.blocks, call.k);
            let (rows, columns) = (self.rows, self.columns);
            // SAFETY: A and B can be read while this value lives (see new).
            unsafe {
                run.pack(&call.a, (at.i, at.rows), (first, length), 1, &mut self.a, &|i, values, out| {
                    (kernels.magnitudes)(values, rows[i].exponent, out);
                })?;
                run.pack(&call.b, (at.j, at.columns), (first, length), 1, &mut self.b, &|j, values, out| {
                    (kernels.magnitudes)(values, columns[j].exponent, out);
                })?;
            }
            let (a, b) = (&self.a, &self.b);
            team::for_each_chunk(run.threads, g, TILE, &|tile, g| {
                let (p, q, rows, columns) = tile_panels(at, tile);
                let mut sums = [0; TILE];
                (kernels.product)(
                    plane(a, 1, length, p, 0, rows),
                    plane(b, 1, length, q, 0, columns),
                    length,
                    &mut sums,
                );
                g.iter_mut().zip(sums).for_each(|(g, sum)| *g += i64::from(sum));
            })?;
        }
        Ok(())
    }
}

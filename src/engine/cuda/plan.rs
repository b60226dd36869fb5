//! The plan on a device: the bound product there, the decisions here, from m + n numbers.

use cudarc::driver::sys::CUdeviceptr;

use super::blocks::{Blocks, Layout, padded};
use super::device::{Event, Region};
use super::kernels::DeviceBounds;
use super::library::Fault;
use super::place::{OnHost, Place};
use super::run::{Run, Stop, pieces_for, rectangles, spans, vector};
use crate::engine::cpu;
use crate::gemm::Rectangle;
use crate::options::Mode;
use crate::ozaki::bound::Line;
use crate::ozaki::plan::{self, Accuracy, Plan};
use crate::ozaki::wide::Magnitude;
use crate::route::Reason;

/// Single results of kernels, behind the constants of the call.
struct Scalars {
    zeros: CUdeviceptr,
    bits: CUdeviceptr,
    leading: CUdeviceptr,
}

impl Run<'_> {
    /// The plan, and the largest T + 1 that it proves (None in the modes that prove nothing).
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn plan(&mut self) -> Result<(Plan, Option<f64>), Stop> {
        let (m, n, k) = (self.call.m, self.call.n, self.call.k);
        let blocks = Blocks::largest(m, n, k, 1, Layout::CUBLAS)
            .within(self.limit, Blocks::plan_bytes)
            .ok_or(Stop::Declined(Reason::NoMemory))?;
        self.take_regions(&blocks)?;
        // SAFETY: by the contract of this function, here and below.
        let [a, b] = unsafe { self.statistics(&blocks)? };
        self.phase("scan")?;
        let (rows, columns) = (vector(m, 0i32)?, vector(n, 0i32)?);
        let (moduli, check) = (self.settings.moduli, self.settings.check);
        let plan = match self.settings.mode {
            Mode::Fast => Ok((plan::fast(moduli, check, &a, &b, rows, columns)?, None)),
            Mode::Accurate => {
                for at in rectangles(m, n, &blocks) {
                    let bounds = unsafe { self.bound_product(at, &blocks)? };
                    self.device.maxima(&bounds)?;
                }
                let (mut row_maxima, mut column_maxima) = (vector(m, 0u64)?, vector(n, 0u64)?);
                self.read(self.a.statistics.maxima, &mut row_maxima)?;
                self.read(self.b.statistics.maxima, &mut column_maxima)?;
                let maxima = (row_maxima.as_slice(), column_maxima.as_slice());
                Ok((plan::accurate(moduli, check, &a, &b, maxima, rows, columns)?, None))
            }
            Mode::Auto | Mode::Native => unsafe { self.certified(&blocks, &a, &b, rows, columns) },
        };
        self.phase("plan")?;
        plan
    }

    /// The plan of the CPU, which has all steps of the search. Only those that need nothing else of the kernels are used here.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn finer_plan(&self, places: &[Place; 3]) -> Result<(Plan, Option<f64>), Stop> {
        let on_host = OnHost::new(self.device.libraries, self.call, places)?;
        // SAFETY: by the contract of this function.
        let (plan, bound) =
            unsafe { cpu::best_plan(&on_host.call, self.settings) }.map_err(Stop::Declined)?;
        if plan.inner.is_empty() && plan.out.count() == 0 {
            Ok((plan, bound))
        } else {
            Err(Stop::Declined(Reason::FinerPlan))
        }
    }

    /// Takes all memory of the plan at once: a region that grows later would lose what it holds.
    fn take_regions(&mut self, blocks: &Blocks) -> Result<(), Fault> {
        let (rows, columns, pitch) = (padded(blocks.rows), padded(blocks.columns), padded(blocks.length));
        self.device.region(Region::Constants, CONSTANT_BYTES)?;
        self.take(&[
            (Region::RawA, self.a.raw_bytes(blocks.rows, blocks.length)),
            (Region::RawB, self.b.raw_bytes(blocks.columns, blocks.length)),
            (Region::PlanesA, rows * pitch),
            (Region::PlanesB, columns * pitch),
            (Region::Sums, 4 * rows * columns),
            (Region::Bounds, 8 * rows * columns),
        ])
    }

    /// G of a rectangle, in the region for bounds.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn bound_product(&mut self, at: Rectangle, blocks: &Blocks) -> Result<DeviceBounds, Fault> {
        let (g, sums) = (self.device.existing(Region::Bounds), self.device.existing(Region::Sums));
        let (ld, width) = (padded(at.rows), padded(at.columns));
        for (first, length) in spans(self.call.k, blocks) {
            let [of_a, of_b] = pieces_for(at, first, length);
            // SAFETY: by the contract of this function.
            let [lines_a, lines_b] = unsafe { self.load_missing([of_a, of_b])? };
            if let Some(lines) = lines_a {
                self.magnitudes(&self.a, &lines, of_a, false)?;
                self.a.planes_hold = of_a.key();
            }
            if let Some(lines) = lines_b {
                self.magnitudes(&self.b, &lines, of_b, false)?;
                self.b.planes_hold = of_b.key();
            }
            self.device.record(Event::Consumed, self.device.compute)?;
            self.device.product([ld, width, padded(length)], [Region::PlanesA, Region::PlanesB], 0, 1)?;
            self.device.add_bounds(sums, g, ld * width, first == 0)?;
        }
        Ok(DeviceBounds {
            g,
            ld: ld as i32,
            rows: at.rows as i32,
            columns: at.columns as i32,
            row: self.a.statistics.from(at.i),
            column: self.b.statistics.from(at.j),
        })
    }

    fn scalars(&self) -> Scalars {
        let start = self.device.existing(Region::Constants) + SCALARS as u64;
        Scalars { zeros: start, bits: start + 4, leading: start + 8 }
    }

    /// Mode auto: steps 1 to 4 of NUMERICS section 3.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn certified(
        &mut self,
        blocks: &Blocks,
        a: &[Line],
        b: &[Line],
        mut row_needs: Vec<i32>,
        mut column_needs: Vec<i32>,
    ) -> Result<(Plan, Option<f64>), Stop> {
        let accuracy = match self.settings.accuracy {
            Accuracy::Fp64 => 0,
            Accuracy::Textbook => 1,
            Accuracy::High => 2,
        };
        let (m, n) = (self.call.m, self.call.n);
        let scalars = self.scalars();
        for at in rectangles(m, n, blocks) {
            // SAFETY: by the contract of this function, here and below.
            let bounds = unsafe { self.bound_product(at, blocks)? };
            self.set(scalars.zeros, 0, 4)?;
            self.device.needs(&bounds, accuracy, scalars.zeros)?;
            let mut zeros = [0u32];
            self.read(scalars.zeros, &mut zeros)?;
            if zeros[0] > 0 {
                for (first, length) in spans(self.call.k, blocks) {
                    let [of_a, of_b] = pieces_for(at, first, length);
                    if let [Some(lines_a), Some(lines_b)] = unsafe { self.load(Some(of_a), Some(of_b))? } {
                        self.device.meet(&lines_a, &lines_b, &bounds)?;
                    }
                    self.device.record(Event::Consumed, self.device.compute)?;
                }
            }
        }
        self.read(self.a.statistics.needs, &mut row_needs)?;
        self.read(self.b.statistics.needs, &mut column_needs)?;
        plan::cap_needs(&mut row_needs, a);
        plan::cap_needs(&mut column_needs, b);
        self.write(self.a.statistics.needs, &row_needs)?;
        self.write(self.b.statistics.needs, &column_needs)?;
        let mut largest = Magnitude::NONE;
        let one_block = rectangles(m, n, blocks).count() == 1;
        for at in rectangles(m, n, blocks) {
            let bounds =
                if one_block { self.last_bounds(at) } else { unsafe { self.bound_product(at, blocks)? } };
            self.set(scalars.bits, 0x80, 4)?;
            self.set(scalars.leading, 0, 8)?;
            self.device.largest_bits(&bounds, scalars.bits)?;
            self.device.largest_leading(&bounds, scalars.bits, scalars.leading)?;
            let (mut bits, mut leading) = ([0i32], [0u64]);
            self.read(scalars.bits, &mut bits)?;
            self.read(scalars.leading, &mut leading)?;
            if leading[0] != 0 {
                largest = largest.max(Magnitude::from_parts(bits[0], leading[0]));
            }
        }
        let most = |lines: &[Line]| lines.iter().map(|line| line.nonzeros).max().unwrap_or(0);
        let promise = self.settings.accuracy.promise(most(a).min(most(b)));
        let (moduli, check) = (self.settings.moduli, self.settings.check);
        Ok((plan::auto(moduli, check, a, b, largest, row_needs, column_needs)?, Some(promise)))
    }

    /// The bounds of the only rectangle, which are still in their region.
    fn last_bounds(&self, at: Rectangle) -> DeviceBounds {
        DeviceBounds {
            g: self.device.existing(Region::Bounds),
            ld: padded(at.rows) as i32,
            rows: at.rows as i32,
            columns: at.columns as i32,
            row: self.a.statistics,
            column: self.b.statistics,
        }
    }
}

/// The region for constants: the CRT table, then single results.
pub const CRT_WORDS: usize = 4 + 5 * 20;
const SCALARS: usize = 8 * CRT_WORDS;
/// Then what the self-check leaves for each slot of results.
pub const CHECKS: usize = SCALARS + 16;
const CONSTANT_BYTES: usize = CHECKS + 2 * size_of::<[u64; 3]>();

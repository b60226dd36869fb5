//! The product on a device, block by block, and the results back into the caller's C.

use cudarc::driver::sys::CUdeviceptr;

use super::blocks::Blocks;
use super::device::{Device, Event, Region};
use super::graph::MOST_WORK;
use super::launch::Launch;
use super::library::Fault;
use super::plan::CRT_WORDS;
use super::run::{Piece, Run, Stop, pieces_for, rectangles, spans};
use crate::gemm::Rectangle;
use crate::ozaki::float::normalised;
use crate::ozaki::moduli::crt;
use crate::ozaki::plan::Plan;
use crate::route::Reason;

/// What of a call is in C already: all blocks before `block`, and of that one the first `columns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub block: usize,
    pub columns: usize,
}

/// A block whose result is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub at: Rectangle,
    pub slot: usize,
}

pub const SLOTS: [(Region, Event); 2] = [(Region::C0, Event::Done0), (Region::C1, Event::Done1)];

impl Run<'_> {
    /// The blocks of the product for a plan, or None where not even the smallest fit.
    pub fn product_blocks(&self, plan: &Plan) -> Option<Blocks> {
        let (m, n, k) = (self.call.m, self.call.n, self.call.k);
        let levels = self.settings.strassen.for_block([m, n, k], [1; 3]);
        self.device.layouts(levels).iter().find_map(|&layout| {
            let largest = Blocks::largest(m, n, k, plan.moduli, layout);
            largest.within(self.limit, |blocks| blocks.product_bytes(plan.moduli))
        })
    }

    /// What is missing of C after a fault.
    pub fn missing(&self, blocks: &Blocks, progress: Progress) -> Vec<Rectangle> {
        let rest = rectangles(self.call.m, self.call.n, blocks).skip(progress.block);
        let cut = |(number, at): (usize, Rectangle)| {
            let done = if number == 0 { progress.columns } else { 0 };
            Rectangle { j: at.j + done, columns: at.columns - done, ..at }
        };
        rest.enumerate().map(cut).filter(|at| at.columns > 0).collect()
    }

    /// Takes all memory of the products at once, before the first write to C.
    fn take_product_regions(&mut self, blocks: &Blocks, moduli: usize) -> Result<(), Fault> {
        let layout = blocks.layout;
        let rows = layout.rows(blocks.rows);
        let (columns, pitch) = (layout.columns(blocks.columns), layout.length(blocks.length));
        let planes = layout.planes(moduli);
        let sums = if layout.sums { 4 * blocks.group * rows * columns } else { 0 };
        let result = 8 * blocks.rows * blocks.columns;
        (self.a.planes_hold, self.b.planes_hold) = (None, None);
        self.take(&[
            (Region::RawA, self.a.raw_bytes(blocks.rows, blocks.length)),
            (Region::RawB, self.b.raw_bytes(blocks.columns, blocks.length)),
            (Region::PlanesA, planes * rows * pitch),
            (Region::PlanesB, planes * columns * pitch),
            (Region::Sums, sums),
            (Region::Residues, planes * rows * columns),
            (SLOTS[0].0, result),
            (SLOTS[1].0, result),
        ])?;
        for (half, event) in [Event::Staged0, Event::Staged1].into_iter().enumerate() {
            self.device.wait_here(event)?;
            self.device
                .staging(half, Device::staging_size(8 * blocks.rows).min(8 * blocks.rows * blocks.columns))?;
        }
        Ok(())
    }

    /// The CRT constants as the kernel reads them: the limbs of P, then for each modulus q and the limbs of its weight.
    fn write_constants(&self, plan: &Plan) -> Result<(), Fault> {
        let crt = crt(plan.moduli);
        let mut words = [0i64; CRT_WORDS];
        words[..4].copy_from_slice(&crt.product_limbs);
        for (l, words) in words[4..].chunks_exact_mut(5).take(plan.moduli).enumerate() {
            words[0] = crt.inverses[l].into();
            words[1..].copy_from_slice(&crt.weights[l]);
        }
        let sent = self
            .send(self.device.existing(Region::Constants), &words)
            .and_then(|()| self.send(self.a.statistics.scales, &plan.rows))
            .and_then(|()| self.send(self.b.statistics.scales, &plan.columns));
        sent.and(self.device.wait_for(self.device.compute))
    }

    /// The emulated product. `progress` tells after a fault how far it came; nothing of C is written before the first block
    /// has come back from the device without a fault.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    pub unsafe fn compute(
        &mut self,
        plan: &Plan,
        blocks: &Blocks,
        c_on_device: bool,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        self.take_product_regions(blocks, plan.moduli)?;
        self.write_constants(plan)?;
        let mut pending: Option<Pending> = None;
        for (number, at) in rectangles(self.call.m, self.call.n, blocks).enumerate() {
            let slot = number % 2;
            // SAFETY: by the contract of this function, here and below.
            unsafe { self.block(plan, blocks, at, slot, c_on_device)? };
            if let Some(before) = pending.replace(Pending { at, slot }) {
                unsafe { self.check(plan, blocks, before, c_on_device)? };
                unsafe { self.store(before, c_on_device, progress)? };
            }
        }
        if let Some(last) = pending {
            unsafe { self.check(plan, blocks, last, c_on_device)? };
            unsafe { self.store(last, c_on_device, progress)? };
        }
        Ok(())
    }

    /// Are the kernels of a block to be one graph? Those of small calls, which are one block; not where the times of phases are wanted.
    fn is_for_a_graph(&self, at: Rectangle, blocks: &Blocks) -> bool {
        let [m, n, k] = [self.call.m, self.call.n, self.call.k];
        let is_whole = (at.rows, at.columns) == (m, n) && blocks.length >= k;
        let is_small = m.saturating_mul(n).saturating_mul(k) <= MOST_WORK;
        !blocks.layout.sums && is_whole && is_small && !self.is_timed()
    }

    /// Queues everything for a block: its result will be in the region of the slot.
    ///
    /// # Safety
    ///
    /// A, B and C can be read.
    pub unsafe fn block(
        &mut self,
        plan: &Plan,
        blocks: &Blocks,
        at: Rectangle,
        slot: usize,
        c_on_device: bool,
    ) -> Result<(), Fault> {
        let (moduli, layout) = (plan.moduli, blocks.layout);
        let (rows, columns) = (layout.rows(at.rows), layout.columns(at.columns));
        let entries = rows * columns;
        let (region, done) = SLOTS[slot];
        let c = self.device.existing(region);
        if self.call.beta != 0.0 {
            // SAFETY: by the contract of this function.
            unsafe { self.load_c(at, c, c_on_device)? };
        }
        // The kernels of a graph are collected here, and started together at the end.
        let mut together = self.is_for_a_graph(at, blocks).then(|| Vec::with_capacity(3));
        let mut start = |device: &Device, launch: Launch| match &mut together {
            // SAFETY: the regions hold what the kernels read and write.
            None => unsafe { device.start(&launch) },
            Some(together) => {
                together.push(launch);
                Ok(())
            }
        };
        let scales = [self.a.statistics.from(at.i).scales, self.b.statistics.from(at.j).scales];
        for (first, length) in spans(self.call.k, blocks) {
            let pitch = layout.length(length);
            let shape = [rows, columns, pitch];
            let [of_a, of_b] = pieces_for(at, first, length);
            // SAFETY: by the contract of this function.
            let missing = unsafe { self.load_missing([of_a, of_b])? };
            if missing.iter().any(Option::is_some) {
                let residues = self.device.residues(missing, [rows, columns], scales, moduli, pitch, &layout);
                start(self.device, residues)?;
                (self.a.planes_hold, self.b.planes_hold) = (of_a.key(), of_b.key());
            }
            self.device.record(Event::Consumed, self.device.compute)?;
            self.phase("residues")?;
            if !layout.sums {
                let product = self.device.fused_product(shape, moduli, &layout, first > 0)?;
                start(self.device, product)?;
                self.phase("product")?;
                continue;
            }
            for group in (0..moduli).step_by(blocks.group) {
                let count = blocks.group.min(moduli - group);
                self.device.product(shape, [Region::PlanesA, Region::PlanesB], group, count)?;
                self.phase("product")?;
                self.device.reduce(entries, group, count, first > 0)?;
                self.phase("reduce")?;
            }
        }
        let (mu, nu) = normalised(self.call.alpha);
        let alpha_beta = (mu, nu, self.call.beta);
        let check = if self.settings.check { self.check_words(slot) } else { 0 };
        if check != 0 {
            self.set(check, 0, size_of::<[u64; 2]>())?;
            self.set(check + size_of::<[u64; 2]>() as u64, 0xFF, size_of::<u64>())?;
        }
        let sizes = [[at.rows, at.columns], [rows, columns]];
        let reconstruct = self.device.reconstruct(sizes, scales, moduli, alpha_beta, (c, check), &layout);
        start(self.device, reconstruct)?;
        if let Some(launches) = together {
            let shape = [at.rows, at.columns, self.call.k, moduli];
            // SAFETY: as above.
            unsafe { self.device.replay(shape, &launches)? };
            self.device.record(Event::Consumed, self.device.compute)?;
        }
        self.device.record(done, self.device.compute)?;
        self.phase("reconstruct")
    }

    /// Brings a block of C to the region of its slot, dense.
    ///
    /// # Safety
    ///
    /// C can be read.
    unsafe fn load_c(&mut self, at: Rectangle, to: CUdeviceptr, c_on_device: bool) -> Result<(), Fault> {
        let c = self.call.c;
        let pitch = 8 * at.rows;
        if c_on_device {
            let from = c.pointer().wrapping_add(at.i + at.j * c.ld) as CUdeviceptr;
            self.device.copy_columns(from, 8 * c.ld, to, pitch, [pitch, at.columns], self.device.load)?;
        } else {
            let piece = Piece { first_line: at.j, lines: at.columns, first: at.i, length: at.rows };
            // SAFETY: columns of C; the region has room for the block.
            unsafe { super::run::upload(self.device, &c.as_lines(), piece, to, self.settings.threads)? };
        }
        self.device.record(Event::Loaded, self.device.load)?;
        self.device.wait(self.device.compute, Event::Loaded)
    }

    /// Waits for a block and writes it to C.
    ///
    /// # Safety
    ///
    /// C can be written.
    unsafe fn store(
        &mut self,
        pending: Pending,
        c_on_device: bool,
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        let Pending { at, slot } = pending;
        let (region, done) = SLOTS[slot];
        let from = self.device.existing(region);
        let c = self.call.c;
        let column = 8 * at.rows;
        self.device.wait(self.device.store, done)?;
        if c_on_device {
            let to = c.pointer().wrapping_add(at.i + at.j * c.ld) as CUdeviceptr;
            // A kernel that failed shows here, before anything is copied into C.
            self.device.wait_here(done)?;
            self.device.copy_columns(from, column, to, 8 * c.ld, [column, at.columns], self.device.store)?;
            self.device.wait_for(self.device.store)?;
        } else {
            let columns = Device::staging_size(column) / column;
            let parts: Vec<(usize, usize)> = (0..at.columns)
                .step_by(columns)
                .map(|first| (first, columns.min(at.columns - first)))
                .collect();
            let event = |half: usize| if half == 0 { Event::Staged0 } else { Event::Staged1 };
            // One part ahead: while this thread writes a part to C the next one is on its way.
            for number in 0..=parts.len() {
                if let Some(&(first, count)) = parts.get(number) {
                    let half = number % 2;
                    self.device.wait_here(event(half))?;
                    let staging = self.device.staging(half, count * column)?;
                    let from = from + (first * column) as u64;
                    // SAFETY: the staging memory has room and stays until the event.
                    unsafe {
                        let driver = &self.device.libraries.driver;
                        driver.cuMemcpyDtoHAsync_v2(
                            staging.cast(),
                            from,
                            count * column,
                            self.device.store,
                        )?;
                    }
                    self.device.record(event(half), self.device.store)?;
                }
                if number > 0 {
                    let (first, count) = parts[number - 1];
                    let half = (number - 1) % 2;
                    self.device.wait_here(event(half))?;
                    let staging = self.device.staging(half, count * column)?;
                    // SAFETY: the copy has ended; the columns belong to this block of C.
                    unsafe {
                        let values = std::slice::from_raw_parts(staging.cast::<f64>(), count * at.rows);
                        for (j, column) in values.chunks_exact(at.rows).enumerate() {
                            crate::engine::cpu::packing::write_column(&c, at.i, at.j + first + j, column);
                        }
                    }
                    progress.columns = first + count;
                }
            }
        }
        *progress = Progress { block: progress.block + 1, columns: 0 };
        self.phase("store")
    }
}

/// The Reason of a call that a device could not finish.
pub fn reason_of(fault: Fault) -> Reason {
    match fault {
        Fault::Memory => Reason::NoMemory,
        Fault::Status(..) => Reason::EngineFault,
    }
}

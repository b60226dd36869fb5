//! The walk of an emulated call on a device: load, scan, bound, plan, then block by block residues, product, reduce,
//! reconstruct, and the result back to the caller's memory.
//!
//! The loop over blocks runs one block ahead of its results: while the device multiplies a block, this thread copies the
//! operands of the next into page-locked memory and writes the result of the one before to C.

use std::time::Instant;

use cudarc::driver::sys::{CUdeviceptr, CUstream};

use super::blocks::{Blocks, padded};
use super::device::{Device, Event, Region};
use super::kernels::{DeviceLines, DeviceStatistics};
use super::library::Fault;
use crate::engine::{Checked, Settings};
use crate::gemm::{Gemm, Lines, Rectangle};
use crate::ozaki::bound::Line;
use crate::ozaki::plan::NoPlan;
use crate::ozaki::scan::Scan;
use crate::route::Reason;

/// Why a call did not go through on this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The data or the options say so, on every engine.
    Declined(Reason),
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<NoPlan> for Stop {
    fn from(none: NoPlan) -> Self {
        Self::Declined(none.into())
    }
}

/// A vector, or the Reason that there is no memory.
pub(super) fn vector<T: Clone>(length: usize, value: T) -> Result<Vec<T>, Stop> {
    crate::engine::cpu::workspace::vector(length, value).map_err(Stop::Declined)
}

/// What a region of raw or packed operands holds: (first line, lines, first element, elements).
pub(super) type Holds = Option<(usize, usize, usize, usize)>;

/// One operand on its way to the device.
pub(super) struct Operand {
    pub(super) lines: Lines,
    pub(super) raw: Region,
    pub(super) planes: Region,
    /// The matrix is in memory that the device can read.
    pub(super) on_device: bool,
    pub(super) raw_holds: Holds,
    /// Magnitudes of these are in `planes`.
    pub(super) planes_hold: Holds,
    pub(super) statistics: DeviceStatistics,
}

/// A call on its way.
pub struct Run<'a> {
    pub(super) device: &'a mut Device,
    pub(super) call: &'a Gemm,
    pub(super) settings: &'a Settings,
    /// What the self-check has seen so far.
    pub(super) checked: Checked,
    /// Bytes that the regions may hold.
    pub(super) limit: usize,
    pub(super) a: Operand,
    pub(super) b: Operand,
    /// When the phase in progress began; None unless OZ2_LOG=trace asks for the times of phases.
    phase: Option<Instant>,
}

/// A piece of an operand: lines first_line.., elements first...
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub first_line: usize,
    pub lines: usize,
    pub first: usize,
    pub length: usize,
}

impl Piece {
    pub(super) fn key(self) -> Holds {
        Some((self.first_line, self.lines, self.first, self.length))
    }
}

/// The blocks of C, column of blocks by column of blocks.
pub(super) fn rectangles(
    m: usize,
    n: usize,
    blocks: &Blocks,
) -> impl Iterator<Item = Rectangle> + Clone + use<> {
    let Blocks { rows, columns, .. } = *blocks;
    (0..n).step_by(columns).flat_map(move |j| {
        (0..m).step_by(rows).map(move |i| Rectangle {
            i,
            j,
            rows: rows.min(m - i),
            columns: columns.min(n - j),
        })
    })
}

/// The pieces of A and B for a rectangle of C and a part of the inner dimension.
pub(super) fn pieces_for(at: Rectangle, first: usize, length: usize) -> [Piece; 2] {
    let of_a = Piece { first_line: at.i, lines: at.rows, first, length };
    [of_a, Piece { first_line: at.j, lines: at.columns, first, length }]
}

/// The parts of the inner dimension.
pub(super) fn spans(k: usize, blocks: &Blocks) -> impl Iterator<Item = (usize, usize)> + use<> {
    let length = blocks.length;
    (0..k).step_by(length).map(move |first| (first, length.min(k - first)))
}

impl Operand {
    fn new(lines: Lines, [raw, planes]: [Region; 2], on_device: bool, statistics: DeviceStatistics) -> Self {
        Self { lines, raw, planes, on_device, raw_holds: None, planes_hold: None, statistics }
    }

    /// Bytes that so many lines and elements take on the device beside what is there already.
    pub(super) fn raw_bytes(&self, lines: usize, length: usize) -> usize {
        if self.on_device { 0 } else { 8 * lines * length }
    }

    pub(super) fn piece(
        &self,
        (first_line, lines): (usize, usize),
        (first, length): (usize, usize),
    ) -> Piece {
        Piece { first_line, lines, first, length }
    }

    /// Brings a piece to the device, unless it is there, and says where. The copies run on the load stream.
    ///
    /// # Safety
    ///
    /// The operand can be read.
    unsafe fn load(
        &mut self,
        device: &mut Device,
        piece: Piece,
        threads: usize,
    ) -> Result<DeviceLines, Fault> {
        let (lines, length) = (piece.lines as i32, piece.length as i32);
        let contiguous = self.lines.element_stride == 1;
        if self.on_device {
            let first = piece.first_line * self.lines.line_stride + piece.first * self.lines.element_stride;
            return Ok(DeviceLines {
                address: self.lines.pointer().wrapping_add(first) as CUdeviceptr,
                line_stride: self.lines.line_stride as i64,
                element_stride: self.lines.element_stride as i64,
                lines,
                length,
            });
        }
        let address = device.region(self.raw, 8 * piece.lines * piece.length)?;
        if self.raw_holds != piece.key() {
            self.raw_holds = None;
            device.wait(device.load, Event::Consumed)?;
            // SAFETY: by the contract of this function; the region is as large as the piece.
            unsafe { upload(device, &self.lines, piece, address, threads)? };
            self.raw_holds = piece.key();
        }
        let (line_stride, element_stride) = if contiguous { (length.into(), 1) } else { (1, lines.into()) };
        Ok(DeviceLines { address, line_stride, element_stride, lines, length })
    }
}

/// Copies a piece, dense, to the device: what is contiguous in the caller's memory stays contiguous.
///
/// # Safety
///
/// The lines can be read; the address has room for the piece.
pub(super) unsafe fn upload(
    device: &mut Device,
    lines: &Lines,
    piece: Piece,
    address: CUdeviceptr,
    threads: usize,
) -> Result<(), Fault> {
    let contiguous = lines.element_stride == 1;
    let (outer, inner) = if contiguous { (piece.lines, piece.length) } else { (piece.length, piece.lines) };
    let (outer_stride, start) = if contiguous {
        (lines.line_stride, piece.first_line * lines.line_stride + piece.first)
    } else {
        (lines.element_stride, piece.first_line + piece.first * lines.element_stride)
    };
    let column = 8 * inner;
    let columns = Device::staging_size(column) / column;
    for (number, first) in (0..outer).step_by(columns).enumerate() {
        let count = columns.min(outer - first);
        let half = number % 2;
        let event = if half == 0 { Event::Staged0 } else { Event::Staged1 };
        device.wait_here(event)?;
        let staging = device.staging(half, count * column)?;
        // SAFETY: the staging memory has this many doubles, and no copy uses it any more.
        let to = unsafe { std::slice::from_raw_parts_mut(staging.cast::<f64>(), count * inner) };
        let gathered = crate::engine::cpu::team::for_each_chunk(threads, to, inner, &|c, to| {
            // SAFETY: elements of the piece, byte by byte since the caller's address may have any alignment.
            unsafe {
                let from = lines.pointer().add(start + (first + c) * outer_stride).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast(), column);
            }
        });
        gathered.map_err(|_| Fault::Status("a copy", 0))?;
        let to = address + (first * column) as u64;
        // SAFETY: the staging memory stays until the event; the device memory has room.
        unsafe {
            device.libraries.driver.cuMemcpyHtoDAsync_v2(to, staging.cast(), count * column, device.load)?;
        }
        device.record(event, device.load)?;
    }
    Ok(())
}

impl<'a> Run<'a> {
    /// Prepares a call. `limit`: bytes that the regions of the device may hold. `on_device`: which of A and B are in memory
    /// that the device can read.
    pub fn new(
        device: &'a mut Device,
        call: &'a Gemm,
        settings: &'a Settings,
        limit: usize,
        on_device: [bool; 2],
    ) -> Result<Self, Stop> {
        let (m, n) = (call.m, call.n);
        let bytes = (m + n) * DeviceStatistics::LINE_BYTES + 16;
        let lines = device.region(Region::Lines, bytes + 64)?;
        let of_a = DeviceStatistics::at(lines, m);
        // The arrays of B start at a multiple of 8.
        let of_b =
            DeviceStatistics::at(lines + (m * DeviceStatistics::LINE_BYTES).next_multiple_of(8) as u64, n);
        let a = Operand::new(call.a, [Region::RawA, Region::PlanesA], on_device[0], of_a);
        let b = Operand::new(call.b, [Region::RawB, Region::PlanesB], on_device[1], of_b);
        let phase = tracing::enabled!(tracing::Level::TRACE).then(Instant::now);
        let checked = Checked::default();
        Ok(Self { device, call, settings, checked, limit, a, b, phase })
    }

    /// Do the times of phases go to the log?
    pub(super) fn is_timed(&self) -> bool {
        self.phase.is_some()
    }

    /// Ends a phase: with OZ2_LOG=trace its time goes to the log. That waits for the device, so phases do not overlap then.
    pub(super) fn phase(&mut self, name: &str) -> Result<(), Fault> {
        if let Some(start) = self.phase {
            self.device.finish()?;
            tracing::trace!(phase = name, nanoseconds = start.elapsed().as_nanos() as u64, "cuda");
            self.phase = Some(Instant::now());
        }
        Ok(())
    }

    /// Makes regions of at least these bytes. Where more than the limit would be held with what is there of earlier steps and calls,
    /// what is too large or not wanted is given back before.
    pub(super) fn take(&mut self, wanted: &[(Region, usize)]) -> Result<(), Fault> {
        use Region::*;
        const LARGE: [Region; 9] = [RawA, RawB, PlanesA, PlanesB, Sums, Residues, Bounds, C0, C1];
        let bytes = |region| wanted.iter().find(|one| one.0 == region).map_or(0, |one| one.1);
        let held: usize = LARGE.iter().map(|&region| bytes(region).max(self.device.size(region))).sum();
        for region in LARGE {
            let (size, bytes) = (self.device.size(region), bytes(region));
            let is_kept = size >= bytes && (size == bytes || held <= self.limit);
            if !is_kept {
                self.device.give_back(region)?;
                for operand in [&mut self.a, &mut self.b].into_iter().filter(|operand| operand.raw == region)
                {
                    operand.raw_holds = None;
                }
            }
        }
        wanted.iter().filter(|one| one.1 > 0).try_for_each(|&(region, bytes)| {
            self.device.region(region, bytes)?;
            Ok(())
        })
    }

    pub(super) fn write<T: Copy>(&self, to: CUdeviceptr, values: &[T]) -> Result<(), Fault> {
        let sent = self.send(to, values);
        sent.and(self.device.wait_for(self.device.compute))
    }

    /// As `write`, without the wait: the values must stay until the stream has been waited for.
    pub(super) fn send<T: Copy>(&self, to: CUdeviceptr, values: &[T]) -> Result<(), Fault> {
        let (from, bytes) = (values.as_ptr().cast(), size_of_val(values));
        // SAFETY: the callers name device memory of this size.
        unsafe { self.device.libraries.driver.cuMemcpyHtoDAsync_v2(to, from, bytes, self.device.compute) }
    }

    pub(super) fn read<T: Copy>(&self, from: CUdeviceptr, values: &mut [T]) -> Result<(), Fault> {
        self.read_on(self.device.compute, from, values)
    }

    pub(super) fn read_on<T: Copy>(
        &self,
        stream: CUstream,
        from: CUdeviceptr,
        values: &mut [T],
    ) -> Result<(), Fault> {
        // SAFETY: the callers name device memory of this size; the values stay until the stream has been waited for.
        unsafe {
            let driver = &self.device.libraries.driver;
            let bytes = size_of_val(values);
            let copied = driver.cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), from, bytes, stream);
            let waited = driver.cuStreamSynchronize(stream);
            copied.and(waited)
        }
    }

    pub(super) fn set(&self, to: CUdeviceptr, byte: u8, count: usize) -> Result<(), Fault> {
        // SAFETY: the callers name device memory of this size.
        unsafe { self.device.libraries.driver.cuMemsetD8Async(to, byte, count, self.device.compute) }
    }

    /// Loads pieces of both operands and lets the compute stream wait for them.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub(super) unsafe fn load(
        &mut self,
        a: Option<Piece>,
        b: Option<Piece>,
    ) -> Result<[Option<DeviceLines>; 2], Fault> {
        let threads = self.settings.threads;
        // SAFETY: by the contract of this function.
        let a = unsafe { a.map(|piece| self.a.load(self.device, piece, threads)).transpose()? };
        let b = unsafe { b.map(|piece| self.b.load(self.device, piece, threads)).transpose()? };
        self.device.record(Event::Loaded, self.device.load)?;
        self.device.wait(self.device.compute, Event::Loaded)?;
        Ok([a, b])
    }

    /// Loads those of the pieces whose planes are not on the device already.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub(super) unsafe fn load_missing(
        &mut self,
        [of_a, of_b]: [Piece; 2],
    ) -> Result<[Option<DeviceLines>; 2], Fault> {
        let a = (self.a.planes_hold != of_a.key()).then_some(of_a);
        let b = (self.b.planes_hold != of_b.key()).then_some(of_b);
        // SAFETY: by the contract of this function.
        unsafe { self.load(a, b) }
    }

    /// Every piece of an operand, for the passes over all of it.
    fn pieces(operand: &Operand, lines: usize, blocks: &Blocks) -> Vec<Piece> {
        let lines_of =
            (0..operand.lines.count).step_by(lines).map(|i| (i, lines.min(operand.lines.count - i)));
        lines_of.flat_map(|l| spans(operand.lines.length, blocks).map(move |s| operand.piece(l, s))).collect()
    }

    /// Calls f for every piece of A and of B, with its place on the device.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn for_each_piece(
        &mut self,
        blocks: &Blocks,
        f: impl Fn(&Self, &DeviceLines, Piece, bool) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let of_a = Self::pieces(&self.a, blocks.rows, blocks);
        let of_b = Self::pieces(&self.b, blocks.columns, blocks);
        let all =
            of_a.into_iter().map(|piece| (piece, true)).chain(of_b.into_iter().map(|piece| (piece, false)));
        for (piece, is_a) in all {
            let (a, b) = if is_a { (Some(piece), None) } else { (None, Some(piece)) };
            // SAFETY: by the contract of this function.
            let loaded = unsafe { self.load(a, b)? };
            if let Some(lines) = loaded.into_iter().flatten().next() {
                f(self, &lines, piece, is_a)?;
            }
            self.device.record(Event::Consumed, self.device.compute)?;
        }
        Ok(())
    }

    fn operand(&self, is_a: bool) -> &Operand {
        if is_a { &self.a } else { &self.b }
    }

    /// The statistics of all lines of both operands: scan and the sums of step bound.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub(super) unsafe fn statistics(&mut self, blocks: &Blocks) -> Result<[Vec<Line>; 2], Stop> {
        for operand in [&self.a, &self.b] {
            let (s, count) = (operand.statistics, operand.lines.count);
            self.set(s.largest, 0, count * DeviceStatistics::LINE_BYTES)?;
            self.set(s.lowest, 0x7F, 4 * count)?;
        }
        // SAFETY: by the contract of this function.
        unsafe {
            self.for_each_piece(blocks, |run, lines, piece, is_a| {
                run.device.scan(lines, &run.operand(is_a).statistics.from(piece.first_line))
            })?;
        }
        let mut out = [Vec::new(), Vec::new()];
        for (operand, out) in [&self.a, &self.b].into_iter().zip(&mut out) {
            let (s, count) = (operand.statistics, operand.lines.count);
            let (mut largest, mut lowest) = (vector(count, 0u64)?, vector(count, 0i32)?);
            let mut nonzeros = vector(count, 0u32)?;
            self.read(s.largest, &mut largest)?;
            self.read(s.lowest, &mut lowest)?;
            self.read(s.nonzeros, &mut nonzeros)?;
            *out = vector(count, Line::new(&Scan::EMPTY))?;
            for (i, line) in out.iter_mut().enumerate() {
                let scan = Scan::from_parts(largest[i], lowest[i], nonzeros[i].into());
                if !scan.is_finite() {
                    return Err(Stop::Declined(Reason::NonFinite));
                }
                *line = Line::new(&scan);
                lowest[i] = line.exponent;
            }
            self.write(s.exponents, &lowest)?;
        }
        for operand in [&self.a, &self.b] {
            let count = operand.lines.count;
            self.set(operand.statistics.sums, 0, 8 * count)?;
            self.set(operand.statistics.squares, 0, 8 * count)?;
        }
        // SAFETY: by the contract of this function.
        unsafe {
            self.for_each_piece(blocks, |run, lines, piece, is_a| {
                let operand = run.operand(is_a);
                run.magnitudes(operand, lines, piece, true)
            })?;
        }
        // What the last pieces left in the planes can be used if they are all there is.
        for operand in [&mut self.a, &mut self.b] {
            let whole =
                Piece { first_line: 0, lines: operand.lines.count, first: 0, length: operand.lines.length };
            let alone = operand.lines.length <= blocks.length;
            let all_lines = if operand.raw == Region::RawA { blocks.rows } else { blocks.columns };
            operand.planes_hold = if alone && operand.lines.count <= all_lines { whole.key() } else { None };
        }
        for (operand, lines) in [&self.a, &self.b].into_iter().zip(&mut out) {
            let (s, count) = (operand.statistics, operand.lines.count);
            let (mut sums, mut squares) = (vector(count, 0u64)?, vector(count, 0u64)?);
            self.read(s.sums, &mut sums)?;
            self.read(s.squares, &mut squares)?;
            for (i, line) in lines.iter_mut().enumerate() {
                (line.sum, line.squares) = (sums[i], squares[i]);
            }
        }
        Ok(out)
    }

    /// The magnitudes of a piece, in the region for the planes of its operand (which is large enough).
    pub(super) fn magnitudes(
        &self,
        operand: &Operand,
        lines: &DeviceLines,
        piece: Piece,
        sums: bool,
    ) -> Result<(), Fault> {
        let (padded_lines, pitch) = (padded(piece.lines), padded(piece.length));
        let out = self.device.existing(operand.planes);
        let statistics = operand.statistics.from(piece.first_line);
        self.device.magnitudes(lines, padded_lines as i32, &statistics, out, pitch as i64, sums)
    }
}

//! The kernels as methods: their parameters, and the rule for their grids (see the sources in kernels/).

use std::ffi::c_int;

use cudarc::driver::sys::CUdeviceptr;

use super::blocks::Layout;
use super::device::{Device, Kernel, Region};
use super::launch::Launch;
use super::library::Fault;

/// Where a kernel finds the lines of an operand on the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLines {
    pub address: CUdeviceptr,
    pub line_stride: i64,
    pub element_stride: i64,
    pub lines: i32,
    pub length: i32,
}

/// The statistics of lines on the device, each an array over all lines of an operand.
#[derive(Clone, Copy, Debug)]
pub struct DeviceStatistics {
    pub largest: CUdeviceptr,
    pub sums: CUdeviceptr,
    pub squares: CUdeviceptr,
    pub maxima: CUdeviceptr,
    pub lowest: CUdeviceptr,
    pub nonzeros: CUdeviceptr,
    pub exponents: CUdeviceptr,
    pub needs: CUdeviceptr,
    pub scales: CUdeviceptr,
}

impl DeviceStatistics {
    /// Bytes for a line.
    pub const LINE_BYTES: usize = 4 * 8 + 5 * 4;

    /// The arrays of `count` lines from an address that is a multiple of 8.
    pub fn at(address: CUdeviceptr, count: usize) -> Self {
        let count = count as u64;
        let wide = |number: u64| address + 8 * number * count;
        let narrow = |number: u64| wide(4) + 4 * number * count;
        Self {
            largest: wide(0),
            sums: wide(1),
            squares: wide(2),
            maxima: wide(3),
            lowest: narrow(0),
            nonzeros: narrow(1),
            exponents: narrow(2),
            needs: narrow(3),
            scales: narrow(4),
        }
    }

    /// The arrays from line `first` on.
    pub fn from(&self, first: usize) -> Self {
        let (wide, narrow) = (8 * first as u64, 4 * first as u64);
        Self {
            largest: self.largest + wide,
            sums: self.sums + wide,
            squares: self.squares + wide,
            maxima: self.maxima + wide,
            lowest: self.lowest + narrow,
            nonzeros: self.nonzeros + narrow,
            exponents: self.exponents + narrow,
            needs: self.needs + narrow,
            scales: self.scales + narrow,
        }
    }
}

/// A rectangle of the bound product on the device with the statistics of its rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct DeviceBounds {
    pub g: CUdeviceptr,
    pub ld: i32,
    pub rows: i32,
    pub columns: i32,
    pub row: DeviceStatistics,
    pub column: DeviceStatistics,
}

/// A launch of a kernel in blocks of so many threads with these parameters, which must be those of the kernel in kernels/.
macro_rules! launch {
    ($device:expr, $kernel:expr, $grid:expr, $threads:expr, $($parameter:expr),*) => {
        Launch::new($device.function($kernel), $grid, $threads)$(.with($parameter))*
    };
}

/// Queues such a launch.
macro_rules! start {
    ($device:expr, $kernel:ident, $grid:expr, $($parameter:expr),*) => {{
        let launch = launch!($device, Kernel::$kernel, $grid, BLOCK, $($parameter),*);
        // SAFETY: the parameters are those of the kernel, and name regions that are large enough.
        unsafe { $device.start(&launch) }
    }};
}

/// The threads of a block of nearly every kernel.
const BLOCK: usize = 256;
/// The most blocks in the second direction; kernels go on in strides.
const MOST_Y: usize = 65535;

/// A grid with `x` things a block in the first direction and `y` in the second.
fn grid(columns: [usize; 2], [x, y]: [usize; 2]) -> [usize; 2] {
    [columns[0].div_ceil(x).max(1), columns[1].div_ceil(y).clamp(1, MOST_Y)]
}

/// The grid of the walks over entries of G.
fn entries(b: &DeviceBounds, tile: [usize; 2]) -> [usize; 2] {
    grid([b.rows as usize, b.columns as usize], tile)
}

impl Device {
    pub fn scan(&self, x: &DeviceLines, s: &DeviceStatistics) -> Result<(), Fault> {
        start!(
            self,
            Scan,
            grid([x.lines as usize, x.length as usize], [32, 512]),
            x.address,
            x.line_stride,
            x.element_stride,
            x.lines,
            x.length,
            s.largest,
            s.lowest,
            s.nonzeros
        )
    }

    /// `sums`: whether the sums of the lines are wanted too.
    pub fn magnitudes(
        &self,
        x: &DeviceLines,
        padded: i32,
        s: &DeviceStatistics,
        out: CUdeviceptr,
        pitch: i64,
        sums: bool,
    ) -> Result<(), Fault> {
        let (sum, square): (CUdeviceptr, CUdeviceptr) = if sums { (s.sums, s.squares) } else { (0, 0) };
        start!(
            self,
            Magnitudes,
            grid([padded as usize, pitch as usize], [16, 512]),
            x.address,
            x.line_stride,
            x.element_stride,
            x.lines,
            x.length,
            padded,
            s.exponents,
            out,
            pitch,
            sum,
            square
        )
    }

    pub fn add_bounds(
        &self,
        sums: CUdeviceptr,
        g: CUdeviceptr,
        count: usize,
        first: bool,
    ) -> Result<(), Fault> {
        let (number, first) = (count as i64, c_int::from(first));
        start!(self, AddBounds, grid([count, 1], [256, 1]), sums, g, number, first)
    }

    pub fn needs(&self, b: &DeviceBounds, accuracy: i32, zeros: CUdeviceptr) -> Result<(), Fault> {
        start!(
            self,
            Needs,
            entries(b, [256, 32]),
            b.g,
            b.ld,
            b.rows,
            b.columns,
            b.row.nonzeros,
            b.row.sums,
            b.column.nonzeros,
            b.column.sums,
            accuracy,
            b.row.needs,
            b.column.needs,
            zeros
        )
    }

    pub fn meet(&self, a: &DeviceLines, x: &DeviceLines, b: &DeviceBounds) -> Result<(), Fault> {
        start!(
            self,
            Meet,
            entries(b, [64, 64]),
            a.address,
            a.line_stride,
            a.element_stride,
            x.address,
            x.line_stride,
            x.element_stride,
            a.length,
            b.g,
            b.ld,
            b.rows,
            b.columns,
            b.row.nonzeros,
            b.column.nonzeros,
            b.row.needs,
            b.column.needs
        )
    }

    pub fn maxima(&self, b: &DeviceBounds) -> Result<(), Fault> {
        start!(
            self,
            Maxima,
            entries(b, [256, 32]),
            b.g,
            b.ld,
            b.rows,
            b.columns,
            b.row.nonzeros,
            b.row.sums,
            b.column.nonzeros,
            b.column.sums,
            b.row.maxima,
            b.column.maxima
        )
    }

    pub fn largest_bits(&self, b: &DeviceBounds, bits: CUdeviceptr) -> Result<(), Fault> {
        start!(
            self,
            LargestBits,
            entries(b, [256, 32]),
            b.g,
            b.ld,
            b.rows,
            b.columns,
            b.row.nonzeros,
            b.row.sums,
            b.column.nonzeros,
            b.column.sums,
            b.row.needs,
            b.column.needs,
            bits
        )
    }

    pub fn largest_leading(
        &self,
        b: &DeviceBounds,
        bits: CUdeviceptr,
        leading: CUdeviceptr,
    ) -> Result<(), Fault> {
        start!(
            self,
            LargestLeading,
            entries(b, [256, 32]),
            b.g,
            b.ld,
            b.rows,
            b.columns,
            b.row.nonzeros,
            b.row.sums,
            b.column.nonzeros,
            b.column.sums,
            b.row.needs,
            b.column.needs,
            bits,
            leading
        )
    }

    /// Residues of pieces of A and B modulo the first `moduli` moduli, in planes of `padded` lines of `pitch` elements, as the layout
    /// has them. What is None is left as it is.
    pub fn residues(
        &self,
        pieces: [Option<DeviceLines>; 2],
        padded: [usize; 2],
        scales: [CUdeviceptr; 2],
        moduli: usize,
        pitch: usize,
        layout: &Layout,
    ) -> Launch {
        let none = DeviceLines { address: 0, line_stride: 0, element_stride: 1, lines: 0, length: 0 };
        let lines = |piece: Option<DeviceLines>, padded: usize| piece.map_or(0, |_| padded);
        let [lines_a, lines_b] = [lines(pieces[0], padded[0]), lines(pieces[1], padded[1])];
        let length = pieces.iter().flatten().map(|piece| piece.length).max().unwrap_or(0);
        let [a, b] = pieces.map(|piece| piece.unwrap_or(none));
        let (kernel, [tile, depth], threads) = match layout.levels {
            0 => (Kernel::Residues, [16, 128], BLOCK),
            1 => (Kernel::ResiduesStrassen1, [8, 128], BLOCK),
            _ => (Kernel::ResiduesStrassen2, [4, 64], 128),
        };
        let blocks = lines_a.div_ceil(tile) + lines_b.div_ceil(tile);
        launch!(
            self,
            kernel,
            grid([blocks, pitch], [1, depth]),
            threads,
            a.address,
            a.line_stride,
            a.element_stride,
            a.lines,
            lines_a as c_int,
            scales[0],
            self.existing(Region::PlanesA),
            b.address,
            b.line_stride,
            b.element_stride,
            b.lines,
            lines_b as c_int,
            scales[1],
            self.existing(Region::PlanesB),
            length,
            moduli as c_int,
            pitch as i64,
            c_int::from(!layout.sums)
        )
    }

    /// The sums of the planes first.. of both operands: for each modulus a rows x columns matrix, column-major.
    pub fn product(
        &self,
        [rows, columns, pitch]: [usize; 3],
        [a, b]: [Region; 2],
        first: usize,
        count: usize,
    ) -> Result<(), Fault> {
        const TRANSPOSE: c_int = 1;
        const NO_TRANSPOSE: c_int = 0;
        const INT8: c_int = 3;
        const INT32: c_int = 10;
        const COMPUTE_INT32: c_int = 72;
        const DEFAULT_ALGORITHM: c_int = -1;
        let (one, zero) = (1i32, 0i32);
        let (plane_a, plane_b) = (rows * pitch, columns * pitch);
        let a = self.existing(a) + (first * plane_a) as u64;
        let b = self.existing(b) + (first * plane_b) as u64;
        // SAFETY: the regions hold this many planes.
        unsafe {
            self.libraries.cublas.cublasGemmStridedBatchedEx(
                self.blas,
                TRANSPOSE,
                NO_TRANSPOSE,
                rows as c_int,
                columns as c_int,
                pitch as c_int,
                &raw const one,
                a,
                INT8,
                pitch as c_int,
                plane_a as i64,
                b,
                INT8,
                pitch as c_int,
                plane_b as i64,
                &raw const zero,
                self.existing(Region::Sums),
                INT32,
                rows as c_int,
                (rows * columns) as i64,
                count as c_int,
                COMPUTE_INT32,
                DEFAULT_ALGORITHM,
            )
        }
    }

    /// The sums of `count` moduli from `first` on to residues, added to those of earlier parts of the inner dimension if `add`.
    pub fn reduce(&self, entries: usize, first: usize, count: usize, add: bool) -> Result<(), Fault> {
        let (sums, plane) = (self.existing(Region::Sums), entries as i64);
        let out = self.existing(Region::Residues) + (first * entries) as u64;
        let (first, moduli, add) = (first as c_int, count as c_int, c_int::from(add));
        start!(
            self,
            Reduce,
            grid([entries, count], [1024, 1]),
            sums,
            plane,
            out,
            plane,
            plane,
            first,
            moduli,
            add
        )
    }

    /// The result of a block of [rows, columns], dense, at `c`, from planes of [rows, columns]. `check`: where the self-check leaves
    /// what it saw, or 0.
    pub fn reconstruct(
        &self,
        [[rows, columns], [ld, width]]: [[usize; 2]; 2],
        [s, t]: [CUdeviceptr; 2],
        moduli: usize,
        (mu, nu, beta): (f64, i32, f64),
        (c, check): (CUdeviceptr, CUdeviceptr),
        layout: &Layout,
    ) -> Launch {
        let (residues, crt) = (self.existing(Region::Residues), self.existing(Region::Constants));
        let (kernel, entries, threads) = match layout.levels {
            0 => (Kernel::Reconstruct, [rows, columns], BLOCK),
            1 => (Kernel::ReconstructStrassen1, [ld, width], BLOCK),
            _ => (Kernel::ReconstructStrassen2, [ld, width], 128),
        };
        let blocks = grid(entries, [threads, 8]);
        let plane = ld * width;
        let (plane, ld, ldc, moduli) = (plane as i64, ld as c_int, rows as i64, moduli as c_int);
        let (rows, columns, read_c) = (rows as c_int, columns as c_int, c_int::from(beta != 0.0));
        launch!(
            self, kernel, blocks, threads, residues, plane, ld, rows, columns, s, t, moduli, crt, mu, nu,
            beta, read_c, c, ldc, check
        )
    }
}

//! The kernels as methods: their parameters, and the rule for their grids (see the sources in kernels/).

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUdeviceptr;

use super::device::{Device, Kernel, Region};
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

/// Launches a kernel with the named variables as its parameters.
macro_rules! launch {
    ($device:expr, $kernel:ident, $grid:expr, $block:expr, $($parameter:expr),*) => {{
        let mut parameters = [$((&raw const $parameter).cast_mut().cast::<c_void>()),*];
        // SAFETY: the parameters are those of the kernel in kernels/; the driver copies them during the launch.
        unsafe { $device.launch(Kernel::$kernel, $grid, $block, &mut parameters) }
    }};
}

/// The block of every kernel.
const BLOCK: [usize; 2] = [256, 1];
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
        launch!(
            self,
            Scan,
            grid([x.lines as usize, x.length as usize], [32, 512]),
            BLOCK,
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
        launch!(
            self,
            Magnitudes,
            grid([padded as usize, pitch as usize], [16, 512]),
            BLOCK,
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
        launch!(self, AddBounds, grid([count, 1], [256, 1]), BLOCK, sums, g, number, first)
    }

    pub fn needs(&self, b: &DeviceBounds, accuracy: i32, zeros: CUdeviceptr) -> Result<(), Fault> {
        launch!(
            self,
            Needs,
            entries(b, [256, 32]),
            BLOCK,
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
        launch!(
            self,
            Meet,
            entries(b, [64, 64]),
            BLOCK,
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
        launch!(
            self,
            Maxima,
            entries(b, [256, 32]),
            BLOCK,
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
        launch!(
            self,
            LargestBits,
            entries(b, [256, 32]),
            BLOCK,
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
        launch!(
            self,
            LargestLeading,
            entries(b, [256, 32]),
            BLOCK,
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

    /// Residues of a piece modulo the first `moduli` moduli, a plane of padded lines for each; `permuted`: the lines as the fused
    /// product wants those of A.
    pub fn residues(
        &self,
        x: &DeviceLines,
        (padded, permuted): (i32, bool),
        scales: CUdeviceptr,
        moduli: i32,
        out: Region,
        pitch: i64,
    ) -> Result<(), Fault> {
        let (out, plane, permuted) = (self.existing(out), i64::from(padded) * pitch, c_int::from(permuted));
        launch!(
            self,
            Residues,
            grid([padded as usize, pitch as usize], [16, 128]),
            BLOCK,
            x.address,
            x.line_stride,
            x.element_stride,
            x.lines,
            x.length,
            padded,
            scales,
            moduli,
            out,
            pitch,
            plane,
            permuted
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
        launch!(
            self,
            Reduce,
            grid([entries, count], [1024, 1]),
            BLOCK,
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

    /// The result of a block, dense, at `c`. `shape`: rows, columns, and the rows with their padding. `check`: where the self-check
    /// leaves what it saw, or 0.
    pub fn reconstruct(
        &self,
        [rows, columns, ld]: [usize; 3],
        plane: usize,
        [s, t]: [CUdeviceptr; 2],
        moduli: usize,
        (mu, nu, beta): (f64, i32, f64),
        (c, check): (CUdeviceptr, CUdeviceptr),
    ) -> Result<(), Fault> {
        let (residues, crt) = (self.existing(Region::Residues), self.existing(Region::Constants));
        let blocks = grid([rows, columns], [256, 8]);
        let (plane, ld, ldc, moduli) = (plane as i64, ld as c_int, rows as i64, moduli as c_int);
        let (rows, columns, read_c) = (rows as c_int, columns as c_int, c_int::from(beta != 0.0));
        launch!(
            self,
            Reconstruct,
            blocks,
            BLOCK,
            residues,
            plane,
            ld,
            rows,
            columns,
            s,
            t,
            moduli,
            crt,
            mu,
            nu,
            beta,
            read_c,
            c,
            ldc,
            check
        )
    }
}

//! Every kernel of the library on the software device against `oz2blas::ozaki`, bit for bit, with the threads and blocks in
//! both orders.
//!
//! The device watches the memory around every buffer; what a kernel must leave alone inside a buffer holds sentinels here.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};

use num_bigint::BigInt;
use oz2blas::ozaki::bound::{Line, upper};
use oz2blas::ozaki::float::normalised;
use oz2blas::ozaki::moduli::{self, MAX_MODULI, MODULI, canonical};
use oz2blas::ozaki::needs::{self, Bounds, Entries, LineTable};
use oz2blas::ozaki::plan::Accuracy;
use oz2blas::ozaki::reference;
use oz2blas::ozaki::wide::Magnitude;

// ---- the device

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int;
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int;
    fn cuCtxPushCurrent_v2(context: usize) -> c_int;
    fn cuCtxPopCurrent_v2(context: *mut usize) -> c_int;
    fn cuCtxSynchronize() -> c_int;
    fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> c_int;
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> c_int;
    fn cuModuleUnload(module: usize) -> c_int;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    fn cuMemFree_v2(address: u64) -> c_int;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int;
    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: usize,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}

macro_rules! ptx {
    ($architecture:literal) => {
        [
            ptx!("scan", $architecture),
            ptx!("bound", $architecture),
            ptx!("residues", $architecture),
            ptx!("reduce", $architecture),
            ptx!("reconstruct", $architecture),
        ]
    };
    ($name:literal, $architecture:literal) => {
        include_str!(concat!("../../../kernels/ptx/", $name, ".", $architecture, ".ptx"))
    };
}

/// The committed PTX of both architectures.
const PTX: [[&str; 5]; 2] = [ptx!("compute_75"), ptx!("compute_80")];

fn ok(what: &str, status: c_int) {
    assert_eq!(status, 0, "{what}");
}

/// The device with a context on this thread and the modules loaded; one test at a time has it.
struct Gpu {
    modules: Vec<usize>,
    /// One block goes all the way along the second dimension of a grid, in steps.
    one_high: bool,
    _lock: MutexGuard<'static, ()>,
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Gpu {
    fn new(order: &str, ptx: &[&str], one_high: bool) -> Self {
        // A failed test has poisoned the lock, not the device.
        let lock = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        softgpu::testing::configure(&format!("order={order}"));
        let mut context = 0;
        // SAFETY: the signatures are those of CUDA, here and below.
        unsafe {
            ok("cuInit", cuInit(0));
            ok("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&mut context, 0));
            ok("cuCtxPushCurrent", cuCtxPushCurrent_v2(context));
        }
        let load = |text: &&str| {
            let text = CString::new(*text).expect("no NUL in PTX");
            let mut module = 0;
            unsafe { ok("cuModuleLoadData", cuModuleLoadData(&mut module, text.as_ptr().cast())) };
            module
        };
        Self { modules: ptx.iter().map(load).collect(), one_high, _lock: lock }
    }

    /// The grid of a kernel whose blocks take `width` times `height` things.
    fn tiles(&self, count: usize, width: usize, along: usize, height: usize) -> [usize; 2] {
        [count.div_ceil(width), if self.one_high { 1 } else { along.div_ceil(height).min(65535) }]
    }

    fn buffer<T: Copy>(&self, values: &[T]) -> Buffer<T> {
        let mut address = 0;
        let bytes = size_of_val(values);
        unsafe {
            ok("cuMemAlloc", cuMemAlloc_v2(&mut address, bytes));
            ok("cuMemcpyHtoD", cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes));
        }
        Buffer { address, count: values.len(), of: PhantomData }
    }

    /// Launches with blocks of so many threads and waits. Every parameter comes as its own bytes.
    fn launch(&self, name: &CStr, grid: [usize; 2], threads: usize, parameters: &[Vec<u8>]) {
        let mut function = 0;
        let found =
            |&&module: &&usize| unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) == 0 };
        self.modules.iter().find(found).unwrap_or_else(|| panic!("no kernel {name:?}"));
        let mut parameters: Vec<Vec<u8>> = parameters.to_vec();
        let mut pointers: Vec<*mut c_void> = parameters.iter_mut().map(|p| p.as_mut_ptr().cast()).collect();
        let (x, y, all) = (grid[0] as c_uint, grid[1] as c_uint, pointers.as_mut_ptr());
        unsafe {
            ok(
                "cuLaunchKernel",
                cuLaunchKernel(function, x, y, 1, threads as c_uint, 1, 1, 0, 0, all, std::ptr::null_mut()),
            );
            ok(&format!("{name:?}"), cuCtxSynchronize());
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        unsafe {
            for &module in &self.modules {
                cuModuleUnload(module);
            }
            cuCtxPopCurrent_v2(&mut 0);
            cuDevicePrimaryCtxRelease_v2(0);
        }
    }
}

/// Runs a test with the kernels of both architectures, in both orders, with grids as they should be and of the least height.
fn on_the_device(test: impl Fn(&Gpu)) {
    for one_high in [false, true] {
        for (order, ptx) in [("forward", &PTX[0]), ("reverse", &PTX[1])] {
            test(&Gpu::new(order, ptx, one_high));
        }
    }
}

struct Buffer<T> {
    address: u64,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Copy + Default> Buffer<T> {
    fn read(&self) -> Vec<T> {
        let mut values = vec![T::default(); self.count];
        let bytes = size_of_val(values.as_slice());
        unsafe { ok("cuMemcpyDtoH", cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes)) };
        values
    }
}

impl<T> Buffer<T> {
    /// The address of an element.
    fn at(&self, index: usize) -> u64 {
        self.address + (index * size_of::<T>()) as u64
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // The device looks at the memory around the buffer now.
        let status = unsafe { cuMemFree_v2(self.address) };
        if !std::thread::panicking() {
            ok("cuMemFree", status);
        }
    }
}

/// Calls a kernel: buffers stand for their addresses, everything else for itself.
macro_rules! launch {
    ($gpu:expr, $name:expr, $grid:expr, $($parameter:expr),* $(,)?) => {
        launch!($gpu, $name, $grid; 256, $($parameter),*)
    };
    ($gpu:expr, $name:expr, $grid:expr; $threads:expr, $($parameter:expr),* $(,)?) => {
        $gpu.launch($name, $grid, $threads, &[$($parameter.bytes()),*])
    };
}

trait Parameter {
    fn bytes(&self) -> Vec<u8>;
}

impl<T> Parameter for Buffer<T> {
    fn bytes(&self) -> Vec<u8> {
        self.address.to_ne_bytes().to_vec()
    }
}

macro_rules! parameters {
    ($($number:ty),*) => {
        $(impl Parameter for $number {
            fn bytes(&self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
        })*
    };
}
parameters!(i32, i64, u64, f64);

// ---- data

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    /// A finite double of any kind.
    fn double(&mut self) -> f64 {
        match self.below(12) {
            0 => 0.0,
            1 => -0.0,
            2 => f64::from_bits(self.next() & (1 << 63 | ((1 << 52) - 1))), // subnormal
            3 => f64::from_bits((1 + self.below(2046)) << 52),
            4 => self.below(2001) as f64 - 1000.0,
            5 => [f64::MAX, f64::MIN, 5e-324, -5e-324, f64::MIN_POSITIVE][self.below(5) as usize],
            6 | 7 => loop {
                let x = f64::from_bits(self.next());
                if x.is_finite() {
                    break x;
                }
            },
            _ => self.uniform(),
        }
    }

    /// A line of one kind or of all kinds of doubles.
    fn line(&mut self, length: usize) -> Vec<f64> {
        let kind = self.below(7);
        let scale = f64::from_bits((24 + self.below(2000)) << 52);
        let mut one = || match kind {
            0 => 0.0,
            1 => self.uniform(),
            2 => self.uniform() * scale,
            3 => self.below(19) as f64 - 9.0, // exact with few bits
            4 => f64::from_bits(self.next() & (1 << 63 | ((1 << 52) - 1))),
            5 => {
                if self.below(10) == 0 {
                    self.uniform()
                } else {
                    0.0
                }
            }
            _ => self.double(),
        };
        (0..length).map(|_| one()).collect()
    }

    fn lines(&mut self, lines: usize, length: usize) -> Vec<Vec<f64>> {
        (0..lines).map(|_| self.line(length)).collect()
    }
}

/// Lines as they lie in memory, with NaN around them.
struct Stored {
    values: Vec<f64>,
    offset: usize,
    line_stride: usize,
    element_stride: usize,
}

impl Stored {
    /// Element after element of a line (`along`), or line beside line; `extra` widens the leading dimension, `offset` misaligns.
    fn new(lines: &[Vec<f64>], along: bool, extra: usize, offset: usize) -> Self {
        let (count, length) = (lines.len(), lines[0].len());
        let (line_stride, element_stride) = if along { (length + extra, 1) } else { (1, count + extra) };
        let mut values = vec![f64::NAN; offset + line_stride * count.max(1) + element_stride * length];
        for (i, line) in lines.iter().enumerate() {
            for (h, &x) in line.iter().enumerate() {
                values[offset + i * line_stride + h * element_stride] = x;
            }
        }
        Self { values, offset, line_stride, element_stride }
    }

    fn on<'a>(&self, gpu: &'a Gpu) -> OnDevice<'a> {
        let buffer = gpu.buffer(&self.values);
        OnDevice {
            at: buffer.at(self.offset),
            _buffer: buffer,
            line_stride: self.line_stride as i64,
            element_stride: self.element_stride as i64,
            _gpu: PhantomData,
        }
    }
}

struct OnDevice<'a> {
    at: u64,
    _buffer: Buffer<f64>,
    line_stride: i64,
    element_stride: i64,
    _gpu: PhantomData<&'a Gpu>,
}

impl OnDevice<'_> {
    /// The address of element h of every line.
    fn from(&self, h: usize) -> u64 {
        self.at + 8 * h as u64 * self.element_stride as u64
    }
}

/// Numbers of lines and elements around the sides of every tile, and both ways to lie in memory, aligned or not.
fn shapes() -> impl Iterator<Item = (usize, usize, bool, usize, usize)> {
    let sizes = [(1, 1), (3, 7), (16, 128), (17, 129), (33, 513), (70, 67), (2, 1700)];
    let layouts = [(true, 0, 0), (true, 1, 0), (true, 2, 1), (false, 0, 0), (false, 3, 1)];
    sizes.into_iter().flat_map(move |(lines, length)| {
        layouts.into_iter().map(move |(along, extra, offset)| (lines, length, along, extra, offset))
    })
}

const EMPTY: i32 = 0x7F7F_7F7F;

// ---- scan

#[test]
fn scan() {
    let mut random = Random(1);
    let data: Vec<_> = shapes().map(|shape| (shape, random.lines(shape.0, shape.1))).collect();
    on_the_device(|gpu| {
        for ((lines, length, along, extra, offset), values) in &data {
            let mut values = values.clone();
            // Lines that are not finite are seen as such and hurt no other line.
            if *lines > 20 {
                values[5][length / 2] = f64::NAN;
                values[6][length - 1] = f64::NEG_INFINITY;
            }
            let x = Stored::new(&values, *along, *extra, *offset).on(gpu);
            let largest = gpu.buffer(&vec![0u64; *lines]);
            let lowest = gpu.buffer(&vec![EMPTY; *lines]);
            let nonzeros = gpu.buffer(&vec![0u32; *lines]);
            // In two parts, which merge.
            for (first, end) in
                [(0, length / 3), (length / 3, *length)].into_iter().filter(|(first, end)| first < end)
            {
                launch!(
                    gpu,
                    c"oz2_scan",
                    gpu.tiles(*lines, 32, end - first, 512),
                    x.from(first),
                    x.line_stride,
                    x.element_stride,
                    *lines as i32,
                    (end - first) as i32,
                    largest,
                    lowest,
                    nonzeros,
                );
            }
            let (largest, lowest, nonzeros) = (largest.read(), lowest.read(), nonzeros.read());
            for (i, line) in values.iter().enumerate() {
                let bits = line.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0);
                assert_eq!(largest[i], bits, "line {i} of {lines} x {length}");
                assert_eq!(nonzeros[i] as usize, line.iter().filter(|&&x| x != 0.0).count());
                if bits >= 0x7FF << 52 {
                    continue;
                }
                let want = reference::line(line);
                if want.nonzeros == 0 {
                    assert_eq!(lowest[i], EMPTY);
                } else {
                    assert_eq!(
                        want.exponent - 7 - lowest[i],
                        want.exact_at,
                        "line {i} of {lines} x {length}"
                    );
                }
            }
        }
    });
}

// ---- bound

#[test]
fn magnitudes() {
    let mut random = Random(2);
    let data: Vec<_> = shapes().map(|shape| (shape, random.lines(shape.0, shape.1))).collect();
    on_the_device(|gpu| {
        for ((lines, length, along, extra, offset), values) in &data {
            let x = Stored::new(values, *along, *extra, *offset).on(gpu);
            let padded = lines.next_multiple_of(16);
            let pitch = length.next_multiple_of(16) + 16 * extra;
            let want: Vec<Line> = values.iter().map(|line| reference::line(line)).collect();
            let exponents = gpu.buffer(&want.iter().map(|line| line.exponent).collect::<Vec<_>>());
            for sums_wanted in [true, false] {
                let out = gpu.buffer(&vec![0x55i8; (padded + 1) * pitch]);
                let sums = gpu.buffer(&vec![7u64; *lines]);
                let squares = gpu.buffer(&vec![9u64; *lines]);
                let (to_sums, to_squares) =
                    if sums_wanted { (sums.address, squares.address) } else { (0, 0) };
                launch!(
                    gpu,
                    c"oz2_magnitudes",
                    gpu.tiles(padded, 16, pitch, 512),
                    x.at,
                    x.line_stride,
                    x.element_stride,
                    *lines as i32,
                    *length as i32,
                    padded as i32,
                    exponents,
                    out,
                    pitch as i64,
                    to_sums,
                    to_squares,
                );
                let (out, sums, squares) = (out.read(), sums.read(), squares.read());
                for (at, &got) in out.iter().enumerate() {
                    let (i, h) = (at / pitch, at % pitch);
                    let want = if i >= padded {
                        0x55
                    } else if i < *lines && h < *length {
                        reference::magnitude(values[i][h], want[i].exponent) as i8
                    } else {
                        0
                    };
                    assert_eq!(got, want, "line {i} element {h} of {lines} x {length}");
                }
                for i in 0..*lines {
                    let (sum, square) = if sums_wanted { (want[i].sum, want[i].squares) } else { (0, 0) };
                    assert_eq!(
                        (sums[i], squares[i]),
                        (7 + sum, 9 + square),
                        "line {i} of {lines} x {length}"
                    );
                }
            }
        }
    });
}

#[test]
fn bounds_add_up() {
    let mut random = Random(3);
    let sums: Vec<i32> = (0..1000).map(|_| random.next() as i32 & i32::MAX).collect();
    on_the_device(|gpu| {
        let g = gpu.buffer(&vec![-1i64; 1001]);
        let on_device = gpu.buffer(&sums);
        for (count, first) in [(1000, 1), (999, 0)] {
            launch!(gpu, c"oz2_add_bounds", [3, 1], on_device, g, count as i64, first);
        }
        let got = g.read();
        for i in 0..1000 {
            assert_eq!(got[i], i64::from(sums[i]) * if i < 999 { 2 } else { 1 });
        }
        assert_eq!(got[1000], -1);
    });
}

/// A rectangle of the bound product, not from any matrices: whatever statistics and sums can be.
struct Rectangle {
    rows: Vec<Line>,
    columns: Vec<Line>,
    g: Vec<i64>,
}

impl Rectangle {
    fn new(random: &mut Random, rows: usize, columns: usize) -> Self {
        let mut line = || {
            let cut = random.below(32);
            let nonzeros =
                if random.below(6) == 0 { 0 } else { 1 + (random.next() as u32 >> 1 >> cut) as u64 };
            // Often sum + nonzeros is a power of two, and so is G: then the ratios of the needs are exact.
            let power = 1u64 << (33 + random.below(10));
            let any = random.next() >> 20 >> random.below(44);
            let sum = if random.below(3) == 0 { power - nonzeros } else { any };
            Line { exponent: 0, exact_at: 0, nonzeros, sum, squares: 0 }
        };
        let (rows, columns) = ((0..rows).map(|_| line()).collect(), (0..columns).map(|_| line()).collect());
        let mut out = Self { rows, columns, g: vec![] };
        for _ in 0..out.rows.len() * out.columns.len() {
            let any = random.next() as i64 >> 20 >> random.below(44);
            out.g.push(match random.below(9) {
                0 => 0,
                1..=3 => 1 << random.below(44),
                _ => any.abs(),
            });
        }
        out
    }

    fn tables(&self, accuracy: Accuracy) -> [LineTable; 2] {
        [&self.rows, &self.columns].map(|lines| LineTable::new(lines, accuracy).unwrap())
    }

    fn bounds<'a>(&'a self, [rows, columns]: &'a [LineTable; 2]) -> Bounds<'a> {
        let (m, n) = (self.rows.len(), self.columns.len());
        Bounds {
            rows: rows.part(0, m),
            columns: columns.part(0, n),
            g: Entries::Long(&self.g),
            more_bits: 0,
            stride: m,
        }
    }

    /// G with a wider leading dimension, the gap filled with what would be the largest by far.
    fn padded(&self, ld: usize) -> Vec<i64> {
        let rows = self.rows.len();
        let mut out = vec![i64::MAX; ld * self.columns.len()];
        for (from, to) in self.g.chunks(rows).zip(out.chunks_mut(ld)) {
            to[..rows].copy_from_slice(from);
        }
        out
    }
}

struct Statistics {
    nonzeros: Buffer<u32>,
    sums: Buffer<u64>,
}

impl Statistics {
    fn new(gpu: &Gpu, lines: &[Line]) -> Self {
        Self {
            nonzeros: gpu.buffer(&lines.iter().map(|line| line.nonzeros as u32).collect::<Vec<_>>()),
            sums: gpu.buffer(&lines.iter().map(|line| line.sum).collect::<Vec<_>>()),
        }
    }
}

#[test]
fn needs_maxima_and_largest() {
    let mut random = Random(4);
    let sizes = [(1, 1), (5, 40), (256, 32), (257, 33), (300, 70), (40, 129)];
    let data: Vec<_> = sizes.iter().map(|&(m, n)| Rectangle::new(&mut random, m, n)).collect();
    on_the_device(|gpu| {
        for rectangle in &data {
            let (m, n) = (rectangle.rows.len(), rectangle.columns.len());
            let ld = m + 5;
            let g = gpu.buffer(&rectangle.padded(ld));
            let (rows, columns) =
                (Statistics::new(gpu, &rectangle.rows), Statistics::new(gpu, &rectangle.columns));
            let grid = gpu.tiles(m, 256, n, 32);
            for (number, accuracy) in
                [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High].into_iter().enumerate()
            {
                let (mut row_want, mut column_want) = (vec![3i64; m], vec![2i64; n]);
                let (row_needs, column_needs) = (gpu.buffer(&vec![3i32; m]), gpu.buffer(&vec![2i32; n]));
                let zeros = gpu.buffer(&[40u32]);
                launch!(
                    gpu,
                    c"oz2_needs",
                    grid,
                    g,
                    ld as i32,
                    m as i32,
                    n as i32,
                    rows.nonzeros,
                    rows.sums,
                    columns.nonzeros,
                    columns.sums,
                    number as i32,
                    row_needs,
                    column_needs,
                    zeros,
                );
                let tables = rectangle.tables(accuracy);
                rectangle.bounds(&tables).raise_needs(&mut row_want, &mut column_want);
                let wide = |needs: Vec<i32>| needs.into_iter().map(i64::from).collect::<Vec<_>>();
                assert_eq!(wide(row_needs.read()), row_want);
                assert_eq!(wide(column_needs.read()), column_want);
                let counted = (0..m * n).filter(|&at| {
                    rectangle.g[at] == 0
                        && !rectangle.rows[at % m].is_zero()
                        && !rectangle.columns[at / m].is_zero()
                });
                assert_eq!(zeros.read(), [40 + counted.count() as u32]);
            }
            let (mut row_want, mut column_want) = (vec![0; m], vec![1000; n]);
            let (row_maxima, column_maxima) = (gpu.buffer(&row_want), gpu.buffer(&column_want));
            launch!(
                gpu,
                c"oz2_maxima",
                grid,
                g,
                ld as i32,
                m as i32,
                n as i32,
                rows.nonzeros,
                rows.sums,
                columns.nonzeros,
                columns.sums,
                row_maxima,
                column_maxima,
            );
            let tables = rectangle.tables(Accuracy::Fp64);
            rectangle.bounds(&tables).raise_maxima(&mut row_want, &mut column_want);
            assert_eq!(row_maxima.read(), row_want);
            assert_eq!(column_maxima.read(), column_want);

            // Small needs of any sign: many entries share the largest number of bits.
            for spread in [1, 3, 60] {
                let needs = |count| -> Vec<i32> {
                    let mut random = Random(spread + count as u64);
                    (0..count).map(|_| random.below(spread) as i32 - spread as i32 / 2).collect()
                };
                let (of_rows, of_columns) = (needs(m), needs(n));
                let (row_needs, column_needs) = (gpu.buffer(&of_rows), gpu.buffer(&of_columns));
                let bits = gpu.buffer(&[i32::from_ne_bytes([0x80; 4])]);
                let leading = gpu.buffer(&[0u64]);
                launch!(
                    gpu,
                    c"oz2_largest_bits",
                    grid,
                    g,
                    ld as i32,
                    m as i32,
                    n as i32,
                    rows.nonzeros,
                    rows.sums,
                    columns.nonzeros,
                    columns.sums,
                    row_needs,
                    column_needs,
                    bits,
                );
                launch!(
                    gpu,
                    c"oz2_largest_leading",
                    grid,
                    g,
                    ld as i32,
                    m as i32,
                    n as i32,
                    rows.nonzeros,
                    rows.sums,
                    columns.nonzeros,
                    columns.sums,
                    row_needs,
                    column_needs,
                    bits,
                    leading,
                );
                let (mut row_keys, mut column_keys) = (vec![0; m], vec![0; n]);
                needs::key_needs(&of_rows, &rectangle.rows, &mut row_keys);
                needs::key_needs(&of_columns, &rectangle.columns, &mut column_keys);
                let key = rectangle.bounds(&tables).largest_key(&row_keys, &column_keys);
                let want = needs::largest_of_key(key);
                let (bits, leading) = (bits.read()[0], leading.read()[0]);
                if leading == 0 {
                    assert_eq!(want, Magnitude::NONE);
                    assert_eq!(bits, i32::from_ne_bytes([0x80; 4]));
                } else {
                    assert!(leading >> 63 == 1);
                    assert_eq!(Magnitude::new(leading, bits - 64), want);
                }
            }
        }
    });
}

#[test]
fn the_largest_bound_is_exact_to_the_last_bit() {
    // Two entries that differ in the last bit of U only; the larger has the smaller need on one side.
    let line = |sum| Line { exponent: 0, exact_at: 0, nonzeros: 1, sum, squares: 0 };
    let rectangle =
        Rectangle { rows: vec![line(0), line(1 << 40)], columns: vec![line(5)], g: vec![1 << 40, 1] };
    assert_eq!(upper(1 << 40, &rectangle.rows[0], &rectangle.columns[0]), (1 << 40) + 6);
    on_the_device(|gpu| {
        let g = gpu.buffer(&rectangle.g);
        let (rows, columns) =
            (Statistics::new(gpu, &rectangle.rows), Statistics::new(gpu, &rectangle.columns));
        let (row_needs, column_needs) = (gpu.buffer(&[4, 4]), gpu.buffer(&[-9]));
        let (bits, leading) = (gpu.buffer(&[i32::MIN]), gpu.buffer(&[0u64]));
        launch!(
            gpu,
            c"oz2_largest_bits",
            [1, 1],
            g,
            2,
            2,
            1,
            rows.nonzeros,
            rows.sums,
            columns.nonzeros,
            columns.sums,
            row_needs,
            column_needs,
            bits,
        );
        launch!(
            gpu,
            c"oz2_largest_leading",
            [1, 1],
            g,
            2,
            2,
            1,
            rows.nonzeros,
            rows.sums,
            columns.nonzeros,
            columns.sums,
            row_needs,
            column_needs,
            bits,
            leading,
        );
        assert_eq!(Magnitude::new(leading.read()[0], bits.read()[0] - 64), Magnitude::new((1 << 40) + 7, -5));
    });
}

#[test]
fn supports_that_meet() {
    on_the_device(|gpu| {
        let mut random = Random(5);
        for (m, n, length) in [(1, 1, 1), (5, 70, 64), (64, 64, 65), (65, 130, 200), (130, 3, 31)] {
            for (along_a, along_b) in [(true, true), (true, false), (false, true), (false, false)] {
                // Sparse: a third of the pairs meets, in few places.
                let sparse = |random: &mut Random, count: usize| -> Vec<Vec<f64>> {
                    let one =
                        |random: &mut Random| if random.below(14) == 0 { random.double() } else { -0.0 };
                    (0..count).map(|_| (0..length).map(|_| one(random)).collect()).collect()
                };
                let (a, b) = (sparse(&mut random, m), sparse(&mut random, n));
                let (lines_a, lines_b): (Vec<Line>, Vec<Line>) = (
                    a.iter().map(|x| reference::line(x)).collect(),
                    b.iter().map(|x| reference::line(x)).collect(),
                );
                let ld = m + 2;
                // G as a product would have it in most places; where it is zero by chance or by decree, the kernel looks.
                let g: Vec<i64> =
                    (0..ld * n).map(|at| if at % 3 == 0 || at % ld >= m { 1 } else { 0 }).collect();
                let (x, y) = (Stored::new(&a, along_a, 1, 1).on(gpu), Stored::new(&b, along_b, 0, 0).on(gpu));
                let (rows, columns) = (Statistics::new(gpu, &lines_a), Statistics::new(gpu, &lines_b));
                let (mut row_want, mut column_want) = (vec![1; m], vec![2; n]);
                let (row_needs, column_needs) = (gpu.buffer(&row_want), gpu.buffer(&column_want));
                let on_device = gpu.buffer(&g);
                launch!(
                    gpu,
                    c"oz2_meet",
                    gpu.tiles(m, 64, n, 64),
                    x.at,
                    x.line_stride,
                    x.element_stride,
                    y.at,
                    y.line_stride,
                    y.element_stride,
                    length,
                    on_device,
                    ld as i32,
                    m as i32,
                    n as i32,
                    rows.nonzeros,
                    columns.nonzeros,
                    row_needs,
                    column_needs,
                );
                for j in 0..n {
                    for i in 0..m {
                        let meet = a[i].iter().zip(&b[j]).any(|(x, y)| *x != 0.0 && *y != 0.0);
                        if g[j * ld + i] == 0 && meet {
                            (row_want[i], column_want[j]) = (10_000, 10_000);
                        }
                    }
                }
                assert_eq!(row_needs.read(), row_want, "{m} {n} {length}");
                assert_eq!(column_needs.read(), column_want, "{m} {n} {length}");
            }
        }
    });
}

// ---- residues and reduce

/// One operand of a launch of the kernel of the residues.
struct Residues {
    lines: usize,
    length: usize,
    stored: (bool, usize, usize),
    values: Vec<Vec<f64>>,
    scales: Vec<i32>,
    scaled: Vec<Vec<BigInt>>,
}

impl Residues {
    /// Scales from "all rounded away" to |a'| just below 2^155, and for the lines of integers small ones, which leave ties.
    fn draw(random: &mut Random, (lines, length): (usize, usize), stored: (bool, usize, usize)) -> Self {
        let mut values = random.lines(lines, length);
        let mut scales = vec![];
        for line in &mut values {
            let bits = match random.below(4) {
                0 => random.below(216) as i32 - 60,
                1 => 53 + random.below(20) as i32, // about where the power begins
                2 => 155,
                _ => random.below(56) as i32,
            };
            let exponent = reference::line(line).exponent;
            // Ties: odd multiples of half the unit, with all lengths.
            if random.below(3) == 0 {
                for x in line.iter_mut() {
                    let tie = (random.below(1 << 52) >> random.below(52)) as f64 + 0.5;
                    *x = if random.below(2) == 0 { tie } else { -tie };
                }
                scales.push(-(random.below(54) as i32));
            } else {
                scales.push(bits - exponent);
            }
        }
        let scaled = |(line, &s): (&Vec<f64>, &i32)| line.iter().map(|&x| reference::scaled(x, s)).collect();
        let scaled = values.iter().zip(&scales).map(scaled).collect();
        Self { lines, length, stored, values, scales, scaled }
    }

    /// The residue that belongs at a place of the planes; what is behind them is as before.
    fn want(&self, at: usize, [n, padded, pitch]: [usize; 3], permuted: bool) -> i8 {
        let (l, place, h) = (at / (padded * pitch), at / pitch % padded, at % pitch);
        let i = if permuted { line_at(place) } else { place };
        match l < n {
            false => 0x55,
            true if i < self.lines && h < self.length => reference::residue(&self.scaled[i][h], l),
            true => 0,
        }
    }
}

/// A and B in one launch, both or one of them, in all layouts.
#[test]
fn residues() {
    let mut random = Random(6);
    let mut data = vec![];
    let all: Vec<_> = shapes().collect();
    for (number, &(lines, length, along, extra, offset)) in all.iter().enumerate() {
        // B has the inner dimension of A, and the lines and the layout of another shape.
        let (others, _, other_along, other_extra, other_offset) = all[number * 7 % all.len()];
        let a = Residues::draw(&mut random, (lines, length), (along, extra, offset));
        let b = Residues::draw(&mut random, (others, length), (other_along, other_extra, other_offset));
        data.push((2 + number % 19, number % 5, [a, b]));
    }
    on_the_device(|gpu| {
        for (n, which, operands) in &data {
            // Every second one as the product kernels want A.
            let permuted = n % 2 == 0;
            let length = operands[0].length;
            let pitch = length.next_multiple_of(16) + 16 * (operands[0].stored.1 % 2);
            let present = [*which != 3, *which != 4];
            let padded = [0, 1].map(|o| {
                let multiple = if permuted && o == 0 { 64 } else { 16 };
                if present[o] { operands[o].lines.next_multiple_of(multiple) } else { 0 }
            });
            let x = operands.each_ref().map(|o| {
                let (along, extra, offset) = o.stored;
                Stored::new(&o.values, along, extra, offset).on(gpu)
            });
            let out = [0, 1].map(|o| gpu.buffer(&vec![0x55i8; n * padded[o] * pitch + 12]));
            let scales = operands.each_ref().map(|o| gpu.buffer(&o.scales));
            let [width, along] = gpu.tiles(1, 1, pitch, 128);
            launch!(
                gpu,
                c"oz2_residues",
                [width * (padded[0].div_ceil(16) + padded[1].div_ceil(16)), along],
                x[0].at,
                x[0].line_stride,
                x[0].element_stride,
                operands[0].lines as i32,
                padded[0] as i32,
                scales[0],
                out[0],
                x[1].at,
                x[1].line_stride,
                x[1].element_stride,
                operands[1].lines as i32,
                padded[1] as i32,
                scales[1],
                out[1],
                length as i32,
                *n as i32,
                pitch as i64,
                i32::from(permuted),
            );
            for o in [0, 1] {
                for (at, &got) in out[o].read().iter().enumerate() {
                    let want = if present[o] {
                        operands[o].want(at, [*n, padded[o], pitch], permuted && o == 0)
                    } else {
                        0x55
                    };
                    assert_eq!(got, want, "operand {o} place {at} N {n} padded {padded:?} pitch {pitch}");
                }
            }
        }
    });
}

/// The operands of all products of Strassen's form, from parts by their place along the lines and along the inner dimension;
/// docs/gpu.md. The lines of A are its rows, those of B its columns.
fn operands_of_strassen(is_a: bool, x: &[Vec<i64>]) -> Vec<i64> {
    let half = x.len() / 2;
    if half == 0 {
        return vec![x[0][0]];
    }
    let quarter = |r: usize, s: usize| -> Vec<Vec<i64>> {
        x[r * half..][..half].iter().map(|row| row[s * half..][..half].to_vec()).collect()
    };
    let of = |x: &[Vec<i64>], y: &[Vec<i64>], sign: i64| -> Vec<Vec<i64>> {
        x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x + sign * y).collect()).collect()
    };
    let all = if is_a {
        let [a11, a12, a21, a22] = [quarter(0, 0), quarter(0, 1), quarter(1, 0), quarter(1, 1)];
        let s1 = of(&a21, &a22, 1);
        let (s2, s3) = (of(&s1, &a11, -1), of(&a11, &a21, -1));
        let s4 = of(&a12, &s2, -1);
        [a11, a12, s4, a22, s1, s2, s3]
    } else {
        let [b11, b21, b12, b22] = [quarter(0, 0), quarter(0, 1), quarter(1, 0), quarter(1, 1)];
        let t1 = of(&b12, &b11, -1);
        let (t2, t3) = (of(&b22, &t1, -1), of(&b22, &b12, -1));
        let t4 = of(&t2, &b21, -1);
        [b11, b21, b22, t4, t1, t2, t3]
    };
    all.iter().flat_map(|x| operands_of_strassen(is_a, x)).collect()
}

/// Both operands for the kernel of some levels, and what it is to make of them.
struct OperandsOfStrassen<'a> {
    levels: usize,
    moduli: usize,
    operands: &'a [Residues; 2],
    permuted: bool,
    padded: [usize; 2],
    pitch: usize,
    want: [Vec<i8>; 2],
}

impl<'a> OperandsOfStrassen<'a> {
    /// `which`: 3 leaves out A, 4 leaves out B. The operands are cut anywhere from their middle on.
    fn new(levels: usize, moduli: usize, which: usize, operands: &'a [Residues; 2]) -> Self {
        let (side, permuted) = (1 << levels, moduli.is_multiple_of(2));
        let length = operands[0].length;
        let pitch = length.div_ceil(side).next_multiple_of(16) + 16 * (operands[0].stored.1 % 2);
        let padded = [0, 1].map(|o| {
            let multiple = if permuted && o == 0 { 64 } else { 8 };
            let present = which != 3 + o;
            if present { operands[o].lines.div_ceil(side).next_multiple_of(multiple) } else { 0 }
        });
        let planes = 7usize.pow(levels as u32) * moduli;
        let want = [0, 1].map(|o| {
            let Residues { lines, scaled, .. } = &operands[o];
            let residue = |l: usize, i: usize, h: usize| {
                if i < *lines && h < length { reference::residue(&scaled[i][h], l).into() } else { 0 }
            };
            let mut want = vec![0; planes * padded[o] * pitch];
            for at in 0..moduli * padded[o] * pitch {
                let (l, place, h) = (at / (padded[o] * pitch), at / pitch % padded[o], at % pitch);
                let i = if permuted && o == 0 { line_at(place) } else { place };
                let of_line = |r: usize| (0..side).map(move |s| (i + r * padded[o], h + s * pitch));
                let parts: Vec<Vec<i64>> =
                    (0..side).map(|r| of_line(r).map(|(i, h)| residue(l, i, h)).collect()).collect();
                for (c, x) in operands_of_strassen(o == 0, &parts).into_iter().enumerate() {
                    let plane = l * planes / moduli + c;
                    want[(plane * padded[o] + place) * pitch + h] = canonical(x, l) as i8;
                }
            }
            want
        });
        Self { levels, moduli, operands, permuted, padded, pitch, want }
    }

    fn check(&self, gpu: &Gpu) {
        let Self { levels, operands, padded, .. } = self;
        let (kernel, tile, depth, threads) = match levels {
            1 => (c"oz2_residues_strassen_1", 8, 128, 256),
            _ => (c"oz2_residues_strassen_2", 4, 64, 128),
        };
        let x = operands.each_ref().map(|o| {
            let (along, extra, offset) = o.stored;
            Stored::new(&o.values, along, extra, offset).on(gpu)
        });
        let out = self.want.each_ref().map(|want| gpu.buffer(&vec![0x55i8; want.len() + 12]));
        let scales = operands.each_ref().map(|o| gpu.buffer(&o.scales));
        let [width, along] = gpu.tiles(1, 1, self.pitch, depth);
        launch!(
            gpu,
            kernel,
            [width * (padded[0].div_ceil(tile) + padded[1].div_ceil(tile)), along];
            threads,
            x[0].at,
            x[0].line_stride,
            x[0].element_stride,
            operands[0].lines as i32,
            padded[0] as i32,
            scales[0],
            out[0],
            x[1].at,
            x[1].line_stride,
            x[1].element_stride,
            operands[1].lines as i32,
            padded[1] as i32,
            scales[1],
            out[1],
            operands[0].length as i32,
            self.moduli as i32,
            self.pitch as i64,
            i32::from(self.permuted),
        );
        for (o, want) in self.want.iter().enumerate() {
            let got = out[o].read();
            let (got, behind) = got.split_at(want.len());
            assert!(behind.iter().all(|&x| x == 0x55));
            if let Some(at) = (0..want.len()).find(|&at| got[at] != want[at]) {
                let (plane, place) = (at / (padded[o] * self.pitch), at / self.pitch % padded[o]);
                let (h, got, want) = (at % self.pitch, got[at], want[at]);
                panic!(
                    "{levels} levels operand {o} plane {plane} place {place} element {h}: {got}, not {want}"
                );
            }
        }
    }
}

/// The operands of all products of both matrices, with one level and with two.
#[test]
fn residues_of_strassen() {
    let mut random = Random(16);
    let mut data = vec![];
    let all: Vec<_> = shapes().collect();
    for (number, &(lines, length, along, extra, offset)) in all.iter().enumerate() {
        let (others, _, other_along, other_extra, other_offset) = all[number * 7 % all.len()];
        let a = Residues::draw(&mut random, (lines, length), (along, extra, offset));
        let b = Residues::draw(&mut random, (others, length), (other_along, other_extra, other_offset));
        data.push((2 + number % 19, number % 5, [a, b]));
    }
    let cases: Vec<_> = data
        .iter()
        .flat_map(|(n, which, operands)| {
            [1, 2].map(|levels| OperandsOfStrassen::new(levels, *n, *which, operands))
        })
        .collect();
    on_the_device(|gpu| cases.iter().for_each(|case| case.check(gpu)));
}

/// Scaling and residues are one pass: the code for all moduli loads elements at no more places than that for one would.
#[test]
fn an_element_is_read_once() {
    for text in [ptx!("residues", "compute_75"), ptx!("residues", "compute_80")] {
        let count = |text: &str, what: &[&str]| {
            text.lines().filter(|line| what.iter().all(|part| line.contains(part))).count()
        };
        for (name, parts, words, word) in [
            ("oz2_residues(", 1, MODULI.len(), "st.global.u32"),
            ("oz2_residues_strassen_1(", 4, 7, "st.global.u32"),
            ("oz2_residues_strassen_2(", 16, 49, "st.global.u16"),
        ] {
            let code = text.split(".entry ").find(|part| part.starts_with(name)).unwrap();
            // Pairs and single ones of four neighbours, and a single one into the tile, unrolled.
            let loads = count(code, &["ld.global", "64 "]);
            assert!((parts..20 * parts).contains(&loads), "{name} {loads}");
            assert_eq!(count(code, &[word]), words, "words of all moduli, or of one");
            assert_eq!(count(code, &[".local"]), 0, "all in registers");
        }
    }
}

/// The line of A that the product kernels want at this place: at 8 j + 2 q + b of every 64 the line 16 q + 2 j + b.
fn line_at(place: usize) -> usize {
    place - place % 64 + 16 * (place % 8 / 2) + 2 * (place % 64 / 8) + place % 2
}

/// Every power of two up to 2^154 with every modulus, from the largest and the smallest mantissas.
#[test]
fn residues_of_powers() {
    let values: Vec<Vec<f64>> = (0..155)
        .map(|x| {
            let full = ((1u64 << 53) - 1) as f64;
            let top = f64::from_bits((1023 + x as u64) << 52);
            vec![top, -top, top * 1.5, full, -full, 5e-324, -5e-324, f64::MIN_POSITIVE]
        })
        .collect();
    // The last three are scaled up from the subnormal range, the mantissas with one bit and a shift of up to 154.
    let scales: Vec<Vec<i32>> = vec![
        vec![0; 155],
        (0..155).map(|x| (154 - x).min(102)).collect(),
        (0..155).map(|x| 1074 + x).collect(),
    ];
    on_the_device(|gpu| {
        for (number, scales) in scales.iter().enumerate() {
            let kept: Vec<Vec<f64>> = values
                .iter()
                .zip(scales)
                .map(|(line, &s)| {
                    let fits = |x: f64| reference::scaled(x, s).bits() <= 155;
                    line.iter().map(|&x| if fits(x) { x } else { 0.0 }).collect()
                })
                .collect();
            let x = Stored::new(&kept, number % 2 == 0, 0, 0).on(gpu);
            let (out, on_device) = (gpu.buffer(&vec![0x55i8; 20 * 155 * 8]), gpu.buffer(scales));
            launch!(
                gpu,
                c"oz2_residues",
                gpu.tiles(155, 16, 8, 128),
                0u64,
                0i64,
                1i64,
                0,
                0,
                0u64,
                0u64,
                x.at,
                x.line_stride,
                x.element_stride,
                155,
                155,
                on_device,
                out,
                8,
                20,
                8i64,
                0,
            );
            for (at, &got) in out.read().iter().enumerate() {
                let (l, i, h) = (at / (155 * 8), at / 8 % 155, at % 8);
                let want = reference::residue(&reference::scaled(kept[i][h], scales[i]), l);
                assert_eq!(got, want, "{:e} 2^{} modulus {l}", kept[i][h], scales[i]);
            }
        }
    });
}

#[test]
fn reduction() {
    on_the_device(|gpu| {
        let mut random = Random(7);
        for (count, first, n, offset) in
            [(1usize, 0usize, 20usize, 0usize), (7, 3, 5, 1), (4096, 0, 20, 0), (4099, 16, 4, 0)]
        {
            let (sums_plane, out_plane) = (count + 4 - count % 4 + offset, count.next_multiple_of(4) + 4);
            let mut sums = vec![0i32; offset + n * sums_plane];
            let mut start = vec![0x55i8; offset + n * out_plane];
            for l in 0..n {
                let p = MODULI[first + l];
                for i in 0..count {
                    // Everything near ties and at the ends of the range, then any sum.
                    let tie =
                        (random.next() as i32 >> random.below(30)) / p * p + p / 2 + random.below(3) as i32
                            - 1;
                    let any = random.next() as i32 >> random.below(31);
                    sums[offset + l * sums_plane + i] = match i % 8 {
                        0 => [i32::MIN, i32::MAX, i32::MIN + 1, i32::MAX - 1][i / 8 % 4],
                        1 | 2 => {
                            if random.below(2) == 0 {
                                tie
                            } else {
                                tie.wrapping_neg()
                            }
                        }
                        _ => any,
                    };
                    start[offset + l * out_plane + i] =
                        canonical(random.next() as i32 as i64, first + l) as i8;
                }
            }
            for add in [0, 1] {
                let (on_device, out) = (gpu.buffer(&sums), gpu.buffer(&start));
                launch!(
                    gpu,
                    c"oz2_reduce",
                    [count.div_ceil(1024), n],
                    on_device.at(offset),
                    sums_plane as i64,
                    out.at(offset),
                    out_plane as i64,
                    count as i64,
                    first as i32,
                    n as i32,
                    add,
                );
                for (at, &got) in out.read().iter().enumerate() {
                    let place = at.checked_sub(offset).map(|at| (at / out_plane, at % out_plane));
                    let want = match place {
                        Some((l, i)) if i < count => {
                            let sum = i64::from(sums[offset + l * sums_plane + i])
                                + i64::from(add) * i64::from(start[at]);
                            reference::residue(&BigInt::from(sum), first + l)
                        }
                        _ => 0x55,
                    };
                    assert_eq!(got, want, "entry {at} count {count} add {add}");
                }
            }
        }
    });
}

// ---- reconstruct

/// C' = H_N.
fn limit(n: usize) -> BigInt {
    moduli::crt(n).limit(false).words().iter().rev().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word)
}

/// The table of constants that the host makes for the kernel.
fn crt_table(n: usize) -> Vec<i64> {
    let crt = moduli::crt(n);
    let mut table = crt.product_limbs.to_vec();
    for l in 0..n {
        table.push(crt.inverses[l].into());
        table.extend(crt.weights[l]);
    }
    table
}

/// What the kernel leaves for the self-check: the largest |C'| / P, how many are above 1/512, and the first of them.
fn check_of(n: usize, values: &[BigInt], rows: usize, got: &[u64]) {
    let product: BigInt = MODULI[..n].iter().map(|&p| BigInt::from(p)).product();
    let fraction = |c: &BigInt| {
        let scaled: BigInt = (c << 80) / &product;
        i128::try_from(scaled).unwrap() as f64 / 2f64.powi(80)
    };
    let fractions: Vec<f64> = values.iter().map(fraction).collect();
    let peak = fractions.iter().fold(0.0f64, |peak, x| peak.max(x.abs()));
    assert!(
        (f64::from_bits(got[0]) - peak).abs() < 1e-10,
        "N {n}: peak {}, not {peak}",
        f64::from_bits(got[0])
    );
    let flagged: Vec<usize> = (0..values.len()).filter(|&at| fractions[at].abs() > 1.0 / 512.0).collect();
    assert_eq!(got[1], flagged.len() as u64, "N {n}: entries out of range");
    let Some(&first) = flagged.first() else {
        assert_eq!(got[2], u64::MAX);
        return;
    };
    assert_eq!((got[2] >> 24) as usize, first, "{rows} rows");
    let bits = f64::from((got[2] as i32) << 8 >> 8) / f64::from(1 << 24);
    let apart = (bits - fractions[first]).abs();
    assert!(apart < 1e-7 || (apart - 1.0).abs() < 1e-7, "N {n}: {bits}, not {}", fractions[first]);
}

/// A matrix of values C' (column-major, `rows` high) through the kernel, with every scale of its row and column.
fn reconstruct(
    gpu: &Gpu,
    n: usize,
    values: &[BigInt],
    (row_scales, column_scales): (&[i32], &[i32]),
    (alpha, beta): (f64, f64),
    c: &[f64],
) {
    let (rows, columns) = (row_scales.len(), column_scales.len());
    let (ld, ldc) = (rows + 3, rows + 2);
    let plane = ld * columns + 5;
    let mut residues = vec![0x55i8; n * plane];
    for j in 0..columns {
        for i in 0..rows {
            for l in 0..n {
                residues[l * plane + j * ld + i] = reference::residue(&values[j * rows + i], l);
            }
        }
    }
    let launch = (c"oz2_reconstruct", gpu.tiles(rows, 256, columns, 8), 256);
    reconstruct_from(
        gpu,
        launch,
        n,
        (&residues, plane, ld, ldc),
        values,
        (row_scales, column_scales),
        (alpha, beta),
        c,
    );

    for levels in [1, 2] {
        let (kernel, threads) = match levels {
            1 => (c"oz2_reconstruct_strassen_1", 256),
            _ => (c"oz2_reconstruct_strassen_2", 128),
        };
        let side = 1 << levels;
        let (ld, width) = (rows.div_ceil(side) + 1, columns.div_ceil(side));
        let (plane, products) = (ld * width, 7usize.pow(levels as u32));
        let mut planes = vec![0i8; products * n * plane];
        let mut random = Random(values.len() as u64);
        for l in 0..n {
            let mut any = || canonical(random.next() as i32 as i64, l).into();
            for j in 0..width {
                for i in 0..ld {
                    let at = |row: usize, column: usize| match row < rows && column < columns {
                        true => i64::from(reference::residue(&values[column * rows + row], l)),
                        false => 0,
                    };
                    let along = |r: usize| (0..side).map(move |s| (i + r * ld, j + s * width));
                    let parts: Vec<Vec<i64>> =
                        (0..side).map(|r| along(r).map(|(row, column)| at(row, column)).collect()).collect();
                    for (c, m) in products_of_strassen(&parts, &mut any).into_iter().enumerate() {
                        planes[(products * l + c) * plane + j * ld + i] = canonical(m, l) as i8;
                    }
                }
            }
        }
        reconstruct_from(
            gpu,
            (kernel, gpu.tiles(ld, threads, width, 8), threads),
            n,
            (&planes, plane, ld, ldc),
            values,
            (row_scales, column_scales),
            (alpha, beta),
            c,
        );
    }
}

/// Products of Strassen's form that give these parts of C, by their rows and columns: of every seven, three are any.
fn products_of_strassen(c: &[Vec<i64>], any: &mut impl FnMut() -> i64) -> Vec<i64> {
    let half = c.len() / 2;
    if half == 0 {
        return vec![c[0][0]];
    }
    let mut all: [Vec<Vec<i64>>; 7] = std::array::from_fn(|_| vec![vec![0; half]; half]);
    for i in 0..half {
        for j in 0..half {
            let [c11, c12, c21, c22] = [c[i][j], c[i][j + half], c[i + half][j], c[i + half][j + half]];
            let [m1, m5, m6] = [any(), any(), any()];
            let (m2, m3, m7) = (c11 - m1, c12 - m1 - m6 - m5, c22 - m1 - m6 - m5);
            let m = [m1, m2, m3, m1 + m6 + m7 - c21, m5, m6, m7];
            all.iter_mut().zip(m).for_each(|(all, m)| all[i][j] = m);
        }
    }
    all.iter().flat_map(|part| products_of_strassen(part, any)).collect()
}

#[allow(clippy::too_many_arguments, reason = "what the kernel takes")]
fn reconstruct_from(
    gpu: &Gpu,
    (kernel, grid, threads): (&CStr, [usize; 2], usize),
    n: usize,
    (residues, plane, ld, ldc): (&[i8], usize, usize, usize),
    values: &[BigInt],
    (row_scales, column_scales): (&[i32], &[i32]),
    (alpha, beta): (f64, f64),
    c: &[f64],
) {
    let (rows, columns) = (row_scales.len(), column_scales.len());
    let mut before = vec![f64::from_bits(0x7FF8_DEAD_BEEF_0001); ldc * columns];
    for j in 0..columns {
        for i in 0..rows {
            if beta != 0.0 {
                before[j * ldc + i] = c[j * rows + i];
            }
        }
    }
    let (mu, nu) = normalised(alpha);
    let (planes, table, out) = (gpu.buffer(residues), gpu.buffer(&crt_table(n)), gpu.buffer(&before));
    let (s, t) = (gpu.buffer(row_scales), gpu.buffer(column_scales));
    let check = gpu.buffer(&[0u64, 0, u64::MAX]);
    launch!(
        gpu,
        kernel,
        grid;
        threads,
        planes,
        plane as i64,
        ld as i32,
        rows as i32,
        columns as i32,
        s,
        t,
        n as i32,
        table,
        mu,
        nu,
        beta,
        i32::from(beta != 0.0),
        out,
        ldc as i64,
        check,
    );
    check_of(n, values, rows, &check.read());
    for (at, got) in out.read().iter().enumerate() {
        let (j, i) = (at / ldc, at % ldc);
        if i >= rows {
            assert_eq!(got.to_bits(), before[at].to_bits(), "the gap of C");
            continue;
        }
        let c_prime = &values[j * rows + i];
        let scale = row_scales[i] + column_scales[j];
        let c = if beta == 0.0 { 0.0 } else { c[j * rows + i] };
        let want = reference::output(c_prime, scale, alpha, beta, c);
        assert!(
            got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
            "N {n} C' {c_prime} scale {scale} alpha {alpha:e} beta {beta:e} c {c:e}: {got:e}, not {want:e}"
        );
    }
}

const SCALES: [i32; 16] =
    [0, 1, 37, 200, 600, 1074, 1075, 1100, 1150, 1200, 1300, -800, -869, -900, -1000, -1100];

#[test]
fn reconstruction_of_extreme_values() {
    on_the_device(|gpu| {
        for n in 2..=MAX_MODULI {
            let h = limit(n);
            let mut rows: Vec<BigInt> = vec![];
            for x in [BigInt::ZERO, BigInt::from(1), BigInt::from(2), h.clone(), &h - 1, &h / 2, &h / 3] {
                rows.extend([x.clone(), -x]);
            }
            for word in [32u32, 64, 96, 128] {
                let power = BigInt::from(1) << word;
                for x in [&power - 1, power.clone(), &power + 1, &power >> 1] {
                    if x <= h {
                        rows.extend([x.clone(), -x]);
                    }
                }
            }
            let height = rows.len();
            let values: Vec<BigInt> = SCALES.iter().flat_map(|_| rows.clone()).collect();
            let c: Vec<f64> =
                (0..values.len()).map(|at| [-0.0, 1e-3, f64::MAX, 5e-324, 0.0, -7.5][at % 6]).collect();
            // Scales of rows that differ a little, so that no row is like the next.
            let row_scales: Vec<i32> = (0..height as i32).map(|i| i % 3 - 1).collect();
            for alpha_beta in [(1.0, 0.0), (-1.0, 1.0), (0.3, -0.7), (1e300, 0.0), (5e-324, 1.0), (-3.0, 0.0)]
            {
                reconstruct(gpu, n, &values, (&row_scales, &SCALES), alpha_beta, &c);
            }
        }
    });
}

/// (2m + 1) 2^x, a tie between two doubles, and its neighbours by one and by powers of two, also where the result is subnormal.
#[test]
fn reconstruction_of_near_ties() {
    let mut random = Random(8);
    let mut data = vec![];
    for n in 2..=MAX_MODULI {
        let h = limit(n);
        let room = h.bits() as i64 - 55;
        let mut values = vec![];
        while values.len() < 60 {
            let odd = BigInt::from((random.next() >> 10) | 1 | 1 << 53);
            let x = if room > 0 { random.below(room as u64) as u32 } else { 0 };
            let tie: BigInt = (odd << x) >> (-room).max(0) as u32;
            let y = random.below(u64::from(x) + 1) as u32;
            for offset in [BigInt::ZERO, BigInt::from(1), BigInt::from(1) << y] {
                for c_prime in [&tie + &offset, &tie - &offset] {
                    if c_prime <= h && -&c_prime <= h {
                        values.push(if random.below(2) == 0 { -c_prime } else { c_prime });
                    }
                }
            }
        }
        // The ends of the range and of the subnormal range as the highest bit of the result.
        let tops = [-1021, -1022, -1023, -1040, -1073, -1074, -1075, -1076, 0, 1023, 1024];
        let row_scales: Vec<i32> = values.iter().map(|x| x.bits() as i32).collect();
        data.push((
            n,
            tops.iter().flat_map(|_| values.clone()).collect::<Vec<_>>(),
            row_scales,
            tops.map(|top| -top),
        ));
    }
    on_the_device(|gpu| {
        for (n, values, row_scales, column_scales) in &data {
            reconstruct(gpu, *n, values, (row_scales, column_scales), (1.0, 0.0), &[]);
        }
    });
}

#[test]
fn reconstruction_of_any_values() {
    let mut random = Random(9);
    let mut data = vec![];
    for n in 2..=MAX_MODULI {
        let h = limit(n);
        let (rows, columns) = ([1, 31, 260][n % 3], [9, 8, 2][n % 3]);
        let any = |random: &mut Random| {
            let any = (0..3).fold(BigInt::ZERO, |sum, _| (sum << 64) + random.next());
            let value: BigInt = (any % (&h + 1)) >> random.below(160);
            if random.below(2) == 0 { -value } else { value }
        };
        let values: Vec<BigInt> = (0..rows * columns).map(|_| any(&mut random)).collect();
        let c: Vec<f64> = (0..rows * columns).map(|_| random.double()).collect();
        let mut scales =
            |count| -> Vec<i32> { (0..count).map(|_| random.below(1300) as i32 - 650).collect() };
        let (s, t) = (scales(rows), scales(columns));
        data.push((n, values, s, t, random.double(), random.double(), c));
    }
    on_the_device(|gpu| {
        for (n, values, s, t, alpha, beta, c) in &data {
            let alpha = if *alpha == 0.0 { 1.5 } else { *alpha };
            for alpha_beta in [(alpha, *beta), (1.0, 0.0), (1.0, 1.0)] {
                reconstruct(gpu, *n, values, (s, t), alpha_beta, c);
            }
        }
    });
}

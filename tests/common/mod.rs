//! Matrices with every layout that a BLAS call may have, and sentinels around them.
#![allow(dead_code, reason = "each test uses a part")]

use oz2blas::engine::cpu::CpuEngine;
use oz2blas::engine::{Engine, Outcome, Settings};
use oz2blas::gemm::{Gemm, Sizes, Transpose};
use oz2blas::options::Mode;
use oz2blas::ozaki::moduli::MAX_MODULI;
use oz2blas::ozaki::plan::Accuracy;
use oz2blas::ozaki::strassen::Levels;

/// Every engine that this CPU can run.
pub fn engines() -> Vec<CpuEngine> {
    oz2blas::engine::cpu::kernels::runnable().map(CpuEngine::with).collect()
}

pub const DEFAULTS: Settings = Settings {
    mode: Mode::Auto,
    moduli: MAX_MODULI,
    worth: MAX_MODULI,
    accuracy: Accuracy::Fp64,
    check: false,
    strassen: Levels::NONE,
    threads: 1,
    workspace: None,
};

/// What no result contains: padding that must stay.
pub const SENTINEL: u64 = 0x7FF8_DEAD_BEEF_0001;

/// A call in plain form: the m rows of op(A), the n columns of op(B), each k long, and C column-major.
#[derive(Clone, Debug)]
pub struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub beta: f64,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub c: Vec<f64>,
}

/// How the matrices lie in memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub ta: bool,
    pub tb: bool,
    /// What is added to the smallest leading dimensions of A, B and C.
    pub extra: [usize; 3],
    /// Bytes by which the matrices miss the alignment of a double.
    pub misaligned: usize,
}

pub const PLAIN: Layout = Layout { ta: false, tb: false, extra: [0; 3], misaligned: 0 };

/// A stored matrix in bytes, so that it can be misaligned; all but its elements are sentinels.
pub struct Stored {
    bytes: Vec<u8>,
    rows: usize,
    columns: usize,
    pub ld: usize,
    offset: usize,
}

impl Stored {
    fn new(
        rows: usize,
        columns: usize,
        extra: usize,
        misaligned: usize,
        value: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let ld = rows.max(1) + extra;
        // A vector of bytes has no alignment of its own: offset 0 is made a multiple of 8 by hand.
        let mut bytes = vec![0u8; ld * columns * 8 + 24];
        let offset = bytes.as_ptr().align_offset(8) + misaligned;
        bytes.chunks_mut(8).for_each(|chunk| chunk.fill(0xA5));
        let mut out = Self { bytes, rows, columns, ld, offset };
        for j in 0..columns {
            for i in 0..ld {
                let bits = if i < rows { value(i, j).to_bits() } else { SENTINEL };
                out.put(i, j, bits);
            }
        }
        out
    }

    fn at(&self, i: usize, j: usize) -> usize {
        self.offset + 8 * (i + j * self.ld)
    }

    fn put(&mut self, i: usize, j: usize, bits: u64) {
        let at = self.at(i, j);
        self.bytes[at..at + 8].copy_from_slice(&bits.to_ne_bytes());
    }

    fn get(&self, i: usize, j: usize) -> u64 {
        let at = self.at(i, j);
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    pub fn pointer(&mut self) -> *mut f64 {
        let offset = self.offset;
        self.bytes[offset..].as_mut_ptr().cast()
    }

    /// The elements column by column; fails if a byte around them has changed.
    pub fn take(&self) -> Vec<f64> {
        let inside = self.offset..self.offset + 8 * self.ld * self.columns;
        let around = self.bytes.iter().enumerate().filter(|(at, _)| !inside.contains(at));
        assert!(around.into_iter().all(|(_, &byte)| byte == 0xA5), "bytes around the matrix changed");
        let mut out = Vec::new();
        for j in 0..self.columns {
            for i in 0..self.ld {
                let bits = self.get(i, j);
                if i < self.rows {
                    out.push(f64::from_bits(bits));
                } else {
                    assert_eq!(bits, SENTINEL, "padding changed");
                }
            }
        }
        out
    }
}

impl Problem {
    /// The three stored matrices in the layout.
    pub fn store(&self, layout: Layout) -> [Stored; 3] {
        let (m, n, k) = (self.m, self.n, self.k);
        let a = |i: usize, h: usize| self.a[i * k + h];
        let b = |h: usize, j: usize| self.b[j * k + h];
        let store = |rows, columns, extra, value: &dyn Fn(usize, usize) -> f64| {
            Stored::new(rows, columns, extra, layout.misaligned, value)
        };
        let [ea, eb, ec] = layout.extra;
        [
            if layout.ta { store(k, m, ea, &|h, i| a(i, h)) } else { store(m, k, ea, &a) },
            if layout.tb { store(n, k, eb, &|j, h| b(h, j)) } else { store(k, n, eb, &b) },
            store(m, n, ec, &|i, j| self.c[i + j * m]),
        ]
    }

    pub fn gemm(&self, layout: Layout, [a, b, c]: &mut [Stored; 3]) -> Gemm {
        let transpose = |t| if t { Transpose::Yes } else { Transpose::No };
        let sizes = Sizes { m: self.m, n: self.n, k: self.k, lda: a.ld, ldb: b.ld, ldc: c.ld };
        let transposes = (transpose(layout.ta), transpose(layout.tb));
        let scalars = (self.alpha, self.beta);
        Gemm::new(transposes, sizes, scalars, a.pointer(), b.pointer(), c.pointer()).unwrap()
    }

    /// The outcome and C, after checks that nothing else has changed.
    pub fn run(&self, engine: &CpuEngine, settings: &Settings, layout: Layout) -> (Outcome, Vec<f64>) {
        self.run_with(engine, settings, layout)
    }

    /// The same for any engine.
    pub fn run_with(&self, engine: &dyn Engine, settings: &Settings, layout: Layout) -> (Outcome, Vec<f64>) {
        let mut stored = self.store(layout);
        let call = self.gemm(layout, &mut stored);
        // SAFETY: the matrices are ours and as large as the call says.
        let outcome = unsafe { engine.gemm(&call, settings) };
        let [before_a, before_b, _] = self.store(layout);
        let bits = |x: &Stored| x.take().iter().map(|x| x.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&stored[0]), bits(&before_a), "A changed");
        assert_eq!(bits(&stored[1]), bits(&before_b), "B changed");
        (outcome, stored[2].take())
    }
}

/// Equal bits, with a message that names the first difference.
pub fn assert_same_bits(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len());
    for (at, (x, y)) in got.iter().zip(want).enumerate() {
        assert_eq!(x.to_bits(), y.to_bits(), "{what}: entry {at} is {x:e}, not {y:e}");
    }
}

/// Reproducible random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Uniform in (-0.5, 0.5).
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

/// A number of one of eight kinds of data.
pub fn value(random: &mut Random, kind: u64) -> f64 {
    match kind {
        0 => random.uniform(),
        1 => random.below(19) as f64 - 9.0,
        2 => random.uniform() * 2f64.powi(random.below(24) as i32 - 12),
        3 => {
            if random.below(3) == 0 {
                random.uniform()
            } else {
                0.0
            }
        }
        4 => random.uniform() * f64::from_bits(random.below(60) << 52), // down into the subnormal range
        5 => random.uniform() as f32 as f64,
        6 => {
            if random.below(2) == 0 {
                1.0
            } else {
                -1.0
            }
        }
        _ => random.uniform() * 2f64.powi(900),
    }
}

/// A random call: operands of the given kinds, scalars that matter.
pub fn problem(random: &mut Random, (m, n, k): (usize, usize, usize), kinds: (u64, u64)) -> Problem {
    let a = (0..m * k).map(|_| value(random, kinds.0)).collect();
    let b = (0..n * k).map(|_| value(random, kinds.1)).collect();
    let c = (0..m * n).map(|_| random.uniform()).collect();
    let scalars = [0.0, 1.0, -1.0, 0.75, 3e-5, -1e200, 5e-324];
    let alpha = scalars[1 + random.below(6) as usize];
    let beta = scalars[random.below(7) as usize];
    Problem { m, n, k, alpha, beta, a, b, c }
}

/// A random layout.
pub fn layout(random: &mut Random) -> Layout {
    let mut extra = || random.below(3) as usize * 5;
    let extra = [extra(), extra(), extra()];
    let (ta, tb) = (random.below(2) == 1, random.below(2) == 1);
    Layout { ta, tb, extra, misaligned: 4 * random.below(2) as usize }
}

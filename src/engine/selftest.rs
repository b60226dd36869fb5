//! One fixed set of products, whose results have the same digest on every engine and every machine: `oz2run --selftest`, tests.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{Engine, Outcome, Settings, cpu};
use crate::gemm::{Gemm, Sizes, Transpose};
use crate::options::Mode;
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::plan::Accuracy;
use crate::ozaki::strassen::Levels;
use crate::route::Reason;

/// Products of the set.
pub const PRODUCTS: usize = 200;

/// The digest that every engine must give.
pub const EXPECTED: &str = "afe21d48fd4d46be70471082dd280143e3d891e8a178751571232d02a9cdf142";

/// SHA-256 of what became of all products, and of the memory of C after each, by an engine. What only CPU engines can do (`finer
/// plan`, single lines that are not finite) is done by the portable one, as in a call.
///
/// # Safety
///
/// The machine can run the engine.
pub unsafe fn digest(engine: &dyn Engine) -> String {
    let mut hash = Sha256::new();
    let mut random = Random(0x02B1_A500);
    for number in 0..PRODUCTS {
        let mut product = Product::new(&mut random, number);
        // SAFETY: by the contract of this function.
        let outcome = unsafe { product.run(engine) };
        let outcome = match outcome {
            // SAFETY: every machine runs the portable engine.
            Outcome::Declined(Reason::FinerPlan | Reason::NonFinite) => unsafe {
                product.run(&cpu::PORTABLE)
            },
            outcome => outcome,
        };
        hash.update(told(&outcome));
        for x in &product.c {
            hash.update(x.to_bits().to_le_bytes());
        }
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What of an outcome must be the same everywhere.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(report) => {
            let bound = report.bound.map(f64::to_bits);
            format!("{} {:?} {:?} {bound:?}", report.moduli, report.way, report.out)
        }
        Outcome::Declined(reason) => reason.name().to_owned(),
        // No engine that works says so.
        Outcome::Native(_) | Outcome::Partial(..) => "a fault".to_owned(),
    }
}

/// A call with its matrices.
struct Product {
    transposes: (Transpose, Transpose),
    sizes: Sizes,
    scalars: (f64, f64),
    settings: Settings,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Product {
    fn new(random: &mut Random, number: usize) -> Self {
        let mut up_to = |most: u64| 1 + random.below(most) as usize;
        let (m, n, k) = if number.is_multiple_of(20) {
            (up_to(130), up_to(130), up_to(700))
        } else {
            (up_to(48), up_to(48), up_to(160))
        };
        let transpose = |random: &mut Random| [Transpose::No, Transpose::Yes][random.below(2) as usize];
        let transposes = (transpose(random), transpose(random));
        let stored = |t: Transpose, rows: usize, columns: usize| {
            if t == Transpose::No { (rows, columns) } else { (columns, rows) }
        };
        let ((ra, ca), (rb, cb)) = (stored(transposes.0, m, k), stored(transposes.1, k, n));
        let extra = |random: &mut Random| random.below(4) as usize;
        let sizes =
            Sizes { m, n, k, lda: ra + extra(random), ldb: rb + extra(random), ldc: m + extra(random) };
        let kinds = (random.below(KINDS), random.below(KINDS));
        let mut filled =
            |count: usize, kind: u64| -> Vec<f64> { (0..count).map(|_| random.value(kind)).collect() };
        let (mut a, b) = (filled(sizes.lda * ca, kinds.0), filled(sizes.ldb * cb, kinds.1));
        let c = filled(sizes.ldc * n, 0);
        if number % 11 == 3 {
            let at = random.below(a.len() as u64) as usize;
            a[at] = [f64::NAN, f64::INFINITY][number % 2];
        }
        let scalars = [1.0, -1.0, 0.75, 3e-5, -1e200, 5e-324, 0.0];
        let scalars = (scalars[random.below(6) as usize], scalars[random.below(7) as usize]);
        let mode = [Mode::Auto, Mode::Auto, Mode::Accurate, Mode::Fast][random.below(4) as usize];
        let moduli = if mode == Mode::Auto { MAX_MODULI } else { 2 + random.below(19) as usize };
        let accuracy = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High][random.below(3) as usize];
        let check = random.below(4) == 0;
        let settings = Settings {
            mode,
            moduli,
            worth: MAX_MODULI,
            accuracy,
            check,
            // Every number of levels gives the same bits.
            strassen: Levels { most: number / 3 % 3, least: 0 },
            threads: 1 + number % 3,
            workspace: None,
        };
        Self { transposes, sizes, scalars, settings, a, b, c }
    }

    /// # Safety
    ///
    /// The machine can run the engine.
    unsafe fn run(&mut self, engine: &dyn Engine) -> Outcome {
        let (a, b, c) = (self.a.as_ptr(), self.b.as_ptr(), self.c.as_mut_ptr());
        let Some(call) = Gemm::new(self.transposes, self.sizes, self.scalars, a, b, c) else {
            return Outcome::Declined(Reason::IllegalArgument);
        };
        // SAFETY: the matrices are as large as the call says, and they are ours.
        unsafe { engine.gemm(&call, &self.settings) }
    }
}

/// Kinds of data that [`Random::value`] knows.
const KINDS: u64 = 8;

/// SplitMix64. All numbers come from integers by exact steps, so that they are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Uniform in [-0.5, 0.5).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    fn power(&mut self, width: u64) -> f64 {
        f64::from_bits((1023 - width / 2 + self.below(width)) << 52)
    }

    fn value(&mut self, kind: u64) -> f64 {
        match kind {
            0 => self.uniform(),
            1 => self.below(19) as f64 - 9.0,
            2 => self.uniform() * self.power(24),
            3 if self.below(3) > 0 => 0.0,
            3 => self.uniform(),
            4 => self.uniform() * f64::from_bits(self.below(60) << 52), // down into the subnormal range
            5 => f64::from(self.uniform() as f32),
            6 => [1.0, -1.0][self.below(2) as usize],
            _ => self.uniform() * self.power(70),
        }
    }
}

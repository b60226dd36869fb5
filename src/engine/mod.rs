//! The engines: what computes an emulated call. A new one is one file (or folder) and one line in [`ENGINES`].

use std::time::Duration;

use crate::gemm::{Gemm, Rectangle};
use crate::options::{EngineChoice, Mode};
use crate::ozaki::plan::{Accuracy, Out, Way};
use crate::ozaki::strassen::Levels;
use crate::route::Reason;

pub mod cpu;
pub mod cuda;
pub mod process;
pub mod selftest;

/// The engines that OZ2_ENGINE can name, in the order in which auto prefers them. Their place in this list is their number.
pub const NAMES: [&str; 5] = ["cuda", "amx", "avx512", "avx2", "portable"];

pub const CUDA: usize = 0;
pub const AMX: usize = 1;
pub const AVX512: usize = 2;
pub const AVX2: usize = 3;
pub const PORTABLE: usize = 4;

/// The engines of this version, by their numbers.
#[cfg(target_arch = "x86_64")]
static ENGINES: [Option<&dyn Engine>; NAMES.len()] =
    [Some(&cuda::CUDA), Some(&cpu::AMX), Some(&cpu::AVX512), Some(&cpu::AVX2), Some(&cpu::PORTABLE)];
#[cfg(not(target_arch = "x86_64"))]
static ENGINES: [Option<&dyn Engine>; NAMES.len()] =
    [Some(&cuda::CUDA), None, None, None, Some(&cpu::PORTABLE)];

/// The number of a named engine.
pub fn index_of(choice: EngineChoice) -> usize {
    match choice {
        EngineChoice::Auto | EngineChoice::Cuda => CUDA,
        EngineChoice::Amx => AMX,
        EngineChoice::Avx512 => AVX512,
        EngineChoice::Avx2 => AVX2,
        EngineChoice::Portable => PORTABLE,
    }
}

/// The numbers of the engines that this machine can run, best first. Looks for CUDA at the first question.
pub fn available() -> &'static [usize] {
    available_for(EngineChoice::Auto)
}

/// The same as far as it matters for a choice: nobody looks for CUDA or asks for AMX if another engine is named.
pub fn available_for(choice: EngineChoice) -> &'static [usize] {
    let is_there = |number: usize| match number {
        CUDA => cuda::is_available(),
        _ => cpu::has(number),
    };
    let wanted =
        |number: usize| choice == EngineChoice::Auto || index_of(choice) == number || number == PORTABLE;
    let set = (0..NAMES.len()).filter(|&number| wanted(number) && is_there(number));
    let (list, count) = &LISTS[set.fold(0, |set, number| set | 1 << number)];
    &list[..*count]
}

/// The numbers in each set of engines, in their order: what is asked for at every call is not put together at every call.
static LISTS: [([usize; NAMES.len()], usize); 1 << NAMES.len()] = {
    let mut lists = [([0; NAMES.len()], 0); 1 << NAMES.len()];
    let mut set = 0;
    while set < lists.len() {
        let mut number = 0;
        while number < NAMES.len() {
            if set >> number & 1 == 1 {
                lists[set].0[lists[set].1] = number;
                lists[set].1 += 1;
            }
            number += 1;
        }
        set += 1;
    }
    lists
};

/// An engine of this version by its number.
pub fn get(number: usize) -> Option<&'static dyn Engine> {
    ENGINES.get(number).copied().flatten()
}

/// How a call is to be emulated.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub mode: Mode,
    /// N in the modes accurate and fast; the most moduli that auto may use.
    pub moduli: usize,
    /// Mode auto: a plan with more moduli than this gains nothing beside the native BLAS (Reason `no gain`).
    pub worth: usize,
    pub accuracy: Accuracy,
    /// The self-check: the plan keeps eight bits of room, and no entry out of range gets to C (NUMERICS section 5).
    pub check: bool,
    /// The levels of Strassen's form.
    pub strassen: Levels,
    /// The most threads to use, at least 1.
    pub threads: usize,
    /// The most bytes that all calls together may hold on the host, and on each device; None: what the engine thinks right.
    pub workspace: Option<usize>,
}

/// Where the time of a call went; zero where an engine does not tell. The reconstruction runs together with the products.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phases {
    /// Scan and magnitudes of all lines.
    pub scan: Duration,
    /// The bound product and the plan.
    pub bound: Duration,
    pub residues: Duration,
    pub product: Duration,
}

/// How a call was emulated.
#[derive(Clone, Debug)]
pub struct Report {
    pub moduli: usize,
    /// The step that found the plan.
    pub way: Way,
    /// The lines that are still to be computed by the native BLAS; nothing of them was touched.
    pub out: Out,
    /// The largest T + 1 over the emulated entries; None where nothing is proved (fast, accurate).
    pub bound: Option<f64>,
    pub phases: Phases,
    /// Memory came fresh from the system for this call: it took longer than the next one like it will.
    pub fresh: bool,
    /// What the self-check saw; None without it.
    pub checked: Option<Checked>,
    /// Levels of Strassen's form that the products had.
    pub strassen: usize,
}

/// What the self-check of a call saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checked {
    /// The largest |C'| of what was written, divided by what is legal ([`crate::ozaki::moduli::LEGAL`] P): at most 1.
    pub peak: f64,
    /// Tiles with a value out of range (on a GPU: blocks), and those of them that a second computation has put right.
    pub flagged: u64,
    pub repaired: u64,
}

/// Two reports are equal if the same was done, however long it took.
impl PartialEq for Report {
    fn eq(&self, other: &Self) -> bool {
        (self.moduli, self.way, &self.out, self.bound) == (other.moduli, other.way, &other.out, other.bound)
    }
}

/// What an engine made of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Report),
    /// C was not touched.
    Declined(Reason),
    /// Done, but not emulated, for this Reason: the matrices were where the native BLAS cannot read.
    Native(Reason),
    /// All but these rectangles of C, and the lines that are out, are done and final; the rectangles were not touched, and have no
    /// entry of those lines.
    Partial(Report, Reason, Vec<Rectangle>),
}

/// An engine computes a validated call with alpha finite and not zero, beta finite, and m, n, k > 0.
pub trait Engine: Sync {
    /// # Safety
    ///
    /// The matrices of the call are what a BLAS demands: A and B can be read, C can be read and written, and no other
    /// thread writes any of them during the call.
    unsafe fn gemm(&self, call: &Gemm, settings: &Settings) -> Outcome;
}

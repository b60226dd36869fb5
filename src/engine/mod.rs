//! The engines: what computes an emulated call. A new one is one file (or folder) and one line in [`ENGINES`].

use crate::gemm::{Gemm, Rectangle};
use crate::options::{EngineChoice, Mode};
use crate::ozaki::plan::Accuracy;
use crate::route::Reason;

pub mod cpu;
pub mod cuda;
pub mod process;

/// The engines that OZ2_ENGINE can name, in the order in which auto prefers them. Their place in this list is their number.
pub const NAMES: [&str; 5] = ["cuda", "amx", "avx512", "avx2", "portable"];

const CUDA: usize = 0;
const PORTABLE: usize = 4;

/// The engines of this version.
static ENGINES: [(usize, &dyn Engine); 2] = [(CUDA, &cuda::CUDA), (PORTABLE, &cpu::PORTABLE)];

/// The number of a named engine.
pub fn index_of(choice: EngineChoice) -> usize {
    match choice {
        EngineChoice::Auto | EngineChoice::Cuda => CUDA,
        EngineChoice::Amx => 1,
        EngineChoice::Avx512 => 2,
        EngineChoice::Avx2 => 3,
        EngineChoice::Portable => PORTABLE,
    }
}

/// The numbers of the engines that this machine can run, best first. Looks for CUDA at the first question.
pub fn available() -> &'static [usize] {
    available_for(EngineChoice::Auto)
}

/// The same as far as it matters for a choice: nobody looks for CUDA if another engine is named.
pub fn available_for(choice: EngineChoice) -> &'static [usize] {
    let wanted = matches!(choice, EngineChoice::Auto | EngineChoice::Cuda);
    if wanted && cuda::is_available() { &[CUDA, PORTABLE] } else { &[PORTABLE] }
}

/// An engine of this version by its number.
pub fn get(number: usize) -> Option<&'static dyn Engine> {
    ENGINES.iter().find(|(n, _)| *n == number).map(|&(_, engine)| engine)
}

/// How a call is to be emulated.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub mode: Mode,
    /// N in the modes accurate and fast; the most moduli that auto may use.
    pub moduli: usize,
    pub accuracy: Accuracy,
    /// The most threads to use, at least 1.
    pub threads: usize,
    /// The most bytes that all calls together may hold on the host, and on each device; None: what the engine thinks right.
    pub workspace: Option<usize>,
}

/// How a call was emulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    pub moduli: usize,
    /// The largest T + 1 over the entries; None where nothing is proved (fast, accurate).
    pub bound: Option<f64>,
}

/// What an engine made of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Report),
    /// C was not touched.
    Declined(Reason),
    /// Done, but not emulated, for this Reason: the matrices were where the native BLAS cannot read.
    Native(Reason),
    /// All but these rectangles of C are done and final; the rectangles were not touched.
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

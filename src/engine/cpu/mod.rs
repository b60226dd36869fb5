//! The CPU engines: one driver ([`driver`]) over the kernels of a target.

use crate::engine::{Engine, Outcome, Settings};
use crate::gemm::Gemm;
use crate::ozaki::plan::Plan;
use crate::route::Reason;

mod block;
mod blocks;
pub mod brand;
mod certify;
mod check;
mod driver;
mod exact;
#[cfg(test)]
mod faults;
pub mod fpenv;
pub mod kernels;
pub mod packing;
mod parts;
pub mod peek;
pub mod probe;
mod products;
pub mod rate;
mod strassen;
mod strips;
pub mod team;
pub mod threads;
mod view;
mod views;
pub mod workspace;

use kernels::Kernels;

/// An engine that computes with the kernels of one target: of several tables the first that this CPU can run.
pub struct CpuEngine {
    tables: [&'static Kernels; 2],
}

/// Plain Rust for every CPU.
pub static PORTABLE: CpuEngine = CpuEngine::with(&kernels::portable::KERNELS);

/// Tile products of bytes on Intel processors.
#[cfg(target_arch = "x86_64")]
pub static AMX: CpuEngine = CpuEngine::with(&kernels::amx::KERNELS);

/// Products of bytes in registers of 512 bits (VNNI).
#[cfg(target_arch = "x86_64")]
pub static AVX512: CpuEngine =
    CpuEngine { tables: [&kernels::avx512::KERNELS, &kernels::avx512::WITHOUT_IFMA] };

/// Products in registers of 256 bits, of bytes where the CPU has AVX-VNNI.
#[cfg(target_arch = "x86_64")]
pub static AVX2: CpuEngine = CpuEngine { tables: [&kernels::avx2::WITH_VNNI, &kernels::avx2::KERNELS] };

/// The CPU engines of this version with their numbers, best first.
#[cfg(target_arch = "x86_64")]
static ENGINES: [(usize, &CpuEngine); 4] =
    [(super::AMX, &AMX), (super::AVX512, &AVX512), (super::AVX2, &AVX2), (super::PORTABLE, &PORTABLE)];
#[cfg(not(target_arch = "x86_64"))]
static ENGINES: [(usize, &CpuEngine); 1] = [(super::PORTABLE, &PORTABLE)];

/// This machine can run the engine of this number. For AMX the first question asks the system for the permission.
pub fn has(number: usize) -> bool {
    ENGINES.iter().any(|(n, engine)| *n == number && engine.is_available())
}

/// The engines that this machine can run, best first.
pub fn available() -> impl Iterator<Item = (usize, &'static CpuEngine)> {
    ENGINES.iter().copied().filter(|(_, engine)| engine.is_available())
}

/// The plan of the fastest kernels of this CPU for a call that is computed elsewhere, and the largest T + 1 that it proves.
///
/// # Safety
///
/// A and B of the call can be read.
pub unsafe fn best_plan(call: &Gemm, settings: &Settings) -> Result<(Plan, Option<f64>), Reason> {
    let engine = available().next().map_or(&PORTABLE, |(_, engine)| engine);
    // SAFETY: passed on from the caller.
    unsafe { driver::plan(engine.kernels(), call, settings) }
}

impl CpuEngine {
    /// An engine of any table of kernels, for the tests.
    pub const fn with(kernels: &'static Kernels) -> Self {
        Self { tables: [kernels; 2] }
    }

    fn is_available(&self) -> bool {
        self.tables.iter().any(|kernels| (kernels.available)())
    }

    /// The kernels that this CPU can run.
    pub fn kernels(&self) -> &'static Kernels {
        self.tables[usize::from(!(self.tables[0].available)())]
    }

    /// The plan alone, for the tests.
    ///
    /// # Safety
    ///
    /// A and B of the call can be read.
    pub unsafe fn plan(&self, call: &Gemm, settings: &Settings) -> Result<Plan, Reason> {
        // SAFETY: passed on from the caller.
        unsafe { driver::plan(self.kernels(), call, settings).map(|(plan, _)| plan) }
    }
}

impl Engine for CpuEngine {
    unsafe fn gemm(&self, call: &Gemm, settings: &Settings) -> Outcome {
        // SAFETY: passed on from the caller.
        unsafe { driver::gemm(self.kernels(), call, settings) }
    }
}

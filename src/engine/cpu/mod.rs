//! The CPU engines: one driver ([`driver`]) over the kernels of a target.

use crate::engine::{Engine, Outcome, Settings};
use crate::gemm::Gemm;
use crate::ozaki::plan::Plan;
use crate::route::Reason;

mod blocks;
mod certify;
mod check;
mod driver;
#[cfg(test)]
mod faults;
pub mod fpenv;
pub mod kernels;
pub mod packing;
mod parts;
pub mod probe;
mod products;
pub mod team;
pub mod threads;
mod view;
mod views;
pub mod workspace;

use kernels::Kernels;

/// An engine that computes with the kernels of one target.
pub struct CpuEngine {
    kernels: &'static Kernels,
}

/// Plain Rust for every CPU.
pub static PORTABLE: CpuEngine = CpuEngine { kernels: &kernels::portable::KERNELS };

/// Tile products of bytes on Intel processors.
#[cfg(target_arch = "x86_64")]
pub static AMX: CpuEngine = CpuEngine { kernels: &kernels::amx::KERNELS };

/// This machine can run the engine [`AMX`]. The first question asks the system for the permission.
pub fn has_amx() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        kernels::amx::available()
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The plan of the fastest kernels of this CPU for a call that is computed elsewhere, and the largest T + 1 that it proves.
///
/// # Safety
///
/// A and B of the call can be read.
pub unsafe fn best_plan(call: &Gemm, settings: &Settings) -> Result<(Plan, Option<f64>), Reason> {
    #[cfg(target_arch = "x86_64")]
    let engine = if has_amx() { &AMX } else { &PORTABLE };
    #[cfg(not(target_arch = "x86_64"))]
    let engine = &PORTABLE;
    // SAFETY: passed on from the caller.
    unsafe { driver::plan(engine.kernels, call, settings) }
}

impl CpuEngine {
    /// An engine of any table of kernels, for the tests.
    pub const fn with(kernels: &'static Kernels) -> Self {
        Self { kernels }
    }

    /// The plan alone, for the tests.
    ///
    /// # Safety
    ///
    /// A and B of the call can be read.
    pub unsafe fn plan(&self, call: &Gemm, settings: &Settings) -> Result<Plan, Reason> {
        // SAFETY: passed on from the caller.
        unsafe { driver::plan(self.kernels, call, settings).map(|(plan, _)| plan) }
    }
}

impl Engine for CpuEngine {
    unsafe fn gemm(&self, call: &Gemm, settings: &Settings) -> Outcome {
        // SAFETY: passed on from the caller.
        unsafe { driver::gemm(self.kernels, call, settings) }
    }
}

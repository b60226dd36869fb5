//! The calls that are large enough to be worth a thought: which engine takes one, and what became of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::{nanoseconds_since, note_native, shape};
use crate::engine::cpu::{fpenv, threads};
use crate::engine::{self, Outcome, Report, Settings};
use crate::gemm::Gemm;
use crate::native::builtin;
use crate::observe::counters;
use crate::observe::last::{Last, Thread};
use crate::observe::log::{self, Kind, Level};
use crate::options::{self, EngineChoice, Mode, Options};
use crate::ozaki::moduli::MAX_MODULI;
use crate::route::{self, Machine, Reason, Route, Shape};

/// Emulates a call, or says why it was not, in which case C is untouched. Never panics.
///
/// # Safety
///
/// As for [`super::gemm`].
#[cold]
pub(super) unsafe fn emulate_or_decline(thread: &Thread, call: &Gemm, options: &Options) -> Option<Reason> {
    // SAFETY: by the contract of this function.
    let emulate = || unsafe { emulate_large(thread, call, options) };
    catch_unwind(AssertUnwindSafe(|| fpenv::in_clean_environment(emulate))).unwrap_or_else(|_| {
        let text = "a fault inside oz2blas; the call goes to the native BLAS";
        log::capped(Kind::EngineFault, Level::Error, text);
        Some(Reason::EngineFault)
    })
}

/// In a clean floating-point environment.
///
/// # Safety
///
/// As for [`super::gemm`].
unsafe fn emulate_large(thread: &Thread, call: &Gemm, options: &Options) -> Option<Reason> {
    let shape = &shape(call);
    let mut engines = engine::available_for(options.engine);
    let mut declined = None;
    loop {
        let engine = match decide(shape, engines, options) {
            Route::Emulate(engine) => engine,
            // What an engine said counts, not that no other is left.
            Route::Native(reason) => return declined.or(Some(reason)),
        };
        // SAFETY: by the contract of this function.
        let reason = match unsafe { emulate_with(thread, engine, call, options) } {
            With::Emulated => return None,
            With::Native(reason, nanoseconds) => {
                note_native(thread, reason, call.multiplications(), nanoseconds);
                return None;
            }
            With::Declined(reason) => reason,
        };
        // Such a Reason is about the engine, not about the call: the next one may do it, unless the user named one.
        let next_may = matches!(reason, Reason::EngineFault | Reason::NoMemory | Reason::Forked);
        if !next_may || options.engine != EngineChoice::Auto || engines.len() < 2 {
            return Some(reason);
        }
        declined = Some(reason);
        engines = &engines[1..];
    }
}

/// What an engine made of a call.
enum With {
    Emulated,
    /// Computed natively by the engine, in this time.
    Native(Reason, u64),
    Declined(Reason),
}

/// # Safety
///
/// As for [`super::gemm`].
unsafe fn emulate_with(thread: &Thread, engine: usize, call: &Gemm, options: &Options) -> With {
    let Some(worker) = engine::get(engine) else { return With::Declined(Reason::EngineUnavailable) };
    let settings = settings(options);
    let clock = Instant::now();
    // SAFETY: by the contract of this function.
    let (report, reason) = match unsafe { worker.gemm(call, &settings) } {
        Outcome::Done(report) => (report, None),
        Outcome::Native(reason) => return With::Native(reason, nanoseconds_since(clock)),
        Outcome::Declined(reason) => {
            if reason == Reason::NoMemory {
                let text = format!("no workspace for the emulation ({})", engine::NAMES[engine]);
                log::capped(Kind::NoMemory, Level::Warn, &text);
            }
            return With::Declined(reason);
        }
        Outcome::Partial(report, reason, rest) => {
            let text = "a fault inside oz2blas; the rest of the call is computed natively";
            log::capped(Kind::EngineFault, Level::Error, text);
            for part in rest {
                // SAFETY: a part of the call.
                unsafe { builtin::gemm(&call.part(part), settings.threads) };
            }
            (report, Some(reason))
        }
    };
    let nanoseconds = nanoseconds_since(clock);
    note_emulated(thread, call, engine, options.mode, report, reason, nanoseconds);
    With::Emulated
}

fn note_emulated(
    thread: &Thread,
    call: &Gemm,
    engine: usize,
    mode: Mode,
    report: Report,
    reason: Option<Reason>,
    nanoseconds: u64,
) {
    let Report { moduli, bound, phases } = report;
    counters::emulated(engine, moduli, call.multiplications(), nanoseconds);
    thread.set_last(Last::Emulated { engine, mode, moduli, bound, reason });
    thread.set_phases(phases);
    // C is done: a panic must not send the call to the native BLAS.
    let _ = catch_unwind(|| {
        let (m, n, k) = (call.m, call.n, call.k);
        tracing::debug!(m, n, k, moduli, nanoseconds, engine = engine::NAMES[engine], "emulated");
    });
}

fn decide(shape: &Shape, engines: &[usize], options: &Options) -> Route {
    let threads = options.threads.unwrap_or_else(threads::automatic);
    let machine = Machine { engines, threads };
    let route = route::decide(shape, &machine, options);
    if route == Route::Native(Reason::EngineUnavailable) {
        let name = options::get_option("ENGINE").unwrap_or_default();
        let text = format!("OZ2_ENGINE={name}: this engine is not available; calls go to the native BLAS");
        log::once(Kind::EngineUnavailable, Level::Warn, &text);
    }
    route
}

fn settings(options: &Options) -> Settings {
    let threads =
        if threads::in_parallel_region() { 1 } else { options.threads.unwrap_or_else(threads::automatic) };
    let moduli = match options.mode {
        Mode::Auto => options.moduli.unwrap_or(MAX_MODULI),
        _ => route::fixed_moduli(options),
    };
    Settings { mode: options.mode, moduli, accuracy: options.accuracy, threads, workspace: options.workspace }
}

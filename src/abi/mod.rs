//! The border. Every exported symbol is in this folder and nothing else is; here alone raw C arguments are seen.
//!
//! One function, [`gemm`], takes every spelling: it counts, guards against re-entrance (a BLAS whose `cblas_dgemm` calls
//! `dgemm_` comes back to us), stops panics, and sees to it that every call gets its result.

pub mod cblas;
pub mod control;
pub mod fortran;
mod spelling;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::engine::cpu::{fpenv, threads};
use crate::engine::{self, Outcome, Report, Settings, process};
use crate::gemm::Gemm;
use crate::native::builtin;
use crate::observe::last::{self, Last};
use crate::observe::log::{self, Kind, Level};
use crate::observe::{counters, stats};
use crate::options::{self, EngineChoice, Mode, Options};
use crate::ozaki::moduli::MAX_MODULI;
use crate::route::{self, Machine, Reason, Route, Shape};

/// What is illegal in a call, by the numbers that the BLAS has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Illegal {
    /// The place of the argument for `xerbla_`; 0 where the Fortran check has no number for it.
    pub fortran: i32,
    /// The place of the argument for `cblas_xerbla`.
    pub cblas: i32,
}

/// How the native BLAS gets a call.
pub(crate) enum Pass<'a> {
    /// With an illegal argument, for its error handler.
    Illegal(Illegal),
    Legal(&'a Gemm),
}

thread_local! {
    /// This thread is inside a call. Const-initialised and without a destructor.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread while it lives.
struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.set(true);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// A GEMM call has been made: some options cannot change any more.
pub(crate) fn has_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// The options, and at the first call what waits for it instead of the load: a preloaded shell that multiplies nothing pays and
/// prints nothing. No `Once`, which could wait for ever in the child of a fork: whoever comes first does it, others go on.
pub(crate) fn start() -> &'static Options {
    if has_started() {
        return options::current();
    }
    // Reading numbers from the environment is arithmetic too.
    fpenv::in_clean_environment(|| {
        // First of all: a fork during what follows must already be safe.
        process::watch_forks();
        let options = options::current();
        if !STARTED.swap(true, Ordering::Relaxed) {
            #[cfg(not(test))]
            std::panic::set_hook(Box::new(report_panic));
            if options.stats.is_some() {
                // SAFETY: the function stays in memory (nodelete).
                unsafe { libc::atexit(at_exit) };
            }
            tracing::debug!(version = env!("CARGO_PKG_VERSION"), "first call");
        }
        options
    })
}

/// One line where the standard library would print several. This is our own copy of it: the hook of a host program written in
/// Rust is another.
#[cfg(not(test))]
fn report_panic(info: &std::panic::PanicHookInfo) {
    let place =
        info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    let what = info.payload_as_str().unwrap_or("panic").replace('\n', " ");
    log::capped(Kind::EngineFault, Level::Error, &format!("internal error{place}: {what}"));
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        if let Some(target) = &options::current().stats {
            stats::write(target);
        }
    });
}

/// Native calls below this m n k are counted but not timed: reading the clock would cost as much as they do.
const TIMED: u64 = 64 * 64 * 64;

/// Takes a call: `parsed` is the call or what is illegal in it, `pass` hands it to the native BLAS.
///
/// Nothing outside of the clean environment computes with doubles: a host program may trap what that would raise.
///
/// # Safety
///
/// The matrices of a legal call are as a BLAS demands them.
pub(crate) unsafe fn gemm(parsed: Result<Gemm, Illegal>, pass: impl Fn(Pass)) {
    let call = match &parsed {
        Ok(call) => call,
        Err(illegal) => {
            // Nothing here needs a destructor and no mark is left: an error handler may longjmp out.
            if !INSIDE.get() {
                note_native(Reason::IllegalArgument, 0, 0);
            }
            pass(Pass::Illegal(*illegal));
            return;
        }
    };
    let work = call.multiplications();
    if INSIDE.get() {
        counters::native(Reason::Nested, work, 0);
        pass(Pass::Legal(call));
        return;
    }
    let _inside = Inside::enter();
    // SAFETY: by the contract of this function.
    let answer = catch_unwind(AssertUnwindSafe(|| unsafe { emulate(call) }));
    let reason = match answer {
        Ok(None) => return,
        Ok(Some(reason)) => reason,
        Err(_) => {
            log::capped(
                Kind::EngineFault,
                Level::Error,
                "a fault inside oz2blas; the call goes to the native BLAS",
            );
            Reason::EngineFault
        }
    };
    let clock = (work >= TIMED).then(Instant::now);
    if reason == Reason::QuickReturn {
        // SAFETY: by the contract of this function.
        unsafe { scale(call) };
    } else {
        pass(Pass::Legal(call));
    }
    let nanoseconds = clock.map_or(0, nanoseconds_since);
    let _ = catch_unwind(|| note_native(reason, work, nanoseconds));
}

fn nanoseconds_since(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn note_native(reason: Reason, work: u64, nanoseconds: u64) {
    counters::native(reason, work, nanoseconds);
    last::set(Last::Native { reason });
    tracing::debug!(reason = reason.name(), work, nanoseconds, "native");
}

/// Emulates the call, or says why it was not; C is touched only in the first case.
///
/// # Safety
///
/// As for [`gemm`].
unsafe fn emulate(call: &Gemm) -> Option<Reason> {
    if call.m == 0 || call.n == 0 || call.k == 0 || is_zero(call.alpha) {
        return Some(Reason::QuickReturn);
    }
    let options = options::current();
    let shape = Shape { m: call.m, n: call.n, k: call.k, alpha: call.alpha, beta: call.beta };
    if let Some(reason) = route::decide_at_once(&shape, options) {
        return Some(reason);
    }
    // SAFETY: by the contract of this function.
    fpenv::in_clean_environment(|| unsafe { emulate_large(call, &shape, options) })
}

/// Zero of either sign; by its bits, since a host that flushes subnormal numbers would take those for zero.
fn is_zero(x: f64) -> bool {
    x.to_bits() << 1 == 0
}

/// What is neither a quick return nor sent away for its size: in a clean floating-point environment.
///
/// # Safety
///
/// As for [`gemm`].
unsafe fn emulate_large(call: &Gemm, shape: &Shape, options: &Options) -> Option<Reason> {
    let mut engines = engine::available_for(options.engine);
    let mut declined = None;
    loop {
        let engine = match decide(shape, engines, options) {
            Route::Emulate(engine) => engine,
            // What an engine said counts, not that no other is left.
            Route::Native(reason) => return declined.or(Some(reason)),
        };
        // SAFETY: by the contract of this function.
        let reason = match unsafe { emulate_with(engine, call, options) } {
            With::Emulated => return None,
            With::Native(reason, nanoseconds) => {
                note_native(reason, call.multiplications(), nanoseconds);
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
/// As for [`gemm`].
unsafe fn emulate_with(engine: usize, call: &Gemm, options: &Options) -> With {
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
    let _ = catch_unwind(|| note_emulated(call, engine, options.mode, report, reason, nanoseconds));
    With::Emulated
}

fn note_emulated(
    call: &Gemm,
    engine: usize,
    mode: Mode,
    report: Report,
    reason: Option<Reason>,
    nanoseconds: u64,
) {
    let Report { moduli, bound, phases } = report;
    counters::emulated(engine, moduli, call.multiplications(), nanoseconds);
    last::set(Last::Emulated { engine, mode, moduli, bound, reason });
    last::set_phases(phases);
    let (m, n, k) = (call.m, call.n, call.k);
    tracing::debug!(m, n, k, moduli, nanoseconds, engine = engine::NAMES[engine], "emulated");
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

/// C = beta C as the reference BLAS defines it where nothing is multiplied: C is not read for beta = 0 (of either sign) and
/// not touched for beta = 1. In the caller's floating-point environment, as a BLAS would do it.
///
/// # Safety
///
/// As for [`gemm`].
unsafe fn scale(call: &Gemm) {
    let c = &call.c;
    if call.beta.to_bits() == 1f64.to_bits() {
        return;
    }
    let clears = is_zero(call.beta);
    for j in 0..c.columns {
        for i in 0..c.rows {
            // SAFETY: an entry of C.
            unsafe {
                let entry = c.pointer().add(i + j * c.ld);
                let value = if clears { 0.0 } else { call.beta * entry.read_unaligned() };
                entry.write_unaligned(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::control::oz2_last_call;
    use crate::engine::cpu::workspace::faults;

    /// A product of small integers by `cblas_dgemm`, row-major, with C = 1 before and beta = 2.
    fn product() -> Vec<f64> {
        let (m, n, k) = (5, 4, 3);
        let a: Vec<f64> = (0..m * k).map(|at| (at % 7) as f64 - 3.0).collect();
        let b: Vec<f64> = (0..k * n).map(|at| (at % 5) as f64 - 2.0).collect();
        let mut c = vec![1.0; m * n];
        let (m, n, k) = (m as i64, n as i64, k as i64);
        // SAFETY: the matrices are as large as the call says.
        unsafe {
            super::cblas::cblas_dgemm64_(
                101,
                111,
                111,
                m,
                n,
                k,
                3.0,
                a.as_ptr(),
                k,
                b.as_ptr(),
                n,
                2.0,
                c.as_mut_ptr(),
                n,
            );
        }
        for i in 0..m as usize {
            for j in 0..n as usize {
                let sum: f64 = (0..3).map(|h| a[i * 3 + h] * b[h * 4 + j]).sum();
                assert_eq!(c[i * 4 + j], 3.0 * sum + 2.0);
            }
        }
        c
    }

    fn last() -> String {
        let mut text = [0u8; 512];
        // SAFETY: the size is that of the array.
        let length = unsafe { oz2_last_call(text.as_mut_ptr().cast(), text.len()) };
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    /// One test, since options belong to the process.
    #[test]
    fn every_fault_ends_in_the_right_result() {
        assert_eq!(options::set_option("MIN_SIZE", "0", false), options::SetResult::Done);
        let want = product();
        assert!(last().contains(r#""route":"emulated""#), "{}", last());

        faults::plan_panic();
        assert_eq!(product(), want);
        assert!(last().contains(r#""reason":"engine fault""#), "{}", last());
        assert!(!INSIDE.get(), "the mark is gone after a panic");

        faults::plan(Some(0), true);
        assert_eq!(product(), want);
        assert!(last().contains(r#""reason":"no memory""#), "{}", last());
        faults::plan(None, false);

        product();
        assert!(last().contains(r#""route":"emulated""#), "{}", last());

        INSIDE.set(true);
        let before = counters::snapshot().reasons[Reason::Nested as usize].calls;
        product();
        INSIDE.set(false);
        assert_eq!(counters::snapshot().reasons[Reason::Nested as usize].calls, before + 1);
    }
}

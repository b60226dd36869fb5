//! The calls that are large enough to be worth a thought: which engine takes one, and what became of it.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::time::Instant;

use super::{lines, nanoseconds_since, note_native, shape, verify};
use crate::engine::cpu::{brand, fpenv, peek, probe, threads};
use crate::engine::{self, Outcome, Report, Settings};
use crate::gemm::Gemm;
use crate::native::{builtin, find};
use crate::observe::last::{Last, Thread};
use crate::observe::log::{self, Kind, Level};
use crate::observe::{counters, report, through};
use crate::options::{self, EngineChoice, MinSize, Mode, Options};
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::strassen::Levels;
use crate::route::experience::{self, Left};
use crate::route::{self, Machine, Reason, Route, Shape, calibration, cost};

/// Why a call was not emulated.
pub(super) struct Declined {
    pub reason: Reason,
    /// What the time model expects of the native BLAS, if it learns from this call.
    expected: Option<Expected>,
}

impl From<Reason> for Declined {
    fn from(reason: Reason) -> Self {
        Self { reason, expected: None }
    }
}

/// The seconds in which the native BLAS is expected to be done, with so many threads of its own.
struct Expected {
    seconds: f64,
    threads: usize,
}

/// Emulates a call, or says why it was not, in which case C is untouched. Never panics. What is done must be brought to its end by
/// [`finish`].
///
/// # Safety
///
/// As for [`super::gemm`].
#[cold]
pub(super) unsafe fn emulate(
    call: &Gemm,
    options: &Options,
    native: Option<NonNull<c_void>>,
) -> Result<(Done, Option<verify::Ticket>), Declined> {
    let emulate = || {
        // SAFETY: by the contract of this function, here and below.
        let ticket = unsafe { verify::begin(call, options) };
        unsafe { emulate_clean(call, options, native) }.map(|done| (done, ticket))
    };
    catch_unwind(AssertUnwindSafe(|| fpenv::in_clean_environment(emulate))).unwrap_or_else(|_| {
        let text = "a fault inside oz2blas; the call goes to the native BLAS";
        log::capped(Kind::EngineFault, Level::Error, text);
        Err(Reason::EngineFault.into())
    })
}

/// In a clean floating-point environment.
///
/// # Safety
///
/// As for [`super::gemm`].
unsafe fn emulate_clean(
    call: &Gemm,
    options: &Options,
    native: Option<NonNull<c_void>>,
) -> Result<Done, Declined> {
    let shape = &shape(call);
    let learns = options.min_size == MinSize::Auto;
    // Inside a parallel region every core already has a thread.
    let threads =
        if threads::in_parallel_region() { 1 } else { options.threads.unwrap_or_else(threads::automatic) };
    if learns {
        calibration::load(brand::name, threads, || {
            native.map_or_else(|| builtin::NAME.to_owned(), find::provider)
        });
    }
    let mut engines = engine::available_for(options.engine);
    let mut declined = None;
    loop {
        // SAFETY: by the contract of this function.
        let (route, machine) = unsafe { decide(call, shape, engines, threads, options) };
        let with = match route {
            // SAFETY: by the contract of this function.
            Route::Emulate(engine) => unsafe {
                let worth = if learns { cost::most_worth(shape, engine, &machine) } else { MAX_MODULI };
                let strassen = cost::levels(engine, options.strassen);
                emulate_with(engine, call, &Settings { worth, strassen, ..settings(options, threads) })
            },
            // What an engine said counts, not that no other is left.
            Route::Native(reason) => With::Declined(declined.unwrap_or(reason)),
        };
        let reason = match with {
            With::Emulated(emulated) => {
                if learns && emulated.reason.is_none() {
                    learn_emulated(shape, &emulated, &machine);
                }
                return Ok(Done::Emulated(emulated));
            }
            With::Native(reason, nanoseconds) => return Ok(Done::Native(reason, nanoseconds)),
            With::Declined(reason) => reason,
        };
        // Such a Reason is about the engine, not about the call: the next one may do it, unless the user named one.
        let about_engine =
            matches!(reason, Reason::EngineFault | Reason::NoMemory | Reason::Forked | Reason::FinerPlan);
        // And only the CPU engines leave single lines to the native BLAS.
        let next_may = about_engine || (reason == Reason::NonFinite && route == Route::Emulate(engine::CUDA));
        if let Route::Emulate(engine) = route
            && next_may
            && options.engine == EngineChoice::Auto
        {
            declined = Some(reason);
            let at = engines.iter().position(|&number| number == engine);
            engines = at.map_or(&[], |at| &engines[at + 1..]);
            continue;
        }
        if learns && matches!(route, Route::Emulate(_)) {
            experience::refused(reason);
        }
        let of_data = matches!(reason, Reason::NonFinite | Reason::Range | Reason::NotProvable);
        let might_have = of_data || matches!(reason, Reason::NoGain | Reason::SlowUnit);
        let expected = (learns && might_have).then(|| {
            let seconds = cost::native_seconds(shape, threads, machine.native_rate);
            Expected { seconds, threads: if native.is_some() { threads } else { 1 } }
        });
        return Err(Declined { reason, expected });
    }
}

/// Tells the time model what the native BLAS took for a call that might have been emulated.
pub(super) fn learn_native(declined: &Declined, call: &Gemm, nanoseconds: u64) {
    if let Some(Expected { seconds, threads }) = declined.expected {
        fpenv::in_clean_environment(|| {
            experience::ended(threads > 1);
            experience::native(&shape(call), nanoseconds as f64 * 1e-9, seconds);
        });
    }
}

/// Tells the time model what an emulation took.
fn learn_emulated(shape: &Shape, emulated: &Emulated, machine: &Machine) {
    experience::accepted();
    experience::ended(false);
    // What took longer for the sake of its memory says nothing about the next call.
    if cost::learns(emulated.engine) && !emulated.report.fresh {
        let Emulated { engine, report, nanoseconds, .. } = emulated;
        let expected = cost::emulated_seconds(
            shape,
            *engine,
            (report.moduli, report.strassen),
            machine.threads,
            machine.tops,
        );
        let cold = if machine.rested { cost::cold_seconds(shape, *engine) } else { 0.0 };
        let (seconds, expected) = (*nanoseconds as f64 * 1e-9, expected + cold);
        if cost::delay_of(*engine, machine) > 1.0 {
            if seconds < cost::SPIN {
                experience::delayed(seconds / (machine.learned.emulated[*engine] * expected));
            }
        } else if experience::emulated(shape, *engine, seconds, expected) {
            probe::doubt();
        }
    }
}

/// What became of a call that an engine took.
pub(super) enum Done {
    Emulated(Emulated),
    /// Computed natively by the engine, in this time.
    Native(Reason, u64),
}

/// Computes natively what the engine has left, notes the call, and verifies it if it is its turn.
///
/// # Safety
///
/// As for [`super::gemm`].
#[cold]
pub(super) unsafe fn finish(
    thread: &Thread,
    call: &Gemm,
    (mut done, ticket): (Done, Option<verify::Ticket>),
    options: &Options,
    native: &mut dyn FnMut(&Gemm),
) {
    if let Done::Emulated(emulated) = &mut done
        && emulated.report.out.count() > 0
    {
        let clock = Instant::now();
        // SAFETY: by the contract of this function.
        unsafe { lines::compute(call, &emulated.report.out, native) };
        emulated.nanoseconds += nanoseconds_since(clock);
    }
    fpenv::in_clean_environment(|| match &done {
        Done::Emulated(emulated) => note_emulated(thread, call, emulated, options.mode),
        Done::Native(reason, nanoseconds) => {
            note_native(thread, *reason, call.multiplications(), *nanoseconds);
        }
    });
    match &done {
        Done::Emulated(Emulated { engine, report, reason, nanoseconds }) => {
            report::emulated(call, *engine, report, *reason, options, *nanoseconds);
        }
        Done::Native(reason, nanoseconds) => report::native(Some(call), *reason, *nanoseconds),
    }
    if let (Done::Emulated(emulated), Some(ticket)) = (&done, ticket) {
        // SAFETY: by the contract of this function.
        unsafe { verify::finish(ticket, call, emulated, options, native) };
    }
    through::after_call();
}

/// What an engine made of a call.
enum With {
    Emulated(Emulated),
    /// Computed natively by the engine, in this time.
    Native(Reason, u64),
    Declined(Reason),
}

/// How a call was emulated.
pub(super) struct Emulated {
    pub engine: usize,
    pub report: Report,
    /// Why a part of it was not.
    pub reason: Option<Reason>,
    nanoseconds: u64,
}

/// # Safety
///
/// As for [`super::gemm`].
unsafe fn emulate_with(engine: usize, call: &Gemm, settings: &Settings) -> With {
    let Some(worker) = engine::get(engine) else { return With::Declined(Reason::EngineUnavailable) };
    let clock = Instant::now();
    // SAFETY: by the contract of this function.
    let (report, reason) = match unsafe { worker.gemm(call, settings) } {
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
            // The self-check has told of what it found.
            if reason != Reason::FailedCheck {
                let text = "a fault inside oz2blas; the rest of the call is computed natively";
                log::capped(Kind::EngineFault, Level::Error, text);
            }
            for part in rest {
                // SAFETY: a part of the call.
                unsafe { builtin::gemm(&call.part(part), settings.threads) };
            }
            (report, Some(reason))
        }
    };
    With::Emulated(Emulated { engine, report, reason, nanoseconds: nanoseconds_since(clock) })
}

fn note_emulated(thread: &Thread, call: &Gemm, emulated: &Emulated, mode: Mode) {
    let &Emulated { engine, ref report, reason, nanoseconds } = emulated;
    let &Report { moduli, way, bound, ref out, phases, checked, strassen, .. } = report;
    counters::emulated(engine, moduli, strassen, call.multiplications(), nanoseconds);
    let (rows, columns) = if call.row_major { (&out.columns, &out.rows) } else { (&out.rows, &out.columns) };
    counters::lines_native(rows.len(), columns.len(), out.not_finite);
    let way = (mode == Mode::Auto).then_some(way);
    if let Some(way) = way {
        counters::planned(way);
    }
    if let Some(checked) = checked {
        counters::checked(checked);
    }
    let peak = checked.map(|checked| checked.peak);
    thread.set_last(Last::Emulated { engine, mode, moduli, strassen, way, bound, peak, reason });
    thread.set_phases(phases);
    thread.set_lines(rows, columns);
    // C is done: a panic must not send the call to the native BLAS.
    let _ = catch_unwind(|| {
        let (m, n, k) = (call.m, call.n, call.k);
        tracing::debug!(m, n, k, moduli, nanoseconds, engine = engine::NAMES[engine], "emulated");
    });
}

/// Work below which a look at the data, or a second thought, would take too much of the time of the call itself.
const WORTH_A_LOOK: u64 = 512 * 512 * 512;

/// The route of a call, with the machine as it was seen for it.
///
/// # Safety
///
/// A and B of the call can be read.
unsafe fn decide<'a>(
    call: &Gemm,
    shape: &Shape,
    engines: &'a [usize],
    threads: usize,
    options: &Options,
) -> (Route, Machine<'a>) {
    let mut machine = Machine { strassen: options.strassen, ..Machine::new(engines, threads) };
    if options.min_size == MinSize::Auto {
        machine.learned = experience::learned(shape);
        machine.tops = probe::last();
        let Left { rested, delay } = experience::left();
        machine.rested = rested;
        machine.delay = if threads > 1 { delay } else { 1.0 };
        machine.pause = experience::pause();
    }
    let mut route = route::decide(shape, &machine, options);
    if options.min_size == MinSize::Auto {
        // Only a call for which the tile unit matters is worth a probe.
        let asks = matches!(route, Route::Emulate(engine::AMX) | Route::Native(Reason::SlowUnit));
        if asks && probe::refresh() {
            machine.tops = probe::last();
            route = route::decide(shape, &machine, options);
        }
        let is_lost = |route| matches!(route, Route::Native(Reason::NoGain | Reason::SlowUnit));
        let may_gain = machine.pause.is_none() && call.multiplications() >= WORTH_A_LOOK;
        // Data that need few moduli may be worth it where ordinary ones are not.
        if may_gain && options.mode == Mode::Auto && is_lost(route) {
            // SAFETY: by the contract of this function.
            machine.moduli = machine.moduli.min(unsafe { peek::moduli(call, options.check) });
            route = route::decide(shape, &machine, options);
        }
        if may_gain && machine.delay > 1.0 && is_lost(route) {
            let without = route::decide(shape, &Machine { delay: 1.0, ..machine }, options);
            if matches!(without, Route::Emulate(_)) && !experience::has_patience() {
                route = without;
            }
        }
        if let Some(reason) = machine.pause
            && route == Route::Native(reason)
        {
            experience::skipped();
        }
    }
    // An empty list means that all engines have failed at this call, which has been said.
    if route == Route::Native(Reason::EngineUnavailable) && !engines.is_empty() {
        let name = options::get_option("ENGINE").unwrap_or_default();
        let text = format!("OZ2_ENGINE={name}: this engine is not available; calls go to the native BLAS");
        log::once(Kind::EngineUnavailable, Level::Warn, &text);
    }
    (route, machine)
}

fn settings(options: &Options, threads: usize) -> Settings {
    let moduli = match options.mode {
        Mode::Auto => options.moduli.unwrap_or(MAX_MODULI),
        _ => route::fixed_moduli(options),
    };
    Settings {
        mode: options.mode,
        moduli,
        worth: MAX_MODULI,
        accuracy: options.accuracy,
        check: options.check,
        strassen: Levels::NONE,
        threads,
        workspace: options.workspace,
    }
}

//! The border. Every exported symbol is in this folder and nothing else is; here alone raw C arguments are seen.
//!
//! One function, [`gemm`], takes every spelling: it counts, guards against re-entrance (a BLAS whose `cblas_dgemm` calls
//! `dgemm_` comes back to us), stops panics, and sees to it that every call gets its result.

pub mod cblas;
pub mod control;
// Its jumps are written in the machine's language; other machines than this one have only DGEMM so far.
pub mod fortran;
#[cfg(target_arch = "x86_64")]
mod forward;
mod large;
mod lines;
mod spelling;
pub mod verify;

use std::ffi::c_void;
use std::panic::catch_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tracing::level_filters::LevelFilter;

use crate::engine::cpu::fpenv;
use crate::engine::process;
use crate::gemm::Gemm;
use crate::observe::last::{self, Last, Thread};
#[cfg(not(test))]
use crate::observe::log::{self, Kind, Level};
use crate::observe::{counters, report, through};
use crate::options::{self, Options};
use crate::route::{self, Reason, Shape};

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
    /// As the caller gave it.
    Legal(&'a Gemm),
    /// Another call, made from it.
    Part(&'a Gemm),
}

/// Marks the thread while it lives.
struct Inside<'a>(&'a Thread);

impl<'a> Inside<'a> {
    fn enter(thread: &'a Thread) -> Self {
        thread.inside.set(true);
        Self(thread)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.set(false);
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// A GEMM call has been made: some options cannot change any more.
pub(crate) fn has_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// The options, and at the first call what waits for it instead of the load: a preloaded shell that multiplies nothing pays and
/// prints nothing. No `Once`, which could wait for ever in the child of a fork: whoever comes first does it, others go on.
#[inline]
pub(crate) fn start() -> &'static Options {
    if has_started() {
        return options::current();
    }
    first_call()
}

#[cold]
fn first_call() -> &'static Options {
    let _unbroken = process::hold_cancellation();
    // Reading numbers from the environment is arithmetic too.
    fpenv::in_clean_environment(|| {
        // First of all: a fork during what follows must already be safe.
        process::watch_forks();
        let options = options::current();
        if !STARTED.swap(true, Ordering::Relaxed) {
            #[cfg(not(test))]
            std::panic::set_hook(Box::new(report_panic));
            if let Some(target) = &options.stats {
                through::start(target);
            }
            if let Some(target) = &options.report {
                report::start(target);
            }
            if options.stats.is_some() || options.report.is_some() {
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
    let _unbroken = process::hold_cancellation();
    let _ = catch_unwind(|| fpenv::in_clean_environment(through::finish));
    let _ = catch_unwind(|| fpenv::in_clean_environment(report::finish));
}

/// Native calls below this m n k are counted but not timed: reading the clock would cost as much as they do.
const TIMED: u64 = 64 * 64 * 64;

/// Takes a call: `native` is the function of the native BLAS, `parsed` the call or what is illegal in it, `pass` hands it to the
/// native BLAS.
///
/// Nothing outside of the clean environment computes with doubles: a host program may trap what that would raise. And a small
/// call must come through quickly, which takes about as long as two or three cache misses: nothing is asked for twice, and one
/// atomic addition counts it.
///
/// # Safety
///
/// The matrices of a legal call are as a BLAS demands them.
#[inline]
pub(crate) unsafe fn gemm(
    options: &Options,
    native: Option<NonNull<c_void>>,
    parsed: Result<Gemm, Illegal>,
    pass: impl Fn(Pass),
) {
    last::with_thread(|thread| {
        let call = match &parsed {
            Ok(call) => call,
            Err(illegal) => {
                // Nothing here needs a destructor and no mark is left: an error handler may longjmp out.
                if !thread.inside.get() {
                    note_unread(thread, Reason::IllegalArgument);
                }
                pass(Pass::Illegal(*illegal));
                return;
            }
        };
        let work = call.multiplications();
        if thread.inside.get() {
            counters::native(Reason::Nested, work, 0);
            pass(Pass::Legal(call));
            return;
        }
        let _inside = Inside::enter(thread);
        // What was tried in vain is a part of the time of the call.
        let mut tried = 0;
        let declined = match at_once(call, options) {
            Some(reason) => reason.into(),
            None => {
                let _unbroken = process::hold_cancellation();
                let clock = Instant::now();
                // SAFETY: by the contract of this function.
                match unsafe { large::emulate(call, options, native) } {
                    Err(declined) => {
                        tried = nanoseconds_since(clock);
                        declined
                    }
                    Ok(done) => {
                        // SAFETY: by the contract of this function.
                        unsafe {
                            large::finish(thread, call, done, options, &mut |part| pass(Pass::Part(part)))
                        };
                        return;
                    }
                }
            }
        };
        let clock = (work >= TIMED || options.report.is_some()).then(Instant::now);
        if declined.reason == Reason::QuickReturn {
            // SAFETY: by the contract of this function.
            unsafe { scale(call) };
        } else {
            pass(Pass::Legal(call));
        }
        let nanoseconds = clock.map_or(0, nanoseconds_since);
        let number = note_native(thread, declined.reason, work, tried + nanoseconds);
        large::learn_native(&declined, call, nanoseconds);
        if options.watched {
            watch_native(Some(call), declined.reason, number, tried + nanoseconds);
        }
    });
}

/// Takes a call of which nothing can be read, since nobody knows how wide its integers are. No mark is left: an error handler
/// may longjmp out.
#[cold]
pub(crate) fn unread(pass: impl FnOnce()) {
    last::with_thread(|thread| {
        if !thread.inside.get() {
            note_unread(thread, Reason::IntegersInDoubt);
        }
        pass();
    });
}

fn nanoseconds_since(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Nothing in here panics but what writes a log, and that has its own barrier. Gives
/// its number among small calls, as the counters do.
#[inline]
fn note_native(thread: &Thread, reason: Reason, work: u64, nanoseconds: u64) -> u64 {
    let number = counters::native(reason, work, nanoseconds);
    thread.set_last(Last::Native { reason });
    if LevelFilter::current() >= LevelFilter::DEBUG {
        log_native(reason, work, nanoseconds);
    }
    number
}

/// A call of which no sizes are known. It is noted before it is made, since an error handler may not come back.
#[cold]
fn note_unread(thread: &Thread, reason: Reason) {
    let number = note_native(thread, reason, 0, 0);
    watch_native(None, reason, number, 0);
}

/// For OZ2_REPORT and OZ2_STATS, after a call that is complete; None: of which no sizes are known.
#[cold]
fn watch_native(call: Option<&Gemm>, reason: Reason, number: u64, nanoseconds: u64) {
    let _unbroken = process::hold_cancellation();
    report::native(call, reason, nanoseconds);
    if through::is_time(number) {
        through::after_call();
    }
}

#[cold]
fn log_native(reason: Reason, work: u64, nanoseconds: u64) {
    let _unbroken = process::hold_cancellation();
    let _ = catch_unwind(|| tracing::debug!(reason = reason.name(), work, nanoseconds, "native"));
}

/// The Reason of a call that needs no more than its sizes looked at. Cannot panic.
#[inline]
fn at_once(call: &Gemm, options: &Options) -> Option<Reason> {
    if call.m == 0 || call.n == 0 || call.k == 0 || is_zero(call.alpha) {
        return Some(Reason::QuickReturn);
    }
    route::decide_at_once(&shape(call), options)
}

fn shape(call: &Gemm) -> Shape {
    Shape { m: call.m, n: call.n, k: call.k, alpha: call.alpha, beta: call.beta }
}

/// Zero of either sign; by its bits, since a host that flushes subnormal numbers would take those for zero.
fn is_zero(x: f64) -> bool {
    x.to_bits() << 1 == 0
}

/// C = beta C as the reference BLAS defines it where nothing is multiplied: C is not read for beta = 0 (of either sign) and
/// not touched for beta = 1. In the caller's floating-point environment, as a BLAS would do it.
///
/// # Safety
///
/// As for [`gemm`].
unsafe fn scale(call: &Gemm) {
    let c = &call.c;
    // Without rows there may be any number of columns: too many to count.
    if c.rows == 0 || call.beta.to_bits() == 1f64.to_bits() {
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
        let mut text = [0u8; 1024];
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
        assert!(!last::with_thread(|thread| thread.inside.get()), "the mark is gone after a panic");

        faults::plan(Some(0), true);
        assert_eq!(product(), want);
        assert!(last().contains(r#""reason":"no memory""#), "{}", last());
        faults::plan(None, false);

        product();
        assert!(last().contains(r#""route":"emulated""#), "{}", last());

        // No rows and more columns than anybody could count: over at once, by both spellings of it.
        let (none, countless, one) = (0i64, i64::MAX, 1i64);
        let [real, nothing] = [&2f64 as *const f64, std::ptr::null()];
        let at = |x: &i64| std::ptr::from_ref(x).cast();
        // SAFETY: there are no elements.
        unsafe {
            let c = std::ptr::null_mut();
            super::cblas::cblas_dgemm64_(
                102,
                111,
                112,
                0,
                i64::MAX,
                0,
                2.0,
                nothing,
                1,
                nothing,
                i64::MAX,
                2.0,
                c,
                1,
            );
            super::fortran::dgemm_64_(
                c"N".as_ptr(),
                c"N".as_ptr(),
                at(&none),
                at(&countless),
                at(&none),
                real,
                nothing,
                at(&one),
                nothing,
                at(&one),
                real,
                c,
                at(&one),
            );
        }
        assert!(last().contains(r#""reason":"quick return""#), "{}", last());

        // Without memory for its copies a call is not verified, which changes nothing else.
        let verify =
            |value| assert_eq!(options::set_option("VERIFY", value, false), options::SetResult::Done);
        let verified_by = |fault: Option<usize>| {
            let before = counters::snapshot().verified;
            faults::plan(fault, false);
            assert_eq!(product(), want, "{fault:?}");
            let happened = fault.is_some() && faults::happened();
            faults::plan(None, false);
            assert!(last().contains(r#""route":"emulated""#) || happened, "{}", last());
            (counters::snapshot().verified - before, happened)
        };
        verify("1");
        assert_eq!(verified_by(None), (1, false));
        let faulty: Vec<u64> = (0..).map(|n| verified_by(Some(n))).take_while(|x| x.1).map(|x| x.0).collect();
        assert!(faulty.iter().filter(|&&verified| verified == 0).count() >= 7, "{faulty:?}");
        // It does not count then, and the next one is due; neither does a call that was not emulated.
        verify("2");
        let last_fault = faulty.len() - 1;
        assert_eq!((verified_by(None).0, verified_by(None).0, verified_by(None).0), (0, 1, 0));
        assert_eq!((verified_by(Some(last_fault)).0, verified_by(None).0, verified_by(None).0), (0, 1, 0));
        faults::plan_panic();
        assert_eq!(product(), want);
        assert_eq!((verified_by(None).0, verified_by(None).0, verified_by(None).0), (1, 0, 1));
        assert_eq!(counters::snapshot().differing, 0);
        verify("off");

        last::with_thread(|thread| thread.inside.set(true));
        let before = counters::snapshot().reasons[Reason::Nested as usize].calls;
        product();
        last::with_thread(|thread| thread.inside.set(false));
        assert_eq!(counters::snapshot().reasons[Reason::Nested as usize].calls, before + 1);
    }
}

//! What calls took on this machine, as factors for the time model, what the last ones left behind (warm caches, threads of the native
//! BLAS that look for more work), and how often calls were tried in vain.
//!
//! Everything is in a few atomics that are read and written without order: a lost update does no harm, nothing can be found
//! locked in the child of a fork, and the child goes on with what its parent knew. Computes with doubles, so it runs in the clean
//! floating-point environment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::cost::SPIN;
use super::{Learned, Reason, Shape};
use crate::engine::NAMES;

/// Calls are alike that have about the same m n k (a factor of 8, or 2 in the edge, apart) and are about as thin: what the model
/// does not know of a machine differs between such classes.
pub const SIZES: usize = 7;
const THIN: [usize; 3] = [96, 192, 384];
pub const THINNESSES: usize = THIN.len() + 1;

/// A factor moves by this part of the way to what a call took ...
const STEP: f64 = 0.25;
/// ... of at most this distance, so that a single call that met a page fault or another program hardly counts.
const REACH: f64 = 0.4;
/// Where calls of a class go the other way, a factor is not measured any more. It drifts back to where it started by this part of
/// the way with each of them, until one call is tried again: rare enough that the trials cost less than a percent.
const DRIFT: f64 = 1.0 / 256.0;
/// Factors stay within this and its inverse.
const MOST: f64 = 64.0;
/// A call that took so many times what was expected may have met a slow tile unit.
const SUSPICIOUS: f64 = 1.5;

/// The bits of a factor, and of what it starts with (`oz2run --calibrate`); 0 stands for what nothing is known of.
struct Factor {
    now: AtomicU64,
    start: AtomicU64,
}

impl Factor {
    const fn new() -> Self {
        Self { now: AtomicU64::new(0), start: AtomicU64::new(0) }
    }

    const fn starting_with(value: f64) -> Self {
        Self { now: AtomicU64::new(0), start: AtomicU64::new(value.to_bits()) }
    }

    fn start(&self) -> f64 {
        match self.start.load(Ordering::Relaxed) {
            0 => 1.0,
            bits => f64::from_bits(bits),
        }
    }

    fn start_with(&self, value: f64) {
        self.start.store(value.clamp(1.0 / MOST, MOST).to_bits(), Ordering::Relaxed);
    }

    fn get(&self) -> f64 {
        match self.now.load(Ordering::Relaxed) {
            0 => self.start(),
            bits => f64::from_bits(bits),
        }
    }

    fn set(&self, value: f64) {
        self.now.store(value.clamp(1.0 / MOST, MOST).to_bits(), Ordering::Relaxed);
    }

    fn learn(&self, seen: f64) {
        let now = self.get();
        if seen.is_finite() && seen > 0.0 {
            self.set(now * (1.0 + STEP * (seen / now - 1.0).clamp(-REACH, REACH)));
        }
    }

    fn drift(&self) {
        let now = self.get();
        self.set(now + DRIFT * (self.start() - now));
    }
}

/// The factors of a class of calls.
struct Class {
    native: Factor,
    emulated: [Factor; NAMES.len()],
}

static CLASSES: [[Class; THINNESSES]; SIZES] = [const {
    [const { Class { native: Factor::new(), emulated: [const { Factor::new() }; NAMES.len()] } }; THINNESSES]
}; SIZES];

/// The class of a call: its size, below [`SIZES`], and its thinness, below [`THINNESSES`].
pub fn class_of(call: &Shape) -> (usize, usize) {
    let work = (call.m as u64).saturating_mul(call.n as u64).saturating_mul(call.k as u64);
    let size = (work.max(1).ilog2() / 3) as usize;
    let smallest = super::SMALLEST.ilog2() as usize / 3;
    let least = call.m.min(call.n).min(call.k);
    let thinness = THIN.iter().filter(|&&edge| least >= edge).count();
    (size.saturating_sub(smallest).min(SIZES - 1), thinness)
}

fn class(call: &Shape) -> &'static Class {
    let (size, thinness) = class_of(call);
    &CLASSES[size][thinness]
}

/// The factors for a call.
pub fn learned(call: &Shape) -> Learned {
    let class = class(call);
    Learned { native: class.native.get(), emulated: class.emulated.each_ref().map(Factor::get) }
}

/// What the factors of a class start with, and drift back to: of an engine, or of the native BLAS.
pub fn start_with(size: usize, thinness: usize, engine: Option<usize>, factor: f64) {
    if let Some(class) = CLASSES.get(size).and_then(|classes| classes.get(thinness)) {
        match engine {
            Some(engine) => class.emulated[engine].start_with(factor),
            None => class.native.start_with(factor),
        }
    }
}

/// A call was emulated: in so many seconds, where the model expects `forecast` without any factor. True if it took much longer than
/// calls like it did before.
pub fn emulated(call: &Shape, engine: usize, seconds: f64, forecast: f64) -> bool {
    let class = class(call);
    let factor = &class.emulated[engine];
    let seen = seconds / forecast;
    let suspicious = seen > SUSPICIOUS * factor.get();
    factor.learn(seen);
    class.native.drift();
    suspicious
}

/// A call that was a candidate went to the native BLAS.
pub fn native(call: &Shape, seconds: f64, forecast: f64) {
    let class = class(call);
    class.native.learn(seconds / forecast);
    class.emulated.iter().for_each(Factor::drift);
}

/// After so long without a call the caches hold nothing of it: on a shared machine they are half empty after 20 milliseconds, and
/// empty after 80.
const REST: Duration = Duration::from_millis(30);

/// When the last call of a kind ended.
struct Ended(AtomicU64);

impl Ended {
    fn now() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    fn set(&self, now: u64) {
        self.0.store(now.max(1), Ordering::Relaxed);
    }

    fn is_past(&self, time: Duration, now: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last == 0 || now.saturating_sub(last) > time.as_nanos() as u64
    }
}

static ENDED: Ended = Ended(AtomicU64::new(0));

/// How many times as long an emulation by several threads takes while those of the native BLAS look for more work, each on a
/// processor of its own: measured beside OpenBLAS (docs/measured/amx.md), and learned from the calls that meet it.
static DELAY: Factor = Factor::starting_with(1.5);
static NATIVE_ENDED: Ended = Ended(AtomicU64::new(0));

/// So many calls in a row go to the native BLAS for the sake of the delay alone; then it is taken once, as the calls after it gain.
/// Where they do not, since other calls wake the threads again, it costs less than two percent.
const PATIENCE: u32 = 32;

static WAITED: Waited = Waited(AtomicU32::new(0));

/// The calls that went to the native BLAS for the sake of the delay alone.
struct Waited(AtomicU32);

impl Waited {
    fn has_patience(&self) -> bool {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| calls.checked_add(1));
        self.0.load(Ordering::Relaxed) <= PATIENCE
    }

    /// The native BLAS has computed a call: if the delay was taken before, it was in vain.
    fn native(&self) {
        if self.0.load(Ordering::Relaxed) > PATIENCE {
            self.over();
        }
    }

    fn over(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// What the calls before have left.
pub struct Left {
    /// Nothing is in the caches any more.
    pub rested: bool,
    /// How many times as long an emulation by several threads takes now.
    pub delay: f64,
}

pub fn left() -> Left {
    let now = Ended::now();
    let spins = !NATIVE_ENDED.is_past(Duration::from_secs_f64(SPIN), now);
    if !spins {
        WAITED.over();
    }
    Left { rested: ENDED.is_past(REST, now), delay: if spins { DELAY.get().max(1.0) } else { 1.0 } }
}

/// A call that is not small ended; true: computed by several threads of the native BLAS, which may look for more work now.
pub fn ended(native_threads: bool) {
    let now = Ended::now();
    ENDED.set(now);
    if native_threads {
        NATIVE_ENDED.set(now);
        WAITED.native();
    }
}

/// A call took so many times what it would have without the delay.
pub fn delayed(seen: f64) {
    DELAY.learn(seen);
}

/// Counts a call that gains but for the delay. True if it shall go to the native BLAS therefore.
pub fn has_patience() -> bool {
    WAITED.has_patience()
}

/// After so many calls in a row that had been read in vain, as their data could not be emulated, some are not tried: first one,
/// and twice as many after each further one, up to 2^MOST_DOUBLINGS.
const MOST_IN_VAIN: u32 = 3;
const MOST_DOUBLINGS: u32 = 6;

/// What is known of the calls whose data could not be emulated.
struct Refusals {
    in_a_row: AtomicU32,
    /// Calls that are not to be tried.
    rest: AtomicU32,
    /// The Reason of the last one.
    reason: AtomicU32,
}

static REFUSALS: Refusals =
    Refusals { in_a_row: AtomicU32::new(0), rest: AtomicU32::new(0), reason: AtomicU32::new(0) };

impl Refusals {
    fn refused(&self, reason: Reason) {
        if !matches!(reason, Reason::NotProvable | Reason::Range | Reason::NonFinite | Reason::NoGain) {
            return;
        }
        self.reason.store(reason as u32, Ordering::Relaxed);
        let before = self.in_a_row.load(Ordering::Relaxed);
        self.in_a_row.store(before.saturating_add(1), Ordering::Relaxed);
        if let Some(doublings) = (before + 1).checked_sub(MOST_IN_VAIN) {
            self.rest.store(1 << doublings.min(MOST_DOUBLINGS), Ordering::Relaxed);
        }
    }

    fn accepted(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.rest.store(0, Ordering::Relaxed);
    }

    fn pause(&self) -> Option<Reason> {
        (self.rest.load(Ordering::Relaxed) > 0)
            .then(|| Reason::ALL[self.reason.load(Ordering::Relaxed) as usize])
    }

    fn skipped(&self) {
        let _ = self.rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| rest.checked_sub(1));
    }
}

/// The data of a call were read and could not be emulated.
pub fn refused(reason: Reason) {
    REFUSALS.refused(reason);
}

/// A call was emulated.
pub fn accepted() {
    REFUSALS.accepted();
}

/// The Reason for which the next call is not to be tried, if so.
pub fn pause() -> Option<Reason> {
    REFUSALS.pause()
}

/// A call was not tried.
pub fn skipped() {
    REFUSALS.skipped();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_factor_follows_what_is_seen_and_not_single_outliers() {
        let factor = Factor::new();
        assert_eq!(factor.get(), 1.0);
        factor.learn(1000.0);
        assert!(factor.get() < 1.11);
        for _ in 0..40 {
            factor.learn(1.5);
        }
        assert!((factor.get() - 1.5).abs() < 0.01);
        factor.learn(1e-9);
        assert!(factor.get() > 1.3);
        for seen in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let before = factor.get();
            factor.learn(seen);
            assert_eq!(factor.get(), before);
        }
        for _ in 0..2000 {
            factor.drift();
        }
        assert!((factor.get() - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_rest_begins_a_while_after_the_last_call() {
        let ended = Ended(AtomicU64::new(0));
        let rest = REST.as_nanos() as u64;
        let is_long_ago = |now| ended.is_past(REST, now);
        assert!(is_long_ago(5), "no call yet");
        ended.set(0);
        assert!(!is_long_ago(rest) && is_long_ago(rest + 2));
        ended.set(7 * rest);
        assert!(!is_long_ago(8 * rest) && is_long_ago(8 * rest + 1));
        assert!(!is_long_ago(0), "another thread's time");
    }

    #[test]
    fn the_delay_is_taken_when_many_calls_have_waited_and_not_again_in_vain() {
        let waited = Waited(AtomicU32::new(0));
        let row = || (0..1000).take_while(|_| waited.has_patience()).count();
        assert_eq!(row(), 32);
        assert_eq!(row(), 0, "it goes on while only emulations follow");
        waited.native();
        assert_eq!(row(), 32);
        waited.over();
        assert!((0..10).all(|_| waited.has_patience()));
        waited.native();
        assert_eq!(
            (0..1000).take_while(|_| waited.has_patience()).count(),
            22,
            "those that wait are native themselves"
        );
    }

    #[test]
    fn a_delay_starts_with_what_was_measured_and_is_learned() {
        let delay = Factor::starting_with(1.5);
        assert_eq!(delay.get(), 1.5);
        for _ in 0..30 {
            delay.learn(1.1);
        }
        assert!((delay.get() - 1.1).abs() < 0.01);
    }

    #[test]
    fn trials_of_the_slower_way_are_rare() {
        // An emulation that takes twice what the model expects, in a class where 1.2 times would still gain.
        let factor = Factor::new();
        let (mut trials, calls) = (0, 5000);
        for _ in 0..calls {
            if factor.get() < 1.2 {
                trials += 1;
                factor.learn(2.0);
            } else {
                factor.drift();
            }
        }
        assert!(trials > 10 && trials < calls / 50, "{trials}");
    }

    #[test]
    fn classes_are_those_of_size_and_of_thinness() {
        let class = |m, n, k| std::ptr::from_ref(class(&Shape { m, n, k, alpha: 1.0, beta: 0.0 }));
        assert_eq!(class(128, 128, 128), class(150, 130, 140));
        assert_ne!(class(128, 128, 128), class(256, 256, 256));
        assert_ne!(class(512, 512, 512), class(2048, 64, 1024));
        // A native BLAS is far slower for k = 128 than for 256.
        assert_ne!(class(4096, 4096, 128), class(4096, 4096, 256));
        assert_eq!(class(1 << 40, 1 << 40, 1 << 40), class(1 << 20, 1 << 20, 1 << 20));
        class(1, 1, 1);
        class(0, 0, 0);
    }

    #[test]
    fn calls_in_vain_are_tried_more_and_more_rarely() {
        let refusals =
            Refusals { in_a_row: AtomicU32::new(0), rest: AtomicU32::new(0), reason: AtomicU32::new(0) };
        let tried = |calls: usize| {
            let mut tried = 0;
            for _ in 0..calls {
                if let Some(reason) = refusals.pause() {
                    assert_eq!(reason, Reason::NotProvable);
                    refusals.skipped();
                } else {
                    tried += 1;
                    refusals.refused(Reason::NotProvable);
                }
            }
            tried
        };
        assert_eq!(tried(3), 3);
        assert_eq!(tried(1 + 1 + 2 + 1), 2);
        assert!(tried(10_000) < 170);
        refusals.accepted();
        assert_eq!(refusals.pause(), None);
        assert_eq!(tried(3), 3);
        refusals.accepted();
        for _ in 0..10 {
            refusals.refused(Reason::NoMemory);
        }
        assert_eq!(refusals.pause(), None);
    }

    proptest! {
        #[test]
        fn a_factor_stays_a_number(samples in proptest::collection::vec(any::<f64>(), 0..200)) {
            let factor = Factor::new();
            for seen in samples {
                factor.learn(seen);
                factor.drift();
                prop_assert!(factor.get() >= 1.0 / MOST && factor.get() <= MOST);
            }
        }
    }
}

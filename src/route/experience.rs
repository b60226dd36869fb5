//! What calls took on this machine, as factors for the time model, and how often they were tried in vain.
//!
//! Everything is in a few atomics that are read and written without order: a lost update does no harm, nothing can be found
//! locked in the child of a fork, and the child goes on with what its parent knew. Computes with doubles, so it runs in the clean
//! floating-point environment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Learned, Reason, Shape};
use crate::engine::NAMES;

/// Calls are alike that have about the same m n k (a factor of 8, or 2 in the edge, apart) and are about as thin: what the model
/// does not know of a machine differs between such classes.
pub const SIZES: usize = 7;
const THIN: [usize; 2] = [96, 384];
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

/// When the last call ended.
struct Ended(AtomicU64);

impl Ended {
    fn now() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    fn set(&self, now: u64) {
        self.0.store(now.max(1), Ordering::Relaxed);
    }

    fn is_long_ago(&self, now: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        last == 0 || now.saturating_sub(last) > REST.as_nanos() as u64
    }
}

static ENDED: Ended = Ended(AtomicU64::new(0));

/// A call that is not small ended.
pub fn ended() {
    ENDED.set(Ended::now());
}

/// Nothing of the last call is in the caches any more.
pub fn rested() -> bool {
    ENDED.is_long_ago(Ended::now())
}

/// After so many calls in a row that had been read in vain, as their data could not be emulated, some are not tried: first one,
/// and twice as many after each further one, up to 2^MOST_DOUBLINGS.
const PATIENCE: u32 = 3;
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
        if let Some(doublings) = (before + 1).checked_sub(PATIENCE) {
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
        assert!(ended.is_long_ago(5), "no call yet");
        ended.set(0);
        assert!(!ended.is_long_ago(rest) && ended.is_long_ago(rest + 2));
        ended.set(7 * rest);
        assert!(!ended.is_long_ago(8 * rest) && ended.is_long_ago(8 * rest + 1));
        assert!(!ended.is_long_ago(0), "another thread's time");
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

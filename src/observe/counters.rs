//! Counters of a process: atomics in fixed tables, so that counting takes no lock and allocates nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ozaki::moduli::MAX_MODULI;
use crate::route::Reason;

/// Multiplications and nanoseconds of a group of calls.
struct Tally {
    calls: AtomicU64,
    multiplications: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Tally {
    const fn new() -> Self {
        Self { calls: AtomicU64::new(0), multiplications: AtomicU64::new(0), nanoseconds: AtomicU64::new(0) }
    }

    /// Integers only: this runs in the floating-point environment of the caller.
    fn add(&self, multiplications: u64, nanoseconds: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.multiplications.fetch_add(multiplications, Ordering::Relaxed);
        if nanoseconds > 0 {
            self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Group {
        Group {
            calls: self.calls.load(Ordering::Relaxed),
            flops: 2 * self.multiplications.load(Ordering::Relaxed),
            seconds: self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9,
        }
    }

    fn reset(&self) {
        for counter in [&self.calls, &self.multiplications, &self.nanoseconds] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The engines by their place in [`crate::engine::NAMES`].
pub const ENGINES: usize = crate::engine::NAMES.len();

static BY_ENGINE: [Tally; ENGINES] = [const { Tally::new() }; ENGINES];
static BY_REASON: [Tally; Reason::COUNT] = [const { Tally::new() }; Reason::COUNT];
static BY_MODULI: [AtomicU64; MAX_MODULI + 1] = [const { AtomicU64::new(0) }; MAX_MODULI + 1];

/// The sum over a group of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    pub calls: u64,
    /// 2 m n k, summed.
    pub flops: u64,
    pub seconds: f64,
}

/// All counters at one moment (calls that end meanwhile may be seen in part).
pub struct Snapshot {
    pub engines: [Group; ENGINES],
    pub reasons: [Group; Reason::COUNT],
    pub moduli: [u64; MAX_MODULI + 1],
}

pub fn emulated(engine: usize, moduli: usize, multiplications: u64, nanoseconds: u64) {
    BY_ENGINE[engine].add(multiplications, nanoseconds);
    BY_MODULI[moduli].fetch_add(1, Ordering::Relaxed);
}

pub fn native(reason: Reason, multiplications: u64, nanoseconds: u64) {
    BY_REASON[reason as usize].add(multiplications, nanoseconds);
}

pub fn snapshot() -> Snapshot {
    Snapshot {
        engines: std::array::from_fn(|at| BY_ENGINE[at].read()),
        reasons: std::array::from_fn(|at| BY_REASON[at].read()),
        moduli: std::array::from_fn(|n| BY_MODULI[n].load(Ordering::Relaxed)),
    }
}

/// Sets all to zero. Only atomic stores: the child of a fork calls this.
pub fn reset() {
    BY_ENGINE.iter().for_each(Tally::reset);
    BY_REASON.iter().for_each(Tally::reset);
    BY_MODULI.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
}

//! Counters of a process: atomics in fixed tables, so that counting takes no lock and allocates nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Checked;
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::plan::Way;
use crate::route::Reason;

/// Multiplications and nanoseconds of a group of calls.
struct Tally {
    /// Calls that are small and not timed: their number above [`SPLIT`], their multiplications below. One addition counts them,
    /// and an addition costs such a call more than anything else here.
    small: AtomicU64,
    calls: AtomicU64,
    multiplications: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Bits of the multiplications in `small`.
const SPLIT: u32 = 40;
/// Calls with fewer multiplications are small.
const SMALL: u64 = 1 << 18;
/// Either half of `small` is emptied from here on. What can come meanwhile is far from filling it: that would take a million
/// calls.
const FULL: (u64, u64) = (1 << 23, 1 << 39);

impl Tally {
    const fn new() -> Self {
        Self {
            small: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            multiplications: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// Integers only: this runs in the floating-point environment of the caller. Gives the number of this call among small ones, 0
    /// for others.
    #[inline]
    fn add(&self, multiplications: u64, nanoseconds: u64) -> u64 {
        if multiplications < SMALL && nanoseconds == 0 {
            let before = self.small.fetch_add(1 << SPLIT | multiplications, Ordering::Relaxed);
            let (calls, multiplications) = halves(before);
            if calls >= FULL.0 || multiplications >= FULL.1 {
                self.empty_small();
            }
            calls
        } else {
            self.add_large(1, multiplications, nanoseconds);
            0
        }
    }

    fn add_large(&self, calls: u64, multiplications: u64, nanoseconds: u64) {
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.multiplications.fetch_add(multiplications, Ordering::Relaxed);
        if nanoseconds > 0 {
            self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    #[cold]
    fn empty_small(&self) {
        let (calls, multiplications) = halves(self.small.swap(0, Ordering::Relaxed));
        self.add_large(calls, multiplications, 0);
    }

    fn read(&self) -> Group {
        let (calls, multiplications) = halves(self.small.load(Ordering::Relaxed));
        Group {
            calls: calls + self.calls.load(Ordering::Relaxed),
            flops: 2 * (multiplications + self.multiplications.load(Ordering::Relaxed)),
            seconds: self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9,
        }
    }

    fn reset(&self) {
        for counter in [&self.small, &self.calls, &self.multiplications, &self.nanoseconds] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Calls and multiplications in a `small`.
#[inline]
fn halves(small: u64) -> (u64, u64) {
    (small >> SPLIT, small & ((1 << SPLIT) - 1))
}

/// The engines by their place in [`crate::engine::NAMES`].
pub const ENGINES: usize = crate::engine::NAMES.len();

static BY_ENGINE: [Tally; ENGINES] = [const { Tally::new() }; ENGINES];
static BY_REASON: [Tally; Reason::COUNT] = [const { Tally::new() }; Reason::COUNT];
static BY_MODULI: [AtomicU64; MAX_MODULI + 1] = [const { AtomicU64::new(0) }; MAX_MODULI + 1];

/// Calls by the step that found their plan, in the order of [`Way::ALL`].
static BY_WAY: [AtomicU64; Way::ALL.len()] = [const { AtomicU64::new(0) }; Way::ALL.len()];

/// What emulated calls left to the native BLAS.
struct Lines {
    rows: AtomicU64,
    columns: AtomicU64,
    /// Calls with lines that hold NaN or Inf, and with lines for which nothing is provable.
    not_finite: AtomicU64,
    not_provable: AtomicU64,
}

static LINES: Lines = Lines {
    rows: AtomicU64::new(0),
    columns: AtomicU64::new(0),
    not_finite: AtomicU64::new(0),
    not_provable: AtomicU64::new(0),
};

/// Emulated calls whose products had Strassen's form.
static STRASSEN: AtomicU64 = AtomicU64::new(0);

/// Calls that were computed natively too, and those of them that differ (OZ2_VERIFY).
static VERIFIED: AtomicU64 = AtomicU64::new(0);
static DIFFERING: AtomicU64 = AtomicU64::new(0);

/// Emulated calls with the self-check; tiles that it flagged, and those of them that were put right (OZ2_CHECK).
static CHECKED: AtomicU64 = AtomicU64::new(0);
static FLAGGED: AtomicU64 = AtomicU64::new(0);
static REPAIRED: AtomicU64 = AtomicU64::new(0);

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
    /// In the order of [`Way::ALL`].
    pub ways: [u64; Way::ALL.len()],
    /// Emulated calls whose products had levels of Strassen's form.
    pub strassen: u64,
    pub rows_native: u64,
    pub columns_native: u64,
    /// Emulated calls of which lines were computed natively: because of NaN or Inf, because nothing was provable for them.
    pub not_finite: u64,
    pub not_provable: u64,
    pub checked: u64,
    pub flagged: u64,
    pub repaired: u64,
    pub verified: u64,
    pub differing: u64,
}

/// The step that found the plan of an emulated call.
pub fn planned(way: Way) {
    BY_WAY[way as usize].fetch_add(1, Ordering::Relaxed);
}

/// Rows and columns of an emulated call that the native BLAS computed, `not_finite` of them because of NaN or Inf.
pub fn lines_native(rows: usize, columns: usize, not_finite: usize) {
    if rows + columns == 0 {
        return;
    }
    LINES.rows.fetch_add(rows as u64, Ordering::Relaxed);
    LINES.columns.fetch_add(columns as u64, Ordering::Relaxed);
    LINES.not_finite.fetch_add(u64::from(not_finite > 0), Ordering::Relaxed);
    LINES.not_provable.fetch_add(u64::from(rows + columns > not_finite), Ordering::Relaxed);
}

/// An emulated call, whose products had so many levels of Strassen's form.
pub fn emulated(engine: usize, moduli: usize, levels: usize, multiplications: u64, nanoseconds: u64) {
    BY_ENGINE[engine].add(multiplications, nanoseconds);
    BY_MODULI[moduli].fetch_add(1, Ordering::Relaxed);
    STRASSEN.fetch_add(u64::from(levels > 0), Ordering::Relaxed);
}

/// What the self-check of an emulated call saw.
pub fn checked(of_call: Checked) {
    CHECKED.fetch_add(1, Ordering::Relaxed);
    FLAGGED.fetch_add(of_call.flagged, Ordering::Relaxed);
    REPAIRED.fetch_add(of_call.repaired, Ordering::Relaxed);
}

/// An emulated call was computed natively too.
pub fn verified(differs: bool) {
    VERIFIED.fetch_add(1, Ordering::Relaxed);
    DIFFERING.fetch_add(u64::from(differs), Ordering::Relaxed);
}

/// Gives the number of this call among small ones, from 0, for [`super::through::is_time`]; 0 for others.
#[inline]
pub fn native(reason: Reason, multiplications: u64, nanoseconds: u64) -> u64 {
    BY_REASON[reason as usize].add(multiplications, nanoseconds)
}

pub fn snapshot() -> Snapshot {
    Snapshot {
        engines: std::array::from_fn(|at| BY_ENGINE[at].read()),
        reasons: std::array::from_fn(|at| BY_REASON[at].read()),
        moduli: std::array::from_fn(|n| BY_MODULI[n].load(Ordering::Relaxed)),
        ways: std::array::from_fn(|n| BY_WAY[n].load(Ordering::Relaxed)),
        strassen: STRASSEN.load(Ordering::Relaxed),
        rows_native: LINES.rows.load(Ordering::Relaxed),
        columns_native: LINES.columns.load(Ordering::Relaxed),
        not_finite: LINES.not_finite.load(Ordering::Relaxed),
        not_provable: LINES.not_provable.load(Ordering::Relaxed),
        checked: CHECKED.load(Ordering::Relaxed),
        flagged: FLAGGED.load(Ordering::Relaxed),
        repaired: REPAIRED.load(Ordering::Relaxed),
        verified: VERIFIED.load(Ordering::Relaxed),
        differing: DIFFERING.load(Ordering::Relaxed),
    }
}

/// Sets all to zero. Only atomic stores: the child of a fork calls this.
pub fn reset() {
    BY_ENGINE.iter().for_each(Tally::reset);
    BY_REASON.iter().for_each(Tally::reset);
    let lines = [&LINES.rows, &LINES.columns, &LINES.not_finite, &LINES.not_provable];
    let checks = [&STRASSEN, &CHECKED, &FLAGGED, &REPAIRED, &VERIFIED, &DIFFERING];
    for counter in BY_MODULI.iter().chain(&BY_WAY).chain(lines).chain(checks) {
        counter.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_calls_add_up_over_every_overflow() {
        let tally = Tally::new();
        let (mut calls, mut multiplications) = (0, 0);
        let mut add = |count: u64, work: u64, nanoseconds: u64| {
            for _ in 0..count {
                tally.add(work, nanoseconds);
            }
            calls += count;
            multiplications += count * work;
            let Group { calls: c, flops, .. } = tally.read();
            assert_eq!((c, flops), (calls, 2 * multiplications));
        };
        add(3, SMALL, 0);
        add(FULL.0 + 10, 0, 0); // the number of calls fills its half
        add(FULL.1 / (SMALL - 1) + 10, SMALL - 1, 0); // the multiplications theirs
        add(5, 7, 20);
        assert_eq!((tally.read().seconds * 1e9).round(), 100.0);
        tally.reset();
        assert_eq!(tally.read(), Group::default());
    }
}

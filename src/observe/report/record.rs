//! What is kept of the calls: sums over classes of calls that are alike, in a table of a fixed size.
//!
//! All is in atomics: counting a call of a known class takes no lock, and the child of a fork can forget everything whatever its
//! parent's threads were doing. A lock, that is never held for long and never waited for without end, guards what is new: classes
//! and the time line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::class::{Class, Fate, Size, Sums};
use super::timeline::{self, Kind, Timeline};

/// Classes, and those of them that may be shapes of their own: the last ones are for all other shapes.
const CLASSES: usize = 4096;
const SHAPES: usize = 3072;
/// Places of the hash table.
const INDEX: usize = 2 * CLASSES;

#[derive(Default)]
struct Entry {
    key: [AtomicU64; 4],
    calls: AtomicU64,
    multiplications: AtomicU64,
    nanoseconds: AtomicU64,
    /// The bits of a positive double, which are in order as integers.
    bound: AtomicU64,
    rows: AtomicU64,
    columns: AtomicU64,
}

impl Entry {
    fn counters(&self) -> [&AtomicU64; 6] {
        [&self.calls, &self.multiplications, &self.nanoseconds, &self.bound, &self.rows, &self.columns]
    }

    fn is(&self, key: &[u64; 4]) -> bool {
        self.key.iter().zip(key).all(|(is, key)| is.load(Ordering::Relaxed) == *key)
    }

    fn add(&self, sums: &Sums) {
        self.calls.fetch_add(sums.calls, Ordering::Relaxed);
        self.multiplications.fetch_add(sums.multiplications, Ordering::Relaxed);
        self.nanoseconds.fetch_add(sums.nanoseconds, Ordering::Relaxed);
        self.bound.fetch_max(sums.bound.to_bits(), Ordering::Relaxed);
        self.rows.fetch_add(sums.rows, Ordering::Relaxed);
        self.columns.fetch_add(sums.columns, Ordering::Relaxed);
    }

    fn read(&self) -> Class {
        let [m, n, k, fate] = self.key.each_ref().map(|key| key.load(Ordering::Relaxed));
        let [calls, multiplications, nanoseconds, bound, rows, columns] =
            self.counters().map(|counter| counter.load(Ordering::Relaxed));
        let bound = f64::from_bits(bound);
        let sums = Sums { calls, multiplications, nanoseconds, bound, rows, columns };
        Class { size: Size::from_code([m, n, k]), fate: Fate::from_code(fate), sums }
    }
}

/// All that is kept of a process.
pub struct Records {
    /// Number of an entry plus 1; 0: free.
    index: Vec<AtomicU32>,
    entries: Vec<Entry>,
    /// Entries in use.
    used: AtomicUsize,
    timeline: Timeline,
    busy: AtomicBool,
    /// Calls that the table has no place for, or whose turn did not come.
    missed: AtomicU64,
    origin: Instant,
    /// When this process began to count, in nanoseconds from the origin.
    since: AtomicU64,
}

fn filled<T: Default>(count: usize) -> Option<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).ok()?;
    out.resize_with(count, T::default);
    Some(out)
}

impl Records {
    /// None where there is no memory.
    pub fn new() -> Option<Self> {
        Some(Self {
            index: filled(INDEX)?,
            entries: filled(CLASSES)?,
            used: AtomicUsize::new(0),
            timeline: Timeline::new(),
            busy: AtomicBool::new(false),
            missed: AtomicU64::new(0),
            origin: Instant::now(),
            since: AtomicU64::new(0),
        })
    }

    /// Adds a call that has just ended. Integers only but for the bound, which is not computed with.
    pub fn add(&self, size: Size, fate: Fate, sums: &Sums) {
        let now = timeline::nanoseconds(self.origin.elapsed());
        let entry = self.entry(size, fate).or_else(|| {
            let class = sums.multiplications.max(1).ilog2() / 3;
            self.entry(Size::Others(class), fate)
        });
        match entry {
            Some(entry) => entry.add(sums),
            None => drop(self.missed.fetch_add(sums.calls, Ordering::Relaxed)),
        }
        let kind = if matches!(fate, Fate::Native(_)) { Kind::Native } else { Kind::Emulated };
        let end = now.saturating_sub(self.since.load(Ordering::Relaxed));
        if sums.nanoseconds > 0 {
            self.alone(|| self.timeline.add(end.saturating_sub(sums.nanoseconds), end, kind));
        }
    }

    /// The entry of a class, which is made if there is room for it.
    fn entry(&self, size: Size, fate: Fate) -> Option<&Entry> {
        let [m, n, k] = size.code();
        let key = [m, n, k, fate.code()];
        let hash = key
            .iter()
            .fold(0u64, |hash, part| (hash ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
        // An entry beyond it exists only if all places on the way to it are taken.
        let look = || {
            for step in 0..INDEX {
                let at = (hash as usize).wrapping_add(step) % INDEX;
                match self.index[at].load(Ordering::Acquire) {
                    0 => return Err(at),
                    number => {
                        let entry = &self.entries[number as usize - 1];
                        if entry.is(&key) {
                            return Ok(entry);
                        }
                    }
                }
            }
            Err(0)
        };
        look().ok().or_else(|| {
            self.alone(|| {
                // Another thread may have made it meanwhile.
                let at = match look() {
                    Ok(entry) => return Some(entry),
                    Err(at) => at,
                };
                let number = self.used.load(Ordering::Relaxed);
                let room = if matches!(size, Size::Shape(..)) { SHAPES } else { CLASSES };
                if number >= room {
                    return None;
                }
                let entry = &self.entries[number];
                entry.counters().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
                entry.key.iter().zip(key).for_each(|(to, key)| to.store(key, Ordering::Relaxed));
                self.used.store(number + 1, Ordering::Relaxed);
                self.index[at].store(number as u32 + 1, Ordering::Release);
                Some(entry)
            })?
        })
    }

    /// Runs `f` while no other thread runs such a thing; None if its turn does not come.
    fn alone<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        for turn in 0..2000 {
            if !self.busy.swap(true, Ordering::Acquire) {
                let result = f();
                self.busy.store(false, Ordering::Release);
                return Some(result);
            }
            if turn < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        None
    }

    /// Atomic stores only: the child of a fork calls this.
    fn forget(&self) {
        self.since.store(timeline::nanoseconds(self.origin.elapsed()), Ordering::Relaxed);
        self.index.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        self.used.store(0, Ordering::Relaxed);
        self.missed.store(0, Ordering::Relaxed);
        self.timeline.clear();
        self.busy.store(false, Ordering::Relaxed);
    }

    /// The classes in no order.
    pub fn classes(&self) -> Vec<Class> {
        let numbers =
            self.index.iter().map(|place| place.load(Ordering::Acquire)).filter(|&number| number > 0);
        numbers.map(|number| self.entries[number as usize - 1].read()).collect()
    }

    /// Up to this moment.
    pub fn timeline(&self) -> timeline::Buckets {
        self.alone(|| self.timeline.reach((self.seconds() * 1e9) as u64));
        self.timeline.read()
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Seconds since this process began to count.
    pub fn seconds(&self) -> f64 {
        let now = timeline::nanoseconds(self.origin.elapsed());
        now.saturating_sub(self.since.load(Ordering::Relaxed)) as f64 * 1e-9
    }
}

static RECORDS: OnceLock<Records> = OnceLock::new();

/// At the first call; false where there is no memory.
pub fn start() -> bool {
    Records::new().is_some_and(|records| RECORDS.set(records).is_ok())
}

pub fn get() -> Option<&'static Records> {
    RECORDS.get()
}

/// In the child of a fork.
pub fn forget() {
    if let Some(records) = get() {
        records.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Mode;
    use crate::ozaki::plan::{Accuracy, Way};
    use crate::route::Reason;

    fn call(multiplications: u64, nanoseconds: u64) -> Sums {
        Sums { calls: 1, multiplications, nanoseconds, ..Sums::default() }
    }

    const NATIVE: Fate = Fate::Native(Reason::TooSmall);

    fn emulated(reason: Option<Reason>, way: Option<Way>) -> Fate {
        let (engine, moduli, mode, accuracy) = (4, 20, Mode::Fast, Accuracy::High);
        Fate::Emulated { engine, moduli, mode, accuracy, way, reason }
    }

    #[test]
    fn calls_that_are_alike_add_up_and_others_do_not() {
        let records = Records::new().unwrap();
        let size = Size::Shape(3, 4, 5);
        records.add(size, NATIVE, &call(60, 10));
        records.add(size, NATIVE, &call(60, 11));
        let fate = emulated(None, Some(Way::Plain));
        records.add(size, fate, &Sums { bound: 9.5, rows: 1, ..call(60, 12) });
        records.add(size, fate, &Sums { bound: 8.5, columns: 2, ..call(60, 13) });
        records.add(Size::Shape(4, 3, 5), NATIVE, &call(60, 14));
        let mut classes = records.classes();
        classes.sort_by_key(|class| (class.size, class.sums.nanoseconds));
        let all: Vec<_> =
            classes.iter().map(|c| (c.size, c.fate, c.sums.calls, c.sums.nanoseconds)).collect();
        assert_eq!(all, [(size, NATIVE, 2, 21), (size, fate, 2, 25), (Size::Shape(4, 3, 5), NATIVE, 1, 14)]);
        let sums = classes[1].sums;
        assert_eq!((sums.bound, sums.rows, sums.columns, sums.multiplications), (9.5, 1, 2, 120));
        records.forget();
        assert!(records.classes().is_empty());
        records.add(size, NATIVE, &call(60, 10));
        assert_eq!(records.classes()[0].sums, call(60, 10));
    }

    #[test]
    fn a_full_table_counts_on_by_sizes() {
        let records = Records::new().unwrap();
        let total = 5000;
        for m in 1..=total {
            records.add(Size::Shape(m, 1, 1), NATIVE, &call(m as u64, 1));
        }
        let classes = records.classes();
        let others = |class: &&Class| matches!(class.size, Size::Others(_));
        assert_eq!(classes.iter().filter(|class| !others(class)).count(), SHAPES);
        assert_eq!(classes.iter().map(|class| class.sums.calls).sum::<u64>(), total as u64);
        let others: Vec<&Class> = classes.iter().filter(others).collect();
        // 3073 to 4095 are below 8^4 = 4096, the rest is not.
        let mut counts: Vec<_> = others.iter().map(|class| (class.size, class.sums.calls)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(Size::Others(3), 1023), (Size::Others(4), 905)]);
        assert_eq!(records.missed(), 0);
    }

    #[test]
    fn threads_lose_nothing() {
        let records = Records::new().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for m in 0..2000 {
                        records.add(Size::Shape(m % 500, 1, 1), NATIVE, &call(1, 0));
                    }
                });
            }
        });
        let classes = records.classes();
        assert_eq!(classes.len(), 500);
        assert_eq!(classes.iter().map(|class| class.sums.calls).sum::<u64>() + records.missed(), 8000);
    }
}

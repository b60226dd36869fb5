//! How the time of a program divides, over its life: a fixed number of buckets, whose width doubles whenever they are full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const BUCKETS: usize = 96;
/// Nanoseconds of a bucket at first.
const NARROWEST: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Emulated,
    Native,
}

/// Nanoseconds of calls in each bucket, summed over all threads. Whoever adds sees to it that nobody else does meanwhile.
pub struct Timeline {
    sums: [[AtomicU64; BUCKETS]; 2],
    width: AtomicU64,
}

/// The same at one moment, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    pub width: f64,
    pub emulated: Vec<f64>,
    pub native: Vec<f64>,
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Timeline {
    pub const fn new() -> Self {
        Self { sums: [const { [const { AtomicU64::new(0) }; BUCKETS] }; 2], width: AtomicU64::new(NARROWEST) }
    }

    /// A call from one moment to another, in nanoseconds from the beginning.
    pub fn add(&self, from: u64, to: u64, kind: Kind) {
        let width = self.reach(to);
        let sums = &self.sums[kind as usize];
        for at in from / width..=to / width {
            let begin = (at * width).max(from);
            let end = ((at + 1) * width).min(to);
            sums[at as usize].fetch_add(end.saturating_sub(begin), Ordering::Relaxed);
        }
    }

    /// Makes the buckets so wide that a moment is within them, and returns their width.
    pub fn reach(&self, moment: u64) -> u64 {
        let mut width = self.width.load(Ordering::Relaxed);
        while moment / width >= BUCKETS as u64 {
            self.fold();
            width *= 2;
            self.width.store(width, Ordering::Relaxed);
        }
        width
    }

    /// Two buckets become one.
    fn fold(&self) {
        for sums in &self.sums {
            for at in 0..BUCKETS {
                let take = |at: usize| sums.get(at).map_or(0, |sum| sum.swap(0, Ordering::Relaxed));
                let both = take(2 * at) + take(2 * at + 1);
                sums[at].store(both, Ordering::Relaxed);
            }
        }
    }

    pub fn clear(&self) {
        self.sums.iter().flatten().for_each(|sum| sum.store(0, Ordering::Relaxed));
        self.width.store(NARROWEST, Ordering::Relaxed);
    }

    pub fn read(&self) -> Buckets {
        let [emulated, native] = self.sums.each_ref().map(|sums| {
            sums.iter().map(|sum| sum.load(Ordering::Relaxed) as f64 * 1e-9).collect::<Vec<f64>>()
        });
        Buckets { width: self.width.load(Ordering::Relaxed) as f64 * 1e-9, emulated, native }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_divided_among_its_buckets() {
        let timeline = Timeline::new();
        timeline.add(NARROWEST / 2, 3 * NARROWEST, Kind::Emulated);
        timeline.add(0, 10, Kind::Native);
        let Buckets { width, emulated, native } = timeline.read();
        let want = [0.5, 1.0, 1.0, 0.0].map(|part| part * width);
        assert_eq!(emulated[..4], want);
        assert_eq!(native[0], 10e-9);
        assert_eq!(native.iter().sum::<f64>(), 10e-9);
    }

    #[test]
    fn widths_double_and_sums_stay() {
        let timeline = Timeline::new();
        let steps = 1000u64;
        for at in 0..steps {
            timeline.add(at * NARROWEST, at * NARROWEST + 1000, Kind::Native);
        }
        let Buckets { width, native, .. } = timeline.read();
        assert_eq!(width, NARROWEST as f64 * 16e-9);
        assert!((native.iter().sum::<f64>() - steps as f64 * 1e-6).abs() < 1e-12);
        assert!(native[..62].iter().all(|sum| (sum - 16e-6).abs() < 1e-12), "{native:?}");
        timeline.clear();
        assert_eq!(timeline.read(), Timeline::new().read());
    }
}

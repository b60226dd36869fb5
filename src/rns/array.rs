//! Whole arrays: intervals of all numbers, then the largest or the smallest (Algorithms 2 and 3 of the paper).
//!
//! The residues of one modulus are contiguous, so that vector units work on several numbers at once; every thread takes one
//! part of the numbers.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Interval, System};

/// Numbers that are evaluated together: their sums stay in the first cache.
const CHUNK: usize = 1024;

impl System {
    /// The intervals of all numbers of an array, residue i of number j at i * count + j. They enclose as those of
    /// [`System::interval`] do and are as narrow, but not the same bits: most come from one sum, see [`super::fraction`].
    /// `threads` is at least 1.
    ///
    /// # Panics
    /// If the length is no multiple of the number of moduli, or if a thread cannot be started.
    pub fn evaluate(&self, residues: &[u32], threads: usize) -> Vec<Interval> {
        let count = self.numbers(residues);
        let mut intervals = vec![Interval { low: 0.0, upp: 0.0, exponent: 0 }; count];
        let part = part_of(count, threads);
        std::thread::scope(|scope| {
            let mut parts = intervals.chunks_mut(part).enumerate();
            let own = parts.next();
            for (number, to) in parts {
                scope.spawn(move || self.evaluate_part(residues, count, number * part, to));
            }
            if let Some((_, to)) = own {
                self.evaluate_part(residues, count, 0, to);
            }
        });
        intervals
    }

    /// The place of the largest number, the first of them if there are several; None for an empty array.
    ///
    /// # Panics
    /// As [`System::evaluate`].
    pub fn max(&self, residues: &[u32], threads: usize) -> Option<usize> {
        self.extreme(residues, &self.evaluate(residues, threads), Ordering::Greater, threads)
    }

    /// The place of the smallest number, the first of them if there are several; None for an empty array.
    ///
    /// # Panics
    /// As [`System::evaluate`].
    pub fn min(&self, residues: &[u32], threads: usize) -> Option<usize> {
        self.extreme(residues, &self.evaluate(residues, threads), Ordering::Less, threads)
    }

    /// The second stage: the place of the first number that is `wanted` (greater or less) than all before it and not the
    /// opposite of any after it, from the intervals of all.
    ///
    /// # Panics
    /// If there are not as many intervals as numbers, or if a thread cannot be started.
    pub fn extreme(
        &self,
        residues: &[u32],
        intervals: &[Interval],
        wanted: Ordering,
        threads: usize,
    ) -> Option<usize> {
        let count = self.numbers(residues);
        assert_eq!(intervals.len(), count, "an interval for every number");
        // Of two places the one with the better number, the first one if both are as good.
        let better = |best: usize, other: usize| {
            let order = intervals[other].compare(&intervals[best]).unwrap_or_else(|| {
                self.compare_exactly(
                    &self.gather(residues, count, other),
                    &self.gather(residues, count, best),
                )
            });
            if order == wanted { other } else { best }
        };
        let reduce = |range: Range<usize>| range.reduce(better);
        let part = part_of(count, threads);
        let bests: Vec<Option<usize>> = std::thread::scope(|scope| {
            let starts = (part..count).step_by(part);
            let others: Vec<_> =
                starts.map(|start| scope.spawn(move || reduce(start..(start + part).min(count)))).collect();
            let own = reduce(0..part.min(count));
            let join = |other: std::thread::ScopedJoinHandle<Option<usize>>| other.join().expect("no panic");
            std::iter::once(own).chain(others.into_iter().map(join)).collect()
        });
        bests.into_iter().flatten().reduce(better)
    }

    /// The intervals of the numbers from `first` on.
    fn evaluate_part(&self, residues: &[u32], count: usize, first: usize, intervals: &mut [Interval]) {
        // All of [sum - radius, sum + radius] has to lie between 0 and 1, and to be narrow beside its lower end; a sum modulo
        // 1 is rounded by at most 2^-54 when the radius is added or subtracted.
        let radius = self.fraction_error() + 2f64.powi(-54);
        let least = (2.0 * radius + 2f64.powi(-53)) / super::system::ACCURACY * (1.0 + 1e-10) + radius;
        let most = 1.0 - 2.0 * radius;
        let mut sums = [0.0; CHUNK];
        for (chunk, to) in intervals.chunks_mut(CHUNK).enumerate() {
            let start = first + chunk * CHUNK;
            let sums = &mut sums[..to.len()];
            sums.fill(0.0);
            self.accumulate(residues, count, start, sums);
            for (i, (to, &sum)) in to.iter_mut().zip(&*sums).enumerate() {
                *to = if sum >= least && sum <= most {
                    Interval { low: sum - radius, upp: sum + radius, exponent: 0 }
                } else {
                    self.interval(&self.gather(residues, count, start + i))
                };
            }
        }
    }

    /// The residues of one number of an array.
    fn gather(&self, residues: &[u32], count: usize, j: usize) -> Vec<u32> {
        residues[j..].iter().step_by(count).copied().collect()
    }

    /// How many numbers an array has.
    fn numbers(&self, residues: &[u32]) -> usize {
        let count = residues.len() / self.count();
        self.expect(residues, count);
        count
    }
}

/// The numbers of a thread; the last thread gets fewer.
fn part_of(count: usize, threads: usize) -> usize {
    count.div_ceil(threads.max(1)).next_multiple_of(CHUNK).max(1)
}

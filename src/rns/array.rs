//! Whole arrays: intervals of all numbers, and the largest or the smallest number, in two stages as in the paper (Algorithms 2
//! and 3): the intervals first, then a reduction that touches residues only where intervals overlap.
//!
//! The residues of one modulus are contiguous, so that vector units work on several numbers at once; every thread takes one
//! part of the numbers.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Interval, System};

/// Numbers that are evaluated together: their sums stay in the first cache.
const CHUNK: usize = 1024;

/// The place of a number and its interval.
type Candidate = (usize, Interval);

/// A place for an interval.
const NOTHING: Interval = Interval { low: 0.0, upp: 0.0, exponent: 0 };

impl System {
    /// The intervals of all numbers of an array, residue i of number j at i * count + j. They enclose as those of
    /// [`System::interval`] do and are as narrow, but not the same bits: most come from one sum, see [`super::fraction`].
    /// `threads` is at least 1.
    ///
    /// # Panics
    /// If the length is no multiple of the number of moduli, or if a thread cannot be started.
    pub fn evaluate(&self, residues: &[u32], threads: usize) -> Vec<Interval> {
        let count = self.numbers(residues);
        let mut intervals = vec![NOTHING; count];
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
        self.extreme(residues, Ordering::Greater, threads)
    }

    /// The place of the smallest number, the first of them if there are several; None for an empty array.
    ///
    /// # Panics
    /// As [`System::evaluate`].
    pub fn min(&self, residues: &[u32], threads: usize) -> Option<usize> {
        self.extreme(residues, Ordering::Less, threads)
    }

    /// The place of the first number that is `wanted` (greater or less) than all others but equals.
    fn extreme(&self, residues: &[u32], wanted: Ordering, threads: usize) -> Option<usize> {
        let count = self.numbers(residues);
        // Of two numbers, the first one in front, the better one; the first one if they are equal.
        let better = |best: Candidate, other: Candidate| {
            let order = other.1.compare(&best.1).unwrap_or_else(|| {
                let of = |place| self.gather(residues, count, place);
                self.compare_exactly(&of(other.0), &of(best.0))
            });
            if order == wanted { other } else { best }
        };
        // Both stages chunk by chunk: the intervals of a chunk never leave the first cache.
        let reduce = |range: Range<usize>| -> Option<Candidate> {
            let mut intervals = [NOTHING; CHUNK];
            let mut best = None;
            for start in range.clone().step_by(CHUNK) {
                let intervals = &mut intervals[..CHUNK.min(range.end - start)];
                self.evaluate_part(residues, count, start, intervals);
                let candidates = (start..).zip(intervals.iter().copied());
                best = best.into_iter().chain(candidates).reduce(better);
            }
            best
        };
        let part = part_of(count, threads);
        let bests: Vec<Option<Candidate>> = std::thread::scope(|scope| {
            let starts = (part..count).step_by(part);
            let others: Vec<_> =
                starts.map(|start| scope.spawn(move || reduce(start..(start + part).min(count)))).collect();
            let own = reduce(0..part.min(count));
            let join =
                |other: std::thread::ScopedJoinHandle<Option<Candidate>>| other.join().expect("no panic");
            std::iter::once(own).chain(others.into_iter().map(join)).collect()
        });
        bests.into_iter().flatten().reduce(better).map(|(place, _)| place)
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

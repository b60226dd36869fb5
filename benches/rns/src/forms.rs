//! The three forms of MAX. All give the place of the first largest number.

use std::borrow::Cow;
use std::cmp::Ordering;

use oz2blas::rns::{Interval, System};
use serde::Serialize;

/// An array of residue numbers: residue i of number j at `i * count + j`.
#[derive(Clone)]
pub struct Numbers {
    pub count: usize,
    pub residues: Vec<u32>,
}

impl Numbers {
    /// The first numbers as an array of their own; no copy of all.
    pub fn first(&self, count: usize) -> Cow<'_, Self> {
        if count == self.count {
            return Cow::Borrowed(self);
        }
        let planes = self.residues.chunks(self.count);
        Cow::Owned(Self {
            count,
            residues: planes.flat_map(|plane| plane[..count].iter().copied()).collect(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Interval,
    Radix,
    Naive,
}

impl Form {
    pub const ALL: [Form; 3] = [Form::Interval, Form::Radix, Form::Naive];

    pub fn title(self) -> &'static str {
        match self {
            Form::Interval => "interval evaluation",
            Form::Radix => "mixed radix",
            Form::Naive => "naive",
        }
    }

    /// Bytes for what a form computes of each number, with n moduli.
    pub fn bytes(self, n: usize) -> usize {
        match self {
            Form::Interval => size_of::<Interval>(),
            Form::Radix => n * size_of::<u32>(),
            Form::Naive => size_of::<u32>(),
        }
    }

    pub fn max(self, system: &System, numbers: &Numbers) -> usize {
        match self {
            // Intervals, chunk by chunk, and a reduction that compares intervals.
            Form::Interval => system.max(&numbers.residues, 1).expect("there are numbers"),
            Form::Radix => radix(system, numbers),
            Form::Naive => naive(system, numbers),
        }
    }
}

/// Numbers that are converted together, as many as the form with intervals evaluates together.
const CHUNK: usize = 1024;

/// The mixed-radix digits of all numbers, chunk by chunk, and a reduction that compares digits from the most significant one on.
fn radix(system: &System, numbers: &Numbers) -> usize {
    let (mut best, mut place) = (vec![0; system.count()], 0);
    for start in (0..numbers.count).step_by(CHUNK) {
        let width = CHUNK.min(numbers.count - start);
        let planes = numbers.residues.chunks(numbers.count);
        let block: Vec<u32> = planes.flat_map(|plane| plane[start..start + width].iter().copied()).collect();
        let digits = system.mixed_radix_of_array(&block, width);
        for j in 0..width {
            let of = || digits[j..].iter().step_by(width);
            if of().rev().gt(best.iter().rev()) {
                (best, place) = (of().copied().collect(), start + j);
            }
        }
    }
    place
}

/// Comparisons that a block makes together, so that the evaluations inside run on the vector unit as those of the other form.
const BLOCK: usize = 512;

/// A tournament: every comparison of two numbers evaluates both, and nothing is kept but who won.
fn naive(system: &System, numbers: &Numbers) -> usize {
    let mut left: Vec<u32> = (0..numbers.count as u32).collect();
    let mut block = vec![0; system.count() * 2 * BLOCK];
    while left.len() > 1 {
        // The winner of each pair moves to the front; one without a partner moves on.
        let pairs = left.len() / 2;
        for first in (0..pairs).step_by(BLOCK) {
            let contestants = 2 * first..2 * pairs.min(first + BLOCK);
            let places = &left[contestants];
            let block = &mut block[..system.count() * places.len()];
            for (to, plane) in block.chunks_mut(places.len()).zip(numbers.residues.chunks(numbers.count)) {
                to.iter_mut().zip(places).for_each(|(to, &place)| *to = plane[place as usize]);
            }
            let intervals = system.evaluate(block, 1);
            let second_wins: Vec<bool> = (0..intervals.len())
                .step_by(2)
                .map(|a| {
                    let order = intervals[a + 1].compare(&intervals[a]);
                    let one =
                        |j: usize| block[j..].iter().step_by(intervals.len()).copied().collect::<Vec<u32>>();
                    order.unwrap_or_else(|| system.compare_exactly(&one(a + 1), &one(a))) == Ordering::Greater
                })
                .collect();
            for (i, second) in second_wins.into_iter().enumerate() {
                left[first + i] = left[2 * (first + i) + usize::from(second)];
            }
        }
        if left.len() % 2 == 1 {
            left[pairs] = left[left.len() - 1];
            left.truncate(pairs + 1);
        } else {
            left.truncate(pairs);
        }
    }
    left[0] as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use oz2blas::rns::moduli::paper_set;

    #[test]
    fn the_forms_agree() {
        let system = System::new(&paper_set(8).unwrap()).unwrap();
        for count in [1, 2, 3, 5, 1023, 1024, 1025, 3000] {
            // Every number twice: the first of the two largest counts.
            let plane = |m: u32| {
                (0..count as u64)
                    .map(move |j| ((j / 2 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 30) as u32 % m)
            };
            let numbers =
                Numbers { count, residues: system.moduli().iter().flat_map(|&m| plane(m)).collect() };
            let value = |j: usize| {
                system.value(&numbers.residues.iter().skip(j).step_by(count).copied().collect::<Vec<u32>>())
            };
            let want = (0..count).fold(0, |best, j| if value(j) > value(best) { j } else { best });
            for form in Form::ALL {
                assert_eq!(form.max(&system, &numbers), want, "{form:?}, {count} numbers");
            }
        }
    }

    #[test]
    fn the_first_numbers_keep_their_residues() {
        let numbers = Numbers { count: 3, residues: vec![1, 2, 3, 4, 5, 6] };
        assert_eq!(numbers.first(2).residues, [1, 2, 4, 5]);
    }
}

//! Step 5d of the plan: which rows and columns to leave to the native BLAS, so that none of the entries that stay is a bad one.

use super::plan::Out;

/// The bad entries of an m x n matrix, a bit each.
pub struct BadEntries {
    /// Bit i mod 32 of `bits[j * words + i / 32]`.
    bits: Vec<u32>,
    words: usize,
    rows: usize,
    columns: usize,
}

/// Rows in a word.
pub const WORD: usize = u32::BITS as usize;

impl BadEntries {
    /// Bytes for an m x n matrix.
    pub fn bytes(m: usize, n: usize) -> usize {
        m.div_ceil(WORD).saturating_mul(n).saturating_mul(size_of::<u32>())
    }

    /// No bad entries; None where there is no memory.
    pub fn new(m: usize, n: usize) -> Option<Self> {
        let words = m.div_ceil(WORD);
        let length = words.checked_mul(n)?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(length).ok()?;
        bits.resize(length, 0);
        Some(Self { bits, words, rows: m, columns: n })
    }

    /// The words of all columns, one column after the other, and how many a column has.
    pub fn words(&mut self) -> (&mut [u32], usize) {
        (&mut self.bits, self.words)
    }

    fn column(&self, j: usize) -> impl Iterator<Item = usize> {
        self.bits[j * self.words..][..self.words].iter().enumerate().flat_map(|(word, &bits)| {
            (0..WORD).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * WORD + bit)
        })
    }

    /// Takes out the line with the most bad entries until no bad entry is left: rows before columns and lower numbers first where two
    /// have equally many. `out` has the lines that are out before, and the new ones are added in no order. False where that would be
    /// too much of the matrix, or where there is no memory.
    pub fn take_out(&mut self, out: &mut Out) -> bool {
        let counters = |count: usize| {
            let mut counts = Vec::new();
            counts.try_reserve_exact(count).ok()?;
            counts.resize(count, 0usize);
            Some(counts)
        };
        let (Some(mut of_rows), Some(mut of_columns)) = (counters(self.rows), counters(self.columns)) else {
            return false;
        };
        for (j, of_column) in of_columns.iter_mut().enumerate() {
            for i in self.column(j) {
                of_rows[i] += 1;
                *of_column += 1;
            }
        }
        // The first of the largest.
        let most = |counts: &[usize]| {
            counts
                .iter()
                .enumerate()
                .fold((0, 0), |best, (at, &count)| if count > best.1 { (at, count) } else { best })
        };
        loop {
            let ((i, bad_in_row), (j, bad_in_column)) = (most(&of_rows), most(&of_columns));
            if bad_in_row == 0 && bad_in_column == 0 {
                return true;
            }
            if bad_in_row >= bad_in_column {
                let (word, mask) = (i / WORD, 1 << (i % WORD));
                for (column, count) in self.bits.chunks_mut(self.words).zip(&mut of_columns) {
                    *count -= usize::from(column[word] & mask != 0);
                    column[word] &= !mask;
                }
                of_rows[i] = 0;
                out.rows.push(i);
            } else {
                for i in self.column(j) {
                    of_rows[i] -= 1;
                }
                self.bits[j * self.words..][..self.words].fill(0);
                of_columns[j] = 0;
                out.columns.push(j);
            }
            if out.is_too_much(self.rows, self.columns) {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bad(m: usize, n: usize, entries: &[(usize, usize)]) -> BadEntries {
        let mut out = BadEntries::new(m, n).unwrap();
        let (bits, words) = out.words();
        for &(i, j) in entries {
            bits[j * words + i / WORD] |= 1 << (i % WORD);
        }
        out
    }

    #[test]
    fn the_line_with_the_most_goes_first() {
        // Row 40 is bad in four columns, column 2 in three further rows, and (7, 9) by itself.
        let entries = [(40, 0), (40, 1), (40, 2), (40, 3), (1, 2), (33, 2), (64, 2), (7, 9)];
        let mut out = Out::default();
        assert!(bad(70, 10, &entries).take_out(&mut out));
        assert_eq!(out, Out { rows: vec![40, 7], columns: vec![2], not_finite: 0 });
        // With seven lines out before, one more is too much.
        let mut out = Out { rows: (50..57).collect(), ..Out::default() };
        assert!(!bad(70, 10, &entries).take_out(&mut out));
        assert_eq!(out.count(), 9);
    }

    #[test]
    fn something_must_be_left() {
        let column = [(0, 0), (1, 0)];
        assert!(!bad(70, 1, &column).take_out(&mut Out::default()));
        assert!(bad(70, 2, &column).take_out(&mut Out::default()));
    }

    proptest! {
        #[test]
        fn no_bad_entry_is_left(entries in prop::collection::vec((0usize..75, 0usize..60), 0..12)) {
            let mut out = Out::default();
            if bad(75, 60, &entries).take_out(&mut out) {
                prop_assert!(entries.iter().all(|(i, j)| out.rows.contains(i) || out.columns.contains(j)));
                prop_assert!(out.count() <= entries.len() && !out.is_too_much(75, 60));
            }
        }
    }
}

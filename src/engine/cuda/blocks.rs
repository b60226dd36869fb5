//! The sizes of blocks on a device: as large as its memory and OZ2_WORKSPACE allow.

use crate::ozaki::strassen::{MOST_LEVELS, PRODUCTS};

/// What a product wants of its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows of C are padded to a multiple of this, the inner dimension of that.
    rows: usize,
    length: usize,
    /// The product leaves 32-bit sums, which are reduced after it; else it leaves residues, and the lines of A are permuted.
    pub sums: bool,
    /// Levels of Strassen's form: with each there are seven times as many planes, of half the size.
    pub levels: usize,
}

impl Layout {
    pub const CUBLAS: Self = Self { rows: ALIGN, length: ALIGN, sums: true, levels: 0 };
    /// Of the fused product, the most levels first.
    pub const FUSED: [Self; MOST_LEVELS + 1] = [Self::fused(2), Self::fused(1), Self::fused(0)];

    const fn fused(levels: usize) -> Self {
        Self { rows: 64, length: 128, sums: false, levels }
    }

    /// What a plane has of a count: its part of it, padded.
    fn part(&self, count: usize, multiple: usize) -> usize {
        count.div_ceil(1 << self.levels).next_multiple_of(multiple)
    }

    /// Rows of a plane, for so many of C.
    pub fn rows(&self, count: usize) -> usize {
        self.part(count, self.rows)
    }

    pub fn columns(&self, count: usize) -> usize {
        self.part(count, ALIGN)
    }

    pub fn length(&self, count: usize) -> usize {
        self.part(count, self.length)
    }

    pub fn planes(&self, moduli: usize) -> usize {
        PRODUCTS.pow(self.levels as u32) * moduli
    }
}

/// What is on the device at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Rows of C.
    pub rows: usize,
    /// Columns of C.
    pub columns: usize,
    /// Elements of the inner dimension.
    pub length: usize,
    /// Moduli whose 32-bit sums are there together.
    pub group: usize,
    pub layout: Layout,
}

/// Tensor cores and cuBLAS want sizes and leading dimensions that are multiples of this.
pub const ALIGN: usize = 32;
/// 2^16 products of residues fit the 32-bit sums.
const MOST_LENGTH: usize = 1 << 16;
/// Kernels and cuBLAS count rows and columns in 32 bits.
const MOST_LINES: usize = 1 << 24;

pub fn padded(count: usize) -> usize {
    count.next_multiple_of(ALIGN)
}

impl Blocks {
    pub fn largest(m: usize, n: usize, k: usize, moduli: usize, layout: Layout) -> Self {
        Self {
            rows: m.min(MOST_LINES),
            columns: n.min(MOST_LINES),
            length: k.min(MOST_LENGTH),
            group: if layout.sums { moduli } else { 1 },
            layout,
        }
    }

    fn lines(&self) -> usize {
        self.layout.rows(self.rows) + self.layout.columns(self.columns)
    }

    /// Entries of a plane.
    pub fn entries(&self) -> usize {
        self.layout.rows(self.rows) * self.layout.columns(self.columns)
    }

    /// Bytes for the plan: raw operands, one plane of each, the sums, and G in 64 bits.
    pub fn plan_bytes(&self) -> usize {
        self.lines() * (8 * self.length + padded(self.length)) + 12 * self.entries()
    }

    /// Bytes for the products: raw operands, all planes, the sums of a group, residues of C, C twice, and G of the plan, which
    /// stays for the next call.
    pub fn product_bytes(&self, moduli: usize) -> usize {
        let planes = self.layout.planes(moduli);
        let raw = 8 * (self.rows + self.columns) * self.length;
        let operands = planes * self.lines() * self.layout.length(self.length);
        let sums = if self.layout.sums { 4 * self.group } else { 0 };
        let results = 24 * padded(self.rows) * padded(self.columns);
        raw + operands + (sums + planes) * self.entries() + results
    }

    /// The next smaller blocks, or None where smaller ones are not worth the device.
    pub fn smaller(self) -> Option<Self> {
        let half = |x: usize| x.div_ceil(2).next_multiple_of(ALIGN);
        if self.group > 4 {
            Some(Self { group: self.group.div_ceil(2), ..self })
        } else if self.length > 4096 {
            Some(Self { length: half(self.length), ..self })
        } else if self.rows.max(self.columns) > ALIGN {
            if self.rows >= self.columns {
                Some(Self { rows: half(self.rows), ..self })
            } else {
                Some(Self { columns: half(self.columns), ..self })
            }
        } else if self.length > ALIGN {
            Some(Self { length: half(self.length), ..self })
        } else if self.group > 1 {
            Some(Self { group: 1, ..self })
        } else {
            None
        }
    }

    /// The largest blocks from these down whose bytes are within the limit.
    pub fn within(self, limit: usize, bytes: impl Fn(&Self) -> usize) -> Option<Self> {
        let mut blocks = self;
        while bytes(&blocks) > limit {
            blocks = blocks.smaller()?;
        }
        Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_shrink_until_they_fit_or_end() {
        let [two, one, none] = Layout::FUSED;
        for (layout, group, least) in
            [(Layout::CUBLAS, 15, 100_000), (none, 1, 300_000), (one, 1, 2_000_000), (two, 1, 20_000_000)]
        {
            let largest = Blocks::largest(5000, 300, 1 << 20, 15, layout);
            assert_eq!(largest, Blocks { rows: 5000, columns: 300, length: 1 << 16, group, layout });
            let mut limit = largest.product_bytes(15);
            while let Some(blocks) = largest.within(limit, |b| b.product_bytes(15)) {
                assert!(
                    blocks.product_bytes(15) <= limit
                        && blocks.rows >= 1
                        && blocks.columns >= 1
                        && blocks.length >= 1
                );
                limit /= 2;
            }
            assert!(limit < least, "{limit}");
        }
    }

    #[test]
    fn a_plane_has_a_part_of_everything() {
        for (layout, part) in Layout::FUSED.into_iter().zip([4, 2, 1]) {
            let sizes =
                [layout.rows(part * 64), layout.columns(part * 32 - 1), layout.length(part * 128 + 1)];
            assert_eq!(sizes, [64, 32, 256], "{layout:?}");
            assert_eq!(layout.planes(3), 3 * [0, 1, 7, 0, 49][part], "{layout:?}");
        }
    }

    #[test]
    fn sizes_are_counted_in_64_bits() {
        let blocks = Blocks::largest(46341, 46341, 46341, 20, Layout::CUBLAS);
        assert!(blocks.product_bytes(20) > 20 * 46341 * 46341 * 2);
        let blocks = Blocks::largest(1 << 40, 1 << 33, 1, 20, Layout::CUBLAS);
        assert!(blocks.rows < 1 << 31 && blocks.columns < 1 << 31);
    }
}

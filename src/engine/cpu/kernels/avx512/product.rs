//! Products of bytes by VNNI: an instruction multiplies sixteen groups of four unsigned bytes with four signed ones each.
//!
//! The unsigned side are the rows of op(A), made unsigned by adding 128 to every element: sum (a + 128) b = sum a b + 128 sum b, and
//! the second sum belongs to the column alone. Sums wrap modulo 2^32 on the way and are right in the end.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::super::{CACHE_LINE, DEPTH, PANEL, Pass, Product, TILE, Tile};
use super::reduce::Reduction;
use super::{CHUNK_BYTES, GROUP, HALF};

/// Elements of the inner dimension that are made unsigned at a time: a panel of them stays in the first cache.
pub const SPAN: usize = 512;
const GROUPS: usize = DEPTH / GROUP;

/// A panel of rows, made unsigned. Nothing is read that was not filled: to clear it takes as long as a part of a product.
#[repr(C, align(64))]
struct Unsigned([MaybeUninit<u8>; PANEL * SPAN]);

impl Unsigned {
    const fn new() -> Self {
        Self([MaybeUninit::uninit(); PANEL * SPAN])
    }

    /// # Safety
    ///
    /// AVX-512 with VNNI, here and below; `chunks` chunks of rows can be read, at most SPAN elements.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn fill(&mut self, rows: *const u8, chunks: usize) {
        debug_assert!(chunks * DEPTH <= SPAN);
        let offset = _mm512_set1_epi8(i8::MIN);
        for at in (0..chunks * CHUNK_BYTES).step_by(64) {
            // SAFETY: inside of the panel and of this array, both aligned.
            unsafe {
                let x = _mm512_load_si512(rows.add(at).cast());
                _mm512_store_si512(self.0.as_mut_ptr().add(at).cast(), _mm512_xor_si512(x, offset));
            }
        }
    }
}

/// -128 sum b for the columns of a panel.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn corrections(columns: *const u8, chunks: usize, out: &mut [i32; PANEL]) {
    let ones = _mm512_set1_epi8(1);
    for (j, out) in out.iter_mut().enumerate() {
        let mut sum = _mm512_setzero_si512();
        for chunk in 0..chunks {
            // SAFETY: the 64 elements of a column in a chunk.
            let b = unsafe { _mm512_load_si512(columns.add(chunk * CHUNK_BYTES + j * DEPTH).cast()) };
            sum = _mm512_dpbusd_epi32(sum, ones, b);
        }
        *out = -128 * _mm512_reduce_add_epi32(sum);
    }
}

/// A function for the sums of 32 rows and some columns from j on, which start with the corrections, or with what is in the tile.
/// Written out column by column: in a loop over columns the compiler keeps the sums in memory.
macro_rules! columns {
    ($name:ident, $($w:literal)*) => {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
        unsafe fn $name(
            rows: &Unsigned,
            columns: *const u8,
            chunks: usize,
            j: usize,
            corrections: &[i32; PANEL],
            sums: *mut i32,
            add: bool,
        ) {
            const W: usize = [$($w),*].len();
            let mut acc = [[_mm512_setzero_si512(); 2]; W];
            // SAFETY: whole chunks of both panels, in groups of four elements; columns of the tile.
            unsafe {
                let place = |w: usize, half: usize| sums.add((j + w) * PANEL + HALF * half).cast::<__m512i>();
                $(acc[$w] = [_mm512_set1_epi32(corrections[j + $w]); 2];)*
                if add {
                    $(
                        acc[$w][0] = _mm512_add_epi32(acc[$w][0], _mm512_load_si512(place($w, 0)));
                        acc[$w][1] = _mm512_add_epi32(acc[$w][1], _mm512_load_si512(place($w, 1)));
                    )*
                }
                let (mut a, mut b) = (rows.0.as_ptr(), columns.add(j * DEPTH));
                for _ in 0..chunks {
                    for group in 0..GROUPS {
                        let upper = _mm512_load_si512(a.add(64 * group).cast());
                        let lower = _mm512_load_si512(a.add(64 * (GROUPS + group)).cast());
                        $(
                            let x = _mm512_set1_epi32(b.add($w * DEPTH + GROUP * group).cast::<i32>().read());
                            acc[$w][0] = _mm512_dpbusd_epi32(acc[$w][0], upper, x);
                            acc[$w][1] = _mm512_dpbusd_epi32(acc[$w][1], lower, x);
                        )*
                    }
                    (a, b) = (a.add(CHUNK_BYTES), b.add(CHUNK_BYTES));
                }
                $(
                    _mm512_store_si512(place($w, 0), acc[$w][0]);
                    _mm512_store_si512(place($w, 1), acc[$w][1]);
                )*
            }
        }
    };
}

columns!(twelve_columns, 0 1 2 3 4 5 6 7 8 9 10 11);
columns!(eight_columns, 0 1 2 3 4 5 6 7);

/// A tile of sums over some chunks, in as many columns at a time as there are registers for.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile(
    rows: &Unsigned,
    panel: *const u8,
    chunks: usize,
    corrections: &[i32; PANEL],
    sums: &mut Tile,
    add: bool,
) {
    let sums = sums.0.as_mut_ptr();
    // SAFETY: passed on from the caller.
    unsafe {
        twelve_columns(rows, panel, chunks, 0, corrections, sums, add);
        twelve_columns(rows, panel, chunks, 12, corrections, sums, add);
        eight_columns(rows, panel, chunks, 24, corrections, sums, add);
    }
}

/// # Safety
///
/// As for the table of kernels, here and below.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn product(product: &Product, sums: &mut [Tile]) {
    let &Product { rows, columns, panel, count, add, .. } = product;
    let mut unsigned = Unsigned::new();
    let mut of_columns = [0; PANEL];
    for first in (0..count).step_by(SPAN) {
        let (offset, chunks) = (first * PANEL, SPAN.min(count - first) / DEPTH);
        // SAFETY: inside of both panels.
        unsafe {
            corrections(columns.add(offset), chunks, &mut of_columns);
            for (p, sums) in sums.iter_mut().enumerate() {
                unsigned.fill(rows.add(p * panel + offset), chunks);
                tile(&unsigned, columns.add(offset), chunks, &of_columns, sums, add || first > 0);
            }
        }
    }
}

/// Brings share number `share` of `of` of a panel of so many lines nearer.
#[inline]
fn ahead(panel: *const u8, lines: usize, share: usize, of: usize) {
    for line in lines * share / of..lines * (share + 1) / of {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(panel.wrapping_add(line * CACHE_LINE).cast()) };
    }
}

/// Panels of columns in a pass, at most: their corrections are kept.
pub const ACROSS: usize = 32;

/// Parts of SPAN elements in a pass, at most.
pub const PARTS: usize = 2;

/// Row pairs of a tile: the reduction of two columns at a time.
const PAIRS: usize = PANEL / 2;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn pass(pass: &Pass) {
    assert!(pass.across <= ACROSS, "more panels than `blocking` asked for");
    let reduction = Reduction::new(pass.modulus, pass.factor);
    let mut unsigned = [const { Unsigned::new() }; PARTS];
    let mut sums = Tile([0; TILE]);
    let mut of_columns = [[[0; PANEL]; PARTS]; ACROSS];
    // Longer passes than `blocking` asks for, one after the other: their sums meet in the residues.
    for first in (0..pass.count).step_by(PARTS * SPAN) {
        let count = (PARTS * SPAN).min(pass.count - first);
        let parts = count.div_ceil(SPAN);
        let chunks = |part: usize| SPAN.min(count - part * SPAN) / DEPTH;
        let offset = |part: usize| (first + part * SPAN) * PANEL;
        // SAFETY: by the contract of the table.
        unsafe {
            let columns = |q: usize, part: usize| pass.columns.add(q * pass.panel + offset(part));
            for (q, of_parts) in of_columns[..pass.across].iter_mut().enumerate() {
                for (part, out) in of_parts[..parts].iter_mut().enumerate() {
                    corrections(columns(q, part), chunks(part), out);
                }
            }
            for p in 0..pass.down {
                for (part, unsigned) in unsigned[..parts].iter_mut().enumerate() {
                    unsigned.fill(pass.rows.add(p * pass.panel + offset(part)), chunks(part));
                }
                for q in 0..pass.across {
                    // The next pass comes to the second cache meanwhile, each panel in as many shares as it is used.
                    let (lines, next) = (count * PANEL / CACHE_LINE, offset(0));
                    ahead(pass.next_columns.wrapping_add(q * pass.panel + next), lines, p, pass.down);
                    ahead(pass.next_rows.wrapping_add(p * pass.panel + next), lines, q, pass.across);
                    for part in 0..parts {
                        let of_columns = &of_columns[q][part];
                        tile(
                            &unsigned[part],
                            columns(q, part),
                            chunks(part),
                            of_columns,
                            &mut sums,
                            part > 0,
                        );
                    }
                    let residues = pass.residues.add((q * pass.down + p) * pass.tile);
                    for pair in 0..PAIRS {
                        let sums = sums.0.as_ptr().add(2 * PANEL * pair);
                        reduction.columns(sums, pass.add || first > 0, residues.add(64 * pair));
                    }
                }
            }
        }
    }
}

//! Products of bytes by VNNI: an instruction multiplies sixteen groups of four unsigned bytes with four signed ones each.
//!
//! The unsigned side are the rows of op(A), made unsigned by adding 128 to every element: sum (a + 128) b = sum a b + 128 sum b, and
//! the second sum belongs to the column alone. Sums wrap modulo 2^32 on the way and are right in the end.

use std::arch::x86_64::*;
use std::hint::black_box;
use std::mem::MaybeUninit;

use super::super::{CACHE_LINE, DEPTH, PANEL, Pass, Product, Stream, TILE, Tile};
use super::reduce::Reduction;
use super::{CHUNK_BYTES, GROUP, HALF};

/// Elements of the inner dimension that are made unsigned at a time: a panel of them stays in the first cache.
pub const SPAN: usize = 1024;
const GROUPS: usize = DEPTH / GROUP;
/// Groups that are written out, a number that divides theirs: all sixteen would be more code than the processor keeps decoded.
const UNROLLED: usize = 4;

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

/// A function for the sums of 32 rows and some columns from j on, which start with the corrections and, if so said, with what is in the tile.
/// `next` makes a step for each chunk. Written out column by column: in a loop over columns the compiler keeps the sums in memory;
/// and it would write out all groups if it knew their number.
macro_rules! columns {
    ($name:ident, $($w:literal)*) => {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
        unsafe fn $name(
            rows: &Unsigned,
            columns: *const u8,
            chunks: usize,
            j: usize,
            (corrections, add): (&[i32; PANEL], bool),
            sums: *mut i32,
            next: &mut Stream,
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
                    next.step();
                    for _ in 0..black_box(GROUPS / UNROLLED) {
                        for group in 0..UNROLLED {
                            let upper = _mm512_load_si512(a.add(64 * group).cast());
                            let lower = _mm512_load_si512(a.add(64 * (GROUPS + group)).cast());
                            $(
                                let x = _mm512_set1_epi32(b.add($w * DEPTH + GROUP * group).cast::<i32>().read());
                                acc[$w][0] = _mm512_dpbusd_epi32(acc[$w][0], upper, x);
                                acc[$w][1] = _mm512_dpbusd_epi32(acc[$w][1], lower, x);
                            )*
                        }
                        (a, b) = (a.add(64 * UNROLLED), b.add(GROUP * UNROLLED));
                    }
                    (a, b) = (a.add(CHUNK_BYTES - 64 * GROUPS), b.add(CHUNK_BYTES - DEPTH));
                }
                $(
                    _mm512_store_si512(place($w, 0), acc[$w][0]);
                    _mm512_store_si512(place($w, 1), acc[$w][1]);
                )*
            }
        }
    };
}

columns!(eleven_columns, 0 1 2 3 4 5 6 7 8 9 10);
columns!(ten_columns, 0 1 2 3 4 5 6 7 8 9);

/// Calls for the columns of a tile.
const CALLS: usize = 3;

/// A tile of sums over some chunks, in about as many columns at a time as there are registers for, and in nearly equal shares: few
/// columns make little of what is loaded of the rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile(
    rows: &Unsigned,
    panel: *const u8,
    chunks: usize,
    start: (&[i32; PANEL], bool),
    sums: &mut Tile,
    next: &mut Stream,
) {
    let sums = sums.0.as_mut_ptr();
    // SAFETY: passed on from the caller.
    unsafe {
        eleven_columns(rows, panel, chunks, 0, start, sums, next);
        eleven_columns(rows, panel, chunks, 11, start, sums, next);
        ten_columns(rows, panel, chunks, 22, start, sums, next);
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
    let mut next = product.next;
    for first in (0..count).step_by(SPAN) {
        let (offset, chunks) = (first * PANEL, SPAN.min(count - first) / DEPTH);
        // SAFETY: inside of both panels.
        unsafe {
            corrections(columns.add(offset), chunks, &mut of_columns);
            for (p, sums) in sums.iter_mut().enumerate() {
                unsigned.fill(rows.add(p * panel + offset), chunks);
                let start = (&of_columns, add || first > 0);
                tile(&unsigned, columns.add(offset), chunks, start, sums, &mut next);
            }
        }
    }
}

/// The lines of share number `share` of `of` of a panel of so many lines, in so many steps.
fn share(panel: *const u8, lines: usize, (share, of): (usize, usize), steps: usize) -> Stream {
    let own = lines.div_ceil(of);
    Stream { at: panel.wrapping_add(own * share * CACHE_LINE), lines: own.div_ceil(steps) }
}

/// Panels of columns in a pass, at most: their corrections are kept. They stay in the second cache, beside those of the next pass.
pub const ACROSS: usize = 16;

/// Row pairs of a tile: the reduction of two columns at a time.
const PAIRS: usize = PANEL / 2;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn pass(pass: &Pass) {
    assert!(pass.across <= ACROSS, "more panels than `blocking` asked for");
    let reduction = Reduction::new(pass.modulus, pass.factor);
    let mut unsigned = Unsigned::new();
    let mut sums = Tile([0; TILE]);
    let mut of_columns = [[0; PANEL]; ACROSS];
    // Longer passes than `blocking` asks for, one after the other: their sums meet in the residues.
    for first in (0..pass.count).step_by(SPAN) {
        let (offset, chunks) = (first * PANEL, SPAN.min(pass.count - first) / DEPTH);
        let lines = chunks * CHUNK_BYTES / CACHE_LINE;
        // SAFETY: by the contract of the table.
        unsafe {
            let columns = |q: usize| pass.columns.add(q * pass.panel + offset);
            for (q, out) in of_columns[..pass.across].iter_mut().enumerate() {
                corrections(columns(q), chunks, out);
            }
            for p in 0..pass.down {
                unsigned.fill(pass.rows.add(p * pass.panel + offset), chunks);
                for q in 0..pass.across {
                    // The next pass comes to the second cache meanwhile, each panel in as many shares as it is used.
                    let next_rows = pass.next_rows.wrapping_add(p * pass.panel + offset);
                    share(next_rows, lines, (q, pass.across), 1).step();
                    let next_columns = pass.next_columns.wrapping_add(q * pass.panel + offset);
                    let mut next = share(next_columns, lines, (p, pass.down), CALLS * chunks);
                    tile(&unsigned, columns(q), chunks, (&of_columns[q], false), &mut sums, &mut next);
                    let at = q * pass.down + p;
                    let residues = pass.residues.add(at * pass.tile);
                    let (add, earlier) = match pass.earlier {
                        Some(earlier) if first == 0 => (true, earlier.of(at)),
                        _ => (first > 0, residues.cast_const()),
                    };
                    for pair in 0..PAIRS {
                        let sums = sums.0.as_ptr().add(2 * PANEL * pair);
                        reduction.columns(sums, add, earlier.add(64 * pair), residues.add(64 * pair));
                    }
                }
            }
        }
    }
}

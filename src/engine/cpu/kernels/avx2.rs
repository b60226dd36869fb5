//! Kernels for AVX2: all but the products is that of [`portable`], compiled for this CPU. Two tables: with AVX-VNNI, which multiplies
//! bytes, and without, by products of 16-bit integers (those of bytes would saturate).
//!
//! Packed elements are bytes, 2 KB for each chunk. For the columns of op(B) they lie as [32 lines][64 elements]; for the rows of
//! op(A) as [4 quarters][16 groups][8 lines][4 elements], so that 32 bytes hold a group of eight lines.

use std::arch::x86_64::*;

use super::portable::{self, Packing};
use super::{
    Blocking, Buffer, Change, Chunk, Combinations, DEPTH, Digit, InnerOfPanel, Kernels, LineSums, Order,
    PANEL, Pass, Place, Product, Reconstruction, Side, Sum, TILE, Tile, change as changes, sums,
};
use crate::engine::cpu::packing;
use crate::gemm::Lines;
use crate::ozaki::needs::{self, Bounds};
use crate::ozaki::scan::Scan;

pub static KERNELS: Kernels = Kernels {
    name: "avx2",
    available: || {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
    },
    order: |_| Order::LineMajor,
    direct: false,
    element: 1,
    // The reduction is dear here: long passes.
    blocking: |_| Blocking { down: 4, across: 4, depth: 4096 },
    element_at,
    residue_at: |i, j| j * PANEL + i,
    gather,
    scan,
    magnitudes,
    magnitude_at: |h| h,
    residues,
    product: product16,
    pass: pass16,
    reconstruct,
    change,
    add_inner,
    lower_bounds,
    raise_needs,
    largest,
    combine,
    sum,
};

pub static WITH_VNNI: Kernels = Kernels {
    available: || (KERNELS.available)() && is_x86_feature_detected!("avxvnni"),
    product: product8,
    pass: pass8,
    ..KERNELS
};

/// Bytes of a packed chunk.
const CHUNK_BYTES: usize = PANEL * DEPTH;
/// Elements of a group, and groups of a chunk.
const GROUP: usize = 4;
const GROUPS: usize = DEPTH / GROUP;
/// Lines that a register holds a group of.
const QUARTER: usize = 8;
const QUARTERS: usize = PANEL / QUARTER;

fn element_at(side: Side, _length: usize, l: usize, h: usize) -> usize {
    let (chunk, h) = (h / DEPTH, h % DEPTH);
    chunk * CHUNK_BYTES
        + match side {
            Side::Columns => l * DEPTH + h,
            Side::Rows => {
                let (quarter, line) = (l / QUARTER, l % QUARTER);
                ((quarter * GROUPS + h / GROUP) * QUARTER + line) * GROUP + h % GROUP
            }
        }
}

/// Bytes in the order of [`element_at`].
struct Bytes;

impl Packing for Bytes {
    #[inline(always)]
    unsafe fn store(side: Side, place: &Place, l: usize, plane: usize, line: &[i16; DEPTH]) {
        let bytes = line.map(|x| x as i8 as u8);
        // SAFETY: by the contract of the trait: whole chunks of the panel.
        unsafe {
            let chunk = place.panel.add(plane * place.plane + place.first * PANEL);
            match side {
                Side::Columns => chunk.add(l * DEPTH).cast::<[u8; DEPTH]>().write(bytes),
                Side::Rows => {
                    let (groups, _) = bytes.as_chunks::<GROUP>();
                    let first = chunk.add(element_at(side, 0, l, 0));
                    for (g, &group) in groups.iter().enumerate() {
                        first.add(g * QUARTER * GROUP).cast::<[u8; GROUP]>().write(group);
                    }
                }
            }
        }
    }
}

/// Wraps a function for this CPU.
macro_rules! for_avx2 {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $inner:expr;)*) => {$(
        /// # Safety
        ///
        /// As for the table of kernels.
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
        unsafe fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: passed on from the caller.
            #[allow(unused_unsafe, reason = "some of them are safe")]
            unsafe { $inner }
        }
    )*};
}

for_avx2! {
    fn gather(from: &Lines, lines: (usize, usize), elements: (usize, usize), out: &mut Buffer) =
        packing::gather(from, lines, elements, out);
    fn scan(chunk: &Chunk, out: &mut [Scan; PANEL]) = portable::scan(chunk, out);
    fn magnitudes(digit: Digit, side: Side, chunk: &Chunk, exponents: &[i32; PANEL], sums: &mut LineSums, place: Option<Place>) =
        portable::pack_magnitudes::<Bytes>(digit, side, chunk, exponents, sums, place);
    fn residues(side: Side, chunk: &Chunk, s: &[i32; PANEL], bits: i32, moduli: usize, place: Place) =
        portable::pack_residues::<Bytes>(side, chunk, s, bits, moduli, place);
    fn reconstruct(block: &Reconstruction) = portable::reconstruct_tiles(block);
    fn change(buffer: &mut Buffer, change: &Change) = changes::change(buffer, change);
    fn add_inner(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut InnerOfPanel) = changes::add_inner(chunk, exponents, out);
    fn lower_bounds(products: &[Tile; 4], out: &mut [i64; TILE]) =
        needs::lower_bounds(products.each_ref().map(|tile| &tile.0[..]), out);
    fn raise_needs(bounds: &Bounds, row_needs: &mut [i64], column_needs: &mut [i64]) -> bool =
        bounds.raise_needs(row_needs, column_needs);
    fn largest(bounds: &Bounds, row_needs: &[i64], column_needs: &[i64]) -> i64 = bounds.largest_key(row_needs, column_needs);
    fn combine(what: &Combinations) = sums::combine_bytes(what, sums::store);
    fn sum(what: &Sum) = sums::sum(what);
}

/// Elements of the inner dimension that are prepared for the products at a time.
const SPAN: usize = 256;

/// 32 columns, or rows, of SPAN elements in 16 bits: pairs of two elements as [pairs][32 lines] for rows, [32 lines][pairs] for columns.
#[repr(C, align(64))]
struct Wide([i16; PANEL * SPAN]);

impl Wide {
    const ZERO: Self = Self([0; PANEL * SPAN]);

    /// # Safety
    ///
    /// AVX2, here and below; so many chunks can be read, at most SPAN elements.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn fill_rows(&mut self, rows: *const u8, chunks: usize) {
        for (chunk, quarter, group) in
            (0..chunks).flat_map(|c| (0..QUARTERS).flat_map(move |q| (0..GROUPS).map(move |g| (c, q, g))))
        {
            let from = chunk * CHUNK_BYTES + (quarter * GROUPS + group) * QUARTER * GROUP;
            // SAFETY: eight lines of four elements; the pairs of this group.
            unsafe {
                let bytes = _mm256_loadu_si256(rows.add(from).cast());
                // The first pairs of all lines, then the second ones.
                let pick = _mm256_setr_epi8(
                    0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6,
                    7, 10, 11, 14, 15,
                );
                let pairs = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(bytes, pick));
                let halves = [_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs)];
                for (pair, half) in halves.into_iter().enumerate() {
                    let at = ((chunk * GROUPS + group) * 2 + pair) * 2 * PANEL + quarter * 2 * QUARTER;
                    _mm256_store_si256(self.0.as_mut_ptr().add(at).cast(), _mm256_cvtepi8_epi16(half));
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn fill_columns(&mut self, columns: *const u8, chunks: usize) {
        for (chunk, l) in (0..chunks).flat_map(|c| (0..PANEL).map(move |l| (c, l))) {
            for part in 0..DEPTH / 16 {
                // SAFETY: 16 elements of a line.
                unsafe {
                    let from = columns.add(chunk * CHUNK_BYTES + l * DEPTH + 16 * part);
                    let wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast()));
                    let at = l * SPAN + chunk * DEPTH + 16 * part;
                    _mm256_store_si256(self.0.as_mut_ptr().add(at).cast(), wide);
                }
            }
        }
    }
}

/// Adds to the sums of a tile, in two columns of 32 rows at a time.
///
/// # Safety
///
/// AVX2; both operands hold so many pairs.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile16(rows: &Wide, columns: &Wide, pairs: usize, sums: &mut Tile) {
    const W: usize = 2;
    for j in (0..PANEL).step_by(W) {
        let mut acc = [[_mm256_setzero_si256(); QUARTERS]; W];
        // SAFETY: whole arrays.
        unsafe {
            for (w, acc) in acc.iter_mut().enumerate() {
                for (q, acc) in acc.iter_mut().enumerate() {
                    *acc = _mm256_loadu_si256(sums.0.as_ptr().add((j + w) * PANEL + QUARTER * q).cast());
                }
            }
            let a = rows.0.as_ptr();
            let b: [*const i32; W] = std::array::from_fn(|w| columns.0.as_ptr().add((j + w) * SPAN).cast());
            for pair in 0..pairs {
                let b = b.map(|b| _mm256_set1_epi32(b.add(pair).read()));
                for q in 0..QUARTERS {
                    let a = _mm256_load_si256(a.add(pair * 2 * PANEL + q * 2 * QUARTER).cast());
                    for w in 0..W {
                        acc[w][q] = _mm256_add_epi32(acc[w][q], _mm256_madd_epi16(a, b[w]));
                    }
                }
            }
            for (w, acc) in acc.iter().enumerate() {
                for (q, acc) in acc.iter().enumerate() {
                    _mm256_storeu_si256(sums.0.as_mut_ptr().add((j + w) * PANEL + QUARTER * q).cast(), *acc);
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn product16(product: &Product, sums: &mut [Tile]) {
    for (of, sums) in product.tiles(sums) {
        // SAFETY: passed on from the caller.
        unsafe { tile16_of(&of, sums) };
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn tile16_of(product: &Product, sums: &mut Tile) {
    let &Product { rows, columns, count, add, .. } = product;
    let (mut a, mut b) = (Wide::ZERO, Wide::ZERO);
    if !add {
        sums.0.fill(0);
    }
    for first in (0..count).step_by(SPAN) {
        let count = SPAN.min(count - first);
        // SAFETY: by the contract of the table, here and below.
        unsafe {
            a.fill_rows(rows.add(first * PANEL), count / DEPTH);
            b.fill_columns(columns.add(first * PANEL), count / DEPTH);
            tile16(&a, &b, count / 2, sums);
        }
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt")]
unsafe fn pass16(pass: &Pass) {
    // SAFETY: passed on from the caller.
    unsafe { pass_by(tile16_of, pass) };
}

/// A pass by one of the products of this file.
///
/// # Safety
///
/// As for the table of kernels.
#[inline(always)]
unsafe fn pass_by(product: unsafe fn(&Product, &mut Tile), pass: &Pass) {
    let mut sums = Tile([0; TILE]);
    portable::for_each_tile(pass, |rows, columns, at| {
        // SAFETY: by the contract of this function.
        unsafe {
            product(&Product::whole(rows, columns, pass.count), &mut sums);
            portable::reduce(pass, &sums, at);
        }
    });
}

/// The rows of a panel, made unsigned by adding 128: see `avx512/product.rs`.
#[repr(C, align(64))]
struct Unsigned([u8; PANEL * SPAN]);

/// Adds to the sums of a tile by AVX-VNNI, in two columns of 32 rows at a time.
///
/// # Safety
///
/// AVX2 with AVX-VNNI, here and below; so many chunks of both panels can be read.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn tile8(rows: &Unsigned, columns: *const u8, chunks: usize, sums: &mut Tile) {
    const W: usize = 2;
    let ones = _mm256_set1_epi8(1);
    for j in (0..PANEL).step_by(W) {
        // SAFETY: whole chunks of both panels.
        unsafe {
            let mut acc = [[_mm256_setzero_si256(); QUARTERS]; W];
            for (w, acc) in acc.iter_mut().enumerate() {
                // sum (a + 128) b = sum a b + 128 sum b.
                let mut sum = _mm256_setzero_si256();
                for chunk in 0..chunks {
                    let b = columns.add(chunk * CHUNK_BYTES + (j + w) * DEPTH);
                    sum = _mm256_dpbusd_avx_epi32(sum, ones, _mm256_loadu_si256(b.cast()));
                    sum = _mm256_dpbusd_avx_epi32(sum, ones, _mm256_loadu_si256(b.add(32).cast()));
                }
                let mut parts = [0i32; 8];
                _mm256_storeu_si256(parts.as_mut_ptr().cast(), sum);
                let correction = _mm256_set1_epi32(-128 * parts.iter().sum::<i32>());
                for (q, acc) in acc.iter_mut().enumerate() {
                    let old = _mm256_loadu_si256(sums.0.as_ptr().add((j + w) * PANEL + QUARTER * q).cast());
                    *acc = _mm256_add_epi32(old, correction);
                }
            }
            for chunk in 0..chunks {
                let a = rows.0.as_ptr().add(chunk * CHUNK_BYTES);
                let b = columns.add(chunk * CHUNK_BYTES + j * DEPTH);
                for group in 0..GROUPS {
                    let b: [__m256i; W] = std::array::from_fn(|w| {
                        _mm256_set1_epi32(b.add(w * DEPTH + GROUP * group).cast::<i32>().read_unaligned())
                    });
                    for q in 0..QUARTERS {
                        let a = _mm256_load_si256(a.add((q * GROUPS + group) * QUARTER * GROUP).cast());
                        for w in 0..W {
                            acc[w][q] = _mm256_dpbusd_avx_epi32(acc[w][q], a, b[w]);
                        }
                    }
                }
            }
            for (w, acc) in acc.iter().enumerate() {
                for (q, acc) in acc.iter().enumerate() {
                    _mm256_storeu_si256(sums.0.as_mut_ptr().add((j + w) * PANEL + QUARTER * q).cast(), *acc);
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,avxvnni")]
unsafe fn product8(product: &Product, sums: &mut [Tile]) {
    for (of, sums) in product.tiles(sums) {
        // SAFETY: passed on from the caller.
        unsafe { tile8_of(&of, sums) };
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,avxvnni")]
unsafe fn tile8_of(product: &Product, sums: &mut Tile) {
    let &Product { rows, columns, count, add, .. } = product;
    let mut a = Unsigned([0; PANEL * SPAN]);
    let offset = _mm256_set1_epi8(i8::MIN);
    if !add {
        sums.0.fill(0);
    }
    for first in (0..count).step_by(SPAN) {
        let bytes = SPAN.min(count - first) * PANEL;
        // SAFETY: by the contract of the table, here and below.
        unsafe {
            let rows = rows.add(first * PANEL);
            for at in (0..bytes).step_by(32) {
                let x = _mm256_xor_si256(_mm256_loadu_si256(rows.add(at).cast()), offset);
                _mm256_store_si256(a.0.as_mut_ptr().add(at).cast(), x);
            }
            tile8(&a, columns.add(first * PANEL), bytes / CHUNK_BYTES, sums);
        }
    }
}

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,avxvnni")]
unsafe fn pass8(pass: &Pass) {
    // SAFETY: passed on from the caller.
    unsafe { pass_by(tile8_of, pass) };
}

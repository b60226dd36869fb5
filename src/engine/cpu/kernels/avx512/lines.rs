//! Steps on chunks of lines: scan, magnitudes, residues.

use std::arch::x86_64::*;

use super::super::{
    Buffer, CACHE_LINE, Change, Chunk, Combinations, DEPTH, InnerOfPanel, Order, PANEL, Place, Side, Sum,
    TILE, Tile, change as changes, sums,
};
use super::constants::{PART_BITS, RESIDUES, Residue};
use super::reduce::{low_byte, remainder};
use super::{CHUNK_BYTES, GROUP, HALF, place_of_group};
use crate::engine::cpu::packing;
use crate::gemm::Lines;
use crate::ozaki::needs::{self, Bounds};
use crate::ozaki::scan::Scan;

/// The order in which packing needs no exchange of elements.
pub fn order(side: Side) -> Order {
    match side {
        Side::Rows => Order::ElementMajor,
        Side::Columns => Order::LineMajor,
    }
}

/// # Safety
///
/// As for the table of kernels, here and below.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn gather(from: &Lines, lines: (usize, usize), elements: (usize, usize), out: &mut Buffer) {
    // SAFETY: passed on from the caller.
    unsafe { packing::gather(from, lines, elements, out) };
}

/// What a scan collects, eight lines or eight parts of a line at a time.
#[derive(Clone, Copy)]
struct Running {
    largest: __m512i,
    /// The exponent of the lowest bit, with the bias of a double.
    lowest_bit: __m512i,
    /// 2^52 times the lowest bit as a double: all numbers from it on, and all multiples of the lowest bit below it, have no bit that
    /// is lower. Infinity where that is no double.
    unit: __m512i,
    zeros: __m512i,
}

impl Running {
    /// From what is known of the lowest bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512cd")]
    fn new(lowest_bit: __m512i) -> Self {
        let zero = _mm512_setzero_si512();
        Self { largest: zero, lowest_bit, unit: Self::unit(lowest_bit), zeros: zero }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn unit(lowest_bit: __m512i) -> __m512i {
        _mm512_slli_epi64::<52>(_mm512_min_epi64(lowest_bit, _mm512_set1_epi64(2047)))
    }

    /// A number below `unit` is a multiple of the lowest bit so far if it comes back from a sum with `unit`. Others, which soon are
    /// few, are looked at.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512cd")]
    fn add(&mut self, x: __m512d) {
        let bits = _mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(i64::MAX));
        self.largest = _mm512_max_epu64(self.largest, bits);
        let zero = _mm512_testn_epi64_mask(bits, bits);
        self.zeros = _mm512_mask_add_epi64(self.zeros, zero, self.zeros, _mm512_set1_epi64(1));
        let (value, unit) = (_mm512_castsi512_pd(bits), _mm512_castsi512_pd(self.unit));
        let rounded = _mm512_sub_pd(_mm512_add_pd(value, unit), unit);
        let below = _mm512_cmplt_epi64_mask(bits, self.unit);
        if _mm512_mask_cmp_pd_mask::<_CMP_NEQ_UQ>(below, rounded, value) != 0 {
            self.look(bits);
        }
    }

    /// |x| = m 2^q as in `float::parts`, with q the exponent of the double. The lowest set bit of m is at the number of bits that
    /// (m - 1) & ~m has.
    #[cold]
    #[target_feature(enable = "avx512f,avx512dq,avx512cd")]
    fn look(&mut self, bits: __m512i) {
        let nonzero = _mm512_test_epi64_mask(bits, bits);
        let biased = _mm512_srli_epi64::<52>(bits);
        let normal = _mm512_test_epi64_mask(biased, biased);
        let fraction = _mm512_and_si512(bits, _mm512_set1_epi64((1 << 52) - 1));
        let m = _mm512_mask_or_epi64(fraction, normal, fraction, _mm512_set1_epi64(1 << 52));
        let below = _mm512_andnot_si512(m, _mm512_add_epi64(m, _mm512_set1_epi64(-1)));
        let q = _mm512_max_epu64(biased, _mm512_set1_epi64(1));
        let above = _mm512_lzcnt_epi64(below);
        let lowest = _mm512_add_epi64(_mm512_sub_epi64(_mm512_set1_epi64(64), above), q);
        self.lowest_bit = _mm512_mask_min_epi64(self.lowest_bit, nonzero, self.lowest_bit, lowest);
        self.unit = Self::unit(self.lowest_bit);
    }
}

/// The bias of the exponents in `Running`.
const BIAS: i64 = 1075;
/// Above the exponents of all doubles.
const NONE: i64 = 1 << 20;

/// The lowest bit so far.
fn known(scan: &Scan) -> i64 {
    (i64::from(scan.lowest_bit()) + BIAS).min(NONE)
}

/// `lowest_bit` holds what was known too, so that it is of no meaning if all elements are zeros.
fn merge(out: &mut Scan, largest: u64, lowest_bit: i64, zeros: i64) {
    let nonzeros = DEPTH as u64 - zeros as u64;
    *out = out.merge(Scan::from_parts(largest, (lowest_bit - BIAS) as i32, nonzeros));
}

/// Eight elements of a chunk that follow each other in memory, and those that come next in this place to the second cache: the line
/// that has their last byte, because matrices seldom start with a line of the cache. The one before has the elements before.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(chunk: &Chunk, l: usize, h: usize) -> __m512d {
    let at = chunk.at(l, h);
    // SAFETY: inside of the chunk; a prefetch never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(at.wrapping_byte_add(chunk.ahead + CACHE_LINE - 1).cast());
        _mm512_loadu_pd(at)
    }
}

/// # Safety
///
/// As for the table of kernels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn scan(chunk: &Chunk, out: &mut [Scan; PANEL]) {
    // SAFETY: loads inside the chunk.
    let load = |l: usize, h: usize| unsafe { load(chunk, l, h) };
    if chunk.order == Order::LineMajor {
        for (l, out) in out.iter_mut().enumerate() {
            let mut running = Running::new(_mm512_set1_epi64(known(out)));
            for h in (0..DEPTH).step_by(8) {
                running.add(load(l, h));
            }
            merge(
                out,
                _mm512_reduce_max_epu64(running.largest),
                _mm512_reduce_min_epi64(running.lowest_bit),
                _mm512_reduce_add_epi64(running.zeros),
            );
        }
        return;
    }
    // Line after line of the cache: that is what the prefetchers of the processor see.
    let mut running = [Running::new(_mm512_setzero_si512()); PANEL / 8];
    for (running, scans) in running.iter_mut().zip(out.chunks_exact(8)) {
        let known: [i64; 8] = std::array::from_fn(|i| known(&scans[i]));
        // SAFETY: eight numbers of 64 bits.
        *running = Running::new(unsafe { _mm512_loadu_si512(known.as_ptr().cast()) });
    }
    for h in 0..DEPTH {
        for (part, running) in running.iter_mut().enumerate() {
            running.add(load(8 * part, h));
        }
    }
    for (running, out) in running.iter().zip(out.chunks_exact_mut(8)) {
        let (largest, lowest_bit) = (array(running.largest), array(running.lowest_bit));
        let zeros = array(running.zeros);
        for (i, out) in out.iter_mut().enumerate() {
            merge(out, largest[i] as u64, lowest_bit[i], zeros[i]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn array(x: __m512i) -> [i64; 8] {
    let mut out = [0; 8];
    // SAFETY: eight numbers of 64 bits.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) };
    out
}

/// 16 doubles and the exponents by which they are to be scaled; all loads are inside of a chunk.
#[derive(Clone, Copy)]
struct Sixteen(__m512d, __m512d);

impl Sixteen {
    /// 16 elements that follow each other in memory: of lines l.. or of line l.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(chunk: &Chunk, l: usize, h: usize) -> Self {
        let (next_l, next_h) = if chunk.order == Order::LineMajor { (l, h + 8) } else { (l + 8, h) };
        // SAFETY: inside of the chunk.
        unsafe { Self(load(chunk, l, h), load(chunk, next_l, next_h)) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn scaled(self, by: Self) -> Self {
        Self(_mm512_scalef_pd(self.0, by.0), _mm512_scalef_pd(self.1, by.1))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn all(x: f64) -> Self {
        Self(_mm512_set1_pd(x), _mm512_set1_pd(x))
    }
}

/// The exponents of the lines as doubles.
#[repr(C, align(64))]
struct Exponents([f64; PANEL]);

impl Exponents {
    #[inline]
    fn new(f: impl Fn(usize) -> i32) -> Self {
        Self(std::array::from_fn(|l| f(l).into()))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn half(&self, half: usize) -> Sixteen {
        // SAFETY: two halves of 16 numbers.
        unsafe {
            let from = self.0.as_ptr().add(half * HALF);
            Sixteen(_mm512_load_pd(from), _mm512_load_pd(from.add(8)))
        }
    }
}

/// 16 scaled integers in parts: the low and the high 32 bits of each part + 2^63.
#[derive(Clone, Copy)]
struct Parts<const N: usize>([(__m512i, __m512i); N]);

impl<const N: usize> Parts<N> {
    /// Part i counts 2^(48 i): the higher ones are cut off, the rest is exact in a double, and the lowest is rounded to nearest.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn new(x: Sixteen) -> Self {
        let mut out = [(_mm512_setzero_si512(), _mm512_setzero_si512()); N];
        let Sixteen(mut low, mut high) = x;
        for i in (0..N).rev() {
            let (a, b) = if i == 0 {
                (_mm512_cvtpd_epi64(low), _mm512_cvtpd_epi64(high))
            } else {
                let unit = _mm512_set1_pd((1u128 << (PART_BITS * i as u32)) as f64);
                let inverse = _mm512_set1_pd(1.0 / (1u128 << (PART_BITS * i as u32)) as f64);
                let a = _mm512_cvttpd_epi64(_mm512_mul_pd(low, inverse));
                let b = _mm512_cvttpd_epi64(_mm512_mul_pd(high, inverse));
                low = _mm512_fnmadd_pd(_mm512_cvtepi64_pd(a), unit, low);
                high = _mm512_fnmadd_pd(_mm512_cvtepi64_pd(b), unit, high);
                (a, b)
            };
            let sign = _mm512_set1_epi64(i64::MIN);
            let (a, b) = (_mm512_xor_si512(a, sign), _mm512_xor_si512(b, sign));
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            out[i] = (_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
        }
        Self(out)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn residues(&self, of: &Residue) -> __m512i {
        let mut s = _mm512_set1_epi32(of.start[N - 1]);
        for i in 0..N {
            s = _mm512_dpbusd_epi32(s, self.0[i].0, _mm512_set1_epi32(of.low[i]));
            s = _mm512_dpbusd_epi32(s, self.0[i].1, _mm512_set1_epi32(of.high[i]));
        }
        remainder(s, &of.modulus)
    }
}

/// Four times 16 scaled integers to 64 bytes of residues for every modulus, at `out` in the panel of `place` and its other planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn pack<const N: usize, const ROWS: bool>(
    x: [Sixteen; 4],
    moduli: usize,
    mut out: *mut u8,
    place: &Place,
) {
    let parts = [Parts::<N>::new(x[0]), Parts::new(x[1]), Parts::new(x[2]), Parts::new(x[3])];
    // The four elements of a line come together; for rows the lines stay in order, groups of elements are apart already.
    let exchange =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    let mut store = |r: [__m512i; 4]| {
        let packed = _mm512_packs_epi16(_mm512_packs_epi32(r[0], r[1]), _mm512_packs_epi32(r[2], r[3]));
        let packed = if ROWS { _mm512_shuffle_epi8(packed, exchange) } else { packed };
        // SAFETY: the packed chunk of this plane.
        unsafe {
            if place.stream {
                _mm512_stream_si512(out.cast(), packed);
            } else {
                _mm512_store_si512(out.cast(), packed);
            }
            out = out.wrapping_add(place.plane);
        }
    };
    // Modulo 256 the lowest byte says it all.
    store([0, 1, 2, 3].map(|q| low_byte(parts[q].0[0].0)));
    for of in &RESIDUES[1..moduli] {
        store([0, 1, 2, 3].map(|q| parts[q].residues(of)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn residues_of<const N: usize>(
    side: Side,
    chunk: &Chunk,
    s: &[i32; PANEL],
    moduli: usize,
    place: Place,
) {
    let shifts = Exponents::new(|l| s[l]);
    // SAFETY: by the contract of the table: the chunk and its place.
    unsafe {
        let out = place.panel.add(place.first / DEPTH * CHUNK_BYTES);
        if side == Side::Rows {
            for g in 0..DEPTH / GROUP {
                for half in 0..2 {
                    let shift = shifts.half(half);
                    let x =
                        [0, 1, 2, 3].map(|q| Sixteen::load(chunk, half * HALF, GROUP * g + q).scaled(shift));
                    let to = out.add(half * HALF * DEPTH + place_of_group(g) * HALF * GROUP);
                    pack::<N, true>(x, moduli, to, &place);
                }
            }
        } else {
            for l in 0..PANEL {
                let shift = Sixteen::all(shifts.0[l]);
                let x = [0, 1, 2, 3].map(|q| Sixteen::load(chunk, l, 16 * q).scaled(shift));
                pack::<N, false>(x, moduli, out.add(l * DEPTH), &place);
            }
        }
        if place.stream {
            _mm_sfence(); // for the threads that read the panels
        }
    }
}

/// # Safety
///
/// As for the table of kernels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn residues(side: Side, chunk: &Chunk, s: &[i32; PANEL], bits: i32, moduli: usize, place: Place) {
    // A part holds 62 bits, each further one 48.
    // SAFETY: passed on from the caller.
    unsafe {
        match bits {
            ..=62 => residues_of::<1>(side, chunk, s, moduli, place),
            63..=110 => residues_of::<2>(side, chunk, s, moduli, place),
            _ => residues_of::<3>(side, chunk, s, moduli, place),
        }
    }
}

/// # Safety
///
/// As for the table of kernels, here and below.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn change(buffer: &mut Buffer, change: &Change) {
    changes::change(buffer, change);
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn add_inner(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut InnerOfPanel) {
    // SAFETY: passed on from the caller.
    unsafe { changes::add_inner(chunk, exponents, out) };
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn lower_bounds(products: &[Tile; 4], out: &mut [i64; TILE]) {
    needs::lower_bounds(products.each_ref().map(|tile| &tile.0[..]), out);
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn raise_needs(bounds: &Bounds, row_needs: &mut [i64], column_needs: &mut [i64]) -> bool {
    bounds.raise_needs(row_needs, column_needs)
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn largest(bounds: &Bounds, row_needs: &[i64], column_needs: &[i64]) -> i64 {
    bounds.largest_key(row_needs, column_needs)
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn combine(what: &Combinations) {
    // What is not read again soon goes past the caches: its old contents are not fetched, which takes as long as to write it.
    let stream = |to: &mut [i8; sums::BLOCK], values: [i8; sums::BLOCK]| {
        // SAFETY: `sums::combine` stores in panels, 64 bytes at multiples of 64.
        unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), _mm512_loadu_si512(values.as_ptr().cast())) };
    };
    // SAFETY: passed on from the caller.
    unsafe {
        if what.last {
            sums::combine_bytes(what, stream);
            // Other threads are told by ordinary stores.
            _mm_sfence();
        } else {
            sums::combine_bytes(what, sums::store);
        }
    }
}

/// # Safety
///
/// As above.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
pub unsafe fn sum(what: &Sum) {
    // SAFETY: passed on from the caller.
    unsafe { sums::sum(what) };
}

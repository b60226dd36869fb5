//! Step *magnitudes*: floor(|x| 2^(7-e)), seven bits of each element; or the next seven; or whether it is a nonzero.
//!
//! Added to 2^52, rounded toward zero, a magnitude stands in the lowest byte of a double. Bytes of eight elements are then put
//! together by shifts alone, which fixes the order of the elements in a packed chunk: byte 8 i + j is element 8 j + i.

use std::arch::x86_64::*;

use super::super::{Chunk, DEPTH, Digit, LineSums, PANEL, Place, Side};
use super::lines::load;
use super::{CHUNK_BYTES, HALF, place_of_group};

/// The element whose magnitude is where [`super::element_at`] has element h.
pub fn magnitude_at(h: usize) -> usize {
    let byte = 4 * place_of_group(h / 4) + h % 4;
    8 * (byte % 8) + byte / 8
}

/// A factor in two: their product may be beyond the range of doubles, for lines of subnormal numbers.
#[derive(Clone, Copy)]
struct Factor(__m512d, __m512d);

#[repr(C, align(64))]
struct Factors([[f64; PANEL]; 2]);

impl Factors {
    /// 2^(bits-e).
    fn new(exponents: &[i32; PANEL], bits: i32) -> Self {
        let power = |x: i32| f64::from_bits(((1023 + x) as u64) << 52);
        let first = |e: i32| (bits - e).min(1000);
        Self([exponents.map(|e| power(first(e))), exponents.map(|e| power(bits - e - first(e)))])
    }

    /// For eight lines, or for one.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn lines(&self, l: usize) -> Factor {
        // SAFETY: eight numbers from a multiple of eight on.
        unsafe {
            Factor(_mm512_load_pd(self.0[0].as_ptr().add(l)), _mm512_load_pd(self.0[1].as_ptr().add(l)))
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn line(&self, l: usize) -> Factor {
        Factor(_mm512_set1_pd(self.0[0][l]), _mm512_set1_pd(self.0[1][l]))
    }
}

/// The digits as constants, so that each has code of its own.
const FIRST: u8 = Digit::First as u8;
const SECOND: u8 = Digit::Second as u8;

/// Eight digits in the lowest bytes; above them [`above`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn digits<const DIGIT: u8>(x: __m512d, by: Factor) -> __m512i {
    const DOWN: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    if DIGIT != FIRST && DIGIT != SECOND {
        let nonzero = _mm512_cmp_pd_mask::<_CMP_NEQ_UQ>(x, _mm512_setzero_pd());
        return _mm512_maskz_set1_epi64(nonzero, 1);
    }
    let x = _mm512_mul_pd(_mm512_mul_pd(_mm512_abs_pd(x), by.0), by.1);
    let x = _mm512_castpd_si512(_mm512_add_round_pd::<DOWN>(x, _mm512_set1_pd((1u64 << 52) as f64)));
    if DIGIT == FIRST { x } else { _mm512_and_si512(x, _mm512_set1_epi64(127)) }
}

/// The bits above a digit: those of 2^52, where they are not cut off.
const fn above(digit: u8) -> i64 {
    if digit == FIRST { 0x433 << 52 } else { 0 }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// # Safety
///
/// As for the table of kernels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub unsafe fn magnitudes(
    digit: Digit,
    side: Side,
    chunk: &Chunk,
    exponents: &[i32; PANEL],
    sums: &mut LineSums,
    place: Option<Place>,
) {
    // SAFETY: passed on from the caller.
    unsafe {
        match digit {
            Digit::First => digits_of::<FIRST>(side, chunk, &Factors::new(exponents, 7), sums, place),
            Digit::Second => digits_of::<SECOND>(side, chunk, &Factors::new(exponents, 14), sums, place),
            Digit::Presence => {
                digits_of::<{ Digit::Presence as u8 }>(side, chunk, &Factors::new(exponents, 0), sums, place);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn digits_of<const DIGIT: u8>(
    side: Side,
    chunk: &Chunk,
    factors: &Factors,
    sums: &mut LineSums,
    place: Option<Place>,
) {
    // SAFETY: by the contract of the table.
    let out = place.map(|place| unsafe { place.panel.add(place.first / DEPTH * CHUNK_BYTES) });
    // SAFETY: passed on from the caller.
    unsafe {
        match side {
            Side::Rows => rows::<DIGIT>(chunk, factors, sums, out),
            Side::Columns => columns::<DIGIT>(chunk, factors, sums, out),
        }
    }
}

/// Byte 8 i + j of a line is in word d = 2 i + j / 4: word d of 16 lines together holds elements 32 (d mod 2) + d / 2 + 8 r for
/// r = 0..3.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn rows<const DIGIT: u8>(chunk: &Chunk, factors: &Factors, sums: &mut LineSums, out: Option<*mut u8>) {
    let zero = _mm512_setzero_si512();
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let mut sum = [zero; 2];
    let mut squares = [zero; 2];
    let by = [factors.lines(0), factors.lines(8), factors.lines(16), factors.lines(24)];
    for d in 0..DEPTH / 4 {
        let mut word = [zero; 4];
        for r in 0..4 {
            let h = 32 * (d % 2) + d / 2 + 8 * r;
            for (part, word) in word.iter_mut().enumerate() {
                // SAFETY: inside of the chunk.
                let x = digits::<DIGIT>(unsafe { load(chunk, 8 * part, h) }, by[part]);
                *word = _mm512_xor_si512(*word, _mm512_sllv_epi64(x, _mm512_set1_epi64(8 * r as i64)));
            }
        }
        for half in 0..2 {
            // The low half of each 64 bits is what counts.
            let word = _mm512_permutex2var_epi32(word[2 * half], even, word[2 * half + 1]);
            sum[half] = _mm512_dpbusd_epi32(sum[half], word, _mm512_set1_epi8(1));
            squares[half] = _mm512_dpbusd_epi32(squares[half], word, word);
            if let Some(out) = out {
                // SAFETY: inside of the packed chunk.
                unsafe { _mm512_storeu_si512(out.add(half * HALF * DEPTH + d * DEPTH).cast(), word) };
            }
        }
    }
    for half in 0..2 {
        let (mut s, mut t) = ([0; HALF], [0; HALF]);
        // SAFETY: 16 numbers of 32 bits.
        unsafe {
            _mm512_storeu_si512((&raw mut s).cast(), sum[half]);
            _mm512_storeu_si512((&raw mut t).cast(), squares[half]);
        }
        for l in 0..HALF {
            sums.sum[half * HALF + l][0] += s[l];
            sums.squares[half * HALF + l][0] += t[l];
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn columns<const DIGIT: u8>(
    chunk: &Chunk,
    factors: &Factors,
    sums: &mut LineSums,
    out: Option<*mut u8>,
) {
    // What the bits above the digits leave in the first two of the shifted numbers; they leave the others altogether.
    let rest = _mm512_set1_epi64(above(DIGIT) ^ above(DIGIT) << 8);
    for l in 0..PANEL {
        let by = factors.line(l);
        let x = |j: usize| {
            // SAFETY: inside of the chunk.
            let x = digits::<DIGIT>(unsafe { load(chunk, l, 8 * j) }, by);
            _mm512_sllv_epi64(x, _mm512_set1_epi64(8 * j as i64))
        };
        let bytes = xor3(xor3(x(0), x(1), x(2)), xor3(x(3), x(4), x(5)), xor3(x(6), x(7), rest));
        // SAFETY: 16 numbers of 32 bits, aligned; inside of the packed chunk.
        unsafe {
            let (sum, squares) = (sums.sum[l].as_mut_ptr().cast(), sums.squares[l].as_mut_ptr().cast());
            let more = _mm512_dpbusd_epi32(_mm512_load_si512(sum), bytes, _mm512_set1_epi8(1));
            _mm512_store_si512(sum, more);
            _mm512_store_si512(squares, _mm512_dpbusd_epi32(_mm512_load_si512(squares), bytes, bytes));
            if let Some(out) = out {
                _mm512_storeu_si512(out.add(l * DEPTH).cast(), bytes);
            }
        }
    }
}

//! Step *reconstruct* for 16 entries at a time (NUMERICS section 4): the CRT sums in limbs of integers, exact; then one rounding.

use std::arch::x86_64::*;

use super::super::portable::reconstruct_tile;
use super::super::{CACHE_LINE, PANEL, Peak, Reconstruction, TILE};
use super::constants::{Crt, MOST_LIMBS, crt};
use super::reduce::residue_at;
use crate::gemm::Rectangle;
use crate::ozaki::moduli::MAX_MODULI;

/// Pairs of columns of a tile: the residues of two columns share 64 bytes.
const PAIRS: usize = PANEL / 2;
/// Pairs from the one in use to the one to prefetch.
const AHEAD: usize = 3;
/// Moduli whose residues share a register.
const QUAD: usize = 4;
const QUADS: usize = MAX_MODULI.div_ceil(QUAD);

/// # Safety
///
/// As for the table of kernels.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
pub unsafe fn reconstruct(block: &Reconstruction) {
    let crt = crt(block.moduli);
    // SAFETY: passed on from the caller.
    unsafe {
        match crt.limbs {
            1 => tiles::<1>(block, crt),
            2 => tiles::<2>(block, crt),
            3 => tiles::<3>(block, crt),
            4 => tiles::<4>(block, crt),
            _ => tiles::<5>(block, crt),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
unsafe fn tiles<const L: usize>(block: &Reconstruction, crt: &Crt) {
    for number in 0..block.tiles() {
        let tile = Tile { block, crt, number, at: block.place(number) };
        // SAFETY: passed on from the caller.
        unsafe {
            if !tile.is_ordinary() {
                reconstruct_tile(block, number, residue_at);
                continue;
            }
            match block.check {
                None => tile.for_each_quarter::<L>(|i, j, values| tile.write(values, i, j)),
                Some(peak) if !tile.write_if_legal::<L>(peak) => continue,
                Some(_) => {}
            }
        }
        block.complete(number);
    }
}

/// 16 entries of a column.
#[derive(Clone, Copy)]
struct Values {
    /// RN(C') in the order of the rows.
    c: [__m512d; 2],
    /// A sign in any of its 32-bit numbers: a residue out of its range made the sums of an entry wrong.
    signs: __m512i,
}

/// RN(C') of a tile.
#[repr(C, align(64))]
struct Beside([f64; TILE]);

/// A tile of the block in work.
struct Tile<'a> {
    block: &'a Reconstruction<'a>,
    crt: &'a Crt,
    number: usize,
    /// Its place in the block.
    at: Rectangle,
}

impl Tile<'_> {
    /// |C'| < 2^155, so a result is zero or of normal size if its exponent keeps away from both ends. Elsewhere the rounding must
    /// look at the range, which the portable kernel does.
    fn is_ordinary(&self) -> bool {
        let (block, at) = (self.block, &self.at);
        let range = |s: &[i32]| s.iter().fold((i32::MAX, i32::MIN), |(a, b), &s| (a.min(s), b.max(s)));
        let (rows, columns) =
            (range(&block.rows[at.i..][..at.rows]), range(&block.columns[at.j..][..at.columns]));
        block.with.nu - rows.1 - columns.1 >= -1020 && block.with.nu - rows.0 - columns.0 <= 860
    }

    /// Calls f(i, j, entries i.. of column j) for the whole tile.
    ///
    /// # Safety
    ///
    /// As for the table of kernels, here and below.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    unsafe fn for_each_quarter<const L: usize>(&self, mut f: impl FnMut(usize, usize, Values)) {
        for pair in 0..self.at.columns.div_ceil(2) {
            // SAFETY: passed on from the caller.
            let residues = unsafe { self.unpack(pair) };
            self.prefetch(pair + AHEAD);
            for (quarter, residues) in residues.iter().enumerate() {
                let (i, j) = (16 * (quarter % 2), 2 * pair + quarter / 2);
                if i < self.at.rows && j < self.at.columns {
                    f(i, j, self.values::<L>(residues));
                }
            }
        }
    }

    /// Writes the tile if the self-check lets it pass.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    unsafe fn write_if_legal<const L: usize>(&self, peak: &Peak) -> bool {
        let mut beside = Beside([0.0; TILE]);
        let (mut most, mut signs) = (_mm512_setzero_pd(), _mm512_setzero_si512());
        // SAFETY: passed on from the caller; the tile beside C is aligned.
        unsafe {
            self.for_each_quarter::<L>(|i, j, values| {
                for (half, c) in values.c.into_iter().enumerate() {
                    most = _mm512_max_pd(most, _mm512_abs_pd(c));
                    _mm512_store_pd(beside.0.as_mut_ptr().add(j * PANEL + i + 8 * half), c);
                }
                signs = _mm512_or_si512(signs, values.signs);
            });
            let outside = _mm512_movepi32_mask(signs) != 0;
            if outside || !peak.admits(_mm512_reduce_max_pd(most) * self.crt.quotient_of_one) {
                return false;
            }
            for j in 0..self.at.columns {
                for i in (0..self.at.rows).step_by(16) {
                    let load = |half: usize| _mm512_load_pd(beside.0.as_ptr().add(j * PANEL + i + 8 * half));
                    self.write(Values { c: [load(0), load(1)], signs }, i, j);
                }
            }
        }
        true
    }

    /// Brings the residues of two columns nearer, and their entries of C; of the next tile after the last pair.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn prefetch(&self, pair: usize) {
        let block = self.block;
        let (tile, pair) = (self.number + pair / PAIRS, pair % PAIRS);
        let residues = block.tile_residues(tile).wrapping_add(64 * pair);
        for l in 0..block.moduli {
            _mm_prefetch::<_MM_HINT_T0>(residues.wrapping_add(l * TILE));
        }
        let at = block.place(tile);
        let (i, j) = (block.at.i + at.i, block.at.j + at.j + 2 * pair);
        for column in 0..2 {
            let to = block.c.pointer().wrapping_add(i + (j + column) * block.c.ld);
            // The lines with the last bytes: the column need not start with a line.
            let to = to.wrapping_byte_add(CACHE_LINE - 1);
            for line in 0..PANEL / 8 {
                _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(8 * line).cast());
            }
        }
    }

    /// The residues of two columns: for each 16 entries and each four moduli, four residues in 32 bits for each entry. Quarters 0
    /// and 1 are the upper and lower half of the first column.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    unsafe fn unpack(&self, pair: usize) -> [[__m512i; QUADS]; 4] {
        let from = self.block.tile_residues(self.number).wrapping_add(64 * pair);
        let moduli = self.block.moduli;
        let mut out = [[_mm512_setzero_si512(); QUADS]; 4];
        for quad in 0..moduli.div_ceil(QUAD) {
            let load = |i: usize| {
                let l = QUAD * quad + i;
                // SAFETY: plane l of the tile.
                if l < moduli {
                    unsafe { _mm512_load_si512(from.add(l * TILE).cast()) }
                } else {
                    _mm512_setzero_si512()
                }
            };
            let (a, b, c, d) = (load(0), load(1), load(2), load(3));
            let (ab, cd) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
            out[0][quad] = _mm512_unpacklo_epi16(ab, cd);
            out[1][quad] = _mm512_unpackhi_epi16(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
            out[2][quad] = _mm512_unpacklo_epi16(ab, cd);
            out[3][quad] = _mm512_unpackhi_epi16(ab, cd);
        }
        out
    }

    /// The CRT sums of 16 entries: eight in a register for each limb, in the order of the unpacking. All but the highest start
    /// with half of a limb, which the carry takes out again. And see [`Values::signs`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    fn sums<const L: usize>(&self, residues: &[__m512i; QUADS]) -> ([[__m512i; L]; 2], __m512i) {
        let zero = _mm512_setzero_si512();
        let mut signs = zero;
        let mut sums = [[_mm512_set1_epi64(self.crt.half); L]; 2];
        sums.iter_mut().for_each(|sums| sums[L - 1] = zero);
        for (t, pair) in self.crt.pair[..self.crt.pairs].iter().enumerate() {
            let residues = residues[t / 2];
            let start = _mm512_set1_epi32(pair.start);
            let mut z = _mm512_dpbusd_epi32(start, _mm512_set1_epi32(pair.weights), residues);
            if t == 0 {
                z = _mm512_dpbusd_epi32(z, _mm512_set1_epi32(pair.extra), residues);
            }
            signs = _mm512_or_si512(signs, z);
            let z = [_mm512_unpacklo_epi32(z, zero), _mm512_unpackhi_epi32(z, zero)];
            for i in 0..L {
                let limb = _mm512_set1_epi64(pair.limbs[i]);
                sums[0][i] = _mm512_madd52lo_epu64(sums[0][i], z[0], limb);
                sums[1][i] = _mm512_madd52lo_epu64(sums[1][i], z[1], limb);
            }
        }
        (sums, signs)
    }

    /// C' from its sums, correctly rounded.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    fn rounded<const L: usize>(&self, mut s: [__m512i; L]) -> __m512d {
        let crt = self.crt;
        // The quotient by P. All summands are positive, and so is the quotient: added to 2^52 it stands in the fraction bits.
        let mut quotient = _mm512_set1_pd((1u64 << 52) as f64);
        let mut sum = _mm512_set1_pd(-crt.quotient_of_halves);
        for i in L.saturating_sub(3)..L {
            let unit = _mm512_set1_pd(crt.quotient[L - 1 - i]);
            sum = _mm512_fmadd_pd(_mm512_cvtepi64_pd(s[i]), unit, sum);
        }
        quotient = _mm512_add_pd(sum, quotient);
        let q = _mm512_castpd_si512(quotient);
        for i in 0..L {
            let product = _mm512_set1_epi64(crt.product[i]);
            s[i] = _mm512_sub_epi64(s[i], _mm512_madd52lo_epu64(_mm512_setzero_si512(), q, product));
        }
        // Carry, so that each limb is at most half of the next one's unit in magnitude: no sum of a limb and all below it then
        // cancels more than a bit.
        let width = _mm_cvtsi32_si128(crt.width as i32);
        let (mask, half) = (_mm512_set1_epi64((1 << crt.width) - 1), _mm512_set1_epi64(crt.half));
        for i in 0..L - 1 {
            s[i + 1] = _mm512_add_epi64(s[i + 1], _mm512_sra_epi64(s[i], width));
            s[i] = _mm512_sub_epi64(_mm512_and_si512(s[i], mask), half);
        }
        // From the lowest limb up: the sum in double precision and the errors, exact since the limbs do not overlap.
        let mut high = _mm512_cvtepi64_pd(s[0]);
        let mut errors = [_mm512_setzero_pd(); MOST_LIMBS];
        for i in 1..L {
            let limb = _mm512_cvtepi64_pd(s[i]);
            let unit = _mm512_set1_pd(f64::from_bits((1023 + u64::from(crt.width) * i as u64) << 52));
            let sum = _mm512_fmadd_pd(limb, unit, high);
            errors[i] = _mm512_add_pd(_mm512_fmsub_pd(limb, unit, sum), high);
            high = sum;
        }
        if L < 3 {
            return high; // rounded once
        }
        let mut rest = errors[1];
        for &error in &errors[2..L] {
            rest = add_to_odd(error, rest);
        }
        _mm512_add_pd(high, rest)
    }

    /// C' of 16 entries.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    fn values<const L: usize>(&self, residues: &[__m512i; QUADS]) -> Values {
        let ([a, b], signs) = self.sums::<L>(residues);
        let (a, b) = (self.rounded(a), self.rounded(b));
        // Back to the order of the rows.
        let low = _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b);
        let high = _mm512_permutex2var_pd(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b);
        Values { c: [low, high], signs }
    }

    /// Scales and writes entries i.. of column j of the tile, 16 or what is left of the rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
    unsafe fn write(&self, values: Values, i: usize, j: usize) {
        let (block, at) = (self.block, &self.at);
        let column = block.with.nu - block.columns[at.j + j];
        let to = block.at.i + at.i + (block.at.j + at.j + j) * block.c.ld;
        let to = block.c.pointer().wrapping_add(to);
        for (half, value) in values.c.into_iter().enumerate() {
            let first = i + 8 * half;
            let mask = (0xFFu32 >> 8usize.saturating_sub(at.rows.saturating_sub(first))) as u8;
            // SAFETY: only entries inside of C and exponents of its rows, by the mask; no address needs alignment.
            unsafe {
                let rows = block.rows.as_ptr().wrapping_add(at.i + first);
                let rows = _mm512_cvtepi32_pd(_mm256_maskz_loadu_epi32(mask, rows));
                let exponents = _mm512_sub_pd(_mm512_set1_pd(f64::from(column)), rows);
                let mut value = _mm512_scalef_pd(value, exponents);
                let to = to.wrapping_add(first);
                let mu = _mm512_set1_pd(block.with.mu);
                if block.beta != 0.0 {
                    let old = _mm512_maskz_loadu_pd(mask, to);
                    value = _mm512_fmadd_pd(mu, value, _mm512_mul_pd(_mm512_set1_pd(block.beta), old));
                } else if block.with.mu != 1.0 {
                    value = _mm512_fmadd_pd(mu, value, _mm512_setzero_pd());
                }
                _mm512_mask_storeu_pd(to, mask, value);
            }
        }
    }
}

/// x + y rounded to odd: the sum if it is a double, else the one of its two neighbours whose last bit is set.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_to_odd(x: __m512d, y: __m512d) -> __m512d {
    const QUIET: i32 = _MM_FROUND_NO_EXC;
    let inward = _mm512_add_round_pd::<{ _MM_FROUND_TO_ZERO | QUIET }>(x, y);
    let up = _mm512_add_round_pd::<{ _MM_FROUND_TO_POS_INF | QUIET }>(x, y);
    let down = _mm512_add_round_pd::<{ _MM_FROUND_TO_NEG_INF | QUIET }>(x, y);
    let inexact = _mm512_cmp_pd_mask::<_CMP_NEQ_UQ>(up, down);
    let bits = _mm512_castpd_si512(inward);
    _mm512_castsi512_pd(_mm512_mask_or_epi64(bits, inexact, bits, _mm512_set1_epi64(1)))
}

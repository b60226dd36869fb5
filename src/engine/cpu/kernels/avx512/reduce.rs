//! The reduction of 32-bit sums to residues, times the factor of the CRT.

use std::arch::x86_64::*;

use super::constants::{Modulus, coefficients, modulus};
use crate::ozaki::moduli::{MODULI, canonical};

/// Added to a float below 2^22 it leaves the nearest integer in the low bits.
pub const FLOAT_ROUND: f32 = 1.5 * (1 << 23) as f32;

/// Where the residue of entry (i, j) is in a tile: two columns share 64 bytes, in the order of the packing instructions.
pub fn residue_at(i: usize, j: usize) -> usize {
    let (quarter, i) = (2 * (j % 2) + i / 16, i % 16);
    j / 2 * 64 + i / 4 * 16 + quarter * 4 + i % 4
}

/// The constants of a reduction modulo p_l times a factor.
#[derive(Clone, Copy)]
pub struct Reduction {
    start: i32,
    coefficients: i32,
    modulus: Modulus,
    is_256: bool,
}

impl Reduction {
    pub fn new(l: usize, factor: i32) -> Self {
        let factor = i64::from(factor);
        // The sums are read as unsigned bytes of sum + 2^31.
        let start = canonical(-(factor << 31), l);
        Self {
            start,
            coefficients: coefficients(factor, 0, l),
            modulus: modulus(l),
            is_256: MODULI[l] == 256,
        }
    }

    /// Two columns of a tile of sums: row pair `pair` of the transposed tile, 64 sums. Their residues, added to those in `earlier`
    /// if so wanted, go to `out`, 64 bytes.
    ///
    /// # Safety
    ///
    /// AVX-512 with VNNI; the pointers are aligned to 64 bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub unsafe fn columns(&self, sums: *const i32, add: bool, earlier: *const i8, out: *mut i8) {
        // SAFETY: by the contract of this function.
        unsafe {
            let before = if add { _mm512_load_si512(earlier.cast()) } else { _mm512_setzero_si512() };
            let r = if self.is_256 {
                [0, 1, 2, 3].map(|q| self.low_byte(sums.add(16 * q), add, before, q))
            } else {
                [0, 1, 2, 3].map(|q| self.residues(sums.add(16 * q), add, before, q))
            };
            let packed = _mm512_packs_epi16(_mm512_packs_epi32(r[0], r[1]), _mm512_packs_epi32(r[2], r[3]));
            _mm512_store_si512(out.cast(), packed);
        }
    }

    /// The bytes of quarter q of earlier residues, each alone in the lowest byte of its 32 bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    fn earlier(before: __m512i, q: usize) -> __m512i {
        let q = 4 * q as i8;
        let z = -1;
        let lane = _mm_setr_epi8(q, z, z, z, q + 1, z, z, z, q + 2, z, z, z, q + 3, z, z, z);
        _mm512_shuffle_epi8(before, _mm512_broadcast_i32x4(lane))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn dot(&self, sums: *const i32, add: bool, before: __m512i, q: usize) -> __m512i {
        // SAFETY: aligned, by the contract of `columns`.
        let sums = unsafe { _mm512_load_si512(sums.cast()) };
        let unsigned = _mm512_xor_si512(sums, _mm512_set1_epi32(i32::MIN));
        let s = _mm512_dpbusd_epi32(
            _mm512_set1_epi32(self.start),
            unsigned,
            _mm512_set1_epi32(self.coefficients),
        );
        // One unsigned byte times the signed residue.
        if add { _mm512_dpbusd_epi32(s, _mm512_set1_epi32(1), Self::earlier(before, q)) } else { s }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn residues(&self, sums: *const i32, add: bool, before: __m512i, q: usize) -> __m512i {
        // SAFETY: as for `dot`.
        unsafe { remainder(self.dot(sums, add, before, q), &self.modulus) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn low_byte(&self, sums: *const i32, add: bool, before: __m512i, q: usize) -> __m512i {
        // SAFETY: as for `dot`.
        unsafe { low_byte(self.dot(sums, add, before, q)) }
    }
}

/// s - p RN(s / p) for |s| < 2^20 and odd p.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub fn remainder(s: __m512i, modulus: &Modulus) -> __m512i {
    let q =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(modulus.inverse), _mm512_set1_ps(FLOAT_ROUND));
    _mm512_dpwssd_epi32(s, _mm512_castps_si512(q), _mm512_set1_epi32(modulus.negative))
}

/// The lowest byte with its sign: the residue modulo 256.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub fn low_byte(s: __m512i) -> __m512i {
    _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(s))
}

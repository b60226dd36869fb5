//! Kernels in AVX-512 with VNNI. Those for AMX share everything but the product itself ([`product`]).
//!
//! Packed elements are bytes, 2 KB for each chunk. Both sides hold the elements of a chunk in sixteen groups of four, and the
//! groups in the order in which the packing instructions leave them: group g is at place 4 (g mod 4) + g div 4. For the columns of
//! op(B) the bytes lie as [half of the panel][16 lines][64 elements]; for the rows of op(A) as [half][16 groups][16 lines][4
//! elements], which is how tile products want their second operand.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::{Blocking, DEPTH, Kernels, PANEL, Reconstruction, Side, Stream, portable};

pub mod constants;
mod lines;
mod magnitudes;
mod product;
mod reconstruct;
mod reduce;

pub use lines::{
    add_inner, change, combine, gather, largest, lower_bounds, order, raise_needs, residues, scan, sum,
};
pub use magnitudes::{magnitude_at, magnitudes};
pub use reconstruct::reconstruct;
pub use reduce::{Reduction, residue_at};

pub static KERNELS: Kernels = Kernels { available, reconstruct, ..WITHOUT_IFMA };

/// For processors that have VNNI but no 52-bit multiply-add (Cascade Lake, Cooper Lake): they put results together one by one.
pub static WITHOUT_IFMA: Kernels = Kernels {
    name: "avx512",
    available: available_without_ifma,
    order,
    direct: true,
    element: 1,
    blocking,
    element_at,
    residue_at,
    gather,
    scan,
    magnitudes,
    magnitude_at,
    residues,
    product: product::product,
    pass: product::pass,
    reconstruct: reconstruct_one_by_one,
    change,
    add_inner,
    lower_bounds,
    raise_needs,
    largest,
    combine,
    sum,
};

/// The columns of a pass stay in the second cache, where the next pass comes meanwhile; the rows pass by.
fn blocking(_length: usize) -> Blocking {
    Blocking { down: 16, across: product::ACROSS, depth: product::SPAN }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn reconstruct_one_by_one(block: &Reconstruction) {
    for tile in 0..block.tiles() {
        // SAFETY: by the contract of the table.
        unsafe { portable::reconstruct_tile(block, tile, residue_at) };
    }
}

/// Bytes of a packed chunk.
pub const CHUNK_BYTES: usize = PANEL * DEPTH;
/// Lines of half a panel.
pub const HALF: usize = PANEL / 2;
/// Elements of a group.
const GROUP: usize = 4;

/// All that the functions here use is there, and the system saves the registers.
pub fn available() -> bool {
    available_without_ifma() && is_x86_feature_detected!("avx512ifma")
}

fn available_without_ifma() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("fma")
}

/// The place of group g, and the group at place g: the exchange is its own inverse.
pub const fn place_of_group(g: usize) -> usize {
    4 * (g % 4) + g / 4
}

impl Stream {
    /// Brings the next lines to the second cache.
    #[inline(always)]
    pub fn step(&mut self) {
        for _ in 0..self.lines {
            // SAFETY: a prefetch never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
            self.at = self.at.wrapping_add(64);
        }
    }
}

/// Where element `h` of line `l` is in a panel.
pub fn element_at(side: Side, _length: usize, l: usize, h: usize) -> usize {
    let (chunk, h) = (h / DEPTH, h % DEPTH);
    let (half, line) = (l / HALF, l % HALF);
    let (group, rest) = (place_of_group(h / GROUP), h % GROUP);
    let inside = match side {
        Side::Columns => line * DEPTH + group * GROUP + rest,
        Side::Rows => group * HALF * GROUP + line * GROUP + rest,
    };
    chunk * CHUNK_BYTES + half * HALF * DEPTH + inside
}

//! The kernels: the steps of the scheme for one kind of CPU each, in one table. A new kind is one file with one table, whose
//! steps are compared bit for bit with `ozaki::reference` (tests/steps.rs runs every table).

use crate::ozaki::reconstruct::Reconstruct;
use crate::ozaki::scan::Scan;

pub mod portable;

/// Lines of a panel, and so rows and columns of a tile of C.
pub const PANEL: usize = 32;
/// Entries of a tile; entry (i, j) is at j * PANEL + i.
pub const TILE: usize = PANEL * PANEL;

/// A column of outputs: the residue of entry i modulo modulus l is residues[l * TILE + i], its exponent rows[i] + column.
/// `c` holds RN(beta c) if `add`, and the result afterwards.
pub type ReconstructColumn =
    fn(with: &Reconstruct, residues: &[i8], rows: &[i32], column: i32, add: bool, c: &mut [f64]);

/// The steps of one kind of CPU.
pub struct Kernels {
    pub name: &'static str,
    /// Exponents of elements of one line.
    pub scan: fn(values: &[f64]) -> Scan,
    /// 7-bit magnitudes of elements of a line with the exponent e.
    pub magnitudes: fn(values: &[f64], e: i32, out: &mut [i16]),
    /// Residues of RN_int(x 2^s) modulo the first `moduli` moduli; those for modulus l start at out[l * stride].
    pub residues: fn(values: &[f64], s: i32, moduli: usize, stride: usize, out: &mut [i16]),
    /// Sums over the inner dimension, added to the tile: `a` holds lines of `length` elements for the rows, `b` for the
    /// columns. |elements| <= 128 and length <= 2^16, so that a sum fits 32 bits.
    pub product: fn(a: &[i16], b: &[i16], length: usize, tile: &mut [i32; TILE]),
    /// The tile modulo the l-th modulus, added to the residues `out` (canonical in, canonical out).
    pub reduce: fn(tile: &[i32; TILE], l: usize, out: &mut [i8]),
    /// One correct rounding from the residues to the result.
    pub reconstruct: ReconstructColumn,
}

/// Every table of this build, for the tests and for `oz2run --doctor`.
pub static ALL: [&Kernels; 1] = [&portable::KERNELS];

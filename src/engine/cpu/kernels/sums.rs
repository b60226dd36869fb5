//! Sums of residues for Strassen's form (`ozaki::strassen`): of packed elements, and of the residues of tiles. One source, which each
//! table compiles for its CPU.

use super::super::packing::prefetch;
use super::{DEPTH, Earlier, PANEL, Place, Side, TILE};
use crate::ozaki::strassen::{
    FORMED_OF_COLUMNS, FORMED_OF_ROWS, Modulus, PLACES_OF_COLUMNS, PLACES_OF_ROWS, PRODUCTS,
};

/// Residues that are worked on at a time.
pub const BLOCK: usize = 64;

/// The seven combinations of an operand for a chunk of each quadrant.
#[derive(Clone, Copy)]
pub struct Combinations {
    pub side: Side,
    pub moduli: usize,
    /// The quadrants: where `PLACES_OF_ROWS` and `PLACES_OF_COLUMNS` say.
    pub from: Chunks,
    /// The combinations; this may be the same memory.
    pub to: Chunks,
    /// The combinations are not read again soon.
    pub last: bool,
}

/// The same chunk of seven operands.
#[derive(Clone, Copy)]
pub struct Chunks {
    /// In the first operand.
    pub place: Place,
    /// Bytes from operand to operand.
    pub apart: usize,
}

/// Residues X, or X + Y, for some tiles of one modulus.
#[derive(Clone, Copy)]
pub struct Sum {
    pub modulus: usize,
    pub tiles: usize,
    /// Tile after tile.
    pub x: *const i8,
    pub y: Option<*const i8>,
    /// The residues of the first tile; those of the next are `apart` bytes on.
    pub out: *mut i8,
    pub apart: usize,
    /// Residues to add to, in this place or in another one.
    pub earlier: Option<Earlier>,
}

/// A packed element.
pub trait Element: Copy {
    fn get(self) -> i8;
    fn of(residue: i8) -> Self;
}

impl Element for i8 {
    fn get(self) -> i8 {
        self
    }
    fn of(residue: i8) -> Self {
        residue
    }
}

impl Element for i16 {
    fn get(self) -> i8 {
        self as i8
    }
    fn of(residue: i8) -> Self {
        residue.into()
    }
}

/// Where a chunk starts in a panel, and the bytes between its runs of elements.
pub type Runs = fn(&Place) -> (usize, usize);

/// [`combine`] for chunks that are bytes in one run.
///
/// # Safety
///
/// As for [`combine`].
#[inline(always)]
pub unsafe fn combine_bytes(what: &Combinations, store: impl Fn(&mut [i8; BLOCK], [i8; BLOCK])) {
    // SAFETY: passed on from the caller.
    unsafe { combine::<i8>(what, |place| (place.first * PANEL, 0), 1, PANEL * DEPTH, store) };
}

/// An ordinary store.
#[inline(always)]
pub fn store<T>(to: &mut [T; BLOCK], values: [T; BLOCK]) {
    *to = values;
}

/// Forms the combinations of a chunk that is `runs` runs of `length` elements, a multiple of 64. `store` writes to places that start
/// at multiples of 64 bytes.
///
/// # Safety
///
/// The panels are there, nobody else uses this part of them, and the quadrants hold canonical residues.
#[inline(always)]
pub unsafe fn combine<T: Element>(
    what: &Combinations,
    runs_of: Runs,
    runs: usize,
    length: usize,
    store: impl Fn(&mut [T; BLOCK], [T; BLOCK]),
) {
    let (places, formed) = match what.side {
        Side::Rows => (PLACES_OF_ROWS, FORMED_OF_ROWS),
        Side::Columns => (PLACES_OF_COLUMNS, FORMED_OF_COLUMNS),
    };
    let [[q0, q1], [q2, q3]] = places;
    let ((from_first, from_run), (to_first, to_run)) = (runs_of(&what.from.place), runs_of(&what.to.place));
    for l in 0..what.moduli {
        let modulus = Modulus::new(l);
        let start = |of: &Chunks, first: usize| of.place.panel.wrapping_add(l * of.place.plane + first);
        let (from, to) = (start(&what.from, from_first), start(&what.to, to_first));
        for run in 0..runs {
            let from = [q0, q1, q2, q3].map(|number| {
                from.wrapping_add(run * from_run + number * what.from.apart).cast_const().cast()
            });
            let to = [q0, q1, q3, formed[0], formed[1], formed[2], formed[3]]
                .map(|number| to.wrapping_add(run * to_run + number * what.to.apart).cast());
            for at in 0..length / BLOCK {
                // SAFETY: by the contract of this function; panels are aligned.
                unsafe { combine_block(what.side, modulus, from, to, at, &store) };
            }
        }
    }
}

/// Block `at` of the operands, of the quadrants in their order.
///
/// # Safety
///
/// As for [`combine`].
#[inline(always)]
unsafe fn combine_block<T: Element>(
    side: Side,
    modulus: Modulus,
    from: [*const [T; BLOCK]; 4],
    to: [*mut [T; BLOCK]; PRODUCTS],
    at: usize,
    store: &impl Fn(&mut [T; BLOCK], [T; BLOCK]),
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let [a, b, c, d] = from.map(|from| from.wrapping_add(at).read());
        let residues = [a.map(T::get), b.map(T::get), c.map(T::get), d.map(T::get)];
        let sums = match side {
            Side::Rows => modulus.of_rows(&residues),
            Side::Columns => modulus.of_columns(&residues),
        };
        let [s, t, u, v] = sums;
        let all = [a, b, d, s.map(T::of), t.map(T::of), u.map(T::of), v.map(T::of)];
        for (to, operand) in to.into_iter().zip(all) {
            store(&mut *to.wrapping_add(at), operand);
        }
    }
}

/// # Safety
///
/// The residues of the tiles are there, canonical, and nobody else uses them.
#[inline(always)]
pub unsafe fn sum(what: &Sum) {
    let modulus = Modulus::new(what.modulus);
    for (tile, at) in (0..what.tiles).flat_map(|tile| (0..TILE).step_by(BLOCK).map(move |at| (tile, at))) {
        let block = |residues: *const i8| {
            // SAFETY: by the contract of this function, here and below.
            unsafe { residues.wrapping_add(tile * TILE + at).cast::<[i8; BLOCK]>().read() }
        };
        let mut sum = block(what.x);
        if let Some(y) = what.y {
            sum = modulus.sum(&sum, &block(y));
        }
        let out = what.out.wrapping_add(tile * what.apart + at).cast::<[i8; BLOCK]>();
        prefetch(out.wrapping_byte_add(what.apart));
        if let Some(earlier) = what.earlier {
            let earlier = earlier.of(tile).wrapping_add(at).cast::<[i8; BLOCK]>();
            sum = modulus.sum(&sum, &unsafe { earlier.read() });
        }
        unsafe { out.write(sum) };
    }
}

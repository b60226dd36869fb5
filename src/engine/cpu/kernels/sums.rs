//! Sums of residues for Strassen's form (`ozaki::strassen`): of packed elements, and of the residues of tiles. One source, which each
//! table compiles for its CPU.

use super::super::packing::prefetch;
use super::{DEPTH, PANEL, Place, Side, TILE};
use crate::ozaki::strassen::{FORMED_OF_COLUMNS, FORMED_OF_ROWS, Modulus, PLACES_OF_COLUMNS, PLACES_OF_ROWS};

/// Residues that are worked on at a time.
pub const BLOCK: usize = 64;

/// The seven combinations of an operand for a chunk of each quadrant.
#[derive(Clone, Copy)]
pub struct Combinations {
    pub side: Side,
    pub moduli: usize,
    /// The chunk in the first combination; that of the next is `apart` bytes on. The quadrants are there where `PLACES_OF_ROWS` and
    /// `PLACES_OF_COLUMNS` say.
    pub place: Place,
    pub apart: usize,
    /// What is formed is not read again soon.
    pub last: bool,
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
    /// Add to the residues that are there.
    pub add: bool,
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

/// [`combine`] for chunks that are bytes in one run.
///
/// # Safety
///
/// As for [`combine`].
#[inline(always)]
pub unsafe fn combine_bytes(what: &Combinations, store: impl Fn(&mut [i8; BLOCK], [i8; BLOCK])) {
    // SAFETY: passed on from the caller.
    unsafe { combine::<i8>(what, what.place.first * PANEL, (0, 1), PANEL * DEPTH, store) };
}

/// An ordinary store.
#[inline(always)]
pub fn store<T>(to: &mut [T; BLOCK], values: [T; BLOCK]) {
    *to = values;
}

/// Forms the combinations of a chunk that is `runs.1` runs of `length` elements, a multiple of 64, `runs.0` bytes from one to the
/// next; `first` is the byte of the panel at which it starts. `store` writes to places that start at multiples of 64 bytes.
///
/// # Safety
///
/// The panels are there, nobody else uses this part of them, and the quadrants hold canonical residues.
#[inline(always)]
pub unsafe fn combine<T: Element>(
    what: &Combinations,
    first: usize,
    runs: (usize, usize),
    length: usize,
    store: impl Fn(&mut [T; BLOCK], [T; BLOCK]),
) {
    let (places, formed) = match what.side {
        Side::Rows => (PLACES_OF_ROWS, FORMED_OF_ROWS),
        Side::Columns => (PLACES_OF_COLUMNS, FORMED_OF_COLUMNS),
    };
    let [[q0, q1], [q2, q3]] = places;
    for l in 0..what.moduli {
        let modulus = Modulus::new(l);
        let start = what.place.panel.wrapping_add(l * what.place.plane + first);
        for (run, at) in (0..runs.1).flat_map(|run| (0..length).step_by(BLOCK).map(move |at| (run, at))) {
            let place = |number: usize| {
                start
                    .wrapping_add(number * what.apart + run * runs.0 + at * size_of::<T>())
                    .cast::<[T; BLOCK]>()
            };
            // SAFETY: by the contract of this function, here and below; panels are aligned.
            let quadrants = unsafe { [q0, q1, q2, q3].map(|number| place(number).read().map(T::get)) };
            let sums = match what.side {
                Side::Rows => modulus.of_rows(&quadrants),
                Side::Columns => modulus.of_columns(&quadrants),
            };
            for (number, sum) in formed.into_iter().zip(sums) {
                store(unsafe { &mut *place(number) }, sum.map(T::of));
            }
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
        if what.add {
            sum = modulus.sum(&sum, &unsafe { out.read() });
        }
        unsafe { out.write(sum) };
    }
}

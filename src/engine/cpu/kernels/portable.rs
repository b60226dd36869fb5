//! Kernels in plain Rust, for every CPU: written so that the compiler vectorises them for the baseline of the target. Packed
//! elements are 16-bit integers, since that is what baselines multiply; the lines of a panel follow each other.
//!
//! All but the products is here for other kernels too, which compile it for their CPU and store packed lines in their own way.

use super::{
    Blocking, Buffer, Change, Chunk, Combinations, DEPTH, Digit, InnerOfPanel, Kernels, LineSums, Order,
    PANEL, Pass, Place, Product, Reconstruction, Side, Sum, TILE, Tile, change as changes, sums,
};
use crate::engine::cpu::packing::{gather, read_column, write_column};
use crate::ozaki::bound::{magnitude, second_magnitude};
use crate::ozaki::needs::{self, Bounds};
use crate::ozaki::residues::{Reducer, power_residue, scaled};
use crate::ozaki::scan::Scan;

pub static KERNELS: Kernels = Kernels {
    name: "portable",
    available: || true,
    order: |_| Order::LineMajor,
    direct: false,
    element: size_of::<i16>(),
    // The panels of the reduction stay small; from some thousand elements on the reduction is cheap beside the products.
    blocking: |_| Blocking { down: 1, across: 1, depth: 4096 },
    element_at: |_, length, l, h| l * length + h,
    residue_at: |i, j| j * PANEL + i,
    gather,
    scan,
    magnitudes,
    magnitude_at: |h| h,
    residues,
    product,
    pass,
    reconstruct,
    change,
    add_inner,
    lower_bounds,
    raise_needs,
    largest,
    combine,
    sum,
};

/// How packed lines are stored.
pub trait Packing {
    /// # Safety
    ///
    /// The panels at the place are valid, and nobody else uses this part of them.
    unsafe fn store(side: Side, place: &Place, l: usize, plane: usize, line: &[i16; DEPTH]);
}

/// 16-bit integers, line after line.
struct Lines16;

impl Packing for Lines16 {
    #[inline(always)]
    unsafe fn store(_: Side, place: &Place, l: usize, plane: usize, line: &[i16; DEPTH]) {
        // SAFETY: by the contract of the trait; panels are aligned to cache lines.
        unsafe {
            let panel = place.panel.add(plane * place.plane).cast::<i16>();
            panel.add(l * place.length + place.first).cast::<[i16; DEPTH]>().write(*line);
        }
    }
}

/// Line l of a chunk in the order LineMajor.
///
/// # Safety
///
/// The chunk is in a buffer that lives as long as the result.
#[inline(always)]
unsafe fn line<'a>(chunk: &Chunk, l: usize) -> &'a [f64] {
    debug_assert_eq!(chunk.order, Order::LineMajor);
    // SAFETY: by the contract of this function.
    unsafe { std::slice::from_raw_parts(chunk.at(l, 0), DEPTH) }
}

/// # Safety
///
/// As for the table of kernels, here and below.
#[inline(always)]
pub unsafe fn scan(chunk: &Chunk, out: &mut [Scan; PANEL]) {
    for (l, out) in out.iter_mut().enumerate() {
        // SAFETY: these kernels are not `direct`, here and below.
        *out = out.merge(Scan::of(unsafe { line(chunk, l) }));
    }
}

unsafe fn magnitudes(
    digit: Digit,
    side: Side,
    chunk: &Chunk,
    exponents: &[i32; PANEL],
    sums: &mut LineSums,
    place: Option<Place>,
) {
    // SAFETY: passed on from the caller.
    unsafe { pack_magnitudes::<Lines16>(digit, side, chunk, exponents, sums, place) };
}

/// # Safety
///
/// As for the table of kernels.
#[inline(always)]
pub unsafe fn pack_magnitudes<P: Packing>(
    digit: Digit,
    side: Side,
    chunk: &Chunk,
    exponents: &[i32; PANEL],
    sums: &mut LineSums,
    place: Option<Place>,
) {
    for l in 0..PANEL {
        let values = unsafe { line(chunk, l) };
        let mut packed_line = [0; DEPTH];
        for (out, &x) in packed_line.iter_mut().zip(values) {
            let a = match digit {
                Digit::First => magnitude(x, exponents[l]),
                Digit::Second => second_magnitude(x, exponents[l]),
                Digit::Presence => u8::from(x != 0.0),
            };
            *out = i16::from(a);
            sums.sum[l][0] += i32::from(a);
            sums.squares[l][0] += i32::from(a) * i32::from(a);
        }
        if let Some(place) = &place {
            // SAFETY: by the contract of the table.
            unsafe { P::store(side, place, l, 0, &packed_line) };
        }
    }
}

/// M is cut at this bit: both parts times a residue stay far below what [`Reducer`] takes.
const CUT: u32 = 27;

unsafe fn residues(side: Side, chunk: &Chunk, s: &[i32; PANEL], bits: i32, moduli: usize, place: Place) {
    // SAFETY: passed on from the caller.
    unsafe { pack_residues::<Lines16>(side, chunk, s, bits, moduli, place) };
}

/// # Safety
///
/// As for the table of kernels.
#[inline(always)]
pub unsafe fn pack_residues<P: Packing>(
    side: Side,
    chunk: &Chunk,
    s: &[i32; PANEL],
    _bits: i32,
    moduli: usize,
    place: Place,
) {
    for (l, &s) in s.iter().enumerate() {
        // a' = (high 2^27 + low) 2^power, with |high| <= 2^26 and 0 <= low < 2^27.
        let (mut high, mut low, mut power) = ([0.0; DEPTH], [0.0; DEPTH], [0; DEPTH]);
        let mut any_power = 0;
        for (h, &x) in unsafe { line(chunk, l) }.iter().enumerate() {
            let (m, p) = scaled(x, s);
            high[h] = (m >> CUT) as i32 as f64;
            low[h] = (m & ((1 << CUT) - 1)) as i32 as f64;
            power[h] = p;
            any_power |= p;
        }
        for plane in 0..moduli {
            let reducer = Reducer::new(plane);
            let unit = f64::from(power_residue(CUT, plane));
            let mut out = [0i16; DEPTH];
            for ((out, high), low) in out.iter_mut().zip(&high).zip(&low) {
                *out = reducer.reduce(high * unit + low) as i32 as i16;
            }
            if any_power != 0 {
                for (out, &power) in out.iter_mut().zip(&power) {
                    let product = i32::from(*out) * i32::from(power_residue(power, plane));
                    *out = reducer.reduce(f64::from(product)) as i32 as i16;
                }
            }
            // SAFETY: by the contract of the table.
            unsafe { P::store(side, &place, l, plane, &out) };
        }
    }
}

/// Elements of a line that are used at a time: two panels of them stay in the first cache levels.
const SPAN: usize = 512;

unsafe fn product(product: &Product, sums: &mut [Tile]) {
    for (of, tile) in product.tiles(sums) {
        // SAFETY: passed on from the caller.
        unsafe { product_of_tile(&of, tile) };
    }
}

/// # Safety
///
/// As for [`Kernels::product`]. The panels may start at any element, so what follows the last line's `count` elements is not looked at.
unsafe fn product_of_tile(product: &Product, tile: &mut Tile) {
    let &Product { rows, columns, length, count, add, .. } = product;
    if !add {
        tile.0.fill(0);
    }
    for first in (0..count).step_by(SPAN) {
        let span = SPAN.min(count - first);
        // SAFETY: inside of the panels, by the contract of the table.
        let line = |panel: *const u8, l: usize| unsafe {
            std::slice::from_raw_parts(panel.cast::<i16>().add(l * length + first), span)
        };
        for j in 0..PANEL {
            let b = line(columns, j);
            for (i, sums) in tile.0[j * PANEL..][..PANEL].chunks_exact_mut(4).enumerate() {
                let a = |r: usize| line(rows, 4 * i + r);
                let parts = dot4([a(0), a(1), a(2), a(3)], b);
                sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            }
        }
    }
}

/// Four rows with one column: the column is loaded once for all. The sum goes by pairs because that is what the multiply-add
/// instruction of the SSE2 baseline does; written element by element the compiler uses half of it. The length is even.
#[inline]
fn dot4(a: [&[i16]; 4], b: &[i16]) -> [i32; 4] {
    let (pairs, _) = b.as_chunks::<2>();
    let [a0, a1, a2, a3] = a.map(|line| &line.as_chunks::<2>().0[..pairs.len()]);
    let pair =
        |x: [i16; 2], y: [i16; 2]| i32::from(x[0]) * i32::from(y[0]) + i32::from(x[1]) * i32::from(y[1]);
    let mut sums = [0i32; 4];
    for h in 0..pairs.len() {
        sums[0] += pair(a0[h], pairs[h]);
        sums[1] += pair(a1[h], pairs[h]);
        sums[2] += pair(a2[h], pairs[h]);
        sums[3] += pair(a3[h], pairs[h]);
    }
    sums
}

unsafe fn pass(pass: &Pass) {
    let mut sums = Tile([0; TILE]);
    for_each_tile(pass, |rows, columns, at| {
        // SAFETY: by the contract of the table.
        unsafe {
            let of_pass = Product { count: pass.count, ..Product::whole(rows, columns, pass.length) };
            product_of_tile(&of_pass, &mut sums);
            reduce(pass, &sums, at);
        }
    });
}

/// Calls f(panel of rows, panel of columns, number) for every tile of a pass.
#[inline(always)]
pub fn for_each_tile(pass: &Pass, mut f: impl FnMut(*const u8, *const u8, usize)) {
    for at in 0..pass.down * pass.across {
        let (p, q) = (at % pass.down, at / pass.down);
        let (rows, columns) =
            (pass.rows.wrapping_add(p * pass.panel), pass.columns.wrapping_add(q * pass.panel));
        f(rows, columns, at);
    }
}

/// The residues of the sums of tile `at`.
///
/// # Safety
///
/// The residues of the tile are there and belong to the pass.
#[inline(always)]
pub unsafe fn reduce(pass: &Pass, sums: &Tile, at: usize) {
    let (reducer, factor) = (Reducer::new(pass.modulus), f64::from(pass.factor));
    let out = pass.residues.wrapping_add(at * pass.tile).cast::<[i8; TILE]>();
    // SAFETY: by the contract of this function, here and below.
    let earlier =
        pass.earlier.map_or([0; TILE], |earlier| unsafe { earlier.of(at).cast::<[i8; TILE]>().read() });
    let reduced = |(&sum, before)| reducer.reduce(f64::from(sum) * factor + f64::from(before)) as i32 as i8;
    for (out, of_sum) in unsafe { &mut *out }.iter_mut().zip(sums.0.iter().zip(earlier)) {
        *out = reduced(of_sum);
    }
}

unsafe fn reconstruct(block: &Reconstruction) {
    // SAFETY: passed on from the caller.
    unsafe { reconstruct_tiles(block) };
}

/// # Safety
///
/// As for the table of kernels.
#[inline(always)]
pub unsafe fn reconstruct_tiles(block: &Reconstruction) {
    for tile in 0..block.tiles() {
        // SAFETY: by the contract of the table.
        unsafe { reconstruct_tile(block, tile, |i, j| j * PANEL + i) };
    }
}

/// A tile, entry by entry, and that it is complete.
///
/// # Safety
///
/// As for [`Kernels::reconstruct`].
#[inline(always)]
pub unsafe fn reconstruct_tile(of: &Reconstruction, tile: usize, residue_at: impl Fn(usize, usize) -> usize) {
    let at = of.place(tile);
    // SAFETY: the residues of the tile are there.
    let residues = unsafe { std::slice::from_raw_parts(of.tile_residues(tile), of.moduli * TILE) };
    let add = of.beta != 0.0;
    let (mut out, mut peak) = ([0.0; TILE], 0.0);
    for j in 0..at.columns {
        let column = &mut out[j * PANEL..][..at.rows];
        let mut addends = [0.0; PANEL];
        if add {
            // SAFETY: by the contract of this function.
            unsafe { read_column(of.c, of.at.i + at.i, of.at.j + at.j + j, &mut addends[..at.rows]) };
            addends.iter_mut().for_each(|c| *c *= of.beta);
        }
        let residue = |l: usize, i: usize| residues[l * TILE + residue_at(i, j)];
        let scale = |i: usize| of.rows[at.i + i] + of.columns[at.j + j];
        of.with.entries::<PANEL>(residue, scale, add.then_some(&addends), column, &mut peak);
    }
    if of.check.is_some_and(|check| !check.admits(peak)) {
        return;
    }
    for j in 0..at.columns {
        // SAFETY: by the contract of this function.
        unsafe { write_column(of.c, of.at.i + at.i, of.at.j + at.j + j, &out[j * PANEL..][..at.rows]) };
    }
    of.complete(tile);
}

unsafe fn change(buffer: &mut Buffer, change: &Change) {
    changes::change(buffer, change);
}

unsafe fn add_inner(chunk: &Chunk, exponents: &[i32; PANEL], out: &mut InnerOfPanel) {
    // SAFETY: passed on from the caller.
    unsafe { changes::add_inner(chunk, exponents, out) };
}

unsafe fn lower_bounds(products: &[Tile; 4], out: &mut [i64; TILE]) {
    needs::lower_bounds(products.each_ref().map(|tile| &tile.0[..]), out);
}

unsafe fn raise_needs(bounds: &Bounds, row_needs: &mut [i64], column_needs: &mut [i64]) -> bool {
    bounds.raise_needs(row_needs, column_needs)
}

unsafe fn largest(bounds: &Bounds, row_needs: &[i64], column_needs: &[i64]) -> i64 {
    bounds.largest_key(row_needs, column_needs)
}

unsafe fn combine(what: &Combinations) {
    let runs = |place: &Place| (place.first * size_of::<i16>(), place.length * size_of::<i16>());
    // SAFETY: passed on from the caller.
    unsafe { sums::combine::<i16>(what, runs, PANEL, DEPTH, sums::store) };
}

unsafe fn sum(what: &Sum) {
    // SAFETY: passed on from the caller.
    unsafe { sums::sum(what) };
}

//! Kernels in plain Rust, for every CPU: written so that the compiler vectorises them for the baseline of the target.

use super::{Kernels, PANEL, TILE};
use crate::engine::cpu::packing::RUN;
use crate::ozaki::bound::magnitude;
use crate::ozaki::reconstruct::Reconstruct;
use crate::ozaki::residues::{Reducer, power_residue, scaled};
use crate::ozaki::scan::Scan;

pub static KERNELS: Kernels =
    Kernels { name: "portable", scan: Scan::of, magnitudes, residues, product, reduce, reconstruct };

fn magnitudes(values: &[f64], e: i32, out: &mut [i16]) {
    for (x, out) in values.iter().zip(out) {
        *out = i16::from(magnitude(*x, e));
    }
}

/// M is cut at this bit: both parts times a residue stay far below what [`Reducer`] takes.
const CUT: u32 = 27;

fn residues(values: &[f64], s: i32, moduli: usize, stride: usize, out: &mut [i16]) {
    let count = values.len();
    assert!(count <= RUN);
    // a' = (high 2^27 + low) 2^power, with |high| <= 2^26 and 0 <= low < 2^27.
    let (mut high, mut low, mut power) = ([0.0; RUN], [0.0; RUN], [0; RUN]);
    let mut any_power = 0;
    for (h, &x) in values.iter().enumerate() {
        let (m, p) = scaled(x, s);
        high[h] = (m >> CUT) as i32 as f64;
        low[h] = (m & ((1 << CUT) - 1)) as i32 as f64;
        power[h] = p;
        any_power |= p;
    }
    for l in 0..moduli {
        let reducer = Reducer::new(l);
        let unit = f64::from(power_residue(CUT, l));
        let out = &mut out[l * stride..][..count];
        for ((out, high), low) in out.iter_mut().zip(&high).zip(&low) {
            *out = reducer.reduce(high * unit + low) as i32 as i16;
        }
        if any_power != 0 {
            for (out, &power) in out.iter_mut().zip(&power) {
                let product = i32::from(*out) * i32::from(power_residue(power, l));
                *out = reducer.reduce(f64::from(product)) as i32 as i16;
            }
        }
    }
}

/// Elements of a line that are used at a time: two panels of them stay in the first cache levels.
const DEPTH: usize = 512;

fn product(a: &[i16], b: &[i16], length: usize, tile: &mut [i32; TILE]) {
    let (rows, columns) = (a.len() / length, b.len() / length);
    for first in (0..length).step_by(DEPTH) {
        let depth = DEPTH.min(length - first);
        let a = |i: usize| &a[i * length + first..][..depth];
        for j in 0..columns {
            let b = &b[j * length + first..][..depth];
            let tile = &mut tile[j * PANEL..][..rows];
            let mut i = 0;
            while i + 4 <= rows {
                let sums = dot4([a(i), a(i + 1), a(i + 2), a(i + 3)], b);
                tile[i..i + 4].iter_mut().zip(sums).for_each(|(entry, sum)| *entry += sum);
                i += 4;
            }
            for i in i..rows {
                tile[i] += dot(a(i), b);
            }
        }
    }
}

#[inline]
fn dot(a: &[i16], b: &[i16]) -> i32 {
    a.iter().zip(b).map(|(&x, &y)| i32::from(x) * i32::from(y)).sum()
}

/// Four rows with one column: the column is loaded once for all. The sum goes by pairs because that is what the multiply-add
/// instruction of the SSE2 baseline does; written element by element the compiler uses half of it.
#[inline]
fn dot4(a: [&[i16]; 4], b: &[i16]) -> [i32; 4] {
    let (pairs, odd) = b.as_chunks::<2>();
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
    if let Some(&y) = odd.first() {
        sums.iter_mut().zip(a).for_each(|(sum, line)| *sum += i32::from(line[b.len() - 1]) * i32::from(y));
    }
    sums
}

fn reduce(tile: &[i32; TILE], l: usize, out: &mut [i8]) {
    let reducer = Reducer::new(l);
    for (&sum, out) in tile.iter().zip(out) {
        *out = reducer.reduce(f64::from(sum) + f64::from(*out)) as i32 as i8;
    }
}

fn reconstruct(with: &Reconstruct, residues: &[i8], rows: &[i32], column: i32, add: bool, c: &mut [f64]) {
    for (i, (c, row)) in c.iter_mut().zip(rows).enumerate() {
        let addend = if add { Some(*c) } else { None };
        *c = with.entry(|l| residues[l * TILE + i], row + column, addend);
    }
}

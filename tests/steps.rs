//! Every step of every table of kernels against `ozaki::reference`, bit for bit.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::Random;
use num_bigint::BigInt;
use oz2blas::engine::cpu::kernels::{
    Buffer, Change, Chunks, Combinations, DEPTH, Digit, Earlier, InnerOfPanel, Kernels, LineSums, Order,
    PANEL, Pass, Place, Product, Reconstruction, Side, Stream, Sum, TILE, Tile, runnable,
};
use oz2blas::gemm::{Gemm, Rectangle, Sizes, Transpose};
use oz2blas::ozaki::bound::Line;
use oz2blas::ozaki::moduli::{MAX_MODULI, MODULI, canonical, crt};
use oz2blas::ozaki::reconstruct::Reconstruct;
use oz2blas::ozaki::reference::Dyadic;
use oz2blas::ozaki::scan::Scan;
use oz2blas::ozaki::strassen::{PLACES_OF_COLUMNS, PLACES_OF_ROWS, PRODUCTS};
use oz2blas::ozaki::{moduli, reference};
use proptest::prelude::*;

const SIDES: [Side; 2] = [Side::Rows, Side::Columns];
const DIGITS: [Digit; 3] = [Digit::First, Digit::Second, Digit::Presence];

/// Finite doubles of every kind: any bits, zeros, subnormals, powers of two, short integers, the largest.
fn any_double() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite()),
        2 => Just(0.0),
        1 => Just(-0.0),
        2 => (1u64..1 << 52, any::<bool>()).prop_map(|(m, s)| f64::from_bits(m | u64::from(s) << 63)),
        2 => (1u64..2046).prop_map(|e| f64::from_bits(e << 52)),
        2 => (-1000i32..1000).prop_map(f64::from),
        1 => Just(f64::MAX),
        1 => Just(5e-324),
        4 => -0.5f64..0.5,
    ]
}

fn any_line() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(any_double(), 1..=DEPTH)
}

/// A chunk of PANEL lines of DEPTH elements: the values again and again, from another one on in each line.
fn buffer_of(kernels: &Kernels, side: Side, values: &[f64]) -> Buffer {
    let mut chunk = Buffer::new((kernels.order)(side));
    for l in 0..PANEL {
        for h in 0..DEPTH {
            let at = if chunk.order == Order::LineMajor { l * DEPTH + h } else { h * PANEL + l };
            chunk.values[at] = values[(l + h) % values.len()];
        }
    }
    chunk
}

fn element(buffer: &Buffer, l: usize, h: usize) -> f64 {
    // SAFETY: inside of the buffer.
    unsafe { buffer.chunk().at(l, h).read() }
}

fn line(buffer: &Buffer, l: usize) -> Vec<f64> {
    (0..DEPTH).map(|h| element(buffer, l, h)).collect()
}

/// Packed panels of a few planes, with a sentinel in what no kernel may write.
struct Panels {
    bytes: Vec<u64>,
    plane: usize,
    length: usize,
    first: usize,
    element: usize,
}

const UNTOUCHED: u64 = 0x5A5A_5A5A_5A5A_5A5A;

impl Panels {
    /// Three chunks long, the one in the middle is in use. The start is aligned as panels are.
    fn new(kernels: &Kernels, planes: usize) -> Self {
        Self::with(kernels, planes, 3, 1)
    }

    /// So many chunks long, and which one is in use.
    fn with(kernels: &Kernels, planes: usize, chunks: usize, chunk: usize) -> Self {
        let length = chunks * DEPTH;
        let plane = PANEL * length * kernels.element + 64;
        let bytes = vec![UNTOUCHED; planes * plane / 8 + 8];
        Self { bytes, plane, length, first: chunk * DEPTH, element: kernels.element }
    }

    fn start(&self) -> usize {
        self.bytes.as_ptr().align_offset(64) * 8
    }

    fn place(&mut self) -> Place {
        let start = self.start();
        let panel = self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(start);
        Place { panel, plane: self.plane, length: self.length, first: self.first, stream: false }
    }

    fn get(&self, at: usize) -> i16 {
        let byte = |at: usize| self.bytes[at / 8].to_le_bytes()[at % 8];
        let at = self.start() + at;
        if self.element == 1 { (byte(at) as i8).into() } else { i16::from_le_bytes([byte(at), byte(at + 1)]) }
    }

    /// Element h of line l of the chunk in a plane.
    fn at(&self, kernels: &Kernels, side: Side, plane: usize, l: usize, h: usize) -> i16 {
        let element = (kernels.element_at)(side, self.length, l, self.first + h);
        self.get(plane * self.plane + element * kernels.element)
    }

    fn set(&mut self, kernels: &Kernels, side: Side, plane: usize, (l, h): (usize, usize), value: i8) {
        let element = (kernels.element_at)(side, self.length, l, self.first + h);
        let start = self.start() + plane * self.plane + element * kernels.element;
        for (at, byte) in (start..).zip(i16::from(value).to_le_bytes().into_iter().take(kernels.element)) {
            let mut word = self.bytes[at / 8].to_le_bytes();
            word[at % 8] = byte;
            self.bytes[at / 8] = u64::from_le_bytes(word);
        }
    }

    /// Bytes that no longer are what they were.
    fn written(&self) -> usize {
        self.bytes.iter().flat_map(|x| x.to_le_bytes()).filter(|&x| x != 0x5A).count()
    }
}

/// Equal zeros of lines far from the others' exponents would hide mistakes: each line has its own scale.
fn exponents(chunk: &Buffer) -> [i32; PANEL] {
    std::array::from_fn(|l| reference::line(&line(chunk, l)).exponent)
}

proptest! {
    #[test]
    fn scan_and_sums(values in any_line(), more in any_line()) {
        for kernels in runnable() {
            for side in SIDES {
                let chunks = [buffer_of(kernels, side, &values), buffer_of(kernels, side, &more)];
                let mut scans = [Scan::EMPTY; PANEL];
                // SAFETY: the CPU can run the kernels, here and below.
                chunks.iter().for_each(|chunk| unsafe { (kernels.scan)(&chunk.chunk(), &mut scans) });
                let e = scans.map(|scan| scan.exponent());
                let mut sums = LineSums::ZERO;
                for chunk in &chunks {
                    unsafe { (kernels.magnitudes)(Digit::First, side, &chunk.chunk(), &e, &mut sums, None) };
                }
                for l in 0..PANEL {
                    let want = reference::line(&[line(&chunks[0], l), line(&chunks[1], l)].concat());
                    let (sum, squares) = sums.of(l);
                    let got = Line::with_sums(&scans[l], sum, squares);
                    prop_assert_eq!(got, want, "{} {:?} line {}", kernels.name, side, l);
                }
            }
        }
    }

    #[test]
    fn magnitudes(values in any_line()) {
        for kernels in runnable() {
            for (side, digit) in SIDES.into_iter().flat_map(|side| DIGITS.map(|digit| (side, digit))) {
                let chunk = buffer_of(kernels, side, &values);
                let e = exponents(&chunk);
                let mut panels = Panels::new(kernels, 1);
                let place = panels.place();
                let mut sums = LineSums::ZERO;
                unsafe { (kernels.magnitudes)(digit, side, &chunk.chunk(), &e, &mut sums, Some(place)) };
                for l in 0..PANEL {
                    for h in 0..DEPTH {
                        let x = element(&chunk, l, (kernels.magnitude_at)(h));
                        let want = match digit {
                            Digit::First => reference::magnitude(x, e[l]),
                            Digit::Second => reference::second_magnitude(x, e[l]),
                            Digit::Presence => u8::from(x != 0.0),
                        };
                        let got = panels.at(kernels, side, 0, l, h);
                        prop_assert_eq!(got, want.into(), "{} {:?} {:?} {:e}", kernels.name, side, digit, x);
                    }
                }
                prop_assert!(panels.written() <= PANEL * DEPTH * kernels.element);
            }
        }
    }

    /// Lines taken out, and powers of two; exact down to the least normal number, which stands for all below.
    #[test]
    fn changes(values in any_line(), out in any::<u32>(), shifts in prop::collection::vec(-1100i32..1100, 96)) {
        for kernels in runnable() {
            for side in SIDES {
                let before = buffer_of(kernels, side, &values);
                let e = exponents(&before);
                // As in a view: from the exponent of the line, and no more than the element has room for.
                let lines = e.map(|e| -e);
                let inner: [i32; DEPTH] = std::array::from_fn(|h| shifts[h].min(0));
                let mut after = Buffer { values: before.values, order: before.order };
                unsafe { (kernels.change)(&mut after, &Change { out, scale: Some((&lines, &inner)) }) };
                for l in 0..PANEL {
                    for h in 0..DEPTH {
                        let (x, y) = (element(&before, l, h), element(&after, l, h));
                        let exact = Dyadic { e: Dyadic::from(x).e + lines[l] + inner[h], ..Dyadic::from(x) };
                        let want = if out >> l & 1 == 1 || x == 0.0 {
                            0.0
                        } else if exact.abs().at_most(&Dyadic::from(f64::MIN_POSITIVE)) {
                            f64::MIN_POSITIVE.copysign(x)
                        } else {
                            exact.nearest()
                        };
                        prop_assert_eq!(y, want, "{} line {} element {}: {:e}", kernels.name, l, h, x);
                    }
                }
                let mut same = Buffer { values: before.values, order: before.order };
                unsafe { (kernels.change)(&mut same, &Change { out: 0, scale: None }) };
                prop_assert!(same.values.iter().zip(&before.values).all(|(x, y)| x.to_bits() == y.to_bits()));
            }
        }
    }

    #[test]
    fn exponents_along_the_inner_dimension(values in any_line(), lines in prop::collection::vec(-1074i32..1024, PANEL)) {
        let lines: [i32; PANEL] = lines.try_into().unwrap();
        for kernels in runnable() {
            for side in SIDES {
                let chunk = buffer_of(kernels, side, &values);
                let mut got = InnerOfPanel::NONE;
                // Twice, since it adds.
                for _ in 0..2 {
                    unsafe { (kernels.add_inner)(&chunk.chunk(), &lines, &mut got) };
                }
                for h in 0..DEPTH {
                    let relative = |l: usize| {
                        let x = Dyadic::from(element(&chunk, l, h));
                        (!x.is_zero()).then(|| x.e + x.m.bits() as i32 - lines[l])
                    };
                    let all: Vec<i32> = (0..PANEL).filter_map(relative).collect();
                    prop_assert_eq!(got.most[h], all.iter().copied().max().unwrap_or(i32::MIN));
                    prop_assert_eq!(got.sum[h], 2 * all.iter().sum::<i32>());
                    prop_assert_eq!(got.count[h], 2 * all.len() as i32);
                }
            }
        }
    }

    /// Scaling by any exponent that a plan may choose: from "all rounded away" to |a'| just below 2^155.
    #[test]
    fn residues(values in any_line(), bits in -60i32..=155, n in 2usize..=MAX_MODULI) {
        for kernels in runnable() {
            for side in SIDES {
                let chunk = buffer_of(kernels, side, &values);
                let s = exponents(&chunk).map(|e| bits - e);
                let mut panels = Panels::new(kernels, n);
                let place = Place { stream: n % 2 == 1, ..panels.place() };
                unsafe { (kernels.residues)(side, &chunk.chunk(), &s, bits, n, place) };
                for l in (0..PANEL).step_by(5) {
                    for h in 0..DEPTH {
                        let scaled = reference::scaled(element(&chunk, l, h), s[l]);
                        for modulus in 0..n {
                            let want = i16::from(reference::residue(&scaled, modulus));
                            let got = panels.at(kernels, side, modulus, l, h);
                            prop_assert_eq!(
                                got, want, "{} {:?} {:e} 2^{} modulus {}",
                                kernels.name, side, element(&chunk, l, h), s[l], modulus
                            );
                        }
                    }
                }
                prop_assert!(panels.written() <= n * PANEL * DEPTH * kernels.element);
            }
        }
    }

    #[test]
    fn rounding_ties_of_the_scaling(m in 1u64..1 << 53, drop in 1i32..60) {
        // m 2^-drop, and its neighbours at ties
        let values: Vec<f64> = [m, (m >> drop.min(52)) << drop.min(52) | 1 << (drop.min(53) - 1)]
            .iter().flat_map(|&m| [m as f64, -(m as f64)]).collect();
        for kernels in runnable() {
            for side in SIDES {
                let chunk = buffer_of(kernels, side, &values);
                let mut panels = Panels::new(kernels, MAX_MODULI);
                let place = panels.place();
                unsafe { (kernels.residues)(side, &chunk.chunk(), &[-drop; PANEL], 54 - drop, MAX_MODULI, place) };
                for (h, modulus) in (0..values.len()).flat_map(|h| (0..MAX_MODULI).map(move |l| (h, l))) {
                    let want = i16::from(reference::residue(&reference::scaled(element(&chunk, 0, h), -drop), modulus));
                    prop_assert_eq!(panels.at(kernels, side, modulus, 0, h), want);
                }
            }
        }
    }
}

/// `count` panels of random residues, as the kernels pack them, and as plain numbers [panel][line][element].
struct Operand {
    bytes: Vec<u64>,
    panel: usize,
    plain: Vec<i16>,
    length: usize,
}

impl Operand {
    fn new(
        kernels: &Kernels,
        side: Side,
        count: usize,
        length: usize,
        mut value: impl FnMut() -> i8,
    ) -> Self {
        let panel = PANEL * length * kernels.element;
        let mut out = Self {
            bytes: vec![0; count * panel / 8 + 8],
            panel,
            plain: vec![0; count * PANEL * length],
            length,
        };
        for p in 0..count {
            for l in 0..PANEL {
                for h in 0..length {
                    let x = i16::from(value());
                    out.plain[(p * PANEL + l) * length + h] = x;
                    let at =
                        out.start() + p * panel + (kernels.element_at)(side, length, l, h) * kernels.element;
                    for (i, byte) in x.to_le_bytes().into_iter().take(kernels.element).enumerate() {
                        let (word, shift) = ((at + i) / 8, (at + i) % 8 * 8);
                        out.bytes[word] |= u64::from(byte) << shift;
                    }
                }
            }
        }
        out
    }

    fn start(&self) -> usize {
        self.bytes.as_ptr().align_offset(64) * 8
    }

    fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr().cast::<u8>().wrapping_add(self.start())
    }

    fn line(&self, l: usize) -> &[i16] {
        &self.plain[l * self.length..][..self.length]
    }
}

const NOTHING: Stream = Stream { at: std::ptr::null(), lines: 1 };

fn dot(a: &[i16], b: &[i16]) -> i64 {
    a.iter().zip(b).map(|(&x, &y)| i64::from(x) * i64::from(y)).sum()
}

/// Whole lines, and in two parts, of which the second is added; several tiles below each other.
#[test]
fn products_of_tiles() {
    let mut random = Random(1);
    for kernels in runnable() {
        for (length, cut, down) in
            [(64, 64, 1), (128, 64, 2), (512, 512, 3), (576, 64, 1), (1088, 1024, 2), (4096, 512, 1)]
        {
            let a = Operand::new(kernels, Side::Rows, down, length, || random.next() as i8);
            let b = Operand::new(kernels, Side::Columns, 1, length, || random.next() as i8);
            let mut sums = vec![Tile([7; TILE]); down];
            for (from, to) in [(0, cut), (cut, length)] {
                let at = |side, operand: &Operand| {
                    operand
                        .pointer()
                        .wrapping_add((kernels.element_at)(side, length, 0, from) * kernels.element)
                };
                let product = Product {
                    panel: a.panel,
                    count: to - from,
                    add: from > 0,
                    next: NOTHING,
                    ..Product::whole(at(Side::Rows, &a), at(Side::Columns, &b), length)
                };
                if to > from {
                    unsafe { (kernels.product)(&product, &mut sums) };
                }
            }
            for (i, j) in (0..down * PANEL).flat_map(|i| (0..PANEL).map(move |j| (i, j))) {
                let got = i64::from(sums[i / PANEL].0[j * PANEL + i % PANEL]);
                assert_eq!(got, dot(a.line(i), b.line(j)), "{} length {length} ({i}, {j})", kernels.name);
            }
        }
    }
}

#[test]
fn products_at_the_limit_of_the_sums() {
    for kernels in runnable() {
        for (x, y) in [(-128, -128), (-128, 127), (127, 127)] {
            let length = 1 << 16;
            let a = Operand::new(kernels, Side::Rows, 1, length, || x);
            let b = Operand::new(kernels, Side::Columns, 1, length, || y);
            let mut tile = Tile([0; TILE]);
            unsafe {
                (kernels.product)(
                    &Product::whole(a.pointer(), b.pointer(), length),
                    std::slice::from_mut(&mut tile),
                )
            };
            let want = length as i32 * i32::from(x) * i32::from(y);
            assert!(tile.0.iter().all(|&sum| sum == want), "{}", kernels.name);
        }
    }
}

/// Bytes with the alignment of the workspace.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line64([i8; 64]);

/// What residues are added to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Onto {
    Nothing,
    Here,
    Elsewhere,
}

const ONTO: [Onto; 3] = [Onto::Nothing, Onto::Here, Onto::Elsewhere];

/// The residues of every modulus with its factor, of blocks of several shapes; added to earlier ones, here or elsewhere, or not.
#[test]
fn passes_of_every_modulus() {
    let mut random = Random(3);
    for kernels in runnable() {
        for (down, across, length) in [(1, 1, 64), (2, 3, 128), (3, 2, 1088), (1, 4, 2048)] {
            let a = Operand::new(kernels, Side::Rows, down, length, || random.next() as i8);
            let b = Operand::new(kernels, Side::Columns, across, length, || random.next() as i8);
            for l in 0..MAX_MODULI {
                let factor = crt(MAX_MODULI - (l % 2).min(19 - l)).inverses[l];
                let before: Vec<i8> = (0..TILE).map(|_| canonical(random.next() as i64, l) as i8).collect();
                // Other ones in each tile.
                let before = |tile: usize, at: usize| before[(at + 64 * tile) % TILE];
                for onto in ONTO {
                    // Part of the length, from an element within.
                    let first = if length > DEPTH && onto == Onto::Here { DEPTH } else { 0 };
                    let count = length - first;
                    let tiles = |apart: usize, fill: bool| {
                        let mut lines = vec![Line64([77; 64]); down * across * apart / 64];
                        for (tile, at) in (0..down * across).flat_map(|t| (0..TILE).map(move |at| (t, at))) {
                            let value = if fill { before(tile, at) } else { 77 };
                            lines[(tile * apart + at) / 64].0[at % 64] = value;
                        }
                        lines
                    };
                    let mut residues = tiles(2 * TILE, onto == Onto::Here);
                    let elsewhere = tiles(3 * TILE, true);
                    let bytes = residues.as_mut_ptr().cast::<i8>();
                    let earlier = match onto {
                        Onto::Nothing => None,
                        Onto::Here => Some(Earlier { residues: bytes, tile: 2 * TILE }),
                        Onto::Elsewhere => {
                            Some(Earlier { residues: elsewhere.as_ptr().cast(), tile: 3 * TILE })
                        }
                    };
                    let offset = |side| (kernels.element_at)(side, length, 0, first) * kernels.element;
                    let pass = Pass {
                        rows: a.pointer().wrapping_add(offset(Side::Rows)),
                        columns: b.pointer().wrapping_add(offset(Side::Columns)),
                        panel: a.panel,
                        length,
                        count,
                        down,
                        across,
                        modulus: l,
                        factor,
                        residues: bytes,
                        tile: 2 * TILE,
                        earlier,
                        next_rows: std::ptr::null(),
                        next_columns: std::ptr::null(),
                    };
                    unsafe { (kernels.pass)(&pass) };
                    for (tile, i, j) in
                        (0..down * across).flat_map(|t| (0..TILE).map(move |e| (t, e % 32, e / 32)))
                    {
                        let (p, q) = (tile % down, tile / down);
                        let (x, y) = (a.line(p * PANEL + i), b.line(q * PANEL + j));
                        let place = (kernels.residue_at)(i, j);
                        let old = if earlier.is_some() { i64::from(before(tile, place)) } else { 0 };
                        let want = canonical(dot(&x[first..], &y[first..]) * i64::from(factor) + old, l);
                        // SAFETY: inside of the residues.
                        let got = unsafe { bytes.add(tile * 2 * TILE + place).read() };
                        assert_eq!(i32::from(got), want, "{} modulus {l} onto {onto:?}", kernels.name);
                    }
                }
            }
        }
    }
}

/// Sums of every size, down to the ends of 32 bits where products cannot get: by one long product of equal numbers.
#[test]
fn passes_with_extreme_sums() {
    for kernels in runnable() {
        let length = 1 << 16;
        for (x, y) in [(-128, -128), (-128, 127), (127, 127), (1, -1)] {
            let a = Operand::new(kernels, Side::Rows, 1, length, || x);
            let b = Operand::new(kernels, Side::Columns, 1, length, || y);
            let sum = length as i64 * i64::from(x) * i64::from(y);
            for l in 0..MAX_MODULI {
                let factor = crt(MAX_MODULI).inverses[l];
                let mut residues = vec![Line64([0; 64]); TILE / 64];
                let pass = Pass {
                    rows: a.pointer(),
                    columns: b.pointer(),
                    panel: a.panel,
                    length,
                    count: length,
                    down: 1,
                    across: 1,
                    modulus: l,
                    factor,
                    residues: residues.as_mut_ptr().cast(),
                    tile: TILE,
                    earlier: None,
                    next_rows: std::ptr::null(),
                    next_columns: std::ptr::null(),
                };
                unsafe { (kernels.pass)(&pass) };
                let want = canonical(sum * i64::from(factor), l) as i8;
                assert!(residues.iter().all(|r| r.0 == [want; 64]), "{} modulus {l}", kernels.name);
            }
        }
    }
}

/// A canonical residue: the ends of the range as often as all between.
fn residue(random: &mut Random, l: usize) -> i8 {
    let most = i64::from((MODULI[l] - 1) / 2);
    let x = match random.below(4) {
        0 => most,
        1 => -most - i64::from(MODULI[l] % 2 == 0),
        _ => random.next() as i64 / 2,
    };
    canonical(x, l) as i8
}

/// The seven operands of Strassen's form for every modulus, from quadrants at their places: in the same memory and elsewhere.
#[test]
fn combinations_of_quadrants() {
    let mut random = Random(21);
    let all = [false, true].into_iter().flat_map(|elsewhere| [(elsewhere, false), (elsewhere, true)]);
    for ((elsewhere, last), kernels) in all.flat_map(|all| runnable().map(move |kernels| (all, kernels))) {
        for side in SIDES {
            let planes = PRODUCTS * MAX_MODULI;
            let mut quadrants = Panels::with(kernels, planes, 1, 0);
            let mut panels = Panels::new(kernels, planes);
            let from = if elsewhere { &mut quadrants } else { &mut panels };
            let [[q0, q1], [q2, q3]] = if side == Side::Rows { PLACES_OF_ROWS } else { PLACES_OF_COLUMNS };
            let mut given = Vec::new();
            for (l, at) in (0..MAX_MODULI).flat_map(|l| (0..PANEL * DEPTH).map(move |at| (l, at))) {
                let values = [(); 4].map(|()| residue(&mut random, l));
                for (place, x) in [q0, q1, q2, q3].into_iter().zip(values) {
                    from.set(kernels, side, place * MAX_MODULI + l, (at / DEPTH, at % DEPTH), x);
                }
                given.push((l, at, values.map(i64::from)));
            }
            let chunks =
                |panels: &mut Panels| Chunks { place: panels.place(), apart: MAX_MODULI * panels.plane };
            let (from, to) = (chunks(from), chunks(&mut panels));
            // SAFETY: the CPU can run the kernels, here and below.
            unsafe { (kernels.combine)(&Combinations { side, moduli: MAX_MODULI, from, to, last }) };
            for (l, at, [q0, q1, q2, q3]) in given {
                // The quadrants are A11, A12, A21, A22, or B11, B21, B12, B22; what becomes of them is in the order M1 to M7.
                let want = match side {
                    Side::Rows => [q0, q1, q1 - q2 - q3 + q0, q3, q2 + q3, q2 + q3 - q0, q0 - q2],
                    Side::Columns => [q0, q1, q3, q3 - q2 + q0 - q1, q2 - q0, q3 - q2 + q0, q3 - q2],
                };
                for (number, want) in want.into_iter().enumerate() {
                    let got = panels.at(kernels, side, number * MAX_MODULI + l, at / DEPTH, at % DEPTH);
                    let want = canonical(want, l);
                    assert_eq!(
                        i32::from(got),
                        want,
                        "{} {side:?} operand {number} modulus {l}",
                        kernels.name
                    );
                }
            }
            assert!(panels.written() <= PRODUCTS * MAX_MODULI * PANEL * DEPTH * kernels.element);
        }
    }
}

#[test]
fn sums_of_residues() {
    const TILES: usize = 3;
    let mut random = Random(22);
    for kernels in runnable() {
        for l in 0..MAX_MODULI {
            for (with_y, onto) in [false, true].into_iter().flat_map(|y| ONTO.map(|onto| (y, onto))) {
                let mut lines = |count: usize| -> Vec<Line64> {
                    (0..count * TILE / 64).map(|_| Line64([0; 64].map(|_| residue(&mut random, l)))).collect()
                };
                let (x, y, before, elsewhere) =
                    (lines(TILES), lines(TILES), lines(2 * TILES), lines(3 * TILES));
                let mut out = before.clone();
                let earlier = match onto {
                    Onto::Nothing => None,
                    Onto::Here => Some(Earlier { residues: out.as_ptr().cast(), tile: 2 * TILE }),
                    Onto::Elsewhere => Some(Earlier { residues: elsewhere.as_ptr().cast(), tile: 3 * TILE }),
                };
                let sum = Sum {
                    modulus: l,
                    tiles: TILES,
                    x: x.as_ptr().cast(),
                    y: with_y.then_some(y.as_ptr().cast()),
                    out: out.as_mut_ptr().cast(),
                    apart: 2 * TILE,
                    earlier,
                };
                unsafe { (kernels.sum)(&sum) };
                let entry = |lines: &[Line64], at: usize| i64::from(lines[at / 64].0[at % 64]);
                for at in 0..2 * TILES * TILE {
                    let (tile, inside, from) = (at / (2 * TILE), at % (2 * TILE), at % TILE);
                    let from = tile * TILE + from;
                    let want = if inside < TILE {
                        let y = if with_y { entry(&y, from) } else { 0 };
                        let before = match onto {
                            Onto::Nothing => 0,
                            Onto::Here => entry(&before, at),
                            Onto::Elsewhere => entry(&elsewhere, tile * 3 * TILE + inside),
                        };
                        canonical(entry(&x, from) + y + before, l).into()
                    } else {
                        entry(&before, at)
                    };
                    assert_eq!(entry(&out, at), want, "{} modulus {l} {with_y} {onto:?}", kernels.name);
                }
            }
        }
    }
}

/// C' = H_N.
fn limit(n: usize) -> BigInt {
    moduli::crt(n).limit(false).words().iter().rev().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word)
}

/// Reconstructs C' by every table and compares with the reference. The entry stands at a random place of a tile whose other
/// entries are others.
fn reconstruct(n: usize, c_prime: &BigInt, scale: i32, alpha: f64, beta: f64, c: f64) {
    let residues: Vec<i8> = (0..n).map(|l| reference::residue(c_prime, l)).collect();
    assert_eq!(&reference::crt(&residues), c_prime, "the reference finds C' again");
    let want = reference::output(c_prime, scale, alpha, beta, c);
    let mut random = Random(scale as u64 ^ c_prime.bits());
    let (rows, columns) = (1 + random.below(32) as usize, 1 + random.below(32) as usize);
    let (i, j) = (random.below(rows as u64) as usize, random.below(columns as u64) as usize);
    for kernels in runnable() {
        let with = Reconstruct::new(moduli::crt(n), alpha);
        let mut planes = vec![Line64([0; 64]); n * TILE / 64];
        for l in 0..n {
            let at = l * TILE + (kernels.residue_at)(i, j);
            let y = canonical(i64::from(residues[l]) * i64::from(crt(n).inverses[l]), l);
            planes[at / 64].0[at % 64] = y as i8;
        }
        // Rows and columns around have other exponents.
        let row_scales: Vec<i32> = (0..rows).map(|r| if r == i { scale - 10 } else { scale + 3 }).collect();
        let column_scales: Vec<i32> = (0..columns).map(|r| if r == j { 10 } else { 7 }).collect();
        let ld = rows + 3;
        let mut out = vec![77.0; ld * columns];
        out[i + j * ld] = c;
        let sizes = Sizes { m: rows, n: columns, k: 1, lda: rows, ldb: 1, ldc: ld };
        let (transposes, nothing) = ((Transpose::No, Transpose::No), std::ptr::null());
        let call = Gemm::new(transposes, sizes, (alpha, beta), nothing, nothing, out.as_mut_ptr()).unwrap();
        let written = [AtomicBool::new(false)];
        let block = Reconstruction {
            with: &with,
            residues: planes.as_ptr().cast(),
            moduli: n,
            at: Rectangle { i: 0, j: 0, rows, columns },
            beta,
            c: &call.c,
            rows: &row_scales,
            columns: &column_scales,
            written: &written,
            check: None,
        };
        // SAFETY: the CPU can run the kernels, and C is as large as the rectangle.
        unsafe { (kernels.reconstruct)(&block) };
        assert!(written[0].load(Ordering::Relaxed));
        let got = out[i + j * ld];
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(
            same,
            "{} N {n} C' {c_prime} scale {scale} alpha {alpha:e}: {got:e}, not {want:e}",
            kernels.name
        );
        let padding = out.iter().enumerate().filter(|(at, _)| at % ld >= rows);
        assert!(padding.into_iter().all(|(_, &x)| x == 77.0), "{}: padding", kernels.name);
    }
}

#[test]
fn reconstruction_of_extreme_values() {
    for n in 2..=MAX_MODULI {
        let h = limit(n);
        let zero = BigInt::ZERO;
        for c_prime in [zero.clone(), zero.clone() + 1, h.clone(), &h - 1, &h / 2, &h / 3] {
            for c_prime in [c_prime.clone(), -c_prime] {
                for scale in [0, 1, 200, 1074, 1075, 1100, 1200, 1300, -800, -900, -1000, -1100] {
                    for (alpha, beta, c) in [
                        (1.0, 0.0, 9.0),
                        (-1.0, 1.0, -0.0),
                        (0.3, -0.7, 1e-3),
                        (1e300, 0.0, 0.0),
                        (5e-324, 1.0, 0.5),
                    ] {
                        reconstruct(n, &c_prime, scale, alpha, beta, c);
                    }
                }
            }
        }
    }
}

/// (2m + 1) 2^x, a tie between two doubles, and its neighbours by one and by powers of two.
#[test]
fn reconstruction_of_near_ties() {
    let mut random = Random(2);
    for n in 2..=MAX_MODULI {
        let h = limit(n);
        let room = h.bits() as i64 - 55;
        for _ in 0..120 {
            let odd = BigInt::from((random.next() >> 10) | 1 | 1 << 53);
            let x = if room > 0 { random.below(room as u64) as u32 } else { 0 };
            let tie: BigInt = (odd << x) >> (-room).max(0) as u32;
            let y = random.below(u64::from(x) + 1) as u32;
            for offset in [BigInt::ZERO, BigInt::from(1), BigInt::from(1) << y] {
                for c_prime in [&tie + &offset, &tie - &offset] {
                    let c_prime = if random.below(2) == 0 { -c_prime } else { c_prime };
                    if c_prime <= h && -&c_prime <= h {
                        reconstruct(n, &c_prime, 37, 1.0, 0.0, 0.0);
                        // Ties at the borders of the subnormal range, and of the range.
                        let bits = c_prime.bits() as i32;
                        for top in [-1021, -1022, -1023, -1040, -1073, -1074, -1075, -1076, 1023, 1024] {
                            reconstruct(n, &c_prime, bits - top, 1.0, 0.0, 0.0);
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn reconstruction_of_any_value(
        n in 2usize..=MAX_MODULI,
        words in any::<[u64; 3]>(),
        cut in 0u32..160,
        negative in any::<bool>(),
        scale in -1300i32..1300,
        alpha in any_double().prop_filter("not zero", |x| *x != 0.0),
        beta in prop_oneof![Just(0.0), Just(1.0), any_double()],
        c in any_double(),
    ) {
        let h = limit(n);
        let any = words.iter().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word);
        let c_prime: BigInt = (any % (&h + 1)) >> cut;
        reconstruct(n, &if negative { -c_prime } else { c_prime }, scale, alpha, beta, c);
    }

    #[test]
    fn the_reference_rounds_as_the_hardware_does(x in any_double(), y in any_double()) {
        let product = reference::Dyadic::from(x).times(&reference::Dyadic::from(y)).nearest();
        prop_assert_eq!(product.abs(), (x * y).abs());
        let sum = reference::Dyadic::from(x).plus(&reference::Dyadic::from(y)).nearest();
        prop_assert!(sum == x + y);
    }
}

#[test]
fn scans_see_what_is_not_finite() {
    for kernels in runnable() {
        for side in SIDES {
            for (values, finite) in [
                (vec![0.0], true),
                (vec![f64::MAX, 1.0], true),
                (vec![1.0, f64::NAN], false),
                (vec![f64::NEG_INFINITY, 0.0], false),
            ] {
                let mut scans = [Scan::EMPTY; PANEL];
                unsafe { (kernels.scan)(&buffer_of(kernels, side, &values).chunk(), &mut scans) };
                assert!(scans.iter().all(|scan| scan.is_finite() == finite), "{} {values:?}", kernels.name);
                if values == [0.0] {
                    assert_eq!(scans, [Scan::EMPTY; PANEL]);
                }
            }
        }
    }
}

/// The largest products that there are, and others: the sums do not wrap.
#[test]
fn lower_bounds_of_fourteen_bits() {
    let mut random = Random(31);
    for kernels in runnable() {
        for largest in [true, false] {
            let most = 127 * 127 * (1 << 16);
            let mut product = || {
                Tile(std::array::from_fn(
                    |_| if largest { most } else { random.below(most as u64 + 1) as i32 },
                ))
            };
            let products = [product(), product(), product(), product()];
            let mut out = [0; TILE];
            // SAFETY: the CPU can run these kernels.
            unsafe { (kernels.lower_bounds)(&products, &mut out) };
            for (at, &out) in out.iter().enumerate() {
                let [first, right, left, second] =
                    [0, 1, 2, 3].map(|number| i128::from(products[number].0[at]));
                assert_eq!(i128::from(out), (first << 14) + ((right + left) << 7) + second);
            }
        }
    }
}

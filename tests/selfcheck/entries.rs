//! Single entries by every table of kernels: faults in their residues, and none.

use std::sync::atomic::{AtomicBool, Ordering};

use num_bigint::BigInt;
use oz2blas::engine::cpu::kernels::{Kernels, PANEL, Peak, Reconstruction, TILE, runnable};
use oz2blas::gemm::{MatMut, Rectangle};
use oz2blas::ozaki::moduli::{LEGAL, MAX_MODULI, MODULI, canonical, crt};
use oz2blas::ozaki::reconstruct::Reconstruct;
use oz2blas::ozaki::reference;

use crate::common::Random;
use crate::scaled;

#[repr(C, align(64))]
#[derive(Clone)]
struct Line64([i8; 64]);

/// A block of tiles with room for the residues, and C beside it.
struct Bench {
    kernels: &'static Kernels,
    n: usize,
    tiles: usize,
    with: Reconstruct,
    residues: Vec<Line64>,
    c: Vec<f64>,
    written: Vec<AtomicBool>,
}

impl Bench {
    fn new(kernels: &'static Kernels, n: usize, tiles: usize) -> Self {
        Self {
            kernels,
            n,
            tiles,
            with: Reconstruct::new(crt(n), 1.0),
            residues: vec![Line64([0; 64]); tiles * n * TILE / 64],
            c: vec![7.0; tiles * TILE],
            written: (0..tiles).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn residue(&mut self, tile: usize, l: usize, (i, j): (usize, usize)) -> &mut i8 {
        let at = (tile * self.n + l) * TILE + (self.kernels.residue_at)(i, j);
        &mut self.residues[at / 64].0[at % 64]
    }

    /// Sets the residues of an entry to those of C'.
    fn set(&mut self, tile: usize, at: (usize, usize), c: &Value) {
        for l in 0..self.n {
            *self.residue(tile, l, at) = c.residue(l, self.n);
        }
    }

    /// Reconstructs tiles of so many rows and columns, one below the other; gives the peak, and which tiles were let pass.
    fn run(&mut self, rows: usize, columns: usize, scale: i32) -> (f64, Vec<bool>) {
        self.written.iter().for_each(|written| written.store(false, Ordering::Relaxed));
        let peak = Peak::default();
        let (row_scales, column_scales) = (vec![scale; PANEL], vec![0; PANEL]);
        for tile in 0..self.tiles {
            let c = MatMut::own(self.c[tile * TILE..].as_mut_ptr(), rows, columns, PANEL);
            let block = Reconstruction {
                with: &self.with,
                residues: self.residues.as_ptr().cast::<i8>().wrapping_add(tile * self.n * TILE),
                moduli: self.n,
                at: Rectangle { i: 0, j: 0, rows, columns },
                beta: 0.0,
                c: &c,
                rows: &row_scales[..rows],
                columns: &column_scales[..columns],
                written: &self.written[tile..=tile],
                check: Some(&peak),
            };
            // SAFETY: the CPU can run the kernels, and C is as large as the tile.
            unsafe { (self.kernels.reconstruct)(&block) };
        }
        (peak.get(), self.written.iter().map(|written| written.load(Ordering::Relaxed)).collect())
    }
}

/// An integer in parts of 64 bits, lowest first: quick to reduce.
struct Value {
    negative: bool,
    words: [u64; 3],
}

impl Value {
    fn of(c: &BigInt) -> Self {
        let (sign, digits) = c.to_u64_digits();
        let mut words = [0; 3];
        words[..digits.len()].copy_from_slice(&digits);
        Self { negative: sign == num_bigint::Sign::Minus, words }
    }

    /// C' q_l mod p_l.
    fn residue(&self, l: usize, n: usize) -> i8 {
        let p = MODULI[l] as u64;
        let r = self
            .words
            .iter()
            .rev()
            .fold(0u64, |r, &word| (((u128::from(r) << 64) | u128::from(word)) % u128::from(p)) as u64);
        let r = r as i64 * i64::from(crt(n).inverses[l]);
        canonical(if self.negative { -r } else { r }, l) as i8
    }
}

/// A random value of the legal range: near its ends, small, anything.
fn legal(random: &mut Random, h: &BigInt) -> BigInt {
    let any = (0..3).fold(BigInt::ZERO, |sum, _| (sum << 64) + random.next());
    let c: BigInt = match random.below(4) {
        0 => h - ((any % (h + 1u32)) >> random.below(150)),
        1 => (any % (h + 1u32)) >> random.below(150),
        _ => any % (h + 1u32),
    };
    if random.below(2) == 0 { -c } else { c }
}

/// Theorem: one wrong residue moves C' out of the legal range, whatever C' is and however wrong the residue is. Every wrong value of
/// every residue of the ends of the range and of some values between.
#[test]
fn every_wrong_residue_is_found() {
    let mut random = Random(71);
    let mut injected = 0u64;
    for kernels in runnable() {
        for n in 2..=MAX_MODULI {
            let mut bench = Bench::new(kernels, n, 1);
            let h = reference::limit(n, true);
            for c in [h.clone(), -&h, BigInt::ZERO, legal(&mut random, &h)] {
                // A whole tile costs as much as the entry in it: one entry and no more.
                let at = (0, 0);
                bench.set(0, at, &Value::of(&c));
                let (_, passed) = bench.run(1, 1, 0);
                assert!(passed[0], "{} N {n} C' {c}: a false alarm", kernels.name);
                for l in 0..n {
                    let right = *bench.residue(0, l, at);
                    // All bytes: a flipped bit can take a residue out of its own range too.
                    for wrong in i8::MIN..=i8::MAX {
                        if (i32::from(wrong) - i32::from(right)) % MODULI[l] == 0 {
                            continue;
                        }
                        *bench.residue(0, l, at) = wrong;
                        bench.c[0] = 7.0;
                        let (_, passed) = bench.run(1, 1, 0);
                        assert!(
                            !passed[0],
                            "{} N {n} C' {c}: {wrong} for {right} modulo {}",
                            kernels.name, MODULI[l]
                        );
                        assert!(bench.c[0] == 7.0, "written before its check");
                        injected += 1;
                    }
                    *bench.residue(0, l, at) = right;
                }
            }
        }
    }
    println!("{injected} wrong residues, all found");
    assert!(injected > 100_000);
}

/// Random values with one wrong residue, anywhere in a tile, by all ways to scale (results of normal size, subnormal, infinite).
#[test]
fn single_faults_in_random_entries_are_found() {
    let mut random = Random(72);
    let most = scaled(300_000);
    let mut injected = 0u64;
    while injected < most {
        for kernels in runnable() {
            let n = 2 + random.below(19) as usize;
            let h = reference::limit(n, true);
            let tiles = 32;
            let mut bench = Bench::new(kernels, n, tiles);
            let values: Vec<Value> = (0..8).map(|_| Value::of(&legal(&mut random, &h))).collect();
            let (rows, columns) = (1 + random.below(32) as usize, 1 + random.below(4) as usize);
            let mut faults = Vec::new();
            for tile in 0..tiles {
                for (i, j) in (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))) {
                    bench.set(tile, (i, j), &values[random.below(8) as usize]);
                }
                let at = (random.below(rows as u64) as usize, random.below(columns as u64) as usize);
                faults.push((random.below(n as u64) as usize, at));
            }
            let scale = [0, 40, -900, 1100][random.below(4) as usize];
            // Thirty-two times the same values, each with other faults.
            for _ in 0..32 {
                let before: Vec<i8> =
                    faults.iter().enumerate().map(|(tile, &(l, at))| *bench.residue(tile, l, at)).collect();
                for (tile, &(l, at)) in faults.iter().enumerate() {
                    let p = MODULI[l];
                    let error = 1 + random.below(p as u64 - 1) as i32;
                    *bench.residue(tile, l, at) =
                        canonical(i64::from(i32::from(before[tile]) + error), l) as i8;
                }
                let (_, passed) = bench.run(rows, columns, scale);
                assert!(passed.iter().all(|passed| !passed), "{} N {n}: {faults:?} {passed:?}", kernels.name);
                injected += tiles as u64;
                for (tile, &(l, at)) in faults.iter().enumerate() {
                    *bench.residue(tile, l, at) = before[tile];
                }
            }
            let (_, passed) = bench.run(rows, columns, scale);
            assert!(passed.iter().all(|&passed| passed), "{} N {n}: false alarm", kernels.name);
        }
    }
    println!("{injected} single faults, all found");
}

/// Clean entries of the whole legal range: no alarm, and the peak is that of the largest.
#[test]
fn clean_entries_raise_no_alarm() {
    let mut random = Random(73);
    let most = scaled(3_000_000);
    let mut entries = 0u64;
    while entries < most {
        for n in 2..=MAX_MODULI {
            let h = reference::limit(n, true);
            let product: BigInt = MODULI[..n].iter().map(|&p| BigInt::from(p)).product();
            let values: Vec<BigInt> = (0..64).map(|_| legal(&mut random, &h)).collect();
            for kernels in runnable() {
                let mut bench = Bench::new(kernels, n, 8);
                let mut largest = BigInt::ZERO;
                for (tile, i, j) in
                    (0..8).flat_map(|t| (0..32).flat_map(move |j| (0..32).map(move |i| (t, i, j))))
                {
                    let c = &values[random.below(64) as usize];
                    largest = largest.max(BigInt::from(c.magnitude().clone()));
                    bench.set(tile, (i, j), &Value::of(c));
                }
                let (peak, passed) = bench.run(32, 32, 11);
                assert!(passed.iter().all(|&passed| passed), "{} N {n}", kernels.name);
                let want = reference::Dyadic { m: largest.clone() << 200, e: -200 }.nearest()
                    / reference::Dyadic { m: product.clone(), e: 0 }.nearest();
                assert!((peak - want).abs() < 1e-11, "{} N {n}: peak {peak}, not {want}", kernels.name);
                assert!(peak < LEGAL);
                entries += 8 * 1024;
            }
        }
    }
    println!("{entries} clean entries, no alarm");
}

/// All residues of an entry wrong at random, or two or three of them: 1 / 256 of such damage lands in the legal range again.
#[test]
fn damage_to_several_residues_escapes_once_in_256_times() {
    let mut random = Random(74);
    for kernels in runnable() {
        for wrong in [2, 3, 20] {
            let (mut missed, mut injected) = (0u64, 0u64);
            let most = scaled(60_000);
            while injected < most {
                let n = if wrong == 20 { 14 } else { 9 + random.below(12) as usize };
                let h = reference::limit(n, true);
                let mut bench = Bench::new(kernels, n, 256);
                for tile in 0..256 {
                    let c = legal(&mut random, &h);
                    bench.set(tile, (0, 0), &Value::of(&c));
                    let first = random.below(n as u64) as usize;
                    for l in (0..n).map(|l| (first + l) % n).take(wrong) {
                        let error = 1 + random.below(MODULI[l] as u64 - 1) as i64;
                        let r = bench.residue(tile, l, (0, 0));
                        *r = canonical(i64::from(*r) + error, l) as i8;
                    }
                }
                let (_, passed) = bench.run(1, 1, 0);
                missed += passed.iter().filter(|&&passed| passed).count() as u64;
                injected += 256;
            }
            // Five standard deviations around 1 / 256.
            let (expected, rate) = (injected as f64 / 256.0, missed as f64 / injected as f64);
            println!("{}: {wrong} wrong residues: {missed} of {injected} missed ({rate:.6})", kernels.name);
            assert!(
                (missed as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                "{missed} of {injected} missed"
            );
        }
    }
}

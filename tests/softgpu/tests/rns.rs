//! The kernels for residue numbers (kernels/rns.cu) against `oz2blas::rns`: intervals and digits bit for bit, the places of the
//! largest numbers, with the threads and blocks in both orders. The constants of the sets are made here, by big integers.

mod common;
#[path = "../../rns/numbers.rs"]
#[allow(dead_code)]
mod numbers;

use std::ffi::CString;

use common::device;
use num_bigint::BigUint;
use numbers::{Random, adversarial, array};
use oz2blas::rns::System;
use softgpu::api::{memory::cuMemFree_v2, module::cuModuleLoadData, module::cuModuleUnload};
use softgpu::testing::Argument::{self, Double, Int, Long, Pointer};
use softgpu::testing::{download, launch, upload};

const BLOCK: [u32; 3] = [256, 1, 1];

/// An array of residue numbers and the constants of its set on the device.
struct Array {
    count: usize,
    n: usize,
    psi: f64,
    least: u32,
    residues: u64,
    lanes: u64,
    reciprocals: u64,
    inverses: u64,
}

fn inverse(a: &BigUint, m: u32) -> u32 {
    let inverse = a.modinv(&BigUint::from(m)).expect("coprime");
    inverse.iter_u32_digits().next().unwrap_or(0)
}

/// 1 / m rounded down and up: the last double whose product with m is not above 1, and the first one that is not below it.
fn reciprocals(m: u32) -> [f64; 2] {
    let above_one = |x: f64| x.mul_add(f64::from(m), -1.0) > 0.0;
    let below_one = |x: f64| x.mul_add(f64::from(m), -1.0) < 0.0;
    let nearest = 1.0 / f64::from(m);
    let down = if above_one(nearest) { nearest.next_down() } else { nearest };
    let up = if below_one(nearest) { nearest.next_up() } else { nearest };
    [down, up]
}

impl Array {
    fn new(system: &System, residues: &[u32]) -> Self {
        let moduli = system.moduli();
        let ratio = |factor: u32, m: u32| ((u64::from(factor) << 32) / u64::from(m)) as u32;
        let lane = |&m: &u32| {
            let w = inverse(&(system.product() / m), m);
            [m, w, ratio(w, m)]
        };
        let lanes: Vec<u32> = moduli.iter().flat_map(lane).collect();
        let pairs =
            moduli.iter().enumerate().flat_map(|(i, &m)| moduli[..i].iter().map(move |&other| (other, m)));
        let pair = |(other, m): (u32, u32)| {
            let v = inverse(&BigUint::from(other), m);
            [v, ratio(v, m)]
        };
        Self {
            count: residues.len() / moduli.len(),
            n: moduli.len(),
            psi: system.psi(),
            least: system.least_factor(),
            residues: upload(residues),
            lanes: upload(&lanes),
            reciprocals: upload(&moduli.iter().flat_map(|&m| reciprocals(m)).collect::<Vec<f64>>()),
            inverses: upload(&pairs.flat_map(pair).collect::<Vec<u32>>()),
        }
    }

    /// The parameters that kernels begin with.
    fn head(&self) -> Vec<Argument> {
        vec![Pointer(self.residues), Long(self.count as i64), Int(self.n as i32), Pointer(self.lanes)]
    }

    fn run(&self, name: &str, grid: u32, rest: &[Argument]) {
        let all = [self.head(), rest.to_vec()].concat();
        assert_eq!(launch(0, name, [grid, 1, 1], BLOCK, &all), 0, "{name}");
    }

    /// Both stages of a reduction: the place that remains.
    fn reduce(&self, grid: u32, stage: impl Fn(u32, &[Argument])) -> usize {
        let (some, one) = (upload(&vec![-9i32; grid as usize]), upload(&[-9i32]));
        stage(grid, &[Pointer(0), Long(self.count as i64), Pointer(some)]);
        stage(1, &[Pointer(some), Long(i64::from(grid)), Pointer(one)]);
        let place: Vec<i32> = download(one, 1);
        free(&[some, one]);
        place[0] as usize
    }
}

fn free(addresses: &[u64]) {
    for &address in addresses {
        assert_eq!(unsafe { cuMemFree_v2(address) }, 0);
    }
}

/// All kernels on these numbers, with grids of so many blocks.
fn check(system: &System, numbers: &[BigUint], grid: u32) {
    let residues = array(system, numbers);
    let of = Array::new(system, &residues);
    let count = numbers.len();
    let what = format!("n {}, {count} numbers, {grid} blocks", system.count());
    let constants = [Pointer(of.reciprocals), Pointer(of.inverses), Double(of.psi), Int(of.least as i32)];

    // Every value is written.
    let (low, upp) = (upload(&vec![f64::NAN; count]), upload(&vec![f64::NAN; count]));
    let exponents = upload(&vec![77i32; count]);
    let ends = [Pointer(low), Pointer(upp), Pointer(exponents)];
    of.run("oz2_rns_interval", grid, &[&constants[..], &ends].concat());
    let (lows, upps) = (download::<f64>(low, count), download::<f64>(upp, count));
    for (j, (x, exponent)) in numbers.iter().zip(download::<i32>(exponents, count)).enumerate() {
        let want = system.interval(&system.residues(x));
        let (want, got) = ((want.low, want.upp, want.exponent), (lows[j], upps[j], exponent));
        assert_eq!(
            (got.0.to_bits(), got.1.to_bits(), got.2),
            (want.0.to_bits(), want.1.to_bits(), want.2),
            "{what}, X = {x}"
        );
    }

    let digits = upload(&vec![0u32; residues.len()]);
    of.run("oz2_rns_radix", grid, &[Pointer(of.inverses), Pointer(digits)]);
    assert_eq!(
        download::<u32>(digits, residues.len()),
        system.mixed_radix_of_array(&residues, count),
        "{what}"
    );

    let want = system.max(&residues, 1).expect("there are numbers");
    let by_intervals = of.reduce(grid, |grid, rest| {
        of.run("oz2_rns_max", grid, &[&[Pointer(of.inverses)], &ends[..], rest].concat());
    });
    assert_eq!(by_intervals, want, "by intervals, {what}");
    let naively = of.reduce(grid, |grid, rest| {
        of.run("oz2_rns_max_naive", grid, &[&constants[..], rest].concat());
    });
    assert_eq!(naively, want, "naively, {what}");
    let by_digits = of.reduce(grid, |grid, rest| {
        let head = [Pointer(digits), Long(count as i64), Int(of.n as i32)];
        let all = [&head[..], rest].concat();
        assert_eq!(launch(0, "oz2_rns_max_radix", [grid, 1, 1], BLOCK, &all), 0);
    });
    assert_eq!(by_digits, want, "by digits, {what}");
    free(&[low, upp, exponents, digits, of.residues, of.lanes, of.reciprocals, of.inverses]);
}

/// One test for all sets, since there is one device.
#[test]
fn kernels_agree_with_the_library() {
    for order in ["forward", "reverse"] {
        let _device = device(&format!("order={order}"));
        let mut random = Random(41);
        for system in numbers::int8().iter().step_by(3).chain(&numbers::paper()).chain(&numbers::others()) {
            let product = system.product();
            let large = system.count() > 64;
            let mut hard = adversarial(system, &mut random, 100);
            if large {
                // A part of them, for the sake of time.
                hard = hard.into_iter().step_by(system.count() / 16).collect();
            }
            check(system, &hard, 3);
            for (count, grid) in [(1, 1), (2, 2), (257, 1), (700, 2)] {
                let uniform: Vec<BigUint> = (0..count).map(|_| random.below(product)).collect();
                check(system, &uniform, grid);
            }
            // Ties and neighbours.
            for center in [BigUint::ZERO, random.below(product), product - 2u32] {
                let close: Vec<BigUint> = (0..if large { 20 } else { 300 })
                    .map(|_| (&center + random.index(2)) % product)
                    .collect();
                check(system, &close, 2);
            }
        }
    }
}

/// The committed PTX has the kernels with the parameters of today's source: the device compares them.
#[test]
fn the_ptx_is_of_these_kernels() {
    let _device = device("");
    for text in [
        include_str!("../../../kernels/ptx/rns.compute_75.ptx"),
        include_str!("../../../kernels/ptx/rns.compute_80.ptx"),
    ] {
        let (text, mut module) = (CString::new(text).expect("no NUL in PTX"), 0);
        assert_eq!(unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) }, 0);
        assert_eq!(unsafe { cuModuleUnload(module) }, 0);
    }
}

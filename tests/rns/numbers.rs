//! Sets of moduli and numbers for the tests: random ones, and those at which an evaluation could go wrong.

use num_bigint::BigUint;
use oz2blas::rns::System;
use oz2blas::rns::moduli::{INT8, PAPER, greedy, paper_set};

/// A generator of random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 <= x < limit.
    pub fn below(&mut self, limit: &BigUint) -> BigUint {
        let words = limit.bits() / 32 + 3;
        BigUint::new((0..words).map(|_| self.next() as u32).collect()) % limit
    }

    pub fn index(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Uniform, or log-uniform near 0 or near M.
    pub fn number(&mut self, product: &BigUint) -> BigUint {
        let kind = self.index(3);
        if kind == 0 {
            return self.below(product);
        }
        let bits = 1 + self.index(product.bits() as usize - 1);
        let small = self.below(&(BigUint::from(1u32) << bits));
        if kind == 1 || small >= *product { small % product } else { product - 1u32 - small }
    }
}

/// A number of cases, times OZ2_TEST_SCALE.
pub fn scaled(count: usize) -> usize {
    let scale =
        std::env::var("OZ2_TEST_SCALE").map_or(1.0, |text| text.parse().expect("OZ2_TEST_SCALE is a number"));
    (count as f64 * scale) as usize
}

fn system(moduli: &[u64]) -> System {
    System::new(moduli).expect("a set of moduli")
}

/// The INT8 sets of 2 to 20 moduli.
pub fn int8() -> Vec<System> {
    (2..=20).map(|n| system(&INT8[..n])).collect()
}

/// The seven sets of the paper.
pub fn paper() -> Vec<System> {
    PAPER.iter().map(|(n, _)| system(&paper_set(*n).expect("a set of the paper"))).collect()
}

/// Others: large moduli, very small ones, very different ones, in no order.
pub fn others() -> Vec<System> {
    let run = |n, start| system(&greedy(n, start).expect("a set"));
    vec![
        run(4, 1085471863),
        run(32, 1085471863),
        run(3, 4294967001),
        run(7, 4294966001),
        run(100, 4294960001),
        run(12, 3),
        system(&[2, 3]),
        system(&[u32::MAX as u64, 2]),
        system(&[4294967291, 3, 65537, 2, 4294967279, 5, 1 << 20 | 1]),
    ]
}

/// Numbers at which an evaluation could go wrong, and `random` others of each kind.
pub fn adversarial(system: &System, random: &mut Random, count: usize) -> Vec<BigUint> {
    let product = system.product();
    let one = BigUint::from(1u32);
    let mut all = Vec::new();
    // Every number with both of its neighbours, modulo M.
    let mut around = |x: BigUint| all.extend([&x + product - 1u32, x.clone(), x + 1u32].map(|x| x % product));
    around(BigUint::ZERO);
    around(BigUint::from(2u32));
    around(product - 2u32);
    let bits = product.bits();
    for j in (0..bits).step_by((bits as usize / 96).max(1)) {
        let power = &one << j;
        around(power.clone());
        around(product - &power);
        around((product >> 1u32) + power);
    }
    for sixteenth in 1..16u32 {
        around((product * sixteenth) >> 4u32);
    }
    let weights: Vec<BigUint> = system.moduli().iter().map(|m| product / m).collect();
    for (weight, m) in weights.iter().zip(system.moduli()) {
        // All s_i but one vanish.
        for factor in [1, m / 2, m - 1] {
            around(weight * factor);
        }
    }
    // All s_i are 1, all are m_i - 1.
    let sum = weights.iter().sum::<BigUint>() % product;
    around(product - &sum);
    around(sum);
    // Around the error of the sums, and around psi.
    for t in 36..=53u32 {
        around(product >> t);
        around(product - (product >> t));
    }
    for factor in [0.25, 0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0] {
        let psi = BigUint::from((system.psi() * factor * 2f64.powi(80)) as u128);
        around((product * psi) >> 80u32);
    }
    all.extend((0..count).map(|_| random.number(product)));
    all
}

/// The residues of many numbers as an array: residue i of number j at i * count + j.
pub fn array(system: &System, numbers: &[BigUint]) -> Vec<u32> {
    let of: Vec<Vec<u32>> = numbers.iter().map(|x| system.residues(x)).collect();
    (0..system.count()).flat_map(|i| of.iter().map(move |residues| residues[i])).collect()
}

//! Comparison and sign of single numbers.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint};
use oz2blas::rns::System;

use crate::numbers::{self, Random, adversarial, scaled};

/// Both numbers below M.
fn pair(system: &System, x: &BigUint, y: &BigUint) {
    let (a, b) = (system.residues(x), system.residues(y));
    let what = || format!("n {}: {x}, {y}", system.count());
    assert_eq!(system.compare(&a, &b), x.cmp(y), "{}", what());
    assert_eq!(system.compare_exactly(&a, &b), x.cmp(y), "exactly, {}", what());
    let (x, y) = (system.signed_value(&a), system.signed_value(&b));
    assert_eq!(system.compare_signed(&a, &b), x.cmp(&y), "signed, {}", what());
}

/// Pairs of every kind of distance: equal, neighbours, mirrored, in the digits that an interval cannot tell, far apart.
fn pairs(system: &System, count: usize) {
    let mut random = Random(17 + system.count() as u64);
    let product = system.product();
    for _ in 0..count / 10 {
        let x = random.number(product);
        let shifted = |by: u32| &x + (&x >> by);
        let others = [
            x.clone(),
            &x + 1u32,
            &x + product - 1u32,
            product - 1u32 - &x,
            random.number(product),
            shifted(20),
            shifted(24) + 1u32,
            shifted(30),
            BigUint::ZERO,
            product - 1u32,
        ];
        for y in others {
            pair(system, &x, &(y % product));
        }
    }
}

#[test]
fn comparisons_in_int8_sets() {
    numbers::int8().iter().for_each(|system| pairs(system, scaled(2000)));
}

#[test]
fn comparisons_in_sets_of_the_paper() {
    for system in numbers::paper() {
        pairs(&system, scaled(if system.count() <= 64 { 2000 } else { 400 }));
    }
}

#[test]
fn comparisons_in_other_sets() {
    numbers::others().iter().for_each(|system| pairs(system, scaled(1000)));
}

#[test]
fn signs() {
    for system in numbers::int8().iter().chain(&numbers::paper()).chain(&numbers::others()) {
        let half = system.product() >> 1u32;
        // The turning point and its neighbours are among them.
        let mut all = adversarial(system, &mut Random(3), scaled(300));
        all.extend([half.clone(), &half + 1u32]);
        for x in all {
            let residues = system.residues(&x);
            assert_eq!(system.is_negative(&residues), x > half, "n {}, X = {x}", system.count());
            let signed = system.signed_value(&residues);
            assert_eq!(signed < BigInt::ZERO, x > half);
            assert_eq!(system.signed_residues(&signed), residues);
        }
    }
}

/// Zero is equal to itself and below all else.
#[test]
fn zero() {
    let system = &numbers::paper()[1];
    let (zero, one) = (system.residues(&BigUint::ZERO), system.residues(&BigUint::from(1u32)));
    assert_eq!(system.compare(&zero, &zero), Ordering::Equal);
    assert_eq!(system.compare(&zero, &one), Ordering::Less);
    assert!(!system.is_negative(&zero));
}

//! Properties of any set of moduli: conversions, the generator, and what follows from residues.

use num_bigint::{BigInt, BigUint};
use oz2blas::rns::System;
use oz2blas::rns::moduli::{Error, check, greedy};
use proptest::prelude::*;

/// Any set: random numbers of 32 bits and fewer, each divided by what it has in common with those before it.
fn sets() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((2u64..1 << 32, 0u32..31), 2..24).prop_filter_map(
        "two moduli at least",
        |numbers| {
            let mut set: Vec<u64> = Vec::new();
            for (number, shift) in numbers {
                let mut m = (number >> shift).max(1);
                for &other in &set {
                    let mut common = divisor(m, other);
                    while common > 1 {
                        m /= common;
                        common = divisor(m, other);
                    }
                }
                if m >= 2 {
                    set.push(m);
                }
            }
            (set.len() >= 2).then_some(set)
        },
    )
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

proptest! {
    #[test]
    fn a_number_survives_its_residues(set in sets(), digits in prop::collection::vec(any::<u32>(), 1..30)) {
        let system = System::new(&set).unwrap();
        let x = BigUint::new(digits);
        let residues = system.residues(&x);
        for (r, m) in residues.iter().zip(&set) {
            prop_assert_eq!(BigUint::from(*r), &x % m);
        }
        let x = x % system.product();
        prop_assert_eq!(system.value(&residues), x.clone());
        // The symmetric reading of x and of -x.
        let half = system.product() >> 1u32;
        let wraps = BigInt::from(system.product().clone());
        let signed = if x > half { BigInt::from(x) - wraps } else { BigInt::from(x) };
        prop_assert_eq!(system.signed_value(&residues), signed.clone());
        prop_assert_eq!(system.signed_residues(&signed), residues);
    }

    #[test]
    fn the_order_is_that_of_the_numbers(set in sets(), a: [u32; 24], b: [u32; 24]) {
        let system = System::new(&set).unwrap();
        let number = |digits: [u32; 24]| BigUint::new(digits.to_vec()) % system.product();
        let (x, y) = (number(a), number(b));
        prop_assert_eq!(system.compare(&system.residues(&x), &system.residues(&y)), x.cmp(&y));
    }

    #[test]
    fn the_generator_keeps_every_candidate_that_it_can(count in 2usize..40, half in 1u64..1 << 30) {
        let start = 2 * half + 1;
        let set = greedy(count, start).unwrap();
        prop_assert_eq!(check(&set), Ok(()));
        prop_assert_eq!((set.len(), set[0]), (count, start));
        for candidate in (start..set[count - 1]).step_by(2) {
            let before = set.iter().take_while(|&&m| m < candidate);
            let fits = before.clone().all(|&m| divisor(m, candidate) == 1);
            prop_assert_eq!(set.contains(&candidate), fits, "{}", candidate);
        }
    }

    #[test]
    fn a_common_divisor_is_found(set in sets(), a: prop::sample::Index, b: prop::sample::Index, factor in 2u64..1000) {
        let (i, j) = (a.index(set.len()), b.index(set.len()));
        prop_assume!(i != j && set[i] * factor <= u64::from(u32::MAX) && set[j] * factor <= u64::from(u32::MAX));
        let mut bad = set;
        bad[i] *= factor;
        bad[j] *= factor;
        let refused = System::new(&bad).err();
        prop_assert!(matches!(refused, Some(Error::NotCoprime(..))), "{refused:?}");
    }
}

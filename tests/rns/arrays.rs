//! MAX and MIN of arrays, and mixed-radix digits of arrays.

use std::cmp::Ordering;

use num_bigint::BigUint;
use oz2blas::rns::System;

use crate::numbers::{self, Random, adversarial, array, scaled};

/// MAX and MIN are the first largest and the first smallest number, with any number of threads.
fn check(system: &System, numbers: &[BigUint], what: &str) {
    let residues = array(system, numbers);
    let first = |wanted: Ordering| {
        (0..numbers.len()).reduce(|best, j| if numbers[j].cmp(&numbers[best]) == wanted { j } else { best })
    };
    for threads in [1, 2, 5] {
        let what = format!("{what}, n {}, {} numbers, {threads} threads", system.count(), numbers.len());
        assert_eq!(system.max(&residues, threads), first(Ordering::Greater), "MAX: {what}");
        assert_eq!(system.min(&residues, threads), first(Ordering::Less), "MIN: {what}");
    }
}

#[test]
fn max_and_min_of_every_set() {
    let mut random = Random(29);
    for system in numbers::int8().iter().chain(&numbers::paper()).chain(&numbers::others()) {
        let product = system.product();
        // Mixed radix, which ties and neighbours need, takes long with many moduli.
        let large = system.count() > 64;
        let counts: &[usize] = if large { &[1, 1100] } else { &[0, 1, 2, 31, 1023, 1024, 1025, 2500] };
        for &count in counts.iter().cycle().take(counts.len() * scaled(1)) {
            let uniform: Vec<BigUint> = (0..count).map(|_| random.below(product)).collect();
            check(system, &uniform, "uniform");
            let mixed: Vec<BigUint> = (0..count).map(|_| random.number(product)).collect();
            check(system, &mixed, "of all sizes");
        }
        for count in [9, if large { 65 } else { 300 }] {
            // Ties and neighbours around one number: no interval can tell them apart.
            for center in [BigUint::ZERO, random.below(product), product >> 1u32, product - 3u32] {
                let close = (0..count).map(|_| (&center + random.index(3)) % product).collect::<Vec<_>>();
                check(system, &close, "neighbours");
                check(system, &vec![center; count], "equal");
            }
            // One that sticks out by one at every place of a thread's part.
            let base = random.below(&(product - 2u32)) + 1u32;
            for place in [0, count / 2, count - 1] {
                let mut all = vec![base.clone(); count];
                all[place] += 1u32;
                check(system, &all, "one more");
                all[place] -= 2u32;
                check(system, &all, "one less");
            }
        }
    }
}

#[test]
fn max_and_min_of_adversarial_arrays() {
    for system in numbers::int8().iter().chain(&numbers::paper()[..5]) {
        check(system, &adversarial(system, &mut Random(5), scaled(100)), "adversarial");
    }
}

/// Mixed-radix digits are those of the big integer: X divided by one modulus after the other.
#[test]
fn digits_are_those_of_big_integers() {
    let mut random = Random(31);
    for system in numbers::int8().iter().chain(&numbers::paper()).chain(&numbers::others()) {
        let count = scaled(if system.count() > 64 { 150 } else { 400 });
        let numbers: Vec<BigUint> = (0..count).map(|_| random.number(system.product())).collect();
        let digits = system.mixed_radix_of_array(&array(system, &numbers), count);
        for (j, x) in numbers.iter().enumerate() {
            let mut rest = x.clone();
            let mut want = Vec::new();
            for m in system.moduli() {
                want.push((&rest % m).iter_u32_digits().next().unwrap_or(0));
                rest /= *m;
            }
            let got: Vec<u32> = digits.iter().skip(j).step_by(count).copied().collect();
            assert_eq!(got, want, "n {}, X = {x}", system.count());
            assert_eq!(system.mixed_radix(&system.residues(x)), want, "n {}, X = {x}", system.count());
        }
    }
}

#[test]
#[should_panic(expected = "numbers have")]
fn an_array_of_the_wrong_length_is_refused() {
    numbers::paper()[0].max(&[1, 2, 3, 4, 5], 1);
}

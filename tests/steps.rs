//! Every step of every table of kernels against `ozaki::reference`, bit for bit.

mod common;

use common::Random;
use num_bigint::BigInt;
use oz2blas::engine::cpu::kernels::{ALL, Kernels, PANEL, TILE};
use oz2blas::engine::cpu::packing::RUN;
use oz2blas::ozaki::bound::Line;
use oz2blas::ozaki::moduli::{MAX_MODULI, MODULI, canonical};
use oz2blas::ozaki::reconstruct::Reconstruct;
use oz2blas::ozaki::scan::Scan;
use oz2blas::ozaki::{moduli, reference};
use proptest::prelude::*;

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
    prop::collection::vec(any_double(), 1..RUN)
}

fn line_of(kernels: &Kernels, values: &[f64], cut: usize) -> Line {
    let (left, right) = values.split_at(cut);
    let mut line = Line::new(&(kernels.scan)(left).merge((kernels.scan)(right)));
    line.add(left);
    line.add(right);
    line
}

proptest! {
    #[test]
    fn scan_and_sums(values in any_line(), cut in any::<prop::sample::Index>()) {
        for kernels in ALL {
            prop_assert_eq!(line_of(kernels, &values, cut.index(values.len() + 1)), reference::line(&values));
        }
    }

    #[test]
    fn magnitudes(values in any_line()) {
        let e = reference::line(&values).exponent;
        let want: Vec<i16> = values.iter().map(|&x| i16::from(reference::magnitude(x, e))).collect();
        for kernels in ALL {
            let mut got = vec![-1; values.len()];
            (kernels.magnitudes)(&values, e, &mut got);
            prop_assert_eq!(&got, &want);
        }
    }

    /// Scaling by any exponent that a plan may choose: from "all rounded away" to |a'| just below 2^155.
    #[test]
    fn residues(values in any_line(), bits in -60i32..=155, n in 2usize..=MAX_MODULI) {
        let s = bits - reference::line(&values).exponent;
        for kernels in ALL {
            let stride = values.len() + 3;
            let mut got = vec![i16::MAX; stride * n];
            (kernels.residues)(&values, s, n, stride, &mut got);
            for l in 0..n {
                for (h, &x) in values.iter().enumerate() {
                    let want = i16::from(reference::residue(&reference::scaled(x, s), l));
                    prop_assert_eq!(got[l * stride + h], want, "{:e} 2^{} modulus {}", x, s, l);
                }
                let untouched = if l + 1 < n { &got[l * stride + values.len()..][..3] } else { &[] };
                prop_assert!(untouched.iter().all(|&r| r == i16::MAX));
            }
        }
    }

    #[test]
    fn reduction(seed in any::<u64>(), l in 0..MAX_MODULI) {
        let mut random = Random(seed);
        let mut sums = [0i32; TILE];
        let mut start = [0i8; TILE];
        for (sum, start) in sums.iter_mut().zip(&mut start) {
            *sum = (random.next() as i32) >> random.below(31);
            *start = canonical(random.next() as i32 as i64, l) as i8;
        }
        sums[..4].copy_from_slice(&[i32::MIN, i32::MAX, 0, MODULI[l] / 2]);
        for kernels in ALL {
            let mut got = start;
            (kernels.reduce)(&sums, l, &mut got);
            for at in 0..TILE {
                let want = reference::residue(&(BigInt::from(sums[at]) + start[at]), l);
                prop_assert_eq!(got[at], want);
            }
        }
    }

    #[test]
    fn rounding_ties_of_the_scaling(m in 1u64..1 << 53, drop in 1i32..60, l in 0..MAX_MODULI) {
        // m 2^-drop, and its neighbours at ties
        for m in [m, (m >> drop.min(52)) << drop.min(52) | 1 << (drop.min(53) - 1)] {
            let x = m as f64;
            for kernels in ALL {
                let mut got = [0i16; 1];
                let mut all = vec![0i16; MAX_MODULI];
                (kernels.residues)(&[x], -drop, MAX_MODULI, 1, &mut all);
                got[0] = all[l];
                prop_assert_eq!(got[0], i16::from(reference::residue(&reference::scaled(x, -drop), l)));
            }
        }
    }
}

fn product_matches(kernels: &Kernels, a: &[i16], b: &[i16], length: usize) {
    let (rows, columns) = (a.len() / length, b.len() / length);
    let mut tile = [7; TILE];
    (kernels.product)(a, b, length, &mut tile);
    for j in 0..PANEL {
        for i in 0..PANEL {
            let want: i64 = if i < rows && j < columns {
                let terms = a[i * length..][..length].iter().zip(&b[j * length..][..length]);
                7 + terms.map(|(&x, &y)| i64::from(x) * i64::from(y)).sum::<i64>()
            } else {
                7
            };
            assert_eq!(i64::from(tile[j * PANEL + i]), want, "{} {rows}x{columns}x{length}", kernels.name);
        }
    }
}

#[test]
fn products_of_every_shape_of_a_tile() {
    let mut random = Random(1);
    for kernels in ALL {
        for (rows, columns, length) in [
            (1, 1, 1),
            (1, 32, 3),
            (32, 1, 7),
            (3, 5, 511),
            (32, 32, 512),
            (31, 29, 513),
            (4, 4, 1025),
            (7, 6, 4096),
        ] {
            let mut line = |lines: usize| -> Vec<i16> {
                (0..lines * length).map(|_| (random.next() as i8).into()).collect()
            };
            let (a, b) = (line(rows), line(columns));
            product_matches(kernels, &a, &b, length);
        }
    }
}

#[test]
fn products_at_the_limit_of_the_sums() {
    for kernels in ALL {
        for (x, y) in [(-128, -128), (-128, 127), (127, 127)] {
            let length = 1 << 16;
            product_matches(kernels, &vec![x; 2 * length], &vec![y; 3 * length], length);
        }
    }
}

/// C' = H_N.
fn limit(n: usize) -> BigInt {
    moduli::crt(n).limit.words().iter().rev().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word)
}

/// Reconstructs C' by every table and compares with the reference.
fn reconstruct(n: usize, c_prime: &BigInt, scale: i32, alpha: f64, beta: f64, c: f64) {
    let residues: Vec<i8> = (0..n).map(|l| reference::residue(c_prime, l)).collect();
    assert_eq!(&reference::crt(&residues), c_prime, "the reference finds C' again");
    let want = reference::output(c_prime, scale, alpha, beta, c);
    for kernels in ALL {
        let with = Reconstruct::new(moduli::crt(n), alpha);
        let mut planes = vec![0i8; n * TILE];
        // The entry among others, whose residues differ.
        for l in 0..n {
            planes[l * TILE..][..3].copy_from_slice(&[1, residues[l], -1]);
        }
        let mut out = [beta * 3.0, beta * c, beta * 5.0];
        (kernels.reconstruct)(&with, &planes, &[3, scale - 10, 4], 10, beta != 0.0, &mut out);
        let same = out[1].to_bits() == want.to_bits() || (out[1].is_nan() && want.is_nan());
        assert!(
            same,
            "{} N {n} C' {c_prime} scale {scale} alpha {alpha:e}: {:e}, not {want:e}",
            kernels.name, out[1]
        );
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
fn scanning_nothing_gives_the_empty_scan() {
    for kernels in ALL {
        assert_eq!((kernels.scan)(&[]), Scan::EMPTY);
        assert!(!(kernels.scan)(&[1.0, f64::NAN]).is_finite());
        assert!(!(kernels.scan)(&[f64::NEG_INFINITY]).is_finite());
        assert!((kernels.scan)(&[f64::MAX]).is_finite());
    }
}

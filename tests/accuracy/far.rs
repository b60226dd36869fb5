//! Elements of a line that are further apart than the range of a double is wide on either side of 1: balanced, such a line may lie
//! below 2^-1022 as a whole, where (20) would not hold.

use std::cell::RefCell;

use oz2blas::engine::Outcome;
use proptest::prelude::*;

use crate::calls::{Seen, check};
use crate::common::{DEFAULTS, PLAIN, Problem, Random, engines};
use crate::exact::runner;

fn double(m: u64, e: i32) -> f64 {
    oz2blas::ozaki::reference::Dyadic { m: m.into(), e }.nearest()
}

/// Both elements of a row are far from each other, and those of the columns the other way round: both products matter.
#[test]
fn both_elements_of_a_balanced_line_are_tiny() {
    let a = vec![double(3, 999), double(5, -1065), double(7, 998), double(9, -1063)];
    let b = vec![double(13, -1066), double(11, 997), double(9, -1065), double(15, 996)];
    let p = Problem { m: 2, n: 2, k: 2, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; 4] };
    check(&p, &DEFAULTS, 0, &mut Seen::default());
    for engine in engines() {
        let (outcome, c) = p.run(&engine, &DEFAULTS, PLAIN);
        if matches!(outcome, Outcome::Declined(_)) {
            continue;
        }
        for (at, &got) in c.iter().enumerate() {
            let (x, y) = (&p.a[at % 2 * 2..][..2], &p.b[at / 2 * 2..][..2]);
            // Integers of few bits and close to each other: this is exact.
            assert_eq!(got, x[0] * y[0] + x[1] * y[1]);
        }
    }
}

/// One row has its largest element where all others have next to nothing: balanced by averages, it would be beyond 2^1023, which no
/// double is. It must be computed or reported, not forgotten.
#[test]
fn one_row_is_huge_when_the_others_are_balanced() {
    let (m, n, k) = (120, 20, 2);
    for low in [-1074, -500, 0, 20] {
        let mut random = Random(9);
        let mut line = |tiny: usize, low: i32| -> Vec<f64> {
            let large = |r: &mut Random| double(1 << 52 | r.next() >> 12, 1020 - 52);
            (0..k)
                .map(|h| if h == tiny { double(1 + random.below(15), low) } else { large(&mut random) })
                .collect()
        };
        let mut a: Vec<f64> = (0..m).flat_map(|_| line(0, -1074)).collect();
        let b = (0..n).flat_map(|_| line(1, low)).collect();
        a[7 * k] = a[7 * k + 1];
        let p = Problem { m, n, k, alpha: 2f64.powi(-1050), beta: 0.0, a, b, c: vec![0.5; m * n] };
        for engine in engines() {
            let (outcome, c) = p.run(&engine, &DEFAULTS, PLAIN);
            if let Outcome::Done(report) = outcome {
                // About 2^990, not the zero of a row that counts as zeros.
                let forgotten = c[7] == 0.0 && !report.out.rows.contains(&7);
                assert!(!forgotten, "low {low}: {report:?}");
            }
        }
        check(&p, &DEFAULTS, 1, &mut Seen::default());
    }
}

/// The same for any call whose elements are near one of three places of the range, up to its ends, by inner index, with exceptions.
#[test]
fn elements_at_both_ends_of_the_range() {
    let seen = RefCell::new(Seen::default());
    let cases = (2usize..12, 2usize..12, 2usize..20, 0u64..20, 200i32..1060, any::<u64>());
    runner(400)
        .run(&cases, |(m, n, k, exceptions, far, seed)| {
            let places = [-far, 0, far - 50];
            let mut random = Random(seed);
            let mut operand = |lines: usize, turned: bool| -> Vec<f64> {
                let mut out = Vec::new();
                for h in (0..lines).flat_map(|_| 0..k) {
                    let at = Random(seed ^ h as u64).below(3) as usize;
                    let at = if random.below(100) < exceptions { random.below(3) as usize } else { at };
                    let e = if turned { places[2 - at] } else { places[at] };
                    let x = double(random.next() >> 40, e - 24);
                    out.push(if random.below(2) == 0 { x } else { -x });
                }
                out
            };
            let (a, b) = (operand(m, false), operand(n, true));
            let p = Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c: vec![0.5; m * n] };
            check(&p, &DEFAULTS, seed, &mut seen.borrow_mut());
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    println!("{seen:?}");
    assert!(seen.with_balance > 40 && seen.emulated < seen.calls, "{seen:?}");
}

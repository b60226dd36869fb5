//! What the check costs in moduli.

use oz2blas::engine::cpu::CpuEngine;
use oz2blas::engine::cpu::kernels::portable;
use oz2blas::engine::{Outcome, Settings};
use oz2blas::options::Mode;

use crate::common::{DEFAULTS, PLAIN, Random, problem};

/// The plan keeps eight bits of room: that is one modulus more as a rule, two at most, and sometimes none.
#[test]
fn the_check_takes_one_modulus_as_a_rule_and_two_at_most() {
    let mut random = Random(75);
    let engine = CpuEngine::with(&portable::KERNELS);
    let mut by = [0; 3];
    for round in 0..400 {
        let shape =
            (1 + random.below(40) as usize, 1 + random.below(40) as usize, 1 + random.below(200) as usize);
        let kinds = [(0, 0), (1, 1), (2, 2), (5, 5), (6, 0), (0, 5)][round % 6];
        let p = problem(&mut random, shape, kinds);
        let moduli = |check| match p.run(&engine, &Settings { check, ..DEFAULTS }, PLAIN).0 {
            Outcome::Done(report) => Some(report.moduli),
            _ => None,
        };
        let (Some(without), Some(with)) = (moduli(false), moduli(true)) else { continue };
        by[with - without] += 1;
    }
    let all: u32 = by.iter().sum();
    println!("moduli more: 0 in {} calls, 1 in {}, 2 in {}", by[0], by[1], by[2]);
    assert!(all > 350 && 10 * (by[0] + by[1]) >= 9 * all, "{by:?}");
}

/// With a fixed number of moduli the room comes out of the scaling: the peak stays below 1.
#[test]
fn the_peak_of_healthy_calls_is_below_one() {
    let mut random = Random(76);
    let engine = CpuEngine::with(&portable::KERNELS);
    let mut largest = 0.0f64;
    for round in 0..200 {
        let mode = [Mode::Auto, Mode::Accurate, Mode::Fast][round % 3];
        let shape =
            (1 + random.below(40) as usize, 1 + random.below(40) as usize, 1 + random.below(60) as usize);
        let kinds = (random.below(8), random.below(8));
        let p = problem(&mut random, shape, kinds);
        let settings = Settings { mode, moduli: 15, check: true, ..DEFAULTS };
        let settings = if mode == Mode::Auto { Settings { moduli: 20, ..settings } } else { settings };
        if let (Outcome::Done(report), _) = p.run(&engine, &settings, PLAIN) {
            let checked = report.checked.unwrap();
            assert_eq!((checked.flagged, checked.repaired), (0, 0));
            largest = largest.max(checked.peak);
        }
    }
    assert!(largest > 0.2 && largest < 1.0, "{largest}");
}

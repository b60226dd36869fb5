//! The plan against the Python oracle (tests/oracle), and against the slow reference, in all modes.

mod common;

use std::process::Command;

use common::{DEFAULTS, PLAIN, Problem, Random, engines};
use oz2blas::engine::Settings;
use oz2blas::options::Mode;
use oz2blas::ozaki::moduli::MAX_MODULI;
use oz2blas::ozaki::plan::{Accuracy, NoPlan, Plan, Way};
use oz2blas::ozaki::reference;
use oz2blas::route::Reason;

type Expected = Result<Plan, NoPlan>;

fn from_reference(problem: &Problem, most: usize) -> Expected {
    reference::plan_auto(&problem.a, &problem.b, problem.k, Accuracy::Fp64, (most, false))
}

fn numbers<T: std::str::FromStr>(words: &[&str]) -> Vec<T>
where
    T::Err: std::fmt::Debug,
{
    words.iter().filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect()
}

/// The plan of every engine must be this one.
fn expect(problem: &Problem, settings: Settings, want: &Expected, what: &str) {
    let mut stored = problem.store(PLAIN);
    let call = problem.gemm(PLAIN, &mut stored);
    for engine in engines() {
        // SAFETY: the matrices are ours and as large as the call says.
        let got = unsafe { engine.plan(&call, &settings) };
        let want = want.clone().map_err(Reason::from);
        assert_eq!(got, want, "{what}");
    }
}

#[test]
fn the_plan_is_that_of_the_oracle() {
    let python = std::env::var("OZ2_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/plans.py");
    let output = Command::new(&python).args([script, "--fuzz", "400"]).output().expect("Python runs");
    assert!(
        output.status.success(),
        "{python} {script} (needs numpy):\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut problem: Option<Problem> = None;
    let (mut name, mut count, mut auto, mut provable) = (String::new(), 0, None::<Plan>, 0);
    let mut ways = [0; Way::ALL.len()];
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let doubles = || words[1..].iter().map(|w| f64::from_bits(u64::from_str_radix(w, 16).unwrap()));
        match words[0] {
            "case" => {
                name = words[1].to_owned();
                let [m, n, k] = numbers::<usize>(&words[2..])[..] else { panic!("{line}") };
                let (a, b, c) = (Vec::new(), Vec::new(), vec![0.0; m * n]);
                problem = Some(Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c });
                count += 1;
            }
            "a" => problem.as_mut().unwrap().a = doubles().collect(),
            "b" => {
                let problem = problem.as_mut().unwrap();
                let by_rows: Vec<f64> = doubles().collect();
                let (n, k) = (problem.n, problem.k);
                problem.b = (0..n * k).map(|at| by_rows[at % k * n + at / k]).collect();
            }
            "plan" if words[1] == "none" => {
                // The oracle ends before averages and step 5d: the reference goes on.
                let problem = problem.as_ref().unwrap();
                let want = from_reference(problem, MAX_MODULI);
                let goes_on = |plan: &Plan| plan.out.count() > 0 || plan.way == Way::AveragedMoreBits;
                assert!(want.as_ref().map_or(true, goes_on), "{name}");
                expect(problem, DEFAULTS, &want, &name);
            }
            "plan" => {
                let way = Way::ALL.into_iter().find(|way| way.name().replace(' ', "_") == words[2]).unwrap();
                let moduli = words[1].parse().unwrap();
                auto = Some(Plan { way, ..Plan::plain(moduli, Vec::new(), Vec::new()) });
            }
            "s" => auto.as_mut().unwrap().rows = numbers(&words[1..]),
            "t" => auto.as_mut().unwrap().columns = numbers(&words[1..]),
            "d" => {
                let mut plan = auto.take().unwrap();
                plan.inner = numbers(&words[1..]);
                let problem = problem.as_ref().unwrap();
                let fewer = Settings { moduli: plan.moduli - 1, ..DEFAULTS };
                if fewer.moduli >= 2 && problem.m * problem.n * problem.k < 2000 {
                    expect(problem, fewer, &from_reference(problem, fewer.moduli), &name);
                }
                ways[plan.way as usize] += 1;
                expect(problem, DEFAULTS, &Ok(plan), &name);
                provable += 1;
            }
            mode @ ("fast" | "accurate") => {
                let problem = problem.as_ref().unwrap();
                let moduli = words[1].parse().unwrap();
                let mode = if mode == "fast" { Mode::Fast } else { Mode::Accurate };
                let want = if words[2] == "range" {
                    Err(NoPlan::Range)
                } else {
                    let rows = numbers(&words[3..3 + problem.m]);
                    Ok(Plan::plain(moduli, rows, numbers(&words[4 + problem.m..])))
                };
                expect(problem, Settings { mode, moduli, ..DEFAULTS }, &want, &name);
            }
            "end" => assert_eq!(words[1].parse(), Ok(count)),
            _ => panic!("{line}"),
        }
    }
    assert!(text.lines().last().unwrap().starts_with("end "), "the stream was cut short");
    assert!(count > 800 && provable > 600, "{count} cases, {provable} provable");
    // Averages come after the end of the oracle.
    assert!(ways[..4].iter().all(|&count| count > 2), "plans by way: {ways:?}");
}

/// Data that meets every branch: zeros, exact rows, wide exponents, disjoint supports.
fn problem(random: &mut Random) -> Problem {
    let (m, n, k) =
        (1 + random.below(40) as usize, 1 + random.below(40) as usize, 1 + random.below(70) as usize);
    let mut operand = |count: usize| -> Vec<f64> {
        let (kind, width) = (random.below(6), 1 + random.below(30));
        let value = |random: &mut Random| match kind {
            0 => (random.next() >> (63 - width)) as f64 - 2f64.powi(width as i32),
            1 => [0.0, 1.0, -1.0][random.below(3) as usize],
            2 => random.uniform() * f64::from_bits(random.below(width) << 52),
            3 if random.below(2) == 0 => 0.0,
            4 => random.uniform() * 2f64.powi(random.below(width) as i32),
            _ => random.uniform(),
        };
        (0..count).map(|_| value(random)).collect()
    };
    let (mut a, b) = (operand(m * k), operand(n * k));
    if random.below(4) == 0 {
        a[..k].fill(0.0);
    }
    Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; m * n] }
}

#[test]
fn the_plan_is_that_of_the_reference_in_every_mode_and_accuracy() {
    let mut random = Random(3);
    let mut seen = [0; MAX_MODULI + 1];
    for round in 0..150 {
        let p = problem(&mut random);
        for accuracy in [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High] {
            let (most, check) = (2 + random.below(19) as usize, random.below(2) == 1);
            let want = reference::plan_auto(&p.a, &p.b, p.k, accuracy, (most, check));
            seen[want.as_ref().map_or(0, |plan| plan.moduli)] += 1;
            expect(
                &p,
                Settings { accuracy, moduli: most, check, ..DEFAULTS },
                &want,
                &format!("round {round}"),
            );
        }
        for (moduli, check) in [(2, false), (2, true), (3, true), (9, false), (9, true), (20, true)] {
            let fast = reference::plan_fast(&p.a, &p.b, p.k, moduli, check);
            let settings = Settings { mode: Mode::Fast, moduli, check, ..DEFAULTS };
            expect(&p, settings, &fast, &format!("fast, round {round}"));
            let accurate = reference::plan_accurate(&p.a, &p.b, p.k, moduli, check);
            expect(
                &p,
                Settings { mode: Mode::Accurate, ..settings },
                &accurate,
                &format!("accurate, round {round}"),
            );
        }
    }
    assert!(seen.iter().filter(|&&count| count > 0).count() > 10, "few moduli were met: {seen:?}");
}

/// Sums of k beyond 2^17 need more than 32 bits: a bound product that wraps would give another plan.
#[test]
fn a_long_inner_dimension_does_not_wrap() {
    let (m, n, k) = (2, 2, 140_000);
    let p = Problem {
        m,
        n,
        k,
        alpha: 1.0,
        beta: 0.0,
        a: vec![0.999; m * k],
        b: vec![0.999; n * k],
        c: vec![0.0; 4],
    };
    let want = reference::plan_auto(&p.a, &p.b, k, Accuracy::Fp64, (20, false));
    expect(&p, DEFAULTS, &want, "k = 140000");
    let want = reference::plan_accurate(&p.a, &p.b, k, 15, false);
    expect(&p, Settings { mode: Mode::Accurate, moduli: 15, ..DEFAULTS }, &want, "accurate, k = 140000");
}

/// Where the inner dimension is cut for the bound product, the sums of many tiles grow side by side: each column has its own here.
#[test]
fn an_inner_dimension_in_parts() {
    let mut random = Random(8);
    let (m, n, k) = (70, 300, 2100);
    let mut operand = |lines: usize, large: usize| -> Vec<f64> {
        let value = |at: usize| {
            let (line, h) = (at / k, at % k);
            random.uniform() * if h / large <= line { 1.0 } else { 2f64.powi(-4) }
        };
        (0..lines * k).map(value).collect()
    };
    let (a, b) = (operand(m, 30), operand(n, 7));
    let p = Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; m * n] };
    let want = reference::plan_auto(&p.a, &p.b, k, Accuracy::Fp64, (20, false));
    expect(&p, DEFAULTS, &want, "auto");
    let want = reference::plan_accurate(&p.a, &p.b, k, 15, false);
    expect(&p, Settings { mode: Mode::Accurate, moduli: 15, ..DEFAULTS }, &want, "accurate");
}

/// From some hundred lines on a part of them tells whether a step is in vain: that must never change the plan.
#[test]
fn what_is_left_out_of_the_search_changes_nothing() {
    let mut random = Random(21);
    let (m, n, k) = (515, 540, 12);
    let mut seen = Vec::new();
    for (width, step) in [(11, 1), (14, 1), (17, 1), (30, 0), (20, 1)] {
        // Random exponents of so many bits; with step 0 the same along all lines, so that they can be balanced.
        let mut operand = |lines: usize, sign: i32| -> Vec<f64> {
            let inner: Vec<i32> = (0..k).map(|h| (h * h % 7) as i32 * width / 3).collect();
            let value = |at: usize| {
                let own = random.below(width as u64 + 1) as i32 * step;
                random.uniform() * 2f64.powi(own + sign * (1 - step) * inner[at % k])
            };
            (0..lines * k).map(value).collect()
        };
        let (a, b) = (operand(m, 1), operand(n, -1));
        let p = Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; m * n] };
        let want = from_reference(&p, MAX_MODULI);
        seen.push(want.as_ref().map_or((0, 9), |plan| (plan.moduli, plan.way as usize)));
        expect(&p, Settings { threads: 2, ..DEFAULTS }, &want, &format!("width {width}, step {step}"));
    }
    let met = |way: Way, more: bool| seen.iter().any(|&(n, w)| w == way as usize && (n > 16) == more);
    let all = [(Way::Plain, true), (Way::MoreBits, false), (Way::MoreBits, true), (Way::Balanced, false)];
    assert!(all.into_iter().all(|(way, more)| met(way, more)), "{seen:?}");
}

/// The room of the self-check is about one modulus, which is no reason to search for a better plan.
#[test]
fn with_the_self_check_seventeen_moduli_are_good_enough() {
    let mut random = Random(22);
    let (m, n, k) = (9, 11, 14);
    let mut seventeen = 0;
    for round in 0..60 {
        let width = 6 + round as u64 / 6;
        let mut operand = |lines: usize| -> Vec<f64> {
            (0..lines * k).map(|_| random.uniform() * 2f64.powi(random.below(width) as i32)).collect()
        };
        let (a, b) = (operand(m), operand(n));
        let p = Problem { m, n, k, alpha: 1.0, beta: 0.0, a, b, c: vec![0.0; m * n] };
        let want = reference::plan_auto(&p.a, &p.b, k, Accuracy::Fp64, (MAX_MODULI, true));
        seventeen += u32::from(want.as_ref().is_ok_and(|plan| (plan.moduli, plan.way) == (17, Way::Plain)));
        expect(&p, Settings { check: true, ..DEFAULTS }, &want, &format!("width {width}"));
    }
    assert!(seventeen > 3, "{seventeen}");
}

//! Whole calls with faults of the hardware, by tables of kernels that have one of their steps go wrong.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use oz2blas::engine::cpu::CpuEngine;
use oz2blas::engine::cpu::kernels::{
    Chunk, Kernels, PANEL, Pass, Place, Product, Reconstruction, Side, TILE, Tile, runnable,
};
use oz2blas::engine::{Outcome, Report, Settings};
use oz2blas::options::Mode;
use oz2blas::ozaki::moduli::{MODULI, canonical};
use oz2blas::ozaki::strassen::Levels;
use oz2blas::route::Reason;

use crate::common::{DEFAULTS, Layout, PLAIN, Problem, Random, assert_same_bits, problem};
use crate::scaled;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// A bit of a 32-bit sum of a product, before its reduction.
    Accumulator,
    /// A bit of a residue of a product.
    Residue,
    /// All residues of a tile of one modulus are zero.
    Tile,
    /// The unit is broken: all residues of a pass.
    Pass,
    /// A bit of a residue of A in its packed panel: wrong for a whole row of C in one modulus.
    Panel,
    /// The power of two of a row of A, before its residues are taken. All residues agree on the wrong number: a blind spot.
    Exponent,
    /// An element of A, before its residues are taken. A blind spot too.
    Element,
    /// A bit of C, after the check. Another one.
    Result,
}

/// The fault to come: which kernels, which fault, how many calls of that step from now, how often, and random bits for the rest.
struct Plan {
    kernels: Mutex<(&'static Kernels, Fault, u64)>,
    left: AtomicI64,
    times: AtomicI64,
    /// How often a fault has been put in that changes anything.
    happened: AtomicU64,
}

static PLAN: Mutex<()> = Mutex::new(());
static STATE: std::sync::OnceLock<Plan> = std::sync::OnceLock::new();

fn state() -> &'static Plan {
    let kernels = runnable().next().unwrap();
    STATE.get_or_init(|| Plan {
        kernels: Mutex::new((kernels, Fault::Residue, 0)),
        left: AtomicI64::new(i64::MAX),
        times: AtomicI64::new(0),
        happened: AtomicU64::new(0),
    })
}

/// The kernels beneath, the fault if it is its turn at this step, and random bits.
fn turn(at: &[Fault]) -> (&'static Kernels, Option<Fault>, Random) {
    let plan = state();
    let mut current = plan.kernels.lock().unwrap();
    let (kernels, fault, ref mut random) = *current;
    if !at.contains(&fault)
        || plan.left.fetch_sub(1, Ordering::Relaxed) > 0
        || plan.times.load(Ordering::Relaxed) == 0
    {
        return (kernels, None, Random(0));
    }
    plan.times.fetch_sub(1, Ordering::Relaxed);
    *random = random.wrapping_add(0x1234_5678_9ABC);
    (kernels, Some(fault), Random(*random))
}

fn happened() {
    state().happened.fetch_add(1, Ordering::Relaxed);
}

unsafe fn pass(pass: &Pass) {
    let (kernels, fault, mut random) = turn(&[Fault::Accumulator, Fault::Residue, Fault::Tile, Fault::Pass]);
    // SAFETY: passed on from the caller, here and below; what is changed belongs to this pass.
    unsafe {
        (kernels.pass)(pass);
        let Some(fault) = fault else { return };
        let tile = random.below((pass.down * pass.across) as u64) as usize;
        let residues = std::slice::from_raw_parts_mut(pass.residues.add(tile * pass.tile), TILE);
        let (i, j) = (random.below(32) as usize, random.below(32) as usize);
        let at = &mut residues[(kernels.residue_at)(i, j)];
        match fault {
            Fault::Residue => {
                *at ^= 1 << random.below(8);
                happened();
            }
            Fault::Tile => {
                if residues.iter().any(|&r| r != 0) {
                    residues.fill(0);
                    happened();
                }
            }
            Fault::Pass => {
                for tile in 0..pass.down * pass.across {
                    let residues = std::slice::from_raw_parts_mut(pass.residues.add(tile * pass.tile), TILE);
                    residues.iter_mut().for_each(|r| *r ^= 21);
                }
                happened();
            }
            _ => {
                let mut sums = Tile([0; TILE]);
                let (p, q) = (tile % pass.down, tile / pass.down);
                // The sums of the pass alone stand in a panel of its own length only where it takes the whole panel.
                assert_eq!(pass.count, pass.length, "products of one pass");
                let (rows, columns) = (pass.rows.add(p * pass.panel), pass.columns.add(q * pass.panel));
                (kernels.product)(
                    &Product::whole(rows, columns, pass.length),
                    std::slice::from_mut(&mut sums),
                );
                let sum = sums.0[j * PANEL + i];
                let bit = random.below(32);
                let change = i64::from(sum ^ (1i32 << bit)) - i64::from(sum);
                let change = change * i64::from(pass.factor);
                let wrong = canonical(i64::from(*at) + change, pass.modulus);
                if wrong != i32::from(*at) {
                    *at = wrong as i8;
                    happened();
                }
            }
        }
    }
}

unsafe fn residues(side: Side, chunk: &Chunk, s: &[i32; PANEL], bits: i32, moduli: usize, place: Place) {
    let at: &[Fault] =
        if side == Side::Rows { &[Fault::Panel, Fault::Exponent, Fault::Element] } else { &[] };
    let (kernels, fault, mut random) = turn(at);
    // Lines 0 and elements up to 63 are there in every chunk of these tests.
    let (l, h) = (random.below(30) as usize, random.below(60) as usize);
    let (mut s, mut chunk, mut bits) = (*s, *chunk, bits);
    let mut changed = Vec::new();
    match fault {
        Some(Fault::Exponent) => {
            s[l] -= 1 + random.below(3) as i32;
            happened();
        }
        Some(Fault::Element) => {
            // A copy of the chunk with one element changed in its upper half.
            let (lines, elements) = (PANEL, 64);
            changed = vec![0.0; lines * elements];
            let stride =
                if chunk.order == oz2blas::engine::cpu::kernels::Order::LineMajor { elements } else { lines };
            let copy = Chunk { start: changed.as_ptr(), stride, ahead: 0, ..chunk };
            for (line, element) in (0..lines).flat_map(|l| (0..elements).map(move |h| (l, h))) {
                // SAFETY: whole chunks can be read.
                let x = unsafe { chunk.at(line, element).read_unaligned() };
                let place = (copy.at(line, element).addr() - copy.start.addr()) / 8;
                changed[place] = if (line, element) == (l, h) { x * 0.75 } else { x };
            }
            chunk = copy;
            bits += 1;
            happened();
        }
        _ => {}
    }
    // SAFETY: passed on from the caller.
    unsafe { (kernels.residues)(side, &chunk, &s, bits, moduli, place) };
    drop(changed);
    if fault == Some(Fault::Panel) {
        let modulus = random.below(moduli as u64) as usize;
        let at = (kernels.element_at)(side, place.length, l, place.first + h) * kernels.element;
        // SAFETY: an element of the chunk that was just packed; its low byte comes first.
        unsafe {
            let at = place.panel.add(modulus * place.plane + at);
            if kernels.element == 1 {
                at.write(at.read() ^ 1 << random.below(8));
            } else {
                // Within the bytes that a residue may have.
                let wide = at.cast::<i16>();
                let r = wide.read() as i8 ^ 1i8 << random.below(8);
                wide.write(i16::from(r));
            }
        }
        happened();
    }
}

unsafe fn reconstruct(block: &Reconstruction) {
    let (kernels, fault, mut random) = turn(&[Fault::Result]);
    // SAFETY: passed on from the caller; the entry belongs to the block.
    unsafe {
        (kernels.reconstruct)(block);
        if fault.is_some() && block.written[0].load(Ordering::Relaxed) {
            let at = block.c.pointer().add(block.at.i + block.at.j * block.c.ld);
            at.write(f64::from_bits(at.read().to_bits() ^ 1 << random.below(52)));
            happened();
        }
    }
}

/// The kernels with wrong steps; only one test at a time may plan a fault.
fn faulty(beneath: &'static Kernels) -> &'static Kernels {
    Box::leak(Box::new(Kernels { pass, residues, reconstruct, ..*beneath }))
}

/// Plans a fault for the `left`-th of its steps from now on, so many times in a row.
fn plan(
    beneath: &'static Kernels,
    fault: Fault,
    left: i64,
    times: i64,
    seed: u64,
) -> MutexGuard<'static, ()> {
    let guard = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    let state = state();
    *state.kernels.lock().unwrap_or_else(PoisonError::into_inner) = (beneath, fault, seed);
    state.left.store(left, Ordering::Relaxed);
    state.times.store(times, Ordering::Relaxed);
    state.happened.store(0, Ordering::Relaxed);
    guard
}

fn uniform(random: &mut Random, (m, n, k): (usize, usize, usize)) -> Problem {
    Problem { alpha: 1.5, beta: -0.5, ..problem(random, (m, n, k), (0, 0)) }
}

struct Seen {
    happened: u64,
    report: Report,
    same: bool,
}

/// A call with a fault, beside the same without.
fn try_fault(
    beneath: &'static Kernels,
    with: &CpuEngine,
    p: &Problem,
    fault: Fault,
    left: i64,
    settings: &Settings,
    seed: u64,
) -> Seen {
    let (outcome, want) = p.run(&CpuEngine::with(beneath), settings, PLAIN);
    assert!(matches!(outcome, Outcome::Done(_)));
    let _guard = plan(beneath, fault, left, 1, seed);
    let (outcome, c) = p.run(with, settings, PLAIN);
    let Outcome::Done(report) = outcome else { panic!("{fault:?}: {outcome:?}") };
    let same = c.iter().zip(&want).all(|(x, y)| x.to_bits() == y.to_bits());
    Seen { happened: state().happened.load(Ordering::Relaxed), report, same }
}

/// Every fault within one residue product is found and put right: C has the bits of a healthy call.
#[test]
fn faults_in_products_are_found_and_put_right() {
    let mut random = Random(81);
    for beneath in runnable() {
        let with = CpuEngine::with(faulty(beneath));
        for fault in [Fault::Accumulator, Fault::Residue, Fault::Tile, Fault::Panel] {
            let (mut harmful, mut silent) = (0, 0);
            for round in 0..scaled(60) {
                let shape = (
                    33 + random.below(60) as usize,
                    33 + random.below(60) as usize,
                    64 + random.below(190) as usize,
                );
                let mut p = uniform(&mut random, shape);
                if round % 3 == 0 {
                    // A row and a column for the native BLAS: tiles that have some of them are made beside C.
                    (p.a[7 * p.k], p.b[40 % p.n * p.k]) = (f64::NAN, f64::INFINITY);
                }
                let threads = 1 + (round % 2) as usize;
                // Levels of Strassen's form: a wrong product spoils one residue of up to four entries for each level.
                let most = round as usize / 2 % 3;
                let strassen = Levels { most, least: 0 };
                let settings = Settings { check: true, strassen, threads, ..DEFAULTS };
                let steps = if matches!(fault, Fault::Panel) { 8 } else { 8 * 7u64.pow(most as u32) };
                let left = random.below(steps) as i64;
                let seen = try_fault(beneath, &with, &p, fault, left, &settings, random.next());
                let checked = seen.report.checked.unwrap();
                assert!(seen.same, "{} {fault:?}: a wrong result", beneath.name);
                assert_eq!(checked.flagged, checked.repaired);
                // Damage to the padding of a tile, or to elements that meet zeros, changes nothing.
                if checked.flagged > 0 {
                    harmful += seen.happened;
                } else {
                    silent += seen.happened;
                }
            }
            println!("{} {fault:?}: {harmful} found and put right, {silent} without effect", beneath.name);
            assert!(harmful > 20, "{} {fault:?}: {harmful} {silent}", beneath.name);
        }
    }
}

/// Without the check the same faults give wrong results: the tests above would see them.
#[test]
fn without_the_check_faults_are_wrong_results() {
    let mut random = Random(82);
    for beneath in runnable() {
        let with = CpuEngine::with(faulty(beneath));
        let mut wrong = 0;
        for _ in 0..20 {
            let p = uniform(&mut random, (64, 64, 128));
            let seen = try_fault(
                beneath,
                &with,
                &p,
                Fault::Residue,
                random.below(8) as i64,
                &DEFAULTS,
                random.next(),
            );
            assert_eq!(seen.report.checked, None);
            wrong += u32::from(!seen.same);
        }
        assert!(wrong > 15, "{wrong}");
    }
}

/// The blind spots, as documented: all residues agree on a wrong number, or the damage is done after the check.
#[test]
fn what_the_check_cannot_see() {
    let mut random = Random(83);
    for beneath in runnable() {
        let with = CpuEngine::with(faulty(beneath));
        for fault in [Fault::Exponent, Fault::Element, Fault::Result] {
            let (mut unseen, mut found) = (0, 0);
            for _ in 0..20 {
                let p = uniform(&mut random, (64, 64, 128));
                let settings = Settings { check: true, ..DEFAULTS };
                let left = if fault == Fault::Result { 0 } else { random.below(4) as i64 };
                let seen = try_fault(beneath, &with, &p, fault, left, &settings, random.next());
                assert_eq!(seen.happened, 1, "{fault:?}");
                let flagged = seen.report.checked.unwrap().flagged > 0;
                found += u32::from(flagged);
                unseen += u32::from(!flagged && !seen.same);
            }
            println!("{} {fault:?}: {unseen} of 20 unseen, {found} found", beneath.name);
            assert!(unseen >= 15, "{fault:?}: {unseen} unseen, {found} found");
        }
    }
}

/// A unit that is wrong again and again: others compute what they can, then the rest of the call is named.
#[test]
fn a_fault_that_stays_ends_at_the_native_blas() {
    let mut random = Random(84);
    for beneath in runnable() {
        let with = CpuEngine::with(faulty(beneath));
        for (beta, threads, most) in [(0.0, 1, 0), (1.0, 2, 0), (0.0, 2, 1)] {
            let p = Problem { beta, ..uniform(&mut random, (520, 600, 70)) };
            let settings = Settings { check: true, strassen: Levels { most, least: 0 }, threads, ..DEFAULTS };
            let (_, want) = p.run(&CpuEngine::with(beneath), &settings, PLAIN);
            let _guard = plan(beneath, Fault::Pass, 0, i64::MAX, 9);
            let (outcome, c) = p.run(&with, &settings, PLAIN);
            let Outcome::Partial(report, Reason::FailedCheck, rest) = outcome else { panic!("{outcome:?}") };
            assert_eq!(report.strassen, most);
            let checked = report.checked.unwrap();
            assert!(checked.flagged > checked.repaired && checked.repaired > 0, "{checked:?}");
            let missing = |i: usize, j: usize| {
                let inside = |r: &&oz2blas::gemm::Rectangle| {
                    (r.i..r.i + r.rows).contains(&i) && (r.j..r.j + r.columns).contains(&j)
                };
                rest.iter().filter(inside).count()
            };
            let mut left = 0;
            for (at, (x, y)) in c.iter().zip(&want).enumerate() {
                let (i, j) = (at % p.m, at / p.m);
                match missing(i, j) {
                    0 => assert_eq!(x.to_bits(), y.to_bits(), "({i}, {j})"),
                    1 => {
                        assert_eq!(x.to_bits(), p.c[at].to_bits(), "({i}, {j}) is named as missing");
                        left += 1;
                    }
                    more => panic!("({i}, {j}) is named {more} times"),
                }
            }
            assert!(left > 0);
        }
    }
}

/// The bits of a healthy call do not depend on the check but through the plan: with the same scaling they are the same.
#[test]
fn healthy_calls_have_the_bits_of_the_reference() {
    let mut random = Random(85);
    for round in 0..40 {
        let shape =
            (1 + random.below(70) as usize, 1 + random.below(70) as usize, 1 + random.below(150) as usize);
        let kinds = (random.below(8), random.below(8));
        let p = problem(&mut random, shape, kinds);
        let mode = [Mode::Auto, Mode::Fast, Mode::Accurate][round % 3];
        let moduli = if mode == Mode::Auto { 20 } else { 3 + random.below(18) as usize };
        let settings = Settings { mode, moduli, check: true, ..DEFAULTS };
        let layout = Layout { ta: round % 2 == 0, ..PLAIN };
        let plan = match mode {
            Mode::Fast => oz2blas::ozaki::reference::plan_fast(&p.a, &p.b, p.k, moduli, true),
            Mode::Accurate => oz2blas::ozaki::reference::plan_accurate(&p.a, &p.b, p.k, moduli, true),
            _ => oz2blas::ozaki::reference::plan_auto(&p.a, &p.b, p.k, settings.accuracy, (moduli, true)),
        };
        let mut all = Vec::new();
        for kernels in runnable() {
            let (outcome, c) = p.run(&CpuEngine::with(kernels), &settings, layout);
            match (&plan, outcome) {
                (Ok(plan), Outcome::Done(report)) => {
                    assert_eq!((report.moduli, &report.out), (plan.moduli, &plan.out));
                    let want =
                        oz2blas::ozaki::reference::product(&p.a, &p.b, p.k, plan, p.alpha, p.beta, &p.c);
                    assert_same_bits(&c, &want, kernels.name);
                    all.push(report.checked.unwrap().flagged);
                }
                (Err(none), Outcome::Declined(reason)) => assert_eq!(reason, (*none).into()),
                (_, outcome) => panic!("{outcome:?}"),
            }
        }
        assert!(all.iter().all(|&flagged| flagged == 0));
    }
    assert_eq!(MODULI.len(), 20);
}

//! The CUDA engine on the software device (tests/softgpu), bit for bit against the portable engine, which the other tests
//! compare with the exact reference. `scripts/softgpu cargo test --test cuda` runs it; without a device it says that it is skipped.

mod common;

use std::ffi::{CString, c_char};

use common::{Layout, PLAIN, Problem, Random, assert_same_bits, layout, problem};
use oz2blas::engine::cpu::PORTABLE;
use oz2blas::engine::{Outcome, Settings};
use oz2blas::native::find::Symbol;
use oz2blas::options::Mode;
use oz2blas::ozaki::plan::{Accuracy, Balanced, Way};
use oz2blas::ozaki::strassen::Levels;
use oz2blas::route::Reason;

use oz2blas::engine::cuda::{self, CUDA};
use oz2blas::engine::selftest;

/// Is the software device there? These tests never run on a real one: they inject faults.
fn device() -> bool {
    let there = std::env::var_os("SOFTGPU_FOLDER").is_some() && cuda::is_available();
    if !there {
        println!("skipped: no software device (scripts/softgpu)");
    }
    there
}

/// Do these tests run with the fused product (scripts/test does that too)?
fn is_fused() -> bool {
    std::env::var_os("OZ2_CUDA_PRODUCT").is_some_and(|value| value == "fused")
}

/// With how many levels of Strassen's form in it?
fn levels() -> usize {
    std::env::var("OZ2_STRASSEN").map_or(0, |value| value.parse().unwrap())
}

fn defaults() -> Settings {
    Settings { strassen: Levels { most: levels(), least: 0 }, ..common::DEFAULTS }
}

/// Strassen's form makes small calls long: then a part of the rounds and faults, unless all are wanted (OZ2_TEST_ALL).
fn is_short() -> bool {
    levels() > 0 && std::env::var_os("OZ2_TEST_ALL").is_none()
}

/// A workspace that makes several blocks of some hundred rows and columns, with the levels that there are.
fn tight() -> usize {
    [600_000, 1_800_000, 10_700_000][levels()]
}

/// The call had the levels that these tests run with.
fn has_levels(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(report) if report.strassen == levels())
}

/// How often a fused kernel was launched since the faults were set.
fn fused_launches() -> u64 {
    counts().iter().filter(|(name, _)| name.starts_with("launch:oz2_product_")).map(|(_, count)| count).sum()
}

/// The same outcome and bits as the portable engine; or C as it was, where the plan is one for the CPU alone.
fn check(p: &Problem, settings: &Settings, layout: Layout, what: &str) -> Outcome {
    let (want, want_c) = p.run_with(&PORTABLE, settings, layout);
    let (got, got_c) = p.run_with(&CUDA, settings, layout);
    if let Outcome::Done(report) = &want
        && (report.out.count() > 0 || report.way.balanced() != Balanced::No)
    {
        assert_eq!(got, Outcome::Declined(Reason::FinerPlan), "{what}");
        assert_same_bits(&got_c, &p.c, what);
        return got;
    }
    assert_eq!(got, want, "{what}");
    assert_same_bits(&got_c, &want_c, what);
    got
}

fn random_calls() {
    let mut random = Random(21);
    for round in 0..if is_short() { 20 } else { 60 } {
        let shape =
            (1 + random.below(90) as usize, 1 + random.below(90) as usize, 1 + random.below(150) as usize);
        let kinds = (random.below(8), random.below(8));
        let p = problem(&mut random, shape, kinds);
        let accuracy = [Accuracy::Fp64, Accuracy::Textbook, Accuracy::High][random.below(3) as usize];
        let mode = [Mode::Auto, Mode::Auto, Mode::Fast, Mode::Accurate][random.below(4) as usize];
        let moduli = 2 + random.below(19) as usize;
        let check_products = random.below(2) == 1;
        let settings =
            Settings { mode, moduli, accuracy, threads: 1 + round % 2, check: check_products, ..defaults() };
        let layout = layout(&mut random);
        check(
            &p,
            &settings,
            layout,
            &format!("round {round} {mode:?} N {moduli} {shape:?} kinds {kinds:?} {layout:?}"),
        );
    }
}

/// Small workspaces force blocks over m, n and k and groups of moduli.
fn blocks() {
    let mut random = Random(22);
    for mode in &[Mode::Auto, Mode::Accurate, Mode::Fast][..if is_short() { 1 } else { 3 }] {
        let mode = *mode;
        for kinds in [(2, 0), (3, 3), (1, 0)] {
            let mut p = problem(&mut random, (150, 130, 300), kinds);
            (p.alpha, p.beta) = (0.75, 0.5);
            let host = Settings { mode, moduli: 18, ..defaults() };
            let (want, want_c) = p.run_with(&PORTABLE, &host, PLAIN);
            for workspace in [1 << 30, 3_000_000, 1_500_000] {
                let (got, c) = p.run_with(&CUDA, &Settings { workspace: Some(workspace), ..host }, PLAIN);
                assert_eq!(got, want, "{mode:?} {workspace} bytes");
                assert_same_bits(&c, &want_c, &format!("{mode:?} {workspace} bytes"));
            }
        }
    }
}

fn long_inner_dimension() {
    if is_short() {
        return; // `strassen` has one
    }
    let mut random = Random(23);
    let k = (1 << 16) + 100;
    let p = problem(&mut random, (3, 2, k), (0, 0));
    check(&p, &Settings { mode: Mode::Accurate, moduli: 15, ..defaults() }, PLAIN, "long k");
    check(&p, &defaults(), PLAIN, "long k, auto");
}

/// What has other lines or another inner dimension is for the CPU engines: declined, with C as it was.
fn plans_of_the_cpu() {
    let mut random = Random(24);
    let (m, n, k) = (40, 33, 35);
    let plain = problem(&mut random, (m, n, k), (0, 0));
    let declined = |p: &Problem, reason: Reason, what: &str| {
        let (outcome, c) = p.run_with(&CUDA, &defaults(), PLAIN);
        assert_eq!(outcome, Outcome::Declined(reason), "{what}");
        assert_same_bits(&c, &p.c, what);
        p.run_with(&PORTABLE, &defaults(), PLAIN).0
    };
    let done = |outcome: Outcome| match outcome {
        Outcome::Done(report) => report,
        other => panic!("{other:?}"),
    };
    let mut p = plain.clone();
    p.a[m * k - 1] = f64::NAN;
    assert_eq!(done(declined(&p, Reason::NonFinite, "NaN")).out.rows, [m - 1]);
    // A row that is large where B is small.
    let mut p = plain.clone();
    (0..k).for_each(|h| p.a[7 * k + h] *= 2f64.powi(5 * h as i32));
    (0..n * k).for_each(|at| p.b[at] *= 2f64.powi(-5 * (at % k) as i32));
    assert_eq!(done(declined(&p, Reason::FinerPlan, "a row")).out.rows, [7]);
    // Such columns of A all together are balanced.
    let mut p = plain.clone();
    (0..m * k).for_each(|at| p.a[at] *= 2f64.powi(5 * (at % k) as i32));
    (0..n * k).for_each(|at| p.b[at] *= 2f64.powi(-5 * (at % k) as i32));
    assert_eq!(done(declined(&p, Reason::FinerPlan, "balanced")).way, Way::Balanced);
    // Seven more bits need nothing but other numbers.
    let mut ways = Vec::new();
    for width in [10, 12, 14, 16] {
        let mut p = plain.clone();
        for x in p.a.iter_mut().chain(&mut p.b) {
            *x *= 2f64.powi(random.below(width) as i32);
        }
        if let Outcome::Done(report) = p.run_with(&PORTABLE, &defaults(), PLAIN).0
            && report.out.count() == 0
            && matches!(report.way, Way::Plain | Way::MoreBits)
        {
            check(&p, &defaults(), PLAIN, &format!("width {width}"));
            ways.push(report.way);
        }
    }
    assert!(ways.contains(&Way::MoreBits), "{ways:?}");
    // Nothing at all helps.
    let mut p = plain;
    (0..m).for_each(|i| (0..k).for_each(|h| p.a[i * k + h] *= 2f64.powi(100 * ((h + i) % 3) as i32)));
    (0..n).for_each(|j| (0..k).for_each(|h| p.b[j * k + h] *= 2f64.powi(-100 * ((h + j) % 3) as i32)));
    let outcome = declined(&p, Reason::NotProvable, "rotated");
    assert_eq!(outcome, Outcome::Declined(Reason::NotProvable));
}

/// A function of the software device.
fn function(symbol: &'static Symbol) -> *const std::ffi::c_void {
    symbol.address().expect("the software device has it").as_ptr()
}

/// Orders faults of the software device and starts its counts anew; an empty text orders none.
fn set_faults(text: &str) {
    static SET: Symbol = Symbol::new(c"softgpu_set_faults");
    // SAFETY: the function of this name takes a C string and copies it.
    let set: extern "C" fn(*const c_char) -> i32 = unsafe { std::mem::transmute(function(&SET)) };
    let text = CString::new(text).unwrap();
    assert_eq!(set(text.as_ptr()), 0);
}

/// A new device, for us and for the software device.
fn start_anew() {
    static RESET: Symbol = Symbol::new(c"softgpu_reset");
    set_faults("");
    cuda::forget_devices();
    // SAFETY: the function of this name takes nothing.
    let reset: extern "C" fn() = unsafe { std::mem::transmute(function(&RESET)) };
    reset();
}

/// How often every entry point and kernel was called since the faults were set.
fn counts() -> Vec<(String, u64)> {
    static COUNTS: Symbol = Symbol::new(c"softgpu_counts");
    // SAFETY: the function of this name is like snprintf.
    let counts: extern "C" fn(*mut c_char, usize) -> usize =
        unsafe { std::mem::transmute(function(&COUNTS)) };
    let mut text = vec![0u8; 1 << 16];
    let length = counts(text.as_mut_ptr().cast(), text.len());
    let text = std::str::from_utf8(&text[..length]).unwrap();
    let pair =
        |line: &str| line.split_once(' ').map(|(name, count)| (name.to_owned(), count.parse().unwrap()));
    text.lines().filter_map(pair).collect()
}

/// What a call before has left is given back at any step of the next where it is too much, also what holds operands already.
fn memory_of_the_call_before() {
    let mut random = Random(31);
    let long = problem(&mut random, (200, 200, 2000), (6, 6));
    let wide = problem(&mut random, (300, 300, 16), (0, 0));
    let plain = |moduli: usize| Settings { mode: Mode::Accurate, moduli, ..common::DEFAULTS };
    for workspace in (8..18).map(|megabytes| megabytes * 1_000_000) {
        start_anew();
        long.run_with(&CUDA, &plain(3), PLAIN);
        let settings = Settings { workspace: Some(workspace), ..plain(20) };
        check(&wide, &settings, PLAIN, &format!("{workspace} bytes after a longer call"));
    }
}

/// One level and two of Strassen's form, where the environment wants none: every number of moduli, all transposes and leading dimensions,
/// sizes that are no multiples of anything, an inner dimension of two blocks; and fewer levels or smaller blocks for less memory.
fn strassen() {
    if levels() > 0 {
        return; // all the rest runs in that form
    }
    let mut random = Random(30);
    let settings = |moduli: usize, most: usize| Settings {
        mode: Mode::Accurate,
        moduli,
        strassen: Levels { most, least: 0 },
        ..common::DEFAULTS
    };
    // The levels that a call had.
    let levels_of = |p: &Problem, settings: &Settings, layout: Layout, what: &str| {
        let Outcome::Done(report) = check(p, settings, layout, what) else { panic!("{what}") };
        report.strassen
    };
    let least = |levels: usize| if is_fused() { levels } else { 0 };
    for moduli in 2..=20 {
        for levels in [1, 2] {
            // Parts that are just longer than a half, and short last ones.
            let shape = [(5, 7, 9), (66, 35, 130), (129, 33, 257), (3, 70, 31)][(moduli + levels) % 4];
            let shape = if moduli == 2 { (37, 70, 7) } else { shape }; // two moduli hold no more
            let mut p = problem(&mut random, shape, (0, 2));
            (p.alpha, p.beta) = (0.75, [0.0, 0.5][moduli / 4 % 2]);
            let (ta, tb) = (moduli % 2 == 1, moduli / 2 % 2 == 1);
            let layout = Layout { ta, tb, extra: [moduli % 3, 5, 7], misaligned: 0 };
            let what = format!("{levels} levels N {moduli} {shape:?} {layout:?}");
            assert_eq!(levels_of(&p, &settings(moduli, levels), layout, &what), least(levels), "{what}");
        }
    }
    let p = problem(&mut random, (9, 7, (1 << 16) + 100), (0, 0));
    for levels in [1, 2] {
        let what = format!("{levels} levels, a long inner dimension");
        assert_eq!(levels_of(&p, &settings(4, levels), PLAIN, &what), least(levels), "{what}");
    }
    // Nothing that cannot be cut is cut.
    for (shape, levels) in [((1, 9, 9), 0), ((9, 2, 9), 1), ((9, 9, 1), 0), ((4, 4, 3), 2)] {
        let p = problem(&mut random, shape, (0, 0));
        assert_eq!(levels_of(&p, &settings(15, 2), PLAIN, "small"), least(levels), "{shape:?}");
    }
    // What a device takes for itself and for a small call is no workspace of the others.
    start_anew();
    levels_of(&problem(&mut random, (4, 4, 3), (0, 0)), &settings(15, 0), PLAIN, "a new device");
    let (before, p) = (used(), problem(&mut random, (150, 130, 300), (0, 0)));
    let mut taken = Vec::new();
    // Downwards, so that what a call has kept is too much for the next.
    for workspace in [1 << 30, 12_000_000, 6_000_000, 3_000_000, 1_500_000, 1_000_000] {
        let settings = Settings { workspace: Some(workspace), ..settings(15, 2) };
        taken.push(levels_of(&p, &settings, PLAIN, &format!("{workspace} bytes")));
        // Beside it are the statistics of the lines.
        let held = used() - before;
        assert!(held < workspace as u64 + 30_000, "{held} of {workspace} bytes");
    }
    if is_fused() {
        assert!(
            taken.is_sorted_by(|x, y| x >= y) && [0, 1, 2].iter().all(|x| taken.contains(x)),
            "{taken:?}"
        );
    }
}

/// What is done of C is right, what is named as missing is untouched, and both together are the whole.
fn check_outcome(p: &Problem, outcome: &Outcome, c: &[f64], want: &[f64], what: &str) {
    let rest = match outcome {
        Outcome::Done(_) => Vec::new(),
        Outcome::Native(reason) => panic!("{what}: {reason:?} for matrices of the host"),
        Outcome::Declined(reason) => {
            assert!(
                matches!(reason, Reason::EngineFault | Reason::NoMemory | Reason::FailedCheck),
                "{what}: {reason:?}"
            );
            return assert_same_bits(c, &p.c, what);
        }
        Outcome::Partial(_, reason, rest) => {
            assert!(
                matches!(reason, Reason::EngineFault | Reason::NoMemory | Reason::FailedCheck),
                "{what}: {reason:?}"
            );
            rest.clone()
        }
    };
    let missing = |i: usize, j: usize| {
        rest.iter()
            .filter(|r| (r.i..r.i + r.rows).contains(&i) && (r.j..r.j + r.columns).contains(&j))
            .count()
    };
    for (at, x) in c.iter().enumerate() {
        let right = match missing(at % p.m, at / p.m) {
            0 => want[at],
            1 => p.c[at],
            n => panic!("{what}: entry {at} is missing {n} times"),
        };
        assert_eq!(x.to_bits(), right.to_bits(), "{what}: entry {at}");
    }
}

/// Every entry point and every kernel that a call uses fails at its first call, at its last, and in between.
fn faults() {
    let mut random = Random(25);
    let mut p = problem(&mut random, (100, 140, 90), (3, 3));
    (p.alpha, p.beta) = (0.75, 0.5);
    // Several blocks, so that faults come before, between and after writes to C.
    let settings = Settings { workspace: Some(tight()), threads: 2, ..defaults() };
    start_anew();
    let (outcome, want) = p.run_with(&CUDA, &settings, PLAIN);
    let used = counts();
    let results = used.iter().find(|(name, _)| name.starts_with("launch:oz2_reconstruct")).unwrap().1;
    assert!(has_levels(&outcome) && results > 1, "{outcome:?} {results}");
    assert!(used.len() > 30, "{used:?}");
    let (mut done, mut declined, mut partial) = (0, 0, 0);
    for (name, count) in used {
        // Asked once in a process (tests/process), and what no status tells of.
        if matches!(
            name.as_str(),
            "cuInit" | "cuDriverGetVersion" | "cuDeviceGetCount" | "flip:gemm" | "flip:product"
        ) {
            continue;
        }
        let mut places = vec![1, 2, 3, count / 3, count / 2, count - 1, count];
        if is_short() {
            places = vec![count];
        }
        places.retain(|place| (1..=count).contains(place));
        places.dedup();
        for place in places {
            // Out of memory, an illegal address that loses the device, a launch failure, a number that nobody knows.
            let codes = ["700!", "2", "719", "12345"];
            // With the fused product every one of them opens a device and tests it.
            for code in &codes[..if is_short() {
                1
            } else if is_fused() {
                2
            } else {
                4
            }] {
                let what = format!("{name}@{place}={code}");
                start_anew();
                set_faults(&what);
                let (outcome, c) = p.run_with(&CUDA, &settings, PLAIN);
                check_outcome(&p, &outcome, &c, &want, &what);
                match outcome {
                    Outcome::Done(_) => done += 1,
                    Outcome::Declined(_) => declined += 1,
                    Outcome::Partial(..) => partial += 1,
                    Outcome::Native(_) => unreachable!(),
                }
            }
        }
    }
    println!("faults: {done} without effect or mended, {declined} declined, {partial} in part");
    let least = if is_short() { (20, 5) } else { (100, 20) };
    assert!(declined > least.0 && partial > least.1, "{declined} {partial}");
    start_anew();
    // After a fault the device rests, and after that it works again.
    set_faults("launch:oz2_scan=719");
    let (outcome, _) = p.run_with(&CUDA, &settings, PLAIN);
    assert_eq!(outcome, Outcome::Declined(Reason::EngineFault));
    set_faults("");
    let (outcome, _) = p.run_with(&CUDA, &settings, PLAIN);
    assert_eq!(outcome, Outcome::Declined(Reason::EngineFault), "the device rests");
    start_anew();
    let (outcome, c) = p.run_with(&CUDA, &settings, PLAIN);
    check_outcome(&p, &outcome, &c, &want, "after the rest");
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
}

/// The fused product is used, after its test; a device on which it fails, or differs from cuBLAS, stays with cuBLAS.
fn fused_or_not() {
    let mut random = Random(27);
    // More rows and columns than a tile, pairs of tiles with a half, and an inner dimension of several steps.
    let mut p = problem(&mut random, (270, 390, 150), (0, 0));
    (p.alpha, p.beta) = (0.75, 0.5);
    let (_, want) = p.run_with(&PORTABLE, &defaults(), PLAIN);
    let launches = |faults: &str| {
        start_anew();
        set_faults(faults);
        let calls = [(); 2].map(|()| {
            let (outcome, c) = p.run_with(&CUDA, &defaults(), PLAIN);
            assert!(matches!(outcome, Outcome::Done(_)), "{faults}: {outcome:?}");
            assert_same_bits(&c, &want, faults);
            fused_launches()
        });
        let reduced = counts().iter().any(|(name, _)| name == "launch:oz2_reduce");
        (calls, reduced)
    };
    let ([first, second], _) = launches("");
    if !is_fused() {
        assert_eq!(second, 0);
        return;
    }
    assert!(first > 1 && second == first + 1, "{first} {second}");
    // Its file does not load; the first product of its test is wrong, or all are.
    for faults in ["cuModuleLoadDataEx@6=218", "flip:gemm@1=1", "flip:gemm@3=1"] {
        let ([first, second], reduced) = launches(faults);
        assert!(second == first && reduced, "{faults}: {first} {second}");
    }
    start_anew();
}

/// How often one entry point was called since the faults were set.
fn count(name: &str) -> u64 {
    counts().into_iter().find(|(found, _)| found == name).map_or(0, |(_, count)| count)
}

/// Executable graphs on the software device.
fn graphs_there() -> i32 {
    static GRAPHS: Symbol = Symbol::new(c"softgpu_graphs");
    // SAFETY: the function of this name takes nothing.
    let graphs: extern "C" fn() -> i32 = unsafe { std::mem::transmute(function(&GRAPHS)) };
    graphs()
}

/// Small products are replayed as a graph, of which only what changes is set anew; a bounded number of shapes is kept; and whatever
/// function of graphs fails, the call goes on without, and so do all later ones.
fn graphs() {
    const MAKE: &str = "cuGraphInstantiateWithFlags";
    const SET: &str = "cuGraphExecKernelNodeSetParams_v2";
    const LAUNCH: &str = "cuGraphLaunch";
    let mut random = Random(29);
    let mut of_shape = |m, n, k| {
        let mut p = problem(&mut random, (m, n, k), (0, 0));
        (p.alpha, p.beta) = (0.75, 0.5);
        p
    };
    let right = |p: &Problem, settings: &Settings, what: &str| {
        let (_, want) = p.run_with(&PORTABLE, &defaults(), PLAIN);
        let (outcome, c) = p.run_with(&CUDA, settings, PLAIN);
        assert!(has_levels(&outcome), "{what}: {outcome:?}");
        assert_same_bits(&c, &want, what);
    };
    let (small, large) = (of_shape(40, 50, 60), of_shape(200, 210, 90));
    start_anew();
    right(&small, &defaults(), "the first");
    if !is_fused() {
        assert_eq!([count(MAKE), count(LAUNCH)], [0, 0]);
        return;
    }
    assert_eq!([count(MAKE), count(SET), count(LAUNCH)], [1, 0, 1]);
    set_faults("");
    right(&small, &defaults(), "the same again");
    assert_eq!([count(MAKE), count(SET), count(LAUNCH)], [0, 0, 1]);
    let launched: u64 =
        counts().iter().filter(|(name, _)| name.starts_with("launch:oz2_")).map(|(_, count)| count).sum();
    assert_eq!(count("cuLaunchKernel"), launched - 3, "three kernels come with the graph");
    let other_alpha = Problem { alpha: 3.0, ..small.clone() };
    right(&other_alpha, &defaults(), "another alpha");
    assert_eq!([count(MAKE), count(SET), count(LAUNCH)], [0, 1, 2]);
    right(&large, &defaults(), "a larger one, which moves the memory");
    right(&small, &defaults(), "at other addresses");
    assert_eq!([count(MAKE), count(SET), count(LAUNCH)], [1, 1 + 3, 4]);
    // Blocks are launched one by one.
    right(&large, &Settings { workspace: Some(tight()), ..defaults() }, "blocks");
    assert_eq!(count(LAUNCH), 4);

    let shapes: Vec<Problem> = (0..11).map(|number| of_shape(20 + number, 30, 40)).collect();
    start_anew();
    for (number, p) in shapes.iter().enumerate() {
        right(p, &defaults(), "many shapes");
        assert_eq!(graphs_there(), (number + 1).min(8) as i32);
    }
    // The last eight are there, also after others were used again.
    for number in [3, 10, 4, 3] {
        right(&shapes[number], &defaults(), "a shape again");
    }
    assert_eq!(count(MAKE), 11);
    right(&shapes[0], &defaults(), "one that had to go");
    assert_eq!(count(MAKE), 12);
    right(&shapes[3], &defaults(), "used lately");
    right(&shapes[5], &defaults(), "not used for the longest time");
    assert_eq!([count(MAKE), graphs_there() as u64], [13, 8]);

    let used: Vec<_> = counts().into_iter().filter(|(name, _)| name.starts_with("cuGraph")).collect();
    assert_eq!(used.len(), 7, "{used:?}");
    // (They do not depend on the levels.)
    for (name, _) in used.into_iter().filter(|_| !is_short()) {
        for place in [1, 2, 3] {
            for code in ["2", "999"] {
                let what = format!("{name}@{place}={code}");
                start_anew();
                right(&shapes[0], &defaults(), "before the fault");
                set_faults(&what);
                // Other parameters, then other shapes, until one has to go.
                let other_alpha = |p: &Problem| Problem { alpha: 3.0, ..p.clone() };
                right(&other_alpha(&shapes[0]), &defaults(), &what);
                shapes.iter().for_each(|p| right(p, &defaults(), &what));
                right(&other_alpha(&shapes[10]), &defaults(), &what);
                assert!(count(&name) >= place, "{what}");
                let before = count(LAUNCH);
                right(&shapes[1], &defaults(), &what);
                assert_eq!(count(LAUNCH), before, "{what}: no graphs any more");
            }
        }
    }
    // What fails in a kernel of a graph is heard of, and the device is left alone.
    start_anew();
    right(&small, &defaults(), "before the fault");
    let reconstruct =
        ["oz2_reconstruct", "oz2_reconstruct_strassen_1", "oz2_reconstruct_strassen_2"][levels()];
    set_faults(&format!("launch:{reconstruct}=700!"));
    let (outcome, c) = small.run_with(&CUDA, &defaults(), PLAIN);
    assert_eq!(outcome, Outcome::Declined(Reason::EngineFault));
    assert_same_bits(&c, &small.c, "a fault in a graph");
    start_anew();
}

/// Bytes in use on the software device.
fn used() -> u64 {
    static USED: Symbol = Symbol::new(c"softgpu_used");
    // SAFETY: the function of this name takes the number of a device.
    let used: extern "C" fn(i32) -> u64 = unsafe { std::mem::transmute(function(&USED)) };
    used(0)
}

/// What a call launches once its plan is made: with the fused product three kernels.
fn three_launches() {
    let mut random = Random(28);
    let mut p = problem(&mut random, (140, 70, 90), (0, 0));
    (p.alpha, p.beta) = (0.75, 0.5);
    p.run_with(&CUDA, &defaults(), PLAIN);
    for (mode, checked) in [(Mode::Auto, false), (Mode::Fast, true), (Mode::Accurate, false)] {
        set_faults("");
        let settings = Settings { mode, check: checked, ..defaults() };
        let (outcome, _) = p.run_with(&CUDA, &settings, PLAIN);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        const PLAN: [&str; 8] = [
            "scan",
            "magnitudes",
            "add_bounds",
            "needs",
            "meet",
            "maxima",
            "largest_bits",
            "largest_leading",
        ];
        let name = |(name, count): (String, u64)| Some((name.strip_prefix("launch:oz2_")?.to_owned(), count));
        let after: Vec<_> = counts()
            .into_iter()
            .filter_map(name)
            .filter(|(name, _)| !PLAN.contains(&name.as_str()))
            .map(|(name, count)| {
                (if name.starts_with("product") { "product".to_owned() } else { name }, count)
            })
            .collect();
        let names = match (is_fused(), levels()) {
            (false, _) => ["reconstruct", "reduce", "residues"],
            (true, 0) => ["product", "reconstruct", "residues"],
            (true, 1) => ["product", "reconstruct_strassen_1", "residues_strassen_1"],
            (true, _) => ["product", "reconstruct_strassen_2", "residues_strassen_2"],
        };
        assert_eq!(after, names.map(|name| (name.to_owned(), 1)), "{mode:?}");
        let products = counts().iter().find(|(name, _)| name == "launch:gemm").map_or(0, |x| x.1);
        assert_eq!(products, u64::from(mode != Mode::Fast) + u64::from(!is_fused()), "{mode:?}");
    }
}

/// A wrong bit in a product, once: the block is computed again, and C has the bits of a healthy call. Again and again: the call is
/// declined, or the rest of it named.
fn wrong_bits() {
    let mut random = Random(26);
    // With the fused product the products of cuBLAS are those of the bound and of the test at the first use.
    let kind = if is_fused() { "flip:product" } else { "flip:gemm" };
    let small = problem(&mut random, (3, 3, 3), (0, 0));
    let start_anew = || {
        start_anew();
        small.run_with(&CUDA, &defaults(), PLAIN);
        set_faults("");
    };
    let (mut repaired, mut silent, mut stays) = (0, 0, 0usize);
    let rounds = if is_short() { 12 } else { 40 };
    for round in 0..rounds {
        let mut p = problem(&mut random, (70, 90, 60), (0, 0));
        (p.alpha, p.beta) = (0.75, [0.0, 0.5][round % 2]);
        // One block, or several.
        let workspace = [None, Some(tight())][round / 2 % 2];
        let settings = Settings { workspace, check: true, ..defaults() };
        start_anew();
        let (outcome, want) = p.run_with(&CUDA, &settings, PLAIN);
        assert!(has_levels(&outcome), "{outcome:?}");
        let products = counts().iter().find(|(name, _)| name == kind).unwrap().1;
        // The first products are those of the bound: they belong to the plan, which the check does not see.
        let bound = counts().iter().find(|(name, _)| name == "launch:oz2_add_bounds").map_or(1, |x| x.1);
        let bound = if is_fused() { 0 } else { bound };
        let at = bound + 1 + random.below(products - bound);
        start_anew();
        set_faults(&format!("{kind}@{at}={}", 1 + random.below(1000)));
        let (outcome, c) = p.run_with(&CUDA, &settings, PLAIN);
        let Outcome::Done(report) = outcome else { panic!("{outcome:?}") };
        assert_same_bits(&c, &want, "a wrong bit");
        let checked = report.checked.unwrap();
        assert_eq!(checked.flagged, checked.repaired);
        *if checked.flagged > 0 { &mut repaired } else { &mut silent } += 1;
        // The same without the check is a wrong result, unless the bit was one of the padding.
        if checked.flagged > 0 && workspace.is_none() {
            let unchecked = Settings { check: false, ..settings };
            start_anew();
            set_faults(&format!("{kind}@{at}+=1"));
            let (_, c) = p.run_with(&CUDA, &unchecked, PLAIN);
            assert!(c.iter().zip(&want).any(|(x, y)| x.to_bits() != y.to_bits()));
        }
        start_anew();
        // A bit of M2 with Strassen's form: never one of the padding, as others may be.
        set_faults(&format!("{kind}@{at}+=1"));
        let (outcome, c) = p.run_with(&CUDA, &settings, PLAIN);
        match &outcome {
            Outcome::Declined(reason) => assert_eq!(*reason, Reason::FailedCheck),
            Outcome::Partial(report, reason, _) => {
                assert_eq!(*reason, Reason::FailedCheck);
                assert!(report.checked.unwrap().flagged > 0);
            }
            // Only in the padding of the last blocks.
            Outcome::Done(report) => assert_eq!(report.checked.unwrap().flagged, 0),
            Outcome::Native(_) => panic!("{outcome:?}"),
        }
        stays += usize::from(!matches!(outcome, Outcome::Done(_)));
        check_outcome(&p, &outcome, &c, &want, "wrong bits that stay");
    }
    println!("wrong bits: {repaired} repaired, {silent} without effect");
    // Smaller planes have more padding.
    assert!(
        repaired > rounds / [3, 6, 12][levels()] && stays > rounds * 5 / 8,
        "{repaired} {silent} {stays}"
    );
    start_anew();
}

/// One test: the device belongs to the process.
#[test]
fn everything_is_bit_equal_to_the_portable_engine() {
    if !device() {
        return;
    }
    plans_of_the_cpu();
    // SAFETY: the device is there.
    assert_eq!(unsafe { selftest::digest(&CUDA) }, selftest::EXPECTED);
    random_calls();
    blocks();
    // From here on a matrix takes many copies, of whole columns or of one column each.
    cuda::stage_by(5000);
    random_calls();
    long_inner_dimension();
    strassen();
    memory_of_the_call_before();
    fused_or_not();
    three_launches();
    graphs();
    wrong_bits();
    if std::env::var_os("SOFTGPU_MODE").is_none_or(|mode| mode == "lazy") {
        faults();
    }
}

//! Times crates that could serve as the built-in DGEMM against OpenBLAS, or
//! checks their results.
//!
//!     cargo run --release -- PATH_TO_OPENBLAS
//!     cargo run --release -- check [NAME]

mod check;
mod contenders;
mod halves;

use std::time::{Duration, Instant};

use contenders::{CONTENDERS, Gemm, OpenBlas};
use halves::{Helper, with_new_thread};

/// How long one contender is timed for one line of the table, at the least.
const TIME: Duration = Duration::from_millis(330);
const ROUNDS: usize = 11;
/// OpenBLAS's threads keep a core busy for some time after a call; what runs
/// next must not pay for it.
const SETTLE: Duration = Duration::from_millis(60);
const LOCK: &str = include_str!("../Cargo.lock");

struct Shape {
    m: usize,
    n: usize,
    k: usize,
    trans: &'static str,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check::all(None),
        ["check", name] => check::all(Some(name)),
        [path] => match OpenBlas::load(path) {
            Ok(peer) => bench(&peer),
            Err(message) => fail(&message),
        },
        _ => fail("usage: builtin PATH_TO_OPENBLAS | builtin check [NAME]"),
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2);
}

fn bench(peer: &OpenBlas) {
    println!("- machine: {}, {} cores", cpu_model(), cores());
    println!("- OpenBLAS: {}", peer.describe());
    for contender in &CONTENDERS {
        println!("- {} {}", contender.name, version(contender.name));
    }
    let helper = Helper::new();
    for mode in [Mode::OneThread, Mode::TwoKept(&helper), Mode::TwoStarted] {
        let (threads, title) = match mode {
            Mode::OneThread => (1, "One thread"),
            Mode::TwoKept(_) => (2, "Two threads, the second one kept between calls"),
            Mode::TwoStarted => (2, "Two threads, the second one started by each call"),
        };
        peer.set_threads(threads);
        println!("\n{title}\n");
        print!("| m, n, k | op | OpenBLAS Gflop/s |");
        CONTENDERS.iter().for_each(|c| print!(" {} |", c.name));
        print!("\n| --- | --- | --- |");
        CONTENDERS.iter().for_each(|_| print!(" --- |"));
        println!();
        for shape in shapes() {
            line(peer, &shape, &mode);
        }
    }
}

enum Mode<'a> {
    OneThread,
    TwoKept(&'a Helper),
    TwoStarted,
}

fn shapes() -> Vec<Shape> {
    let square = |n, trans| Shape { m: n, n, k: n, trans };
    let mut shapes: Vec<_> = [64, 128, 256, 512, 1024, 2048].map(|n| square(n, "NN")).into();
    shapes.push(Shape { m: 2048, n: 2048, k: 128, trans: "NN" });
    shapes.extend(["TN", "NT", "TT"].map(|trans| square(1024, trans)));
    shapes
}

/// Times every contender in turn, round by round, and prints the peer's
/// rate (median) and how often faster each contender is: the median of the
/// rounds' ratios, and the ratio of the best times, which a busy machine upsets
/// less.
fn line(peer: &OpenBlas, shape: &Shape, mode: &Mode) {
    let &Shape { m, n, k, trans } = shape;
    let a = random(m * k, 1);
    let b = random(k * n, 2);
    let mut c = vec![0.0; m * n];
    let strides = |rows: usize, cols: usize, trans| {
        if trans == b'N' { (1, rows as isize) } else { (cols as isize, 1) }
    };
    let (rsa, csa) = strides(m, k, trans.as_bytes()[0]);
    let (rsb, csb) = strides(k, n, trans.as_bytes()[1]);
    let g = Gemm {
        m,
        n,
        k,
        alpha: 1.0,
        a: a.as_ptr(),
        rsa,
        csa,
        b: b.as_ptr(),
        rsb,
        csb,
        beta: 0.0,
        c: c.as_mut_ptr(),
        rsc: 1,
        csc: m as isize,
    };
    let run = |who: usize| unsafe {
        let Some(i) = who.checked_sub(1) else {
            return peer.run(&g);
        };
        let run = CONTENDERS[i].run;
        match mode {
            Mode::OneThread => run(&g),
            Mode::TwoKept(helper) => helper.run(run, &g),
            Mode::TwoStarted => with_new_thread(run, &g),
        }
    };
    let mut times = vec![Vec::new(); CONTENDERS.len() + 1];
    // As many calls in a row as fill the time, the same number for everyone.
    let once = seconds(1, || run(0)).min(seconds(1, || run(0)));
    let calls = (TIME.as_secs_f64() / ROUNDS as f64 / once).ceil() as usize;
    for _ in 0..ROUNDS {
        for (who, times) in times.iter_mut().enumerate() {
            if !matches!(mode, Mode::OneThread) {
                std::thread::sleep(SETTLE);
            }
            run(who);
            times.push(seconds(calls, || run(who)));
        }
    }
    let flops = 2.0 * (m * n * k) as f64;
    let peer_times = &times[0];
    print!("| {m}, {n}, {k} | {trans} | {:.1} |", flops / median(peer_times) / 1e9);
    for times in &times[1..] {
        let ratios: Vec<f64> = peer_times.iter().zip(times).map(|(p, t)| p / t).collect();
        print!(" {:.2} / {:.2} |", median(&ratios), best(peer_times) / best(times));
    }
    println!();
}

fn seconds(calls: usize, f: impl Fn()) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| f());
    start.elapsed().as_secs_f64() / calls as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Numbers in -1..1 from a small generator.
pub fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, |n| n.get())
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split(':').nth(1));
        value.unwrap_or("unknown").trim().to_string()
    };
    format!("{} (family {}, model {})", field("model name"), field("cpu family"), field("model\t"))
}

/// The version of a crate in the lock file.
fn version(name: &str) -> &'static str {
    LOCK.split("[[package]]")
        .find(|entry| entry.contains(&format!("name = \"{name}\"")))
        .and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next())
        .unwrap_or("unknown")
}

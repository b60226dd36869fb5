//! Times DGEMM and an LU factorisation: oz2blas beside OpenBLAS and MKL. Started by scripts/bench cpu.
//!
//! The parent process starts children for each number of threads, because libraries read that once, collects what they
//! measured, and writes the report. `race` is the heart: contenders take turns, and each turn stands between two probes of
//! the AMX unit (`amx`), whose state decides who wins.

mod amx;
mod args;
mod blas;
mod clock;
mod facts;
mod gemm;
mod lu;
mod markdown;
mod plot;
mod race;
mod record;
mod report;
#[cfg(test)]
mod sample;
mod summary;
mod sweep;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use args::{Args, HELP, Stop};
use record::Part;
use report::Report;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(Stop::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(Stop::Wrong(what)) => {
            eprintln!("bench cpu: {what}; --help lists the options");
            return ExitCode::from(2);
        }
    };
    let done = match args.child {
        Some(threads) => child(&args, threads),
        None => parent(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench cpu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn child(args: &Args, threads: usize) -> Result<(), String> {
    let part = sweep::run(args, threads)?;
    println!("{}", serde_json::to_string(&part).map_err(|error| error.to_string())?);
    Ok(())
}

fn parent(args: &Args) -> Result<(), String> {
    let start = clock::wall();
    let mut report = Report {
        machine: facts::machine(amx::Probe::new(1).tops().is_some()),
        date: facts::date(),
        command: args.command.clone(),
        native: if args.over_mkl { record::MKL } else { record::OPENBLAS },
        minutes: 0.0,
        environment: environment(),
        versions: BTreeMap::new(),
        cases: Vec::new(),
    };
    for &threads in &args.threads {
        if args.gemm {
            report.add(measure(threads, "--no-lu")?);
        }
        if args.lu {
            report.add(measure(threads, "--no-gemm")?);
        }
    }
    report.minutes = facts::short((clock::wall() - start) / 60.0);
    let text = markdown::of(&report);
    print!("\n{text}");
    let write = |name: &str, text: &str| {
        let path = args.out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    write("cpu.md", &text)?;
    write("cpu.json", &report.json())?;
    if let Some(picture) = plot::of(&report).map_err(|error| error.to_string())? {
        write("cpu.svg", &picture)?;
    }
    Ok(())
}

/// What the user set for any of the libraries; it is passed on, except for what this program sets itself.
fn environment() -> BTreeMap<String, String> {
    const PREFIXES: [&str; 5] = ["OZ2_", "OPENBLAS_", "MKL_", "OMP_", "KMP_"];
    let is_theirs = |(name, _): &(String, String)| {
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !name.ends_with("NUM_THREADS")
    };
    std::env::vars().filter(is_theirs).collect()
}

/// Runs a child with so many threads and with one half of the cases left out.
fn measure(threads: usize, without: &str) -> Result<Part, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let count = threads.to_string();
    let mut command = Command::new(program);
    command.args(std::env::args().skip(1)).args([without, "--child", &count]).stdout(Stdio::piped());
    for name in ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OZ2_NUM_THREADS"] {
        command.env(name, &count);
    }
    // MKL otherwise takes fewer threads where it thinks so, and may take 64-bit integers.
    command.env("MKL_DYNAMIC", "FALSE").env("MKL_INTERFACE_LAYER", "LP64");
    let mut unless_set = |name: &str, value: &str| {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    };
    unless_set("MKL_THREADING_LAYER", "INTEL");
    if without == "--no-gemm" {
        // In a factorisation MKL's threads would spin while OpenBLAS works on the next panel: up to twice the time.
        unless_set("KMP_BLOCKTIME", "0");
    }
    let ended = command.spawn().and_then(|child| child.wait_with_output());
    let ended = ended.map_err(|error| error.to_string())?;
    if !ended.status.success() {
        return Err(format!("the process with {threads} threads ended with {}", ended.status));
    }
    serde_json::from_slice(&ended.stdout).map_err(|error| format!("{threads} threads: {error}"))
}

//! Times MAX over arrays of residue numbers in three forms (`forms`). Started by scripts/bench rns.
//!
//! For each set of moduli `measure` makes an array of random numbers and times each form on as much of it as it gets through
//! in its time; the results of all forms have to agree. `report` and `plot` write docs/measured/rns.md, rns.json and rns.svg.

mod args;
#[path = "../../cpu/src/clock.rs"]
mod clock;
#[path = "../../cpu/src/facts.rs"]
mod facts;
mod forms;
mod measure;
mod plot;
mod report;

use std::process::ExitCode;

use args::{Args, HELP, Stop};
use report::Report;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(Stop::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(Stop::Wrong(what)) => {
            eprintln!("bench rns: {what}; --help lists the options");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench rns: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let start = clock::wall();
    let mut report = Report {
        machine: facts::machine(false),
        date: facts::date(),
        revision: args.revision.clone(),
        command: args.command.clone(),
        minutes: 0.0,
        cases: Vec::new(),
    };
    for set in measure::sets()? {
        let case = measure::case(&set, args)?;
        eprintln!("{}", report::row(&case));
        report.cases.push(case);
    }
    report.minutes = facts::short((clock::wall() - start) / 60.0);
    let text = report.markdown();
    print!("{text}");
    let write = |name: &str, text: &str| {
        let path = args.out.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    std::fs::create_dir_all(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    write("rns.md", &text)?;
    write("rns.json", &report.json()?)?;
    write("rns.svg", &plot::of(&report.cases).map_err(|error| error.to_string())?)
}

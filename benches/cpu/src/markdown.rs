//! cpu.md: tables for readers.

use std::collections::BTreeMap;

use crate::amx::{FAST, SLOW, State};
use crate::record::{Case, Clock, MKL, OPENBLAS, OURS};
use crate::report::Report;
use crate::summary::{Figure, Ratio, Summary};

const CONTENDERS: [&str; 4] = [OPENBLAS, MKL, crate::record::BUILTIN, OURS];

/// The document.
pub fn of(report: &Report) -> String {
    let mut text = String::from("# DGEMM on the CPU\n\n");
    text += &where_and_how(report);
    text += &how_to_read(report);
    for (title, is_lu) in [("DGEMM", false), ("LU factorisation", true)] {
        for threads in threads(report) {
            for state in State::ALL {
                let is_here = |case: &&Case| case.task.is_lu() == is_lu && case.threads == threads;
                let in_state = |case: &&Case| case.states().contains(&state);
                let cases: Vec<&Case> = report.cases.iter().filter(is_here).filter(in_state).collect();
                if cases.is_empty() {
                    continue;
                }
                text += &format!("## {title}, {}, {}\n\n", in_words(threads), state_title(state));
                text += &if is_lu { lu_table(&cases, state) } else { gemm_table(&cases, state) };
                if !is_lu {
                    text += &phase_table(&cases, state);
                }
            }
        }
    }
    text
}

fn where_and_how(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "Machine: {}, {} CPUs, {} GB, {}; load {:.2} at the start. Date: {}. Command: `{}` ({:.1} minutes).\n\n",
        machine.model,
        machine.cpus,
        machine.memory_gb,
        if machine.amx { "AMX" } else { "no AMX" },
        machine.load,
        report.date,
        report.command,
        report.minutes
    );
    for (name, version) in &report.versions {
        text += &format!("- {name}: {version}\n");
    }
    let set: Vec<String> =
        report.environment.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
    if !set.is_empty() {
        text += &format!("- set besides the numbers of threads: {}\n", set.join(", "));
    }
    text + "\n"
}

fn how_to_read(report: &Report) -> String {
    let states = if report.machine.amx {
        format!(
            "\n**The state.** On shared machines the AMX unit falls for milliseconds or minutes to a quarter of its speed, while the\n\
             rest of the CPU hardly changes. So each turn stands between two probes of 40 microseconds, and each figure says in which\n\
             state it was taken: fast ({FAST} TOPS or more a thread before and after), slow (below {SLOW} both times), mixed (the rest).\n"
        )
    } else {
        String::new()
    };
    let native = report.native;
    let squares = report.cases.iter().any(|case| case.task.square().is_some());
    let picture = if squares { "![GFLOP/s of square products](cpu.svg)\n\n" } else { "" };
    format!(
        "C = A B in double precision, column-major, data uniform in [-0.5, 0.5). The contenders take turns in one process:\n\
         OpenBLAS and MKL as their wheels come; *builtin*, our DGEMM without emulation; *oz2*, our library over that {native} with\n\
         the settings of the command: it emulates a call or passes it on, as the column *route* says.\n\n\
         Speeds are 2 m n k by the time, in GFLOP/s: the median, and in parentheses the fast quintile (a fifth of the turns were\n\
         faster). *ratio* is the speed of oz2 by that of the better peer, the one with the smaller median: the median over the\n\
         rounds in which both were in the state; their number follows. *best* sets our best turn against the best of both peers.\n\
         *to OpenBLAS* is the median ratio to OpenBLAS alone; {native} gets the calls that are passed on. *builtin, ratio* is that of\n\
         the builtin to the better peer. With one thread times are CPU times of the thread, and *wall* is the ratio by the clock\n\
         on the wall; with more threads all is by that clock, and everybody rests 0.3 s before a turn.\n{states}\n{picture}"
    )
}

pub fn threads(report: &Report) -> Vec<usize> {
    let mut threads: Vec<usize> = report.cases.iter().map(|case| case.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

pub fn in_words(threads: usize) -> String {
    match threads {
        1 => "one thread".to_owned(),
        2 => "two threads".to_owned(),
        more => format!("{more} threads"),
    }
}

pub fn state_title(state: State) -> String {
    match state {
        State::None => "no AMX".to_owned(),
        state => format!("AMX state {}", state.name()),
    }
}

/// A table; the first column is text, the others are numbers.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|:---|{}\n", head.join(" | "), "---:|".repeat(head.len() - 1));
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text + "\n"
}

fn gemm_table(cases: &[&Case], state: State) -> String {
    let one_thread = cases.iter().all(|case| case.clock() == Clock::Cpu);
    let mut head = vec!["m x n x k"];
    head.extend(CONTENDERS);
    head.extend(ratio_head(one_thread));
    head.extend(["builtin, ratio", "route"]);
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let summary = Summary::of(case, state, case.clock());
            let speed = |figure: &Figure| {
                let gflops = |seconds: f64| 1e-9 * case.task.flops() / seconds;
                format!("{:.1} ({:.1})", gflops(figure.median), gflops(figure.quintile))
            };
            let mut row = vec![case.task.label()];
            row.extend(CONTENDERS.map(|name| summary.figures.get(name).map_or("-".to_owned(), speed)));
            row.extend(ratio_cells(case, &summary));
            row.push(median(summary.builtin_ratio.as_ref()));
            row.push(routes(case, state));
            row
        })
        .collect();
    table(&head, &rows)
}

fn lu_table(cases: &[&Case], state: State) -> String {
    let about = "As LAPACK's DGETRF: panel, interchanges and triangular solve by OpenBLAS for all, DGEMM by the contender. Seconds (fast\n\
         quintile). *error* is the largest entry of P A - L U in units of n u max|A|, for each contender. *emulated*: DGEMM calls of\n\
         one factorisation.";
    let threads = "\n\n\
         The threads of OpenBLAS still spin when another library's DGEMM begins, as in a program that uses both. Those of MKL do\n\
         not (KMP_BLOCKTIME=0): they would take the cores from the next panel.";
    let one_thread = cases.iter().all(|case| case.clock() == Clock::Cpu);
    let names = [OPENBLAS, MKL, OURS];
    let mut head = vec!["case"];
    head.extend(names);
    head.extend(ratio_head(one_thread));
    head.extend(["error", "emulated"]);
    let rows: Vec<Vec<String>> = cases
        .iter()
        .map(|case| {
            let summary = Summary::of(case, state, case.clock());
            let time = |figure: &Figure| format!("{:.4} ({:.4})", figure.median, figure.quintile);
            let error = |name: &str| case.entrant(name).and_then(|entrant| entrant.backward_error);
            let errors = names.map(|name| error(name).map_or("-".to_owned(), |error| format!("{error:.2}")));
            let mut row = vec![case.task.label()];
            row.extend(names.map(|name| summary.figures.get(name).map_or("-".to_owned(), time)));
            row.extend(ratio_cells(case, &summary));
            row.push(errors.join(", "));
            row.push(routes(case, state).replace("emulated: ", ""));
            row
        })
        .collect();
    let about = if one_thread { about.to_owned() } else { format!("{about}{threads}") };
    format!("{about}\n\n{}", table(&head, &rows))
}

/// The columns about our speed against the peers.
fn ratio_head(one_thread: bool) -> Vec<&'static str> {
    let mut head = vec!["ratio", "rounds", "best", "to OpenBLAS"];
    head.extend(one_thread.then_some("wall"));
    head
}

fn ratio_cells(case: &Case, summary: &Summary) -> Vec<String> {
    let rounds = summary.ratio.as_ref().map_or(0, |ratio| ratio.rounds);
    let best = summary.ratio.as_ref().map_or("-".to_owned(), |ratio| ratio_text(ratio.best));
    let mut cells = vec![median(summary.ratio.as_ref()), rounds.to_string(), best];
    cells.push(median(summary.openblas_ratio.as_ref()));
    if case.clock() == Clock::Cpu {
        cells.push(median(Summary::of(case, summary.state, Clock::Wall).ratio.as_ref()));
    }
    cells
}

fn median(ratio: Option<&Ratio>) -> String {
    ratio.and_then(|ratio| ratio.median).map_or("-".to_owned(), ratio_text)
}

/// Two digits say enough, unless they are zeros.
pub fn ratio_text(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

/// Where our calls went in this state; more than one way with the number of turns.
fn routes(case: &Case, state: State) -> String {
    let Some(ours) = case.entrant(OURS) else { return "left out".to_owned() };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for note in ours.notes_in(state) {
        *counts.entry(&note.route).or_default() += 1;
    }
    match counts.len() {
        0 => "-".to_owned(),
        1 => counts.keys().copied().collect(),
        _ => {
            let parts: Vec<String> =
                counts.iter().map(|(route, count)| format!("{route} ({count} turns)")).collect();
            parts.join(", ")
        }
    }
}

/// Where the time of the emulation goes; nothing if the library does not tell.
fn phase_table(cases: &[&Case], state: State) -> String {
    const PHASES: [&str; 5] = ["scan", "bound", "residues", "product", "reconstruct"];
    let rows: Vec<Vec<String>> = cases
        .iter()
        .filter_map(|case| {
            let summary = Summary::of(case, state, Clock::Wall);
            let total: f64 = summary.phases.values().sum();
            let share = |name: &str| {
                summary.phases.get(name).map_or("-".to_owned(), |s| format!("{:.0} %", 100.0 * s / total))
            };
            let mut row = vec![case.task.label(), format!("{:.3}", 1e3 * total)];
            row.extend(PHASES.map(share));
            (total > 0.0).then_some(row)
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["phases of oz2", "sum, ms"];
    head.extend(PHASES);
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Note, Task};
    use crate::sample::{self, entrant};

    #[test]
    fn each_state_has_its_tables() {
        let phases = BTreeMap::from([("product".to_owned(), 0.003), ("scan".to_owned(), 0.001)]);
        let note = Note { route: "emulated: amx, N = 14".to_owned(), phases };
        let ours = sample::noted(entrant(OURS, &[(1.0, 5.0), (8.0, 1.0), (1.0, 5.0)]), &note);
        let peer = entrant(OPENBLAS, &[(2.0, 5.0), (2.0, 1.0), (2.0, 5.0)]);
        let task = Task::Gemm { m: 1000, n: 1000, k: 1000 };
        let gemm = Case { task, threads: 1, entrants: vec![peer.clone(), ours.clone()] };
        let lu = Case { task: Task::Lu { n: 1000, block: 100 }, threads: 2, entrants: vec![peer, ours] };
        let text = of(&sample::report(vec![gemm, lu]));
        for line in [
            "## DGEMM, one thread, AMX state fast",
            "| 1000 x 1000 x 1000 | 2.0 (2.0) | - | - | 4.0 (4.0) | 2.00 | 2 | 2.00 | 2.00 | 2.00 | - | emulated: amx, N = 14 |",
            "| 1000 x 1000 x 1000 | 4.000 | 25 % | - | - | 75 % | - |",
            "## DGEMM, one thread, AMX state slow",
            "## LU factorisation, two threads, AMX state slow",
            "| n = 1000, blocks of 100 | 2.0000 (2.0000) | - | 8.0000 (8.0000) | 0.25 | 1 | 0.25 | 0.25 | -, -, - | amx, N = 14 |",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert_eq!([ratio_text(0.0123), ratio_text(1.234)], ["0.0123", "1.23"]);
    }
}

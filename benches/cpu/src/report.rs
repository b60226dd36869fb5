//! The whole report: where and how it was made, and all cases; cpu.json.

use std::collections::BTreeMap;
use std::ffi::CStr;

use serde::Serialize;
use serde_json::{Value, json};

use crate::record::{Case, Clock, Part};
use crate::summary::Summary;

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub model: String,
    pub cpus: usize,
    pub memory_gb: u64,
    pub amx: bool,
    /// The load of the last minute before the measurements: more than a little is other people's work.
    pub load: f64,
}

pub struct Report {
    pub machine: Machine,
    pub date: String,
    pub command: String,
    pub minutes: f64,
    /// Variables that change what the libraries do.
    pub environment: BTreeMap<String, String>,
    pub versions: BTreeMap<String, String>,
    pub cases: Vec<Case>,
}

impl Report {
    /// The first part tells the versions; all parts are of the same libraries.
    pub fn add(&mut self, part: Part) {
        self.versions.extend(part.versions);
        self.cases.extend(part.cases);
    }

    /// A line for each case: short enough for a repository, and a change shows which case it was.
    pub fn json(&self) -> String {
        let head = json!({
            "machine": self.machine, "date": self.date, "command": self.command, "minutes": self.minutes,
            "environment": self.environment, "versions": self.versions,
            "turns": "seconds of one call: wall, CPU of the thread; TOPS of the tile unit before, after",
        });
        let mut lines: Vec<String> = head
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{}: {value}", Value::from(name.as_str())))
            .collect();
        let cases: Vec<String> = self.cases.iter().map(|case| case_json(case).to_string()).collect();
        lines.push(format!("\"cases\": [\n{}\n]", cases.join(",\n")));
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }
}

fn case_json(case: &Case) -> Value {
    let clocks =
        [Clock::Cpu, Clock::Wall].into_iter().filter(|clock| *clock != Clock::Cpu || case.threads == 1);
    let summaries =
        clocks.flat_map(|clock| case.states().into_iter().map(move |state| Summary::of(case, state, clock)));
    let summaries: Vec<Summary> = summaries.collect();
    json!({ "task": case.task, "threads": case.threads, "summaries": summaries, "entrants": case.entrants })
}

/// This machine.
pub fn machine(amx: bool) -> Machine {
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let kilobytes = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Machine {
        model: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_gb: kilobytes.div_ceil(1 << 20),
        amx,
        load: load.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
    }
}

/// Today, in UTC.
pub fn date() -> String {
    let mut text = [0u8; 16];
    // SAFETY: the records are written before they are read; the text has as many bytes as we say, its last one stays zero.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const now, &raw mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len() - 1, c"%Y-%m-%d".as_ptr(), &raw const parts);
    }
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{OURS, Task};
    use crate::sample;

    #[test]
    fn a_day_has_ten_letters() {
        let date = date();
        assert_eq!(date.len(), 10, "{date}");
        assert!(date.as_str() > "2025-01-01", "{date}");
    }

    #[test]
    fn the_json_can_be_read_and_has_a_line_for_each_case() {
        let entrants = vec![sample::entrant(OURS, &[(0.5, 5.0); 3])];
        let case = Case { task: Task::Lu { n: 64, block: 8 }, threads: 1, entrants };
        let report = sample::report(vec![case.clone(), case]);
        let text = report.json();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["cases"][1]["summaries"][0]["figures"]["oz2"]["median"], 0.25);
        assert_eq!(value["cases"][1]["entrants"][0]["turns"][2][0], 0.5);
        assert_eq!(text.lines().filter(|line| line.contains("\"task\"")).count(), 2);
    }
}

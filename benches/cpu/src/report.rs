//! The whole report: where and how it was made, and all cases; cpu.json.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::facts::Machine;
use crate::record::{Case, Clock, Part};
use crate::summary::Summary;

pub struct Report {
    pub machine: Machine,
    pub date: String,
    pub command: String,
    /// The BLAS underneath our library.
    pub native: &'static str,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{OURS, Task};
    use crate::sample;

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

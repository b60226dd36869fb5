//! rns.md and rns.json.

use serde_json::json;

use crate::facts::Machine;
use crate::forms::Form;
use crate::measure::Case;

/// The paper's array length, for which the table tells the memory.
const PAPER_NUMBERS: usize = 5_000_000;

pub struct Report {
    pub machine: Machine,
    pub date: String,
    pub revision: String,
    pub command: String,
    pub minutes: f64,
    pub cases: Vec<Case>,
}

impl Report {
    pub fn markdown(&self) -> String {
        let Machine { model, cpus, memory_gb, load, .. } = &self.machine;
        let rows: String = self.cases.iter().map(|case| row(case) + "\n").collect();
        format!(
            "# MAX over arrays of residue numbers\n\n\
             Machine: {model}, {cpus} CPUs, {memory_gb} GB; load {load:.2} at the start. Library: {}. Date: {}. \
             Command: `{}` ({:.1} minutes).\n\n\
             The place of the largest of many random numbers, in one thread (CPU time, median of the rounds, nanoseconds for a \
             number), in three forms:\n\n\
             - *interval evaluation* encloses X / M of every number between two doubles and compares these\n\
             - *mixed radix* converts every number to mixed-radix digits and compares these\n\
             - *naive* keeps no intervals: every comparison of two numbers evaluates both\n\n\
             *numbers* is the length of the array in millions: a form that would take too long gets a part of it. *MiB* is what \
             a form computes of {PAPER_NUMBERS} numbers, where it is kept as in the paper: intervals, digits, places; here the \
             first two forms go through the array in chunks and keep none. The vector code is for SSE2, as in the library \
             that is distributed.\n\n\
             ![Time for a number](rns.svg)\n\n\
             | set | moduli | bits | numbers | interval, ns | mixed radix, ns | naive, ns | mixed radix / interval | \
             naive / interval | MiB: interval | mixed radix | naive |\n\
             |:---|---:|---:|:---|---:|---:|---:|---:|---:|---:|---:|---:|\n{rows}{}",
            self.revision,
            self.date,
            self.command,
            self.minutes,
            growth(&self.cases),
        )
    }

    pub fn json(&self) -> Result<String, String> {
        let Machine { model, cpus, memory_gb, load, .. } = &self.machine;
        let value = json!({
            "machine": { "model": model, "cpus": cpus, "memory_gb": memory_gb, "load": load },
            "date": self.date, "library": self.revision, "command": self.command, "minutes": self.minutes,
            "cases": self.cases,
        });
        serde_json::to_string_pretty(&value).map(|text| text + "\n").map_err(|error| error.to_string())
    }
}

/// A line of the table.
pub fn row(case: &Case) -> String {
    let figures = Form::ALL.map(|form| case.figure(form));
    let times = figures.map(|figure| figure.nanoseconds());
    let millions = figures.map(|figure| format!("{:.3}", figure.numbers as f64 * 1e-6));
    let memory =
        figures.map(|figure| format!("{:.1}", (figure.bytes * PAPER_NUMBERS) as f64 / f64::from(1 << 20)));
    let cells = [
        case.set.clone(),
        case.moduli.to_string(),
        case.bits.to_string(),
        millions.join(", "),
        times.map(|time| time.to_string()).join(" | "),
        format!("{:.1}", times[1] / times[0]),
        format!("{:.1}", times[2] / times[0]),
        memory.join(" | "),
    ];
    format!("| {} |", cells.join(" | "))
}

/// How the times grow from one set of the paper to the next, which has twice as many moduli.
fn growth(cases: &[Case]) -> String {
    let cases: Vec<&Case> = cases.iter().filter(|case| case.of_the_paper).collect();
    let mut text =
        "\nWhat twice as many moduli cost (2 is linear growth, 4 quadratic):\n\n| from, to |".to_owned();
    for form in Form::ALL {
        text += &format!(" {} |", form.title());
    }
    text += "\n|:---|---:|---:|---:|\n";
    for pair in cases.windows(2) {
        text += &format!("| {}, {} |", pair[0].moduli, pair[1].moduli);
        for form in Form::ALL {
            let times = [0, 1].map(|i| pair[i].figure(form).nanoseconds());
            text += &format!(" {:.2} |", times[1] / times[0]);
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::measure::Figure;

    /// A made-up case: linear and quadratic times.
    pub fn case(n: usize) -> Case {
        let figure = |form: Form| {
            let each = match form {
                Form::Interval => n as f64,
                Form::Radix => (n * n) as f64,
                Form::Naive => 2.0 * n as f64,
            };
            Figure {
                form,
                numbers: 1000,
                seconds: vec![each * 2e-6, each * 1e-6, each * 1e-9],
                bytes: form.bytes(n),
            }
        };
        let figures = Form::ALL.map(figure).to_vec();
        Case { set: "paper".to_owned(), of_the_paper: true, moduli: n, bits: 16 * n as u64, figures }
    }

    #[test]
    fn the_report_tells_ratios_and_growth() {
        let cases = vec![case(4), case(8)];
        let report = Report {
            machine: crate::facts::machine(false),
            date: "2030-01-01".to_owned(),
            revision: "abc".to_owned(),
            command: "scripts/bench rns".to_owned(),
            minutes: 1.0,
            cases,
        };
        let text = report.markdown();
        // The median of the rounds, 4 and 8 times as long by mixed radix, twice as long in the naive form.
        assert!(
            text.contains(
                "| paper | 4 | 64 | 0.001, 0.001, 0.001 | 4 | 16 | 8 | 4.0 | 2.0 | 114.4 | 76.3 | 19.1 |"
            ),
            "{text}"
        );
        assert!(text.contains("| 4, 8 | 2.00 | 4.00 | 2.00 |"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(value["cases"][1]["figures"][1]["form"], "radix");
    }
}

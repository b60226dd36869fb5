//! `oz2run --merge FILE...`: the statistics of several processes, as the ranks of an MPI program write them, added up.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use oz2blas::observe::format::{count, flops, percent, time};
use serde_json::Value;

/// Names of plain counts, in the order of the statistics; and of counts by name. docs/statistics.md explains them.
const COUNTS: [&str; 12] = [
    "calls",
    "emulated",
    "native",
    "flops",
    "strassen",
    "rows_native",
    "columns_native",
    "checked",
    "flagged",
    "repaired",
    "verified",
    "differing",
];
const GROUPS: [&str; 5] = ["engines", "moduli", "reasons", "plans", "calls_with_native_lines"];
const TOTALS: [&str; 2] = ["engine_totals", "reason_totals"];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    calls: u128,
    flops: u128,
    seconds: f64,
}

impl Total {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.flops += other.flops;
        self.seconds += other.seconds;
    }
}

/// Statistics of one process or of several.
#[derive(Debug, Default, PartialEq)]
struct Statistics {
    counts: [u128; COUNTS.len()],
    seconds: f64,
    groups: [BTreeMap<String, u128>; GROUPS.len()],
    totals: [BTreeMap<String, Total>; TOTALS.len()],
}

fn whole(value: &Value, name: &str) -> Result<u128, String> {
    value[name].as_u64().map(u128::from).ok_or_else(|| format!("no count {name}"))
}

fn seconds(value: &Value) -> Result<f64, String> {
    value["seconds"].as_f64().ok_or_else(|| "no seconds".to_owned())
}

impl Statistics {
    /// Or what is wrong with the text.
    fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        let version = value["version"].as_str().ok_or("not statistics of oz2blas")?;
        if version != env!("CARGO_PKG_VERSION") {
            return Err(format!("of version {version}, this is {}", env!("CARGO_PKG_VERSION")));
        }
        let mut out = Self { seconds: seconds(&value)?, ..Self::default() };
        for (to, name) in out.counts.iter_mut().zip(COUNTS) {
            *to = whole(&value, name)?;
        }
        let members = |name: &str| value[name].as_object().ok_or_else(|| format!("no object {name}"));
        for (to, name) in out.groups.iter_mut().zip(GROUPS) {
            let group = members(name)?;
            *to = group
                .keys()
                .map(|key| Ok((key.clone(), whole(&value[name], key)?)))
                .collect::<Result<_, String>>()?;
        }
        for (to, name) in out.totals.iter_mut().zip(TOTALS) {
            let total = |of: &Value| -> Result<Total, String> {
                Ok(Total { calls: whole(of, "calls")?, flops: whole(of, "flops")?, seconds: seconds(of)? })
            };
            let group = members(name)?;
            *to =
                group.iter().map(|(key, of)| Ok((key.clone(), total(of)?))).collect::<Result<_, String>>()?;
        }
        Ok(out)
    }

    fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.counts.iter_mut().zip(other.counts).for_each(|(to, more)| *to += more);
        for (to, more) in self.groups.iter_mut().zip(&other.groups) {
            more.iter().for_each(|(key, more)| *to.entry(key.clone()).or_default() += more);
        }
        for (to, more) in self.totals.iter_mut().zip(&other.totals) {
            more.iter().for_each(|(key, more)| to.entry(key.clone()).or_default().add(*more));
        }
    }

    fn count(&self, name: &str) -> u64 {
        let at = COUNTS.iter().position(|other| *other == name);
        at.map_or(0, |at| u64::try_from(self.counts[at]).unwrap_or(u64::MAX))
    }

    fn group(&self, name: &str) -> &BTreeMap<String, u128> {
        let at = GROUPS.iter().position(|other| *other == name);
        &self.groups[at.unwrap_or(0)]
    }

    /// Flops of emulated calls.
    fn emulated_flops(&self) -> f64 {
        self.totals[0].values().map(|total| total.flops as f64).sum()
    }

    /// One object, with the names of the statistics of a process, and `ranks`.
    fn json(&self, ranks: usize) -> String {
        let counts = COUNTS.iter().zip(self.counts).map(|(name, n)| format!(r#""{name}":{n}"#));
        let object = |name: &str, members: Vec<String>| format!(r#""{name}":{{{}}}"#, members.join(","));
        let groups = GROUPS.iter().zip(&self.groups).map(|(name, group)| {
            object(name, group.iter().map(|(key, n)| format!("{}:{n}", Value::from(key.as_str()))).collect())
        });
        let totals = TOTALS.iter().zip(&self.totals).map(|(name, group)| {
            let member = |(key, total): (&String, &Total)| {
                let Total { calls, flops, seconds } = total;
                let key = Value::from(key.as_str());
                format!(r#"{key}:{{"calls":{calls},"flops":{flops},"seconds":{seconds:.6}}}"#)
            };
            object(name, group.iter().map(member).collect())
        });
        let head = [
            format!(r#""version":"{}""#, env!("CARGO_PKG_VERSION")),
            r#""pid":null"#.to_owned(),
            format!(r#""ranks":{ranks}"#),
            format!(r#""seconds":{:.6}"#, self.seconds),
        ];
        let members: Vec<String> = head.into_iter().chain(counts).chain(groups).chain(totals).collect();
        format!("{{{}}}\n", members.join(","))
    }
}

/// "too small 200, no gain 34", the most frequent first.
fn list(group: &BTreeMap<String, u128>) -> String {
    let mut members: Vec<(&String, &u128)> = group.iter().collect();
    members.sort_by(|a, b| b.1.cmp(a.1));
    let texts: Vec<String> = members
        .iter()
        .map(|(key, n)| format!("{key}: {}", count(u64::try_from(**n).unwrap_or(u64::MAX))))
        .collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join("; ") }
}

fn summary(out: &mut String, all: &Statistics, ranks: &[(&Path, Statistics)]) -> std::fmt::Result {
    let n = |name: &str| count(all.count(name));
    let emulated = all.emulated_flops() / all.count("flops") as f64;
    writeln!(out, "ranks        {}", ranks.len())?;
    writeln!(out, "calls        {}: {} emulated, {} native", n("calls"), n("emulated"), n("native"))?;
    writeln!(out, "flops        {}, {} emulated", flops(all.count("flops") as f64), percent(emulated))?;
    writeln!(out, "time         {} in DGEMM, over all ranks", time(all.seconds))?;
    let order = |a: &&(&Path, Statistics), b: &&(&Path, Statistics)| a.1.seconds.total_cmp(&b.1.seconds);
    if let (2.., Some(slowest), Some(fastest)) =
        (ranks.len(), ranks.iter().max_by(order), ranks.iter().min_by(order))
    {
        for (name, (file, rank)) in [("slowest", slowest), ("fastest", fastest)] {
            writeln!(
                out,
                "{name}      {}, {} calls: {}",
                time(rank.seconds),
                count(rank.count("calls")),
                file.display()
            )?;
        }
        let mean = all.seconds / ranks.len() as f64;
        let imbalance = if mean > 0.0 { slowest.1.seconds / mean } else { 1.0 };
        writeln!(out, "imbalance    {imbalance:.2}, the slowest rank divided by the mean")?;
    }
    for (name, of) in
        [("engines", "engines"), ("moduli", "moduli"), ("plans", "plans"), ("reasons", "reasons")]
    {
        writeln!(out, "{name:<12} {}", list(all.group(of)))?;
    }
    writeln!(out, "strassen     {} calls with levels of it", n("strassen"))?;
    writeln!(
        out,
        "native lines {} rows and {} columns of emulated calls",
        n("rows_native"),
        n("columns_native")
    )?;
    writeln!(
        out,
        "self-check   {} calls, {} tiles flagged, {} repaired",
        n("checked"),
        n("flagged"),
        n("repaired")
    )?;
    writeln!(out, "verified     {} calls, {} differing", n("verified"), n("differing"))
}

/// The summary, or the sum as JSON, of the files that can be read; and a line for each of the others.
pub fn report(files: &[PathBuf], json: bool) -> (String, Vec<String>) {
    let (mut ranks, mut bad, mut all) = (Vec::new(), Vec::new(), Statistics::default());
    for file in files {
        let read = std::fs::read_to_string(file).map_err(|error| format!("cannot read it: {error}"));
        match read.and_then(|text| Statistics::parse(&text)) {
            Ok(statistics) => {
                all.add(&statistics);
                ranks.push((file.as_path(), statistics));
            }
            Err(why) => bad.push(format!("{}: {why}", file.display())),
        }
    }
    let mut out = String::new();
    if json && !ranks.is_empty() {
        out = all.json(ranks.len());
    } else if !ranks.is_empty() {
        // Writing to a String cannot fail.
        let _ = summary(&mut out, &all, &ranks);
    }
    (out, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_library_writes_can_be_read_and_comes_back() {
        let own = Statistics::parse(&oz2blas::observe::stats::json()).unwrap();
        let mut all = Statistics::default();
        all.add(&own);
        assert_eq!(all, own);
        let again = own.json(1).replace("null", "1");
        assert_eq!(Statistics::parse(&again).unwrap(), own);
    }

    #[test]
    fn other_texts_are_told() {
        let of = |text: &str| Statistics::parse(text).unwrap_err();
        assert!(of("{").starts_with("not JSON"));
        assert_eq!(of("[1]"), "not statistics of oz2blas");
        assert_eq!(of(r#"{"version":"9"}"#), format!("of version 9, this is {}", env!("CARGO_PKG_VERSION")));
        assert_eq!(of(&oz2blas::observe::stats::json().replace("differing", "x")), "no count differing");
    }
}

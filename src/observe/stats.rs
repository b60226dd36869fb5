//! The statistics as JSON, and the file that OZ2_STATS asks for.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};

use super::counters::{self, Group};
use super::log::{self, Kind, Level};
use crate::ozaki::plan::Way;
use crate::route::Reason;

/// A JSON object of name: value.
pub(super) fn object<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = pairs.map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
    format!("{{{}}}", members.join(","))
}

fn sum(groups: &[Group]) -> Group {
    groups.iter().fold(Group::default(), |a, b| Group {
        calls: a.calls + b.calls,
        flops: a.flops + b.flops,
        seconds: a.seconds + b.seconds,
    })
}

/// The statistics of this process. `calls` counts outermost calls: calls that a BLAS makes inside another GEMM appear in
/// `reasons` as "nested" and nowhere else.
pub fn json() -> String {
    let s = counters::snapshot();
    let mut outermost = s.reasons;
    outermost[Reason::Nested as usize] = Group::default();
    let (emulated, native) = (sum(&s.engines), sum(&outermost));
    let group =
        |g: &Group| format!(r#"{{"calls":{},"flops":{},"seconds":{:.6}}}"#, g.calls, g.flops, g.seconds);
    let engines = crate::engine::NAMES.iter().copied().zip(&s.engines).filter(|(_, g)| g.calls > 0);
    let reasons = Reason::ALL.iter().map(|r| r.name()).zip(&s.reasons).filter(|(_, g)| g.calls > 0);
    let moduli: Vec<(String, u64)> =
        s.moduli.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(n, &c)| (n.to_string(), c)).collect();
    let ways = Way::ALL.iter().map(|way| way.name()).zip(s.ways).filter(|&(_, n)| n > 0);
    let native_lines = [(Reason::NonFinite, s.not_finite), (Reason::NotProvable, s.not_provable)];
    let native_lines = native_lines.iter().map(|&(reason, n)| (reason.name(), n)).filter(|&(_, n)| n > 0);
    let members = [
        ("version", format!(r#""{}""#, env!("CARGO_PKG_VERSION"))),
        ("pid", std::process::id().to_string()),
        ("calls", (emulated.calls + native.calls).to_string()),
        ("emulated", emulated.calls.to_string()),
        ("native", native.calls.to_string()),
        ("flops", (emulated.flops + native.flops).to_string()),
        ("seconds", format!("{:.6}", emulated.seconds + native.seconds)),
        ("engines", object(engines.clone().map(|(name, g)| (name, g.calls.to_string())))),
        ("moduli", object(moduli.iter().map(|(n, c)| (n.as_str(), c.to_string())))),
        ("reasons", object(reasons.clone().map(|(name, g)| (name, g.calls.to_string())))),
        ("rows_native", s.rows_native.to_string()),
        ("columns_native", s.columns_native.to_string()),
        ("checked", s.checked.to_string()),
        ("flagged", s.flagged.to_string()),
        ("repaired", s.repaired.to_string()),
        ("verified", s.verified.to_string()),
        ("differing", s.differing.to_string()),
        ("plans", object(ways.map(|(name, n)| (name, n.to_string())))),
        ("calls_with_native_lines", object(native_lines.map(|(name, n)| (name, n.to_string())))),
        ("engine_totals", object(engines.map(|(name, g)| (name, group(g))))),
        ("reason_totals", object(reasons.map(|(name, g)| (name, group(g))))),
    ];
    object(members.into_iter())
}

/// The MPI rank as the usual launchers tell it, "0" without one.
fn rank() -> String {
    let names = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];
    names.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "0".to_owned())
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or("unknown".to_owned(), |name| name.trim().to_owned())
}

/// A file name pattern with %h host, %p process, %r rank and %% filled in.
pub fn expand(pattern: &str) -> String {
    let mut out = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '%' { rest.next() } else { None }) {
            ('%', Some('h')) => out.push_str(&host()),
            ('%', Some('p')) => out.push_str(&std::process::id().to_string()),
            ('%', Some('r')) => out.push_str(&rank()),
            ('%', Some('%')) => out.push('%'),
            ('%', Some(other)) => out.extend(['%', other]),
            (c, _) => out.push(c),
        }
    }
    out
}

/// A new file whose name is made from a pattern, and that name; an existing file is left and .1, .2, ... appended instead.
pub fn create(pattern: &str) -> Result<(File, String), String> {
    let name = expand(pattern);
    let candidates = std::iter::once(name.clone()).chain((1..10_000).map(|n| format!("{name}.{n}")));
    for candidate in candidates {
        match OpenOptions::new().write(true).create_new(true).open(&candidate) {
            Ok(file) => return Ok((file, candidate)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot write {candidate}: {error}")),
        }
    }
    Err(format!("cannot write {name}: too many files of this name"))
}

/// Writes the statistics to stderr or to a new file.
pub fn write(target: &str) {
    let text = json() + "\n";
    if target.eq_ignore_ascii_case("stderr") {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    }
    let written = create(target).and_then(|(mut file, name)| {
        file.write_all(text.as_bytes()).map_err(|error| format!("cannot write {name}: {error}"))
    });
    if let Err(error) = written {
        log::capped(Kind::StatsFile, Level::Warn, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_filled_in() {
        let pid = std::process::id();
        assert_eq!(expand("a%p.json"), format!("a{pid}.json"));
        assert_eq!(expand("100%%%q%"), "100%%q%");
        assert!(!expand("%h").is_empty());
    }
}

//! The statistics as JSON.

use std::fmt::{self, Display, Write};

use super::counters::{self, Group, Snapshot};
use crate::ozaki::plan::Way;
use crate::route::Reason;

/// A JSON object of name: value.
pub(super) fn object<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_object(&mut text, pairs);
    text
}

fn write_object<K: Display, V: Display>(
    out: &mut dyn Write,
    pairs: impl Iterator<Item = (K, V)>,
) -> fmt::Result {
    out.write_char('{')?;
    for (at, (name, value)) in pairs.enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(out, r#"{comma}"{name}":{value}"#)?;
    }
    out.write_char('}')
}

fn sum(groups: &[Group]) -> Group {
    groups.iter().fold(Group::default(), |a, b| Group {
        calls: a.calls + b.calls,
        flops: a.flops + b.flops,
        seconds: a.seconds + b.seconds,
    })
}

/// A group as a JSON object.
struct Shown<'a>(&'a Group);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Group { calls, flops, seconds } = self.0;
        write!(f, r#"{{"calls":{calls},"flops":{flops},"seconds":{seconds:.6}}}"#)
    }
}

impl Snapshot {
    pub fn emulated(&self) -> Group {
        sum(&self.engines)
    }

    /// Outermost calls that the native BLAS computed.
    pub fn native(&self) -> Group {
        let mut outermost = self.reasons;
        outermost[Reason::Nested as usize] = Group::default();
        sum(&outermost)
    }
}

/// The statistics of a process. `calls` counts outermost calls: calls that a BLAS makes inside another GEMM appear in `reasons` as
/// "nested" and nowhere else. Allocates nothing.
pub fn write(out: &mut dyn Write, s: &Snapshot) -> fmt::Result {
    let (emulated, native) = (s.emulated(), s.native());
    let engines = || crate::engine::NAMES.iter().zip(&s.engines).filter(|(_, g)| g.calls > 0);
    let reasons = || Reason::ALL.iter().map(|r| r.name()).zip(&s.reasons).filter(|(_, g)| g.calls > 0);
    let moduli = s.moduli.iter().enumerate().filter(|&(_, &calls)| calls > 0);
    let ways = Way::ALL.iter().map(|way| way.name()).zip(s.ways).filter(|&(_, calls)| calls > 0);
    let lines = [(Reason::NonFinite, s.not_finite), (Reason::NotProvable, s.not_provable)];
    let lines = lines.iter().map(|&(reason, calls)| (reason.name(), calls)).filter(|&(_, calls)| calls > 0);
    write!(out, r#"{{"version":"{}","pid":{}"#, env!("CARGO_PKG_VERSION"), std::process::id())?;
    let numbers = [
        ("calls", emulated.calls + native.calls),
        ("emulated", emulated.calls),
        ("native", native.calls),
        ("flops", emulated.flops + native.flops),
    ];
    numbers.iter().try_for_each(|(name, value)| write!(out, r#","{name}":{value}"#))?;
    write!(out, r#","seconds":{:.6},"engines":"#, emulated.seconds + native.seconds)?;
    write_object(out, engines().map(|(name, g)| (name, g.calls)))?;
    out.write_str(r#","moduli":"#)?;
    write_object(out, moduli)?;
    out.write_str(r#","reasons":"#)?;
    write_object(out, reasons().map(|(name, g)| (name, g.calls)))?;
    let numbers = [
        ("strassen", s.strassen),
        ("rows_native", s.rows_native),
        ("columns_native", s.columns_native),
        ("checked", s.checked),
        ("flagged", s.flagged),
        ("repaired", s.repaired),
        ("verified", s.verified),
        ("differing", s.differing),
    ];
    numbers.iter().try_for_each(|(name, value)| write!(out, r#","{name}":{value}"#))?;
    out.write_str(r#","plans":"#)?;
    write_object(out, ways)?;
    out.write_str(r#","calls_with_native_lines":"#)?;
    write_object(out, lines)?;
    out.write_str(r#","engine_totals":"#)?;
    write_object(out, engines().map(|(name, g)| (name, Shown(g))))?;
    out.write_str(r#","reason_totals":"#)?;
    write_object(out, reasons().map(|(name, g)| (name, Shown(g))))?;
    out.write_char('}')
}

/// The statistics of this process at this moment.
pub fn json() -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, &counters::snapshot());
    text
}

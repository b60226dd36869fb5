//! Failures on order: `NAME@N=CODE` makes the N-th call of an entry point return CODE instead of doing its work.

use std::collections::BTreeMap;

use crate::status::Status;

/// One ordered failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// An entry point; `launch:KERNEL`, `launch:gemm` or `launch:dgemm` for work as it is carried out; or `*`, every call and
    /// every launch counted together.
    pub name: String,
    /// Which call of it, from 1 on.
    pub first: u64,
    /// Every later one too.
    pub onwards: bool,
    pub code: Status,
    /// The device stays lost afterwards.
    pub lost: bool,
}

/// Reads `name@n=code`, comma separated; `@n` may be left out (the first call), `@n+` is every call from the n-th on, and `!`
/// behind the code leaves the device lost.
pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(|part| one(part.trim())).collect()
}

fn one(text: &str) -> Result<Fault, String> {
    let wrong = || format!("`{text}` is not name@n=code, name@n+=code or one of these with ! behind it");
    let (name, code) = text.split_once('=').ok_or_else(wrong)?;
    let (name, count) = name.split_once('@').unwrap_or((name, "1"));
    let (count, onwards) = count.strip_suffix('+').map_or((count, false), |count| (count, true));
    let (code, lost) = code.strip_suffix('!').map_or((code, false), |code| (code, true));
    let first = count.parse().ok().filter(|&n: &u64| n > 0).ok_or_else(wrong)?;
    let code = code.parse().ok().filter(|&code: &Status| code != 0).ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    Ok(Fault { name: name.to_owned(), first, onwards, code, lost })
}

/// The failures ordered, and how often everything was called since they were.
#[derive(Default)]
pub struct Faults {
    ordered: Vec<Fault>,
    counts: BTreeMap<String, u64>,
}

impl Faults {
    pub fn new(ordered: Vec<Fault>) -> Faults {
        Faults { ordered, counts: BTreeMap::new() }
    }

    /// Counts a call; the failure that is due now, with whether the device stays lost.
    pub fn count(&mut self, name: &str) -> Option<(Status, bool)> {
        let mut counts = [0, 0];
        for (key, slot) in [name, "*"].into_iter().zip(&mut counts) {
            if let Some(count) = self.counts.get_mut(key) {
                *count += 1;
                *slot = *count;
            } else {
                self.counts.insert(key.to_owned(), 1);
                *slot = 1;
            }
        }
        let due = self.ordered.iter().find(|fault| {
            let count = if fault.name == "*" { counts[1] } else { counts[0] };
            (fault.name == "*" || fault.name == name)
                && (count == fault.first || fault.onwards && count > fault.first)
        })?;
        Some((due.code, due.lost))
    }

    /// One line `name count` for everything that was called.
    pub fn report(&self) -> String {
        self.counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect()
    }
}

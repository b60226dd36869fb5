//! Made-up measurements for the tests.

use crate::facts::machine;
use crate::record::{Case, Entrant, Note, Turn};
use crate::report::Report;

/// A contender with turns of so many seconds (half of it CPU time) at so many TOPS.
pub fn entrant(name: &str, turns: &[(f64, f64)]) -> Entrant {
    let turn = |&(wall, tops): &(f64, f64)| Turn {
        wall,
        cpu: Some(wall / 2.0),
        before: Some(tops),
        after: Some(tops),
    };
    Entrant {
        name: name.to_owned(),
        calls: 1,
        turns: turns.iter().map(turn).collect(),
        notes: Vec::new(),
        backward_error: None,
    }
}

/// The same, with what the library said about each turn.
pub fn noted(entrant: Entrant, note: &Note) -> Entrant {
    Entrant { notes: vec![note.clone(); entrant.turns.len()], ..entrant }
}

pub fn report(cases: Vec<Case>) -> Report {
    Report {
        machine: machine(true),
        date: "2030-01-01".to_owned(),
        command: "scripts/bench cpu".to_owned(),
        native: crate::record::OPENBLAS,
        minutes: 1.0,
        environment: Default::default(),
        versions: Default::default(),
        cases,
    }
}

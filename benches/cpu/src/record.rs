//! What is measured, as it travels from the child processes to the report and into cpu.json.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::amx::State;
use crate::facts::short;

/// The names of the contenders.
pub const OPENBLAS: &str = "OpenBLAS";
pub const MKL: &str = "MKL";
pub const BUILTIN: &str = "builtin";
pub const OURS: &str = "oz2";
pub const PEERS: [&str; 2] = [OPENBLAS, MKL];

/// One turn of one contender: seconds for one call, and the TOPS of the tile unit before and after.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "TurnFields", into = "TurnFields")]
pub struct Turn {
    pub wall: f64,
    /// CPU time of the thread; only where one thread does everything.
    pub cpu: Option<f64>,
    pub before: Option<f64>,
    pub after: Option<f64>,
}

/// A turn as a short array.
type TurnFields = (f64, Option<f64>, Option<f64>, Option<f64>);

impl From<TurnFields> for Turn {
    fn from((wall, cpu, before, after): TurnFields) -> Self {
        Self { wall, cpu, before, after }
    }
}

impl From<Turn> for TurnFields {
    fn from(turn: Turn) -> Self {
        (short(turn.wall), turn.cpu.map(short), turn.before.map(short), turn.after.map(short))
    }
}

impl Turn {
    pub fn state(&self) -> State {
        State::of(self.before, self.after)
    }

    pub fn seconds(&self, clock: Clock) -> Option<f64> {
        match clock {
            Clock::Wall => Some(self.wall),
            Clock::Cpu => self.cpu,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    Wall,
    Cpu,
}

/// What a contender tells about a turn. Only our own library has something to tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Note {
    /// Where the call went and why.
    pub route: String,
    /// Seconds of each phase of the emulation of the last call, where the library says so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, f64>,
}

impl Note {
    pub fn is_emulated(&self) -> bool {
        self.route.starts_with("emulated")
    }
}

/// One contender in one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entrant {
    pub name: String,
    /// Calls in a turn.
    pub calls: usize,
    pub turns: Vec<Turn>,
    /// One for each turn, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// ||P A - L U|| / (n ||A|| u) of the last LU factorisation, in largest entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_error: Option<f64>,
}

impl Entrant {
    /// The notes of the turns in a state.
    pub fn notes_in(&self, state: State) -> impl Iterator<Item = &Note> {
        let pairs = self.turns.iter().zip(&self.notes);
        pairs.filter(move |(turn, _)| turn.state() == state).map(|(_, note)| note)
    }
}

/// What the contenders compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// C = A B, C being m x n.
    Gemm { m: usize, n: usize, k: usize },
    /// The factorisation of an n x n matrix, `block` columns at a time.
    Lu { n: usize, block: usize },
}

impl Task {
    pub fn flops(&self) -> f64 {
        match *self {
            Task::Gemm { m, n, k } => 2.0 * m as f64 * n as f64 * k as f64,
            Task::Lu { n, .. } => 2.0 / 3.0 * (n as f64).powi(3),
        }
    }

    pub fn label(&self) -> String {
        match *self {
            Task::Gemm { m, n, k } => format!("{m} x {n} x {k}"),
            Task::Lu { n, block } => format!("n = {n}, blocks of {block}"),
        }
    }

    /// n of a square product.
    pub fn square(&self) -> Option<usize> {
        match *self {
            Task::Gemm { m, n, k } if m == n && n == k => Some(n),
            _ => None,
        }
    }

    pub fn is_lu(&self) -> bool {
        matches!(self, Task::Lu { .. })
    }
}

/// One task with a number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    pub task: Task,
    pub threads: usize,
    pub entrants: Vec<Entrant>,
}

impl Case {
    pub fn entrant(&self, name: &str) -> Option<&Entrant> {
        self.entrants.iter().find(|entrant| entrant.name == name)
    }

    /// The states that any turn was in, best first.
    pub fn states(&self) -> Vec<State> {
        let is_there = |state: &State| {
            self.entrants.iter().flat_map(|entrant| &entrant.turns).any(|turn| turn.state() == *state)
        };
        State::ALL.into_iter().filter(is_there).collect()
    }

    /// The clock of the main figures: CPU time where it was taken, since it does not count what other programs did meanwhile.
    pub fn clock(&self) -> Clock {
        if self.threads == 1 { Clock::Cpu } else { Clock::Wall }
    }
}

/// What one process found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub versions: BTreeMap<String, String>,
    pub cases: Vec<Case>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits() {
        assert_eq!([short(1.23456e-5), short(98765.0), short(0.0)], [1.235e-5, 98770.0, 0.0]);
    }

    #[test]
    fn a_turn_is_a_short_array() {
        let text = "[0.5,null,3.0,4.0]";
        let turn: Turn = serde_json::from_str(text).unwrap();
        assert_eq!((turn.wall, turn.cpu, turn.state()), (0.5, None, State::Fast));
        assert_eq!(serde_json::to_string(&turn).unwrap(), text);
    }
}

//! Contenders take turns; every turn stands between two probes of the tile unit.

use std::time::Duration;

use crate::amx::Probe;
use crate::clock;
use crate::record::{Entrant, Note, Turn};

/// What the contenders do in their turns.
pub trait Work {
    /// Before each call, outside the clock, if calls cannot simply be repeated.
    fn prepare(&mut self, _entrant: usize) {}

    /// One call.
    fn call(&mut self, entrant: usize);

    /// After a turn, outside the clock.
    fn note(&mut self, _entrant: usize) -> Option<Note> {
        None
    }

    /// A call may be repeated without prepare().
    fn repeatable(&self) -> bool;
}

/// How long and how often.
pub struct Rules {
    pub threads: usize,
    pub seconds: f64,
    pub rounds: usize,
    pub probe: Probe,
}

/// A case gets so many rounds even if they last longer than they should.
const LEAST_ROUNDS: usize = 3;
/// Small products are timed in batches, so that the clock does not count.
const BATCH_SECONDS: f64 = 0.01;
const LARGEST_BATCH: f64 = 2000.0;
/// A call shorter than this is made once before the clock starts: caches and threads are then as its own library left them.
const WARM_SECONDS: f64 = 0.02;
/// Libraries keep their threads spinning after a call; the next contender would share the cores with them.
const REST: Duration = Duration::from_millis(300);

struct Pace {
    /// Seconds of one call, about.
    estimate: f64,
    calls: usize,
}

/// Runs the rounds.
pub fn race(names: &[&str], work: &mut impl Work, rules: &Rules) -> Vec<Entrant> {
    let paces: Vec<Pace> = (0..names.len()).map(|entrant| pace(work, entrant, rules)).collect();
    let mut entrants: Vec<Entrant> = names
        .iter()
        .zip(&paces)
        .map(|(name, pace)| Entrant {
            name: (*name).to_owned(),
            calls: pace.calls,
            turns: Vec::new(),
            notes: Vec::new(),
            backward_error: None,
        })
        .collect();
    let start = clock::wall();
    for round in 0..rules.rounds.max(LEAST_ROUNDS) {
        if round >= LEAST_ROUNDS && clock::wall() - start > rules.seconds {
            break;
        }
        for place in 0..names.len() {
            // Another one begins each round, so that nobody always comes after the same neighbour's heat.
            let entrant = (place + round) % names.len();
            let turn = turn(work, entrant, &paces[entrant], rules);
            entrants[entrant].turns.push(turn);
            entrants[entrant].notes.extend(work.note(entrant));
        }
    }
    entrants
}

/// Calls a contender until it is warm, and finds out how many calls make a turn.
fn pace(work: &mut impl Work, entrant: usize, rules: &Rules) -> Pace {
    let mut estimate = f64::INFINITY;
    rest(rules);
    for _ in 0..3 {
        work.prepare(entrant);
        let start = clock::wall();
        work.call(entrant);
        estimate = estimate.min(clock::wall() - start);
        if estimate > WARM_SECONDS {
            break;
        }
    }
    let batch = if work.repeatable() { (BATCH_SECONDS / estimate).clamp(1.0, LARGEST_BATCH) } else { 1.0 };
    Pace { estimate, calls: batch as usize }
}

fn turn(work: &mut impl Work, entrant: usize, pace: &Pace, rules: &Rules) -> Turn {
    rest(rules);
    if pace.estimate < WARM_SECONDS {
        work.prepare(entrant);
        work.call(entrant);
    }
    work.prepare(entrant);
    let before = rules.probe.tops();
    let (wall, cpu) = (clock::wall(), clock::thread());
    for _ in 0..pace.calls {
        work.call(entrant);
    }
    let (cpu, wall) = (clock::thread() - cpu, clock::wall() - wall);
    let after = rules.probe.tops();
    let calls = pace.calls as f64;
    Turn { wall: wall / calls, cpu: (rules.threads == 1).then_some(cpu / calls), before, after }
}

fn rest(rules: &Rules) {
    if rules.threads > 1 {
        std::thread::sleep(REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count {
        calls: Vec<usize>,
        notes: usize,
    }

    impl Work for Count {
        fn call(&mut self, entrant: usize) {
            self.calls[entrant] += 1;
            std::thread::sleep(Duration::from_millis(2));
        }

        fn note(&mut self, entrant: usize) -> Option<Note> {
            self.notes += usize::from(entrant == 1);
            (entrant == 1).then(Note::default)
        }

        fn repeatable(&self) -> bool {
            true
        }
    }

    #[test]
    fn everybody_has_a_turn_in_each_round() {
        let mut work = Count { calls: vec![0; 2], notes: 0 };
        let rules = Rules { threads: 1, seconds: 0.0, rounds: 9, probe: Probe::new(1) };
        let entrants = race(&["a", "b"], &mut work, &rules);
        for (place, entrant) in entrants.iter().enumerate() {
            assert_eq!(entrant.turns.len(), LEAST_ROUNDS);
            assert!((2..=5).contains(&entrant.calls), "{}", entrant.calls);
            assert_eq!(work.calls[place], 3 + LEAST_ROUNDS * (1 + entrant.calls));
            assert!(entrant.turns.iter().all(|turn| turn.wall > 0.0019 && turn.cpu.unwrap() < turn.wall));
        }
        assert_eq!((entrants[0].notes.len(), entrants[1].notes.len(), work.notes), (0, 3, 3));
    }
}

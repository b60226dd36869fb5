//! Figures for one case in one state of the tile unit.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::amx::State;
use crate::facts::short;
use crate::record::{BUILTIN, Case, Clock, Entrant, OPENBLAS, OURS, PEERS};

/// The fast quintile: what a contender reaches when little disturbs it.
const QUINTILE: f64 = 0.2;

/// Seconds of one call of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub turns: usize,
    pub median: f64,
    pub quintile: f64,
    pub best: f64,
}

/// Speed against a peer, mostly the one with the smaller median; above 1 we are faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub peer: String,
    /// Median over the rounds in which both were in the state.
    pub median: Option<f64>,
    pub rounds: usize,
    /// The best turn of the peers by our best turn.
    pub best: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub state: State,
    pub clock: Clock,
    pub figures: BTreeMap<String, Figure>,
    pub ratio: Option<Ratio>,
    /// Against OpenBLAS, to which our library passes what it does not emulate.
    pub openblas_ratio: Option<Ratio>,
    pub builtin_ratio: Option<Ratio>,
    /// Median seconds of the phases of the emulation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, f64>,
}

impl Summary {
    pub fn of(case: &Case, state: State, clock: Clock) -> Self {
        let figure = |entrant: &Entrant| Some((entrant.name.clone(), figure(entrant, state, clock)?));
        let figures: BTreeMap<_, _> = case.entrants.iter().filter_map(figure).collect();
        let ratio = |name, peers| ratio(case, name, peers, &figures, state, clock);
        let (builtin_ratio, openblas_ratio) = (ratio(BUILTIN, &PEERS), ratio(OURS, &[OPENBLAS]));
        let ratio = ratio(OURS, &PEERS);
        let phases = case.entrant(OURS).map(|entrant| phases(entrant, state)).unwrap_or_default();
        Self { state, clock, figures, ratio, openblas_ratio, builtin_ratio, phases }
    }
}

fn figure(entrant: &Entrant, state: State, clock: Clock) -> Option<Figure> {
    let turns = entrant.turns.iter().filter(|turn| turn.state() == state);
    let times: Vec<f64> = turns.filter_map(|turn| turn.seconds(clock)).collect();
    Some(Figure {
        turns: times.len(),
        median: short(quantile(&times, 0.5)?),
        quintile: short(quantile(&times, QUINTILE)?),
        best: short(quantile(&times, 0.0)?),
    })
}

fn ratio(
    case: &Case,
    name: &str,
    peers: &[&str],
    figures: &BTreeMap<String, Figure>,
    state: State,
    clock: Clock,
) -> Option<Ratio> {
    let own = figures.get(name)?;
    let peers = || peers.iter().filter_map(|peer| Some((*peer, figures.get(*peer)?)));
    // By the medians, and not round by round: that would favour the peers, as the smaller of two noisy times.
    let (peer, _) = peers().min_by(|x, y| x.1.median.total_cmp(&y.1.median))?;
    let best = peers().map(|(_, figure)| figure.best).fold(f64::INFINITY, f64::min) / own.best;
    let pairs = case.entrant(peer)?.turns.iter().zip(&case.entrant(name)?.turns);
    let both = pairs.filter(|(theirs, ours)| theirs.state().of_pair(ours.state()) == state);
    let ratios: Vec<f64> =
        both.filter_map(|(theirs, ours)| Some(theirs.seconds(clock)? / ours.seconds(clock)?)).collect();
    Some(Ratio {
        peer: (*peer).to_owned(),
        median: quantile(&ratios, 0.5).map(short),
        rounds: ratios.len(),
        best: short(best),
    })
}

fn phases(entrant: &Entrant, state: State) -> BTreeMap<String, f64> {
    let mut lists: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, seconds) in entrant.notes_in(state).flat_map(|note| &note.phases) {
        lists.entry(name).or_default().push(*seconds);
    }
    let median = |(name, times): (&str, Vec<f64>)| Some((name.to_owned(), short(quantile(&times, 0.5)?)));
    lists.into_iter().filter_map(median).collect()
}

/// The q-quantile, linear between neighbours; None of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = q * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    Some(sorted[low] + (place - low as f64) * (sorted[high] - sorted[low]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MKL, Task};
    use crate::sample::entrant;

    #[test]
    fn quantiles() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.1), Some(1.4));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn states_are_kept_apart_and_ratios_compare_turns_of_one_round() {
        let case = Case {
            task: Task::Gemm { m: 1, n: 1, k: 1 },
            threads: 1,
            entrants: vec![
                entrant(OPENBLAS, &[(2.0, 5.0), (4.0, 5.0), (3.0, 1.0), (3.0, 5.0)]),
                entrant(MKL, &[(5.0, 5.0), (1.5, 5.0), (5.0, 1.0), (5.0, 5.0)]),
                entrant(OURS, &[(1.0, 5.0), (1.0, 5.0), (6.0, 1.0), (6.0, 1.0)]),
            ],
        };
        assert_eq!(case.states(), [State::Fast, State::Slow]);
        let fast = Summary::of(&case, State::Fast, Clock::Wall);
        let ratio = fast.ratio.unwrap();
        assert_eq!((ratio.peer.as_str(), ratio.rounds, ratio.median), (OPENBLAS, 2, Some(3.0)));
        assert_eq!((ratio.best, fast.openblas_ratio.unwrap().best), (1.5, 2.0));
        assert_eq!(fast.figures[OURS].turns, 2);
        let slow = Summary::of(&case, State::Slow, Clock::Cpu);
        assert_eq!(slow.ratio.unwrap().median, Some(0.5));
        assert_eq!(slow.figures[OURS].median, 3.0);
    }
}

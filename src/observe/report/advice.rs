//! What to change to gain more: sentences made from the data by rules.

use super::class::Size;
use super::data::{Data, Row};
use super::rules::RULES;
use crate::observe::format::count;
use crate::route::Reason;

/// A sentence or two as plain text, and the seconds of the calls that it is about.
#[derive(Debug)]
pub struct Advice {
    pub text: String,
    pub seconds: f64,
    /// Something is wrong, rather than slow.
    pub is_warning: bool,
}

/// Calls of some rows, and their shapes.
pub struct Group<'a> {
    pub rows: Vec<&'a Row>,
    pub calls: u64,
    pub seconds: f64,
}

impl<'a> Group<'a> {
    /// None where there are no calls.
    pub fn of(rows: Vec<&'a Row>) -> Option<Self> {
        let calls: u64 = rows.iter().map(|row| row.class.sums.calls).sum();
        let seconds = rows.iter().map(|row| row.seconds()).sum();
        (calls > 0).then_some(Self { rows, calls, seconds })
    }

    pub fn native(data: &'a Data, reason: Reason) -> Option<Self> {
        Self::of(data.native_for(reason))
    }

    /// "412 calls of 96 x 96 x 96", or with the most frequent of several shapes.
    pub fn named(&self) -> String {
        let calls =
            if self.calls == 1 { "1 call".to_owned() } else { format!("{} calls", count(self.calls)) };
        let most = self.rows.iter().max_by_key(|row| (row.class.sums.calls, row.class.sums.nanoseconds));
        match most.map(|row| (row.class.size, row.class.sums.calls)) {
            Some((Size::Shape(m, n, k), _)) if self.rows.len() == 1 && m > 0 => {
                format!("{calls} of {m} x {n} x {k}")
            }
            Some((Size::Shape(m, n, k), most)) if m > 0 && most > 1 => {
                format!("{calls} (among them {m} x {n} x {k}, {} times)", count(most))
            }
            Some(_) if self.rows.len() > 1 => format!("{calls} of {} shapes", count(self.rows.len() as u64)),
            _ => calls,
        }
    }

    pub fn are(&self) -> &'static str {
        if self.calls == 1 { "is" } else { "are" }
    }

    pub fn were(&self) -> &'static str {
        if self.calls == 1 { "was" } else { "were" }
    }

    pub fn advice(&self, text: String) -> Advice {
        Advice { text, seconds: self.seconds, is_warning: false }
    }

    pub fn warning(&self, text: String) -> Advice {
        Advice { is_warning: true, ..self.advice(text) }
    }
}

/// What is wrong first, then what takes longest.
pub fn all(data: &Data) -> Vec<Advice> {
    let mut found: Vec<Advice> = RULES.iter().filter_map(|rule| rule(data)).collect();
    found.sort_by(|a, b| {
        (b.is_warning, b.seconds).partial_cmp(&(a.is_warning, a.seconds)).unwrap_or(std::cmp::Ordering::Equal)
    });
    if found.is_empty() {
        let text = "Nothing: every call that is worth it was emulated.".to_owned();
        found.push(Advice { text, seconds: 0.0, is_warning: false });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::class::Fate;
    use super::super::data::tests::{data, emulated, native};
    use super::*;
    use crate::options::Mode;

    /// The advice for such calls, the heaviest first.
    fn of(rows: Vec<Row>, options: &[(&str, &str)]) -> Vec<String> {
        all(&data(rows, options)).into_iter().map(|advice| advice.text).collect()
    }

    #[track_caller]
    fn says(rows: Vec<Row>, options: &[(&str, &str)], words: &[&str]) {
        let found = of(rows, options);
        let has = |text: &&String| words.iter().all(|word| text.contains(word));
        assert_eq!(found.iter().filter(has).count(), 1, "{words:?} in {found:#?}");
    }

    #[test]
    fn each_reason_has_its_advice() {
        use Reason::*;
        let call = |reason| vec![native(96, 96, 96, 412, 1.0, reason)];
        let named = "412 calls of 96 x 96 x 96";
        says(
            call(TooSmall),
            &[],
            &[named, "below the threshold: nothing to gain there on this machine", "100 %"],
        );
        says(call(TooSmall), &[("MIN_SIZE", "100")], &[named, "below OZ2_MIN_SIZE=100"]);
        says(call(Disabled), &[("MODE", "native")], &["Everything was native because of OZ2_MODE=native"]);
        says(call(EngineUnavailable), &[("ENGINE", "cuda")], &["the engine cuda is not available"]);
        says(vec![native(16, 900, 900, 1, 1.0, ThinShape)], &[], &["1 call of 16 x 900 x 900 is too thin"]);
        says(call(NonFinite), &[], &[named, "were native because of NaN or Inf"]);
        says(call(Range), &[("MODE", "fast")], &[named, "raise OZ2_MODULI"]);
        says(call(NotProvable), &[], &["with an N within the limit", "more than 20 moduli"]);
        says(call(NotProvable), &[("MODULI", "14")], &["than OZ2_MODULI=14 allows"]);
        says(call(NotProvable), &[("ACCURACY", "high")], &["OZ2_ACCURACY=fp64"]);
        says(call(NoMemory), &[("WORKSPACE", "1M")], &["raise OZ2_WORKSPACE (now 1M)"]);
        says(call(Forked), &[], &["spawn"]);
        says(call(SlowUnit), &[], &["slow state"]);
        says(call(FinerPlan), &[], &["OZ2_ENGINE=auto"]);
        says(call(EngineFault), &[], &["412 calls met a fault"]);
        says(call(FailedCheck), &[], &["self-check flagged"]);
        says(call(IntegersInDoubt), &[], &["OZ2_INTEGER=lp64"]);
        says(call(IllegalArgument), &[], &["illegal argument"]);
    }

    #[test]
    fn a_block_size_is_told_from_other_thin_shapes_and_losses() {
        let rows = || {
            vec![
                native(2000, 2000, 32, 7, 0.5, Reason::NoGain),
                native(2000, 1900, 32, 8, 0.6, Reason::NoGain),
                native(2000, 2000, 64, 1, 0.7, Reason::NoGain),
                native(300, 300, 300, 3, 0.1, Reason::NoGain),
            ]
        };
        says(rows(), &[], &["16 calls (among them 2000 x 1900 x 32, 8 times)", "k = 32", "NB"]);
        says(rows(), &[], &["3 calls of 300 x 300 x 300 were native", "time model"]);
        let mut without = data(rows(), &[]);
        without.engines = Some(vec!["avx512", "portable"]);
        assert!(all(&without).iter().any(|advice| advice.text.contains("neither a matrix unit")));
    }

    #[test]
    fn emulated_calls_have_theirs() {
        let with = |change: fn(&mut Row)| {
            let mut row = emulated(500, 500, 500, 3, 4.0);
            change(&mut row);
            vec![row]
        };
        assert_eq!(of(with(|_| ()), &[]), ["Nothing: every call that is worth it was emulated."]);
        says(
            with(|row| row.native = 1.0),
            &[("MIN_SIZE", "0")],
            &["took 3.00 s more", "OZ2_MIN_SIZE=auto would"],
        );
        says(with(|row| row.native = 1.0), &[], &["took 3.00 s more", "follows"]);
        assert_eq!(of(with(|row| row.native = 3.95), &[]).len(), 1);
        let set = |row: &mut Row, new: fn(&mut usize, &mut Mode)| {
            if let Fate::Emulated { moduli, mode, .. } = &mut row.class.fate {
                new(moduli, mode);
            }
        };
        let mut row = emulated(500, 500, 500, 3, 4.0);
        set(&mut row, |moduli, _| *moduli = 18);
        says(vec![row], &[], &["3 calls of 500 x 500 x 500 needed 17 moduli or more"]);
        set(&mut row, |_, mode| *mode = Mode::Fast);
        says(vec![row], &[], &["For 3 calls of 500 x 500 x 500 nothing is proved"]);
        let mut lines = data(with(|row| row.class.sums.rows = 2), &[]);
        (lines.snapshot.rows_native, lines.snapshot.not_finite) = (2, 1);
        assert!(
            all(&lines)[0].text.contains("2 rows and 0 columns of C were computed natively, because of NaN")
        );
    }

    #[test]
    fn what_is_wrong_comes_first_and_then_what_takes_longest() {
        let rows = vec![
            native(50, 50, 50, 1, 3.0, Reason::TooSmall),
            native(500, 500, 500, 1, 5.0, Reason::NonFinite),
        ];
        let mut data = data(rows, &[]);
        (data.snapshot.verified, data.snapshot.differing) = (9, 1);
        let found: Vec<String> = all(&data).into_iter().map(|advice| advice.text).collect();
        let order = ["1 of 9 calls", "1 call of 500", "1 call of 50"];
        assert!(found.iter().zip(order).all(|(text, start)| text.starts_with(start)), "{found:#?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_program_that_does_other_things_is_told_so() {
        says(vec![emulated(500, 500, 500, 3, 0.3)], &[], &["DGEMM takes 3.0 % of the time"]);
    }
}

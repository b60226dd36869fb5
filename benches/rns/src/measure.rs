//! Arrays, and the times of the forms.

use oz2blas::rns::System;
use oz2blas::rns::moduli::{INT8, PAPER, paper_set};
use serde::Serialize;

use crate::args::Args;
use crate::clock;
use crate::facts::short;
use crate::forms::{Form, Numbers};

/// Numbers of the first, short try that tells how many numbers a form gets.
const TRY: usize = 4096;

/// A set of moduli and its name.
pub struct Set {
    pub name: String,
    pub moduli: Vec<u64>,
    /// One of the seven sets of the paper.
    pub of_the_paper: bool,
}

/// One form on one set.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub form: Form,
    /// Length of the array.
    pub numbers: usize,
    /// CPU time of the thread for the whole array, in every round.
    pub seconds: Vec<f64>,
    /// Bytes for what the form computes of each number.
    pub bytes: usize,
}

impl Figure {
    /// Nanoseconds for a number: the median of the rounds.
    pub fn nanoseconds(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        short(1e9 * seconds[seconds.len() / 2] / self.numbers as f64)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub set: String,
    pub of_the_paper: bool,
    pub moduli: usize,
    pub bits: u64,
    pub figures: Vec<Figure>,
}

impl Case {
    pub fn figure(&self, form: Form) -> &Figure {
        self.figures.iter().find(|figure| figure.form == form).expect("every form is measured")
    }
}

pub fn sets() -> Result<Vec<Set>, String> {
    let mut sets = vec![Set { name: "INT8".to_owned(), moduli: INT8.to_vec(), of_the_paper: false }];
    for (n, _) in PAPER {
        let moduli = paper_set(n).map_err(|error| error.to_string())?;
        sets.push(Set { name: "paper".to_owned(), moduli, of_the_paper: true });
    }
    Ok(sets)
}

/// Times all forms on random numbers. An error if they disagree.
pub fn case(set: &Set, args: &Args) -> Result<Case, String> {
    let system = System::new(&set.moduli).map_err(|error| error.to_string())?;
    let n = system.count();
    let all = random(&system, args.numbers.min(affordable(n)).max(2));
    let mut figures = Vec::new();
    for form in Form::ALL {
        let numbers = all.first(length(form, &system, &all, args.seconds));
        let want = Form::Interval.max(&system, &numbers);
        let mut seconds = Vec::new();
        for _ in 0..args.rounds {
            let start = clock::thread();
            let place = form.max(&system, &numbers);
            seconds.push(short(clock::thread() - start));
            if place != want {
                return Err(format!("{n} moduli: {} finds {place}, not {want}", form.title()));
            }
        }
        figures.push(Figure { form, numbers: numbers.count, seconds, bytes: form.bytes(n) });
    }
    let bits = system.product().bits() - 1;
    Ok(Case { set: set.name.clone(), of_the_paper: set.of_the_paper, moduli: n, bits, figures })
}

/// How many numbers a form gets through in its time, and no more than there are.
fn length(form: Form, system: &System, all: &Numbers, seconds: f64) -> usize {
    let few = all.first(TRY.min(all.count));
    let start = clock::thread();
    form.max(system, &few);
    let each = (clock::thread() - start) / few.count as f64;
    ((seconds / each) as usize).clamp(few.count, all.count)
}

/// How many numbers the memory takes: their residues in four fifths of it.
fn affordable(n: usize) -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.map_or(usize::MAX, |kilobytes| kilobytes / 5 * 4 * 1024 / (4 * n))
}

/// Random residues: numbers that are uniform between 0 and M, but for a bias of 2^-48.
fn random(system: &System, count: usize) -> Numbers {
    let mut residues = Vec::with_capacity(system.count() * count);
    let mut state = 1u64;
    for &m in system.moduli() {
        residues.extend((0..count).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // The high half of the product of 64 random bits and m.
            ((u128::from(state ^ (state >> 29)) * u128::from(m)) >> 64) as u32
        }));
    }
    Numbers { count, residues }
}

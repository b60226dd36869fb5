//! What one process measures: all cases with one number of threads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::amx::{Probe, State};
use crate::args::Args;
use crate::blas::{Mkl, OpenBlas, Outcome, Oz2};
use crate::gemm::{Contender, Product};
use crate::lu::Lu;
use crate::markdown::{in_words, ratio_text};
use crate::race::{Rules, race};
use crate::record::{BUILTIN, Case, Entrant, MKL, OPENBLAS, OURS, Part, Task};
use crate::summary::Summary;

type Shape = (usize, usize, usize);

const SQUARES: [usize; 11] = [64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096];
const LONG_SQUARE: usize = 8192;
/// Inner dimensions of products with m = n = 4096: what blocked factorisations ask for.
const INNER: [usize; 5] = [64, 128, 256, 512, 1024];
const THIN: [Shape; 7] = [
    (64, 4096, 4096),
    (4096, 64, 4096),
    (128, 2048, 2048),
    (2048, 32, 2048),
    (8192, 512, 512),
    (512, 8192, 512),
    (256, 256, 16384),
];
const QUICK: [Shape; 5] =
    [(128, 128, 128), (512, 512, 512), (1024, 1024, 1024), (1024, 1024, 128), (64, 1024, 1024)];
const LU_SIZES: [usize; 3] = [1024, 2048, 4096];
const LU_BLOCKS: [usize; 2] = [128, 256];
/// A call that is longer than the time for a case may still be made if it is not many times slower than the fastest.
const FAR_BEHIND: f64 = 5.0;

fn tasks(args: &Args) -> Vec<Task> {
    let squares = SQUARES.into_iter().chain(args.long.then_some(LONG_SQUARE)).map(|n| (n, n, n));
    let inner = INNER.map(|k| (4096, 4096, k));
    let all: Vec<Shape> =
        if args.quick { QUICK.to_vec() } else { squares.chain(inner).chain(THIN).collect() };
    let gemm = all.into_iter().filter(|_| args.gemm).map(|(m, n, k)| Task::Gemm { m, n, k });
    let sizes = if args.quick { &LU_SIZES[..1] } else { &LU_SIZES[..] };
    let pairs = sizes.iter().flat_map(|&n| LU_BLOCKS.map(|block| Task::Lu { n, block }));
    gemm.chain(pairs.filter(|_| args.lu)).collect()
}

/// The libraries, ready to be called.
struct Field {
    openblas: OpenBlas,
    contenders: Vec<Contender>,
    versions: BTreeMap<String, String>,
}

impl Field {
    fn open(args: &Args) -> Outcome<Self> {
        let openblas = OpenBlas::open(&args.openblas).map_err(|error| format!("OpenBLAS: {error}"))?;
        let mut versions = BTreeMap::from([(OPENBLAS.to_owned(), openblas.version.clone())]);
        let mut contenders = vec![Contender { name: OPENBLAS, gemm: openblas.gemm, ours: None }];
        if let Some(path) = &args.mkl {
            let mkl = Mkl::open(path).map_err(|error| format!("MKL: {error}"))?;
            contenders.push(Contender { name: MKL, gemm: mkl.gemm, ours: None });
            versions.insert(MKL.to_owned(), mkl.version);
        }
        let [builtin, ours] = our_copies(args)?;
        versions.insert(OURS.to_owned(), format!("{} ({})", ours.version(), args.revision));
        contenders.push(Contender { name: BUILTIN, gemm: builtin.gemm, ours: Some(builtin) });
        contenders.push(Contender { name: OURS, gemm: ours.gemm, ours: Some(ours) });
        Ok(Self { openblas, contenders, versions })
    }
}

/// Our library twice, since the BLAS underneath is chosen once: over its builtin, and over OpenBLAS or MKL.
fn our_copies(args: &Args) -> Outcome<[Oz2; 2]> {
    let mkl = args.mkl.as_ref().filter(|_| args.over_mkl);
    let gemm = if mkl.is_some() { "dgemm_" } else { "scipy_dgemm_" };
    let [library, native] = [&args.library, mkl.unwrap_or(&args.openblas)].map(|path| path.canonicalize());
    let library = library.map_err(|error| format!("{}: {error}", args.library.display()))?;
    let native = native.map_err(|error| error.to_string())?;
    let native = native.to_str().ok_or("the path of the BLAS underneath is not UTF-8")?;
    // GPUs are another bench's business, unless one is asked for.
    let engine = args.engine.as_deref().unwrap_or("auto");
    let devices = if engine == "cuda" { "auto" } else { "none" };
    let copy = copy_of(&library).map_err(|error| format!("copy of {}: {error}", library.display()))?;
    let builtin = Oz2::open(&copy, gemm, &[("NATIVE", "builtin"), ("MODE", "native"), ("DEVICES", devices)])?;
    let smallest = if args.emulate { "0" } else { "auto" };
    let options = [
        ("NATIVE", native),
        ("MODE", "auto"),
        ("MIN_SIZE", smallest),
        ("ENGINE", engine),
        ("DEVICES", devices),
    ];
    let ours = Oz2::open(&library, gemm, &options)?;
    // The loader gives the same library twice if it takes the files for one.
    if builtin.option("NATIVE")? != "builtin" || ours.option("NATIVE")? != native {
        return Err("the two copies of our library share their options".to_owned());
    }
    Ok([builtin, ours])
}

/// The loader would see through a link.
fn copy_of(library: &PathBuf) -> std::io::Result<PathBuf> {
    let folder = library.with_file_name("bench-cpu-builtin");
    let copy = folder.join("liboz2blas.so");
    std::fs::create_dir_all(&folder)?;
    // A new file: another bench may have the old one loaded.
    let _ = std::fs::remove_file(&copy);
    std::fs::copy(library, &copy)?;
    Ok(copy)
}

/// Everything with so many threads.
pub fn run(args: &Args, threads: usize) -> Outcome<Part> {
    // First, so that all threads of the libraries inherit the permission.
    let probe = Probe::new(threads);
    let field = Field::open(args)?;
    let rules = Rules { threads, seconds: args.seconds, rounds: args.rounds, probe };
    let mut rates = Rates::default();
    let mut cases = Vec::new();
    // Libraries load their kernels and start their threads at the first calls.
    let first = &mut Product::new((300, 300, 300), &field.contenders);
    race(&names(&field.contenders), first, &Rules { seconds: 0.0, ..rules });
    first.wrong.take().map_or(Ok(()), Err)?;
    for task in tasks(args) {
        let is_entered = |contender: &&Contender| {
            !(task.is_lu() && contender.name == BUILTIN) && rates.affords(contender.name, &task, args.seconds)
        };
        let contenders: Vec<Contender> = field.contenders.iter().filter(is_entered).copied().collect();
        let entrants = enter(&task, &contenders, &field, &rules)?;
        let case = Case { task, threads, entrants };
        rates.learn(&case);
        say(&case);
        cases.push(case);
    }
    Ok(Part { versions: field.versions, cases })
}

fn names(contenders: &[Contender]) -> Vec<&'static str> {
    contenders.iter().map(|contender| contender.name).collect()
}

fn enter(task: &Task, contenders: &[Contender], field: &Field, rules: &Rules) -> Outcome<Vec<Entrant>> {
    match *task {
        Task::Gemm { m, n, k } => {
            let mut product = Product::new((m, n, k), contenders);
            let entrants = race(&names(contenders), &mut product, rules);
            product.wrong.map_or(Ok(entrants), Err)
        }
        Task::Lu { n, block } => {
            let mut lu = Lu::new(n, block, &field.openblas, contenders);
            let mut entrants = race(&names(contenders), &mut lu, rules);
            for (entrant, error) in entrants.iter_mut().zip(&lu.errors) {
                entrant.backward_error = *error;
            }
            Ok(entrants)
        }
    }
}

/// Operations a second of each contender in its last case, to foresee the next.
#[derive(Default)]
struct Rates(BTreeMap<(String, bool), f64>);

impl Rates {
    fn learn(&mut self, case: &Case) {
        for entrant in &case.entrants {
            let best = entrant.turns.iter().map(|turn| turn.wall).fold(f64::INFINITY, f64::min);
            self.0.insert((entrant.name.clone(), case.task.is_lu()), case.task.flops() / best);
        }
    }

    fn affords(&self, name: &str, task: &Task, seconds: f64) -> bool {
        let Some(rate) = self.0.get(&(name.to_owned(), task.is_lu())) else { return true };
        let of_this_kind = self.0.iter().filter(|((_, is_lu), _)| *is_lu == task.is_lu());
        let fastest = of_this_kind.map(|(_, rate)| *rate).fold(0.0, f64::max);
        task.flops() / rate <= seconds || fastest / rate <= FAR_BEHIND
    }
}

/// One line on the terminal.
fn say(case: &Case) {
    let state = |state: State| {
        let summary = Summary::of(case, state, case.clock());
        let ratio = summary.ratio?;
        let median = ratio.median.map_or("-".to_owned(), ratio_text);
        Some(format!("{} {median} of {} ({} rounds)", state.name(), ratio.peer, ratio.rounds))
    };
    let states: Vec<String> = case.states().into_iter().filter_map(state).collect();
    let route = case.entrant(OURS).and_then(|ours| ours.notes.last());
    let route = route.map_or("oz2 left out: too slow", |note| &note.route);
    let line = [states, vec![route.to_owned()]].concat().join("; ");
    eprintln!("{}, {}: {line}", in_words(case.threads), case.task.label());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn who_would_take_minutes_is_left_out() {
        let entrant = |name, wall| sample::entrant(name, &[(wall, 5.0)]);
        let cube = |n| Task::Gemm { m: n, n, k: n };
        let mut rates = Rates::default();
        assert!(rates.affords(OURS, &cube(4096), 1.0));
        let entrants = vec![entrant(OPENBLAS, 0.1), entrant(MKL, 0.2), entrant(OURS, 1.0)];
        rates.learn(&Case { task: cube(1024), threads: 1, entrants });
        assert!(rates.affords(OURS, &cube(2048), 9.0));
        assert!(!rates.affords(OURS, &cube(4096), 9.0));
        assert!(rates.affords(MKL, &cube(4096), 9.0));
        assert!(rates.affords(OURS, &Task::Lu { n: 4096, block: 128 }, 9.0));
    }
}

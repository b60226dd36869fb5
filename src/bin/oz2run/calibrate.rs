//! `oz2run --calibrate`: measures what calls of every class take on this machine, natively and emulated, and keeps it for the time
//! model ([`oz2blas::route::calibration`]).

use std::ffi::c_void;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use oz2blas::engine::cpu::{brand, fpenv, probe, threads};
use oz2blas::engine::{self, Engine, NAMES, Outcome, Settings};
use oz2blas::gemm::{Gemm, Sizes, Transpose};
use oz2blas::native::builtin;
use oz2blas::native::call::Fortran;
use oz2blas::native::find::{Symbol, provider};
use oz2blas::options;
use oz2blas::ozaki::moduli::MAX_MODULI;
use oz2blas::route::calibration::{self, Measured, merged};
use oz2blas::route::{Machine, Shape, cost, experience};

/// Seconds that it may take, unless the user says otherwise.
pub const SECONDS: f64 = 60.0;

/// The names under which a BLAS may have DGEMM; the wheels of NumPy and SciPy have only the last two.
static DGEMM: [Symbol; 5] = [
    Symbol::native(c"dgemm_"),
    Symbol::native(c"dgemm_64_"),
    Symbol::native(c"dgemm_64"),
    Symbol::native(c"scipy_dgemm_"),
    Symbol::native(c"scipy_dgemm_64_"),
];

/// The variables by which a BLAS, and this library, are told their threads.
const THREADS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

/// A call is repeated, and its fastest turn counts, as other programs only make it slower: at least and at most so often, and no
/// longer than this.
const LEAST_TURNS: usize = 3;
const MOST_TURNS: usize = 15;
const TURNS: Duration = Duration::from_millis(400);

/// Edges of the cubes that stand for the sizes of [`experience::class_of`], from the smallest; what is larger is left at what the
/// model expects.
const EDGES: [f64; 6] = [160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0];
/// Smallest dimensions that stand for its thinnesses; a cube that is thinner by itself is not measured for the wider ones.
const LEAST: [usize; 4] = [64, 128, 256, 384];

/// The calls that are measured: one for each class that there is, the quick ones first.
fn shapes() -> impl Iterator<Item = Shape> + Clone {
    EDGES.into_iter().enumerate().flat_map(|(size, edge)| {
        LEAST.into_iter().enumerate().filter_map(move |(thinness, least)| {
            let is_widest = thinness + 1 == LEAST.len();
            let k = if is_widest { edge as usize } else { least };
            let side = (edge.powi(3) / k as f64).sqrt() as usize;
            let shape = Shape { m: side, n: side, k, alpha: 1.0, beta: 0.0 };
            (experience::class_of(&shape) == (size, thinness)).then_some(shape)
        })
    })
}

/// Matrices of uniform numbers, for calls up to a size.
struct Matrices {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Matrices {
    /// None where there is no memory.
    fn new(shape: &Shape) -> Option<Self> {
        // SplitMix64 (Steele, Lea, Flood 2014), the upper 53 bits.
        let mut state = 0u64;
        let mut uniform = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        let mut matrix = |count: usize| {
            let mut values = Vec::new();
            values.try_reserve_exact(count).ok()?;
            values.extend((0..count).map(|_| uniform()));
            Some(values)
        };
        let Shape { m, n, k, .. } = *shape;
        Some(Self { a: matrix(m * k)?, b: matrix(k * n)?, c: matrix(m * n)? })
    }
}

/// What computes a call.
enum Worker {
    Native(Option<NonNull<c_void>>),
    Engine(usize, &'static dyn Engine),
}

impl Worker {
    /// As the file names it.
    fn way(&self) -> String {
        match self {
            Self::Native(address) => {
                calibration::way_of_native(&address.map_or_else(|| builtin::NAME.to_owned(), provider))
            }
            Self::Engine(number, _) => NAMES[*number].to_owned(),
        }
    }

    /// Seconds of a call, and what the model expects. None: it could not be made, or not yet with memory that was there before.
    fn time(&self, shape: &Shape, matrices: &mut Matrices, machine: &Machine) -> Option<(f64, f64)> {
        let Shape { m, n, k, .. } = *shape;
        let sizes = Sizes { m, n, k, lda: m, ldb: k, ldc: m };
        let (a, b, c) = (matrices.a.as_ptr(), matrices.b.as_ptr(), matrices.c.as_mut_ptr());
        let call = Gemm::new((Transpose::No, Transpose::No), sizes, (1.0, 0.0), a, b, c)?;
        match *self {
            Self::Native(address) => {
                let clock = Instant::now();
                // SAFETY: the matrices have these sizes.
                match address {
                    Some(address) => unsafe { call_native(address, shape, (a, b, c)) },
                    None => unsafe { builtin::gemm_for_caller(&call) },
                }
                let seconds = clock.elapsed().as_secs_f64();
                Some((seconds, cost::native_seconds(shape, machine.threads, machine.native_rate)))
            }
            Self::Engine(number, engine) => {
                let tops = (number == engine::AMX).then(|| {
                    probe::refresh();
                    probe::last()
                });
                let settings = settings(machine.threads, number);
                let clock = Instant::now();
                // SAFETY: the machine has the engine, and the matrices have these sizes.
                let outcome = fpenv::in_clean_environment(|| unsafe { engine.gemm(&call, &settings) });
                let seconds = clock.elapsed().as_secs_f64();
                let Outcome::Done(report) = outcome else { return None };
                let expected = cost::emulated_seconds(
                    shape,
                    number,
                    (report.moduli, report.strassen),
                    machine.threads,
                    tops.flatten(),
                );
                (!report.fresh).then_some((seconds, expected))
            }
        }
    }
}

fn settings(threads: usize, engine: usize) -> Settings {
    let options = options::current();
    Settings {
        mode: options::Mode::Auto,
        moduli: MAX_MODULI,
        worth: MAX_MODULI,
        accuracy: options.accuracy,
        check: options.check,
        strassen: cost::levels(engine, options.strassen),
        threads,
        workspace: options.workspace,
    }
}

/// # Safety
///
/// The address is that of a DGEMM, and the matrices have the sizes of the shape.
unsafe fn call_native(address: NonNull<c_void>, shape: &Shape, matrices: (*const f64, *const f64, *mut f64)) {
    // Whatever the width of the integers, it reads the right value here.
    let sizes = [shape.m, shape.n, shape.k].map(|size| size as i64);
    let at = |number: usize| (&raw const sizes[number]).cast::<c_void>();
    let (no, one, zero) = (c"N".as_ptr(), 1.0, 0.0);
    let (a, b, c) = matrices;
    // SAFETY: by the contract of this function.
    unsafe {
        let dgemm = std::mem::transmute::<NonNull<c_void>, Fortran>(address);
        dgemm(
            no,
            no,
            at(0),
            at(1),
            at(2),
            &raw const one,
            a,
            at(0),
            b,
            at(2),
            &raw const zero,
            c,
            at(0),
            1,
            1,
        );
    }
}

/// Seconds of the fastest turn, and its factor.
type Best = Option<(f64, f64)>;

/// The workers take turns, so that all of them meet the same machine. None for one that cannot do it.
fn measure(shape: &Shape, workers: &[Worker], matrices: &mut Matrices, machine: &Machine) -> Vec<Best> {
    // The first calls load, start threads, and take memory.
    for worker in workers {
        worker.time(shape, matrices, machine);
    }
    let mut best: Vec<Best> = vec![None; workers.len()];
    let clock = Instant::now();
    for turn in 0..MOST_TURNS {
        if turn >= LEAST_TURNS && clock.elapsed() > TURNS {
            break;
        }
        for (worker, best) in workers.iter().zip(&mut best) {
            if let Some((seconds, expected)) = worker.time(shape, matrices, machine)
                && best.is_none_or(|(least, _)| seconds < least)
            {
                *best = Some((seconds, seconds / expected));
            }
        }
    }
    best
}

/// An engine that takes so many times what the fastest one takes is not measured for larger calls.
const HOPELESS: f64 = 3.0;

/// The workers that are worth their time in larger calls, by what they took.
fn hopeful(workers: Vec<Worker>, found: &[Best]) -> Vec<Worker> {
    let seconds: Vec<f64> = found.iter().map(|best| best.map_or(f64::INFINITY, |best| best.0)).collect();
    let is_engine = |worker: &Worker| matches!(worker, Worker::Engine(..));
    let engines = workers.iter().zip(&seconds).filter(|(worker, _)| is_engine(worker));
    let least = engines.map(|(_, &seconds)| seconds).fold(f64::INFINITY, f64::min);
    let is_hopeful = |worker: &Worker, seconds: f64| !is_engine(worker) || seconds <= HOPELESS * least;
    let pairs = workers.into_iter().zip(seconds);
    pairs.filter(|(worker, seconds)| is_hopeful(worker, *seconds)).map(|(worker, _)| worker).collect()
}

/// Measures with the threads in force, for some seconds, and writes the file. Gives the table for people.
pub fn measured(seconds: f64) -> Result<String, String> {
    let file = calibration::file(&brand::name()).ok_or("no home folder (HOME) to keep the file in")?;
    let threads = options::current().threads.unwrap_or_else(threads::automatic);
    let machine = Machine::new(engine::available_for(options::current().engine), threads);
    let native = DGEMM.iter().find_map(Symbol::address);
    let engines = machine.engines.iter().filter(|&&number| cost::learns(number));
    let engines = engines.filter_map(|&number| Some(Worker::Engine(number, engine::get(number)?)));
    let mut workers: Vec<Worker> = std::iter::once(Worker::Native(native)).chain(engines).collect();
    let ways: Vec<String> = workers.iter().map(Worker::way).collect();

    let mut table = format!("{threads} thread{}, milliseconds\n", if threads == 1 { "" } else { "s" });
    let mut row = |first: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>10}")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(table, "{first:<18}{cells}");
    };
    let names = ways.iter().map(|way| if way.starts_with("native") { "native" } else { way });
    row("m x n x k", names.map(str::to_owned).collect());
    let mut lines: Vec<Measured> = Vec::new();
    let bar = progress_bar();
    let (clock, mut last) = (Instant::now(), (0.0, 1.0));
    for shape in shapes() {
        let Shape { m, n, k, .. } = shape;
        let work = (m * n * k) as f64;
        // What this one will take, by what the last one took.
        if clock.elapsed().as_secs_f64() + last.0 * (work / last.1).max(1.0) > seconds {
            break;
        }
        bar.set_message(format!("{threads} threads, {m} x {n} x {k}"));
        let Some(mut matrices) = Matrices::new(&shape) else { break };
        let start = Instant::now();
        let found = measure(&shape, &workers, &mut matrices, &machine);
        last = (start.elapsed().as_secs_f64(), work);
        let (size, thinness) = experience::class_of(&shape);
        let mut cells = vec!["-".to_owned(); ways.len()];
        for (worker, best) in workers.iter().zip(&found) {
            if let Some(at) = ways.iter().position(|way| *way == worker.way())
                && let Some((seconds, factor)) = *best
            {
                cells[at] = format!("{:.2}", 1e3 * seconds);
                lines.push(Measured { threads, way: &ways[at], size, thinness, factor });
            }
        }
        row(&format!("{m} x {n} x {k}"), cells);
        workers = hopeful(workers, &found);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if lines.is_empty() {
        return Err(format!("{seconds} seconds are not enough to measure anything"));
    }
    keep(&file, &lines).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    let _ = writeln!(table, "{}", ways[0].replace(':', ": "));
    Ok(table)
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent} %");
    let bar = ProgressBar::new(shapes().count() as u64);
    bar.set_style(style.map_or_else(|_| ProgressStyle::default_bar(), |style| style.progress_chars("=> ")));
    bar
}

/// Processes that want to run, besides this one; they would be measured too.
fn others() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Whoever reads the file meanwhile finds the old one or the new one.
fn keep(file: &Path, lines: &[Measured]) -> std::io::Result<()> {
    let before = std::fs::read_to_string(file).unwrap_or_default();
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    let new = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, merged(&before, lines))?;
    std::fs::rename(&new, file)
}

/// Measures in processes of their own, since a BLAS reads its number of threads at its start: one thread, and all; or as the user
/// says by a variable or option. True if all went well.
pub fn run(seconds: f64, variables: &[(String, String)]) -> Result<bool, String> {
    let is_asked = variables.iter().any(|(name, _)| name == "OZ2_NUM_THREADS")
        || THREADS.iter().chain(&["OZ2_NUM_THREADS"]).any(|name| std::env::var_os(name).is_some());
    let all = threads::automatic();
    let counts: Vec<Option<usize>> = match all {
        _ if is_asked => vec![None],
        1 => vec![Some(1)],
        _ => vec![Some(1), Some(all)],
    };
    if others() > BUSY {
        eprintln!(
            "oz2run: other programs are running (load {}); calibrate again when the machine is quiet",
            others()
        );
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut good = true;
    for threads in &counts {
        let mut command = Command::new(&program);
        command.arg(format!("--calibrate={}", seconds / counts.len() as f64)).env(PART, "1");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(threads) = threads {
            command.envs(THREADS.iter().map(|name| (name, threads.to_string())));
        }
        good &= command.status().is_ok_and(|status: ExitStatus| status.success());
    }
    if good && let Some(file) = calibration::file(&brand::name()) {
        println!("written to {}; delete it to go back to what the library guesses", file.display());
    }
    Ok(good)
}

/// A load average that tells of other programs.
const BUSY: f64 = 0.5;

/// The variable that tells a process that it is one of those that [`run`] starts.
pub const PART: &str = "OZ2RUN_CALIBRATE_PART";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_stand_for_different_classes_and_grow() {
        let classes: Vec<(usize, usize)> = shapes().map(|shape| experience::class_of(&shape)).collect();
        let mut distinct = classes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct, classes);
        assert!(classes.len() >= 14 && classes.contains(&(0, 0)) && classes.contains(&(5, 3)), "{classes:?}");
    }

    fn workers_engine() -> &'static dyn Engine {
        engine::get(engine::PORTABLE).unwrap()
    }

    #[test]
    fn a_measurement_gives_seconds_and_factors_of_all_that_can_do_it() {
        let shape = shapes().next().unwrap();
        let portable = Worker::Engine(engine::PORTABLE, workers_engine());
        let workers = [Worker::Native(None), portable];
        let machine = Machine::new(engine::available(), 1);
        let found = measure(&shape, &workers, &mut Matrices::new(&shape).unwrap(), &machine);
        assert_eq!(found.len(), 2);
        for best in &found {
            let (seconds, factor) = best.unwrap();
            assert!(seconds > 1e-6 && factor > 1e-3 && factor < 1e5, "{seconds} {factor}");
        }
        assert_eq!(workers[0].way(), "native:builtin");
        assert_eq!(workers[1].way(), "portable");
        let ways = |found: &[Best]| {
            let again = [
                Worker::Native(None),
                Worker::Engine(1, workers_engine()),
                Worker::Engine(3, workers_engine()),
            ];
            hopeful(again.into(), found).iter().map(Worker::way).collect::<Vec<_>>()
        };
        let native = Some((1e-9, 1.0));
        assert_eq!(ways(&[native, Some((1.0, 1.0)), Some((2.9, 1.0))]), ["native:builtin", "amx", "avx2"]);
        assert_eq!(ways(&[native, Some((3.1, 1.0)), Some((1.0, 1.0))]), ["native:builtin", "avx2"]);
        assert_eq!(ways(&[native, Some((1.0, 1.0)), None]), ["native:builtin", "amx"]);
    }
}

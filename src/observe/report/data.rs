//! What the page tells, as plain values: everything is gathered here, and the rest of the page is made from it alone.

use std::collections::BTreeMap;

use super::class::{Class, Fate, Size};
use super::record;
use super::timeline::Buckets;
use crate::engine::{self, cpu::threads};
use crate::native::find;
use crate::observe::counters::{self, Snapshot};
use crate::observe::file;
use crate::options::{self, EngineChoice, Options, TABLE};
use crate::route::{Reason, Shape, cost, experience};

/// An option in force, and who said so.
pub struct Setting {
    pub name: String,
    pub value: String,
    pub origin: &'static str,
}

/// A class, and the seconds that the native BLAS takes for it: those that it took, where it computed it; else by what calls of the
/// same shape took natively, or by the time model.
#[derive(Clone, Copy)]
pub struct Row {
    pub class: Class,
    pub native: f64,
}

impl Row {
    pub fn seconds(&self) -> f64 {
        self.class.sums.nanoseconds as f64 * 1e-9
    }

    pub fn flops(&self) -> f64 {
        2.0 * self.class.sums.multiplications as f64
    }

    pub fn is_emulated(&self) -> bool {
        matches!(self.class.fate, Fate::Emulated { .. })
    }
}

pub struct Data {
    /// Program and arguments.
    pub command: Vec<String>,
    pub host: String,
    pub pid: u32,
    pub rank: Option<String>,
    /// Seconds since 1970 at the first call.
    pub start: u64,
    /// Since the first call.
    pub seconds: f64,
    pub cpu: String,
    /// None: no call came so far that anyone asked.
    pub engines: Option<Vec<&'static str>>,
    pub threads: usize,
    /// Files of the native BLAS, and the bits of their integers.
    pub natives: Vec<(String, Option<u32>)>,
    pub settings: Vec<Setting>,
    pub options: Options,
    pub rows: Vec<Row>,
    pub timeline: Buckets,
    pub missed: u64,
    pub snapshot: Snapshot,
}

/// Such a call was looked at closely enough that the engines are known.
fn asked_for_engines(fate: &Fate) -> bool {
    use Reason::*;
    let at_once = [QuickReturn, IllegalArgument, Disabled, TooSmall, ThinShape, Nested, IntegersInDoubt];
    !matches!(fate, Fate::Native(reason) if at_once.contains(reason))
}

/// Seconds of a native call of each shape that was computed natively in this run too.
fn measured(classes: &[Class]) -> BTreeMap<Size, f64> {
    let mut sums: BTreeMap<Size, (u64, u64)> = BTreeMap::new();
    for Class { size, fate, sums: one } in classes {
        if matches!((fate, size), (Fate::Native(_), Size::Shape(..))) && one.nanoseconds > 0 {
            let sum = sums.entry(*size).or_default();
            *sum = (sum.0 + one.calls, sum.1 + one.nanoseconds);
        }
    }
    sums.into_iter().map(|(size, (calls, time))| (size, time as f64 * 1e-9 / calls as f64)).collect()
}

/// Seconds of the native BLAS for all calls of a class, by the time model and what it has learned.
fn by_model(class: &Class, threads: usize) -> f64 {
    let calls = class.sums.calls as f64;
    let (m, n, k) = match class.size {
        Size::Shape(m, n, k) => (m, n, k),
        Size::Others(_) => {
            let edge = (class.sums.multiplications as f64 / calls).cbrt().max(1.0) as usize;
            (edge, edge, edge)
        }
    };
    let shape = Shape { m, n, k, alpha: 1.0, beta: 0.0 };
    calls * experience::learned(&shape).native * cost::native_seconds(&shape, threads, cost::native_rate())
}

fn settings(options: &Options) -> Vec<Setting> {
    let all = TABLE.iter().enumerate().map(|(at, entry)| {
        let (name, value) = (format!("OZ2_{}", entry.name), options.text(at).to_owned());
        let variable = std::env::var_os(&name).map(|value| value.to_string_lossy().into_owned());
        let origin = match variable {
            Some(variable) if variable == value => "environment",
            _ if value == entry.default => "default",
            _ => "oz2_set_option",
        };
        Setting { name, value, origin }
    });
    all.collect()
}

fn command() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

/// `model` is for shapes that were never native in this run.
fn rows(classes: &[Class], model: impl Fn(&Class) -> f64) -> Vec<Row> {
    let measured = measured(classes);
    let native = |class: &Class| match (class.fate, measured.get(&class.size)) {
        (Fate::Native(_), _) => class.sums.nanoseconds as f64 * 1e-9,
        (Fate::Emulated { .. }, Some(seconds)) => seconds * class.sums.calls as f64,
        (Fate::Emulated { .. }, None) => model(class),
    };
    classes.iter().map(|class| Row { class: *class, native: native(class) }).collect()
}

/// None where nothing was recorded.
pub fn gather(natives: Vec<(usize, Option<u32>)>) -> Option<Data> {
    let records = record::get()?;
    let options = options::current().clone();
    let threads = options.threads.unwrap_or_else(threads::automatic);
    let classes = records.classes();
    let engines = classes.iter().any(|class| asked_for_engines(&class.fate)).then(|| {
        let there = engine::available_for(options.engine).iter().copied();
        let wanted = |&number: &usize| {
            options.engine == EngineChoice::Auto || number == engine::index_of(options.engine)
        };
        there.filter(wanted).map(|number| engine::NAMES[number]).collect()
    });
    let rows = rows(&classes, |class| by_model(class, threads));
    let mut files: Vec<(String, Option<u32>)> = Vec::new();
    for (address, bits) in natives {
        let address = std::ptr::NonNull::new(address as *mut std::ffi::c_void);
        let file = (address.map_or_else(|| "the embedded one".to_owned(), find::provider), bits);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let seconds = records.seconds();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Some(Data {
        command: command(),
        host: file::host(),
        pid: std::process::id(),
        rank: file::rank(),
        start: now.as_secs().saturating_sub(seconds as u64),
        seconds,
        cpu: cpu(),
        engines,
        threads,
        natives: files,
        settings: settings(&options),
        options,
        rows,
        timeline: records.timeline(),
        missed: records.missed(),
        snapshot: counters::snapshot(),
    })
}

impl Data {
    /// Calls that came in.
    pub fn calls(&self) -> u64 {
        self.snapshot.emulated().calls + self.snapshot.native().calls
    }

    /// Flops of all calls.
    pub fn flops(&self) -> f64 {
        (self.snapshot.emulated().flops + self.snapshot.native().flops) as f64
    }

    /// Seconds in all calls, by the time that each took, over all threads.
    pub fn in_calls(&self) -> f64 {
        self.snapshot.emulated().seconds + self.snapshot.native().seconds
    }

    /// The seconds in which the model expects all calls without this library.
    pub fn natively(&self) -> f64 {
        self.rows.iter().map(|row| row.native).sum()
    }

    /// The rows of calls that went to the native BLAS for a Reason.
    pub fn native_for(&self, reason: Reason) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.class.fate == Fate::Native(reason)).collect()
    }

    pub fn emulated(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_emulated())
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::class::Sums;
    use super::*;
    use crate::observe::counters::Group;
    use crate::options::Mode;
    use crate::ozaki::plan::{Accuracy, Way};

    /// An emulated class of the mode auto; by the portable engine, with N = 14 and T + 1 = 91.5.
    pub fn emulated(m: usize, n: usize, k: usize, calls: u64, seconds: f64) -> Row {
        let fate = Fate::Emulated {
            engine: engine::AMX,
            moduli: 14,
            mode: Mode::Auto,
            accuracy: Accuracy::Fp64,
            way: Some(Way::Plain),
            reason: None,
        };
        let row = native(m, n, k, calls, seconds, Reason::NoGain);
        let sums = Sums { bound: 91.5, ..row.class.sums };
        Row { class: Class { fate, sums, ..row.class }, native: 2.0 * seconds }
    }

    pub fn native(m: usize, n: usize, k: usize, calls: u64, seconds: f64, reason: Reason) -> Row {
        let sums = Sums {
            calls,
            multiplications: calls * (m * n * k) as u64,
            nanoseconds: (seconds * 1e9) as u64,
            ..Sums::default()
        };
        let class = Class { size: Size::Shape(m, n, k), fate: Fate::Native(reason), sums };
        Row { class, native: seconds }
    }

    #[test]
    fn shapes_that_were_native_too_are_compared_with_that() {
        let classes = [
            emulated(500, 500, 500, 3, 4.0).class,
            native(500, 500, 500, 2, 1.0, Reason::NoGain).class,
            native(500, 500, 500, 2, 3.0, Reason::NonFinite).class,
            emulated(500, 500, 400, 3, 4.0).class,
        ];
        let native: Vec<f64> = rows(&classes, |_| 7.0).iter().map(|row| row.native).collect();
        assert_eq!(native, [3.0, 1.0, 3.0, 7.0]);
    }

    /// A process that made such calls, with options (names without prefix).
    pub fn data(rows: Vec<Row>, options: &[(&str, &str)]) -> Data {
        let get = |name: &str| options.iter().find(|(n, _)| name[4..] == **n).map(|(_, v)| (*v).to_owned());
        let options = Options::read(get, |entry, value| panic!("{}={value}", entry.name));
        let mut snapshot = counters::snapshot();
        snapshot.engines = Default::default();
        snapshot.reasons = [Group::default(); Reason::COUNT];
        snapshot.moduli.fill(0);
        for row in &rows {
            let group = match row.class.fate {
                Fate::Native(reason) => &mut snapshot.reasons[reason as usize],
                Fate::Emulated { engine, moduli, .. } => {
                    snapshot.moduli[moduli] += row.class.sums.calls;
                    &mut snapshot.engines[engine]
                }
            };
            group.calls += row.class.sums.calls;
            group.flops += 2 * row.class.sums.multiplications;
            group.seconds += row.seconds();
        }
        Data {
            command: vec!["./<b>&\"x\"".to_owned(), "a'b".to_owned()],
            host: "host".to_owned(),
            pid: 7,
            rank: None,
            start: 1_700_000_000,
            seconds: 10.0,
            cpu: "CPU".to_owned(),
            engines: Some(vec!["amx", "portable"]),
            threads: 2,
            natives: vec![("/usr/lib/libopenblas.so".to_owned(), Some(32))],
            settings: settings(&options),
            options,
            rows,
            timeline: Buckets { width: 0.2, emulated: vec![0.1; 96], native: vec![0.3; 96] },
            missed: 0,
            snapshot,
        }
    }
}

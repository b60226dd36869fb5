//! The options: one table (name, default, values, help, parser), read from the environment at the first call, changed by
//! `oz2_set_option`. A call uses the set that it found at entry.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::observe::log::{self, Level};
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::plan::Accuracy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The plan proves the accuracy and chooses N.
    Auto,
    /// Fixed N, scaling from a bound product.
    Accurate,
    /// Fixed N, scaling from row and column norms.
    Fast,
    /// Everything goes to the native BLAS.
    Native,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    Auto,
    Cuda,
    Amx,
    Avx512,
    Avx2,
    Portable,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinSize {
    /// The time model decides.
    Auto,
    /// Every call with at least this m n k is emulated.
    Work(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeChoice {
    Auto,
    Builtin,
    Path(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integer {
    Auto,
    Lp64,
    Ilp64,
}

/// The GPUs to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// One: the local MPI rank modulo their number.
    Auto,
    All,
    /// These; an empty list stands for none.
    List(Vec<usize>),
}

/// The values in force. `None` stands for auto or off.
#[derive(Clone, Debug)]
pub struct Options {
    pub mode: Mode,
    pub moduli: Option<usize>,
    pub accuracy: Accuracy,
    pub engine: EngineChoice,
    pub min_size: MinSize,
    pub native: NativeChoice,
    pub threads: Option<usize>,
    pub workspace: Option<usize>,
    pub integer: Integer,
    /// The self-check of the products.
    pub check: bool,
    /// Levels of Strassen's form.
    pub strassen: Option<usize>,
    pub devices: Devices,
    /// The folder in which CUDA is looked for first.
    pub cuda_path: Option<String>,
    /// Every so many emulated calls one is computed natively too.
    pub verify: Option<u32>,
    /// Where calls go that differ.
    pub verify_dump: Option<String>,
    pub log: Level,
    /// OZ2_LOG was given, so a subscriber may be installed.
    pub log_asked: bool,
    pub stats: Option<String>,
    pub report: Option<String>,
    /// There is something to do after each call: `stats` or `report` is there.
    pub watched: bool,
    texts: [String; COUNT],
}

/// Number of options.
pub const COUNT: usize = 18;

/// One option.
pub struct Entry {
    /// Without the prefix OZ2_.
    pub name: &'static str,
    pub default: &'static str,
    /// What is allowed, for messages.
    pub values: &'static str,
    pub help: &'static str,
    /// Takes a value over; false if it is not allowed.
    parse: fn(&mut Options, &str) -> bool,
    /// Cannot change after the first call.
    fixed_at_start: bool,
}

const fn entry(
    name: &'static str,
    default: &'static str,
    values: &'static str,
    help: &'static str,
    parse: fn(&mut Options, &str) -> bool,
) -> Entry {
    Entry { name, default, values, help, parse, fixed_at_start: false }
}

const fn fixed(entry: Entry) -> Entry {
    Entry { fixed_at_start: true, ..entry }
}

/// Every option, in the order in which they are shown. LOG comes first so that it governs the warnings about the others.
pub static TABLE: [Entry; COUNT] = [
    entry("LOG", "warn", "off, error, warn, info, debug, trace", "what is written to stderr", |o, v| {
        o.log_asked = true;
        set(&mut o.log, Level::parse(v))
    }),
    entry(
        "MODE",
        "auto",
        "auto, accurate, fast, native",
        "how the scaling is chosen; native: never emulate",
        |o, v| {
            let modes = [
                ("auto", Mode::Auto),
                ("accurate", Mode::Accurate),
                ("fast", Mode::Fast),
                ("native", Mode::Native),
            ];
            set(&mut o.mode, choose(v, &modes))
        },
    ),
    entry(
        "MODULI",
        "auto",
        "auto or 2..20",
        "moduli of accurate and fast (auto: 15); the most for auto",
        |o, v| set(&mut o.moduli, auto_or(v, |v| v.parse().ok().filter(|n| (2..=MAX_MODULI).contains(n)))),
    ),
    entry(
        "ACCURACY",
        "fp64",
        "fp64, textbook, high",
        "the bound that auto proves: T = 2 sqrt n, n - 1, 1",
        |o, v| {
            let grades =
                [("fp64", Accuracy::Fp64), ("textbook", Accuracy::Textbook), ("high", Accuracy::High)];
            set(&mut o.accuracy, choose(v, &grades))
        },
    ),
    entry(
        "ENGINE",
        "auto",
        "auto, cuda, amx, avx512, avx2, portable",
        "what computes the products",
        |o, v| {
            use EngineChoice::*;
            let engines = [
                ("auto", Auto),
                ("cuda", Cuda),
                ("amx", Amx),
                ("avx512", Avx512),
                ("avx2", Avx2),
                ("portable", Portable),
            ];
            set(&mut o.engine, choose(v, &engines))
        },
    ),
    entry(
        "MIN_SIZE",
        "auto",
        "auto or a number >= 0",
        "x: emulate every call with m n k >= x^3; 0: all",
        |o, v| {
            // Held as ceil(x^3), so that a call compares integers.
            let number = |v: &str| {
                let x: f64 = v.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0)?;
                Some(MinSize::Work((x * x * x).ceil() as u64))
            };
            set(&mut o.min_size, if is(v, "auto") { Some(MinSize::Auto) } else { number(v) })
        },
    ),
    fixed(entry(
        "NATIVE",
        "auto",
        "auto, builtin, or the path of a BLAS library",
        "the BLAS underneath",
        |o, v| {
            o.native = match v {
                _ if is(v, "auto") => NativeChoice::Auto,
                _ if is(v, "builtin") => NativeChoice::Builtin,
                _ => NativeChoice::Path(v.to_owned()),
            };
            !v.is_empty() && !v.contains('\0')
        },
    )),
    entry("NUM_THREADS", "auto", "auto or a number >= 1", "threads of the emulation", |o, v| {
        set(&mut o.threads, auto_or(v, |v| v.parse().ok().filter(|&n| n >= 1)))
    }),
    entry(
        "WORKSPACE",
        "auto",
        "auto or bytes, with suffix K, M or G",
        "the most memory the emulation holds",
        |o, v| set(&mut o.workspace, auto_or(v, parse_bytes)),
    ),
    fixed(entry("DEVICES", "auto", "auto, all, none, or a list 0,1", "the GPUs to use", |o, v| {
        let list =
            || v.split(',').map(|part| part.parse::<u16>().ok().map(usize::from)).collect::<Option<_>>();
        let named = [("auto", Devices::Auto), ("all", Devices::All), ("none", Devices::List(Vec::new()))];
        let named = named.into_iter().find(|(name, _)| is(v, name)).map(|(_, devices)| devices);
        set(&mut o.devices, named.or_else(|| list().map(Devices::List)))
    })),
    entry("CHECK", "off", "off, on", "self-check of the products", |o, v| {
        set(&mut o.check, choose(v, &[("off", false), ("on", true)]))
    }),
    entry("STRASSEN", "auto", "auto, 0, 1, 2", "levels of Strassen's form in the products", |o, v| {
        set(&mut o.strassen, auto_or(v, |v| choose(v, &[("0", 0), ("1", 1), ("2", 2)])))
    }),
    entry("VERIFY", "off", "off or n >= 1", "compute every n-th emulated call natively too", |o, v| {
        let every = |v: &str| if is(v, "off") { Some(None) } else { v.parse().ok().map(Some) };
        set(&mut o.verify, every(v).filter(|every| *every != Some(0)))
    }),
    entry(
        "VERIFY_DUMP",
        "off",
        "off, or a file pattern with %h %p %r",
        "calls that differ, for oz2run --replay",
        |o, v| {
            o.verify_dump = (!is(v, "off")).then(|| v.to_owned());
            !v.is_empty() && !v.contains('\0')
        },
    ),
    fixed(entry(
        "STATS",
        "off",
        "off, stderr, or a file pattern with %h %p %r",
        "statistics at exit",
        |o, v| {
            o.stats = if is(v, "off") { None } else { Some(v.to_owned()) };
            !v.is_empty()
        },
    )),
    fixed(entry(
        "REPORT",
        "off",
        "off, or a file pattern with %h %p %r",
        "a page about the calls, in HTML, at exit",
        |o, v| {
            o.report = (!is(v, "off")).then(|| v.to_owned());
            !v.is_empty() && !v.contains('\0')
        },
    )),
    fixed(entry("CUDA_PATH", "auto", "auto or a folder", "where CUDA is looked for first", |o, v| {
        o.cuda_path = (!is(v, "auto")).then(|| v.to_owned());
        !v.is_empty() && !v.contains('\0')
    })),
    fixed(entry("INTEGER", "auto", "auto, lp64, ilp64", "the integer width of unsuffixed names", |o, v| {
        let widths = [("auto", Integer::Auto), ("lp64", Integer::Lp64), ("ilp64", Integer::Ilp64)];
        set(&mut o.integer, choose(v, &widths))
    })),
];

fn is(value: &str, name: &str) -> bool {
    value.eq_ignore_ascii_case(name)
}

fn set<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

fn choose<T: Copy>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    choices.iter().find(|(name, _)| is(value, name)).map(|&(_, choice)| choice)
}

/// `auto` is the inner None; a value that is not allowed the outer.
fn auto_or<T>(value: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if is(value, "auto") { Some(None) } else { parse(value).map(Some) }
}

/// Bytes with an optional suffix K, M or G (powers of 1024).
fn parse_bytes(value: &str) -> Option<usize> {
    let unit = match value.chars().last()?.to_ascii_uppercase() {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => 1,
    };
    let digits = if unit == 1 { value } else { &value[..value.len() - 1] };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

impl Default for Options {
    fn default() -> Self {
        let mut options = Self {
            mode: Mode::Auto,
            moduli: None,
            accuracy: Accuracy::Fp64,
            engine: EngineChoice::Auto,
            min_size: MinSize::Auto,
            native: NativeChoice::Auto,
            threads: None,
            workspace: None,
            integer: Integer::Auto,
            check: false,
            strassen: None,
            devices: Devices::Auto,
            cuda_path: None,
            verify: None,
            verify_dump: None,
            log: Level::Warn,
            log_asked: false,
            stats: None,
            report: None,
            watched: false,
            texts: std::array::from_fn(|at| TABLE[at].default.to_owned()),
        };
        for entry in &TABLE {
            assert!(
                (entry.parse)(&mut options, entry.default),
                "the default of {} is not allowed",
                entry.name
            );
        }
        options.log_asked = false;
        options
    }
}

/// The place of an option in the table; `name` in any case, with or without the prefix.
fn position(name: &str) -> Option<usize> {
    let has_prefix = name.get(..4).is_some_and(|prefix| is(prefix, "OZ2_"));
    let bare = if has_prefix { &name[4..] } else { name };
    TABLE.iter().position(|entry| is(bare, entry.name))
}

impl Options {
    /// Takes over the environment as `get` sees it; every value that is not allowed leaves the default and goes to `bad`.
    pub fn read(get: impl Fn(&str) -> Option<String>, mut bad: impl FnMut(&Entry, &str)) -> Self {
        let mut options = Self::default();
        for at in 0..TABLE.len() {
            let entry = &TABLE[at];
            let value = get(&format!("OZ2_{}", entry.name)).filter(|value| !value.is_empty());
            if let Some(value) = value
                && !options.assign(at, &value)
            {
                bad(entry, &value);
            }
        }
        options
    }

    fn assign(&mut self, at: usize, value: &str) -> bool {
        let mut changed = self.clone();
        let good = (TABLE[at].parse)(&mut changed, value);
        if good {
            changed.texts[at] = value.to_owned();
            changed.watched = changed.stats.is_some() || changed.report.is_some();
            *self = changed;
        }
        good
    }

    /// The value in force of the `at`-th option, as it was written.
    pub fn text(&self, at: usize) -> &str {
        &self.texts[at]
    }
}

/// The options in force. Sets are never freed: a call may still read an old one, and there are few.
static CURRENT: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());
/// Serialises changes, which are rare and short. A flag and no mutex, since the child of a fork must be able to clear it: the
/// thread that held it does not exist there.
static CHANGING: AtomicBool = AtomicBool::new(false);

/// The right to change options, while it lives.
struct Change;

impl Change {
    fn begin() -> Self {
        while CHANGING.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        CHANGING.store(false, Ordering::Release);
    }
}

/// After a fork.
pub fn forget_changes() {
    CHANGING.store(false, Ordering::Relaxed);
}

fn load() -> Option<&'static Options> {
    // SAFETY: the pointer is null or came from Box::leak and is never freed or changed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// The options in force; reads the environment at the first use.
pub fn current() -> &'static Options {
    load().unwrap_or_else(first)
}

#[cold]
fn first() -> &'static Options {
    let _change = Change::begin();
    if let Some(options) = load() {
        return options;
    }
    let mut bad: Vec<String> = Vec::new();
    let options = Options::read(
        |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
        |entry, value| {
            bad.push(format!(
                "OZ2_{}={value} is not allowed (allowed: {}); using {}",
                entry.name, entry.values, entry.default
            ));
        },
    );
    log::start(options.log, options.log_asked);
    for text in bad {
        log::always(Level::Warn, &text);
    }
    let options: &'static Options = Box::leak(Box::new(options));
    CURRENT.store(std::ptr::from_ref(options).cast_mut(), Ordering::Release);
    options
}

/// What became of [`set_option`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetResult {
    Done = 0,
    UnknownName = 1,
    BadValue = 2,
    TooLate = 3,
}

/// Changes an option for the calls that start from now on. `started`: a GEMM call has been made.
pub fn set_option(name: &str, value: &str, started: bool) -> SetResult {
    let Some(at) = position(name) else { return SetResult::UnknownName };
    let mut options = current().clone();
    let _change = Change::begin();
    if let Some(newest) = load() {
        options = newest.clone();
    }
    if !options.assign(at, value) {
        return SetResult::BadValue;
    }
    if started && TABLE[at].fixed_at_start {
        return SetResult::TooLate;
    }
    log::start(options.log, options.log_asked);
    CURRENT.store(Box::leak(Box::new(options)), Ordering::Release);
    SetResult::Done
}

/// The value in force of an option, or None for an unknown name.
pub fn get_option(name: &str) -> Option<&'static str> {
    position(name).map(|at| current().text(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Options, Vec<String>) {
        let mut bad = Vec::new();
        let get = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let options = Options::read(get, |entry, value| bad.push(format!("{}={value}", entry.name)));
        (options, bad)
    }

    #[test]
    fn good_values_are_taken_in_any_case() {
        let (o, bad) = read(&[
            ("OZ2_MODE", "Fast"),
            ("OZ2_MODULI", "7"),
            ("OZ2_ACCURACY", "HIGH"),
            ("OZ2_MIN_SIZE", "12.5"),
            ("OZ2_WORKSPACE", "3m"),
            ("OZ2_NUM_THREADS", "4"),
            ("OZ2_NATIVE", "builtin"),
            ("OZ2_INTEGER", "ilp64"),
            ("OZ2_STRASSEN", "2"),
            ("OZ2_VERIFY", "3"),
            ("OZ2_VERIFY_DUMP", "calls-%p"),
        ]);
        assert!(bad.is_empty());
        assert_eq!((o.verify, o.verify_dump.as_deref()), (Some(3), Some("calls-%p")));
        assert_eq!(o.strassen, Some(2));
        assert_eq!((o.mode, o.moduli, o.accuracy), (Mode::Fast, Some(7), Accuracy::High));
        assert_eq!((o.min_size, o.workspace, o.threads), (MinSize::Work(1954), Some(3 << 20), Some(4)));
        assert_eq!((o.native, o.integer), (NativeChoice::Builtin, Integer::Ilp64));
    }

    #[test]
    fn bad_values_leave_the_default_and_are_reported_once() {
        let cases = [
            ("OZ2_MODE", "quick"),
            ("OZ2_MODULI", "21"),
            ("OZ2_MODULI", "1"),
            ("OZ2_MODULI", "-3"),
            ("OZ2_ACCURACY", "fp32"),
            ("OZ2_ENGINE", "gpu"),
            ("OZ2_MIN_SIZE", "-1"),
            ("OZ2_MIN_SIZE", "nan"),
            ("OZ2_NUM_THREADS", "0"),
            ("OZ2_NUM_THREADS", "two"),
            ("OZ2_WORKSPACE", "1T"),
            ("OZ2_WORKSPACE", "-1K"),
            ("OZ2_WORKSPACE", "99999999999999999999G"),
            ("OZ2_DEVICES", "0,x"),
            ("OZ2_CHECK", "yes"),
            ("OZ2_STRASSEN", "3"),
            ("OZ2_STRASSEN", "on"),
            ("OZ2_VERIFY", "0"),
            ("OZ2_LOG", "loud"),
            ("OZ2_INTEGER", "32"),
        ];
        let default = Options::default();
        for (name, value) in cases {
            let (o, bad) = read(&[(name, value)]);
            assert_eq!(bad.len(), 1, "{name}={value}");
            assert_eq!(format!("{o:?}"), format!("{default:?}"), "{name}={value}");
        }
    }

    #[test]
    fn an_empty_value_counts_as_unset() {
        let names: Vec<String> = TABLE.iter().map(|entry| format!("OZ2_{}", entry.name)).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert!(read(&pairs).1.is_empty());
    }

    #[test]
    fn names_are_found_with_and_without_prefix() {
        assert_eq!(position("mode"), position("OZ2_MODE"));
        assert!(position("oz2_moduli").is_some());
        assert!(position("nothing").is_none());
        assert!(position("é").is_none());
    }
}

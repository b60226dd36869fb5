//! The log, always to stderr. Warnings and errors are written even if nobody asked, each kind a few times at most; everything
//! below goes through `tracing`, whose subscriber is installed only when OZ2_LOG asks for more than warnings.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::file::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

const LEVELS: [(&str, Level); 6] = [
    ("off", Level::Off),
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];

impl Level {
    pub fn parse(value: &str) -> Option<Self> {
        LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(value)).map(|&(_, level)| level)
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);
static SUBSCRIBED: AtomicBool = AtomicBool::new(false);

/// The kinds of messages that may repeat: each is written a few times and then no more.
#[derive(Clone, Copy)]
pub enum Kind {
    EngineUnavailable,
    NativeUnusable,
    NoMemory,
    EngineFault,
    StatsFile,
    ReportFile,
    Differs,
    DumpFile,
    Threads,
    MissingRoutine,
    FailedCheck,
    IntegersInDoubt,
}

const REPEATS: u32 = 3;
static WRITTEN: [AtomicU32; 12] = [const { AtomicU32::new(0) }; 12];

/// Sets the level; `asked`: the user named one, so that a subscriber may be installed.
pub fn start(level: Level, asked: bool) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    if asked && level >= Level::Info && !SUBSCRIBED.swap(true, Ordering::Relaxed) {
        let most = match level {
            Level::Trace => tracing::Level::TRACE,
            Level::Debug => tracing::Level::DEBUG,
            _ => tracing::Level::INFO,
        };
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .with_target(false)
            .finish();
        // This is our own copy of tracing: no other subscriber can be there, and the host's is not touched.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
}

pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// One line to stderr, in one write if it is not long, and without an allocation; errors of writing are of no interest to the host.
pub fn always(level: Level, text: &str) {
    if enabled(level) {
        let name = if level == Level::Error { "error" } else { "warning" };
        match Text::<1024>::new(|line| writeln!(line, "oz2blas: {name}: {text}")) {
            Some(line) => drop(std::io::stderr().write_all(line.as_str().as_bytes())),
            None => drop(writeln!(std::io::stderr(), "oz2blas: {name}: {text}")),
        }
    }
}

/// A warning or an error of a kind that may repeat.
pub fn capped(kind: Kind, level: Level, text: &str) {
    if !enabled(level) {
        return;
    }
    match WRITTEN[kind as usize].fetch_add(1, Ordering::Relaxed) {
        n if n + 1 < REPEATS => always(level, text),
        n if n + 1 == REPEATS => {
            always(level, &format!("{text} (further messages of this kind are left out)"))
        }
        _ => {}
    }
}

/// A warning of a kind that is written once in a process.
pub fn once(kind: Kind, level: Level, text: &str) {
    if enabled(level) && WRITTEN[kind as usize].swap(REPEATS, Ordering::Relaxed) == 0 {
        always(level, text);
    }
}

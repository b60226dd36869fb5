//! The file of OZ2_STATS. It is written from the calls themselves, so that it is there, and complete, however the process ends: by
//! `_exit`, by a signal, or by another program in its place.
//!
//! A finished text takes the place of the one before (rename): who reads sees a whole one. Where the process ends in the middle,
//! the file is the one before, and `NAME.PID.unfinished` stays beside it.
//!
//! Nothing here allocates after the first call has begun, since C may have been written; and all that changes is in atomics, which
//! the child of a fork can set back whatever its parent's threads were doing.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::file::{self, Buffered, Pattern, Text};
use super::log::{self, Kind, Level};
use super::{counters, stats};
use crate::engine::cpu::fpenv;

/// So many times the file is written however long that takes, so that all calls of a short program are in it ...
const FREE: u32 = 16;
/// ... and later while that takes no more than this part of the time since the first call.
const SHARE: u64 = 100;
/// Of so many small calls one is followed by a look at the clock, and each of the first ones: a look takes as long as such a call.
const LOOK: u64 = 256;
/// Longer names are made into C strings on the heap by the standard library. Their files are written at exit only.
const LONGEST: usize = 380;

struct Place {
    /// None: stderr, at exit only.
    file: Option<Pattern>,
    origin: Instant,
}

static PLACE: OnceLock<Place> = OnceLock::new();
/// When this process made its first call, in nanoseconds from the origin; 0: it has made none.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// How often it was written, and nanoseconds that went into it after the free times.
static WRITES: AtomicU32 = AtomicU32::new(0);
static SPENT: AtomicU64 = AtomicU64::new(0);
/// A thread writes.
static BUSY: AtomicBool = AtomicBool::new(false);
/// It could not be written, which has been said.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Which of the names that the pattern allows is ours, plus 1.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// At the first call: `target` is the value of OZ2_STATS.
pub fn start(target: &str) {
    let is_stderr = target.eq_ignore_ascii_case("stderr");
    let file = (!is_stderr).then(|| Pattern::fixed_here(target));
    let _ = PLACE.set(Place { file, origin: Instant::now() });
}

/// In the child of a fork: it has a file of its own.
pub fn forget() {
    FIRST.store(0, Ordering::Relaxed);
    WRITES.store(0, Ordering::Relaxed);
    SPENT.store(0, Ordering::Relaxed);
    TAKEN.store(0, Ordering::Relaxed);
    FAILED.store(false, Ordering::Relaxed);
    BUSY.store(false, Ordering::Relaxed);
}

/// It is time for [`after_call`]: after a call with this number among small ones, from 0; 0 for a large one.
#[inline]
pub fn is_time(number: u64) -> bool {
    number < LOOK || number.is_multiple_of(LOOK)
}

/// After a call that is complete and counted: writes the file if that is due. Never panics, waits for nothing, allocates nothing.
#[cold]
pub fn after_call() {
    let Some(place) = PLACE.get() else { return };
    let now = nanoseconds(place.origin.elapsed()).max(1);
    let first =
        FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|first| first);
    let first = if first == 0 { now } else { first };
    let may = now.saturating_sub(first) / SHARE;
    if SPENT.load(Ordering::Relaxed) > may || FAILED.load(Ordering::Relaxed) {
        return;
    }
    if let Some(file) = &place.file {
        write(file, 1);
    }
}

/// At exit, for the last time; nothing if this process has made no call.
pub fn finish() {
    let Some(place) = PLACE.get().filter(|_| FIRST.load(Ordering::Relaxed) > 0) else { return };
    match &place.file {
        // Another thread may be writing, and may never come to its end: it is not waited for long.
        Some(file) => write(file, 200),
        None => {
            let _ = io::stderr().write_all((stats::json() + "\n").as_bytes());
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the file unless another thread does, even after `tries` looks, a millisecond apart.
fn write(pattern: &Pattern, tries: u32) {
    for n in 1.. {
        if !BUSY.swap(true, Ordering::Acquire) {
            break;
        }
        if n == tries {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let clock = Instant::now();
    let _ = catch_unwind(|| {
        let text = match replace(pattern) {
            Ok(()) => return,
            // At exit there is another way.
            Err(ErrorKind::InvalidFilename) if tries > 1 => match write_long(pattern) {
                Ok(()) => return,
                Err(error) => error.kind(),
            },
            Err(ErrorKind::InvalidFilename) => return,
            Err(kind) => kind,
        };
        FAILED.store(true, Ordering::Relaxed);
        let told = Text::<900>::new(|out| write!(out, "cannot write {pattern}: {text}"));
        let told = told.as_ref().map_or("cannot write the file of OZ2_STATS", Text::as_str);
        log::once(Kind::StatsFile, Level::Warn, told);
    });
    if WRITES.fetch_add(1, Ordering::Relaxed) >= FREE {
        SPENT.fetch_add(nanoseconds(clock.elapsed()), Ordering::Relaxed);
    }
    BUSY.store(false, Ordering::Release);
}

type Name = Text<LONGEST>;

/// Puts the statistics of this moment into the place of the file; `InvalidFilename` where its name is too long.
fn replace(pattern: &Pattern) -> Result<(), ErrorKind> {
    let name =
        |n: u32| Name::new(|out| file::write_candidate(out, pattern, n)).ok_or(ErrorKind::InvalidFilename);
    // Two processes may have the same pattern.
    let pid = std::process::id();
    let unfinished = Name::new(|out| write!(out, "{pattern}.{pid}.unfinished"));
    let unfinished = unfinished.ok_or(ErrorKind::InvalidFilename)?;
    let unfinished = unfinished.as_str();
    let done = write_text(unfinished).and_then(|()| match TAKEN.load(Ordering::Relaxed) {
        0 => take_name(unfinished, name),
        taken => fs::rename(unfinished, name(taken - 1)?.as_str()).map_err(|error| error.kind()),
    });
    if done.is_err() {
        let _ = fs::remove_file(unfinished);
    }
    done
}

fn write_text(name: &str) -> Result<(), ErrorKind> {
    let open = || OpenOptions::new().write(true).create_new(true).open(name);
    let mut file = open()
        .or_else(|error| match error.kind() {
            // Left by a process that had the same number.
            ErrorKind::AlreadyExists => fs::remove_file(name).and_then(|()| open()),
            _ => Err(error),
        })
        .map_err(|error| error.kind())?;
    let mut out = Buffered::new(&mut file);
    let written = fpenv::in_clean_environment(|| {
        stats::write(&mut out, &counters::snapshot())?;
        out.write_char('\n')?;
        out.flush()
    });
    written.map_err(|_| out.error.unwrap_or(ErrorKind::Other))
}

/// Takes the first name that is free, with the finished text.
fn take_name(unfinished: &str, name: impl Fn(u32) -> Result<Name, ErrorKind>) -> Result<(), ErrorKind> {
    for n in 0..file::CANDIDATES {
        let candidate = name(n)?;
        let candidate = candidate.as_str();
        let taken = match fs::hard_link(unfinished, candidate) {
            Ok(()) => {
                let _ = fs::remove_file(unfinished);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            // A file system without such links: the name is there for a moment without a text.
            Err(_) => match OpenOptions::new().write(true).create_new(true).open(candidate) {
                Ok(_) => fs::rename(unfinished, candidate),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => Err(error),
            },
        };
        if taken.is_ok() {
            TAKEN.store(n + 1, Ordering::Relaxed);
        }
        return taken.map_err(|error| error.kind());
    }
    Err(ErrorKind::AlreadyExists)
}

/// A file with a long name, once.
fn write_long(pattern: &Pattern) -> io::Result<()> {
    let (mut file, _) = file::create(pattern).map_err(io::Error::other)?;
    file.write_all((stats::json() + "\n").as_bytes())
}

//! What `oz2run --calibrate` has measured on this machine: what the factors of the time model ([`super::experience`]) start with.
//!
//! A text file in the user's configuration folder, one for each model of CPU, since a home folder may be shared by unlike machines.
//! It is read once, by the first call that the time model is asked for; what is missing or wrong in it leaves a factor at 1. It
//! can change where a call goes, never a result. A line is
//!
//! ```text
//! THREADS WAY SIZE THINNESS FACTOR
//! ```
//!
//! where WAY is an engine, or `native:` with the last folder and the name of the file of the BLAS that was measured; the class of the
//! call is that of [`experience::class_of`], and FACTOR the seconds that were measured divided by those that the model expects.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::experience;
use crate::engine::NAMES;

/// The first line: files of other versions are not read, as their factors belong to other constants.
const HEAD: &str = concat!("oz2blas ", env!("CARGO_PKG_VERSION"));
const NATIVE: &str = "native:";

/// A line of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured<'a> {
    /// The threads that the calls used.
    pub threads: usize,
    /// An engine of [`NAMES`], or [`way_of_native`].
    pub way: &'a str,
    /// The class of the calls.
    pub size: usize,
    pub thinness: usize,
    /// Seconds measured, divided by those expected.
    pub factor: f64,
}

/// WAY of a native BLAS, by the file that provides it. Not by its whole path, since many environments have a folder with the same
/// wheel; not by the name of a link, since Debian's `libblas.so.3` is any BLAS.
pub fn way_of_native(file: &str) -> String {
    let path = std::fs::canonicalize(file).unwrap_or_else(|_| file.into());
    let mut parts: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    // Fields end at white space.
    format!("{NATIVE}{}", parts.join("/").replace(char::is_whitespace, "_"))
}

/// The lines of a file that make sense; none of a file of another version.
pub fn parse(text: &str) -> impl Iterator<Item = Measured<'_>> + Clone {
    let is_ours = text.lines().next() == Some(HEAD);
    let lines = if is_ours { text } else { "" };
    lines.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let threads = fields.next()?.parse().ok().filter(|&threads| threads > 0)?;
        let way = fields.next()?;
        let mut number = || fields.next()?.parse().ok();
        let (size, thinness) = (number()?, number()?);
        let factor: f64 = fields.next()?.parse().ok()?;
        let legal = size < experience::SIZES && thinness < experience::THINNESSES;
        let good = legal && factor.is_finite() && factor > 0.0 && fields.next().is_none();
        good.then_some(Measured { threads, way, size, thinness, factor })
    })
}

/// The text of a file: what it held before, but for the ways and threads that were measured anew, and these.
pub fn merged(before: &str, measured: &[Measured]) -> String {
    let mut text = format!("{HEAD}\n");
    let is_old =
        |old: &Measured| !measured.iter().any(|new| (new.threads, new.way) == (old.threads, old.way));
    for line in parse(before).filter(is_old).chain(measured.iter().copied()) {
        let Measured { threads, way, size, thinness, factor } = line;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{threads} {way} {size} {thinness} {factor:.3}");
    }
    text
}

/// The lines of a way for the number of threads that is nearest to `threads`, by their ratio.
fn nearest<'a>(
    lines: impl Iterator<Item = Measured<'a>> + Clone,
    way: &str,
    threads: usize,
) -> impl Iterator<Item = Measured<'a>> {
    let of_way = lines.filter(move |line| line.way == way);
    let distance = |line: &Measured| line.threads.max(threads) * 1000 / line.threads.min(threads);
    let best = of_way
        .clone()
        .map(|line| line.threads)
        .min_by_key(|&threads| distance(&Measured { threads, way: "", size: 0, thinness: 0, factor: 1.0 }));
    of_way.filter(move |line| Some(line.threads) == best)
}

/// Where the file for this model of CPU is; None without a home folder.
pub fn file(cpu: &str) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CONFIG_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = cpu.chars().map(kept).collect();
    let name = words.split_whitespace().collect::<Vec<_>>().join("-");
    Some(folder.join("oz2blas").join(format!("{name}.calibration")))
}

/// The first call that asks reads the file, if there is one; the others do not wait for it. `threads`: those of the call;
/// `native`: the file that provides the native BLAS.
pub fn load(cpu: impl FnOnce() -> String, threads: usize, native: impl FnOnce() -> String) {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if LOADED.load(Ordering::Relaxed) || LOADED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(text) = file(&cpu()).and_then(|file| std::fs::read_to_string(file).ok()) else { return };
    start(&text, threads.max(1), &way_of_native(&native()));
}

/// Starts the factors with what a file says.
fn start(text: &str, threads: usize, native: &str) {
    let lines = parse(text);
    for line in nearest(lines.clone(), native, threads) {
        experience::start_with(line.size, line.thinness, None, line.factor);
    }
    for (engine, name) in NAMES.iter().enumerate() {
        for line in nearest(lines.clone(), name, threads) {
            experience::start_with(line.size, line.thinness, Some(engine), line.factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Learned, Shape};
    use super::*;
    use crate::engine;

    fn line(threads: usize, way: &str, size: usize, factor: f64) -> Measured<'_> {
        Measured { threads, way, size, thinness: 1, factor }
    }

    #[test]
    fn what_is_written_is_read_and_what_is_measured_anew_replaces_the_old() {
        let (amx, blas) = (line(2, "amx", 3, 1.25), line(2, "native:libblas.so.3", 4, 0.5));
        let text = merged("", &[amx, blas]);
        assert_eq!(parse(&text).collect::<Vec<_>>(), [amx, blas]);
        let (again, alone) = (line(2, "amx", 4, 3.0), line(1, "amx", 3, 2.0));
        let text = merged(&text, &[again, alone]);
        assert_eq!(parse(&text).collect::<Vec<_>>(), [blas, again, alone]);
    }

    #[test]
    fn lines_that_make_no_sense_and_other_versions_are_passed_over() {
        let good = "2 amx 3 1 1.5";
        let bad = [
            "",
            "2 amx 3 1",
            "2 amx 3 1 1.5 6",
            "0 amx 3 1 1.5",
            "2 amx 7 1 1.5",
            "2 amx 3 4 1.5",
            "2 amx 3 1 nan",
            "2 amx 3 1 inf",
            "2 amx 3 1 0",
            "2 amx 3 1 -1",
            "-2 amx 3 1 1.5",
            "\u{1f600}",
        ];
        let text = format!("{HEAD}\n{}\n{good}\n", bad.join("\n"));
        assert_eq!(parse(&text).collect::<Vec<_>>(), [line(2, "amx", 3, 1.5)]);
        assert_eq!(parse(&format!("oz2blas 0.0.1\n{good}\n")).count(), 0);
    }

    #[test]
    fn the_nearest_number_of_threads_counts_for_each_way() {
        let lines = [line(1, "amx", 0, 1.0), line(8, "amx", 0, 8.0), line(64, "avx2", 0, 64.0)];
        let factors = |way: &str, threads| {
            nearest(lines.iter().copied(), way, threads).map(|line| line.factor).collect::<Vec<_>>()
        };
        assert_eq!(factors("amx", 1), [1.0]);
        assert_eq!(factors("amx", 2), [1.0]);
        assert_eq!(factors("amx", 4), [8.0]);
        assert_eq!(factors("amx", 200), [8.0]);
        assert_eq!(factors("avx2", 1), [64.0]);
        assert_eq!(factors("cuda", 1), [0.0; 0]);
    }

    #[test]
    fn factors_start_with_the_file_for_the_engine_and_the_blas_that_it_names() {
        // The largest class: no other test of this process learns of it.
        let size = experience::SIZES - 1;
        let call = Shape { m: 1 << 20, n: 1 << 20, k: 1 << 20, alpha: 1.0, beta: 0.0 };
        let with = |way, factor| Measured { thinness: 3, ..line(2, way, size, factor) };
        let text =
            merged("", &[with("avx2", 3.0), with("native:lib/a.so", 0.5), with("native:lib/b.so", 0.25)]);
        start(&text, 2, &way_of_native("/nowhere/lib/c.so"));
        assert_eq!(experience::learned(&call).native, 1.0);
        start(&text, 2, &way_of_native("/nowhere/lib/b.so"));
        let Learned { native, emulated } = experience::learned(&call);
        assert_eq!((native, emulated[engine::AVX2], emulated[engine::AMX]), (0.25, 3.0, 1.0));
        assert_eq!(way_of_native("my blas.so"), "native:my_blas.so");
        assert_eq!(way_of_native("/nowhere/lib/blas/libblas.so"), "native:blas/libblas.so");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(oz2blas [ -~]*\n)?([0-9a-z. :\u{0}-\u{ff}]*\n){0,9}") {
            for line in parse(&text) {
                prop_assert!(line.factor > 0.0 && line.size < experience::SIZES);
            }
        }
    }
}

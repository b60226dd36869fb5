//! The command line.

use std::path::PathBuf;

pub const HELP: &str = "\
usage: scripts/bench cpu [OPTION...]

Times DGEMM (C = A B, column-major, uniform data) and an LU factorisation, with one thread and with two. OpenBLAS, MKL, the
builtin DGEMM and oz2blas with its default settings take turns in one process. Writes cpu.md, cpu.json and cpu.svg.

  --quick          a few shapes, few rounds: half a minute or so, to see that everything works
  --long           also 8192 x 8192 x 8192
  --threads LIST   numbers of threads, each a process of its own (default 1,2)
  --seconds S      time for each case (default 9; quick 1.5). A case gets 3 rounds at least
  --rounds N       the most rounds for each case (default 15; quick 5)
  --emulate        emulate calls of every size (OZ2_MIN_SIZE=0), not only those that the time model takes
  --over-mkl       oz2blas passes calls on to MKL, not to OpenBLAS
  --engine NAME    this engine only (OZ2_ENGINE), such as portable
  --no-lu          leave the LU factorisation out
  --no-gemm        leave the DGEMM out
  --out DIR        where the files go (default docs/measured)
  -h, --help       this text

Run it on a quiet machine. The default run takes about 10 minutes. Contenders whose single call would last longer than the
time for a case, and several times as long as that of the fastest, are left out of it.
";

/// What scripts/bench fills in: these are about this checkout, and do not belong to the command that a report shows.
const FROM_THE_SCRIPT: [&str; 5] = ["--library", "--openblas", "--mkl", "--revision", "--child"];

#[derive(Clone, Debug, PartialEq)]
pub struct Args {
    pub quick: bool,
    pub long: bool,
    pub threads: Vec<usize>,
    pub seconds: f64,
    pub rounds: usize,
    pub emulate: bool,
    pub over_mkl: bool,
    pub engine: Option<String>,
    pub lu: bool,
    pub gemm: bool,
    pub out: PathBuf,
    /// liboz2blas.so.
    pub library: PathBuf,
    pub openblas: PathBuf,
    /// Not on every machine.
    pub mkl: Option<PathBuf>,
    /// The commit that the library was built from.
    pub revision: String,
    /// This process is a child that measures with so many threads.
    pub child: Option<usize>,
    /// The command as a user types it.
    pub command: String,
}

/// Why there are no arguments.
#[derive(Debug, PartialEq)]
pub enum Stop {
    Help,
    Wrong(String),
}

pub fn parse(words: impl Iterator<Item = String>) -> Result<Args, Stop> {
    let mut args = Args {
        quick: false,
        long: false,
        threads: vec![1, 2],
        seconds: 0.0,
        rounds: 0,
        emulate: false,
        over_mkl: false,
        engine: None,
        lu: true,
        gemm: true,
        out: PathBuf::from("docs/measured"),
        library: PathBuf::from("target/release/liboz2blas.so"),
        openblas: PathBuf::new(),
        mkl: None,
        revision: "unknown".to_owned(),
        child: None,
        command: "scripts/bench cpu".to_owned(),
    };
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = None;
        let mut next = || {
            value = words.next();
            value.clone().ok_or_else(|| Stop::Wrong(format!("{word} needs a value")))
        };
        match word.as_str() {
            "-h" | "--help" => return Err(Stop::Help),
            "--quick" => args.quick = true,
            "--long" => args.long = true,
            "--emulate" => args.emulate = true,
            "--over-mkl" => args.over_mkl = true,
            "--no-lu" => args.lu = false,
            "--no-gemm" => args.gemm = false,
            "--threads" => {
                args.threads = next()?.split(',').map(|n| number(&word, n)).collect::<Result<_, _>>()?;
            }
            "--seconds" => args.seconds = number(&word, &next()?)?,
            "--rounds" => args.rounds = number(&word, &next()?)?,
            "--engine" => args.engine = Some(next()?),
            "--out" => args.out = next()?.into(),
            "--library" => args.library = next()?.into(),
            "--openblas" => args.openblas = next()?.into(),
            "--mkl" => args.mkl = Some(next()?).filter(|path| !path.is_empty()).map(PathBuf::from),
            "--revision" => args.revision = next()?,
            "--child" => args.child = Some(number(&word, &next()?)?),
            _ => return Err(Stop::Wrong(format!("{word} is not an option"))),
        }
        // A report does not tell where it was written to.
        if !FROM_THE_SCRIPT.contains(&word.as_str()) && word != "--out" {
            args.command += " ";
            args.command += &word;
            if let Some(value) = value {
                args.command += " ";
                args.command += &value;
            }
        }
    }
    if args.threads.contains(&0) || args.threads.is_empty() {
        return Err(Stop::Wrong("--threads takes numbers from 1 on".to_owned()));
    }
    if args.over_mkl && args.mkl.is_none() {
        return Err(Stop::Wrong("--over-mkl needs MKL".to_owned()));
    }
    if args.seconds == 0.0 {
        args.seconds = if args.quick { 1.5 } else { 9.0 };
    }
    if args.rounds == 0 {
        args.rounds = if args.quick { 5 } else { 15 };
    }
    Ok(args)
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, Stop> {
    text.trim().parse().map_err(|_| Stop::Wrong(format!("{option}: {text} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Args, Stop> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_command_in_a_report_is_what_the_user_typed() {
        let args = of("--library x.so --quick --threads 1,2 --out x --engine amx --mkl m").unwrap();
        assert_eq!(args.command, "scripts/bench cpu --quick --threads 1,2 --engine amx");
        assert_eq!((args.threads, args.seconds, args.rounds), (vec![1, 2], 1.5, 5));
    }

    #[test]
    fn wrong_words_are_named() {
        for text in ["--fast", "--over-mkl", "--rounds", "--rounds x", "--threads 1,0"] {
            assert!(matches!(of(text), Err(Stop::Wrong(_))), "{text}");
        }
        assert_eq!(of("--quick --help"), Err(Stop::Help));
    }
}

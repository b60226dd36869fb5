//! The command line.

use std::path::PathBuf;

pub const HELP: &str = "\
usage: scripts/bench rns [OPTION...]

Times MAX over an array of residue numbers, in one thread: by interval evaluation, by mixed radix, and in the naive form. For
the seven sets of moduli of 64 to 4096 bits and the INT8 set. Writes rns.md, rns.json and rns.svg.

  --quick        small arrays, little time: some seconds, to see that everything works
  --numbers N    length of the arrays (default 5000000; quick 20000), less where the memory does not suffice
  --seconds S    time for a round of a form (default 3; quick 0.1). A form that takes longer gets a part of the array
  --rounds N     rounds, of which the median counts (default 3)
  --out DIR      where the files go (default docs/measured)
  -h, --help     this text

Run it on a quiet machine.
";

#[derive(Clone, Debug, PartialEq)]
pub struct Args {
    pub numbers: usize,
    pub seconds: f64,
    pub rounds: usize,
    pub out: PathBuf,
    /// The commit that was built. Filled in by scripts/bench.
    pub revision: String,
    /// The command as a user types it.
    pub command: String,
}

/// Why there are no arguments.
#[derive(Debug, PartialEq)]
pub enum Stop {
    Help,
    Wrong(String),
}

pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, Stop> {
    let (mut quick, mut numbers, mut seconds, mut rounds) = (false, None, None, 3);
    let (mut out, mut revision) = (PathBuf::from("docs/measured"), "unknown".to_owned());
    let mut command = "scripts/bench rns".to_owned();
    while let Some(word) = words.next() {
        let mut value = None;
        let mut next = || {
            value = words.next();
            value.clone().ok_or_else(|| Stop::Wrong(format!("{word} needs a value")))
        };
        match word.as_str() {
            "-h" | "--help" => return Err(Stop::Help),
            "--quick" => quick = true,
            "--numbers" => numbers = Some(number(&word, &next()?)?),
            "--seconds" => seconds = Some(number(&word, &next()?)?),
            "--rounds" => rounds = number(&word, &next()?)?,
            "--out" => out = next()?.into(),
            "--revision" => revision = next()?,
            _ => return Err(Stop::Wrong(format!("{word} is not an option"))),
        }
        // A report does not tell where it was written to.
        if !["--out", "--revision"].contains(&word.as_str()) {
            for part in [Some(word), value].into_iter().flatten() {
                command += " ";
                command += &part;
            }
        }
    }
    let args = Args {
        numbers: numbers.unwrap_or(if quick { 20_000 } else { 5_000_000 }),
        seconds: seconds.unwrap_or(if quick { 0.1 } else { 3.0 }),
        rounds,
        out,
        revision,
        command,
    };
    if args.numbers < 2 || args.rounds == 0 {
        return Err(Stop::Wrong("two numbers and one round are the least".to_owned()));
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
        let args = of("--quick --out x --numbers 900 --revision abc").unwrap();
        assert_eq!(args.command, "scripts/bench rns --quick --numbers 900");
        assert_eq!((args.numbers, args.seconds, args.revision.as_str()), (900, 0.1, "abc"));
    }

    #[test]
    fn wrong_words_are_named() {
        for text in ["--fast", "--rounds", "--rounds x", "--numbers 1", "--rounds 0"] {
            assert!(matches!(of(text), Err(Stop::Wrong(_))), "{text}");
        }
        assert_eq!(of("--quick --help"), Err(Stop::Help));
    }
}

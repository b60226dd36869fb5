//! oz2run: starts a program with oz2blas in front of its BLAS.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use oz2blas::options::{Options, TABLE};

mod calibrate;
mod doctor;
mod merge;
mod replay;
mod selftest;

/// The environment variables that the arguments ask for, and the command that follows them.
#[derive(Debug, PartialEq)]
struct Invocation {
    variables: Vec<(String, String)>,
    command: Vec<OsString>,
}

#[derive(Debug, PartialEq)]
enum Request {
    Help,
    Version,
    Doctor(Vec<(String, String)>),
    /// Seconds that it may take.
    Calibrate(Vec<(String, String)>, f64),
    Selftest,
    Replay(Vec<(String, String)>, PathBuf),
    /// Files, and whether the sum is to be JSON.
    Merge(Vec<PathBuf>, bool),
    Run(Invocation),
}

/// What an option means that is given without a value.
fn value_when_alone(name: &str) -> Option<&'static str> {
    match name {
        "STATS" => Some("stderr"),
        "CHECK" => Some("on"),
        _ => None,
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let mut arguments = arguments.into_iter();
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut command: Vec<OsString> = Vec::new();
    let mut doctor = false;
    let mut calibrate: Option<f64> = None;
    let mut replay: Option<PathBuf> = None;
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or("");
        match text.strip_prefix("--") {
            None => {
                command.push(argument);
                break;
            }
            Some("") => break,
            Some("help") => return Ok(Request::Help),
            Some("version") => return Ok(Request::Version),
            Some("doctor") => doctor = true,
            Some("selftest") => return Ok(Request::Selftest),
            Some("merge") => {
                let (json, files): (Vec<OsString>, Vec<OsString>) =
                    arguments.partition(|word| word == "--json");
                let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
                return match files.is_empty() {
                    true => Err("--merge needs files".to_owned()),
                    false => Ok(Request::Merge(files, !json.is_empty())),
                };
            }
            Some(option) => {
                let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
                if name == "replay" {
                    let file = value.map(OsString::from).or_else(|| arguments.next());
                    replay = Some(file.ok_or("--replay needs a file")?.into());
                    continue;
                }
                if name == "calibrate" {
                    let seconds = value
                        .map_or(Ok(calibrate::SECONDS), str::parse)
                        .ok()
                        .filter(|seconds| *seconds > 0.0);
                    calibrate = Some(seconds.ok_or("--calibrate=SECONDS needs a number")?);
                    continue;
                }
                let name = name.replace('-', "_").to_ascii_uppercase();
                if !TABLE.iter().any(|entry| entry.name == name) {
                    return Err(format!("unknown option {text} (oz2run --help lists them)"));
                }
                let value = match (value, value_when_alone(&name)) {
                    (Some(value), _) => value.to_owned(),
                    (None, Some(value)) => value.to_owned(),
                    (None, None) => {
                        let next = arguments.next().and_then(|value| value.into_string().ok());
                        next.ok_or_else(|| format!("{text} needs a value"))?
                    }
                };
                variables.push((format!("OZ2_{name}"), value));
            }
        }
    }
    command.extend(arguments);
    let get = |name: &str| variables.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let mut bad = None;
    Options::read(get, |entry, value| {
        bad = Some(format!("OZ2_{}={value} is not allowed (allowed: {})", entry.name, entry.values));
    });
    match bad {
        Some(bad) => Err(bad),
        None if doctor => Ok(Request::Doctor(variables)),
        None if calibrate.is_some() => Ok(Request::Calibrate(variables, calibrate.unwrap_or_default())),
        None if replay.is_some() => Ok(Request::Replay(variables, replay.unwrap_or_default())),
        None if command.is_empty() => Err("no program to run (oz2run --help)".to_owned()),
        None => Ok(Request::Run(Invocation { variables, command })),
    }
}

fn help() -> String {
    let mut text = "Usage: oz2run [OPTION]... [--] PROGRAM [ARGUMENT]...\n\
        Runs PROGRAM with oz2blas in front of its BLAS.\n\
        Example: oz2run --min-size 0 --stats python3 -c 'import numpy; ...'\n\n\
        \x20 --help, --version\n\
        \x20 --doctor                 what this machine has, and what would be emulated\n\
        \x20 --calibrate[=SECONDS]    measures for a minute, or SECONDS, what calls take on this machine, natively and emulated, and\n\
        \x20                          keeps it in the configuration folder for the choice between both\n\
        \x20 --selftest               computes 200 products with every engine of this machine and compares their digest with the one\n\
        \x20                          that every machine must give; exit status 1 if one is wrong\n\
        \x20 --replay FILE            makes the call of a file that OZ2_VERIFY_DUMP wrote again, and compares; exit status 1\n\
        \x20                          if it differs from the native BLAS, 2 if it could not be made\n\
        \x20 --merge [--json] FILE... adds up the files that OZ2_STATS wrote, one a rank of an MPI program; exit status 1 if one\n\
        \x20                          cannot be read\n\n\
        Options, each also as an environment variable OZ2_NAME:\n"
        .to_owned();
    for entry in &TABLE {
        let name = entry.name.to_ascii_lowercase().replace('_', "-");
        let alone = value_when_alone(entry.name).map_or(String::new(), |value| format!("; alone: {value}"));
        text += &format!("  --{name:<14} {} [{}{alone}]: {}\n", entry.values, entry.default, entry.help);
    }
    text
}

/// Where the library may be: beside this program, or in the lib folder beside its folder, or there in Debian's folder of the machine.
fn folders(program: &Path) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else { return Vec::new() };
    let lib = folder.with_file_name("lib");
    let machine = lib.join(format!("{}-linux-gnu", std::env::consts::ARCH));
    vec![folder.to_path_buf(), lib, machine]
}

fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    folders(&program).into_iter().map(|folder| folder.join("liboz2blas.so")).find(|file| file.is_file())
}

/// Ours first, so that its names are found before those of other preloaded libraries.
fn preload(library: &OsStr, before: Option<OsString>) -> OsString {
    let mut value = library.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

fn run(invocation: &Invocation) -> ExitCode {
    let Some(library) = library() else {
        return fail(2, "liboz2blas.so is neither beside oz2run nor in the lib folder of its prefix");
    };
    let error = Command::new(&invocation.command[0])
        .args(&invocation.command[1..])
        .envs(invocation.variables.iter().map(|(name, value)| (name, value)))
        .env("LD_PRELOAD", preload(library.as_os_str(), std::env::var_os("LD_PRELOAD")))
        .exec();
    fail(127, &format!("cannot run {}: {error}", invocation.command[0].to_string_lossy()))
}

fn calibrate(variables: &[(String, String)], seconds: f64) -> ExitCode {
    if std::env::var_os(calibrate::PART).is_some() {
        return calibrate::measured(seconds).map_or_else(|text| fail(2, &text), |table| print(&table));
    }
    match calibrate::run(seconds, variables) {
        Ok(good) => ExitCode::from(if good { 0 } else { 2 }),
        Err(text) => fail(2, &text),
    }
}

fn fail(status: u8, text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "oz2run: {text}");
    ExitCode::from(status)
}

fn print(text: &str) -> ExitCode {
    // A reader that has gone away (oz2run --help | head -1) is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(Request::Help) => print(&help()),
        Ok(Request::Version) => print(concat!("oz2run ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Request::Doctor(variables)) => print(&doctor::report(library().as_deref(), &variables)),
        Ok(Request::Calibrate(variables, seconds)) => calibrate(&variables, seconds),
        Ok(Request::Selftest) => {
            let (text, wrong) = selftest::report();
            print(&text);
            ExitCode::from(u8::from(wrong))
        }
        Ok(Request::Replay(variables, file)) => match replay::report(&file, &variables) {
            Ok((text, differs)) => {
                print(&text);
                ExitCode::from(u8::from(differs))
            }
            Err(text) => fail(2, &format!("{}: {text}", file.display())),
        },
        Ok(Request::Merge(files, json)) => {
            let (text, bad) = merge::report(&files, json);
            print(&text);
            bad.iter().fold(ExitCode::SUCCESS, |_, line| fail(1, line))
        }
        Ok(Request::Run(invocation)) => run(&invocation),
        Err(text) => fail(2, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&str]) -> Result<Request, String> {
        parse(words.iter().map(OsString::from))
    }

    fn invocation(variables: &[(&str, &str)], command: &[&str]) -> Result<Request, String> {
        let variables = variables.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        Ok(Request::Run(Invocation { variables, command: command.iter().map(OsString::from).collect() }))
    }

    #[test]
    fn options_become_variables_and_end_at_the_program() {
        assert_eq!(
            request(&["--mode", "accurate", "--moduli=15", "--stats", "./app", "--mode", "x"]),
            invocation(
                &[("OZ2_MODE", "accurate"), ("OZ2_MODULI", "15"), ("OZ2_STATS", "stderr")],
                &["./app", "--mode", "x"]
            )
        );
        assert_eq!(
            request(&["--min-size", "0", "--", "--odd"]),
            invocation(&[("OZ2_MIN_SIZE", "0")], &["--odd"])
        );
        for words in [&["--replay", "f", "--mode", "fast"][..], &["--mode=fast", "--replay=f"]] {
            let variables = vec![("OZ2_MODE".to_owned(), "fast".to_owned())];
            assert_eq!(request(words), Ok(Request::Replay(variables, "f".into())));
        }
        for (words, json) in [(&["--merge", "a", "b"][..], false), (&["--merge", "a", "--json", "b"], true)] {
            assert_eq!(request(words), Ok(Request::Merge(vec!["a".into(), "b".into()], json)));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for words in [
            &["--mode"][..],
            &["--mode", "quick", "x"],
            &["--nothing", "x"],
            &[],
            &["--stats"],
            &["--replay"],
            &["--merge"],
            &["--merge", "--json"],
        ] {
            assert!(request(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        let text = help();
        for entry in &TABLE {
            assert!(text.contains(&format!("--{} ", entry.name.to_ascii_lowercase().replace('_', "-"))));
        }
    }

    #[test]
    fn the_library_is_looked_for_in_the_own_prefix() {
        let machine = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let expected = ["/usr/bin", "/usr/lib", &machine].map(PathBuf::from);
        assert_eq!(folders("/usr/bin/oz2run".as_ref()), expected);
    }

    #[test]
    fn other_preloaded_libraries_stay() {
        assert_eq!(preload("a.so".as_ref(), None), "a.so");
        assert_eq!(preload("a.so".as_ref(), Some("".into())), "a.so");
        assert_eq!(preload("a.so".as_ref(), Some("b.so".into())), "a.so:b.so");
    }
}

//! Which entry points were called: to stderr, or to a file.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;

use crate::config::Config;
use crate::status::Status;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Off,
    /// The first call of every entry point.
    First,
    All,
}

pub struct Trace {
    level: Level,
    file: Option<File>,
    seen: HashSet<&'static str>,
}

impl Trace {
    pub fn new(config: &Config) -> Trace {
        let file = config.trace_file.as_ref().and_then(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.inspect_err(|error| eprintln!("softgpu: {path}: {error}")).ok()
        });
        Trace { level: config.trace, file, seen: HashSet::new() }
    }

    pub fn call(&mut self, name: &'static str, status: Status) {
        if self.level == Level::Off || (!self.seen.insert(name) && self.level == Level::First) {
            return;
        }
        match &mut self.file {
            // A trace that cannot be written is no reason to fail.
            Some(file) => drop(writeln!(file, "{name} = {status}")),
            None => eprintln!("softgpu: {name} = {status}"),
        }
    }
}

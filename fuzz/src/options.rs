//! The parser of the options: a text of lines NAME=VALUE stands for the environment.

use std::collections::BTreeMap;

use oz2blas::observe::file::Pattern;
use oz2blas::options::{Options, TABLE};

/// A value is taken over as it was written, or reported and the default left; nothing panics.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (format!("OZ2_{}", name.to_ascii_uppercase()), value.to_owned()))
        .collect();
    let mut bad = BTreeMap::new();
    let options = Options::read(
        |name| lines.get(name).cloned(),
        |entry, value| {
            assert!(bad.insert(entry.name, value.to_owned()).is_none(), "{} is reported twice", entry.name);
        },
    );
    for (at, entry) in TABLE.iter().enumerate() {
        let given = lines.get(&format!("OZ2_{}", entry.name)).filter(|value| !value.is_empty());
        let wanted = match (given, bad.get(entry.name)) {
            (Some(given), Some(reported)) => {
                assert_eq!(given, reported);
                entry.default
            }
            (None, reported) => {
                assert_eq!(reported, None, "{}: reported, but not given", entry.name);
                entry.default
            }
            (Some(given), None) => given,
        };
        assert_eq!(options.text(at), wanted, "{}", entry.name);
    }
    // The patterns of file names. The name of the host is read from a file, for each %h.
    if let Some(pattern) = &options.stats
        && pattern.len() < 40
    {
        let name = Pattern::new(pattern).to_string();
        assert!(pattern.contains('%') || name == *pattern);
    }
}

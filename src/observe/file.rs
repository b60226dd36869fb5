//! Files that an option names by a pattern: %h host, %p process, %r MPI rank, %% a percent sign.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};

/// The MPI rank as the usual launchers tell it.
pub fn rank() -> Option<String> {
    let names = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];
    names.iter().find_map(|name| std::env::var(name).ok())
}

pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or("unknown".to_owned(), |name| name.trim().to_owned())
}

enum Part {
    Text(String),
    Process,
}

/// A pattern in which all is filled in but the process, which is another one after a fork. It is shown with the number of the
/// calling process, without any allocation.
pub struct Pattern(Vec<Part>);

impl Pattern {
    pub fn new(pattern: &str) -> Self {
        let (mut parts, mut text) = (Vec::new(), String::new());
        let mut rest = pattern.chars();
        while let Some(c) = rest.next() {
            match (c, if c == '%' { rest.next() } else { None }) {
                ('%', Some('h')) => text.push_str(&host()),
                ('%', Some('r')) => text.push_str(rank().as_deref().unwrap_or("0")),
                ('%', Some('%')) => text.push('%'),
                ('%', Some('p')) => parts.extend([Part::Text(std::mem::take(&mut text)), Part::Process]),
                ('%', Some(other)) => text.extend(['%', other]),
                (c, _) => text.push(c),
            }
        }
        parts.push(Part::Text(text));
        Self(parts)
    }

    /// In the working folder of this moment, wherever the program goes later.
    pub fn fixed_here(pattern: &str) -> Self {
        let mut here = Self::new(pattern);
        let folder =
            std::env::current_dir().ok().and_then(|folder| folder.into_os_string().into_string().ok());
        if let (false, Some(folder)) = (pattern.starts_with('/'), folder) {
            here.0.insert(0, Part::Text(folder + "/"));
        }
        here
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Process => write!(f, "{}", std::process::id()),
        })
    }
}

/// The names that may be taken for a pattern, in this order: its own, then with .1, .2, ...
pub const CANDIDATES: u32 = 10_000;

/// The n-th of them.
pub fn write_candidate(out: &mut dyn fmt::Write, pattern: &Pattern, n: u32) -> fmt::Result {
    match n {
        0 => write!(out, "{pattern}"),
        n => write!(out, "{pattern}.{n}"),
    }
}

/// A new file whose name is made from a pattern, and that name; an existing file is left.
pub fn create(pattern: &Pattern) -> Result<(File, String), String> {
    for n in 0..CANDIDATES {
        let mut name = String::new();
        // Writing to a String cannot fail.
        let _ = write_candidate(&mut name, pattern, n);
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(file) => return Ok((file, name)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot write {name}: {error}")),
        }
    }
    Err(format!("cannot write {pattern}: too many files of this name"))
}

/// A text of at most N bytes that allocates nothing.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// None where it is too long.
    pub fn new(write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<Self> {
        let mut text = Self { bytes: [0; N], length: 0 };
        write(&mut text).ok().map(|()| text)
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// A file for text, with a small buffer and without any allocation.
pub struct Buffered<'a> {
    file: &'a mut File,
    buffer: [u8; 1024],
    used: usize,
    /// The first thing that went wrong.
    pub error: Option<ErrorKind>,
}

impl<'a> Buffered<'a> {
    pub fn new(file: &'a mut File) -> Self {
        Self { file, buffer: [0; 1024], used: 0, error: None }
    }

    pub fn flush(&mut self) -> fmt::Result {
        let written = self.file.write_all(&self.buffer[..self.used]);
        self.used = 0;
        written.map_err(|error| {
            self.error.get_or_insert(error.kind());
            fmt::Error
        })
    }
}

impl fmt::Write for Buffered<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if self.used == self.buffer.len() {
                self.flush()?;
            }
            let count = rest.len().min(self.buffer.len() - self.used);
            self.buffer[self.used..self.used + count].copy_from_slice(&rest[..count]);
            self.used += count;
            rest = &rest[count..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn expand(pattern: &str) -> String {
        Pattern::new(pattern).to_string()
    }

    #[test]
    fn patterns_are_filled_in() {
        let pid = std::process::id();
        assert_eq!(expand("a%p.json"), format!("a{pid}.json"));
        assert_eq!(expand("%p%%%p"), format!("{pid}%{pid}"));
        assert_eq!(expand("100%%%q%"), "100%%q%");
        assert_eq!(expand(""), "");
        assert!(!expand("%h").is_empty());
        let here = std::env::current_dir().unwrap();
        assert_eq!(Pattern::fixed_here("a%p").to_string(), format!("{}/a{pid}", here.display()));
        assert_eq!(Pattern::fixed_here("/a").to_string(), "/a");
    }

    #[test]
    fn a_text_that_is_too_long_is_none() {
        let of = |length: usize| Text::<8>::new(|text| text.write_str(&"x".repeat(length)));
        assert_eq!(of(8).unwrap().as_str(), "xxxxxxxx");
        assert!(of(9).is_none());
    }

    #[test]
    fn a_buffered_file_has_all_of_the_text() {
        let name = std::env::temp_dir().join(format!("oz2blas-buffered-{}", std::process::id()));
        let mut file = File::create(&name).unwrap();
        let mut out = Buffered::new(&mut file);
        for at in 0..1000 {
            write!(out, "{at},").unwrap();
        }
        out.flush().unwrap();
        let want: String = (0..1000).map(|at| format!("{at},")).collect();
        assert_eq!(std::fs::read_to_string(&name).unwrap(), want);
        std::fs::remove_file(&name).unwrap();
    }
}

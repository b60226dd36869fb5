//! Link settings of the shared library, its soname and that it stays loaded once loaded, and the code that src/abi/forward.names
//! stands for.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const TABLE: &str = "src/abi/forward.names";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={TABLE}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liboz2blas.so.0");
    // Worker threads and the exit hook outlive a dlclose: the code they run must not be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let table = fs::read_to_string(TABLE).expect(TABLE);
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join("forward.rs"), generate(&table)).expect("OUT_DIR can be written to");
}

/// The names of the table: handlers, then routines.
fn names(table: &str) -> [Vec<String>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    let (mut kind, mut patterns) = (0, Vec::new());
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix('[') {
            let mut words = head.strip_suffix(']').expect("a bracket is closed").split(' ');
            kind = match words.next() {
                Some("handlers") => 0,
                Some("routines") => 1,
                other => panic!("{TABLE}: unknown kind {other:?}"),
            };
            patterns = words.collect();
        } else {
            assert!(!patterns.is_empty(), "{TABLE}: words before the first bracket");
            for word in line.split(' ') {
                names[kind].extend(patterns.iter().map(|pattern| pattern.replace('*', word)));
            }
        }
    }
    names
}

/// One invocation of the macro that makes the functions, and the names as one text: a table of pointers to them would take as
/// many relocations when the library is loaded.
fn generate(table: &str) -> String {
    let [handlers, routines] = names(table);
    let count = handlers.len() + routines.len();
    let (mut entries, mut text, mut starts) = (String::new(), String::new(), String::new());
    for (number, name) in handlers.iter().chain(&routines).enumerate() {
        writeln!(entries, "    {number} {name};").expect("a String takes everything");
        write!(starts, "{}, ", text.len()).expect("a String takes everything");
        text.push_str(name);
        text.push('\0');
    }
    let text = text.replace('\0', "\\0");
    format!(
        "const COUNT: usize = {count};\n\
         const HANDLERS: usize = {};\n\
         static NAMES: &[u8] = b\"{text}\";\n\
         static STARTS: [u16; COUNT] = [{starts}];\n\
         entries! {{\n{entries}}}\n",
        handlers.len()
    )
}

//! The committed inputs of the fuzzer (fuzz/corpus), once each: what `scripts/soak fuzz` starts from, and what it has found. One
//! test, since options belong to the process.

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a crate of its own elsewhere")]
mod fuzz;

use std::path::Path;

fn each(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "{}", folder.display());
    for file in files {
        // Shown where the test fails.
        println!("{}", file.display());
        run(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn committed_inputs() {
    each("border", fuzz::border::run);
    each("options", fuzz::options::run);
    each("replay", fuzz::replay::run);
}

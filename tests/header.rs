//! include/oz2blas.h is what cbindgen makes of the sources, and every C and C++ compiler takes it.

use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_header_is_current() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_src(root.join("src/abi/control.rs"))
        .with_config(config)
        .generate()
        .unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let file = root.join("include/oz2blas.h");
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    if made != committed {
        let fresh = root.join("target/oz2blas.h");
        std::fs::write(&fresh, &made).unwrap();
        panic!("{} is stale; the current one is {}", file.display(), fresh.display());
    }
}

#[test]
fn the_header_compiles_as_c_and_cxx() {
    for (compiler, language, standard) in [
        ("gcc", "c", "-std=c99"),
        ("gcc", "c", "-std=c17"),
        ("g++", "c++", "-std=c++11"),
        ("g++", "c++", "-std=c++20"),
    ] {
        let output = Command::new(compiler)
            .args(["-x", language, standard, "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
            .arg(format!("{ROOT}/include/oz2blas.h"))
            .output()
            .expect("a C compiler is installed");
        assert!(
            output.status.success(),
            "{compiler} {standard}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

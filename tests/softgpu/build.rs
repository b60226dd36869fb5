//! Compiles every CUDA file of the library (`kernels/` of the repository) and of this crate's own tests (`kernels/` here)
//! with the C++ compiler of the host, and writes a table of their entry points.

use std::path::{Path, PathBuf};
use std::{env, fs};

const ENTRY: &str = "extern \"C\" __global__ ";

/// The name in `void name(...`, where attributes such as `__launch_bounds__(...)` may stand before or after `void`.
fn entry_name(text: &str) -> Option<&str> {
    fn skip_attributes(mut text: &str) -> Option<&str> {
        while text.starts_with("__") {
            text = text[text.find(')')? + 1..].trim_start();
        }
        Some(text)
    }
    let text = skip_attributes(text)?.strip_prefix("void")?.trim_start();
    let name = skip_attributes(text)?.split('(').next()?.trim();
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(name)
}

/// One translation unit for one CUDA file: the file inside a nameless namespace, so that helpers of the same name in two files
/// do not meet, and the table of its entries.
fn unit(source: &Path, name: &str) -> String {
    let text = fs::read_to_string(source).expect("a readable CUDA file");
    let entries: Vec<String> = text
        .split(ENTRY)
        .skip(1)
        .map(|rest| match entry_name(rest) {
            Some(name) => format!("    SG_KERNEL({name}),\n"),
            None => panic!("{}: no name after `{ENTRY}`", source.display()),
        })
        .collect();
    let count = entries.len();
    let section = format!("sg_shared_{name}");
    format!(
        "#define SG_SHARED_SECTION \"{section}\"\n\
         #include \"cuda_shim.h\"\n\
         namespace {{\n#include \"{source}\"\n}}\n\
         extern \"C\" __attribute__((weak, visibility(\"hidden\"))) unsigned char __start_{section}[], __stop_{section}[];\n\
         static const sg::Kernel kernels[] = {{\n{entries}    {{}}\n}};\n\
         extern const sg::File sg_file_{name};\n\
         const sg::File sg_file_{name} = {{ kernels, {count}, __start_{section}, __stop_{section} }};\n",
        source = source.display(),
        entries = entries.concat(),
    )
}

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("OUT_DIR"));
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("CARGO_MANIFEST_DIR"));
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).include("shim").file("shim/fibres.cpp");
    // -mfma: __fma_rn is one instruction. No contraction: a * b + c of the source rounds twice, as with NVRTC's --fmad=false.
    for flag in ["-ffp-contract=off", "-fno-strict-aliasing", "-fvisibility=hidden", "-mfma"] {
        build.flag(flag);
    }
    for flag in ["-Wno-unused-parameter", "-Wno-unused-function", "-Wno-unknown-pragmas", "-Wno-psabi"] {
        build.flag_if_supported(flag);
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");

    let mut names = vec![];
    for (prefix, folder) in [("library", root.join("../../kernels")), ("own", root.join("kernels"))] {
        // (Cargo runs this at every build as long as the folder is not there.)
        println!("cargo:rerun-if-changed={}", folder.display());
        let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
        sources.sort();
        for source in sources {
            println!("cargo:rerun-if-changed={}", source.display());
            let stem = source.file_stem().and_then(|stem| stem.to_str()).expect("a plain file name");
            let name = format!("{prefix}_{}", stem.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
            let file = out.join(format!("{name}.cpp"));
            fs::write(&file, unit(&source, &name)).expect("a writable OUT_DIR");
            build.file(file);
            names.push(name);
        }
    }

    let declared: String =
        names.iter().map(|name| format!("extern const sg::File sg_file_{name};\n")).collect();
    let listed: String = names.iter().map(|name| format!("    &sg_file_{name},\n")).collect();
    let table = format!(
        "#include \"device.h\"\n{declared}\
         extern \"C\" const sg::File *const sg_files[] = {{\n{listed}    nullptr\n}};\n"
    );
    fs::write(out.join("table.cpp"), table).expect("a writable OUT_DIR");
    build.file(out.join("table.cpp")).compile("softgpu_kernels");

    // An exit handler of ours outlives a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

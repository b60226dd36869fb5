//! `oz2run --doctor`: what this machine has, and what would become of a call.

use std::fmt::Write;
use std::path::Path;

use oz2blas::engine;
use oz2blas::engine::cpu::{self, brand, probe, rate, threads};
use oz2blas::native::builtin;
use oz2blas::native::find::{Symbol, provider};
use oz2blas::options::{self, TABLE};
use oz2blas::route::{Machine, Route, Shape, calibration, decide, experience};

/// The instruction sets that engines use or will use.
const FEATURES: [&str; 7] =
    ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512vbmi", "avx512ifma", "amx_int8"];

fn cpu(out: &mut String) -> std::fmt::Result {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    writeln!(out, "CPU          {}", field("model name").unwrap_or("unknown"))?;
    let flags: Vec<&str> = field("flags").unwrap_or_default().split(' ').collect();
    let has = |name: &&&str| flags.contains(name);
    let present: Vec<&str> = FEATURES.iter().filter(has).copied().collect();
    writeln!(out, "features     {}", if present.is_empty() { "none".to_owned() } else { present.join(" ") })
}

/// What is measured of an engine: multiplications and additions of bytes a second of one thread, in the product of a tile.
fn available(number: usize) -> String {
    let rate =
        cpu::available().find(|(n, _)| *n == number).map(|(_, engine)| engine.kernels()).map(|kernels| {
            // SAFETY: the machine can run the kernels.
            unsafe { rate::tops(kernels) }
        });
    match rate {
        Some(tops) => format!("available, {tops:.2} TOPS a thread"),
        None => "available".to_owned(),
    }
}

fn engines(out: &mut String) -> std::fmt::Result {
    for (number, name) in engine::NAMES.iter().enumerate() {
        let state = match *name {
            "cuda" => engine::cuda::description(),
            _ if engine::available().contains(&number) => available(number),
            _ if engine::get(number).is_some() => "not on this machine".to_owned(),
            _ => "not in this version".to_owned(),
        };
        writeln!(out, "engine       {name}: {state}")?;
    }
    writeln!(out, "threads      {}", options::current().threads.unwrap_or_else(threads::automatic))
}

fn native_file() -> String {
    static DGEMM: Symbol = Symbol::native(c"dgemm_");
    DGEMM.address().map_or_else(|| builtin::NAME.to_owned(), provider)
}

fn native(out: &mut String) -> std::fmt::Result {
    writeln!(out, "native BLAS  {} (for programs that bring none of their own)", native_file())
}

fn calibrated(out: &mut String) -> std::fmt::Result {
    match calibration::file(&brand::name()).filter(|file| file.is_file()) {
        Some(file) => writeln!(out, "calibration  {}", file.display()),
        None => writeln!(out, "calibration  none (oz2run --calibrate measures this machine)"),
    }
}

fn routes(out: &mut String) -> std::fmt::Result {
    let options = options::current();
    let threads = options.threads.unwrap_or_else(threads::automatic);
    let mut machine = Machine::new(engine::available(), threads);
    calibration::load(brand::name, threads, native_file);
    if machine.engines.contains(&engine::AMX) {
        probe::refresh();
        machine.tops = probe::last();
    }
    for n in [64, 256, 1024, 4096] {
        let shape = Shape { m: n, n, k: n, alpha: 1.0, beta: 0.0 };
        machine.learned = experience::learned(&shape);
        let route = match decide(&shape, &machine, options) {
            Route::Emulate(number) => {
                format!("emulated by {}, if the data allow it", engine::NAMES[number])
            }
            Route::Native(reason) => format!("native: {}", reason.name()),
        };
        writeln!(out, "{n:>4}^3       {route}")?;
    }
    Ok(())
}

fn effective_options(out: &mut String) -> std::fmt::Result {
    let options = options::current();
    for (at, entry) in TABLE.iter().enumerate() {
        let value = options.text(at);
        let mark = if value == entry.default { "" } else { "  (changed)" };
        writeln!(out, "option       OZ2_{}={value}{mark}", entry.name)?;
    }
    Ok(())
}

/// The report, with the options of the command line in force.
pub fn report(library: Option<&Path>, variables: &[(String, String)]) -> String {
    for (name, value) in variables {
        options::set_option(name, value, false);
    }
    let mut out = String::new();
    let file = library.map_or("not found".into(), |file| file.to_string_lossy());
    let _ = writeln!(out, "oz2blas      {} {file}", env!("CARGO_PKG_VERSION"));
    // Writing to a String cannot fail.
    for part in [cpu, engines, native, calibrated, effective_options, routes] {
        let _ = part(&mut out);
    }
    out
}

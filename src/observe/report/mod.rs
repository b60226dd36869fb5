//! OZ2_REPORT: a page about the calls of a process, written at exit. Nothing is kept without that option.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::file::{self, Pattern};
use super::log::{self, Kind, Level};
use crate::engine::Report;
use crate::gemm::Gemm;
use crate::options::{Mode, Options};
use crate::route::Reason;
use class::{Fate, Size, Sums};

mod advice;
mod chart;
mod class;
mod classes;
mod data;
mod page;
mod record;
mod rules;
mod table;
mod timeline;

static PLACE: OnceLock<Pattern> = OnceLock::new();

/// The native functions that were found: address and bits of their integers (0 in doubt).
static NATIVES: [(AtomicUsize, AtomicU32); 8] = [const { (AtomicUsize::new(0), AtomicU32::new(0)) }; 8];

/// At the first call: `target` is the value of OZ2_REPORT.
pub fn start(target: &str) {
    if record::start() {
        let _ = PLACE.set(Pattern::fixed_here(target));
    } else {
        log::always(Level::Warn, "no memory for OZ2_REPORT: there will be no page");
    }
}

/// In the child of a fork, which has a page of its own. Atomic stores only.
pub fn forget() {
    record::forget();
}

/// A native function was found for a spelling.
pub fn native_found(address: usize, bits: Option<u32>) {
    let place = NATIVES.iter().find(|(slot, _)| {
        slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|is| is == address, |_| true)
    });
    if let Some((_, slot)) = place {
        slot.store(bits.unwrap_or(0), Ordering::Relaxed);
    }
}

/// m, n, k as the caller sees them.
fn size(call: &Gemm) -> Size {
    let (m, n) = if call.row_major { (call.n, call.m) } else { (call.m, call.n) };
    Size::Shape(m, n, call.k)
}

/// A call went to the native BLAS; None where its arguments were not read.
pub fn native(call: Option<&Gemm>, reason: Reason, nanoseconds: u64) {
    let Some(records) = record::get() else { return };
    let multiplications = call.map_or(0, Gemm::multiplications);
    let sums = Sums { calls: 1, multiplications, nanoseconds, ..Sums::default() };
    records.add(call.map_or(Size::Shape(0, 0, 0), size), Fate::Native(reason), &sums);
}

/// A call was emulated. `reason`: why a part of it was not.
pub fn emulated(
    call: &Gemm,
    engine: usize,
    report: &Report,
    reason: Option<Reason>,
    options: &Options,
    nanoseconds: u64,
) {
    let Some(records) = record::get() else { return };
    let way = (options.mode == Mode::Auto).then_some(report.way);
    let (mode, accuracy, moduli) = (options.mode, options.accuracy, report.moduli);
    let (rows, columns) = (report.out.rows.len() as u64, report.out.columns.len() as u64);
    let (rows, columns) = if call.row_major { (columns, rows) } else { (rows, columns) };
    let sums = Sums {
        calls: 1,
        multiplications: call.multiplications(),
        nanoseconds,
        bound: report.bound.unwrap_or(0.0),
        rows,
        columns,
    };
    records.add(size(call), Fate::Emulated { engine, moduli, mode, accuracy, way, reason }, &sums);
}

/// At exit: writes the page, if this process has made a call.
pub fn finish() {
    let Some(pattern) = PLACE.get() else { return };
    let natives =
        NATIVES.iter().map(|(address, bits)| (address.load(Ordering::Relaxed), bits.load(Ordering::Relaxed)));
    let natives = natives.filter(|(address, _)| *address > 0);
    let natives = natives.map(|(address, bits)| (address, (bits > 0).then_some(bits))).collect();
    let Some(data) = data::gather(natives).filter(|data| !data.rows.is_empty()) else { return };
    let written = file::create(pattern).and_then(|(mut file, name)| {
        file.write_all(page::html(&data).as_bytes()).map_err(|error| format!("cannot write {name}: {error}"))
    });
    if let Err(error) = written {
        log::capped(Kind::ReportFile, Level::Warn, &error);
    }
}

//! The last outermost GEMM of the calling thread (`oz2_last_call`).

use std::cell::Cell;

use crate::engine::Phases;
use crate::options::Mode;
use crate::route::Reason;

/// What became of a call.
#[derive(Clone, Copy, Debug)]
pub enum Last {
    None,
    Native { reason: Reason },
    Emulated { engine: usize, mode: Mode, moduli: usize, bound: Option<f64>, reason: Option<Reason> },
}

thread_local! {
    // Const-initialised and without a destructor: costs one store a call, and nothing when a thread ends.
    static LAST: Cell<Last> = const { Cell::new(Last::None) };
    /// Of the last emulated call.
    static PHASES: Cell<[f64; 4]> = const { Cell::new([0.0; 4]) };
}

pub fn set(last: Last) {
    LAST.set(last);
}

/// Where the time of an emulated call went.
pub fn set_phases(phases: Phases) {
    let Phases { scan, bound, residues, product } = phases;
    PHASES.set([scan, bound, residues, product].map(|phase| phase.as_secs_f64()));
}

pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Auto => "auto",
        Mode::Accurate => "accurate",
        Mode::Fast => "fast",
        Mode::Native => "native",
    }
}

/// The JSON object of `oz2_last_call`.
pub fn json() -> String {
    match LAST.get() {
        Last::None => r#"{"route":"none"}"#.to_owned(),
        Last::Native { reason } => format!(
            r#"{{"route":"native","reason":"{}","engine":null,"mode":null,"moduli":null,"bound":null,"rows_native":0,"columns_native":0}}"#,
            reason.name()
        ),
        Last::Emulated { engine, mode, moduli, bound, reason } => {
            let engine = crate::engine::NAMES[engine];
            let reason = reason.map_or("null".to_owned(), |reason| format!(r#""{}""#, reason.name()));
            let bound = bound.map_or("null".to_owned(), |bound| format!("{bound}"));
            let mode = mode_name(mode);
            let [scan, bounds, residues, product] = PHASES.get();
            let phases = format!(
                r#"{{"scan":{scan:.9},"bound":{bounds:.9},"residues":{residues:.9},"product":{product:.9}}}"#
            );
            format!(
                r#"{{"route":"emulated","reason":{reason},"engine":"{engine}","mode":"{mode}","moduli":{moduli},"bound":{bound},"rows_native":0,"columns_native":0,"phases":{phases}}}"#
            )
        }
    }
}

//! The last outermost GEMM of the calling thread (`oz2_last_call`).

use std::cell::Cell;

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
}

pub fn set(last: Last) {
    LAST.set(last);
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
            format!(
                r#"{{"route":"emulated","reason":{reason},"engine":"{engine}","mode":"{mode}","moduli":{moduli},"bound":{bound},"rows_native":0,"columns_native":0}}"#
            )
        }
    }
}

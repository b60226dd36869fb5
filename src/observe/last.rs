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

/// What this library keeps for a thread.
pub struct Thread {
    /// The thread is inside a call.
    pub inside: Cell<bool>,
    last: Cell<Last>,
    /// Of the last emulated call.
    phases: Cell<[f64; 4]>,
}

thread_local! {
    // Const-initialised and without a destructor: nothing happens when a thread ends. All in one place, since finding the place
    // is a function call in a shared library.
    static THREAD: Thread = const {
        Thread { inside: Cell::new(false), last: Cell::new(Last::None), phases: Cell::new([0.0; 4]) }
    };
}

/// Gives what belongs to the calling thread.
#[inline]
pub fn with_thread<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

impl Thread {
    #[inline]
    pub fn set_last(&self, last: Last) {
        self.last.set(last);
    }

    /// Where the time of an emulated call went.
    pub fn set_phases(&self, phases: Phases) {
        let Phases { scan, bound, residues, product } = phases;
        self.phases.set([scan, bound, residues, product].map(|phase| phase.as_secs_f64()));
    }
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
    let (last, phases) = with_thread(|thread| (thread.last.get(), thread.phases.get()));
    match last {
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
            let [scan, bounds, residues, product] = phases;
            let phases = format!(
                r#"{{"scan":{scan:.9},"bound":{bounds:.9},"residues":{residues:.9},"product":{product:.9}}}"#
            );
            format!(
                r#"{{"route":"emulated","reason":{reason},"engine":"{engine}","mode":"{mode}","moduli":{moduli},"bound":{bound},"rows_native":0,"columns_native":0,"phases":{phases}}}"#
            )
        }
    }
}

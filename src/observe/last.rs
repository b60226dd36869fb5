//! The last outermost GEMM of the calling thread (`oz2_last_call`).

use std::cell::Cell;

use super::stats::object;
use crate::engine::Phases;
use crate::options::Mode;
use crate::ozaki::plan::Way;
use crate::route::Reason;

/// What became of a call.
#[derive(Clone, Copy, Debug)]
pub enum Last {
    None,
    Native {
        reason: Reason,
    },
    Emulated {
        engine: usize,
        mode: Mode,
        moduli: usize,
        /// Levels of Strassen's form.
        strassen: usize,
        /// The step that found the plan, in mode auto.
        way: Option<Way>,
        bound: Option<f64>,
        /// The largest value that the self-check saw beside what is legal.
        peak: Option<f64>,
        reason: Option<Reason>,
    },
}

/// Numbers of lines that are kept of each side.
const LISTED: usize = 32;

/// Rows or columns of C that the native BLAS computed: how many, and the first of them.
#[derive(Clone, Copy)]
struct Listed {
    count: usize,
    first: [usize; LISTED],
}

impl Listed {
    const NONE: Self = Self { count: 0, first: [0; LISTED] };

    fn of(lines: &[usize]) -> Self {
        let mut out = Self { count: lines.len(), ..Self::NONE };
        out.first.iter_mut().zip(lines).for_each(|(out, &line)| *out = line);
        out
    }

    /// A JSON array, or null where not all are known.
    fn json(&self) -> String {
        match self.first.get(..self.count) {
            Some(lines) => format!("{lines:?}").replace(' ', ""),
            None => "null".to_owned(),
        }
    }
}

/// What this library keeps for a thread.
pub struct Thread {
    /// The thread is inside a call.
    pub inside: Cell<bool>,
    last: Cell<Last>,
    /// Of the last emulated call.
    phases: Cell<[f64; 4]>,
    /// Of the last emulated call: rows and columns.
    lines: Cell<[Listed; 2]>,
}

thread_local! {
    // Const-initialised and without a destructor: nothing happens when a thread ends. All in one place, since finding the place
    // is a function call in a shared library.
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            last: Cell::new(Last::None),
            phases: Cell::new([0.0; 4]),
            lines: Cell::new([Listed::NONE; 2]),
        }
    };
}

/// Gives what belongs to the calling thread.
#[inline]
pub fn with_thread<T>(f: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(f)
}

/// What a comparison has to know of an emulated call.
pub struct Emulation {
    pub bound: Option<f64>,
    /// The rows and columns that the native BLAS computed, where all are known.
    pub left: Option<(Vec<usize>, Vec<usize>)>,
}

impl Thread {
    #[inline]
    pub fn set_last(&self, last: Last) {
        self.last.set(last);
    }

    /// The last call, if it was emulated.
    pub fn emulated(&self) -> Option<Emulation> {
        let Last::Emulated { bound, .. } = self.last.get() else { return None };
        let [rows, columns] = self.lines.get();
        let all = |lines: Listed| lines.first.get(..lines.count).map(<[usize]>::to_vec);
        Some(Emulation { bound, left: all(rows).zip(all(columns)) })
    }

    /// The rows and columns of C, as the caller sees it, that the native BLAS computed of an emulated call.
    pub fn set_lines(&self, rows: &[usize], columns: &[usize]) {
        self.lines.set([Listed::of(rows), Listed::of(columns)]);
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
    let (last, phases, lines) =
        with_thread(|thread| (thread.last.get(), thread.phases.get(), thread.lines.get()));
    let quoted = |text: &str| format!(r#""{text}""#);
    let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
    match last {
        Last::None => r#"{"route":"none"}"#.to_owned(),
        Last::Native { reason } => format!(
            r#"{{"route":"native","reason":"{}","engine":null,"mode":null,"moduli":null,"bound":null,"rows_native":0,"columns_native":0}}"#,
            reason.name()
        ),
        Last::Emulated { engine, mode, moduli, strassen, way, bound, peak, reason } => {
            let [rows, columns] = lines;
            let [scan, bounds, residues, product] = phases.map(|seconds| format!("{seconds:.9}"));
            let phases = [("scan", scan), ("bound", bounds), ("residues", residues), ("product", product)];
            object(
                [
                    ("route", quoted("emulated")),
                    ("reason", or_null(reason.map(|reason| quoted(reason.name())))),
                    ("engine", quoted(crate::engine::NAMES[engine])),
                    ("mode", quoted(mode_name(mode))),
                    ("moduli", moduli.to_string()),
                    ("strassen", strassen.to_string()),
                    ("bound", or_null(bound.map(|bound| bound.to_string()))),
                    ("plan", or_null(way.map(|way| quoted(way.name())))),
                    ("peak", or_null(peak.map(|peak| format!("{peak:.6}")))),
                    ("rows_native", rows.count.to_string()),
                    ("columns_native", columns.count.to_string()),
                    ("native_rows", rows.json()),
                    ("native_columns", columns.json()),
                    ("phases", object(phases.into_iter())),
                ]
                .into_iter(),
            )
        }
    }
}

//! Where a call goes and why. [`decide`] is pure: the same shape, machine and options give the same answer.

pub mod calibration;
pub mod cost;
pub mod experience;

use cost::Forecast;

use crate::engine::NAMES;
use crate::options::{EngineChoice, MinSize, Mode, Options};

/// Why a call was not emulated (or, for a part of a call, why that part was not).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Reason {
    /// m, n or k is 0, or alpha is 0: nothing is multiplied, C is scaled as the BLAS defines it.
    QuickReturn,
    /// The native BLAS reports it.
    IllegalArgument,
    /// OZ2_MODE=native.
    Disabled,
    /// The engine that OZ2_ENGINE names is not there.
    EngineUnavailable,
    /// Below OZ2_MIN_SIZE, or below what can ever gain.
    TooSmall,
    /// One dimension is so small that the work around the products outweighs them.
    ThinShape,
    /// The time model expects the native BLAS to be faster.
    NoGain,
    /// NaN or Inf in alpha or beta, or in more than a tenth of the rows of A and columns of B.
    NonFinite,
    /// Modes fast and accurate: the number of moduli cannot hold the call.
    Range,
    /// Mode auto: no allowed number of moduli proves the accuracy, for more than a tenth of the rows and columns.
    NotProvable,
    /// The call came from inside another GEMM (a BLAS that calls itself).
    Nested,
    /// The workspace could not be had, even for the smallest blocks.
    NoMemory,
    /// A fault inside an engine; C was not touched, or what was missing of it has been computed natively.
    EngineFault,
    /// The process was forked and the engine cannot work in the child.
    Forked,
    /// It would be worth it, were the tile unit (AMX) not in its slow state.
    SlowUnit,
    /// The engine (CUDA) cannot compute by the plan that the data need.
    FinerPlan,
    /// The self-check found a value out of range, again and again; what was missing of C has been computed natively.
    FailedCheck,
    /// Nobody can tell how wide the integers of the call are, or they are not those that OZ2_INTEGER says.
    IntegersInDoubt,
}

impl Reason {
    pub const COUNT: usize = 18;

    pub const ALL: [Self; Self::COUNT] = [
        Self::QuickReturn,
        Self::IllegalArgument,
        Self::Disabled,
        Self::EngineUnavailable,
        Self::TooSmall,
        Self::ThinShape,
        Self::NoGain,
        Self::NonFinite,
        Self::Range,
        Self::NotProvable,
        Self::Nested,
        Self::NoMemory,
        Self::EngineFault,
        Self::Forked,
        Self::SlowUnit,
        Self::FinerPlan,
        Self::FailedCheck,
        Self::IntegersInDoubt,
    ];

    /// The name in the statistics; never changes.
    pub fn name(self) -> &'static str {
        match self {
            Self::QuickReturn => "quick return",
            Self::IllegalArgument => "illegal argument",
            Self::Disabled => "disabled",
            Self::EngineUnavailable => "engine unavailable",
            Self::TooSmall => "too small",
            Self::ThinShape => "thin shape",
            Self::NoGain => "no gain",
            Self::NonFinite => "non-finite",
            Self::Range => "range",
            Self::NotProvable => "not provable",
            Self::Nested => "nested",
            Self::NoMemory => "no memory",
            Self::EngineFault => "engine fault",
            Self::Forked => "forked",
            Self::SlowUnit => "slow unit",
            Self::FinerPlan => "finer plan",
            Self::FailedCheck => "failed check",
            Self::IntegersInDoubt => "integers in doubt",
        }
    }
}

/// What `decide` looks at in a call.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub beta: f64,
}

/// What calls like the one in question took, divided by what the model expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    pub native: f64,
    /// For every engine.
    pub emulated: [f64; NAMES.len()],
}

impl Default for Learned {
    fn default() -> Self {
        Self { native: 1.0, emulated: [1.0; NAMES.len()] }
    }
}

/// What `decide` looks at in the machine, as plain values.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The engines that it has, best first, by their place in [`crate::engine::NAMES`].
    pub engines: &'a [usize],
    /// The threads that a call may use.
    pub threads: usize,
    /// Multiplications a second and thread of its native DGEMM, by guess.
    pub native_rate: f64,
    pub learned: Learned,
    /// The moduli that the mode auto is expected to need.
    pub moduli: usize,
    /// What the probe of the tile unit read last, in TOPS.
    pub tops: Option<f64>,
    /// There was no call for a while: nothing is in the caches.
    pub rested: bool,
    /// How many times as long an emulation by several threads takes, as those of the native BLAS look for more work.
    pub delay: f64,
    /// Levels of Strassen's form that the user wants.
    pub strassen: Option<usize>,
    /// The last calls were read in vain for this Reason, so that this one is not to be tried.
    pub pause: Option<Reason>,
}

impl<'a> Machine<'a> {
    /// A machine of which nothing was learned yet.
    pub fn new(engines: &'a [usize], threads: usize) -> Self {
        Self {
            engines,
            threads,
            native_rate: cost::native_rate(),
            learned: Learned::default(),
            moduli: cost::TYPICAL_MODULI,
            tops: None,
            rested: false,
            delay: 1.0,
            strassen: None,
            pause: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Native(Reason),
    /// With this engine; the scan and the plan may still send the call to the native BLAS.
    Emulate(usize),
}

/// Below this m n k no engine gains.
const SMALLEST: u64 = 128 * 128 * 128;
/// Below this dimension the work that grows with the area outweighs the products.
const THINNEST: usize = 32;

/// What sends a call away at once: the mode and the size. Compares integers only, so that the many small calls of a program
/// need no clean floating-point environment.
pub fn decide_at_once(call: &Shape, options: &Options) -> Option<Reason> {
    let work = (call.m as u64).saturating_mul(call.n as u64).saturating_mul(call.k as u64);
    let least = match options.min_size {
        MinSize::Work(least) => least,
        MinSize::Auto => SMALLEST,
    };
    if options.mode == Mode::Native {
        Some(Reason::Disabled)
    } else if work < least {
        Some(Reason::TooSmall)
    } else if options.min_size == MinSize::Auto && call.m.min(call.n).min(call.k) < THINNEST {
        Some(Reason::ThinShape)
    } else {
        None
    }
}

/// Decides by shape, options and cost, before any element is read (NUMERICS: the order of the tests).
pub fn decide(call: &Shape, machine: &Machine, options: &Options) -> Route {
    if let Some(reason) = decide_at_once(call, options) {
        return Route::Native(reason);
    }
    let Some(engine) = choose_engine(machine, options.engine) else {
        return Route::Native(Reason::EngineUnavailable);
    };
    let is_auto = options.min_size == MinSize::Auto;
    let engine = if is_auto {
        match fastest(call, machine, options) {
            Ok(engine) => engine,
            Err(reason) => return Route::Native(reason),
        }
    } else {
        engine
    };
    if !call.alpha.is_finite() || !call.beta.is_finite() {
        return Route::Native(Reason::NonFinite);
    }
    match machine.pause.filter(|_| is_auto) {
        Some(reason) => Route::Native(reason),
        None => Route::Emulate(engine),
    }
}

/// The engine that is expected to be done first, of those that gain.
fn fastest(call: &Shape, machine: &Machine, options: &Options) -> Result<usize, Reason> {
    let moduli = if options.mode == Mode::Auto { machine.moduli } else { fixed_moduli(options) };
    let mut best = Err(Reason::NoGain);
    let mut least = f64::INFINITY;
    for &engine in machine.engines {
        if options.engine != EngineChoice::Auto && engine != crate::engine::index_of(options.engine) {
            continue;
        }
        match cost::forecast(call, engine, moduli, machine) {
            Forecast::Gain(seconds) if seconds < least => (best, least) = (Ok(engine), seconds),
            Forecast::GainIfFast if best.is_err() => best = Err(Reason::SlowUnit),
            _ => {}
        }
    }
    best
}

/// N of the modes accurate and fast.
pub fn fixed_moduli(options: &Options) -> usize {
    options.moduli.unwrap_or(15)
}

/// The named engine if the machine has it (never another), or the best one for auto.
pub fn choose_engine(machine: &Machine, choice: EngineChoice) -> Option<usize> {
    if choice == EngineChoice::Auto {
        return machine.engines.first().copied();
    }
    let wanted = crate::engine::index_of(choice);
    machine.engines.iter().copied().find(|&engine| engine == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine;

    fn portable() -> usize {
        engine::index_of(EngineChoice::Portable)
    }

    fn route(m: usize, n: usize, k: usize, pairs: &[(&str, &str)]) -> Route {
        let get =
            |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let options = Options::read(get, |entry, value| panic!("{}={value}", entry.name));
        let engines = [portable()];
        decide(&Shape { m, n, k, alpha: 1.0, beta: 0.0 }, &Machine::new(&engines, 2), &options)
    }

    #[test]
    fn every_reason_of_shape_and_options() {
        use Reason::*;
        let native = Route::Native;
        assert_eq!(route(500, 500, 500, &[("OZ2_MODE", "native")]), native(Disabled));
        assert_eq!(route(500, 500, 500, &[("OZ2_MODE", "native"), ("OZ2_MIN_SIZE", "0")]), native(Disabled));
        assert_eq!(route(500, 500, 500, &[("OZ2_ENGINE", "cuda")]), native(EngineUnavailable));
        assert_eq!(
            route(500, 500, 500, &[("OZ2_ENGINE", "amx"), ("OZ2_MIN_SIZE", "0")]),
            native(EngineUnavailable)
        );
        assert_eq!(route(8, 8, 8, &[]), native(TooSmall));
        assert_eq!(route(31, 4000, 4000, &[]), native(ThinShape));
        assert_eq!(route(4000, 31, 4000, &[]), native(ThinShape));
        assert_eq!(route(4000, 4000, 31, &[]), native(ThinShape));
        assert_eq!(route(4000, 4000, 4000, &[]), native(NoGain));
        assert_eq!(route(4000, 4000, 4000, &[("OZ2_MODE", "fast"), ("OZ2_MODULI", "20")]), native(NoGain));
    }

    #[test]
    fn a_fixed_size_switches_the_time_model_off() {
        let emulate = Route::Emulate(portable());
        assert_eq!(route(1, 1, 1, &[("OZ2_MIN_SIZE", "0")]), emulate);
        assert_eq!(route(1, 4000, 4000, &[("OZ2_MIN_SIZE", "200")]), emulate);
        assert_eq!(route(64, 64, 64, &[("OZ2_MIN_SIZE", "64")]), emulate);
        assert_eq!(route(64, 64, 63, &[("OZ2_MIN_SIZE", "64")]), Route::Native(Reason::TooSmall));
        assert_eq!(route(64, 64, 64, &[("OZ2_MIN_SIZE", "0"), ("OZ2_ENGINE", "portable")]), emulate);
    }

    #[test]
    fn sizes_beyond_64_bits_do_not_wrap() {
        let huge = 1 << 40;
        assert_eq!(route(huge, huge, huge, &[("OZ2_MIN_SIZE", "1000")]), Route::Emulate(portable()));
    }

    #[test]
    fn scalars_that_are_not_finite_go_native() {
        let options = Options::read(|name| (name == "OZ2_MIN_SIZE").then(|| "0".to_owned()), |_, _| ());
        let engines = [portable()];
        let machine = Machine::new(&engines, 1);
        for (alpha, beta) in
            [(f64::NAN, 0.0), (1.0, f64::INFINITY), (f64::NEG_INFINITY, 1.0), (1.0, f64::NAN)]
        {
            let call = Shape { m: 9, n: 9, k: 9, alpha, beta };
            assert_eq!(decide(&call, &machine, &options), Route::Native(Reason::NonFinite));
        }
    }

    #[test]
    fn without_an_engine_everything_goes_native() {
        let machine = Machine::new(&[], 1);
        let call = Shape { m: 900, n: 900, k: 900, alpha: 1.0, beta: 0.0 };
        assert_eq!(decide(&call, &machine, &Options::default()), Route::Native(Reason::EngineUnavailable));
    }

    #[test]
    fn the_fastest_engine_that_gains_is_chosen() {
        let options = Options::default();
        let call = |n| Shape { m: n, n, k: n, alpha: 1.0, beta: 0.0 };
        let engines = [engine::CUDA, engine::AMX, engine::PORTABLE];
        let machine = Machine { native_rate: 50e9, ..Machine::new(&engines, 1) };
        let (few, many) = (call(2048), call(16384));
        assert_eq!(decide(&call(200), &machine, &options), Route::Native(Reason::NoGain));
        assert_eq!(decide(&many, &machine, &options), Route::Emulate(engine::CUDA));
        let machine = Machine { engines: &engines[1..], ..machine };
        assert_eq!(decide(&few, &machine, &options), Route::Emulate(engine::AMX));
        let slow = Machine { tops: Some(1.2), ..machine };
        assert_eq!(decide(&few, &slow, &options), Route::Native(Reason::SlowUnit));
        assert_eq!(decide(&call(200), &slow, &options), Route::Native(Reason::NoGain));
        let slow = Machine { engines: &engines, ..slow };
        assert_eq!(decide(&many, &slow, &options), Route::Emulate(engine::CUDA));
        let learned = Learned { native: 1.0, emulated: [3.0; NAMES.len()] };
        assert_eq!(decide(&few, &Machine { learned, ..machine }, &options), Route::Native(Reason::NoGain));
        let pause = Some(Reason::NotProvable);
        assert_eq!(decide(&few, &Machine { pause, ..machine }, &options), Route::Native(Reason::NotProvable));
    }

    #[test]
    fn a_fixed_size_asks_neither_the_unit_nor_experience() {
        let options = Options::read(|name| (name == "OZ2_MIN_SIZE").then(|| "0".to_owned()), |_, _| ());
        let engines = [engine::AMX, engine::PORTABLE];
        let machine = Machine {
            learned: Learned { native: 0.1, emulated: [9.0; NAMES.len()] },
            tops: Some(0.1),
            pause: Some(Reason::NotProvable),
            ..Machine::new(&engines, 1)
        };
        let call = Shape { m: 64, n: 64, k: 64, alpha: 1.0, beta: 0.0 };
        assert_eq!(decide(&call, &machine, &options), Route::Emulate(engine::AMX));
    }

    #[test]
    fn the_list_of_reasons_is_complete_and_in_order() {
        for (at, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::COUNT);
    }
}

//! The rules of the advice, one function each.

use super::advice::{Advice, Group};
use super::class::{Fate, Size};
use super::data::{Data, Row};
use crate::observe::format::{count, percent, time};
use crate::options::{MinSize, Mode};
use crate::ozaki::moduli::MAX_MODULI;
use crate::ozaki::plan::Accuracy;
use crate::route::Reason;

/// DGEMM takes less than this part of the time: nothing here matters.
const LITTLE: f64 = 0.05;
/// Calls that were emulated at a loss are told of from this part of the time in DGEMM on.
const NOTABLE: f64 = 0.02;
/// Inner dimensions of this size are block sizes of factorisations.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 8..=384;
/// More moduli than ordinary data need.
const MANY_MODULI: usize = 17;

pub const RULES: [fn(&Data) -> Option<Advice>; 23] = [
    differing,
    failed_check,
    engine_fault,
    integers_in_doubt,
    illegal,
    little_time,
    disabled,
    engine_unavailable,
    too_small,
    thin_shape,
    block_size,
    no_gain,
    slow_unit,
    non_finite,
    native_lines,
    range,
    not_provable,
    no_memory,
    forked,
    finer_plan,
    at_a_loss,
    nothing_proved,
    many_moduli,
];

fn differing(data: &Data) -> Option<Advice> {
    let s = &data.snapshot;
    let text = || {
        format!(
            "{} of {} calls that OZ2_VERIFY computed natively too differ by more than both error bounds. OZ2_VERIFY_DUMP \
         keeps such a call, and oz2run --replay makes it again: this must not happen.",
            count(s.differing),
            count(s.verified),
        )
    };
    (s.differing > 0).then(|| Advice { text: text(), seconds: 0.0, is_warning: true })
}

fn failed_check(data: &Data) -> Option<Advice> {
    let s = &data.snapshot;
    let failed = s.reasons[Reason::FailedCheck as usize].calls;
    let text = || {
        format!(
            "The self-check flagged {} tiles with wrong bits, of which {} were put right by a second computation{}. \
         The processor, the memory or the GPU of this machine makes mistakes.",
            count(s.flagged),
            count(s.repaired),
            if failed > 0 {
                format!("; {} calls were computed natively in part", count(failed))
            } else {
                String::new()
            },
        )
    };
    (s.flagged > 0 || failed > 0).then(|| Advice { text: text(), seconds: 0.0, is_warning: true })
}

fn engine_fault(data: &Data) -> Option<Advice> {
    let calls = data.snapshot.reasons[Reason::EngineFault as usize].calls;
    let text = || {
        format!(
            "{} calls met a fault inside of an engine and were computed natively, at least in part. The messages on \
         stderr tell more; please report them.",
            count(calls),
        )
    };
    (calls > 0).then(|| Advice { text: text(), seconds: 0.0, is_warning: true })
}

fn integers_in_doubt(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::IntegersInDoubt)?;
    Some(group.warning(format!(
        "{} calls were passed on unread, since nobody can tell how wide their integers are: say OZ2_INTEGER=lp64 or \
         ilp64.",
        count(group.calls),
    )))
}

fn illegal(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::IllegalArgument)?;
    Some(group.warning(format!(
        "{} calls had an illegal argument, which the native BLAS reports: a mistake of the program.",
        count(group.calls),
    )))
}

fn little_time(data: &Data) -> Option<Advice> {
    let share = data.in_calls() / data.seconds;
    let text = || {
        format!(
            "DGEMM takes {} of the time since the first call: however fast it is, the program as a whole gains no more \
         than that.",
            percent(share),
        )
    };
    (share < LITTLE).then(|| Advice { text: text(), seconds: data.in_calls(), is_warning: false })
}

fn disabled(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::Disabled)?;
    let who = if group.calls == data.calls() { "Everything".to_owned() } else { group.named() };
    Some(
        group.advice(format!("{who} was native because of OZ2_MODE=native: without it the library decides.")),
    )
}

fn engine_unavailable(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::EngineUnavailable)?;
    let name = data.settings.iter().find(|s| s.name == "OZ2_ENGINE").map_or("", |s| &s.value);
    Some(group.advice(format!(
        "{} {} native because the engine {name} is not available: OZ2_ENGINE=auto takes what this machine has, and \
         oz2run --doctor says why an engine is not there.",
        group.named(), group.were(),
    )))
}

fn too_small(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::TooSmall)?;
    let value = data.settings.iter().find(|s| s.name == "OZ2_MIN_SIZE").map_or("", |s| &s.value);
    let what = match data.options.min_size {
        MinSize::Auto => format!(
            "below the threshold: nothing to gain there on this machine. They took {} of the time in DGEMM; many \
             small products in one large call would do better.",
            percent(group.seconds / data.in_calls()),
        ),
        MinSize::Work(_) => format!("below OZ2_MIN_SIZE={value}: with auto the time model decides."),
    };
    Some(group.advice(format!("{} {} {what}", group.named(), group.are())))
}

fn thin_shape(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::ThinShape)?;
    Some(group.advice(format!(
        "{} {} too thin: with a dimension below 32 the work around the products outweighs them.",
        group.named(),
        group.are(),
    )))
}

/// Rank-k updates of factorisations: k is small and fixed, m and n are not.
fn is_block_update(row: &Row) -> bool {
    matches!(row.class.size, Size::Shape(m, n, k) if BLOCK_SIZES.contains(&k) && m.min(n) >= 4 * k)
}

fn block_size(data: &Data) -> Option<Advice> {
    let rows = [Reason::NoGain, Reason::ThinShape].into_iter().flat_map(|reason| data.native_for(reason));
    let group = Group::of(rows.filter(|row| is_block_update(row)).collect())?;
    // The inner dimension that takes most of the time.
    let mut by_k: Vec<(usize, f64)> = Vec::new();
    for row in &group.rows {
        if let Size::Shape(_, _, k) = row.class.size {
            match by_k.iter_mut().find(|(other, _)| *other == k) {
                Some((_, seconds)) => *seconds += row.seconds(),
                None => by_k.push((k, row.seconds())),
            }
        }
    }
    let (k, _) = by_k.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(group.advice(format!(
        "{} {} thin: k = {k} is the block size of a factorisation such as LAPACK's (NB). A larger one would help, from \
         some 400 to 512 on, where the program lets you choose it.",
        group.named(), group.are(),
    )))
}

fn no_gain(data: &Data) -> Option<Advice> {
    let rows = data.native_for(Reason::NoGain).into_iter().filter(|row| !is_block_update(row)).collect();
    let group = Group::of(rows)?;
    let fast = |name: &&str| matches!(*name, "amx" | "cuda");
    let why = if data.engines.as_ref().is_some_and(|engines| engines.iter().any(fast)) {
        "the time model expects the native BLAS to be faster for them. It learns while the program runs, and tries \
         again now and then."
    } else {
        "this machine has neither a matrix unit (AMX) nor a GPU, and without one only data that need few moduli gain, \
         such as small integers."
    };
    let all = if group.calls == data.calls() { "Everything was native: " } else { "" };
    Some(group.advice(format!("{all}{} {} native since {why}", group.named(), group.were())))
}

fn slow_unit(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::SlowUnit)?;
    Some(group.advice(format!(
        "{} {} native because the tile unit (AMX) was in its slow state, as happens on shared machines: a machine of \
         its own would emulate them.",
        group.named(), group.were(),
    )))
}

fn non_finite(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::NonFinite)?;
    Some(group.advice(format!(
        "{} {} native because of NaN or Inf, in alpha or beta or in more than a tenth of the rows and columns. Is that \
         what the program means to compute?",
        group.named(), group.were(),
    )))
}

fn native_lines(data: &Data) -> Option<Advice> {
    let group =
        Group::of(data.emulated().filter(|row| row.class.sums.rows + row.class.sums.columns > 0).collect())?;
    let s = &data.snapshot;
    let why = match (s.not_finite, s.not_provable) {
        (_, 0) => "because of NaN or Inf in them",
        (0, _) => "because nothing could be proved for them",
        _ => "because of NaN or Inf in them, or because nothing could be proved",
    };
    Some(group.advice(format!(
        "Of the emulated calls {} rows and {} columns of C were computed natively, {why}.",
        count(s.rows_native),
        count(s.columns_native),
    )))
}

fn range(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::Range)?;
    Some(group.advice(format!(
        "{} {} native since the fixed number of moduli cannot hold them: raise OZ2_MODULI, or let OZ2_MODE=auto choose.",
        group.named(), group.were(),
    )))
}

fn not_provable(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::NotProvable)?;
    let limit = data.options.moduli.unwrap_or(MAX_MODULI);
    let what = if limit < MAX_MODULI {
        format!(
            "They would need more moduli than OZ2_MODULI={limit} allows: without that limit more may be emulated."
        )
    } else if data.options.accuracy != Accuracy::Fp64 {
        "OZ2_ACCURACY=fp64, the default, asks for less.".to_owned()
    } else {
        format!(
            "They would need more than {limit} moduli, as their elements spread over too many powers of two within a \
             row or column: scaling the variables of the problem would help."
        )
    };
    Some(group.advice(format!(
        "{} {} native since the accuracy was not provable with an N within the limit. {what}",
        group.named(),
        group.were(),
    )))
}

fn no_memory(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::NoMemory)?;
    let value = data.settings.iter().find(|s| s.name == "OZ2_WORKSPACE").map_or("", |s| &s.value);
    Some(group.advice(format!(
        "{} {} native for want of memory: raise OZ2_WORKSPACE (now {value}) or the memory of the process.",
        group.named(),
        group.were(),
    )))
}

fn forked(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::Forked)?;
    Some(group.advice(format!(
        "{} {} native since the GPU cannot be used in the child of a fork: start such processes anew (in Python the \
         start method spawn), or name an engine of the CPU in OZ2_ENGINE.",
        group.named(), group.were(),
    )))
}

fn finer_plan(data: &Data) -> Option<Advice> {
    let group = Group::native(data, Reason::FinerPlan)?;
    Some(group.advice(format!(
        "{} {} native since the CUDA engine cannot compute by the plan that the data need: with OZ2_ENGINE=auto an \
         engine of the CPU takes them.",
        group.named(), group.were(),
    )))
}

fn at_a_loss(data: &Data) -> Option<Advice> {
    let group = Group::of(data.emulated().filter(|row| row.seconds() > row.native).collect())?;
    let lost: f64 = group.rows.iter().map(|row| row.seconds() - row.native).sum();
    if lost < NOTABLE * data.in_calls() {
        return None;
    }
    let what = match data.options.min_size {
        MinSize::Auto => "the model follows what calls take, but slowly",
        MinSize::Work(_) => "OZ2_MIN_SIZE=auto would leave them to the native BLAS",
    };
    Some(group.advice(format!(
        "{} took {} more emulated than is expected of the native BLAS: {what}.",
        group.named(),
        time(lost),
    )))
}

fn nothing_proved(data: &Data) -> Option<Advice> {
    let is_fixed =
        |row: &&Row| matches!(row.class.fate, Fate::Emulated { mode: Mode::Accurate | Mode::Fast, .. });
    let group = Group::of(data.emulated().filter(is_fixed).collect())?;
    Some(group.advice(format!(
        "For {} nothing is proved, as in every call of the modes accurate and fast: OZ2_MODE=auto proves a bound for \
         each entry, and takes no more moduli than it needs.",
        group.named(),
    )))
}

fn many_moduli(data: &Data) -> Option<Advice> {
    let many = |row: &&Row| matches!(row.class.fate, Fate::Emulated { moduli, mode: Mode::Auto, .. } if moduli >= MANY_MODULI);
    let group = Group::of(data.emulated().filter(many).collect())?;
    Some(group.advice(format!(
        "{} needed {MANY_MODULI} moduli or more, where ordinary data need 14: their elements spread over many powers of \
         two. Scaling the variables of the problem would make them faster.",
        group.named(),
    )))
}

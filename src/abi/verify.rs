//! OZ2_VERIFY: every n-th emulated call is computed natively too, on copies, and compared by what both may be wrong
//! ([`crate::observe::compare`]). Whatever comes out, C stays as it was emulated. And `oz2run --replay`, which makes such a call
//! again from its file.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::is_zero;
use super::large::Emulated;
use super::lines::zeros;
use crate::engine::cpu::fpenv::{self, Arithmetic};
use crate::engine::{self, cuda};
use crate::gemm::{Gemm, Lines, MatMut, Sizes, Transpose};
use crate::native::builtin;
use crate::observe::compare::{Entry, Found, Promise, Rule, Worst, largest};
use crate::observe::last::Emulation;
use crate::observe::log::{self, Kind, Level};
use crate::observe::{counters, dump, last};
use crate::options::{Mode, Options};
use crate::ozaki::plan::{Accuracy, Out};

/// What is due: every emulated call brings 1, a verified one takes n.
static CREDIT: AtomicI64 = AtomicI64::new(0);
/// Dumps of this process, and the most that it writes.
static DUMPS: AtomicU32 = AtomicU32::new(0);
const MOST_DUMPS: u32 = 10;

/// Elements of a block of A, B or C for |A||B|, at most (but one line at least), and the most columns of it.
const ELEMENTS: usize = 4 << 20;
const COLUMNS: usize = 256;

/// A call that counts. Dropped before [`finish`] has accepted it, it is as if it had never been: the next one is due instead.
pub(super) struct Ticket {
    is_due: bool,
    /// None: not due, or it cannot be verified.
    before: Option<Before>,
    /// What goes back to CREDIT.
    back: i64,
}

/// What is kept of the matrices before a call.
struct Before {
    /// C, empty for beta = 0.
    c: Vec<f64>,
    /// Of A and B: where C lies over them, against the rules, or another thread writes them, nothing can be compared.
    hash: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        CREDIT.fetch_add(self.back, Ordering::Relaxed);
    }
}

/// Before an emulation, which overwrites C. None if nothing is to be verified.
///
/// # Safety
///
/// As for [`super::gemm`].
pub(super) unsafe fn begin(call: &Gemm, options: &Options) -> Option<Ticket> {
    let every = i64::from(options.verify?);
    CREDIT.fetch_add(1, Ordering::Relaxed);
    let take = |credit: i64| (credit >= every).then(|| credit - every);
    let is_due = CREDIT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
    let mut ticket = Ticket { is_due, before: None, back: if is_due { every - 1 } else { -1 } };
    let may_be_on_device = || engine::available_for(options.engine).contains(&engine::CUDA);
    if is_due && (!may_be_on_device() || cuda::host_reads(call)) {
        // SAFETY: by the contract of this function.
        ticket.before = unsafe { c_before(call).map(|c| Before { c, hash: hash(call) }) };
    }
    Some(ticket)
}

/// # Safety
///
/// A and B can be read.
unsafe fn hash(call: &Gemm) -> u64 {
    let mut hash = 0u64;
    for lines in [&call.a, &call.b] {
        // Along the runs in memory.
        let (runs, length, distance) = lines.runs();
        for run in 0..runs {
            for at in 0..length {
                // SAFETY: by the contract of this function.
                let x = unsafe { lines.pointer().add(run * distance + at).read_unaligned() };
                hash = (hash ^ x.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            }
        }
    }
    hash
}

/// None where there is no memory.
///
/// # Safety
///
/// C can be read.
unsafe fn c_before(call: &Gemm) -> Option<Vec<f64>> {
    if is_zero(call.beta) {
        return Some(Vec::new());
    }
    let mut out = zeros(call.m.checked_mul(call.n)?)?;
    for (j, column) in out.chunks_exact_mut(call.m).enumerate() {
        for (i, to) in column.iter_mut().enumerate() {
            // SAFETY: by the contract of this function.
            *to = unsafe { entry(&call.c, i, j) };
        }
    }
    Some(out)
}

/// # Safety
///
/// C can be read.
unsafe fn entry(c: &MatMut, i: usize, j: usize) -> f64 {
    // SAFETY: an entry of C.
    unsafe { c.pointer().add(i + j * c.ld).read_unaligned() }
}

/// # Safety
///
/// The lines can be read.
unsafe fn element(lines: &Lines, line: usize, h: usize) -> f64 {
    // SAFETY: an element of the line.
    unsafe { lines.pointer().add(line * lines.line_stride + h * lines.element_stride).read_unaligned() }
}

/// After an emulation, when C is complete. In the caller's floating-point environment, in which the native BLAS computes. Never
/// panics; without memory the call is not verified.
///
/// # Safety
///
/// As for [`super::gemm`].
pub(super) unsafe fn finish(
    mut ticket: Ticket,
    call: &Gemm,
    emulated: &Emulated,
    options: &Options,
    native: &mut dyn FnMut(&Gemm),
) {
    if !ticket.is_due {
        ticket.back = 0;
        return;
    }
    let Some(Before { c: before, hash: hash_before }) = ticket.before.take() else { return };
    // SAFETY: by the contract of this function.
    if unsafe { hash(call) } != hash_before {
        return;
    }
    let mut verify = || {
        let promise = match (emulated.report.bound, emulated.reason) {
            (None, _) => Promise::Nothing,
            (Some(bound), None) => Promise::Proved(bound),
            (Some(bound), Some(_)) => Promise::ProvedInPart(bound),
        };
        let arithmetic = Arithmetic::of_thread();
        let rule =
            fpenv::in_clean_environment(|| Rule::new((call.alpha, call.beta), call.k, promise, arithmetic));
        let mut natively = zeros(call.m.checked_mul(call.n)?)?;
        if !before.is_empty() {
            natively.copy_from_slice(&before);
        }
        // The caller may trap what only this computation raises, and sees no flags of it.
        let mut native = |part: &Gemm| fpenv::without_traps(|| native(part));
        native(&Gemm { c: MatMut::own(natively.as_mut_ptr(), call.m, call.n, call.m), ..*call });
        // SAFETY: by the contract of this function.
        let found = unsafe { compare(call, &rule, &before, &natively, &emulated.report.out, &mut native)? };
        fpenv::in_clean_environment(|| {
            counters::verified(found.differing > 0);
            if let (1.., Some(worst)) = (found.differing, &found.worst) {
                // SAFETY: by the contract of this function.
                let file = unsafe { write_dump(call, emulated, options, &before, &natively) };
                tell(call, emulated, options, &found, worst, file.as_deref());
            }
        });
        Some(())
    };
    // The panic hook has told what there is to tell.
    if let Ok(Some(())) = catch_unwind(AssertUnwindSafe(&mut verify)) {
        ticket.back = 0;
    }
}

/// Compares C with `natively`, block by block, since |A||B| is needed for it. None where there is no memory.
///
/// # Safety
///
/// The matrices of the call can be read.
unsafe fn compare(
    call: &Gemm,
    rule: &Rule,
    before: &[f64],
    natively: &[f64],
    out: &Out,
    native: &mut dyn FnMut(&Gemm),
) -> Option<Found> {
    let &Gemm { m, n, k, .. } = call;
    let rows = (ELEMENTS / k).clamp(1, m);
    let columns = (ELEMENTS / k.max(rows)).clamp(1, n.min(COLUMNS));
    let (mut a, mut b) = (Magnitudes::new(rows, k)?, Magnitudes::new(columns, k)?);
    let mut product = zeros(rows * columns)?;
    let mut found = Found::default();
    for i0 in (0..m).step_by(rows) {
        // SAFETY: by the contract of this function, here and below.
        let a_lines = unsafe { a.take(&call.a, i0, rows.min(m - i0)) };
        for j0 in (0..n).step_by(columns) {
            let b_lines = unsafe { b.take(&call.b, j0, columns.min(n - j0)) };
            let (r, s) = (a_lines.count, b_lines.count);
            let c = MatMut::own(product.as_mut_ptr(), r, s, r);
            let part =
                Gemm { m: r, n: s, k, alpha: 1.0, beta: 0.0, a: a_lines, b: b_lines, c, row_major: false };
            native(&part);
            fpenv::in_clean_environment(|| {
                for (at, &product) in product[..r * s].iter().enumerate() {
                    let (i, j) = (i0 + at % r, j0 + at / r);
                    let entry = Entry {
                        emulated: unsafe { entry(&call.c, i, j) },
                        native: natively[i + j * m],
                        product,
                        before: before.get(i + j * m).copied().unwrap_or(0.0),
                        largest: (a.largest[i - i0], b.largest[j - j0]),
                        is_left: out.rows.binary_search(&i).is_ok() || out.columns.binary_search(&j).is_ok(),
                    };
                    found.add(rule, i, j, entry);
                }
            });
        }
    }
    Some(found)
}

/// Magnitudes of some lines of an operand, and the largest of each.
struct Magnitudes {
    values: Vec<f64>,
    largest: Vec<f64>,
}

impl Magnitudes {
    fn new(lines: usize, length: usize) -> Option<Self> {
        Some(Self { values: zeros(lines.checked_mul(length)?)?, largest: zeros(lines)? })
    }

    /// # Safety
    ///
    /// The lines can be read.
    unsafe fn take(&mut self, from: &Lines, first: usize, count: usize) -> Lines {
        let length = from.length;
        for (line, to) in self.values.chunks_exact_mut(length).take(count).enumerate() {
            for (h, to) in to.iter_mut().enumerate() {
                // SAFETY: by the contract of this function.
                *to = unsafe { element(from, first + line, h) }.abs();
            }
            self.largest[line] = largest(to.iter().copied());
        }
        Lines::dense(self.values.as_ptr(), count, length)
    }
}

/// One line for the first call of the process that differs.
fn tell(
    call: &Gemm,
    emulated: &Emulated,
    options: &Options,
    found: &Found,
    worst: &Worst,
    file: Option<&str>,
) {
    let &Worst { i, j, entry: Entry { emulated: ours, native, .. }, allowed, .. } = worst;
    let (mut sizes, mut place) = ((call.m, call.n), (i, j));
    if call.row_major {
        (sizes, place) = ((sizes.1, sizes.0), (place.1, place.0));
    }
    let Gemm { k, alpha, beta, .. } = *call;
    let (engine, mode) = (engine::NAMES[emulated.engine], last::mode_name(options.mode));
    let plan = if options.mode == Mode::Auto { emulated.report.way.name() } else { "fixed" };
    let text = format!(
        "OZ2_VERIFY: a call differs from the native BLAS by more than both error bounds: m {} n {} k {k} \
         alpha {alpha:?} beta {beta:?}, engine {engine}, mode {mode}, moduli {}, plan {plan}; {} entries, the worst in \
         row {} column {} (from 0): emulated {ours:?} native {native:?} difference {:.3e} allowed {allowed:.3e}{}",
        sizes.0,
        sizes.1,
        emulated.report.moduli,
        found.differing,
        place.0,
        place.1,
        (ours - native).abs(),
        file.map_or(String::new(), |file| format!("; written to {file}")),
    );
    log::once(Kind::Differs, Level::Error, &text);
}

/// The name of the file, if one is wanted and could be written.
///
/// # Safety
///
/// The matrices of the call can be read.
unsafe fn write_dump(
    call: &Gemm,
    emulated: &Emulated,
    options: &Options,
    before: &[f64],
    natively: &[f64],
) -> Option<String> {
    let pattern = options.verify_dump.as_deref()?;
    if DUMPS
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < MOST_DUMPS).then_some(n + 1))
        .is_err()
    {
        return None;
    }
    let &Gemm { m, n, k, .. } = call;
    let letter = |transposed| if transposed { "T" } else { "N" }.to_owned();
    let report = &emulated.report;
    let accuracy = match options.accuracy {
        Accuracy::Fp64 => "fp64",
        Accuracy::Textbook => "textbook",
        Accuracy::High => "high",
    };
    let fields = [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("m", m.to_string()),
        ("n", n.to_string()),
        ("k", k.to_string()),
        ("alpha", format!("{:016x}", call.alpha.to_bits())),
        ("beta", format!("{:016x}", call.beta.to_bits())),
        ("row-major", if call.row_major { "yes" } else { "no" }.to_owned()),
        ("transa", letter(call.a.stored().0 == Transpose::Yes)),
        // The lines of B are columns: contiguous ones mean that it is not transposed.
        ("transb", letter(call.b.stored().0 == Transpose::No)),
        ("engine", engine::NAMES[emulated.engine].to_owned()),
        ("mode", last::mode_name(options.mode).to_owned()),
        ("accuracy", accuracy.to_owned()),
        ("moduli-option", options.moduli.map_or("auto".to_owned(), |n| n.to_string())),
        ("moduli", report.moduli.to_string()),
        ("plan", if options.mode == Mode::Auto { report.way.name() } else { "fixed" }.to_owned()),
        ("bound", report.bound.map_or("none".to_owned(), |bound| bound.to_string())),
    ];
    // SAFETY: by the contract of this function, here and below.
    let a = (0..k).flat_map(|h| (0..m).map(move |i| unsafe { element(&call.a, i, h) }));
    let b = (0..n).flat_map(|j| (0..k).map(move |h| unsafe { element(&call.b, j, h) }));
    let was = (0..m * n).map(|at| before.get(at).copied().unwrap_or(0.0));
    let c = (0..n).flat_map(|j| (0..m).map(move |i| unsafe { entry(&call.c, i, j) }));
    let doubles = a.chain(b).chain(was).chain(c).chain(natively.iter().copied());
    dump::write(pattern, &fields, doubles)
        .inspect_err(|error| log::once(Kind::DumpFile, Level::Warn, &format!("OZ2_VERIFY_DUMP: {error}")))
        .ok()
}

/// What a call from a file gave.
pub struct Replayed {
    /// As oz2_last_call tells it.
    pub last: String,
    /// The call was emulated this time too.
    pub is_emulated: bool,
    /// Entries with other bits than in the file. NaN is NaN.
    pub other_bits: usize,
    /// Against the native result of the file.
    pub found: Found,
}

/// Makes the call of a file again, by dgemm_ with the options in force. None where there is no memory.
pub fn replay(call: &dump::Call) -> Option<Replayed> {
    let &dump::Call { m, n, k, alpha, beta, .. } = call;
    let mut c = zeros(m * n)?;
    c.copy_from_slice(&call.before);
    // Whatever the width of the integers, it reads the right value here.
    let [m_, n_, k_] = [m, n, k].map(|size| size as i64);
    let no: *const c_char = c"N".as_ptr();
    let at = |size: &i64| std::ptr::from_ref(size).cast();
    let (a, b) = (call.a.as_ptr(), call.b.as_ptr());
    // SAFETY: the matrices have the sizes that the call says.
    unsafe {
        super::fortran::dgemm_(
            no,
            no,
            at(&m_),
            at(&n_),
            at(&k_),
            &raw const alpha,
            a,
            at(&m_),
            b,
            at(&k_),
            &raw const beta,
            c.as_mut_ptr(),
            at(&m_),
        );
    }
    let emulated = last::with_thread(last::Thread::emulated);
    let is_emulated = emulated.is_some();
    let mut out = Out::default();
    let promise = match emulated {
        Some(Emulation { bound: Some(bound), left: Some((rows, columns)) }) => {
            out = Out { rows, columns, ..out };
            Promise::Proved(bound)
        }
        Some(Emulation { bound: Some(bound), left: None }) => Promise::ProvedInPart(bound),
        _ => Promise::Nothing,
    };
    let rule = Rule::new((alpha, beta), k, promise, Arithmetic::CLEAN);
    let sizes = Sizes { m, n, k, lda: m, ldb: k, ldc: m };
    let own = Gemm::new((Transpose::No, Transpose::No), sizes, (alpha, beta), a, b, c.as_mut_ptr())?;
    // SAFETY: as above; the parts are ours.
    let found = unsafe {
        compare(
            &own,
            &rule,
            if is_zero(beta) { &[] } else { &call.before },
            &call.native,
            &out,
            &mut |part| {
                builtin::gemm_for_caller(part);
            },
        )?
    };
    let same = |(x, y): &(&f64, &f64)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    let other_bits = c.iter().zip(&call.emulated).filter(|pair| !same(pair)).count();
    Some(Replayed { last: last::json(), is_emulated, other_bits, found })
}

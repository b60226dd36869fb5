//! The CUDA engine: INT8 products on tensor cores through cuBLAS (or, for measurements, kernels of our own: product.rs), everything
//! around them in the kernels of kernels/.
//!
//! CUDA is looked for at the first call that is large enough for it. A device that fails is left alone for a while; the child of
//! a fork does not use CUDA at all, because CUDA does not work there.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

mod blocks;
mod check;
mod compute;
mod device;
mod graph;
mod kernels;
mod launch;
mod library;
mod place;
mod plan;
mod product;
mod run;

use crate::engine::process::hold_forks;
use crate::engine::{Engine, Outcome, Phases, Report, Settings};
use crate::gemm::{Gemm, Rectangle};
use crate::observe::log::{self, Kind, Level};
use crate::options::{self, Devices};
use crate::ozaki::plan::{Out, good_enough};
use crate::route::Reason;
use compute::{Progress, reason_of};
use device::Device;
use library::{Fault, Libraries};
use place::{Place, devices, places, through_host};
use run::{Run, Stop};

pub struct CudaEngine;

pub static CUDA: CudaEngine = CudaEngine;

/// A device of the process. One call uses it at a time.
struct Slot {
    ordinal: usize,
    device: Mutex<Option<Device>>,
    /// Seconds since the start until which the device is left alone.
    resting_until: AtomicU64,
    faults: AtomicU32,
    /// The fused product has failed here, and is not tried again.
    fused_failed: AtomicBool,
    /// So have graphs.
    graphs_failed: AtomicBool,
}

struct State {
    libraries: &'static Libraries,
    slots: Vec<Slot>,
    start: Instant,
}

/// The process that looked for CUDA, 0 before. CUDA does not work in the child of a fork, and a child that was forked during
/// the search would wait for ever for its end.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// This process is the child of one that looked for CUDA.
fn is_forked() -> bool {
    let own = std::process::id();
    match OWNER.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => false,
        Err(owner) => owner != own,
    }
}

/// CUDA as it was found at the first use, or why it cannot be used. Not to be asked in the child of a fork.
fn state() -> Result<&'static State, &'static str> {
    static STATE: OnceLock<Result<State, String>> = OnceLock::new();
    let found = STATE.get_or_init(|| {
        let _no_forks = hold_forks();
        let state = find();
        match &state {
            Ok(state) => tracing::info!(devices = state.slots.len(), "CUDA found"),
            Err(why) => tracing::info!(why, "CUDA is not used"),
        }
        state
    });
    found.as_ref().map_err(String::as_str)
}

fn find() -> Result<State, String> {
    let chosen = &options::current().devices;
    if *chosen == Devices::List(Vec::new()) {
        return Err("OZ2_DEVICES=none".to_owned());
    }
    let libraries: &'static Libraries = Box::leak(Box::new(Libraries::find()?));
    let count = libraries.device_count().map_err(|fault| format!("{fault:?}"))?;
    let ordinals = match chosen {
        Devices::Auto => vec![local_rank() % count.max(1)],
        Devices::All => (0..count).collect(),
        Devices::List(list) => list.iter().copied().filter(|&ordinal| ordinal < count).collect(),
    };
    if ordinals.is_empty() {
        return Err(format!("none of the devices of OZ2_DEVICES is there (found: {count})"));
    }
    let slot = |ordinal| Slot {
        ordinal,
        device: Mutex::new(None),
        resting_until: AtomicU64::new(0),
        faults: AtomicU32::new(0),
        fused_failed: AtomicBool::new(false),
        graphs_failed: AtomicBool::new(false),
    };
    let slots = ordinals.into_iter().map(slot).collect();
    Ok(State { libraries, slots, start: Instant::now() })
}

/// The number of this process among those of the same machine, as the usual MPI launchers tell it.
fn local_rank() -> usize {
    let names = [
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "PMIX_LOCAL_RANK",
        "SLURM_LOCALID",
    ];
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(0)
}

/// Can calls be sent here? Finds CUDA at the first question. In the child of a fork calls come here too and are declined, with
/// that as the Reason.
pub fn is_available() -> bool {
    is_forked() || state().is_ok()
}

/// Is no matrix of the call in the memory of a device, where the host cannot read it? Looks for CUDA at the first question.
pub fn host_reads(call: &Gemm) -> bool {
    let Ok(state) = (if is_forked() { Err("") } else { state() }) else { return true };
    devices(&places(state.libraries, call)).next().is_none()
}

/// Copies at most this many bytes at a time: for tests.
pub fn stage_by(bytes: usize) {
    device::STAGING.store(bytes, Ordering::Relaxed);
}

/// All devices as if they had never been used: for tests, which break them.
pub fn forget_devices() {
    for slot in state().iter().flat_map(|state| &state.slots) {
        let mut device = slot.device.lock().unwrap_or_else(PoisonError::into_inner);
        *device = None;
        slot.resting_until.store(0, Ordering::Relaxed);
        slot.faults.store(0, Ordering::Relaxed);
        slot.fused_failed.store(false, Ordering::Relaxed);
        slot.graphs_failed.store(false, Ordering::Relaxed);
    }
}

/// What was found, for `oz2run --doctor`.
pub fn description() -> String {
    match state() {
        Err(why) => format!("not available: {why}"),
        Ok(state) => {
            let name = |slot: &Slot| {
                format!("{} {}", slot.ordinal, state.libraries.device_name(slot.ordinal as c_int))
            };
            let names: Vec<String> = state.slots.iter().map(name).collect();
            format!("available, device {}", names.join(", device "))
        }
    }
}

impl State {
    /// Seconds since CUDA was found; at least 1, so that 0 means never.
    fn now(&self) -> u64 {
        self.start.elapsed().as_secs() + 1
    }

    /// A device that does not rest: one that is free if there is any, else the first, after a wait. `wanted`: only the one
    /// with this ordinal.
    fn take(&self, wanted: Option<usize>) -> Option<(&Slot, MutexGuard<'_, Option<Device>>)> {
        let rests = |slot: &Slot| slot.resting_until.load(Ordering::Relaxed) > self.now();
        let fits = |slot: &&Slot| wanted.is_none_or(|ordinal| slot.ordinal == ordinal) && !rests(slot);
        loop {
            let free = self.slots.iter().filter(fits).find_map(|slot| {
                let device = slot.device.try_lock().ok()?;
                (!rests(slot)).then_some((slot, device))
            });
            if free.is_some() {
                return free;
            }
            let slot = self.slots.iter().find(fits)?;
            let device = slot.device.lock().unwrap_or_else(PoisonError::into_inner);
            // The call that had the device may have left it broken.
            if !rests(slot) {
                return Some((slot, device));
            }
        }
    }
}

impl Slot {
    /// After a fault: the device rests, longer after every fault, and is opened anew when it is tried again.
    fn rest(&self, state: &State, fault: Fault) {
        let faults = self.faults.fetch_add(1, Ordering::Relaxed).min(6);
        self.resting_until.store(state.now() + (30 << faults), Ordering::Relaxed);
        let text = format!("CUDA device {} failed ({fault:?}) and is left alone for a while", self.ordinal);
        log::capped(Kind::EngineFault, Level::Error, &text);
    }
}

/// What is left to others of the device's memory.
const MARGIN: usize = 16;
/// Below this the device is not worth trying with ever smaller blocks.
const SMALLEST_LIMIT: usize = 1 << 20;

impl Engine for CudaEngine {
    unsafe fn gemm(&self, call: &Gemm, settings: &Settings) -> Outcome {
        if is_forked() {
            return Outcome::Declined(Reason::Forked);
        }
        let Ok(state) = state() else { return Outcome::Declined(Reason::EngineUnavailable) };
        let places = places(state.libraries, call);
        // SAFETY: by the contract of this function, here and below.
        match unsafe { emulate(state, call, settings, &places) } {
            // Nobody else can compute this: the matrices are where a native BLAS cannot read.
            Outcome::Declined(reason) if devices(&places).next().is_some() => {
                match unsafe { through_host(state.libraries, call, &places, settings.threads) } {
                    Ok(()) => Outcome::Native(reason),
                    Err(_) => Outcome::Declined(reason),
                }
            }
            Outcome::Partial(report, reason, rest) if devices(&places).next().is_some() => {
                let compute = |part: &Rectangle| unsafe {
                    through_host(state.libraries, &call.part(*part), &places, settings.threads)
                };
                let missing = rest.into_iter().filter(|part| compute(part).is_err()).collect();
                Outcome::Partial(report, reason, missing)
            }
            outcome => outcome,
        }
    }
}

/// Emulates the call on a device that can: the one whose memory holds the matrices, if any does.
///
/// # Safety
///
/// As for [`Engine::gemm`].
unsafe fn emulate(state: &State, call: &Gemm, settings: &Settings, places: &[Place; 3]) -> Outcome {
    let wanted = devices(places).next();
    if wanted.is_some_and(|ordinal| devices(places).any(|other| other != ordinal)) {
        return Outcome::Declined(Reason::EngineUnavailable);
    }
    let Some((slot, mut place)) = state.take(wanted) else { return Outcome::Declined(Reason::EngineFault) };
    let device = match &mut *place {
        Some(device) => device,
        empty => match Device::open(state.libraries, slot.ordinal) {
            Ok(device) => {
                let device = empty.insert(device);
                let wanted = product::is_wanted() && !slot.fused_failed.load(Ordering::Relaxed);
                if wanted && !device.start_fused() {
                    slot.fused_failed.store(true, Ordering::Relaxed);
                }
                device.replays.failed = graph::unwanted() || slot.graphs_failed.load(Ordering::Relaxed);
                device
            }
            Err(fault) => {
                slot.rest(state, fault);
                return Outcome::Declined(reason_of(fault));
            }
        },
    };
    // SAFETY: by the contract of this function.
    let (outcome, fault) = unsafe { on_device(device, call, settings, places) };
    slot.graphs_failed.store(device.replays.failed, Ordering::Relaxed);
    match fault {
        // Whatever state it is in now, it is opened anew when it is used again. Its memory goes back if that still works;
        // its handles stay until the process ends.
        Some(fault @ Fault::Status(..)) => {
            if let Some(device) = &mut *place {
                let _ = device.enter().and_then(|_current| device.give_all_back());
            }
            *place = None;
            slot.rest(state, fault);
        }
        _ => slot.faults.store(0, Ordering::Relaxed),
    }
    outcome
}

/// Runs a call on a device, with smaller and smaller blocks while its memory does not suffice.
///
/// # Safety
///
/// As for [`Engine::gemm`].
unsafe fn on_device(
    device: &mut Device,
    call: &Gemm,
    settings: &Settings,
    places: &[Place; 3],
) -> (Outcome, Option<Fault>) {
    let _current = match device.enter() {
        Ok(current) => current,
        Err(fault) => return (Outcome::Declined(reason_of(fault)), Some(fault)),
    };
    let mut limit = match device.free() {
        Ok(free) => device.held() + free - free / MARGIN,
        Err(fault) => return (Outcome::Declined(reason_of(fault)), Some(fault)),
    };
    if let Some(workspace) = settings.workspace {
        limit = limit.min(workspace);
    }
    loop {
        let mut attempt = Attempt::default();
        let done = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: by the contract of this function.
            unsafe { attempt.run(device, call, settings, limit, places) }
        }));
        let stop = match done {
            Ok(Ok(report)) => return (Outcome::Done(report), None),
            Ok(Err(stop)) => stop,
            Err(_) => Stop::Fault(Fault::Status("a panic", 0)),
        };
        let fault = match stop {
            Stop::Declined(reason) => {
                // With the self-check a block may be refused while others are in work.
                let _ = device.finish();
                let outcome = match attempt.report {
                    Some(report) if attempt.progress != Progress::default() => {
                        Outcome::Partial(report, reason, attempt.missing)
                    }
                    _ => Outcome::Declined(reason),
                };
                return (outcome, None);
            }
            Stop::Fault(fault) => fault,
        };
        // No copy may still read or write memory that goes away.
        let finished = device.finish();
        if attempt.progress == Progress::default() {
            let retry = fault == Fault::Memory && finished.is_ok() && limit / 2 >= SMALLEST_LIMIT;
            if retry && device.give_all_back().is_ok() {
                limit /= 2;
                continue;
            }
            return (Outcome::Declined(reason_of(fault)), Some(fault));
        }
        // Some of C is written: what is missing is named, whatever the fault was.
        return match attempt.report {
            Some(report) => (Outcome::Partial(report, reason_of(fault), attempt.missing), Some(fault)),
            None => (Outcome::Declined(reason_of(fault)), Some(fault)),
        };
    }
}

/// One try at a call, and how far it came.
#[derive(Default)]
struct Attempt {
    progress: Progress,
    report: Option<Report>,
    missing: Vec<Rectangle>,
}

impl Attempt {
    /// # Safety
    ///
    /// As for [`Engine::gemm`].
    unsafe fn run(
        &mut self,
        device: &mut Device,
        call: &Gemm,
        settings: &Settings,
        limit: usize,
        places: &[Place; 3],
    ) -> Result<Report, Stop> {
        let [a_on_device, b_on_device, c_on_device] = places.map(Place::is_reachable);
        if a_on_device || b_on_device || c_on_device {
            // Our streams do not wait by themselves for what the program has queued on its own.
            // SAFETY: waits for the context that is current.
            unsafe { device.libraries.driver.cuCtxSynchronize()? };
        }
        let on_device = [a_on_device, b_on_device];
        let mut run = Run::new(device, call, settings, limit, on_device)?;
        // SAFETY: by the contract of this function, here and below.
        let (plan, bound) = match unsafe { run.plan() } {
            Ok((plan, bound)) if bound.is_none() || plan.moduli <= good_enough(settings.check) => {
                (plan, bound)
            }
            Ok(_) | Err(Stop::Declined(Reason::NotProvable)) => unsafe { run.finer_plan(places)? },
            Err(stop) => return Err(stop),
        };
        let (moduli, way, out) = (plan.moduli, plan.way, Out::default());
        if bound.is_some() && moduli > settings.worth {
            return Err(Stop::Declined(Reason::NoGain));
        }
        let report = Report {
            moduli,
            way,
            bound,
            out,
            phases: Phases::default(),
            fresh: false,
            checked: None,
            strassen: 0,
        };
        self.report = Some(report.clone());
        let blocks = run.product_blocks(&plan).ok_or(Stop::Declined(Reason::NoMemory))?;
        let report = Report { strassen: blocks.layout.levels, ..report };
        self.report = Some(report.clone());
        let done = unsafe { run.compute(&plan, &blocks, c_on_device, &mut self.progress) };
        let report = Report { checked: settings.check.then_some(run.checked), ..report };
        if done.is_err() {
            self.missing = run.missing(&blocks, self.progress);
        }
        self.report = Some(report.clone());
        done.map(|()| report)
    }
}

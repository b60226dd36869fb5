//! The one state of the device behind one lock, and the gate that every entry point goes through.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};

use crate::api::blas::Handle;
use crate::config::Config;
use crate::context::Contexts;
use crate::faults::Faults;
use crate::graph::{Executable, Graph};
use crate::kernel::{Function, Module};
use crate::memory::Memory;
use crate::status::{
    ILLEGAL_ADDRESS, NOT_INITIALIZED, NOT_PERMITTED, Outcome, SUCCESS, Status, UNKNOWN, blas,
};
use crate::stream::Streams;
use crate::trace::Trace;

pub struct State {
    pub config: Config,
    pub faults: Faults,
    pub trace: Trace,
    pub memory: Memory,
    pub streams: Streams,
    pub contexts: Contexts,
    /// The status that each device answers with for ever, 0 while it is well.
    pub lost: Vec<Status>,
    /// Devices with writes outside allocations: these are never well again.
    damaged: Vec<bool>,
    pub modules: HashMap<usize, Module>,
    pub functions: HashMap<usize, Function>,
    pub graphs: HashMap<usize, Graph>,
    pub executables: HashMap<usize, Executable>,
    pub blas: HashMap<usize, Handle>,
    last_handle: usize,
}

/// The process that called cuInit, 0 before. In a child of it the device is of no use.
static OWNER: AtomicI32 = AtomicI32::new(0);
static STATE: LazyLock<Mutex<State>> =
    LazyLock::new(|| Mutex::new(State::new(Config::from_environment(), 0x1000)));

/// A write outside an allocation that no call could report.
static DAMAGED_UNHEARD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// A function of cuLaunchHostFunc runs in this thread: it may not call CUDA.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Exit status of a process in which a write outside an allocation was found when no call could tell it any more.
const EXIT_DAMAGED: i32 = 86;

impl State {
    fn new(config: Config, last_handle: usize) -> State {
        let devices = config.devices;
        State {
            faults: Faults::new(config.faults.clone()),
            trace: Trace::new(&config),
            memory: Memory::new(devices, config.memory),
            streams: Streams::new(config.seed),
            contexts: Contexts { retained: vec![0; devices] },
            lost: vec![SUCCESS; devices],
            damaged: vec![false; devices],
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            blas: HashMap::new(),
            last_handle,
            config,
        }
    }

    /// The world as at the start of a process, with other switches. Handles are never used again, so that old ones are
    /// found out. The red zones are looked at first.
    pub fn reset(&mut self, config: Config) {
        if !self.memory.damaged("at a reset").is_empty() {
            DAMAGED_UNHEARD.store(true, Ordering::Relaxed);
        }
        let memory = self.memory.renewed(config.devices, config.memory);
        *self = State { memory, ..State::new(config, self.last_handle) };
    }

    pub fn handle(&mut self) -> usize {
        self.last_handle += 16;
        self.last_handle
    }

    /// cuInit was called.
    pub fn ready(&self) -> Outcome {
        if OWNER.load(Ordering::Relaxed) == 0 { Err(NOT_INITIALIZED) } else { Ok(()) }
    }

    pub fn initialise(&self) {
        // SAFETY: getpid and atexit have no preconditions; the handler is part of a library that is never unloaded.
        unsafe {
            if OWNER.swap(libc::getpid(), Ordering::Relaxed) == 0 {
                libc::atexit(at_exit);
            }
        }
    }

    /// Damage in the red zones loses the device it was found on.
    pub fn check_red_zones(&mut self, after: &str) {
        for device in self.memory.damaged(after) {
            self.damaged[device] = true;
            self.lose(device, ILLEGAL_ADDRESS);
        }
    }

    /// The device answers with this status from now on; the first reason stays.
    pub fn lose(&mut self, device: usize, status: Status) {
        if let Some(lost) = self.lost.get_mut(device).filter(|lost| **lost == SUCCESS) {
            *lost = status;
        }
    }

    /// Lost devices are well again, unless something wrote outside an allocation.
    pub fn revive(&mut self) {
        self.finish_device(None);
        for (lost, damaged) in self.lost.iter_mut().zip(&self.damaged) {
            if !damaged {
                *lost = SUCCESS;
            }
        }
    }

    /// The device is not lost.
    pub fn well(&self, device: usize) -> Outcome {
        match self.lost.get(device) {
            Some(&SUCCESS) => Ok(()),
            Some(&status) => Err(status),
            None => Err(UNKNOWN),
        }
    }

    /// The device of the current context, which is not lost.
    pub fn device(&self) -> Outcome<usize> {
        self.ready()?;
        let device = self.contexts.current_device()?;
        self.well(device)?;
        Ok(device)
    }

    /// The stream for a handle, on a device that is not lost.
    pub fn stream(&mut self, handle: usize) -> Outcome<usize> {
        self.ready()?;
        let current = self.contexts.current_device();
        let key = self.streams.resolve(handle, current)?;
        self.well(self.streams.get(key)?.device)?;
        Ok(key)
    }

    /// Counts a call or a launch; the failure that is due. `device` is lost with it if so ordered, or all are.
    pub fn due(&mut self, name: &str, device: Option<usize>, lost_with: Option<Status>) -> Outcome {
        let Some((status, lost)) = self.faults.count(name) else { return Ok(()) };
        if lost {
            let devices = device.map_or(0..self.lost.len(), |device| device..device + 1);
            devices.for_each(|device| self.lose(device, lost_with.unwrap_or(status)));
        }
        Err(status)
    }
}

/// The lock. A panic inside it is a defect of the device, but no reason to hide the others.
pub fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A forked child of the process that initialised the device.
fn is_child() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: no preconditions.
    owner != 0 && owner != unsafe { libc::getpid() }
}

/// Every entry point of the driver: is CUDA usable here at all, is a failure due; then the work.
pub fn enter(name: &'static str, work: impl FnOnce(&mut State) -> Outcome) -> Status {
    if is_child() {
        return NOT_INITIALIZED;
    }
    if IN_HOST_FUNCTION.get() {
        return NOT_PERMITTED;
    }
    let mut state = lock();
    let device = state.contexts.current_device().ok();
    let outcome = state.due(name, device, None).and_then(|()| work(&mut state));
    let status = outcome.err().unwrap_or(SUCCESS);
    state.trace.call(name, status);
    status
}

/// What goes wrong in cuBLAS: a status of its own, or something in the driver, which cuBLAS does not pass on.
pub enum BlasError {
    Own(Status),
    Driver,
}

impl From<Status> for BlasError {
    fn from(_: Status) -> BlasError {
        BlasError::Driver
    }
}

/// Every entry point of cuBLAS.
pub fn enter_blas(name: &'static str, work: impl FnOnce(&mut State) -> Result<(), BlasError>) -> Status {
    if is_child() || IN_HOST_FUNCTION.get() {
        return blas::NOT_INITIALIZED;
    }
    let mut state = lock();
    let device = state.contexts.current_device().ok();
    let due = state.due(name, device, Some(crate::status::LAUNCH_FAILED)).map_err(BlasError::Own);
    let status = match due.and_then(|()| work(&mut state)) {
        Ok(()) => SUCCESS,
        Err(BlasError::Own(status)) => status,
        Err(BlasError::Driver) => blas::EXECUTION_FAILED,
    };
    state.trace.call(name, status);
    status
}

/// Runs a function of the host program in the middle of a stream.
pub fn run_host_function(function: extern "C" fn(*mut std::ffi::c_void), data: usize) {
    IN_HOST_FUNCTION.set(true);
    function(data as *mut std::ffi::c_void);
    IN_HOST_FUNCTION.set(false);
}

/// The last look at the red zones. Damage that nobody heard of ends the process with a status of its own.
extern "C" fn at_exit() {
    if is_child() {
        return;
    }
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return, // another thread still computes; nothing to say then
    };
    let damaged = !state.memory.damaged("at exit").is_empty();
    if damaged || DAMAGED_UNHEARD.load(Ordering::Relaxed) {
        // SAFETY: ends the process; what the program wrote so far is flushed.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(EXIT_DAMAGED);
        }
    }
}

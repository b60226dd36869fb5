//! What the protocol of the team needs of the system: locks, threads, time. `tests/team_model` has another one.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::super::fpenv;
use super::protocol::{State, Team, worker};
use crate::observe::log::{self, Kind, Level};

/// The number of a thread for the system.
pub type Number = libc::pid_t;

/// Enough for the tiles that a task keeps on its stack, several times over.
const STACK_BYTES: usize = 512 << 10;

/// How long an idle worker looks for the next run before it sleeps. Waking takes longer than a small product, and programs
/// that multiply small matrices multiply many.
pub const LOOK: Duration = Duration::from_micros(100);

/// A worker that has nothing to do for so long ends. A process ends with the last of its threads where that of main has left by
/// `pthread_exit`, and a worker that stayed would keep it for ever.
pub const LINGER: Duration = Duration::from_secs(2);

/// Looks for something to be true, for a while.
pub fn look(found: &dyn Fn() -> bool) {
    let clock = Instant::now();
    while !found() && clock.elapsed() < LOOK {
        std::hint::spin_loop();
    }
}

/// Waits without the lock until somebody wakes the team, at most for [`LINGER`]; true if that is over.
pub fn linger<'a>(team: &Team, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
    let (state, result) = team.wake.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
    (state, result.timed_out())
}

/// What a thread does first.
pub fn begin() {
    fpenv::clean_thread();
}

/// Keeps threads away from the processor of the calling thread, which is busy with its own part: the system likes to wake a thread
/// on the processor of its waker, where it would wait for milliseconds. Our threads alone are moved, within what the caller may use.
#[cfg(target_os = "linux")]
pub fn keep_away(threads: &[Number]) {
    // SAFETY: the set is as large as its size says, and plain bits; a thread that has ended meanwhile is an error without effect.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let own = libc::sched_getcpu();
        let size = size_of::<libc::cpu_set_t>();
        if own < 0 || libc::sched_getaffinity(0, size, &raw mut set) != 0 || libc::CPU_COUNT(&set) < 2 {
            return;
        }
        libc::CPU_CLR(own as usize, &mut set);
        for &thread in threads {
            libc::sched_setaffinity(thread, size, &raw const set);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub fn keep_away(_: &[Number]) {}

/// The number of this thread for the system.
pub fn own_number() -> Number {
    #[cfg(target_os = "linux")]
    // SAFETY: takes nothing and always succeeds.
    unsafe {
        libc::gettid()
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Starts a worker that gets no signals: those belong to the threads of the host program. False, after a warning, where there can be
/// no more.
///
/// By the system's own function: the threads of the standard library set up more for themselves when they run, and end the process
/// if there is no memory for it.
pub fn start_worker(team: &'static Team) -> bool {
    extern "C" fn body(team: *mut c_void) -> *mut c_void {
        // SAFETY: the team below, which is never freed.
        let team = unsafe { &*team.cast_const().cast::<Team>() };
        // A name for debuggers and ps; nothing comes of a failure.
        #[cfg(target_os = "linux")]
        // SAFETY: a C string of less than 16 bytes.
        unsafe {
            libc::pthread_setname_np(libc::pthread_self(), c"oz2blas".as_ptr());
        }
        let _ = catch_unwind(AssertUnwindSafe(|| worker(team)));
        std::ptr::null_mut()
    }
    // SAFETY: everything is initialised before it is read; the thread gets a team that is never freed.
    let status = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut status = libc::pthread_attr_init(&raw mut attributes);
        if status == 0 {
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
            let mut thread: libc::pthread_t = std::mem::zeroed();
            let argument = std::ptr::from_ref(team).cast_mut().cast();
            status = libc::pthread_create(&raw mut thread, &raw const attributes, body, argument);
            if status == libc::EINVAL {
                // The program has so many thread-local variables that they do not fit: as much as the system gives by itself.
                status = libc::pthread_create(&raw mut thread, std::ptr::null(), body, argument);
            }
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        status
    };
    if status != 0 {
        let error = std::io::Error::from_raw_os_error(status);
        let text = format!("cannot start a thread: {error}; using fewer");
        log::once(Kind::Threads, Level::Warn, &text);
    }
    status == 0
}

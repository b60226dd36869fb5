//! Forks: the child has no worker threads, starts its counters at zero, and must not wait for what only a thread of the parent
//! would do.
//!
//! The loader's lock is the hard case: if a thread of the parent is in dlopen or dlsym at the moment of a fork, the lock stays
//! locked in the child for ever. So whoever of us uses the loader holds forks back meanwhile ([`hold_forks`]).
//!
//! And threads that the program cancels (`pthread_cancel`): the system would unwind them out of the first call that waits, and with
//! them the code of this library, which ends the process. So whoever of us may wait, read or write holds that back as well
//! ([`hold_cancellation`]).
//!
//! And the end, which other threads may be multiplying at: what is loaded then is no longer as it was ([`ending`]).

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A flag and no `Once`: the child of a fork must never wait for a thread that it does not have.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// A thread uses the loader, or forks.
static HELD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread holds forks back.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
    /// This thread forks, and has taken HELD for it.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

fn take() {
    let _unbroken = hold_cancellation();
    while HELD.swap(true, Ordering::Acquire) {
        // Looking for CUDA takes a second, once in a process; all else is over at once.
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn give_back() {
    HELD.store(false, Ordering::Release);
}

/// Forks of other threads wait while this lives. It also serialises whoever holds one; the same thread may hold several.
pub struct HoldForks {
    outermost: bool,
    _unbroken: HoldCancellation,
}

pub fn hold_forks() -> HoldForks {
    let _unbroken = hold_cancellation();
    let outermost = !HOLDS.get();
    if outermost {
        take();
        HOLDS.set(true);
    }
    HoldForks { outermost, _unbroken }
}

impl Drop for HoldForks {
    fn drop(&mut self) {
        if self.outermost {
            HOLDS.set(false);
            give_back();
        }
    }
}

/// While it lives, a request to cancel the calling thread waits.
pub struct HoldCancellation {
    before: c_int,
}

// Not in the libc crate; the numbers of glibc and musl.
#[cfg(target_os = "linux")]
unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: &mut c_int) -> c_int;
}
#[cfg(target_os = "linux")]
const DISABLE: c_int = 1;

#[cfg(not(target_os = "linux"))]
fn pthread_setcancelstate(_: c_int, _: &mut c_int) -> c_int {
    0
}
#[cfg(not(target_os = "linux"))]
const DISABLE: c_int = 0;

pub fn hold_cancellation() -> HoldCancellation {
    let mut before = 0;
    pthread_setcancelstate(DISABLE, &mut before);
    HoldCancellation { before }
}

impl Drop for HoldCancellation {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, &mut 0);
    }
}

/// Before a fork, in the thread that forks. If that one is in the loader itself (a constructor of a library forks), it is the one
/// thread that goes on in the child, and nothing needs to wait.
extern "C" fn before() {
    if !HOLDS.get() {
        take();
        FORKS.set(true);
    }
}

extern "C" fn in_parent() {
    if FORKS.replace(false) {
        give_back();
    }
}

/// Atomic stores only, since any lock may be held by a thread that does not exist here.
extern "C" fn in_child() {
    in_parent();
    crate::engine::cpu::team::forget();
    crate::engine::cpu::workspace::forget();
    crate::options::forget_changes();
    crate::observe::counters::reset();
    crate::observe::through::forget();
    crate::observe::report::forget();
}

/// Starts to watch for forks, at the first call rather than at load.
pub fn watch_forks() {
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers are functions of this library, which is never unloaded (nodelete).
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

/// Set when the process begins to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The exit handler has been registered.
static WATCHING_END: AtomicBool = AtomicBool::new(false);

extern "C" fn end() {
    ENDING.store(true, Ordering::Release);
}

/// The destructor of this library, for a process whose first call comes when its exit handlers have run. Where the library is preloaded
/// or linked it runs before those of the other libraries.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".fini_array"))]
static DESTRUCTOR: extern "C" fn() = end;

/// The process ends (`exit`, return from main): destructors of loaded objects have run or will soon. Whoever is about to open one asks
/// this first: glibc runs the initialisers of an object again that is opened once more after its destructors, and of all that it
/// depends on. The exit waits for nobody: it may have been called by a thread that is itself in the loader.
pub fn ending() -> bool {
    if !WATCHING_END.load(Ordering::Acquire) {
        // A lock of the C library that would stay locked in the child for ever.
        let _no_forks = hold_forks();
        if !WATCHING_END.load(Ordering::Acquire) {
            // SAFETY: the handler is a function of this library, which is never unloaded (nodelete).
            unsafe { libc::atexit(end) };
            WATCHING_END.store(true, Ordering::Release);
        }
    }
    ENDING.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_waits_for_whoever_uses_the_loader() {
        watch_forks();
        let _outer = hold_forks();
        let _inner = hold_forks();
        let forked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                before();
                forked.store(true, Ordering::SeqCst);
                in_parent();
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!forked.load(Ordering::SeqCst));
            // A fork of the holder itself does not wait.
            before();
            in_parent();
            drop(_inner);
            assert!(!forked.load(Ordering::SeqCst));
            drop(_outer);
        });
        assert!(forked.load(Ordering::SeqCst));
        drop(hold_forks());
    }
}

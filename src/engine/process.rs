//! What happens to our state when the process forks: the child has no worker threads and starts its counters at zero.

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag and no `Once`: the child of a fork must never wait for a thread that it does not have.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// Runs in the child of a fork: atomic stores only, since any lock may be held by a thread that does not exist here.
extern "C" fn in_child() {
    crate::engine::cpu::team::forget();
    crate::engine::cpu::workspace::forget();
    crate::options::forget_changes();
    crate::observe::counters::reset();
}

/// Starts to watch for forks, at the first call rather than at load.
pub fn watch_forks() {
    if !WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded (nodelete).
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

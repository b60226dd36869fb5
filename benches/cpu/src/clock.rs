//! The two clocks.

/// Seconds of CPU time of the calling thread.
pub fn thread() -> f64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Seconds by the clock on the wall.
pub fn wall() -> f64 {
    read(libc::CLOCK_MONOTONIC)
}

fn read(which: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock writes the record. Both clocks exist on every Linux.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

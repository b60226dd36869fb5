//! Memory of the emulation: bounded by OZ2_WORKSPACE over all calls of the process, and never a reason to abort.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::route::Reason;

/// OZ2_WORKSPACE=auto.
pub const DEFAULT_BYTES: usize = 1 << 30;

/// Bytes that the calls of this process hold.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// After a fork: what other threads held does not exist for this process.
pub fn forget() {
    HELD.store(0, Ordering::Relaxed);
}

/// Bytes taken from the workspace, given back on drop.
#[derive(Debug)]
pub struct Charge(usize);

impl Charge {
    /// Fails where all calls together would hold more than `limit`.
    pub fn take(bytes: usize, limit: usize) -> Result<Self, Reason> {
        let enough = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= limit);
        match HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(Reason::NoMemory),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // A fork in between has set the sum to zero.
        let _ =
            HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(self.0)));
    }
}

/// A vector of `length` times `value`, or a Reason where there is no memory.
pub fn vector<T: Clone>(length: usize, value: T) -> Result<Vec<T>, Reason> {
    #[cfg(test)]
    if faults::fails_now() {
        return Err(Reason::NoMemory);
    }
    let mut out = Vec::new();
    out.try_reserve_exact(length).map_err(|_| Reason::NoMemory)?;
    out.resize(length, value);
    Ok(out)
}

/// Lets the n-th allocation of this thread fail, or the next plan panic, for tests.
#[cfg(test)]
pub mod faults {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
        static LASTING: Cell<bool> = const { Cell::new(false) };
        static PANIC: Cell<bool> = const { Cell::new(false) };
    }

    pub fn plan_panic() {
        PANIC.set(true);
    }

    pub fn panic_if_planned() {
        assert!(!PANIC.replace(false), "expected in this test");
    }

    /// The n-th allocation from now on fails (0: the next), and with `lasting` all after it too.
    pub fn plan(n: Option<usize>, lasting: bool) {
        LEFT.set(n);
        LASTING.set(lasting);
    }

    /// The planned fault has happened.
    pub fn happened() -> bool {
        LEFT.get().is_none() || LEFT.get() == Some(usize::MAX)
    }

    pub fn fails_now() -> bool {
        match LEFT.get() {
            None => false,
            Some(usize::MAX) => LASTING.get(),
            Some(0) => {
                LEFT.set(Some(usize::MAX));
                true
            }
            Some(n) => {
                LEFT.set(Some(n - 1));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_a_reason_and_no_abort() {
        assert_eq!(vector(usize::MAX / 16, 0u64), Err(Reason::NoMemory));
    }
}

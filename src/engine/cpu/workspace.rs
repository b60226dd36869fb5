//! Memory of the emulation: bounded by OZ2_WORKSPACE over all calls of the process, and never a reason to abort.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::route::Reason;

/// OZ2_WORKSPACE=auto.
pub const DEFAULT_BYTES: usize = 1 << 30;

/// Bytes that the calls of this process hold, and the arena that waits for the next call.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// After a fork: what other threads held does not exist for this process.
pub fn forget() {
    HELD.store(0, Ordering::Relaxed);
    // The waiting arena is there in the child too, but no longer counted: the next call makes a new one.
    SPARE.store(std::ptr::null_mut(), Ordering::Relaxed);
}

/// Bytes taken from the workspace, given back on drop.
#[derive(Debug)]
pub struct Charge(usize);

impl Charge {
    /// Fails where all calls together would hold more than `limit`.
    pub fn take(bytes: usize, limit: usize) -> Result<Self, Reason> {
        let enough = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= limit);
        let attempt = || HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough);
        // What waits for a later call is given up for one that is here.
        match attempt().or_else(|_| {
            drop(Arena::spare());
            attempt()
        }) {
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
    let mut out = empty(length)?;
    out.resize(length, value);
    Ok(out)
}

/// A vector with room for `length`, or a Reason where there is no memory.
pub fn empty<T>(length: usize) -> Result<Vec<T>, Reason> {
    #[cfg(test)]
    if faults::fails_now() {
        return Err(Reason::NoMemory);
    }
    let mut out = Vec::new();
    out.try_reserve_exact(length).map_err(|_| Reason::NoMemory)?;
    Ok(out)
}

/// The large memory of a call. One arena waits for the next call instead of going back to the system: to get its pages anew would
/// take as long as a product of some hundred rows and columns.
pub struct Arena {
    start: *mut u8,
    bytes: usize,
    /// No call has used it yet: its pages are still to come.
    pub fresh: bool,
    mapped: (*mut libc::c_void, usize),
    _charge: Charge,
}

// SAFETY: memory that no thread owns.
unsafe impl Send for Arena {}
// SAFETY: what is done with the memory is up to the users of its pieces.
unsafe impl Sync for Arena {}

/// The arena that waits; null without one.
static SPARE: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());

/// Large pages make the many streams of a product cheaper to address.
const LARGE_PAGE: usize = 2 << 20;

/// All pieces start at a multiple of this.
const ALIGNMENT: usize = 64;

impl Arena {
    fn spare() -> Option<Box<Self>> {
        let spare = SPARE.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: a pointer in SPARE came from Box::into_raw and is there once.
        (!spare.is_null()).then(|| unsafe { Box::from_raw(spare) })
    }

    /// Memory of at least `bytes`, with anything in it.
    pub fn take(bytes: usize, limit: usize) -> Result<Box<Self>, Reason> {
        #[cfg(test)]
        if faults::fails_now() {
            return Err(Reason::NoMemory);
        }
        if let Some(spare) = Self::spare().filter(|spare| spare.bytes >= bytes && spare.bytes <= limit) {
            return Ok(spare);
        }
        let charge = Charge::take(bytes, limit)?;
        let large = bytes >= 2 * LARGE_PAGE;
        let alignment = if large { LARGE_PAGE } else { 4096 };
        let length = bytes.checked_add(alignment).ok_or(Reason::NoMemory)?;
        // SAFETY: a new private mapping, and advice about it.
        unsafe {
            let mapping = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if mapping == libc::MAP_FAILED {
                return Err(Reason::NoMemory);
            }
            let start = mapping.cast::<u8>();
            let start = start.add(start.align_offset(alignment));
            if large {
                libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
            }
            Ok(Box::new(Self { start, bytes, fresh: true, mapped: (mapping, length), _charge: charge }))
        }
    }

    /// Keeps the arena for the next call, unless a larger one is kept already.
    pub fn keep(mut self: Box<Self>) {
        self.fresh = false;
        let larger = match Self::spare() {
            Some(spare) if spare.bytes > self.bytes => spare,
            _ => self,
        };
        let own = Box::into_raw(larger);
        let null = std::ptr::null_mut();
        if SPARE.compare_exchange(null, own, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: it was not given away.
            drop(unsafe { Box::from_raw(own) });
        }
    }

    /// Cuts the arena into pieces.
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { arena: self, used: 0 }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody uses it any more.
        unsafe { libc::munmap(self.mapped.0, self.mapped.1) };
    }
}

/// What is left of an arena.
pub struct Pieces<'a> {
    arena: &'a Arena,
    used: usize,
}

/// Bytes that a piece takes from an arena.
pub const fn piece_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

impl Pieces<'_> {
    /// All that is left, if anything is, and how many bytes.
    pub fn rest(self) -> Option<(*mut u8, usize)> {
        let bytes = self.arena.bytes.saturating_sub(self.used);
        // SAFETY: inside of the arena.
        (bytes > 0).then(|| (unsafe { self.arena.start.add(self.used) }, bytes))
    }

    /// The next piece, aligned to cache lines. Panics if the arena was taken too small.
    pub fn next(&mut self, bytes: usize) -> *mut u8 {
        let start = self.used;
        self.used += piece_bytes(bytes);
        assert!(self.used <= self.arena.bytes, "the arena is too small");
        // SAFETY: inside of the arena.
        unsafe { self.arena.start.add(start) }
    }
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
        assert!(Arena::take(usize::MAX - 5, usize::MAX).is_err());
    }

    #[test]
    fn pieces_of_an_arena_are_apart_and_aligned() {
        let arena = Arena::take(5 << 20, 1 << 30).unwrap();
        let mut pieces = arena.pieces();
        let (a, b) = (pieces.next(100), pieces.next(1000));
        assert!(a.addr().is_multiple_of(64) && b.addr() == a.addr() + 128);
        // SAFETY: inside of the pieces.
        unsafe { (a.add(99).write(1), b.add(999).write(2)) };
        arena.keep();
    }
}

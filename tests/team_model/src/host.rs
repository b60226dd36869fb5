//! What the protocol needs, under loom: its locks and threads, and a time that the test decides about.

pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use loom::sync::{Condvar, Mutex, MutexGuard};
use std::cell::RefCell;
use std::sync::PoisonError;

use super::protocol::{State, Team, worker};

pub type Number = loom::thread::ThreadId;

/// How long a worker waits for work.
#[derive(Clone, Copy, PartialEq)]
pub enum Patience {
    /// Its time is over at once.
    None,
    UntilTheEnd,
}

loom::lazy_static! {
    static ref OVER: AtomicBool = AtomicBool::new(false);
    static ref IMPATIENT: AtomicBool = AtomicBool::new(false);
    static ref ROOM: AtomicUsize = AtomicUsize::new(0);
}

thread_local! {
    /// All threads of a model run in one thread of the system, in turns.
    static WORKERS: RefCell<Vec<loom::thread::JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
}

pub fn start(patience: Patience, most_workers: usize) {
    IMPATIENT.store(patience == Patience::None, Ordering::SeqCst);
    ROOM.store(most_workers, Ordering::SeqCst);
}

/// The workers wait no longer, and must all end.
pub fn end(team: &Team) {
    {
        let _state = team.lock();
        OVER.store(true, Ordering::SeqCst);
        team.wake.notify_all();
    }
    for worker in WORKERS.take() {
        worker.join().expect("no panic");
    }
    let state = team.lock();
    assert!(state.workers == 0 && state.asleep == 0 && state.threads.is_empty());
}

pub fn begin() {}

pub fn own_number() -> Number {
    loom::thread::current().id()
}

pub fn keep_away(_: &[Number]) {}

pub fn start_worker(team: &'static Team) -> bool {
    let room = ROOM.load(Ordering::SeqCst);
    if room > 0 {
        ROOM.store(room - 1, Ordering::SeqCst);
        let new = loom::thread::spawn(move || worker(team));
        WORKERS.with_borrow_mut(|workers| workers.push(new));
    }
    room > 0
}

/// One look.
pub fn look(found: &dyn Fn() -> bool) {
    found();
}

pub fn linger<'a>(team: &'a Team, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
    if IMPATIENT.load(Ordering::SeqCst) {
        drop(state);
        return (team.lock(), true);
    }
    if OVER.load(Ordering::SeqCst) {
        return (state, true);
    }
    let state = team.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
    let over = OVER.load(Ordering::SeqCst);
    (state, over)
}

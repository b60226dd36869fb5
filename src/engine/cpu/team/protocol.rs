//! How the threads of a team agree on who does what: the part without the system, so that `tests/team_model` can go through all
//! orders in which it may happen. What it needs of the system is in [`super::host`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use super::host::{self, AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Number, Ordering};

/// Shared numbered tasks of one run.
pub struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    pub panicked: AtomicBool,
}

impl<'a> Job<'a> {
    pub fn new(task: &'a (dyn Fn(usize) + Sync), count: usize) -> Self {
        Self { task, count, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) }
    }

    /// Takes tasks until none is left.
    pub fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| (self.task)(number))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
                self.next.store(self.count, Ordering::Relaxed); // the rest is of no use
            }
        }
    }
}

#[derive(Default)]
pub struct State {
    /// The job of the run in progress. The lifetime is a lie that `run` keeps harmless: it takes the job away and waits for
    /// every worker that holds it before it returns.
    job: Option<&'static Job<'static>>,
    /// How many more workers may join the job.
    seats: usize,
    /// Workers that hold the job.
    working: usize,
    /// Threads that exist.
    pub workers: usize,
    /// Their numbers for the system.
    pub threads: Vec<Number>,
    /// Workers that sleep, or are about to.
    pub asleep: usize,
}

/// The locks are those of the standard library because all of their state is in this object, which the child of a fork leaves
/// behind. Those of parking_lot share one table in the process, which a fork breaks: the child finds parked threads in it
/// that it does not have (seen as crashes of the child).
#[derive(Default)]
pub struct Team {
    state: Mutex<State>,
    pub wake: Condvar,
    finished: Condvar,
    /// A run is in progress.
    busy: AtomicBool,
    /// Number of runs so far: idle workers look at it for a while before they sleep.
    runs: AtomicUsize,
}

impl Team {
    /// Nothing panics while it holds the lock.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits without the lock.
fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// What a thread of the team does until it has been idle for long.
pub fn worker(team: &'static Team) {
    host::begin();
    let mut state = team.lock();
    if state.threads.try_reserve(1).is_ok() {
        state.threads.push(host::own_number());
    }
    loop {
        if let Some(job) = state.job.filter(|_| state.seats > 0) {
            state.seats -= 1;
            state.working += 1;
            drop(state);
            job.work();
            state = team.lock();
            state.working -= 1;
            if state.working == 0 {
                team.finished.notify_one();
            }
        } else {
            let runs = team.runs.load(Ordering::Relaxed);
            drop(state);
            host::look(&|| team.runs.load(Ordering::Relaxed) != runs);
            state = team.lock();
            if team.runs.load(Ordering::Relaxed) == runs {
                state.asleep += 1;
                let idle;
                (state, idle) = host::linger(team, state);
                state.asleep -= 1;
                // With the lock: whoever comes next counts without this thread, and starts another.
                if idle && team.runs.load(Ordering::Relaxed) == runs {
                    state.workers -= 1;
                    let own = host::own_number();
                    state.threads.retain(|&thread| thread != own);
                    return;
                }
            }
        }
    }
}

impl Team {
    /// Does the job with `helpers` workers beside the calling thread, or without any while the team has another job.
    pub fn share(&'static self, job: &Job, helpers: usize) {
        if self.busy.swap(true, Ordering::Acquire) {
            job.work();
        } else {
            self.run(job, helpers);
            self.busy.store(false, Ordering::Release);
        }
    }

    /// Runs the job with `helpers` workers beside the calling thread, with fewer where threads cannot be made.
    fn run(&'static self, job: &Job, helpers: usize) {
        {
            let mut state = self.lock();
            while state.workers < helpers {
                if !host::start_worker(self) {
                    break;
                }
                state.workers += 1;
            }
            // SAFETY: the reference leaves this state, and every worker has dropped it, before this function returns.
            state.job = Some(unsafe { std::mem::transmute::<&Job, &'static Job<'static>>(job) });
            state.seats = helpers;
            self.runs.fetch_add(1, Ordering::Relaxed);
            if state.asleep > 0 {
                host::keep_away(&state.threads);
                self.wake.notify_all();
            }
        }
        job.work(); // never unwinds
        let mut state = self.lock();
        state.job = None;
        while state.working > 0 {
            state = wait(&self.finished, state);
        }
    }
}

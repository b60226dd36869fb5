//! A team of threads that share numbered tasks. It starts at the first large call, survives a fork (the child makes a new
//! one), and serves one call at a time: a second call that comes meanwhile runs in its own thread alone. Threads without work end
//! after a while.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fpenv;
use crate::observe::log::{self, Kind, Level};

/// A task panicked; what the others did is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Panicked;

/// Enough for the tiles that a task keeps on its stack, several times over.
const STACK_BYTES: usize = 512 << 10;

/// Shared numbered tasks of one run.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
}

impl Job<'_> {
    /// Takes tasks until none is left.
    fn work(&self) {
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
struct State {
    /// The job of the run in progress. The lifetime is a lie that `run` keeps harmless: it takes the job away and waits for
    /// every worker that holds it before it returns.
    job: Option<&'static Job<'static>>,
    /// How many more workers may join the job.
    seats: usize,
    /// Workers that hold the job.
    working: usize,
    /// Threads that exist.
    workers: usize,
    /// Their numbers for the system.
    threads: Vec<libc::pid_t>,
    /// Workers that sleep, or are about to.
    asleep: usize,
}

/// The locks are those of the standard library because all of their state is in this object, which the child of a fork leaves
/// behind. Those of parking_lot share one table in the process, which a fork breaks: the child finds parked threads in it
/// that it does not have (seen as crashes of the child).
#[derive(Default)]
struct Team {
    state: Mutex<State>,
    wake: Condvar,
    finished: Condvar,
    /// A run is in progress.
    busy: AtomicBool,
    /// Number of runs so far: idle workers look at it for a while before they sleep.
    runs: AtomicUsize,
}

/// How long an idle worker looks for the next run before it sleeps. Waking takes longer than a small product, and programs
/// that multiply small matrices multiply many.
const LOOK: Duration = Duration::from_micros(100);

/// A worker that has nothing to do for so long ends. A process ends with the last of its threads where that of main has left by
/// `pthread_exit`, and a worker that stayed would keep it for ever.
const LINGER: Duration = Duration::from_secs(2);

/// The team of this process; null before the first use and in the child of a fork. Never freed: its threads hold it.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

/// After a fork: the threads of the old team do not exist here, and its lock may be held for ever.
pub fn forget() {
    TEAM.store(std::ptr::null_mut(), Ordering::Relaxed);
}

fn team() -> &'static Team {
    let existing = TEAM.load(Ordering::Acquire);
    if existing.is_null() {
        crate::engine::process::watch_forks();
        let new = Box::into_raw(Box::<Team>::default());
        match TEAM.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `new` came from Box::into_raw above and is never freed.
            Ok(_) => return unsafe { &*new },
            // SAFETY: nobody else has seen `new`.
            Err(_) => drop(unsafe { Box::from_raw(new) }),
        }
    }
    // SAFETY: not null any more, and a team is never freed.
    unsafe { &*TEAM.load(Ordering::Acquire) }
}

impl Team {
    /// Nothing panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits without the lock.
fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits without the lock, at most for the time; true if that is over.
fn wait_for<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> (MutexGuard<'a, State>, bool) {
    let (state, result) = condition.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
    (state, result.timed_out())
}

/// Keeps threads away from the processor of the calling thread, which is busy with its own part: the system likes to wake a thread
/// on the processor of its waker, where it would wait for milliseconds. Our threads alone are moved, within what the caller may use.
#[cfg(target_os = "linux")]
fn keep_away(threads: &[libc::pid_t]) {
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
fn keep_away(_: &[libc::pid_t]) {}

/// The number of this thread for the system.
fn own_number() -> libc::pid_t {
    #[cfg(target_os = "linux")]
    // SAFETY: takes nothing and always succeeds.
    unsafe {
        libc::gettid()
    }
    #[cfg(not(target_os = "linux"))]
    0
}

fn worker(team: &'static Team) {
    fpenv::clean_thread();
    let mut state = team.lock();
    if state.threads.try_reserve(1).is_ok() {
        state.threads.push(own_number());
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
            let clock = Instant::now();
            while team.runs.load(Ordering::Relaxed) == runs && clock.elapsed() < LOOK {
                std::hint::spin_loop();
            }
            state = team.lock();
            if team.runs.load(Ordering::Relaxed) == runs {
                state.asleep += 1;
                let idle;
                (state, idle) = wait_for(&team.wake, state, LINGER);
                state.asleep -= 1;
                // With the lock: whoever comes next counts without this thread, and starts another.
                if idle && team.runs.load(Ordering::Relaxed) == runs {
                    state.workers -= 1;
                    let own = own_number();
                    state.threads.retain(|&thread| thread != own);
                    return;
                }
            }
        }
    }
}

/// Starts a worker that gets no signals: those belong to the threads of the host program.
///
/// By the system's own function: the threads of the standard library set up more for themselves when they run, and end the process
/// if there is no memory for it.
fn start_worker(team: &'static Team) -> std::io::Result<()> {
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
    if status == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(status)) }
}

impl Team {
    /// Runs the job with `helpers` workers beside the calling thread, with fewer where threads cannot be made.
    fn run(&'static self, job: &Job, helpers: usize) {
        {
            let mut state = self.lock();
            while state.workers < helpers {
                if let Err(error) = start_worker(self) {
                    log::once(
                        Kind::Threads,
                        Level::Warn,
                        &format!("cannot start a thread: {error}; using fewer"),
                    );
                    break;
                }
                state.workers += 1;
            }
            // SAFETY: the reference leaves this state, and every worker has dropped it, before this function returns.
            state.job = Some(unsafe { std::mem::transmute::<&Job, &'static Job<'static>>(job) });
            state.seats = helpers;
            self.runs.fetch_add(1, Ordering::Relaxed);
            if state.asleep > 0 {
                keep_away(&state.threads);
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

/// Runs task(0), ..., task(count - 1), each once, on at most `threads` threads including this one.
pub fn run(threads: usize, count: usize, task: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
    let job = Job { task, count, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) };
    let helpers = threads.min(count).saturating_sub(1);
    if helpers == 0 {
        job.work();
    } else {
        let team = team();
        if team.busy.swap(true, Ordering::Acquire) {
            job.work();
        } else {
            team.run(&job, helpers);
            team.busy.store(false, Ordering::Release);
        }
    }
    if job.panicked.load(Ordering::Relaxed) { Err(Panicked) } else { Ok(()) }
}

/// Data that tasks share, each using another part of it.
pub struct Shared<'a, T> {
    start: *mut T,
    length: usize,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: by the contract of `chunk`, the only way to the data.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), length: data.len(), data: PhantomData }
    }

    /// Elements first.., at most `count`, fewer at the end of the data.
    ///
    /// # Safety
    ///
    /// `first` lies inside the data, and nobody else uses these elements while the result lives.
    #[expect(clippy::mut_from_ref, reason = "the parts are apart, by the contract")]
    pub unsafe fn chunk(&self, first: usize, count: usize) -> &mut [T] {
        // SAFETY: by the contract of this function.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), count.min(self.length - first)) }
    }
}

/// Runs task(i, chunk i) for all chunks of `chunk` elements of `data` (the last may be shorter), as [`run`] does.
pub fn for_each_chunk<T: Send>(
    threads: usize,
    data: &mut [T],
    chunk: usize,
    task: &(dyn Fn(usize, &mut [T]) + Sync),
) -> Result<(), Panicked> {
    let count = data.len().div_ceil(chunk);
    let shared = Shared::new(data);
    run(threads, count, &|i| {
        // SAFETY: no other task has the number i.
        task(i, unsafe { shared.chunk(i * chunk, chunk) });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 3, 7, 20] {
            for count in [0, 1, 2, 19, 500] {
                let hits: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
                run(threads, count, &|i| {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
                assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn chunks_cover_the_data() {
        let mut data = vec![0usize; 1003];
        for_each_chunk(3, &mut data, 10, &|i, chunk| chunk.iter_mut().for_each(|x| *x += i + 1)).unwrap();
        assert!(data.iter().enumerate().all(|(at, &x)| x == at / 10 + 1));
    }

    #[test]
    fn a_panic_is_reported_and_the_team_goes_on() {
        for threads in [1, 4] {
            let outcome = run(threads, 50, &|i| assert!(i != 20, "expected in this test"));
            assert_eq!(outcome, Err(Panicked));
            assert_eq!(run(threads, 50, &|_| ()), Ok(()));
        }
    }

    #[test]
    fn calls_at_the_same_time_do_not_wait_for_each_other() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let sum = AtomicUsize::new(0);
                        run(3, 20, &|i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        })
                        .unwrap();
                        assert_eq!(sum.load(Ordering::Relaxed), 190);
                    }
                });
            }
        });
    }

    /// A worker that was asleep may run anywhere but where the caller was when it woke it.
    #[cfg(target_os = "linux")]
    #[test]
    fn sleeping_workers_wake_elsewhere() {
        let allowed = || {
            // SAFETY: the set is as large as its size says.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
                libc::CPU_COUNT(&set)
            }
        };
        let here = allowed();
        if here < 2 {
            println!("one processor: nothing to test");
            return;
        }
        let (caller, seen) = (own_number(), AtomicU32::new(0));
        // Other tests may have the team: some tries.
        for _ in 0..200 {
            std::thread::sleep(10 * LOOK);
            run(2, 2, &|_| {
                if own_number() != caller {
                    seen.store(allowed() as u32, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            })
            .unwrap();
            if seen.load(Ordering::Relaxed) == here as u32 - 1 {
                return;
            }
        }
        panic!("a worker may run on {} of {here} processors", seen.load(Ordering::Relaxed));
    }

    /// Workers that nobody needs end, are no longer counted, and the next run starts others.
    #[cfg(target_os = "linux")]
    #[test]
    fn idle_workers_end() {
        // A team of its own: that of the process is used by other tests.
        let team: &'static Team = Box::leak(Box::default());
        let run = || {
            let done = AtomicUsize::new(0);
            let task = |_| {
                done.fetch_add(1, Ordering::Relaxed);
            };
            let job =
                Job { task: &task, count: 50, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) };
            team.run(&job, 3);
            assert_eq!(done.load(Ordering::Relaxed), 50);
        };
        let until = |wanted: fn(&State) -> bool| {
            let clock = Instant::now();
            while !wanted(&team.lock()) {
                assert!(clock.elapsed() < 20 * LINGER, "{} workers", team.lock().workers);
                std::thread::sleep(LOOK);
            }
        };
        for _ in 0..2 {
            run();
            until(|state| state.threads.len() == 3);
            assert_eq!(team.lock().workers, 3);
            until(|state| state.workers == 0);
            assert!(team.lock().threads.is_empty() && team.lock().asleep == 0);
        }
    }

    #[test]
    fn a_task_may_use_the_team_again() {
        let sum = AtomicUsize::new(0);
        run(3, 4, &|_| {
            run(3, 4, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            })
            .unwrap();
        })
        .unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 24);
    }
}

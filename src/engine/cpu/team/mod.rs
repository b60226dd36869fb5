//! A team of threads that share numbered tasks. It starts at the first large call, survives a fork (the child makes a new
//! one), and serves one call at a time: a second call that comes meanwhile runs in its own thread alone. Threads without work end
//! after a while.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

mod host;
mod protocol;

use protocol::{Job, Team};

/// A task panicked; what the others did is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Panicked;

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

/// Runs task(0), ..., task(count - 1), each once, on at most `threads` threads including this one.
pub fn run(threads: usize, count: usize, task: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
    let job = Job::new(task, count);
    let helpers = threads.min(count).saturating_sub(1);
    if helpers == 0 {
        job.work();
    } else {
        team().share(&job, helpers);
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
    use std::sync::atomic::{AtomicU32, AtomicUsize};
    use std::time::Instant;

    use super::host::{LINGER, LOOK, own_number};
    use super::protocol::State;
    use super::*;

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
            let job = Job::new(&task, 50);
            team.share(&job, 3);
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

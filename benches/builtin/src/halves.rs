//! One product as two, by halving C along its longer side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::contenders::{Gemm, Run};

/// Below this many multiply-adds a second thread costs more than it saves.
const WORK_FOR_NEW_THREAD: usize = 1 << 22;
const WORK_FOR_KEPT_THREAD: usize = 1 << 19;

/// Cuts C at a multiple of 8.
fn halves(g: &Gemm) -> (Gemm, Gemm) {
    let (mut first, mut second) = (*g, *g);
    if g.n >= g.m {
        let cut = (g.n / 2).next_multiple_of(8).min(g.n);
        first.n = cut;
        second.n = g.n - cut;
        second.b = g.b.wrapping_offset(cut as isize * g.csb);
        second.c = g.c.wrapping_offset(cut as isize * g.csc);
    } else {
        let cut = (g.m / 2).next_multiple_of(8).min(g.m);
        first.m = cut;
        second.m = g.m - cut;
        second.a = g.a.wrapping_offset(cut as isize * g.rsa);
        second.c = g.c.wrapping_offset(cut as isize * g.rsc);
    }
    (first, second)
}

/// Starts a thread for the second half.
///
/// # Safety
/// As for `run`.
pub unsafe fn with_new_thread(run: Run, g: &Gemm) {
    if g.m * g.n * g.k < WORK_FOR_NEW_THREAD {
        return unsafe { run(g) };
    }
    let (first, second) = halves(g);
    thread::scope(|scope| {
        scope.spawn(move || {
            let second = second;
            unsafe { run(&second) }
        });
        unsafe { run(&first) };
    });
}

/// A thread that is kept for the second halves. It looks for work for a while
/// before it sleeps.
pub struct Helper {
    /// Address of the job, or one of the values below.
    slot: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

const IDLE: usize = 0;
const STOP: usize = 1;
const SPIN: Duration = Duration::from_micros(200);

struct Job(Run, Gemm);

impl Helper {
    pub fn new() -> Self {
        let slot = Arc::new(AtomicUsize::new(IDLE));
        let theirs = Arc::clone(&slot);
        let thread = Some(thread::spawn(move || serve(&theirs)));
        Self { slot, thread }
    }

    /// # Safety
    /// As for `run`.
    pub unsafe fn run(&self, run: Run, g: &Gemm) {
        if g.m * g.n * g.k < WORK_FOR_KEPT_THREAD {
            return unsafe { run(g) };
        }
        let (first, second) = halves(g);
        let job = Job(run, second);
        self.send((&raw const job).expose_provenance());
        unsafe { run(&first) };
        while self.slot.load(Ordering::Acquire) != IDLE {
            std::hint::spin_loop();
        }
    }

    fn send(&self, value: usize) {
        self.slot.store(value, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

fn serve(slot: &AtomicUsize) {
    let mut since = Instant::now();
    loop {
        match slot.load(Ordering::Acquire) {
            STOP => return,
            IDLE if since.elapsed() < SPIN => std::hint::spin_loop(),
            IDLE => thread::park(),
            job => {
                // Lives until the slot is idle again.
                let Job(run, g) = unsafe { &*std::ptr::with_exposed_provenance::<Job>(job) };
                unsafe { run(g) };
                slot.store(IDLE, Ordering::Release);
                since = Instant::now();
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.send(STOP);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

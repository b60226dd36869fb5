//! The protocol of the thread team (`src/engine/cpu/team/protocol.rs`, the file itself) under loom, which goes through the orders in
//! which its threads may take turns, up to a number of preemptions, and through what relaxed loads may see.
//!
//! What only costs time if it is wrong, such as a worker that is not woken, is not seen here.
#![cfg(test)]

mod host;
#[path = "../../../src/engine/cpu/team/protocol.rs"]
mod protocol;

use host::Patience;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use protocol::{Job, Team};

/// A job whose tasks count themselves; none may run after `share` has returned, when its data are gone.
fn share(team: &'static Team, count: usize, helpers: usize) {
    let (alive, done) = (AtomicBool::new(true), AtomicUsize::new(0));
    let task = |_| {
        assert!(alive.load(Ordering::SeqCst), "a task after the end of its job");
        done.fetch_add(1, Ordering::SeqCst);
    };
    let job = Job::new(&task, count);
    team.share(&job, helpers);
    alive.store(false, Ordering::SeqCst);
    assert_eq!(done.load(Ordering::SeqCst), count);
    assert!(!job.panicked.load(Ordering::SeqCst));
}

/// In all orders with at most so many preemptions; loom fails for a deadlock, and where a thread never ends.
fn check(preemptions: usize, patience: Patience, most_workers: usize, calls: fn(&'static Team)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let team: &'static Team = Box::leak(Box::default());
        host::start(patience, most_workers);
        calls(team);
        host::end(team);
    });
}

#[test]
fn jobs_one_after_the_other() {
    check(4, Patience::UntilTheEnd, 9, |team| (0..2).for_each(|_| share(team, 2, 1)));
}

#[test]
fn two_workers() {
    check(3, Patience::UntilTheEnd, 9, |team| (0..2).for_each(|_| share(team, 3, 2)));
}

#[test]
fn workers_that_end_while_a_job_comes() {
    check(4, Patience::None, 9, |team| (0..2).for_each(|_| share(team, 2, 1)));
    check(3, Patience::None, 9, |team| (0..2).for_each(|_| share(team, 2, 2)));
}

#[test]
fn fewer_workers_than_wanted() {
    check(4, Patience::UntilTheEnd, 0, |team| share(team, 2, 2));
    check(3, Patience::UntilTheEnd, 1, |team| (0..2).for_each(|_| share(team, 3, 2)));
}

#[test]
fn two_callers() {
    check(3, Patience::UntilTheEnd, 9, |team| {
        let other = loom::thread::spawn(move || share(team, 2, 1));
        share(team, 2, 1);
        other.join().expect("no panic");
    });
}

#[test]
fn a_task_that_panics_is_told_of() {
    check(3, Patience::UntilTheEnd, 9, |team| {
        let ran = Arc::new(AtomicUsize::new(0));
        let task = |number| {
            ran.fetch_add(1, Ordering::SeqCst);
            // Without a message: the hook would print it in every order.
            if number == 0 {
                std::panic::resume_unwind(Box::new(()));
            }
        };
        let job = Job::new(&task, 2);
        team.share(&job, 1);
        assert!(job.panicked.load(Ordering::SeqCst) && ran.load(Ordering::SeqCst) >= 1);
        share(team, 1, 1);
    });
}

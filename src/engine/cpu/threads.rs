//! How many threads a call may use.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::native::find;

/// OZ2_NUM_THREADS=auto: what the usual variables say, else what the affinity mask and the cgroup allow. Found out once:
/// asking the system for the cgroup reads files.
pub fn automatic() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];
    let asked = names.iter().find_map(|name| from_variable(&std::env::var(name).ok()?));
    let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    KNOWN.store(threads, Ordering::Relaxed);
    threads
}

/// The first number of a list such as OMP_NUM_THREADS=4,2.
fn from_variable(value: &str) -> Option<usize> {
    value.split(',').next()?.trim().parse().ok().filter(|&n| n >= 1)
}

/// This thread is inside an OpenMP parallel region, where every core already has a thread.
pub fn in_parallel_region() -> bool {
    static OMP_IN_PARALLEL: find::Symbol = find::Symbol::new(c"omp_in_parallel");
    OMP_IN_PARALLEL.address().is_some_and(|address| {
        // SAFETY: the function of this name takes nothing and returns an int in every OpenMP runtime.
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
        function() != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_openmp_reads_them() {
        assert_eq!(from_variable("4"), Some(4));
        assert_eq!(from_variable(" 3,2"), Some(3));
        assert_eq!(from_variable("0"), None);
        assert_eq!(from_variable("many"), None);
        assert!(automatic() >= 1);
    }
}

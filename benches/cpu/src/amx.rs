//! The state of the AMX unit, by a probe of 40 microseconds.
//!
//! On shared machines the tile unit falls for milliseconds or minutes to about a quarter of its speed, while the rest of the
//! CPU hardly changes. An emulation by AMX then loses although nothing is wrong with it. So every measurement stands between
//! two probes, and every figure says in which state it was taken.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock;

/// TOPS (10^12 8-bit operations a second, a multiplication and an addition being two) from which the unit counts as fast.
pub const FAST: f64 = 3.0;
/// Below this it counts as slow.
pub const SLOW: f64 = 2.2;

/// How the tile unit was while something was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Fast before and after.
    Fast,
    /// Slow before and after.
    Slow,
    /// Neither: it changed, or it was between.
    Mixed,
    /// The machine has no AMX.
    None,
}

impl State {
    pub const ALL: [State; 4] = [State::Fast, State::Slow, State::Mixed, State::None];

    /// The state by the two probes around a measurement.
    pub fn of(before: Option<f64>, after: Option<f64>) -> State {
        match (before, after) {
            (Some(x), Some(y)) if x.min(y) >= FAST => State::Fast,
            (Some(x), Some(y)) if x.max(y) < SLOW => State::Slow,
            (None, None) => State::None,
            _ => State::Mixed,
        }
    }

    /// Of two measurements that are compared.
    pub fn of_pair(self, other: State) -> State {
        if self == other { self } else { State::Mixed }
    }

    pub fn name(self) -> &'static str {
        match self {
            State::Fast => "fast",
            State::Slow => "slow",
            State::Mixed => "mixed",
            State::None => "none",
        }
    }
}

/// Permission to use the tile unit, so that it can be probed.
#[derive(Clone, Copy)]
pub struct Probe {
    usable: bool,
    threads: usize,
}

impl Probe {
    /// For measurements with that many threads. Must come before other threads start: they inherit the permission.
    pub fn new(threads: usize) -> Self {
        Self { usable: tiles::permission(), threads }
    }

    /// TOPS of the slowest of the threads, all at work at once; None without AMX. In thread CPU time, so that other programs
    /// on the same CPU do not count.
    pub fn tops(&self) -> Option<f64> {
        if !self.usable {
            return None;
        }
        if self.threads == 1 {
            return Some(probe());
        }
        let ready = AtomicUsize::new(0);
        let together = || {
            ready.fetch_add(1, Ordering::AcqRel);
            while ready.load(Ordering::Acquire) < self.threads {
                std::thread::yield_now();
            }
            probe()
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(together)).collect();
            let own = together();
            Some(others.into_iter().map(|other| other.join().unwrap_or(0.0)).fold(own, f64::min))
        })
    }
}

/// Steps of a probe: 40 microseconds in the fast state.
const STEPS: usize = 1500;
/// A step is four products of tiles, 16 x 16 x 64.
const OPERATIONS: f64 = STEPS as f64 * 4.0 * 2.0 * (16 * 16 * 64) as f64;

fn probe() -> f64 {
    tiles::with(|run| {
        // The first use in a thread traps into the kernel, which makes room for the registers.
        run(1);
        let once = || {
            let start = clock::thread();
            run(STEPS);
            1e-12 * OPERATIONS / (clock::thread() - start)
        };
        let tops = once();
        // A single interrupt spoils a probe; the slow state spoils the next one too.
        if tops >= FAST { tops } else { tops.max(once()) }
    })
}

#[cfg(target_arch = "x86_64")]
mod tiles {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    /// Asks the kernel for the tile registers; false where the CPU or the kernel has none.
    pub fn permission() -> bool {
        const REQUEST: libc::c_int = 0x1023; // ARCH_REQ_XCOMP_PERM
        const TILE_DATA: libc::c_int = 18;
        const AMX_TILE: u32 = 1 << 24;
        const AMX_INT8: u32 = 1 << 25;
        let wanted = AMX_TILE | AMX_INT8;
        let has = __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & wanted == wanted;
        // SAFETY: the call changes only what this process may use.
        has && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) } == 0
    }

    #[repr(align(64))]
    struct Aligned<const N: usize>([u8; N]);

    /// Hands out the loop, with the tiles set up for this thread.
    pub fn with<T>(work: impl FnOnce(fn(usize)) -> T) -> T {
        // Palette 1; eight tiles of 16 rows with 64 bytes each.
        let mut shape = Aligned([0u8; 64]);
        shape.0[0] = 1;
        for tile in 0..8 {
            shape.0[16 + 2 * tile] = 64;
            shape.0[48 + tile] = 16;
        }
        // SAFETY: permission() was true; the record has 64 bytes. No Rust code uses tile registers.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shape, options(nostack)) };
        let result = work(steps);
        // SAFETY: as above. Otherwise every switch of this thread would save 8 KB more.
        unsafe { asm!("tilerelease", options(nostack)) };
        result
    }

    /// 2 x 2 tiles with the loads first, from data that stay in the first cache: what a good kernel does.
    fn steps(count: usize) {
        static DATA: Aligned<4096> = Aligned([0; 4096]);
        // SAFETY: called only by with(), so the tiles are set up; four tiles of 1024 bytes are read.
        unsafe {
            asm!(
                "2:",
                "tileloaddt1 tmm4, [{a} + {stride}]",
                "tileloaddt1 tmm5, [{a} + {stride} + 1024]",
                "tileloaddt1 tmm6, [{b} + {stride}]",
                "tileloaddt1 tmm7, [{b} + {stride} + 1024]",
                "tdpbssd tmm0, tmm4, tmm6",
                "tdpbssd tmm1, tmm4, tmm7",
                "tdpbssd tmm2, tmm5, tmm6",
                "tdpbssd tmm3, tmm5, tmm7",
                "dec {count}",
                "jnz 2b",
                a = in(reg) DATA.0.as_ptr(),
                b = in(reg) DATA.0.as_ptr().add(2048),
                stride = in(reg) 64usize,
                count = inout(reg) count => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tiles {
    pub fn permission() -> bool {
        false
    }

    pub fn with<T>(work: impl FnOnce(fn(usize)) -> T) -> T {
        work(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_needs_both_probes() {
        assert_eq!(State::of(Some(3.0), Some(5.0)), State::Fast);
        assert_eq!(State::of(Some(1.0), Some(2.1)), State::Slow);
        assert_eq!(State::of(Some(1.0), Some(5.0)), State::Mixed);
        assert_eq!(State::of(Some(2.5), Some(2.5)), State::Mixed);
        assert_eq!(State::of(None, None), State::None);
        assert_eq!(State::Fast.of_pair(State::Slow), State::Mixed);
        assert_eq!(State::Slow.of_pair(State::Slow), State::Slow);
    }

    #[test]
    fn a_probe_gives_a_rate_or_nothing() {
        for threads in [1, 2] {
            let tops = Probe::new(threads).tops();
            assert!(tops.is_none_or(|tops| tops > 0.0 && tops < 100.0), "{tops:?}");
        }
    }
}

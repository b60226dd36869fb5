//! The speed of the tile unit, by a probe of some 40 microseconds.
//!
//! On shared machines the unit falls for milliseconds or minutes to a quarter of its speed, while the rest of the CPU hardly
//! changes: an emulation by AMX then loses although nothing is wrong with it. So the time model asks here first.
//!
//! All of it is in a few atomics. Whoever moves the time of the next probe on is the one who probes, and all others go on with
//! the last answer: there is no lock that the child of a fork could find locked.

use std::sync::atomic::{AtomicU64, Ordering};

/// TOPS (10^12 operations on bytes a second, a multiplication and an addition being two) from which the unit counts as fast:
/// measured were 4.6 to 6.7 in its fast and 1.0 to 1.3 in its slow state.
pub const FAST: f64 = 3.0;

/// Nanoseconds from one probe to the next while calls come.
const WHEN_FAST: u64 = 300_000_000;
/// Sooner where it is slow, so that it is used again as soon as it recovers.
const WHEN_SLOW: u64 = 100_000_000;
/// As soon after a probe another may be asked for by [`doubt`].
const WHEN_DOUBTED: u64 = 10_000_000;
/// A low reading is taken again so many times, and the best one counts: an interrupt spoils one, and the first use of the unit
/// finds it asleep.
const AGAIN: usize = 2;

/// When the last probe was made and the next one is due, in nanoseconds of the monotonic clock.
static LAST: AtomicU64 = AtomicU64::new(0);
static DUE: AtomicU64 = AtomicU64::new(0);
/// The last reading as the bits of a double; 0: none yet.
static READING: AtomicU64 = AtomicU64::new(0);
/// What a test wants to be read; 0: nothing.
static FORCED: AtomicU64 = AtomicU64::new(0);

fn reading_in(place: &AtomicU64) -> Option<f64> {
    let bits = place.load(Ordering::Relaxed);
    (bits != 0).then(|| f64::from_bits(bits))
}

/// The last reading in TOPS; None before the first.
pub fn last() -> Option<f64> {
    reading_in(&FORCED).or_else(|| reading_in(&READING))
}

/// For tests: every reading from now on, or again what the unit does.
#[doc(hidden)]
pub fn force(tops: Option<f64>) {
    FORCED.store(tops.map_or(0, f64::to_bits), Ordering::Relaxed);
}

/// Probes if a probe is due and no other thread makes it; true if [`last`] may have changed. The machine must have AMX.
pub fn refresh() -> bool {
    if reading_in(&FORCED).is_some() {
        return false;
    }
    let (now, due) = (now(), DUE.load(Ordering::Relaxed));
    // The new time is far enough for the probe to be over by then.
    let mine = || DUE.compare_exchange(due, now + WHEN_SLOW, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if now < due || !mine() {
        return false;
    }
    let mut best = probe();
    for _ in 0..AGAIN {
        if best >= FAST {
            break;
        }
        best = best.max(probe());
    }
    READING.store(best.to_bits(), Ordering::Relaxed);
    LAST.store(now, Ordering::Relaxed);
    if best >= FAST {
        DUE.store(now + WHEN_FAST, Ordering::Relaxed);
    }
    tracing::debug!(tops = best, "tile unit");
    true
}

/// A call took much longer than it should have: the next probe is due sooner.
pub fn doubt() {
    DUE.fetch_min(LAST.load(Ordering::Relaxed) + WHEN_DOUBTED, Ordering::Relaxed);
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the record that the pointer names.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
fn probe() -> f64 {
    tiles::probe()
}

#[cfg(not(target_arch = "x86_64"))]
fn probe() -> f64 {
    0.0
}

#[cfg(target_arch = "x86_64")]
mod tiles {
    use std::arch::asm;

    use super::now;

    /// Steps in all, in how many pieces, and the nanoseconds after which no further piece starts.
    const STEPS: usize = 1500;
    const PIECES: usize = 5;
    const LONG_ENOUGH: u64 = 60_000;
    /// What wakes the unit up, before the clock starts.
    const FIRST_STEPS: usize = 50;

    /// Eight tiles of 16 rows of 64 bytes, as in `kernels::amx`.
    #[repr(C, align(64))]
    struct Configuration([u8; 64]);

    static CONFIGURATION: Configuration = {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
            tile += 1;
        }
        Configuration(bytes)
    };

    #[repr(C, align(4096))]
    struct Data([u8; 4096]);

    /// TOPS of the calling thread. The processor must have AMX and the process the permission.
    pub fn probe() -> f64 {
        static DATA: Data = Data([1; 4096]);
        // SAFETY: by the contract of this function. The compiler uses no tiles, and nothing else of ours runs in between.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly)) };
        let data = (&raw const DATA).cast();
        // SAFETY: as above; the data are four tiles.
        unsafe { multiply(data, FIRST_STEPS) };
        let start = now();
        let (mut steps, mut took) = (0, 0);
        while steps < STEPS && took < LONG_ENOUGH {
            // SAFETY: as above.
            unsafe { multiply(data, STEPS / PIECES) };
            steps += STEPS / PIECES;
            took = now() - start;
        }
        // SAFETY: as above.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
        // Four products a step, of 16 x 16 x 64 multiplications and additions.
        let operations = (steps * 4 * 2 * 16 * 16 * 64) as f64;
        operations / took.max(1) as f64 * 1e-3
    }

    /// The inner loop of the products, over four tiles that stay in the first cache.
    ///
    /// # Safety
    ///
    /// The tiles are configured; `data` are 4096 bytes.
    unsafe fn multiply(data: *const u8, steps: usize) {
        // SAFETY: by the contract of this function.
        unsafe {
            asm!("2:",
                "tileloaddt1 tmm4, [{data} + {row}]",
                "tileloaddt1 tmm6, [{data} + {row} + 1024]",
                "tileloaddt1 tmm7, [{data} + {row} + 2048]",
                "tileloaddt1 tmm5, [{data} + {row} + 3072]",
                "tdpbssd tmm0, tmm4, tmm6",
                "tdpbssd tmm1, tmm4, tmm7",
                "tdpbssd tmm2, tmm5, tmm6",
                "tdpbssd tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 2b",
                data = in(reg) data, row = in(reg) 64usize, steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _,
                out("tmm6") _, out("tmm7") _, options(nostack, readonly));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, since the readings belong to the process.
    #[test]
    fn readings_are_sound_and_can_be_forced() {
        if !crate::engine::cpu::has(crate::engine::AMX) {
            println!("no AMX here: nothing is probed");
            return;
        }
        let start = std::time::Instant::now();
        let tops = probe();
        println!("{tops:.2} TOPS in {:?}", start.elapsed());
        // 2048 operations a cycle are the most.
        assert!(tops > 0.01 && tops < 12.0, "{tops}");
        assert!(refresh() || last().is_some());
        assert!(last().is_some_and(|tops| tops > 0.01));
        assert!(!refresh(), "not due again at once");
        force(Some(1.0));
        assert!(!refresh());
        assert_eq!(last(), Some(1.0));
        force(None);
        assert_ne!(last(), Some(1.0));
    }
}

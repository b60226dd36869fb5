//! The floating-point environment: the emulation needs rounding to nearest, subnormals and masked exceptions, whatever the
//! host program has set. The host's control word, with its flags, is put back afterwards.

/// Round to nearest, all exceptions masked, no flushing of subnormals, no flags: the power-on state.
#[cfg(target_arch = "x86_64")]
const CLEAN: u32 = 0x1F80;

#[cfg(target_arch = "x86_64")]
fn read() -> u32 {
    let mut word = 0u32;
    // SAFETY: stmxcsr writes the 32 bits that the pointer names.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
    word
}

#[cfg(target_arch = "x86_64")]
fn write(word: u32) {
    // SAFETY: the word is the clean one or one that was read before, so no reserved bit is set. Code between a write and the
    // next runs in the clean environment (what the compiler assumes) or belongs to the host.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
}

/// Sets the clean environment for this thread, for good: worker threads are ours.
pub fn clean_thread() {
    #[cfg(target_arch = "x86_64")]
    write(CLEAN);
}

/// Runs `f` in the clean environment and puts the caller's back, also when `f` panics.
pub fn in_clean_environment<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    return in_environment(CLEAN, f);
    #[cfg(not(target_arch = "x86_64"))]
    f()
}

/// Runs `f` with the caller's rounding and flushing but without traps, and puts back what was there, flags included: for
/// arithmetic that the caller did not ask for but that is to be as the caller's own.
pub fn without_traps<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    return in_environment(read() | 0x1F80, f);
    #[cfg(not(target_arch = "x86_64"))]
    f()
}

#[cfg(target_arch = "x86_64")]
fn in_environment<T>(word: u32, f: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            write(self.0);
        }
    }
    let _restore = Restore(read());
    write(word);
    // To the compiler arithmetic does not depend on the environment: it would move what is computed here in front of the first
    // write, or behind the last, if it could see through.
    std::hint::black_box(std::hint::black_box(f)())
}

/// What the rounding error of this thread's arithmetic depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Rounds to nearest.
    pub nearest: bool,
    /// Takes subnormal numbers for zero, or makes zeros of them.
    pub flushes: bool,
}

impl Arithmetic {
    pub const CLEAN: Self = Self { nearest: true, flushes: false };

    /// That of the caller.
    pub fn of_thread() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let word = read();
            Self { nearest: word & 0x6000 == 0, flushes: word & 0x8040 != 0 }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::CLEAN
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_host_environment_is_replaced_and_put_back() {
        let host = read();
        let flushing_downward = CLEAN | 0x8040 | 0x2000;
        write(flushing_downward);
        let (inside, small) = in_clean_environment(|| {
            (read() & 0xFFC0, std::hint::black_box(f64::MIN_POSITIVE) / std::hint::black_box(4.0))
        });
        let after = read();
        let panicked = std::panic::catch_unwind(|| in_clean_environment(|| panic!("expected in this test")));
        let after_panic = read();
        let arithmetic = Arithmetic::of_thread();
        let traps = flushing_downward & !0x1F80;
        write(traps);
        let (quiet, one_third) =
            without_traps(|| (read(), std::hint::black_box(1.0) / std::hint::black_box(3.0)));
        let after_quiet = read();
        write(host);
        assert_eq!(arithmetic, Arithmetic { nearest: false, flushes: true });
        assert_eq!((quiet, after_quiet), (flushing_downward, traps));
        assert_eq!(f64::to_bits(one_third), 0x3FD5_5555_5555_5555);
        assert_eq!(inside, CLEAN & 0xFFC0);
        assert_eq!(small, f64::from_bits(1 << 50));
        assert_eq!(after, flushing_downward);
        assert!(panicked.is_err());
        assert_eq!(after_panic, flushing_downward);
    }
}

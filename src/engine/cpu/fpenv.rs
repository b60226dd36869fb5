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
    {
        struct Restore(u32);
        impl Drop for Restore {
            fn drop(&mut self) {
                write(self.0);
            }
        }
        let _restore = Restore(read());
        write(CLEAN);
        f()
    }
    #[cfg(not(target_arch = "x86_64"))]
    f()
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
        write(host);
        assert_eq!(inside, CLEAN & 0xFFC0);
        assert_eq!(small, f64::from_bits(1 << 50));
        assert_eq!(after, flushing_downward);
        assert!(panicked.is_err());
        assert_eq!(after_panic, flushing_downward);
    }
}

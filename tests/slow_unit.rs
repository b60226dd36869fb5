//! The state of the tile unit decides where large calls go, through the exported function.

use std::ffi::{c_char, c_void};

use oz2blas::abi::control::oz2_last_call;
use oz2blas::abi::fortran::dgemm_64_;
use oz2blas::engine::AMX;
use oz2blas::engine::cpu::{has, probe};
use oz2blas::options::{SetResult, set_option};
use oz2blas::route::{Reason, experience};

const N: usize = 1536;

struct Matrices {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Matrices {
    fn new() -> Self {
        let values =
            |seed: usize| (0..N * N).map(move |at| ((at * 7919 + seed) % 1009) as f64 / 1009.0 - 0.5);
        Self { a: values(1).collect(), b: values(2).collect(), c: vec![0.0; N * N] }
    }

    /// C = A B by the exported function; gives what oz2_last_call says.
    fn multiply(&mut self) -> String {
        let (no, n, one, zero) = (c"N".as_ptr(), N as i64, 1.0, 0.0);
        let at = |number: &i64| std::ptr::from_ref(number).cast::<c_void>();
        // SAFETY: the matrices are as large as the call says, and the text as the array.
        unsafe {
            let (a, b, c) = (self.a.as_ptr(), self.b.as_ptr(), self.c.as_mut_ptr());
            dgemm_64_(
                no,
                no,
                at(&n),
                at(&n),
                at(&n),
                &raw const one,
                a,
                at(&n),
                b,
                at(&n),
                &raw const zero,
                c,
                at(&n),
            );
            let mut text = [0u8; 512];
            let length = oz2_last_call(text.as_mut_ptr().cast::<c_char>(), text.len());
            String::from_utf8(text[..length].to_vec()).unwrap()
        }
    }
}

/// One test: the options, the state of the unit and what the time model learns belong to the process.
#[test]
fn a_slow_unit_sends_calls_to_the_native_blas_until_it_recovers() {
    if !has(AMX) {
        println!("no AMX here: nothing to test");
        return;
    }
    for (name, value) in [("NATIVE", "builtin"), ("ENGINE", "amx"), ("NUM_THREADS", "1")] {
        assert_eq!(set_option(name, value, false), SetResult::Done);
    }
    let (slow, fast) = (Some(1.1), Some(5.5));
    let mut matrices = Matrices::new();
    for round in 0..2 {
        probe::force(slow);
        let last = matrices.multiply();
        assert!(last.contains(r#""reason":"slow unit""#), "round {round}: {last}");
        probe::force(fast);
        let last = matrices.multiply();
        assert!(
            last.contains(r#""route":"emulated""#) && last.contains(r#""engine":"amx""#),
            "round {round}: {last}"
        );
    }
    // With a fixed size nobody asks for the state.
    probe::force(slow);
    assert_eq!(set_option("MIN_SIZE", "100", true), SetResult::Done);
    let last = matrices.multiply();
    assert!(last.contains(r#""route":"emulated""#), "{last}");
    // The real state, whatever it is: one of the two ways.
    probe::force(None);
    assert_eq!(set_option("MIN_SIZE", "auto", true), SetResult::Done);
    let last = matrices.multiply();
    println!("{:?} TOPS: {last}", probe::last());
    assert!(probe::last().is_some());
    assert!(last.contains(r#""route":"emulated""#) || last.contains(r#""route":"native""#), "{last}");
    // Data that cannot be emulated: after three calls in vain, one is not tried.
    probe::force(fast);
    let mut wide = Matrices::new();
    for at in 0..N * N {
        // Every row of A is large where other columns of B are small.
        let scale = |at: usize| 1e30f64.powi(((at % N + at / N) % 3) as i32);
        wide.a[at] *= scale(at);
        wide.b[at] /= scale(at);
    }
    for call in 0..5 {
        assert_eq!(experience::pause(), (call == 3).then_some(Reason::NotProvable), "call {call}");
        let last = wide.multiply();
        assert!(last.contains(r#""reason":"not provable""#), "call {call}: {last}");
    }
}

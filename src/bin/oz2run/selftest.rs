//! `oz2run --selftest`: the digest of the fixed set of products on every engine of this machine.

use std::fmt::Write;

use oz2blas::engine::selftest::{EXPECTED, PRODUCTS, digest};
use oz2blas::engine::{self, NAMES};

/// The report, and whether an engine gave another digest.
pub fn report() -> (String, bool) {
    let (mut out, mut wrong) = (String::new(), false);
    for &number in engine::available() {
        let Some(worker) = engine::get(number) else { continue };
        // SAFETY: the machine can run the engine.
        let got = unsafe { digest(worker) };
        let verdict = if got == EXPECTED { "good" } else { "WRONG" };
        wrong |= got != EXPECTED;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<10} {PRODUCTS} products, SHA-256 {got}: {verdict}", NAMES[number]);
    }
    (out, wrong)
}

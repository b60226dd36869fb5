//! docs/kernels.md, "How to add a kernel", followed to the letter: its example is toy.rs, and it gives the digest of all engines.

mod toy;

use oz2blas::engine::cpu::CpuEngine;
use oz2blas::engine::selftest::{EXPECTED, digest};

#[test]
fn the_example_of_the_page_is_this_file() {
    let page = include_str!("../../docs/kernels.md");
    let block = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(block, Some(include_str!("toy.rs")));
}

#[test]
fn the_example_gives_the_digest() {
    assert!((toy::KERNELS.available)());
    // SAFETY: every CPU can run it.
    assert_eq!(unsafe { digest(&CpuEngine::with(&toy::KERNELS)) }, EXPECTED);
}

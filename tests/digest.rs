//! The digest of one fixed set of products is the committed one, on every table of kernels that this CPU can run. The CUDA engine:
//! tests/cuda.rs.

use oz2blas::engine::cpu::CpuEngine;
use oz2blas::engine::cpu::kernels::runnable;
use oz2blas::engine::selftest::{EXPECTED, digest};

#[test]
fn every_table_gives_the_same_digest() {
    for kernels in runnable() {
        // SAFETY: the CPU can run the kernels.
        let got = unsafe { digest(&CpuEngine::with(kernels)) };
        assert_eq!(got, EXPECTED, "{}", kernels.name);
    }
}

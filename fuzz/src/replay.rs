//! The reader of the file of OZ2_VERIFY_DUMP, and what `oz2run --replay` makes of a small one.

use oz2blas::abi::verify;
use oz2blas::observe::dump;

/// A call that is read has the matrices that its header promises, and can be made again; anything else gives one short line.
pub fn run(data: &[u8]) {
    super::border::start();
    match dump::parse(&mut &data[..], data.len() as u64) {
        Ok(call) => {
            let (m, n, k) = (call.m, call.n, call.k);
            let lengths = [&call.a, &call.b, &call.before, &call.emulated, &call.native].map(Vec::len);
            assert_eq!(lengths, [m * k, k * n, m * n, m * n, m * n]);
            assert!(call.alpha.is_finite() && call.beta.is_finite() && call.alpha != 0.0);
            if let Some(again) = verify::replay(&call) {
                assert!(again.found.differing <= (m * n) as u64 && again.other_bits <= m * n);
            }
        }
        Err(error) => assert!(!error.contains('\n'), "{error}"),
    }
}

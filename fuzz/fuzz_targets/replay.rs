#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| oz2blas_fuzz::replay::run(data));

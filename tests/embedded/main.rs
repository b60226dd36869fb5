//! Every routine of the embedded BLAS against its definition, in every interface.

#![allow(clippy::macro_metavars_in_unsafe, reason = "the macros are given plain values")]

mod api;
#[path = "../common/mod.rs"]
mod common;
mod level1;
mod level2;
mod level3;
mod model;

use std::ffi::CString;

use num_complex::Complex;
use oz2blas::native::embedded;

/// Runs a test for the four types of numbers, in all interfaces.
#[macro_export]
macro_rules! for_all {
    (@one $test:ident, $t:ty, $interface:ident, ($($argument:expr),*)) => {
        $test::<$t>($interface, $($argument),*)
    };
    ($test:ident $arguments:tt, $($t:ty),*) => {
        for interface in $crate::api::INTERFACES {
            $( for_all!(@one $test, $t, interface, $arguments); )*
        }
    };
}

pub type C32 = Complex<f32>;

#[test]
fn names_that_are_no_routines_are_not_found() {
    let there = |name: &str| embedded::find(&CString::new(name).unwrap()).is_some();
    for name in ["daxpy_", "daxpy_64_", "daxpy_64", "daxpy64_", "scipy_daxpy_", "scipy_cblas_daxpy64_"] {
        assert!(there(name), "{name}");
    }
    for name in [
        "daxpy",
        "",
        "_",
        "cblas_",
        "cblas_daxpy_",
        "axpy_",
        "dher_",
        "zsymv_",
        "cblas_zdotu",
        "dgeru_",
        "zger_",
    ] {
        assert!(!there(name), "{name}");
    }
    assert_ne!(embedded::find(c"daxpy_"), embedded::find(c"daxpy_64_"));
    assert_ne!(embedded::find(c"daxpy_"), embedded::find(c"saxpy_"));
}

//! Calls through the addresses that `find` gives, in every interface, with the signature that the name stands for.

use std::ffi::{CString, c_int, c_void};
use std::fmt::Debug;
use std::ptr::NonNull;

use num_complex::Complex;
use oz2blas::native::embedded;

pub type C64 = Complex<f64>;

/// A type of numbers.
pub trait Number: Copy + PartialEq + Debug + 'static {
    type Real: Copy + Debug + PartialEq + Into<f64> + 'static;
    type Argument: Copy;
    const COMPLEX: bool;
    const LETTER: &'static str;
    /// The relative rounding error.
    const EPSILON: f64;
    fn of(value: C64) -> Self;
    fn value(self) -> C64;
    fn real(value: f64) -> Self::Real;
    fn argument(&self) -> Self::Argument;
}

macro_rules! numbers {
    ($real:ident, $letter:literal, $complex_letter:literal) => {
        impl Number for $real {
            type Real = $real;
            type Argument = $real;
            const COMPLEX: bool = false;
            const LETTER: &'static str = $letter;
            const EPSILON: f64 = $real::EPSILON as f64;
            fn of(value: C64) -> Self {
                value.re as $real
            }
            fn value(self) -> C64 {
                C64::new(self.into(), 0.0)
            }
            fn real(value: f64) -> $real {
                value as $real
            }
            fn argument(&self) -> $real {
                *self
            }
        }

        impl Number for Complex<$real> {
            type Real = $real;
            type Argument = *const Self;
            const COMPLEX: bool = true;
            const LETTER: &'static str = $complex_letter;
            const EPSILON: f64 = $real::EPSILON as f64;
            fn of(value: C64) -> Self {
                Self::new(value.re as $real, value.im as $real)
            }
            fn value(self) -> C64 {
                C64::new(self.re.into(), self.im.into())
            }
            fn real(value: f64) -> $real {
                value as $real
            }
            fn argument(&self) -> *const Self {
                self
            }
        }
    };
}

numbers!(f32, "s", "c");
numbers!(f64, "d", "z");

/// A way to call a routine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interface {
    pub cblas: bool,
    pub row_major: bool,
    pub wide: bool,
}

pub const INTERFACES: [Interface; 6] = [
    Interface { cblas: false, row_major: false, wide: false },
    Interface { cblas: false, row_major: false, wide: true },
    Interface { cblas: true, row_major: false, wide: false },
    Interface { cblas: true, row_major: true, wide: false },
    Interface { cblas: true, row_major: false, wide: true },
    Interface { cblas: true, row_major: true, wide: true },
];

impl Interface {
    pub fn find(self, routine: &str) -> NonNull<c_void> {
        let name = match (self.cblas, self.wide) {
            (false, false) => format!("{routine}_"),
            (false, true) => format!("{routine}_64_"),
            (true, false) => format!("cblas_{routine}"),
            (true, true) => format!("cblas_{routine}64_"),
        };
        embedded::find(&CString::new(name).unwrap()).unwrap_or_else(|| panic!("no {routine}"))
    }

    pub fn layout(self) -> c_int {
        if self.row_major { 101 } else { 102 }
    }
}

/// Arguments of a call.
pub trait Arguments {
    /// # Safety
    ///
    /// A function with this signature, which may be called with these arguments.
    unsafe fn call<R>(self, address: NonNull<c_void>) -> R;
}

macro_rules! arguments {
    ($first:ident $($rest:ident)*) => {
        #[allow(non_snake_case)]
        impl<$first, $($rest),*> Arguments for ($first, $($rest,)*) {
            unsafe fn call<R>(self, address: NonNull<c_void>) -> R {
                let ($first, $($rest,)*) = self;
                // SAFETY: by the contract of this function.
                unsafe {
                    let function: unsafe extern "C" fn($first, $($rest),*) -> R = std::mem::transmute(address);
                    function($first, $($rest),*)
                }
            }
        }
        arguments! { $($rest)* }
    };
    () => {};
}

arguments! { A B D E F G H J K L M N O P }

/// The numbers that the CBLAS has for letters.
pub fn code(kind: &str, letter: u8) -> c_int {
    match (kind, letter) {
        ("trans", b'N') => 111,
        ("trans", b'T') => 112,
        ("trans", b'C') => 113,
        ("uplo", b'U') => 121,
        ("uplo", b'L') => 122,
        ("diag", b'N') => 131,
        ("diag", b'U') => 132,
        ("side", b'L') => 141,
        ("side", b'R') => 142,
        _ => 0,
    }
}

/// An argument as Fortran gets it. The kinds: int, scalar, real, at (an address), and the letters.
#[macro_export]
macro_rules! fortran_argument {
    ($integer:ty, $t:ty, int $value:expr) => {
        &($value as $integer)
    };
    ($integer:ty, $t:ty, scalar $value:expr) => {
        &<$t>::of($value)
    };
    ($integer:ty, $t:ty, real $value:expr) => {
        &<$t as $crate::api::Number>::real($value)
    };
    ($integer:ty, $t:ty, at $value:expr) => {
        $value
    };
    ($integer:ty, $t:ty, $letter:ident $value:expr) => {
        &($value as u8)
    };
}

/// An argument as the CBLAS gets it.
#[macro_export]
macro_rules! cblas_argument {
    ($integer:ty, $t:ty, int $value:expr) => {
        $value as $integer
    };
    ($integer:ty, $t:ty, scalar $value:expr) => {
        <$t>::of($value).argument()
    };
    ($integer:ty, $t:ty, real $value:expr) => {
        <$t as $crate::api::Number>::real($value)
    };
    ($integer:ty, $t:ty, at $value:expr) => {
        $value
    };
    ($integer:ty, $t:ty, $letter:ident $value:expr) => {
        $crate::api::code(stringify!($letter), $value)
    };
}

/// Calls a routine of levels 2 and 3 in an interface: call!(interface, T, "gemv", [trans letter, int m, ...]).
#[macro_export]
macro_rules! call {
    ($interface:expr, $t:ty, $routine:expr, [$($kind:ident $value:expr),* $(,)?]) => {{
        let (interface, t): ($crate::api::Interface, std::marker::PhantomData<$t>) = ($interface, std::marker::PhantomData);
        let _ = t;
        let address = interface.find(&$routine);
        // SAFETY: the arguments are those of the routine.
        unsafe {
            match (interface.cblas, interface.wide) {
                (false, false) => ($($crate::fortran_argument!(i32, $t, $kind $value),)*).call::<()>(address),
                (false, true) => ($($crate::fortran_argument!(i64, $t, $kind $value),)*).call::<()>(address),
                (true, false) =>
                    (interface.layout(), $($crate::cblas_argument!(i32, $t, $kind $value),)*).call::<()>(address),
                (true, true) =>
                    (interface.layout(), $($crate::cblas_argument!(i64, $t, $kind $value),)*).call::<()>(address),
            }
        }
    }};
}

/// Calls a routine of level 1, which may have a result of the type R.
#[macro_export]
macro_rules! call_level1 {
    ($interface:expr, $t:ty, $result:ty, $routine:expr, [$($kind:ident $value:expr),* $(,)?]) => {{
        let interface: $crate::api::Interface = $interface;
        let address = interface.find(&$routine);
        // SAFETY: the arguments are those of the routine.
        unsafe {
            match (interface.cblas, interface.wide) {
                (false, false) => ($($crate::fortran_argument!(i32, $t, $kind $value),)*).call::<$result>(address),
                (false, true) => ($($crate::fortran_argument!(i64, $t, $kind $value),)*).call::<$result>(address),
                (true, false) => ($($crate::cblas_argument!(i32, $t, $kind $value),)*).call::<$result>(address),
                (true, true) => ($($crate::cblas_argument!(i64, $t, $kind $value),)*).call::<$result>(address),
            }
        }
    }};
}

//! A name under which a GEMM can be called.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::native::find::{self, Symbol};
use crate::options::{self, Integer, NativeChoice};

/// A spelling: the native function of the same name, the integers behind it, and the names of its error handler.
pub(crate) struct Spelling {
    pub native: Symbol,
    pub width: Width,
    pub xerbla: &'static [&'static CStr],
}

/// A static spelling for an exported function.
macro_rules! spelling {
    ($name:ident, $width:ident, [$($xerbla:literal),*]) => {{
        static SPELLING: $crate::abi::spelling::Spelling = $crate::abi::spelling::Spelling {
            native: $crate::native::find::Symbol::native(
                match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
            ),
            width: $crate::abi::spelling::Width::$width,
            xerbla: &[$($xerbla),*],
        };
        &SPELLING
    }};
}
pub(crate) use spelling;

/// The integers of a spelling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Narrow,
    Wide,
    /// By OZ2_INTEGER, and for auto by the provider: some libraries have 64-bit integers behind plain names.
    ByOption,
}

impl Width {
    /// Are the integers 64 bits wide? `provider` is the native function, if there is one.
    pub(crate) fn is_wide(self, provider: Option<NonNull<c_void>>) -> bool {
        match self {
            Self::Narrow => false,
            Self::Wide => true,
            Self::ByOption => {
                let options = options::current();
                match options.integer {
                    Integer::Lp64 => false,
                    Integer::Ilp64 => true,
                    Integer::Auto if options.native == NativeChoice::Builtin => false,
                    Integer::Auto => provider.is_some_and(|p| find::has_wide_integers(&find::provider(p))),
                }
            }
        }
    }
}

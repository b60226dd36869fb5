//! A name under which a GEMM can be called.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::native::find::{self, Symbol};
use crate::options::{self, Integer, NativeChoice};

/// A spelling: the native function of the same name, the integers behind it, and the names of its error handler.
pub(crate) struct Spelling {
    native: Symbol,
    width: Width,
    pub xerbla: &'static [&'static CStr],
    /// What is known of the width: UNKNOWN, NARROW or WIDE. Asking takes as long as a small product.
    known: AtomicU8,
}

const UNKNOWN: u8 = 0;
const NARROW: u8 = 1;
const WIDE: u8 = 2;

impl Spelling {
    pub const fn new(name: &'static CStr, width: Width, xerbla: &'static [&'static CStr]) -> Self {
        Self { native: Symbol::native(name), width, xerbla, known: AtomicU8::new(UNKNOWN) }
    }

    /// The native function, and whether its integers have 64 bits.
    #[inline]
    pub fn resolve(&self) -> (Option<NonNull<c_void>>, bool) {
        let native = self.native.address();
        match self.known.load(Ordering::Relaxed) {
            UNKNOWN => (native, self.find_width(native)),
            known => (native, known == WIDE),
        }
    }

    #[cold]
    fn find_width(&self, native: Option<NonNull<c_void>>) -> bool {
        let wide = self.width.is_wide(native);
        // Without a provider the answer may change when one has been loaded.
        if native.is_some() {
            self.known.store(if wide { WIDE } else { NARROW }, Ordering::Relaxed);
        }
        wide
    }
}

/// A static spelling for an exported function.
macro_rules! spelling {
    ($name:ident, $width:ident, [$($xerbla:literal),*]) => {{
        static SPELLING: $crate::abi::spelling::Spelling = $crate::abi::spelling::Spelling::new(
            match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
            $crate::abi::spelling::Width::$width,
            &[$($xerbla),*],
        );
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
    /// Have the integers 64 bits? `provider` is the native function, if there is one.
    fn is_wide(self, provider: Option<NonNull<c_void>>) -> bool {
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

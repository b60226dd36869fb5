//! A name under which a GEMM can be called.

use std::ffi::{CStr, c_void};
use std::panic::catch_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::engine::process::{self, hold_cancellation};
use crate::native::find::{self, Symbol};
use crate::native::integers::{self, Integers};
use crate::observe::log::{self, Kind, Level};
use crate::observe::report;
use crate::options::{self, Integer};

/// A spelling: the native function of the same name, the integers behind it, and the names of its error handler.
pub(crate) struct Spelling {
    native: Symbol,
    width: Width,
    pub xerbla: &'static [&'static CStr],
    /// What is known of the width. Asking takes as long as a small product.
    known: AtomicU8,
}

const UNKNOWN: u8 = 0;
const NARROW: u8 = 1;
const WIDE: u8 = 2;
const IN_DOUBT: u8 = 3;

impl Spelling {
    pub const fn new(name: &'static CStr, width: Width, xerbla: &'static [&'static CStr]) -> Self {
        Self { native: Symbol::native(name), width, xerbla, known: AtomicU8::new(UNKNOWN) }
    }

    /// The native function, and whether its integers have 64 bits. None: nobody can tell, or it is not what the caller is said to
    /// have; then there is a native function, and it is to get the call unread.
    #[inline]
    pub fn resolve(&self) -> (Option<NonNull<c_void>>, Option<bool>) {
        let native = self.native.address();
        let known = match self.known.load(Ordering::Relaxed) {
            UNKNOWN => self.find_width(native),
            known => known,
        };
        (native, if known == IN_DOUBT { None } else { Some(known == WIDE) })
    }

    #[cold]
    fn find_width(&self, native: Option<NonNull<c_void>>) -> u8 {
        let _unbroken = hold_cancellation();
        let integers = match self.width {
            Width::Narrow => Some(Integers::Narrow),
            Width::Wide => Some(Integers::Wide),
            // A log can panic, and the barrier of a call comes later.
            Width::ByOption => catch_unwind(|| self.by_option(native)).unwrap_or(None),
        };
        let known = match integers {
            Some(Integers::Narrow) => NARROW,
            Some(Integers::Wide) => WIDE,
            None => IN_DOUBT,
        };
        // Without a provider the answer may change when one has been loaded.
        if let Some(native) = native {
            self.known.store(known, Ordering::Relaxed);
            let bits = integers.map(|integers| if integers == Integers::Wide { 64 } else { 32 });
            report::native_found(native.as_ptr() as usize, bits);
        }
        known
    }

    /// The option speaks of the caller. The native function must have the same integers, since it gets the caller's arguments.
    fn by_option(&self, native: Option<NonNull<c_void>>) -> Option<Integers> {
        let asked = match options::current().integer {
            Integer::Auto => None,
            Integer::Lp64 => Some(Integers::Narrow),
            Integer::Ilp64 => Some(Integers::Wide),
        };
        // At the end of the process a BLAS may have been shut down, and OpenBLAS crashes if it is asked then. Narrow integers read the
        // right numbers from wide ones too, as long as these are below 2^31.
        let Some(native) = native.filter(|_| !process::ending()) else {
            return asked.or(Some(Integers::Narrow));
        };
        let cblas = self.native.name().to_bytes().starts_with(b"cblas_");
        // SAFETY: the function is of a BLAS.
        let found = unsafe { integers::of(native, cblas) };
        let (name, file) = (self.native.name().to_string_lossy(), find::provider(native));
        tracing::debug!(name = &*name, provider = file, integers = ?found, "integers");
        let doubt = match (asked, found) {
            (Some(asked), Some(found)) if asked != found => "has the other integers than OZ2_INTEGER says",
            (None, None) => "does not tell how wide its integers are (OZ2_INTEGER=lp64 or ilp64 would)",
            _ => return asked.or(found),
        };
        let text = format!("{name} in {file} {doubt}; its calls are passed on unread");
        log::once(Kind::IntegersInDoubt, Level::Warn, &text);
        None
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
    /// By OZ2_INTEGER and by what the native library says: some have 64-bit integers behind plain names.
    ByOption,
}

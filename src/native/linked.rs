//! The BLAS that a program was linked to statically, where this library is in the program as an archive (`scripts/build --static`):
//! what the linker's `--wrap=dgemm_` calls `__real_dgemm_`. No search finds it, since such a program exports nothing.
//!
//! Two small members of that archive (`wrapped.S`) hold a table each, which the code here refers to weakly: elsewhere, in the shared
//! library too, there is no table, and nothing here costs anything.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// The function itself, and the `isamax` of its BLAS.
type Table = [Option<NonNull<c_void>>; 2];

#[cfg(target_arch = "x86_64")]
mod tables {
    use super::Table;

    /// Hidden, so that a shared library has nothing left to be resolved by the loader; the language cannot say weak.
    macro_rules! table {
        ($function:ident, $name:literal) => {
            #[unsafe(naked)]
            pub extern "C" fn $function() -> Option<&'static Table> {
                std::arch::naked_asm!(
                    concat!(".weak ", $name),
                    concat!(".hidden ", $name),
                    concat!("mov rax, qword ptr [rip + ", $name, "@GOTPCREL]"),
                    "ret",
                )
            }
        };
    }

    table!(fortran, "oz2_wrapped_dgemm_");
    table!(cblas, "oz2_wrapped_cblas_dgemm");
}

#[cfg(not(target_arch = "x86_64"))]
mod tables {
    pub fn fortran() -> Option<&'static super::Table> {
        None
    }

    pub fn cblas() -> Option<&'static super::Table> {
        None
    }
}

/// The native function of this name.
pub fn function(name: &CStr) -> Option<NonNull<c_void>> {
    let table = match name.to_bytes() {
        b"dgemm_" => tables::fortran(),
        b"cblas_dgemm" => tables::cblas(),
        _ => None,
    };
    table?[0]
}

/// The `isamax_` or `cblas_isamax` that belongs to a function of this module.
pub fn companion(of: NonNull<c_void>) -> Option<NonNull<c_void>> {
    [tables::fortran(), tables::cblas()].into_iter().flatten().find(|table| table[0] == Some(of))?[1]
}

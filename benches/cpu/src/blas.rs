//! The libraries under test, loaded at run time, each by its path.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;

use libloading::Library;

/// A Fortran DGEMM with 32-bit integers and its two hidden string lengths.
pub type Gemm = unsafe extern "C" fn(
    transa: *const c_char,
    transb: *const c_char,
    m: *const i32,
    n: *const i32,
    k: *const i32,
    alpha: *const f64,
    a: *const f64,
    lda: *const i32,
    b: *const f64,
    ldb: *const i32,
    beta: *const f64,
    c: *mut f64,
    ldc: *const i32,
    usize,
    usize,
);

/// DGETRF: the LU factorisation of an m x n matrix.
pub type Getrf = unsafe extern "C" fn(
    m: *const i32,
    n: *const i32,
    a: *mut f64,
    lda: *const i32,
    pivots: *mut i32,
    info: *mut i32,
);

/// DLASWP: row interchanges k1..=k2 (counted from 1) on n columns.
pub type Laswp = unsafe extern "C" fn(
    n: *const i32,
    a: *mut f64,
    lda: *const i32,
    k1: *const i32,
    k2: *const i32,
    pivots: *const i32,
    step: *const i32,
);

/// DTRSM and DTRMM: a triangular matrix A and a matrix B of m x n that is overwritten.
pub type Triangular = unsafe extern "C" fn(
    side: *const c_char,
    triangle: *const c_char,
    trans: *const c_char,
    diagonal: *const c_char,
    m: *const i32,
    n: *const i32,
    alpha: *const f64,
    a: *const f64,
    lda: *const i32,
    b: *mut f64,
    ldb: *const i32,
    usize,
    usize,
    usize,
    usize,
);

pub type Outcome<T> = Result<T, String>;

/// Opens a library for good: the functions that come from it stay valid.
fn open(path: &Path) -> Outcome<&'static Library> {
    // SAFETY: a BLAS; its initialisers may run.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(library)))
}

/// # Safety
///
/// The function has the type F.
unsafe fn function<F: Copy>(library: &'static Library, name: &str) -> Outcome<F> {
    // SAFETY: by the contract of this function.
    unsafe { library.get::<F>(name) }.map(|found| *found).map_err(|error| error.to_string())
}

/// OpenBLAS as the wheel scipy-openblas32 has it.
pub struct OpenBlas {
    pub gemm: Gemm,
    pub getrf: Getrf,
    pub laswp: Laswp,
    pub trsm: Triangular,
    pub trmm: Triangular,
    /// Its configuration and the kernels that it picked.
    pub version: String,
}

impl OpenBlas {
    pub fn open(path: &Path) -> Outcome<Self> {
        type Text = unsafe extern "C" fn() -> *const c_char;
        let library = open(path)?;
        let text = |name| -> Outcome<String> {
            // SAFETY: both functions take nothing and return a C string that lives on.
            let text = unsafe { CStr::from_ptr(function::<Text>(library, name)?()) };
            Ok(text.to_string_lossy().trim().to_owned())
        };
        let version = format!(
            "{}, kernels {}",
            text("scipy_openblas_get_config")?,
            text("scipy_openblas_get_corename")?
        );
        // SAFETY: the BLAS and LAPACK functions of these names, with 32-bit integers.
        unsafe {
            Ok(Self {
                gemm: function(library, "scipy_dgemm_")?,
                getrf: function(library, "scipy_dgetrf_")?,
                laswp: function(library, "scipy_dlaswp_")?,
                trsm: function(library, "scipy_dtrsm_")?,
                trmm: function(library, "scipy_dtrmm_")?,
                version,
            })
        }
    }
}

/// MKL by its single dynamic library, libmkl_rt.
pub struct Mkl {
    pub gemm: Gemm,
    pub version: String,
}

impl Mkl {
    /// The number of threads and the kind of integers come from the environment.
    pub fn open(path: &Path) -> Outcome<Self> {
        let library = open(path)?;
        let mut text = [0u8; 200];
        // SAFETY: the functions of these names; the text has as many bytes as we say.
        unsafe {
            let version: unsafe extern "C" fn(*mut c_char, c_int) =
                function(library, "mkl_get_version_string")?;
            version(text.as_mut_ptr().cast(), text.len() as c_int - 1);
            let version = String::from_utf8_lossy(&text);
            let version = version.trim_end_matches('\0').trim().to_owned();
            Ok(Self { gemm: function(library, "dgemm_")?, version })
        }
    }
}

type GiveText = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// One copy of our own library. Two copies of the file are two libraries with options of their own.
#[derive(Clone, Copy)]
pub struct Oz2 {
    pub gemm: Gemm,
    set: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int,
    get: unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> usize,
    last: GiveText,
    stats: GiveText,
    reset: unsafe extern "C" fn(),
    version: unsafe extern "C" fn() -> *const c_char,
}

impl Oz2 {
    /// `gemm` is the spelling by which it is called, because our library then finds the function of the BLAS underneath by the same.
    pub fn open(path: &Path, gemm: &str, options: &[(&str, &str)]) -> Outcome<Self> {
        let library = open(path)?;
        // SAFETY: the functions of include/oz2blas.h and a DGEMM with 32-bit integers.
        let copy = unsafe {
            Self {
                gemm: function(library, gemm)?,
                set: function(library, "oz2_set_option")?,
                get: function(library, "oz2_get_option")?,
                last: function(library, "oz2_last_call")?,
                stats: function(library, "oz2_get_stats")?,
                reset: function(library, "oz2_reset_stats")?,
                version: function(library, "oz2_version")?,
            }
        };
        for (name, value) in options {
            copy.set(name, value)?;
        }
        Ok(copy)
    }

    fn set(&self, name: &str, value: &str) -> Outcome<()> {
        let (key, text) = (c_text(name)?, c_text(value)?);
        // SAFETY: C strings.
        match unsafe { (self.set)(key.as_ptr(), text.as_ptr()) } {
            0 => Ok(()),
            code => Err(format!("OZ2_{name}={value} was not accepted (code {code})")),
        }
    }

    pub fn option(&self, name: &str) -> Outcome<String> {
        let key = c_text(name)?;
        // SAFETY: a C string, and a buffer as long as it says.
        Ok(text(|to, size| unsafe { (self.get)(key.as_ptr(), to, size) }))
    }

    /// The last call as the library describes it.
    pub fn last_call(&self) -> serde_json::Value {
        // SAFETY: a buffer as long as it says.
        serde_json::from_str(&text(|to, size| unsafe { (self.last)(to, size) })).unwrap_or_default()
    }

    /// The counters since the last reset.
    pub fn stats(&self) -> serde_json::Value {
        // SAFETY: a buffer as long as it says.
        serde_json::from_str(&text(|to, size| unsafe { (self.stats)(to, size) })).unwrap_or_default()
    }

    pub fn reset_stats(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.reset)() }
    }

    pub fn version(&self) -> String {
        // SAFETY: returns a C string that lives on.
        unsafe { CStr::from_ptr((self.version)()) }.to_string_lossy().into_owned()
    }
}

fn c_text(text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|error| error.to_string())
}

/// Reads a text from a function that works like snprintf.
fn text(give: impl Fn(*mut c_char, usize) -> usize) -> String {
    let length = give(std::ptr::null_mut(), 0);
    let mut bytes = vec![0u8; length + 1];
    let length = length.min(give(bytes.as_mut_ptr().cast(), bytes.len()));
    bytes.truncate(length);
    String::from_utf8_lossy(&bytes).into_owned()
}

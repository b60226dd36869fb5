//! The crates under test behind one signature: C = alpha A B + beta C,
//! every operand a pointer with a row and a column stride.

use std::ffi::{CString, c_int, c_void};
use std::mem::transmute;

use oxiblas_blas::level3::Trans;
use oxiblas_blas::level3::gemm::gemm_transposed;
use oxiblas_matrix::{MatMut, MatRef};
use private_gemm_x86::{Accum, DType, DstKind, IType, InstrSet};

/// One product. A is m by k, B is k by n, C is m by n.
#[derive(Clone, Copy)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub a: *const f64,
    pub rsa: isize,
    pub csa: isize,
    pub b: *const f64,
    pub rsb: isize,
    pub csb: isize,
    pub beta: f64,
    pub c: *mut f64,
    pub rsc: isize,
    pub csc: isize,
}

// The two halves of a split product write disjoint parts of C.
unsafe impl Send for Gemm {}

pub type Run = unsafe fn(&Gemm);

pub struct Contender {
    pub name: &'static str,
    pub run: Run,
}

pub const CONTENDERS: [Contender; 4] = [
    Contender { name: "matrixmultiply", run: matrixmultiply },
    Contender { name: "gemm", run: gemm },
    Contender { name: "private-gemm-x86", run: private_gemm },
    Contender { name: "oxiblas-blas", run: oxiblas },
];

/// Checked, but not timed: these are slower by design.
pub const VARIANTS: &[Contender] = &[
    #[cfg(not(feature = "facade"))]
    Contender { name: "gemm, AVX2", run: gemm_avx2 },
];

unsafe fn matrixmultiply(g: &Gemm) {
    unsafe {
        matrixmultiply::dgemm(
            g.m, g.k, g.n, g.alpha, g.a, g.rsa, g.csa, g.b, g.rsb, g.csb, g.beta, g.c, g.rsc, g.csc,
        );
    }
}

#[cfg(feature = "facade")]
unsafe fn gemm(g: &Gemm) {
    unsafe {
        // This crate's alpha scales the destination and its beta the product.
        gemm::gemm(
            g.m,
            g.n,
            g.k,
            g.c,
            g.csc,
            g.rsc,
            g.beta != 0.0,
            g.a,
            g.csa,
            g.rsa,
            g.b,
            g.csb,
            g.rsb,
            g.beta,
            g.alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(not(feature = "facade"))]
unsafe fn gemm(g: &Gemm) {
    unsafe { gemm_kernels(g, is_x86_feature_detected!("avx512f")) }
}

/// The kernels of processors without AVX-512.
#[cfg(not(feature = "facade"))]
unsafe fn gemm_avx2(g: &Gemm) {
    unsafe { gemm_kernels(g, false) }
}

/// The gemm crate's kernels and loops under this file's own choice of the
/// instruction set: without `std` the crate detects nothing at run time, but
/// neither reads files, nor starts a process, nor keeps memory per thread.
#[cfg(not(feature = "facade"))]
unsafe fn gemm_kernels(g: &Gemm, avx512: bool) {
    use gemm_common::simd::{MixedSimd, Scalar, V3, V4};
    use gemm_f64::microkernel::{avx512f, fma, scalar};

    // The kernels want C with its short stride down the columns.
    let turned = Gemm {
        m: g.n,
        n: g.m,
        a: g.b,
        rsa: g.csb,
        csa: g.rsb,
        b: g.a,
        rsb: g.csa,
        csb: g.rsa,
        rsc: g.csc,
        csc: g.rsc,
        ..*g
    };
    let g = if g.csc.abs() < g.rsc.abs() { &turned } else { g };
    macro_rules! with {
        ($simd:expr, $lanes:literal, $kernels:ident) => {
            gemm_common::gemm::gemm_basic_generic::<
                _,
                f64,
                $lanes,
                { $kernels::f64::MR_DIV_N * $lanes },
                { $kernels::f64::NR },
                { $kernels::f64::MR_DIV_N },
                { $kernels::f64::H_M },
                { $kernels::f64::H_N },
            >(
                $simd,
                g.m,
                g.n,
                g.k,
                g.c,
                g.csc,
                g.rsc,
                g.beta != 0.0,
                g.a,
                g.csa,
                g.rsa,
                g.b,
                g.csb,
                g.rsb,
                // This crate's alpha scales the destination and its beta the
                // product.
                g.beta,
                g.alpha,
                false,
                false,
                false,
                |a, b, c| a * b + c,
                &$kernels::f64::UKR,
                &$kernels::f64::H_UKR,
                false,
                gemm_common::Parallelism::None,
            )
        };
    }
    // `try_new` asks the processor only; the standard library also asks whether
    // the system saves the registers.
    let v4 = avx512.then(<V4 as MixedSimd<f64, f64, f64, f64>>::try_new).flatten();
    let v3 = is_x86_feature_detected!("fma").then(<V3 as MixedSimd<f64, f64, f64, f64>>::try_new).flatten();
    unsafe {
        match (v4, v3) {
            (Some(v4), _) => with!(v4, 8, avx512f),
            (None, Some(v3)) => with!(v3, 4, fma),
            (None, None) => with!(Scalar, 1, scalar),
        }
    }
}

unsafe fn private_gemm(g: &Gemm) {
    // It only replaces C or adds to it: any other beta takes a pass of its own.
    if g.beta != 0.0 && g.beta != 1.0 {
        for j in 0..g.n as isize {
            for i in 0..g.m as isize {
                unsafe { *g.c.offset(i * g.rsc + j * g.csc) *= g.beta };
            }
        }
    }
    let accum = if g.beta == 0.0 { Accum::Replace } else { Accum::Add };
    let instr = if is_x86_feature_detected!("avx512f") { InstrSet::Avx512 } else { InstrSet::Avx256 };
    unsafe {
        private_gemm_x86::gemm(
            DType::F64,
            IType::U64,
            instr,
            g.m,
            g.n,
            g.k,
            g.c.cast(),
            g.rsc,
            g.csc,
            std::ptr::null(),
            std::ptr::null(),
            DstKind::Full,
            accum,
            g.a.cast(),
            g.rsa,
            g.csa,
            false,
            std::ptr::null(),
            0,
            g.b.cast(),
            g.rsb,
            g.csb,
            false,
            (&raw const g.alpha).cast(),
            1,
        );
    }
}

/// Takes column-major operands with a transposition flag, no general strides.
unsafe fn oxiblas(g: &Gemm) {
    let view = |p, rows, cols, rs: isize, cs: isize| unsafe {
        if rs == 1 {
            (Trans::NoTrans, MatRef::new(p, rows, cols, cs as usize))
        } else {
            assert_eq!(cs, 1, "no general strides");
            (Trans::Trans, MatRef::new(p, cols, rows, rs as usize))
        }
    };
    assert_eq!(g.rsc, 1, "no general strides");
    let (trans_a, a) = view(g.a, g.m, g.k, g.rsa, g.csa);
    let (trans_b, b) = view(g.b, g.k, g.n, g.rsb, g.csb);
    let c = unsafe { MatMut::new(g.c, g.m, g.n, g.csc as usize) };
    gemm_transposed(trans_a, trans_b, g.alpha, a, b, g.beta, c);
}

type Dgemm = unsafe extern "C" fn(
    *const u8,
    *const u8,
    *const c_int,
    *const c_int,
    *const c_int,
    *const f64,
    *const f64,
    *const c_int,
    *const f64,
    *const c_int,
    *const f64,
    *mut f64,
    *const c_int,
);

/// The peer, loaded from a shared library.
pub struct OpenBlas {
    dgemm: Dgemm,
    set_threads: unsafe extern "C" fn(c_int),
    config: unsafe extern "C" fn() -> *const i8,
    core: unsafe extern "C" fn() -> *const i8,
}

impl OpenBlas {
    /// Finds the symbols with the prefix of the PyPI wheel or with none.
    pub fn load(path: &str) -> Result<Self, String> {
        let path_c = CString::new(path).map_err(|e| e.to_string())?;
        let lib = unsafe { libc::dlopen(path_c.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if lib.is_null() {
            return Err(format!("cannot load {path}"));
        }
        let find = |name: &str| -> Result<*mut c_void, String> {
            ["scipy_", ""]
                .into_iter()
                .find_map(|prefix| {
                    let name = CString::new(format!("{prefix}{name}")).ok()?;
                    let symbol = unsafe { libc::dlsym(lib, name.as_ptr()) };
                    (!symbol.is_null()).then_some(symbol)
                })
                .ok_or_else(|| format!("{path} has no {name}"))
        };
        unsafe {
            Ok(Self {
                dgemm: transmute::<*mut c_void, Dgemm>(find("dgemm_")?),
                set_threads: transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(find(
                    "openblas_set_num_threads",
                )?),
                config: transmute::<*mut c_void, unsafe extern "C" fn() -> *const i8>(find(
                    "openblas_get_config",
                )?),
                core: transmute::<*mut c_void, unsafe extern "C" fn() -> *const i8>(find(
                    "openblas_get_corename",
                )?),
            })
        }
    }

    pub fn set_threads(&self, threads: usize) {
        unsafe { (self.set_threads)(threads as c_int) };
    }

    pub fn describe(&self) -> String {
        let text = |p| unsafe { std::ffi::CStr::from_ptr(p) }.to_string_lossy();
        unsafe { format!("{} (running kernel: {})", text((self.config)()).trim(), text((self.core)())) }
    }

    /// # Safety
    /// Every operand must have a unit stride, C in its columns.
    pub unsafe fn run(&self, g: &Gemm) {
        let flag = |rs: isize, cs: isize| {
            if rs == 1 { (b"N", cs as c_int) } else { (b"T", rs as c_int) }
        };
        let (trans_a, lda) = flag(g.rsa, g.csa);
        let (trans_b, ldb) = flag(g.rsb, g.csb);
        let (m, n, k, ldc) = (g.m as c_int, g.n as c_int, g.k as c_int, g.csc.max(1) as c_int);
        unsafe {
            (self.dgemm)(
                trans_a.as_ptr(),
                trans_b.as_ptr(),
                &m,
                &n,
                &k,
                &g.alpha,
                g.a,
                &lda,
                g.b,
                &ldb,
                &g.beta,
                g.c,
                &ldc,
            );
        }
    }
}

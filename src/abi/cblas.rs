//! The CBLAS spellings of DGEMM.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::fortran::check;
use super::spelling::{Spelling, spelling};
use super::{Illegal, Pass};
use crate::gemm::{Gemm, Transpose};
use crate::native::builtin;
use crate::native::call::Cblas;

const ROW_MAJOR: c_int = 101;
const COLUMN_MAJOR: c_int = 102;

/// CblasNoTrans, CblasTrans, CblasConjTrans. Others are left to the native BLAS, which may know more.
fn transpose(value: c_int) -> Option<Transpose> {
    match value {
        111 => Some(Transpose::No),
        112 | 113 => Some(Transpose::Yes),
        _ => None,
    }
}

/// The arguments as they came.
#[derive(Clone, Copy)]
struct Arguments {
    layout: c_int,
    transa: c_int,
    transb: c_int,
    m: i64,
    n: i64,
    k: i64,
    alpha: f64,
    a: *const f64,
    lda: i64,
    b: *const f64,
    ldb: i64,
    beta: f64,
    c: *mut f64,
    ldc: i64,
}

/// The place of an argument in cblas_dgemm from its place in the DGEMM that a row-major call turns into: there A and B, and m
/// and n, have changed places.
fn row_major_place(fortran: i32) -> i32 {
    match fortran {
        3 => 5,
        4 => 4,
        5 => 6,
        8 => 11,
        10 => 9,
        place => place + 1,
    }
}

impl Arguments {
    fn parse(&self, wide: bool) -> Result<Gemm, Illegal> {
        let illegal = |cblas| Illegal { fortran: 0, cblas };
        if self.layout != ROW_MAJOR && self.layout != COLUMN_MAJOR {
            return Err(illegal(1));
        }
        let ta = transpose(self.transa).ok_or(illegal(2))?;
        let tb = transpose(self.transb).ok_or(illegal(3))?;
        // The upper half of a narrow integer is whatever the caller left there.
        let [m, n, k, lda, ldb, ldc] = [self.m, self.n, self.k, self.lda, self.ldb, self.ldc]
            .map(|value| if wide { value } else { i64::from(value as i32) });
        let scalars = (self.alpha, self.beta);
        let beyond_memory = illegal(0);
        if self.layout == COLUMN_MAJOR {
            let (_, _, sizes) = check(Some(ta), Some(tb), [m, n, k, lda, ldb, ldc])
                .map_err(|place| Illegal { fortran: place, cblas: place + 1 })?;
            Gemm::new((ta, tb), sizes, scalars, self.a, self.b, self.c).ok_or(beyond_memory)
        } else {
            let (_, _, sizes) = check(Some(tb), Some(ta), [n, m, k, ldb, lda, ldc])
                .map_err(|place| Illegal { fortran: place, cblas: row_major_place(place) })?;
            let call = Gemm::new((tb, ta), sizes, scalars, self.b, self.a, self.c).ok_or(beyond_memory)?;
            Ok(Gemm { row_major: true, ..call })
        }
    }

    /// The arguments for a call of our own.
    fn of(call: &Gemm) -> Self {
        let word = |t| if t == Transpose::Yes { 112 } else { 111 };
        let ((ta, lda), (tb, ldb)) = (call.a.stored(), call.b.stored());
        // The lines of B are columns: contiguous ones mean that it is not transposed.
        let tb = if tb == Transpose::Yes { Transpose::No } else { Transpose::Yes };
        // They are no larger than what came as such integers.
        let [m, n, k, lda, ldb, ldc] = [call.m, call.n, call.k, lda, ldb, call.c.ld].map(|x| x as i64);
        let (a, b, c) = (call.a.pointer(), call.b.pointer(), call.c.pointer());
        let (transa, transb, alpha, beta) = (word(ta), word(tb), call.alpha, call.beta);
        Self { layout: COLUMN_MAJOR, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc }
    }

    /// # Safety
    ///
    /// A native function of this signature.
    unsafe fn call(&self, address: NonNull<c_void>) {
        // SAFETY: by the contract of this function.
        unsafe {
            let function = std::mem::transmute::<NonNull<c_void>, Cblas>(address);
            function(
                self.layout,
                self.transa,
                self.transb,
                self.m,
                self.n,
                self.k,
                self.alpha,
                self.a,
                self.lda,
                self.b,
                self.ldb,
                self.beta,
                self.c,
                self.ldc,
            );
        }
    }

    /// # Safety
    ///
    /// As for a call of the native function.
    unsafe fn enter(&self, spelling: &'static Spelling) {
        let options = super::start();
        let (native, wide) = spelling.resolve();
        let Some(wide) = wide else {
            // SAFETY: as below.
            return super::unread(|| unsafe { native.iter().for_each(|&address| self.call(address)) });
        };
        // SAFETY: the caller of a BLAS vouches for its arguments; the native function gets them unchanged.
        unsafe {
            super::gemm(options, native, self.parse(wide), |pass| match (native, pass) {
                (Some(address), Pass::Part(part)) => Self::of(part).call(address),
                (Some(address), _) => self.call(address),
                (None, Pass::Part(part)) => builtin::gemm_for_caller(part),
                (None, Pass::Legal(call)) => builtin::gemm_for_caller(call),
                (None, Pass::Illegal(illegal)) => {
                    // Where Fortran has a number, the reference CBLAS hands on that one.
                    let handed = if illegal.fortran == 0 { illegal.cblas } else { illegal.fortran + 1 };
                    builtin::cblas_xerbla(c"cblas_dgemm", spelling.xerbla, illegal.cblas, handed);
                }
            });
        }
    }
}

macro_rules! spellings {
    ($($name:ident, $width:ident, [$($xerbla:literal),*];)*) => { $(
        #[allow(clippy::too_many_arguments, reason = "the BLAS has that many")]
        #[doc = concat!("DGEMM under the name `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// The arguments are what the reference CBLAS demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            layout: c_int, transa: c_int, transb: c_int, m: i64, n: i64, k: i64, alpha: f64,
            a: *const f64, lda: i64, b: *const f64, ldb: i64, beta: f64, c: *mut f64, ldc: i64,
        ) {
            let arguments =
                Arguments { layout, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc };
            // SAFETY: by the contract of this function.
            unsafe { arguments.enter(spelling!($name, $width, [$($xerbla),*])) }
        }
    )* };
}

spellings! {
    cblas_dgemm, ByOption, [c"cblas_xerbla"];
    cblas_dgemm64_, Wide, [c"cblas_xerbla64_"];
    cblas_dgemm_64, Wide, [c"cblas_xerbla_64"];
    scipy_cblas_dgemm, Narrow, [c"scipy_cblas_xerbla", c"cblas_xerbla"];
    scipy_cblas_dgemm64_, Wide, [c"scipy_cblas_xerbla64_", c"cblas_xerbla64_"];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(layout: c_int, transes: [c_int; 2], numbers: [i64; 6]) -> Option<i32> {
        let [m, n, k, lda, ldb, ldc] = numbers;
        let [transa, transb] = transes;
        let (a, c) = (std::ptr::null(), std::ptr::null_mut());
        let call =
            Arguments { layout, transa, transb, m, n, k, alpha: 1.0, a, lda, b: a, ldb, beta: 0.0, c, ldc };
        call.parse(true).err().map(|illegal| illegal.cblas)
    }

    #[test]
    fn places_are_those_of_the_cblas() {
        assert_eq!(place(100, [111, 111], [2, 3, 4, 2, 4, 2]), Some(1));
        for layout in [ROW_MAJOR, COLUMN_MAJOR] {
            assert_eq!(place(layout, [999, 999], [-1; 6]), Some(2));
            assert_eq!(place(layout, [111, 114], [-1; 6]), Some(3));
        }
        assert_eq!(place(COLUMN_MAJOR, [111, 111], [2, 3, 4, 2, 4, 2]), None);
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, 3, 4, 4, 3, 3]), None);
        assert_eq!(place(ROW_MAJOR, [112, 113], [2, 3, 4, 2, 4, 3]), None);
        assert_eq!(place(COLUMN_MAJOR, [111, 111], [-1, 3, 4, 2, 4, 2]), Some(4));
        assert_eq!(place(COLUMN_MAJOR, [111, 111], [2, 3, 4, 1, 4, 2]), Some(9));
        assert_eq!(place(COLUMN_MAJOR, [111, 111], [2, 3, 4, 2, 3, 2]), Some(11));
        assert_eq!(place(COLUMN_MAJOR, [111, 111], [2, 3, 4, 2, 4, 1]), Some(14));
        assert_eq!(place(ROW_MAJOR, [111, 111], [-1, 3, 4, 4, 3, 3]), Some(4));
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, -1, 4, 4, 3, 3]), Some(5));
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, 3, -1, 4, 3, 3]), Some(6));
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, 3, 4, 3, 3, 3]), Some(9));
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, 3, 4, 4, 2, 3]), Some(11));
        assert_eq!(place(ROW_MAJOR, [111, 111], [2, 3, 4, 4, 3, 2]), Some(14));
    }

    #[test]
    fn the_upper_half_of_narrow_integers_is_ignored() {
        let junk = |x: i64| x | 0x5A5A_5A5A << 32;
        let call = Arguments {
            layout: ROW_MAJOR,
            transa: 111,
            transb: 112,
            m: junk(2),
            n: junk(3),
            k: junk(4),
            alpha: 1.0,
            a: std::ptr::null(),
            lda: junk(4),
            b: std::ptr::null(),
            ldb: junk(4),
            beta: 0.0,
            c: std::ptr::null_mut(),
            ldc: junk(3),
        };
        let gemm = call.parse(false).unwrap();
        assert_eq!((gemm.m, gemm.n, gemm.k), (3, 2, 4));
    }
}

//! The Fortran spellings of DGEMM.
//!
//! Thirteen arguments are declared: the hidden lengths of the two strings are absent in many C callers, wrong in others, and
//! not needed, since only the first letters count. The native function gets both lengths, as 1.

use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

use super::spelling::{Spelling, spelling};
use super::{Illegal, Pass};
use crate::gemm::{Gemm, Sizes, Transpose};
use crate::native::builtin;
use crate::native::call::Fortran;

/// 'N', 'T' or 'C' in either case; more letters may follow.
fn transpose(letter: u8) -> Option<Transpose> {
    match letter.to_ascii_uppercase() {
        b'N' => Some(Transpose::No),
        b'T' | b'C' => Some(Transpose::Yes),
        _ => None,
    }
}

/// The checks of the reference DGEMM, in its order; Err is the place of the first illegal argument.
pub(crate) fn check(
    ta: Option<Transpose>,
    tb: Option<Transpose>,
    [m, n, k, lda, ldb, ldc]: [i64; 6],
) -> Result<(Transpose, Transpose, Sizes), i32> {
    let ta = ta.ok_or(1)?;
    let tb = tb.ok_or(2)?;
    let size = |value: i64, place: i32| usize::try_from(value).map_err(|_| place);
    let (m, n, k) = (size(m, 3)?, size(n, 4)?, size(k, 5)?);
    let leading = |value: i64, rows: usize, place: i32| {
        usize::try_from(value).ok().filter(|&ld| ld >= rows.max(1)).ok_or(place)
    };
    let lda = leading(lda, if ta == Transpose::No { m } else { k }, 8)?;
    let ldb = leading(ldb, if tb == Transpose::No { k } else { n }, 10)?;
    let ldc = leading(ldc, m, 13)?;
    Ok((ta, tb, Sizes { m, n, k, lda, ldb, ldc }))
}

/// The arguments as they came.
#[derive(Clone, Copy)]
struct Arguments {
    transa: *const c_char,
    transb: *const c_char,
    m: *const c_void,
    n: *const c_void,
    k: *const c_void,
    alpha: *const f64,
    a: *const f64,
    lda: *const c_void,
    b: *const f64,
    ldb: *const c_void,
    beta: *const f64,
    c: *mut f64,
    ldc: *const c_void,
}

impl Arguments {
    /// # Safety
    ///
    /// The pointers of scalars and letters are what a Fortran DGEMM demands.
    unsafe fn parse(&self, wide: bool) -> Result<Gemm, Illegal> {
        // SAFETY: by the contract of this function; nothing needs to be aligned.
        let integer = |at: *const c_void| unsafe {
            if wide {
                at.cast::<i64>().read_unaligned()
            } else {
                i64::from(at.cast::<i32>().read_unaligned())
            }
        };
        // SAFETY: as above.
        let letter = |at: *const c_char| unsafe { transpose(at.cast::<u8>().read()) };
        let numbers = [self.m, self.n, self.k, self.lda, self.ldb, self.ldc].map(integer);
        let (ta, tb, sizes) = check(letter(self.transa), letter(self.transb), numbers)
            .map_err(|place| Illegal { fortran: place, cblas: place + 1 })?;
        // SAFETY: as above.
        let scalars = unsafe { (self.alpha.read_unaligned(), self.beta.read_unaligned()) };
        // Matrices beyond the address space: no place is wrong by the rules, the native BLAS may make of it what it can.
        Gemm::new((ta, tb), sizes, scalars, self.a, self.b, self.c).ok_or(Illegal { fortran: 0, cblas: 0 })
    }

    /// # Safety
    ///
    /// A native function of this signature.
    unsafe fn call(&self, address: NonNull<c_void>) {
        // SAFETY: by the contract of this function.
        unsafe {
            let function = std::mem::transmute::<NonNull<c_void>, Fortran>(address);
            function(
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
                1,
                1,
            );
        }
    }

    /// A call of our own.
    ///
    /// # Safety
    ///
    /// A native function of this signature, with integers of 64 bits if `wide`; the matrices are as a BLAS demands them.
    unsafe fn call_part(call: &Gemm, wide: bool, address: NonNull<c_void>) {
        let ((ta, lda), (tb, ldb)) = (call.a.stored(), call.b.stored());
        // The lines of B are columns: contiguous ones mean that it is not transposed.
        let tb = if tb == Transpose::Yes { Transpose::No } else { Transpose::Yes };
        let letter = |t| if t == Transpose::Yes { c"T".as_ptr() } else { c"N".as_ptr() };
        // They are no larger than what came as such integers.
        let numbers = [call.m, call.n, call.k, lda, ldb, call.c.ld].map(|x| x as i64);
        let narrow = numbers.map(|x| x as i32);
        let at = |i: usize| -> *const c_void {
            if wide { (&raw const numbers[i]).cast() } else { (&raw const narrow[i]).cast() }
        };
        let arguments = Self {
            transa: letter(ta),
            transb: letter(tb),
            m: at(0),
            n: at(1),
            k: at(2),
            alpha: &raw const call.alpha,
            a: call.a.pointer(),
            lda: at(3),
            b: call.b.pointer(),
            ldb: at(4),
            beta: &raw const call.beta,
            c: call.c.pointer(),
            ldc: at(5),
        };
        // SAFETY: by the contract of this function; the arguments live until it returns.
        unsafe { arguments.call(address) };
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
                (Some(address), Pass::Part(part)) => Self::call_part(part, wide, address),
                (Some(address), _) => self.call(address),
                (None, Pass::Part(part)) => builtin::gemm_for_caller(part),
                (None, Pass::Legal(call)) => builtin::gemm_for_caller(call),
                (None, Pass::Illegal(illegal)) => {
                    builtin::xerbla(c"DGEMM ", spelling.xerbla, wide, illegal.fortran);
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
        /// The arguments are what the reference DGEMM demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            transa: *const c_char, transb: *const c_char, m: *const c_void, n: *const c_void, k: *const c_void,
            alpha: *const f64, a: *const f64, lda: *const c_void, b: *const f64, ldb: *const c_void,
            beta: *const f64, c: *mut f64, ldc: *const c_void,
        ) {
            let arguments = Arguments { transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc };
            // SAFETY: by the contract of this function.
            unsafe { arguments.enter(spelling!($name, $width, [$($xerbla),*])) }
        }
    )* };
}

spellings! {
    dgemm_, ByOption, [c"xerbla_"];
    dgemm_64_, Wide, [c"xerbla_64_"];
    dgemm_64, Wide, [c"xerbla_64"];
    dgemm64_, Wide, [c"xerbla64_"];
    scipy_dgemm_, Narrow, [c"scipy_xerbla_", c"xerbla_"];
    scipy_dgemm_64_, Wide, [c"scipy_xerbla_64_", c"xerbla_64_"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_taken_in_any_case() {
        for letter in *b"nN" {
            assert_eq!(transpose(letter), Some(Transpose::No));
        }
        for letter in *b"tTcC" {
            assert_eq!(transpose(letter), Some(Transpose::Yes));
        }
        for letter in *b"xR 01" {
            assert_eq!(transpose(letter), None);
        }
    }

    #[test]
    fn the_first_illegal_argument_is_reported_by_its_place() {
        let (no, yes) = (Some(Transpose::No), Some(Transpose::Yes));
        let place = |ta, tb, numbers| check(ta, tb, numbers).err();
        assert_eq!(place(no, no, [2, 3, 4, 2, 4, 2]), None);
        assert_eq!(place(yes, yes, [2, 3, 4, 4, 3, 2]), None);
        assert_eq!(place(None, None, [-1; 6]), Some(1));
        assert_eq!(place(no, None, [-1; 6]), Some(2));
        assert_eq!(place(no, no, [-1; 6]), Some(3));
        assert_eq!(place(no, no, [2, -1, -1, 0, 0, 0]), Some(4));
        assert_eq!(place(no, no, [2, 3, -1, 0, 0, 0]), Some(5));
        assert_eq!(place(no, no, [2, 3, 4, 1, 0, 0]), Some(8));
        assert_eq!(place(yes, no, [2, 3, 4, 3, 0, 0]), Some(8));
        assert_eq!(place(no, no, [2, 3, 4, 2, 3, 0]), Some(10));
        assert_eq!(place(no, yes, [2, 3, 4, 2, 2, 0]), Some(10));
        assert_eq!(place(no, no, [2, 3, 4, 2, 4, 1]), Some(13));
        assert_eq!(place(no, no, [0, 3, 4, 1, 4, 0]), Some(13));
        assert_eq!(place(no, no, [0, 0, 0, 1, 1, 1]), None);
    }
}

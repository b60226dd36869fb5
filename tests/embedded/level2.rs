//! Matrices and vectors.

use crate::api::{Arguments, C64, Interface, Number};
use crate::common::Random;
use crate::model::real_beside_nan;
use crate::model::{Dense, Form, NAN, Stored, ZERO, assert_unchanged, factor, integer, of_triangle, pick};
use crate::{C32, call, for_all};

const INCREMENTS: [i64; 5] = [1, 1, -1, 2, -3];
const TRIALS: u64 = 60;

fn size(random: &mut Random) -> usize {
    let most = if random.below(8) == 0 { 40 } else { 8 };
    random.below(most) as usize
}

fn vector<T: Number>(random: &mut Random, n: usize) -> Vec<C64> {
    (0..n).map(|_| integer::<T>(random)).collect()
}

/// The vector that beta = 0 does not read.
fn before(beta: C64, y: &[C64]) -> Vec<C64> {
    if beta == ZERO { vec![NAN; y.len()] } else { y.to_vec() }
}

fn name<T: Number>(real: &str, complex: &str) -> String {
    format!("{}{}", T::LETTER, if T::COMPLEX { complex } else { real })
}

fn general<T: Number>(interface: Interface, band: bool) {
    let random = &mut Random(1);
    for _ in 0..TRIALS {
        let (m, n) = (size(random), size(random));
        let (kl, ku) = if band { (random.below(5) as usize, random.below(5) as usize) } else { (99, 99) };
        let trans = pick(random, b"NTC");
        let (alpha, beta) = (factor::<T>(random), factor::<T>(random));
        let (incx, incy) = (pick(random, &INCREMENTS), pick(random, &INCREMENTS));
        let inside = |i: usize, j: usize| i <= j + kl && j <= i + ku;
        let a = Dense::random::<T>(random, m, n);
        let a = Dense::new(m, n, |i, j| if inside(i, j) { a.at(i, j) } else { ZERO });
        let (long_x, long_y) = if trans == b'N' { (n, m) } else { (m, n) };
        let (x, y) = (vector::<T>(random, long_x), vector::<T>(random, long_y));
        let form = if band { Form::Band(kl, ku) } else { Form::Full };
        let stored =
            Stored::<T>::new(interface.row_major, form, (m, n), |i, j| inside(i, j).then(|| a.at(i, j)));
        let stored_x = Stored::<T>::vector(&x, incx);
        let idle = m == 0 || n == 0;
        let mut stored_y = Stored::<T>::vector(&if idle { y.clone() } else { before(beta, &y) }, incy);
        let (at, at_x, at_y) = (stored.data.as_ptr(), stored_x.data.as_ptr(), stored_y.data.as_mut_ptr());
        let kept = stored.clone();
        if band {
            call!(interface, T, format!("{}gbmv", T::LETTER), [
                trans trans, int m, int n, int kl, int ku, scalar alpha, at at, int stored.ld, at at_x, int incx,
                scalar beta, at at_y, int incy,
            ]);
        } else {
            call!(interface, T, format!("{}gemv", T::LETTER), [
                trans trans, int m, int n, scalar alpha, at at, int stored.ld, at at_x, int incx,
                scalar beta, at at_y, int incy,
            ]);
        }
        let (product, y) = (a.op(trans).times(&Dense::column(&x)).scaled(alpha), Dense::column(&y));
        let what = (interface, trans as char, m, n, (kl, ku), alpha, beta, incx, incy);
        // Without a column or a row not even beta is applied.
        stored_y.check(&if idle { y } else { product.plus(&y.scaled(beta)) }, &what);
        assert_unchanged(&stored, &kept, &what);
    }
}

#[test]
fn gemv_and_gbmv_are_the_product() {
    for_all!(general(false), f32, f64, C32, C64);
    for_all!(general(true), f32, f64, C32, C64);
}

fn ger<T: Number>(interface: Interface, conjugate: bool) {
    let random = &mut Random(2);
    for _ in 0..TRIALS {
        let (m, n, alpha) = (size(random), size(random), factor::<T>(random));
        let (incx, incy) = (pick(random, &INCREMENTS), pick(random, &INCREMENTS));
        let (x, y) = (vector::<T>(random, m), vector::<T>(random, n));
        let a = Dense::random::<T>(random, m, n);
        let mut stored = Stored::<T>::full(interface.row_major, &a);
        let (stored_x, stored_y) = (Stored::<T>::vector(&x, incx), Stored::<T>::vector(&y, incy));
        call!(interface, T, name::<T>("ger", if conjugate { "gerc" } else { "geru" }), [
            int m, int n, scalar alpha, at stored_x.data.as_ptr(), int incx, at stored_y.data.as_ptr(), int incy,
            at stored.data.as_mut_ptr(), int stored.ld,
        ]);
        let y = Dense::column(&y).op(if conjugate { b'C' } else { b'T' });
        let what = (interface, m, n, alpha, incx, incy, conjugate);
        stored.check(&Dense::column(&x).times(&y).scaled(alpha).plus(&a), &what);
    }
}

#[test]
fn ger_is_the_outer_product() {
    for_all!(ger(false), f32, f64, C32, C64);
    for_all!(ger(true), C32, C64);
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Full,
    Band,
    Packed,
}

const KINDS: [Kind; 3] = [Kind::Full, Kind::Band, Kind::Packed];

impl Kind {
    fn form(self, upper: bool, reach: usize) -> Form {
        match self {
            Self::Full => Form::Full,
            Self::Band if upper => Form::Band(0, reach),
            Self::Band => Form::Band(reach, 0),
            Self::Packed => Form::Packed(upper),
        }
    }

    fn reach(self, random: &mut Random) -> usize {
        if self == Self::Band { random.below(5) as usize } else { usize::MAX }
    }
}

fn hemv<T: Number>(interface: Interface, kind: Kind) {
    let random = &mut Random(3);
    for _ in 0..TRIALS {
        let (n, uplo, reach) = (size(random), pick(random, b"UL"), kind.reach(random));
        let (alpha, beta) = (factor::<T>(random), factor::<T>(random));
        let (incx, incy) = (pick(random, &INCREMENTS), pick(random, &INCREMENTS));
        let a = Dense::symmetric::<T>(random, n, true);
        let a = Dense::new(n, n, |i, j| if i.abs_diff(j) <= reach { a.at(i, j) } else { ZERO });
        let (x, y) = (vector::<T>(random, n), vector::<T>(random, n));
        let form = kind.form(uplo == b'U', reach);
        let triangle = of_triangle(&a, uplo == b'U', reach, real_beside_nan);
        let stored = Stored::<T>::new(interface.row_major, form, (n, n), triangle);
        let stored_x = Stored::<T>::vector(&x, incx);
        let mut stored_y = Stored::<T>::vector(&before(beta, &y), incy);
        let (at, at_x, at_y) = (stored.data.as_ptr(), stored_x.data.as_ptr(), stored_y.data.as_mut_ptr());
        match kind {
            Kind::Full => call!(interface, T, name::<T>("symv", "hemv"), [
                uplo uplo, int n, scalar alpha, at at, int stored.ld, at at_x, int incx, scalar beta, at at_y, int incy,
            ]),
            Kind::Band => call!(interface, T, name::<T>("sbmv", "hbmv"), [
                uplo uplo, int n, int reach, scalar alpha, at at, int stored.ld, at at_x, int incx,
                scalar beta, at at_y, int incy,
            ]),
            Kind::Packed => call!(interface, T, name::<T>("spmv", "hpmv"), [
                uplo uplo, int n, scalar alpha, at at, at at_x, int incx, scalar beta, at at_y, int incy,
            ]),
        }
        let product = a.times(&Dense::column(&x)).scaled(alpha);
        let what = (interface, kind, uplo as char, n, reach, alpha, beta, incx, incy);
        stored_y.check(&product.plus(&Dense::column(&y).scaled(beta)), &what);
    }
}

#[test]
fn hemv_reads_one_triangle() {
    for kind in KINDS {
        for_all!(hemv(kind), f32, f64, C32, C64);
    }
}

fn trmv<T: Number>(interface: Interface, kind: Kind, solve: bool) {
    let random = &mut Random(4);
    for _ in 0..TRIALS {
        let (n, uplo, reach) = (size(random), pick(random, b"UL"), kind.reach(random));
        let (trans, diag, incx) = (pick(random, b"NTC"), pick(random, b"NU"), pick(random, &INCREMENTS));
        let a = Dense::triangle::<T>(random, n, uplo == b'U', diag == b'U', reach);
        let x = Dense::column(&vector::<T>(random, n));
        let product = a.op(trans).times(&x);
        let (given, want) = if solve { (product, x) } else { (x, product) };
        let given: Vec<C64> = (0..n).map(|i| given.at(i, 0)).collect();
        let triangle = of_triangle(&a, uplo == b'U', reach, |x| (diag == b'N').then_some(x));
        let form = kind.form(uplo == b'U', reach);
        let stored = Stored::<T>::new(interface.row_major, form, (n, n), triangle);
        let mut stored_x = Stored::<T>::vector(&given, incx);
        let (at, at_x) = (stored.data.as_ptr(), stored_x.data.as_mut_ptr());
        let end = if solve { "sv" } else { "mv" };
        match kind {
            Kind::Full => call!(interface, T, format!("{}tr{end}", T::LETTER), [
                uplo uplo, trans trans, diag diag, int n, at at, int stored.ld, at at_x, int incx,
            ]),
            Kind::Band => call!(interface, T, format!("{}tb{end}", T::LETTER), [
                uplo uplo, trans trans, diag diag, int n, int reach, at at, int stored.ld, at at_x, int incx,
            ]),
            Kind::Packed => call!(interface, T, format!("{}tp{end}", T::LETTER), [
                uplo uplo, trans trans, diag diag, int n, at at, at at_x, int incx,
            ]),
        }
        let what = (interface, kind, uplo as char, trans as char, diag as char, n, reach, incx, solve);
        stored_x.check(&want, &what);
    }
}

#[test]
fn trmv_is_the_product_and_trsv_its_inverse() {
    for kind in KINDS {
        for_all!(trmv(kind, false), f32, f64, C32, C64);
        for_all!(trmv(kind, true), f32, f64, C32, C64);
    }
}

/// Updates of rank 1 (with one vector) and 2 (with two).
fn update<T: Number>(interface: Interface, packed: bool, two: bool) {
    let random = &mut Random(5);
    for _ in 0..TRIALS {
        let (n, uplo, mut alpha) = (size(random), pick(random, b"UL"), factor::<T>(random));
        if !two {
            alpha.im = 0.0;
        }
        let (incx, incy) = (pick(random, &INCREMENTS), pick(random, &INCREMENTS));
        let (x, y) = (vector::<T>(random, n), vector::<T>(random, n));
        let a = Dense::symmetric::<T>(random, n, true);
        let form = if packed { Form::Packed(uplo == b'U') } else { Form::Full };
        // Where nothing is to be done, not even the diagonal is made real.
        let diagonal = |x| if alpha == ZERO { Some(x) } else { real_beside_nan(x) };
        let triangle = of_triangle(&a, uplo == b'U', usize::MAX, diagonal);
        let mut stored = Stored::<T>::new(interface.row_major, form, (n, n), triangle);
        let (stored_x, stored_y) = (Stored::<T>::vector(&x, incx), Stored::<T>::vector(&y, incy));
        let (at, at_x, at_y) = (stored.data.as_mut_ptr(), stored_x.data.as_ptr(), stored_y.data.as_ptr());
        match (packed, two) {
            (false, false) => call!(interface, T, name::<T>("syr", "her"), [
                uplo uplo, int n, real alpha.re, at at_x, int incx, at at, int stored.ld,
            ]),
            (true, false) => call!(interface, T, name::<T>("spr", "hpr"), [
                uplo uplo, int n, real alpha.re, at at_x, int incx, at at,
            ]),
            (false, true) => call!(interface, T, name::<T>("syr2", "her2"), [
                uplo uplo, int n, scalar alpha, at at_x, int incx, at at_y, int incy, at at, int stored.ld,
            ]),
            (true, true) => call!(interface, T, name::<T>("spr2", "hpr2"), [
                uplo uplo, int n, scalar alpha, at at_x, int incx, at at_y, int incy, at at,
            ]),
        }
        let (x, y) = (Dense::column(&x), Dense::column(&y));
        let products = if two {
            x.times(&y.op(b'C')).scaled(alpha).plus(&y.times(&x.op(b'C')).scaled(alpha.conj()))
        } else {
            x.times(&x.op(b'C')).scaled(alpha)
        };
        let what = (interface, uplo as char, n, alpha, incx, incy, packed, two);
        stored.check(&products.plus(&a), &what);
    }
}

#[test]
fn updates_write_one_triangle() {
    for packed in [false, true] {
        for_all!(update(packed, false), f32, f64, C32, C64);
        for_all!(update(packed, true), f32, f64, C32, C64);
    }
}

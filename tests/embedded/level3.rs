//! Products of matrices.

use crate::api::{Arguments, INTERFACES, Interface, Number};
use crate::common::Random;
use crate::model::{Dense, Form, NAN, ONE, Stored, ZERO, assert_unchanged, factor, integer, of_triangle};
use crate::model::{pick, real_beside_nan};
use crate::{C32, call, for_all};

/// Mostly small ones; some of several blocks, and of those that the kernels of the builtin DGEMM take.
fn size(random: &mut Random, trial: u64) -> usize {
    if trial < 12 { random.below(7) as usize } else { 30 + random.below(45) as usize }
}

fn name<T: Number>(stem: &str) -> String {
    format!("{}{stem}", T::LETTER)
}

/// C for a routine: NaN where beta = 0 must not read it.
fn before(beta: crate::api::C64, c: &Dense) -> Dense {
    if beta == ZERO { Dense::new(c.rows, c.columns, |_, _| NAN) } else { c.clone() }
}

fn stored_for_op(random: &mut Random, letter: u8, rows: usize, columns: usize, complex: bool) -> Dense {
    let (rows, columns) = if letter == b'N' { (rows, columns) } else { (columns, rows) };
    if complex {
        Dense::random::<C32>(random, rows, columns)
    } else {
        Dense::random::<f32>(random, rows, columns)
    }
}

fn gemm<T: Number>(interface: Interface) {
    let random = &mut Random(1);
    for trial in 0..16 {
        let (m, n, k) = (size(random, trial), size(random, trial), size(random, trial));
        let (ta, tb) = (pick(random, b"NTC"), pick(random, b"NTC"));
        let (alpha, beta) = (factor::<T>(random), factor::<T>(random));
        let a = stored_for_op(random, ta, m, k, T::COMPLEX);
        let b = stored_for_op(random, tb, k, n, T::COMPLEX);
        let c = Dense::random::<T>(random, m, n);
        let row = interface.row_major;
        // For alpha = 0 nothing but C is read.
        let shown =
            |x: &Dense| if alpha == ZERO { Dense::new(x.rows, x.columns, |_, _| NAN) } else { x.clone() };
        let (stored_a, stored_b) = (Stored::<T>::full(row, &shown(&a)), Stored::<T>::full(row, &shown(&b)));
        let mut stored_c = Stored::<T>::full(row, &before(beta, &c));
        let (kept_a, kept_b) = (stored_a.clone(), stored_b.clone());
        call!(interface, T, name::<T>("gemm"), [
            trans ta, trans tb, int m, int n, int k, scalar alpha, at stored_a.data.as_ptr(), int stored_a.ld,
            at stored_b.data.as_ptr(), int stored_b.ld, scalar beta, at stored_c.data.as_mut_ptr(), int stored_c.ld,
        ]);
        let what = (interface, ta as char, tb as char, m, n, k, alpha, beta);
        stored_c.check(&a.op(ta).times(&b.op(tb)).scaled(alpha).plus(&c.scaled(beta)), &what);
        assert_unchanged(&stored_a, &kept_a, &what);
        assert_unchanged(&stored_b, &kept_b, &what);
    }
}

#[test]
fn gemm_is_the_product() {
    for_all!(gemm(), f32, C32, crate::api::C64);
}

fn symm<T: Number>(interface: Interface, hermitian: bool) {
    let random = &mut Random(2);
    for trial in 0..16 {
        let (m, n) = (size(random, trial), size(random, trial));
        let (side, uplo) = (pick(random, b"LR"), pick(random, b"UL"));
        let (alpha, beta) = (factor::<T>(random), factor::<T>(random));
        let order = if side == b'L' { m } else { n };
        let a = Dense::symmetric::<T>(random, order, hermitian);
        let (b, c) = (Dense::random::<T>(random, m, n), Dense::random::<T>(random, m, n));
        let row = interface.row_major;
        let diagonal = |x| if hermitian { real_beside_nan(x) } else { Some(x) };
        let triangle = of_triangle(&a, uplo == b'U', usize::MAX, diagonal);
        let stored_a = Stored::<T>::new(row, Form::Full, (order, order), triangle);
        let stored_b = Stored::<T>::full(row, &b);
        let mut stored_c = Stored::<T>::full(row, &before(beta, &c));
        call!(interface, T, name::<T>(if hermitian { "hemm" } else { "symm" }), [
            side side, uplo uplo, int m, int n, scalar alpha, at stored_a.data.as_ptr(), int stored_a.ld,
            at stored_b.data.as_ptr(), int stored_b.ld, scalar beta, at stored_c.data.as_mut_ptr(), int stored_c.ld,
        ]);
        let product = if side == b'L' { a.times(&b) } else { b.times(&a) };
        let what = (interface, side as char, uplo as char, m, n, alpha, beta);
        stored_c.check(&product.scaled(alpha).plus(&c.scaled(beta)), &what);
    }
}

#[test]
fn symm_reads_one_triangle() {
    for_all!(symm(false), f32, f64, C32, crate::api::C64);
    for_all!(symm(true), C32, crate::api::C64);
}

/// Updates of rank k (with one matrix) and 2k (with two).
fn update<T: Number>(interface: Interface, hermitian: bool, two: bool) {
    let random = &mut Random(3);
    for trial in 0..16 {
        let (n, k) = (size(random, trial), size(random, trial));
        let letters: &[u8] = match (T::COMPLEX, hermitian) {
            (false, _) => b"NTC",
            (true, false) => b"NT",
            (true, true) => b"NC",
        };
        let (uplo, trans) = (pick(random, b"UL"), pick(random, letters));
        let (mut alpha, mut beta) = (factor::<T>(random), factor::<T>(random));
        if hermitian {
            beta.im = 0.0;
            if !two {
                alpha.im = 0.0;
            }
        }
        let a = stored_for_op(random, trans, n, k, T::COMPLEX);
        let b = stored_for_op(random, trans, n, k, T::COMPLEX);
        let c = Dense::symmetric::<T>(random, n, hermitian);
        let row = interface.row_major;
        let (stored_a, stored_b) = (Stored::<T>::full(row, &a), Stored::<T>::full(row, &b));
        let shown = before(beta, &c);
        // Where nothing is to be done, not even the diagonal is made real.
        let idle = n == 0 || ((alpha == ZERO || k == 0) && beta == ONE);
        let diagonal = |x| if hermitian && !idle { real_beside_nan(x) } else { Some(x) };
        let triangle = of_triangle(&shown, uplo == b'U', usize::MAX, diagonal);
        let mut stored_c = Stored::<T>::new(row, Form::Full, (n, n), triangle);
        let (at_a, at_b, at_c) = (stored_a.data.as_ptr(), stored_b.data.as_ptr(), stored_c.data.as_mut_ptr());
        let (lda, ldb, ldc) = (stored_a.ld, stored_b.ld, stored_c.ld);
        match (hermitian, two) {
            (false, false) => call!(interface, T, name::<T>("syrk"), [
                uplo uplo, trans trans, int n, int k, scalar alpha, at at_a, int lda, scalar beta, at at_c, int ldc,
            ]),
            (true, false) => call!(interface, T, name::<T>("herk"), [
                uplo uplo, trans trans, int n, int k, real alpha.re, at at_a, int lda, real beta.re, at at_c, int ldc,
            ]),
            (false, true) => call!(interface, T, name::<T>("syr2k"), [
                uplo uplo, trans trans, int n, int k, scalar alpha, at at_a, int lda, at at_b, int ldb,
                scalar beta, at at_c, int ldc,
            ]),
            (true, true) => call!(interface, T, name::<T>("her2k"), [
                uplo uplo, trans trans, int n, int k, scalar alpha, at at_a, int lda, at at_b, int ldb,
                real beta.re, at at_c, int ldc,
            ]),
        }
        let mirror = if hermitian { b'C' } else { b'T' };
        let (x, y) = (a.op(trans), b.op(trans));
        let products = if two {
            let conjugate = if hermitian { alpha.conj() } else { alpha };
            x.times(&y.op(mirror)).scaled(alpha).plus(&y.times(&x.op(mirror)).scaled(conjugate))
        } else {
            x.times(&x.op(mirror)).scaled(alpha)
        };
        let what = (interface, uplo as char, trans as char, n, k, alpha, beta, two);
        stored_c.check(&products.plus(&c.scaled(beta)), &what);
    }
}

#[test]
fn updates_of_rank_k_write_one_triangle() {
    for two in [false, true] {
        for_all!(update(false, two), f32, f64, C32, crate::api::C64);
        for_all!(update(true, two), C32, crate::api::C64);
    }
}

fn triangular<T: Number>(interface: Interface, solve: bool) {
    let random = &mut Random(4);
    for trial in 0..16 {
        // The inverse of a large triangle of integers has large entries, but its product with what it is to give has not.
        let (m, n) = (size(random, trial), size(random, trial));
        let (side, uplo) = (pick(random, b"LR"), pick(random, b"UL"));
        let (trans, diag) = (pick(random, b"NTC"), pick(random, b"NU"));
        let order = if side == b'L' { m } else { n };
        let a = Dense::triangle::<T>(random, order, uplo == b'U', diag == b'U', usize::MAX);
        let x = Dense::random::<T>(random, m, n);
        let alpha = if trial == 0 { ZERO } else { pick(random, &[ONE, -ONE, ONE * 2.0]) };
        let product = if side == b'L' { a.op(trans).times(&x) } else { x.times(&a.op(trans)) };
        let (given, want) = if solve { (product, x) } else { (x, product) };
        let row = interface.row_major;
        let diagonal = |x| (diag == b'N').then_some(x);
        let triangle = of_triangle(&a, uplo == b'U', usize::MAX, diagonal);
        let stored_a = Stored::<T>::new(row, Form::Full, (order, order), triangle);
        let mut stored_b = Stored::<T>::full(row, &before(alpha, &given));
        call!(interface, T, name::<T>(if solve { "trsm" } else { "trmm" }), [
            side side, uplo uplo, trans trans, diag diag, int m, int n, scalar alpha,
            at stored_a.data.as_ptr(), int stored_a.ld, at stored_b.data.as_mut_ptr(), int stored_b.ld,
        ]);
        let what = (interface, side as char, uplo as char, trans as char, diag as char, m, n, alpha);
        stored_b.check(&want.scaled(alpha), &what);
    }
}

#[test]
fn trmm_is_the_product_and_trsm_its_inverse() {
    for solve in [false, true] {
        for_all!(triangular(solve), f32, f64, C32, crate::api::C64);
    }
}

fn illegal<T: Number>(interface: Interface) {
    let before = Stored::<T>::full(false, &Dense::random::<T>(&mut Random(5), 4, 4));
    let mut c = before.clone();
    let one = integer::<T>(&mut Random(6));
    let (at, ld) = (before.data.as_ptr(), before.ld);
    let at_c = c.data.as_mut_ptr();
    for (m, n, lda, trans) in [(-1, 4, ld, b'N'), (4, -1, ld, b'N'), (4, 4, 3, b'N'), (4, 4, ld, b'X')] {
        call!(interface, T, name::<T>("symm"), [
            side if trans == b'X' { trans } else { b'L' }, uplo b'U', int m, int n, scalar one, at at, int lda,
            at at, int ld, scalar one, at at_c, int ld,
        ]);
        call!(interface, T, name::<T>("syrk"), [
            uplo b'U', trans trans, int m, int n, scalar one, at at, int lda, scalar one, at at_c, int ld,
        ]);
        call!(interface, T, name::<T>("trmm"), [
            side b'L', uplo b'U', trans trans, diag b'N', int m, int n, scalar one, at at, int lda, at at_c, int ld,
        ]);
        call!(interface, T, name::<T>("gemv"), [
            trans trans, int m, int n, scalar one, at at, int lda, at at, int 1, scalar one, at at_c, int 1,
        ]);
    }
    assert_unchanged(&c, &before, &interface);
}

#[test]
fn illegal_arguments_do_nothing() {
    // Each says a line to stderr that no test harness takes away: in two interfaces, for two types.
    for interface in [INTERFACES[0], INTERFACES[5]] {
        illegal::<f64>(interface);
        illegal::<C32>(interface);
    }
}

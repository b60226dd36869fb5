//! Vectors, and rotations.

use crate::api::{Arguments, C64, Interface, Number};
use crate::common::Random;
use crate::model::{Dense, ONE, Stored, ZERO, factor, integer, pick};
use crate::{C32, call_level1, for_all};

const INCREMENTS: [i64; 5] = [1, 1, -1, 2, -3];
const TRIALS: u64 = 40;

fn vector<T: Number>(random: &mut Random, n: usize) -> Vec<C64> {
    (0..n).map(|_| integer::<T>(random)).collect()
}

fn name<T: Number>(stem: &str) -> String {
    format!("{}{stem}", T::LETTER)
}

/// The names of routines with real numbers beside complex vectors.
fn mixed<T: Number>(real: &str, complex: [&str; 2]) -> String {
    match T::LETTER {
        "c" => complex[0].to_owned(),
        "z" => complex[1].to_owned(),
        letter => format!("{letter}{real}"),
    }
}

fn same(values: impl IntoIterator<Item = C64>) -> Dense {
    Dense::column(&values.into_iter().collect::<Vec<_>>())
}

fn pairs<T: Number>(interface: Interface) {
    let random = &mut Random(1);
    for _ in 0..TRIALS {
        let n = random.below(20) as usize;
        let (incx, incy) = (pick(random, &INCREMENTS), pick(random, &INCREMENTS));
        let (x, y, alpha) = (vector::<T>(random, n), vector::<T>(random, n), factor::<T>(random));
        let start = || (Stored::<T>::vector(&x, incx), Stored::<T>::vector(&y, incy));
        let what = (interface, n, incx, incy, alpha);
        let zip = |f: &dyn Fn(C64, C64) -> C64| same(x.iter().zip(&y).map(|(&x, &y)| f(x, y)));

        let (sx, mut sy) = start();
        let (at_x, at_y) = (sx.data.as_ptr(), sy.data.as_mut_ptr());
        call_level1!(interface, T, (), name::<T>("axpy"), [int n, scalar alpha, at at_x, int incx, at at_y, int incy]);
        sy.check(&zip(&|x, y| y + alpha * x), &what);

        let (sx, mut sy) = start();
        let (at_x, at_y) = (sx.data.as_ptr(), sy.data.as_mut_ptr());
        call_level1!(interface, T, (), name::<T>("copy"), [int n, at at_x, int incx, at at_y, int incy]);
        sy.check(&zip(&|x, _| x), &what);

        let (mut sx, mut sy) = start();
        let (at_x, at_y) = (sx.data.as_mut_ptr(), sy.data.as_mut_ptr());
        call_level1!(interface, T, (), name::<T>("swap"), [int n, at at_x, int incx, at at_y, int incy]);
        sx.check(&zip(&|_, y| y), &what);
        sy.check(&zip(&|x, _| x), &what);

        let (mut sx, mut sy) = start();
        let (at_x, at_y, c, s) = (sx.data.as_mut_ptr(), sy.data.as_mut_ptr(), 2.0, -3.0);
        let routine = mixed::<T>("rot", ["csrot", "zdrot"]);
        call_level1!(interface, T, (), routine, [int n, at at_x, int incx, at at_y, int incy, real c, real s]);
        sx.check(&zip(&|x, y| x * c + y * s), &what);
        sy.check(&zip(&|x, y| y * c - x * s), &what);

        let (sx, sy) = start();
        let (at_x, at_y) = (sx.data.as_ptr(), sy.data.as_ptr());
        for conjugate in [false, true] {
            if conjugate && !T::COMPLEX {
                continue;
            }
            let stem = if !T::COMPLEX {
                "dot"
            } else if conjugate {
                "dotc"
            } else {
                "dotu"
            };
            let got = if T::COMPLEX && interface.cblas {
                let (mut out, routine) = (T::of(ZERO), format!("{}_sub", name::<T>(stem)));
                let to = &raw mut out;
                call_level1!(interface, T, (), routine, [int n, at at_x, int incx, at at_y, int incy, at to]);
                out
            } else {
                call_level1!(interface, T, T, name::<T>(stem), [int n, at at_x, int incx, at at_y, int incy])
            };
            let want: C64 = x.iter().zip(&y).map(|(x, y)| if conjugate { x.conj() * y } else { x * y }).sum();
            assert_eq!(got.value(), want, "{conjugate} {what:?}");
        }
    }
}

#[test]
fn pairs_of_vectors() {
    for_all!(pairs(), f32, f64, C32, C64);
}

fn single<T: Number>(interface: Interface) {
    let random = &mut Random(2);
    for _ in 0..TRIALS {
        let (n, incx) = (random.below(20) as usize, pick(random, &INCREMENTS));
        let (x, alpha) = (vector::<T>(random, n), factor::<T>(random));
        let what = (interface, n, incx, alpha);
        // Of most of these, increments that are not positive make nothing.
        let seen: &[C64] = if incx > 0 { &x } else { &[] };
        let abs1 = |x: &C64| x.re.abs() + x.im.abs();

        let mut sx = Stored::<T>::vector(&x, incx);
        let at = sx.data.as_mut_ptr();
        call_level1!(interface, T, (), name::<T>("scal"), [int n, scalar alpha, at at, int incx]);
        let factor = if incx > 0 { alpha } else { ONE };
        sx.check(&same(x.iter().map(|x| x * factor)), &what);

        let mut sx = Stored::<T>::vector(&x, incx);
        let at = sx.data.as_mut_ptr();
        let routine = mixed::<T>("scal", ["csscal", "zdscal"]);
        call_level1!(interface, T, (), routine, [int n, real alpha.re, at at, int incx]);
        let factor = if incx > 0 { alpha.re } else { 1.0 };
        // Of real types this is the same routine, with the real part of alpha.
        sx.check(&same(x.iter().map(|x| x * factor)), &what);

        let sx = Stored::<T>::vector(&x, incx);
        let at = sx.data.as_ptr();
        let routine = mixed::<T>("asum", ["scasum", "dzasum"]);
        let sum: f64 = call_level1!(interface, T, T::Real, routine, [int n, at at, int incx]).into();
        assert_eq!(sum, seen.iter().map(abs1).sum::<f64>(), "{what:?}");

        let largest = seen.iter().map(abs1).fold(0.0, f64::max);
        let place = seen.iter().position(|x| abs1(x) == largest);
        let routine = format!("i{}amax", T::LETTER);
        if interface.cblas {
            let got = call_level1!(interface, T, usize, routine, [int n, at at, int incx]);
            assert_eq!(got, place.unwrap_or(0), "{what:?}");
        } else {
            let want = place.map_or(0, |place| place as i32 + 1);
            // The upper half of a wide result is tested by the wide type.
            let got = if interface.wide {
                call_level1!(interface, T, i64, routine, [int n, at at, int incx])
            } else {
                call_level1!(interface, T, i32, routine, [int n, at at, int incx]).into()
            };
            assert_eq!(got, i64::from(want), "{what:?}");
        }
        nrm2_is::<T>(interface, &x, incx, x.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt());
    }
}

#[test]
fn single_vectors() {
    for_all!(single(), f32, f64, C32, C64);
}

fn nrm2_is<T: Number>(interface: Interface, x: &[C64], incx: i64, want: f64) {
    let sx = Stored::<T>::vector(x, incx);
    let (n, at) = (x.len(), sx.data.as_ptr());
    let routine = mixed::<T>("nrm2", ["scnrm2", "dznrm2"]);
    let got: f64 = call_level1!(interface, T, T::Real, routine, [int n, at at, int incx]).into();
    let close =
        got == want || (got - want).abs() <= 4.0 * T::EPSILON * want || (got.is_nan() && want.is_nan());
    assert!(close, "{} {x:?} {incx}: {got:e}, not {want:e}", T::LETTER);
}

/// Lengths whose squares no number can be.
fn extremes<T: Number>(interface: Interface) {
    let (large, small) = if T::EPSILON < 1e-10 { (1e305, 1e-300) } else { (1e37, 1e-35) };
    let real = |values: &[f64]| -> Vec<C64> { values.iter().map(|&x| x.into()).collect() };
    for incx in [1, -2] {
        nrm2_is::<T>(interface, &real(&[3.0 * large, 4.0 * large]), incx, 5.0 * large);
        nrm2_is::<T>(interface, &real(&[3.0 * small, -4.0 * small]), incx, 5.0 * small);
        nrm2_is::<T>(interface, &real(&[small, 3.0, 4.0, small]), incx, 5.0);
        nrm2_is::<T>(interface, &real(&[small, 3.0 * large, 1.0, -4.0 * large]), incx, 5.0 * large);
        nrm2_is::<T>(interface, &real(&[1.0, f64::NAN, small]), incx, f64::NAN);
        nrm2_is::<T>(interface, &real(&[1.0, f64::INFINITY, small]), incx, f64::INFINITY);
        nrm2_is::<T>(interface, &[], incx, 0.0);
    }
    if T::COMPLEX {
        nrm2_is::<T>(interface, &[C64::new(3.0 * small, 4.0 * small)], 1, 5.0 * small);
    }
    for (a, b) in [
        (3.0, 4.0),
        (-4.0, 3.0),
        (0.0, 2.0),
        (2.0, 0.0),
        (3.0 * large, 4.0 * large),
        (small, large),
        (large, small),
        (4.0 * small, 3.0 * small),
        (0.0, 0.0),
    ] {
        rotation::<T>(interface, a, b);
    }
}

fn rotation<T: Number>(interface: Interface, a: f64, b: f64) {
    let turn = if T::COMPLEX { C64::new(0.6, -0.8) } else { ONE };
    let (a, b) = (turn * a, if T::COMPLEX { C64::new(0.0, b) } else { b.into() });
    let (mut new_a, mut new_b, mut c, mut s) = (T::of(a), T::of(b), T::real(7.0), T::of(ONE));
    let (to_a, to_b, to_c, to_s) = (&raw mut new_a, &raw mut new_b, &raw mut c, &raw mut s);
    call_level1!(interface, T, (), name::<T>("rotg"), [at to_a, at to_b, at to_c, at to_s]);
    let (c, s, r): (f64, C64, C64) = (c.into(), s.value(), new_a.value());
    // In units of the larger one.
    let unit = a.l1_norm().max(b.l1_norm()).max(f64::MIN_POSITIVE);
    let (a, b, r) = (a / unit, b / unit, r / unit);
    let small = |x: C64| x.l1_norm() < 16.0 * T::EPSILON;
    let what = format!("{} {a} {b}: c = {c}, s = {s}, r = {r}", T::LETTER);
    assert!(small((c * c + s.norm_sqr() - 1.0).into()), "{what}");
    assert!(small(a * c + b * s - r), "{what}");
    assert!(small(b * c - a * s.conj()), "{what}");
    if !T::COMPLEX {
        let z = new_b.value().re;
        let (want_c, want_s) = match z.abs() {
            1.0 => (0.0, 1.0),
            size if size < 1.0 => ((1.0 - z * z).sqrt(), z),
            _ => (1.0 / z, (1.0 - 1.0 / (z * z)).sqrt()),
        };
        assert!(small((want_c - c).into()) && small((want_s - s.re).into()), "{what} z = {z}");
    }
}

#[test]
fn norms_and_rotations_of_any_size() {
    for_all!(extremes(), f32, f64, C32, C64);
}

fn modified<T: Number>(interface: Interface) {
    let random = &mut Random(3);
    for trial in 0..400 {
        // Factors so far from 1 that they are scaled, in double precision more than once; in single that would underflow.
        let most = if T::EPSILON < 1e-10 { 75 } else { 40 };
        let mut d = || random.uniform().abs() * 2f64.powi(random.below(2 * most) as i32 - most as i32);
        let (d1, d2) = (d(), if trial % 7 == 0 { -d() } else { d() });
        let (x, y) = (random.uniform(), if trial % 11 == 0 { 0.0 } else { random.uniform() });
        let [d1, d2, x, y] = [d1, d2, x, y].map(|x| T::of(x.into()));
        let (mut new_d1, mut new_d2, mut new_x, mut h) = (d1, d2, x, [T::of(C64::new(9.0, 0.0)); 5]);
        let (to_d1, to_d2, to_x, to_h) = (&raw mut new_d1, &raw mut new_d2, &raw mut new_x, h.as_mut_ptr());
        let y1 = y.value().re;
        call_level1!(interface, T, (), name::<T>("rotmg"), [at to_d1, at to_d2, at to_x, real y1, at to_h]);
        let flag = h[0].value().re;
        // The rotation as a matrix, by rotm.
        let (mut first, mut second) = ([T::of(ONE), T::of(ZERO)], [T::of(ZERO), T::of(ONE)]);
        let (n, one, at_first, at_second, at_h) = (2, 1, first.as_mut_ptr(), second.as_mut_ptr(), h.as_ptr());
        call_level1!(interface, T, (), name::<T>("rotm"), [
            int n, at at_first, int one, at at_second, int one, at at_h,
        ]);
        let [d1, d2, x, y] = [d1, d2, x, y].map(|x| x.value().re);
        let [e1, e2, r] = [new_d1, new_d2, new_x].map(|x| x.value().re);
        let ([h11, h12], [h21, h22]) = (first.map(|x| x.value().re), second.map(|x| x.value().re));
        let what = (interface, T::LETTER, [d1, d2, x, y], flag, [h11, h12, h21, h22], [e1, e2, r]);
        if d2 * y == 0.0 {
            assert_eq!((flag, [h11, h12, h21, h22], [e1, e2, r]), (-2.0, [1.0, 0.0, 0.0, 1.0], [d1, d2, x]));
        } else if e1 == 0.0 {
            // No such rotation: the length would not be real.
            assert!(d2 < 0.0 && d1 * x * x <= -d2 * y * y, "{what:?}");
            assert_eq!([flag, h11, h12, h21, h22], [-1.0, 0.0, 0.0, 0.0, 0.0], "{what:?}");
        } else {
            // The weighted length is kept, and the second component is gone.
            let close = |a: f64, b: f64, size: f64| (a - b).abs() <= 64.0 * T::EPSILON * size.abs();
            assert!(close(h11 * x + h12 * y, r, (h11 * x).abs() + (h12 * y).abs()), "{what:?}");
            assert!(close(h21 * x + h22 * y, 0.0, (h21 * x).abs() + (h22 * y).abs()), "{what:?}");
            let weight = |a: f64, b: f64, c: f64, d: f64| {
                (e1 * a * b + e2 * c * d, (e1 * a * b).abs() + (e2 * c * d).abs())
            };
            for ((got, size), want) in [
                (weight(h11, h11, h21, h21), d1),
                (weight(h12, h12, h22, h22), d2),
                (weight(h11, h12, h21, h22), 0.0),
            ] {
                assert!(close(got, want, size), "{what:?}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn modified_rotations_keep_the_weighted_length() {
    for_all!(modified(), f32, f64);
}

fn sums_in_double(interface: Interface) {
    let x = [16_777_216f32, 1.0, -16_777_216.0];
    let (n, at, one, ones, start) = (3, x.as_ptr(), 1, [1f32; 3], 0.5);
    let at_ones = ones.as_ptr();
    let double = call_level1!(interface, f32, f64, "dsdot", [int n, at at, int one, at at_ones, int one]);
    assert_eq!(double, 1.0);
    let single =
        call_level1!(interface, f32, f32, "sdsdot", [int n, real start, at at, int one, at at_ones, int one]);
    assert_eq!(single, 1.5);
}

fn abs1<T: Number>(interface: Interface, routine: &str) {
    let number = T::of(C64::new(-3.0, 4.0));
    let at = &raw const number;
    let got: f64 = call_level1!(interface, T, T::Real, routine, [at at]).into();
    assert_eq!(got, 7.0);
}

#[test]
fn sums_in_double_precision_and_cheap_lengths() {
    for interface in crate::api::INTERFACES {
        sums_in_double(interface);
        abs1::<C32>(interface, "scabs1");
        abs1::<C64>(interface, "dcabs1");
    }
}

//! The inequalities one by one, on the functions that rest on them: at their limits, where a bit more or less shows.

use num_bigint::BigInt;
use oz2blas::ozaki::balance;
use oz2blas::ozaki::bound::{self, Line};
use oz2blas::ozaki::moduli::{LIMB_BITS, LIMBS, MAX_MODULI, MODULI, canonical, crt};
use oz2blas::ozaki::needs::{self, Bounds, Entries, LineTable, MORE_BITS};
use oz2blas::ozaki::outliers::{BadEntries, WORD};
use oz2blas::ozaki::plan::{self, Accuracy, NoPlan, Out};
use oz2blas::ozaki::reconstruct::Reconstruct;
use oz2blas::ozaki::reference::{self, Dyadic};
use oz2blas::ozaki::residues;
use oz2blas::ozaki::scan::Scan;
use oz2blas::ozaki::wide::Magnitude;
use proptest::prelude::*;

use crate::exact::{
    at_most_t_times, exponent, fits, floor, floor_lg_t, integer, is_integer, limit, power, product, runner,
    shifted, units, whole,
};
use crate::operands::accuracy;

/// Any finite double, most of them of few bits or next to such.
fn double() -> impl Strategy<Value = f64> {
    let edge = (1u64..1 << 15, -1100i32..1000, -1i64..2, any::<bool>()).prop_map(|(m, e, off, negative)| {
        let x = Dyadic { m: BigInt::from(m), e }.nearest();
        let x = f64::from_bits(x.to_bits().saturating_add_signed(off));
        if negative { -x } else { x }
    });
    let any = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite());
    let subnormal = (1u64..1 << 52).prop_map(f64::from_bits);
    prop_oneof![4 => edge, 2 => any, 1 => subnormal].prop_filter("finite", |x| x.is_finite() && *x != 0.0)
}

/// (1): half a unit at most, none from the exact exponent on, and some just below it.
#[test]
fn rounding_is_to_nearest_and_exact_from_the_exact_exponent_on() {
    runner(20_000)
        .run(&(double(), -70i32..140), |(x, sigma)| {
            let scan = Scan::of(&[x]);
            let e = scan.exponent();
            let s = sigma + 7 - e;
            let (m, up) = residues::scaled(x, s);
            let a: BigInt = BigInt::from(m) << up;
            let exact = shifted(&Dyadic::from(x), s);
            assert!(whole(&a).minus(&exact).abs().at_most(&power(-1)));
            assert_eq!(a, exact.nearest_integer(), "ties to even");
            let at = |sigma: i32| is_integer(&shifted(&Dyadic::from(x), sigma + 7 - e));
            assert!(at(scan.exact_at()) && !at(scan.exact_at() - 1));
            assert_eq!(e, exponent(&Dyadic::from(x)));
            Ok(())
        })
        .unwrap();
}

/// (2), and (17) for a single number.
#[test]
fn magnitudes_are_below_and_next_to_the_number() {
    runner(20_000)
        .run(&(double(), 0i32..20), |(x, above)| {
            let e = Scan::of(&[x]).exponent() + above;
            let (first, second) = (bound::magnitude(x, e), bound::second_magnitude(x, e));
            let size = shifted(&Dyadic::from(x), 7 - e).abs();
            let next = integer(u64::from(first) + 1);
            assert!(integer(first.into()).at_most(&size) && size.at_most(&next.minus(&units(&next))), "(2)");
            let fine = u64::from(first) * 128 + u64::from(second);
            assert_eq!(floor(&shifted(&size, 7)), BigInt::from(fine), "(17)");
            assert!(first < 128 && second < 128 && (above > 0 || first >= 64));
            Ok(())
        })
        .unwrap();
}

/// (3) at sigma >= -1, for the largest number of each magnitude; and why not below -1, where fast and accurate must refuse.
#[test]
fn a_rounded_magnitude_may_pass_its_bound_only_below_minus_one() {
    let mut passed = Vec::new();
    for sigma in -4..60 {
        for magnitude in 0..128u64 {
            // Just below (magnitude + 1) 2^-7, with e = 0.
            let x = f64::from_bits(((magnitude + 1) as f64 / 128.0).to_bits() - 1);
            let (m, up) = residues::scaled(x, sigma + 7);
            let a = whole(&(BigInt::from(m) << up));
            let bound = shifted(&integer(magnitude + 1), sigma);
            if !a.at_most(&bound) {
                passed.push((sigma, magnitude));
            }
        }
    }
    assert!(passed.iter().all(|&(sigma, _)| sigma < -1));
    assert!(passed.contains(&(-2, 2)), "2.99 / 4 becomes 1, more than 3/4");
    // So modes that fix N refuse a sigma of -2. N = 2 holds seven elements of the largest magnitude at -1, and eight at -2 alone.
    assert_eq!(fast_sigma(2, &plan_line(7 * 127, 7, 7 * 128 * 128)), Some(-1));
    assert_eq!(fast_sigma(2, &plan_line(8 * 127, 8, 8 * 128 * 128)), None);
}

fn plan_line(sum: u64, nonzeros: u64, squares: u64) -> Line {
    Line { exponent: 0, exact_at: 1000, nonzeros, sum, squares }
}

/// sigma of the mode fast.
fn fast_sigma(moduli: usize, line: &Line) -> Option<i32> {
    let plan = plan::fast(moduli, false, &[*line], &[*line], vec![0], vec![0]).ok()?;
    Some(plan.rows[0] - 7)
}

/// (8) and (9): the largest exponent whose square fits, and none below -1.
#[test]
fn fast_and_accurate_take_the_largest_exponent_that_fits() {
    let size = prop_oneof![(1u64..40).prop_map(|x| x * x), 1u64..1 << 20, 1u64..1 << 52];
    let near = (2usize..=MAX_MODULI, 0u32..26, -1i64..2).prop_map(|(moduli, s, off)| {
        // Next to H_N / 4^s, if that is small enough.
        let at = limit(moduli) >> (2 * s);
        (moduli, u64::try_from(at).unwrap_or(1 << 52).min(1 << 52).saturating_add_signed(off).max(1))
    });
    let cases = prop_oneof![(2usize..=MAX_MODULI, size), near];
    runner(4000)
        .run(&cases, |(moduli, u)| {
            let expected = (-1..200).take_while(|s| fits(u, 2 * s, moduli)).last();
            assert_eq!(fast_sigma(moduli, &plan_line(64, 1, u)), expected);
            let line = plan_line(64, 1, 1);
            let maxima: (&[u64], &[u64]) = (&[u], &[u]);
            let plan = plan::accurate(moduli, false, &[line], &[line], maxima, vec![0], vec![0]);
            match expected {
                Some(s) => assert_eq!(plan.unwrap().columns[0], s + 7),
                None => assert_eq!(plan, Err(NoPlan::Range)),
            }
            Ok(())
        })
        .unwrap();
}

/// (4) is met with equality by lines of equal numbers, and U is no less than that anywhere.
#[test]
fn the_upper_bound_is_one_and_is_met() {
    let line = |k: usize| prop::collection::vec((0u64..128, any::<bool>()), k);
    runner(3000)
        .run(&(1usize..40).prop_flat_map(|k| (line(k), line(k))), |(a, b)| {
            let of = |x: &[(u64, bool)]| {
                let magnitudes = x.iter().filter(|x| x.1).map(|x| x.0);
                plan_line(magnitudes.sum(), x.iter().filter(|x| x.1).count() as u64, 0)
            };
            let both: Vec<_> =
                a.iter().zip(&b).filter(|(a, b)| a.1 && b.1).map(|(a, b)| (a.0, b.0)).collect();
            let g: u64 = both.iter().map(|(a, b)| a * b).sum();
            let above: u64 = both.iter().map(|(a, b)| (a + 1) * (b + 1)).sum();
            let (row, column) = (of(&a), of(&b));
            let u = bound::upper(g as i64, &row, &column);
            assert!(above <= u);
            if both.len() == a.len() {
                assert_eq!(above, u, "lines without zeros");
            }
            // The plan's own form of it.
            let tables = [row, column].map(|line| LineTable::new(&[line], Accuracy::Fp64).unwrap());
            let entries = [g as i64];
            let bounds = bounds(&tables, Entries::Long(&entries), 0);
            let (mut rows, mut columns) = ([0], [0]);
            bounds.raise_maxima(&mut rows, &mut columns);
            let zero = row.nonzeros == 0 || column.nonzeros == 0;
            assert_eq!((rows[0], columns[0]), if zero { (0, 0) } else { (u, u) });
            Ok(())
        })
        .unwrap();
}

fn bounds<'a>(tables: &'a [LineTable; 2], g: Entries<'a>, more_bits: i64) -> Bounds<'a> {
    let lines = |table: &'a LineTable| table.part(0, table.sums.len());
    Bounds { rows: lines(&tables[0]), columns: lines(&tables[1]), g, more_bits, stride: tables[0].sums.len() }
}

/// (12): the need is the least that floor(lg T) allows, with and without seven more bits, for a single entry.
///
/// Three changes would not be seen by any test, since they change nothing: to round a ratio up from 2^-52 above a power of two on instead
/// of from anything above it (costs are below 2^46 and bounds below 2^52: no ratio is so close); not to ask whether a row has a nonzero
/// where G is not 0; not to cut the needs of step 5d at 0 (a need that is not that of an exact line is 47 - floor(lg T) at least).
#[test]
fn a_need_is_the_least_that_serves() {
    let count = prop_oneof![1u64..70, (0u32..20).prop_map(|p| 1 << p), (0u32..20).prop_map(|p| (1 << p) + 1)];
    let lower = prop_oneof![1i64..300, (0u32..40).prop_map(|p| 1i64 << p), 1i64..1 << 45];
    // Some of them a power of two apart from the costs of the column, or nearly so.
    let power_of_cost = prop_oneof![Just(None), (0u32..15).prop_map(Some)];
    let counts = (count.clone(), count);
    let sums = (0u64..1 << 30, 0u64..1 << 30);
    let cases = (accuracy(), counts, sums, lower, power_of_cost, -1i64..2, any::<bool>());
    runner(6000)
        .run(&cases, |(accuracy, (nz_a, nz_b), (sum_a, sum_b), lower, power_of_cost, off, more_bits)| {
            let lower = power_of_cost.map_or(lower, |by| ((sum_b + nz_b) as i64) << by);
            let lower = (lower + off).max(1);
            let lines = [plan_line(sum_a, nz_a, 1), plan_line(sum_b, nz_b, 1)];
            let tables = lines.map(|line| LineTable::new(&[line], accuracy).unwrap());
            let (mut rows, mut columns) = ([0], [0]);
            let (entries, by) = ([lower], if more_bits { 14 } else { 0 });
            let bits = if more_bits { MORE_BITS } else { 0 };
            assert!(!bounds(&tables, Entries::Long(&entries), bits).raise_needs(&mut rows, &mut columns));
            if let Ok(short) = i32::try_from(lower) {
                let (mut r, mut c) = ([0], [0]);
                assert!(!bounds(&tables, Entries::Short(&[short]), bits).raise_needs(&mut r, &mut c));
                assert_eq!((r, c), (rows, columns));
            }
            let n = nz_a.min(nz_b);
            for (need, cost) in [(rows[0], sum_b + nz_b), (columns[0], sum_a + nz_a)] {
                let serves = |need: i64| {
                    let t = power(floor_lg_t(accuracy, n));
                    shifted(&integer(cost), -need as i32)
                        .at_most(&units(&shifted(&integer(lower as u64), -by)).times(&t))
                };
                assert!(serves(need), "(12) with a power of two for T");
                assert!(need == 0 || !serves(need - 1), "not the least");
                let lower = units(&shifted(&integer(lower as u64), -by));
                assert!(at_most_t_times(&shifted(&integer(cost), -need as i32), accuracy, n, &lower), "(12)");
            }
            Ok(())
        })
        .unwrap();
}

/// (15), step 5a: lines that meet with a lower bound of zero need more than there is, lines that do not meet need nothing.
#[test]
fn a_lower_bound_of_zero_needs_everything_or_nothing() {
    let lines = [plan_line(64, 2, 1), plan_line(64, 2, 1)];
    let tables = lines.map(|line| LineTable::new(&[line], Accuracy::Fp64).unwrap());
    let bounds = bounds(&tables, Entries::Long(&[0]), 0);
    let (mut rows, mut columns) = ([0], [0]);
    assert!(bounds.raise_needs(&mut rows, &mut columns), "it says so");
    assert_eq!((rows, columns), ([0], [0]));
    bounds.raise_meeting(Entries::Long(&[0]), &mut rows, &mut columns);
    assert_eq!((rows, columns), ([0], [0]));
    bounds.raise_meeting(Entries::Long(&[1]), &mut rows, &mut columns);
    assert!(rows[0] > 1000 && columns[0] > 1000);
}

/// (7) and (16): the least N, and the largest d, from the largest 2^(needA + needB) U of a few lines; (14) caps the needs.
#[test]
fn the_plan_takes_the_least_n_and_the_largest_d() {
    let line = (64u64..1 << 20, 1u64..1000, -6i32..500, -6i32..90, any::<bool>());
    let cases = (prop::collection::vec(line.clone(), 1..4), prop::collection::vec(line, 1..4), any::<u32>());
    runner(3000)
        .run(&cases, |(a, b, seed)| {
            let of = |x: &[(u64, u64, i32, i32, bool)]| -> (Vec<Line>, Vec<i32>) {
                let line = |&(sum, nz, exact_at, need, zero): &(u64, u64, i32, i32, bool)| {
                    let line = Line { exact_at, ..plan_line(sum, nz, 1) };
                    (if zero && x.len() > 1 { plan_line(0, 0, 0) } else { line }, need.max(0))
                };
                x.iter().map(line).unzip()
            };
            let ((a, mut rows), (b, mut columns)) = (of(&a), of(&b));
            let raised = (rows.clone(), columns.clone());
            plan::cap_needs(&mut rows, &a);
            plan::cap_needs(&mut columns, &b);
            for (capped, raised, lines) in [(&rows, &raised.0, &a), (&columns, &raised.1, &b)] {
                for ((&capped, &raised), line) in capped.iter().zip(raised).zip(lines) {
                    assert_eq!(
                        capped,
                        if line.nonzeros == 0 { 0 } else { raised.min(line.exact_at) },
                        "(14)"
                    );
                }
            }
            let g: Vec<i64> =
                (0..a.len() * b.len()).map(|at| i64::from(seed.rotate_left(at as u32) >> 7)).collect();
            let tables = [&a, &b].map(|lines| LineTable::new(lines, Accuracy::Fp64).unwrap());
            let mut keys = [vec![0; a.len()], vec![0; b.len()]];
            needs::key_needs(&rows, &a, &mut keys[0]);
            needs::key_needs(&columns, &b, &mut keys[1]);
            let key = bounds(&tables, Entries::Long(&g), 0).largest_key(&keys[0], &keys[1]);
            let pairs: Vec<(usize, usize)> = (0..a.len())
                .flat_map(|i| (0..b.len()).map(move |j| (i, j)))
                .filter(|&(i, j)| a[i].nonzeros > 0 && b[j].nonzeros > 0)
                .collect();
            let u = |i: usize, j: usize| bound::upper(g[j * a.len() + i], &a[i], &b[j]);
            let holds = |moduli: usize, d: i32| {
                pairs.iter().all(|&(i, j)| fits(u(i, j), rows[i] + columns[j] + 2 * d, moduli))
            };
            // Beyond 450 bits nothing fits, and needs are cut there.
            let of_pair =
                |&(i, j): &(usize, usize)| Magnitude::new(u(i, j), rows[i].min(450) + columns[j].min(450));
            let largest = pairs.iter().map(of_pair).max().unwrap_or(Magnitude::NONE);
            assert_eq!(needs::largest_of_key(key), largest, "(7)");
            let got = plan::auto(
                MAX_MODULI,
                false,
                &a,
                &b,
                needs::largest_of_key(key),
                rows.clone(),
                columns.clone(),
            );
            let want = (2..=MAX_MODULI).find(|&n| holds(n, 0));
            let Some(moduli) = want else {
                assert_eq!(got, Err(NoPlan::NotProvable));
                return Ok(());
            };
            let plan = got.unwrap();
            assert_eq!(plan.moduli, moduli, "the least N");
            let exact = |needs: &[i32], lines: &[Line]| {
                needs.iter().zip(lines).all(|(&need, line)| line.nonzeros == 0 || need == line.exact_at)
            };
            let d = if pairs.is_empty() || (exact(&rows, &a) && exact(&columns, &b)) {
                0
            } else {
                (0..200).take_while(|&d| holds(moduli, d)).last().unwrap()
            };
            for (s, needs, lines) in [(&plan.rows, &rows, &a), (&plan.columns, &columns, &b)] {
                for ((&s, &need), line) in s.iter().zip(needs).zip(lines) {
                    assert_eq!(
                        s,
                        if line.nonzeros == 0 { 0 } else { need + d + 7 },
                        "the largest d, to both sides"
                    );
                }
            }
            // One modulus less is one too few.
            if moduli > 2 {
                let fewer = plan::auto(
                    moduli - 1,
                    false,
                    &a,
                    &b,
                    needs::largest_of_key(key),
                    rows.clone(),
                    columns.clone(),
                );
                assert_eq!(fewer, Err(NoPlan::NotProvable));
            }
            Ok(())
        })
        .unwrap();
}

/// Step 5d marks the entries that do not fit, and no others: with what each needs alone, and with what the lines need.
#[test]
fn entries_that_do_not_fit_are_marked() {
    let line = (64u64..1 << 12, 1u64..300, prop_oneof![Just(0), -6i32..160]);
    let cases = (accuracy(), line.clone(), line, 0i64..1 << 20, 0u64..3, 2usize..=MAX_MODULI, any::<bool>());
    runner(6000)
        .run(&cases, |(accuracy, a, b, g, meet, moduli, at_the_limit)| {
            let of = |(sum, nz, exact_at)| [Line { exact_at, ..plan_line(sum, nz, 1) }];
            let (a, b) = (of(a), of(b));
            // Exactly H_N, the next number below, or the next above, where a need of 0 decides.
            let rest = bound::upper(0, &a[0], &b[0]);
            let h = u64::try_from(limit(moduli)).unwrap_or(u64::MAX);
            let close = at_the_limit && h < 1 << 50 && h > rest;
            let g = if close { (h - rest) as i64 + g % 3 - 1 } else { g };
            let u = bound::upper(g, &a[0], &b[0]);
            let tables = [a, b].map(|line| LineTable::new(&line, accuracy).unwrap());
            let entries = [g];
            let bounds = bounds(&tables, Entries::Long(&entries), 0);
            let most = Magnitude::limit(crt(moduli).limit(false));
            let n = a[0].nonzeros.min(b[0].nonzeros);
            let need = |cost: u64, exact_at: i32| {
                let least = |need: &i32| {
                    let t = power(floor_lg_t(accuracy, n));
                    shifted(&integer(cost), -need).at_most(&units(&integer(g as u64)).times(&t))
                };
                let need = match g {
                    0 if meet == 0 => 0,
                    0 => 10_000,
                    _ => (0..200).find(least).unwrap(),
                };
                need.min(exact_at)
            };
            let needs = [
                need(b[0].sum + b[0].nonzeros, a[0].exact_at),
                need(a[0].sum + a[0].nonzeros, b[0].exact_at),
            ];
            let mut marked = false;
            let (g, meet) = (Entries::Long(&entries), [meet as i64]);
            bounds.for_each_hopeless(g, Entries::Long(&meet), (&a, &b), most, |_, _| marked = true);
            assert_eq!(marked, !fits(u, needs[0] + needs[1], moduli), "hopeless");
            for x in [needs[0] + needs[1], 0, -1, 60] {
                let mut marked = false;
                bounds.for_each_misfit(&[x - 1], &[1], most, |_, _| marked = true);
                assert_eq!(marked, !fits(u, x, moduli), "misfit");
            }
            // And steps 3 and 4 with needs that are as low as can be.
            let plan = plan::auto(moduli, false, &a, &b, Magnitude::new(u, 0), vec![0], vec![0]);
            assert_eq!(plan.is_ok(), fits(u, 0, moduli), "the largest U that N holds");
            Ok(())
        })
        .unwrap();
}

/// (7), next to every H_N: U 2^x <= H_N is decided exactly.
#[test]
fn the_limit_of_every_n_is_compared_exactly() {
    for moduli in 2..=MAX_MODULI {
        let h = limit(moduli);
        let most = Magnitude::limit(crt(moduli).limit(false));
        for bits in 1..=64.min(h.bits()) {
            let cut = h.bits() - bits;
            let top = u64::try_from(&h >> cut).unwrap();
            for u in [top.saturating_sub(1), top, top.saturating_add(1)].into_iter().filter(|&u| u > 0) {
                for x in [cut as i32 - 1, cut as i32, cut as i32 + 1] {
                    assert_eq!(Magnitude::new(u, x) <= most, fits(u, x, moduli), "N {moduli}: {u} 2^{x}");
                }
            }
        }
    }
}

/// (10): C' / P stays 2^-32 away from a tie, and the quotient of the reconstruction is right at both ends of the range.
#[test]
fn the_quotient_is_certain_up_to_the_limit() {
    for moduli in 2..=MAX_MODULI {
        let (h, p) = (limit(moduli), product(moduli));
        // P / 2 - H > P / 2^32.
        assert!((&p - 2 * &h) << 31 > p, "N {moduli}");
        let with = Reconstruct::new(crt(moduli), 1.0);
        for c in [h.clone(), &h - 1, &h / 2 + 1, BigInt::from(1), BigInt::from(0)] {
            for c in [c.clone(), -c] {
                let y = |l: usize| {
                    canonical(i64::from(reference::residue(&c, l)) * i64::from(crt(moduli).inverses[l]), l)
                };
                let (nearest, _) = with.product(|l| y(l) as i8, 0);
                assert_eq!(nearest, whole(&c).nearest(), "N {moduli} C' {c}");
            }
        }
    }
}

/// (21): one rounding, with u / (1 + u) of the value, or 2^-1075 in the subnormal range.
#[test]
fn the_reconstruction_rounds_once() {
    let cases = (2usize..=MAX_MODULI, any::<[u64; 3]>(), 0u32..160, -1250i32..1000);
    runner(5000)
        .run(&cases, |(moduli, words, cut, by)| {
            let any = words.iter().fold(BigInt::ZERO, |sum, &word| (sum << 64) + word);
            let c: BigInt = (any % (limit(moduli) + 1)) >> cut;
            let y = |l: usize| {
                canonical(i64::from(reference::residue(&c, l)) * i64::from(crt(moduli).inverses[l]), l) as i8
            };
            let (got, _) = Reconstruct::new(crt(moduli), 1.0).product(y, by);
            let exact = shifted(&whole(&c), by);
            if got.is_infinite() {
                assert!(Dyadic::from(f64::MAX).at_most(&exact));
                return Ok(());
            }
            let error = Dyadic::from(got).minus(&exact).abs();
            let relative = error.plus(&units(&error)).at_most(&units(&exact.abs()));
            assert!(relative || error.at_most(&power(-1075)));
            assert!(relative || exact.abs().at_most(&power(-1022)), "one of the two, not both");
            Ok(())
        })
        .unwrap();
}

/// (20): what the plan sees of a balanced element is the element, or so little that it is nothing.
#[test]
fn balancing_is_exact() {
    runner(20_000)
        .run(&(double(), -1100i32..1100), |(x, by)| {
            let exact = shifted(&Dyadic::from(x), by);
            let e = exponent(&exact);
            if e <= 1022 {
                let seen = balance::scaled(x, by);
                if e >= -1021 {
                    assert!(Dyadic::from(seen).minus(&exact).is_zero());
                } else {
                    assert_eq!(seen, f64::MIN_POSITIVE.copysign(x));
                }
            }
            Ok(())
        })
        .unwrap();
}

/// Step 5d: no bad entry is left among the lines that stay, and a tenth of all lines is the most that may go.
/// (Which of two rows with equally many goes first makes no difference: to take out a row lowers the number of no other row.)
#[test]
fn lines_are_taken_out_until_no_bad_entry_is_left() {
    let shape = (1usize..60, 1usize..60);
    let cases = shape.prop_flat_map(|(m, n)| (Just((m, n)), prop::collection::vec((0..m, 0..n), 0..30)));
    runner(2000)
        .run(&cases, |((m, n), entries)| {
            let mut bad = BadEntries::new(m, n).unwrap();
            let (bits, words) = bad.words();
            entries.iter().for_each(|&(i, j)| bits[j * words + i / WORD] |= 1 << (i % WORD));
            let mut out = Out::default();
            let taken = bad.take_out(&mut out);
            let one_side = out.rows.len() == m || out.columns.len() == n;
            let too_much = one_side || 10 * out.count() > m + n;
            assert_eq!(taken, !too_much, "given up too early or too late");
            let is_left = |&(i, j): &(usize, usize)| !out.rows.contains(&i) && !out.columns.contains(&j);
            assert!(too_much || !entries.iter().any(is_left), "a bad entry is left");
            Ok(())
        })
        .unwrap();
    for (m, n) in (1..50).map(|m| (m, 70 - m)) {
        for (r, s) in (0..=m).flat_map(|r| (0..=n).map(move |s| (r, s))) {
            let out = Out { rows: (0..r).collect(), columns: (0..s).collect(), not_finite: 0 };
            assert_eq!(out.is_too_much(m, n), 10 * (r + s) > m + n || r == m || s == n);
        }
    }
}

/// (24): no sum of residues and no limb leaves its type.
#[test]
fn sums_stay_exact() {
    let longest = needs::MORE_BITS_LONGEST as u64;
    for (terms, each, bits) in [
        (1 << 16, 128 * 128, 31),                         // products of residues, in 32 bits
        (1 << 17, 127 * 127, 31),                         // two products of magnitudes, added (17)
        (1 << 31, 128 * 128, 53),                         // U, exact as a double
        (longest, ((1 << 14) - 1) * ((1 << 14) - 1), 52), // lower bounds of fourteen bits, the same
    ] {
        assert!(terms * each < 1u64 << bits);
    }
    for moduli in 2..=MAX_MODULI {
        let crt = crt(moduli);
        for limb in 0..LIMBS {
            let sum: i64 = (0..moduli).map(|l| 128 * crt.weights[l][limb]).sum();
            let quotients = moduli as i64 * crt.product_limbs[limb];
            assert!(sum + quotients < 1 << 52);
            assert!(crt.weights.iter().all(|weight| weight[limb] < 1 << LIMB_BITS));
        }
        assert!(MODULI[..moduli].iter().all(|&p| (2..=256).contains(&p)));
    }
}

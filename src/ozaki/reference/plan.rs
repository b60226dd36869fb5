//! The plan from the text of its definition (NUMERICS section 3), entry by entry.

use num_bigint::BigInt;

use super::{Dyadic, digits_of, line_of};
use crate::ozaki::bound::Line;
use crate::ozaki::moduli::MODULI;
use crate::ozaki::plan::{Accuracy, Balanced, NoPlan, Out, Plan, Way};

/// H_N of NUMERICS section 1; with `check` the one of section 5.
pub fn limit(moduli: usize, check: bool) -> BigInt {
    let product: BigInt = MODULI[..moduli].iter().map(|&p| BigInt::from(p)).product();
    if check { (&product / 256 - 1) / 2 - (product >> 20) } else { (&product - 1) / 2 - (product >> 32) }
}

/// u 2^x <= h, exactly.
fn fits(u: u64, x: i32, h: &BigInt) -> bool {
    if x >= 0 { BigInt::from(u) << x as u32 <= *h } else { BigInt::from(u) <= h << -x as u32 }
}

/// The largest integer s with 4^s u <= h.
fn largest_quarter_power(u: u64, h: &BigInt) -> i32 {
    (-100..100).rev().find(|s| fits(u, 2 * s, h)).expect("100 bits on either side are enough")
}

/// ceil(lg x/g): the least integer c with x <= 2^c g.
fn ceil_lg(x: u64, g: u64) -> i32 {
    (-70..70).find(|&c| BigInt::from(x) << 70 <= BigInt::from(g) << (70 + c) as u32).expect("64 bits")
}

/// floor(lg T) for n nonzeros.
fn floor_lg_t(accuracy: Accuracy, n: u64) -> i32 {
    // Squares, since T = 2 sqrt(n) is no integer.
    let square: u128 = match accuracy {
        Accuracy::Fp64 => 4 * u128::from(n),
        Accuracy::Textbook => u128::from((n - 1).max(1)).pow(2),
        Accuracy::High => 1,
    };
    (0..64).rev().find(|&f| 1u128.checked_shl(2 * f).is_some_and(|power| power <= square)).unwrap_or(0) as i32
}

/// The operands of a call as their lines, with everything that the plan looks at.
#[derive(Clone)]
struct Statistics {
    a: Vec<Line>,
    b: Vec<Line>,
    /// G_ij at [j][i].
    g: Vec<Vec<u64>>,
    /// Lower bounds in units of 2^-14, from 14 bits of each element.
    fine: Vec<Vec<u64>>,
    /// Whether row i and column j have a nonzero in common, at [j][i].
    meet: Vec<Vec<bool>>,
}

/// More lines than a tenth, or all rows or columns.
fn too_much(out: &Out, m: usize, n: usize) -> bool {
    10 * (out.rows.len() + out.columns.len()) > m + n || out.rows.len() == m || out.columns.len() == n
}

/// The lines of an operand, those with NaN or Inf as zeros, and the numbers of these.
fn lines(values: &[f64], k: usize) -> (Vec<Vec<Dyadic>>, Vec<usize>) {
    let mut out = Vec::new();
    let lines = values.chunks(k).enumerate().map(|(number, line)| {
        let finite = line.iter().all(|x| x.is_finite());
        out.extend((!finite).then_some(number));
        line.iter().map(|&x| Dyadic::from(if finite { x } else { 0.0 })).collect()
    });
    (lines.collect(), out)
}

impl Statistics {
    fn of(a: &[Vec<Dyadic>], b: &[Vec<Dyadic>]) -> Self {
        let statistics =
            |lines: &[Vec<Dyadic>]| -> Vec<Line> { lines.iter().map(|line| line_of(line)).collect() };
        let (la, lb) = (statistics(a), statistics(b));
        // Sums over the inner dimension of products of digits.
        let sums = |digit: &dyn Fn(&Dyadic, i32) -> u64| -> Vec<Vec<u64>> {
            let digits = |lines: &[Vec<Dyadic>], statistics: &[Line]| -> Vec<Vec<u64>> {
                let of_line =
                    |(line, s): (&Vec<Dyadic>, &Line)| line.iter().map(|x| digit(x, s.exponent)).collect();
                lines.iter().zip(statistics).map(of_line).collect()
            };
            let (a, b) = (digits(a, &la), digits(b, &lb));
            let sum = |x: &[u64], y: &[u64]| x.iter().zip(y).map(|(x, y)| x * y).sum();
            b.iter().map(|y| a.iter().map(|x| sum(x, y)).collect()).collect()
        };
        let g = sums(&|x, e| digits_of(x, e, 7));
        let fine = sums(&|x, e| digits_of(x, e, 14));
        let meet = sums(&|x, _| u64::from(!x.is_zero()));
        let meet = meet.iter().map(|column| column.iter().map(|&x| x > 0).collect()).collect();
        Self { a: la, b: lb, g, fine, meet }
    }

    fn of_values(a: &[f64], b: &[f64], k: usize) -> Result<(Self, Out), NoPlan> {
        let ((a, rows), (b, columns)) = (lines(a, k), lines(b, k));
        let not_finite = rows.len() + columns.len();
        let out = Out { rows, columns, not_finite };
        if too_much(&out, a.len(), b.len()) { Err(NoPlan::NotFinite) } else { Ok((Self::of(&a, &b), out)) }
    }

    fn upper(&self, i: usize, j: usize) -> u64 {
        let (row, column) = (&self.a[i], &self.b[j]);
        self.g[j][i] + row.sum + column.sum + row.nonzeros.min(column.nonzeros)
    }

    /// The pairs of a row and a column that both have a nonzero.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let columns = (0..self.b.len()).filter(|&j| self.b[j].nonzeros > 0);
        columns.flat_map(|j| (0..self.a.len()).filter(|&i| self.a[i].nonzeros > 0).map(move |i| (i, j)))
    }

    fn finish(&self, moduli: usize, sigma: &[i32], tau: &[i32]) -> Plan {
        let shift = |lines: &[Line], sigmas: &[i32]| {
            let s =
                |(line, sigma): (&Line, &i32)| if line.nonzeros == 0 { 0 } else { sigma + 7 - line.exponent };
            lines.iter().zip(sigmas).map(s).collect()
        };
        Plan::plain(moduli, shift(&self.a, sigma), shift(&self.b, tau))
    }

    fn fixed(&self, moduli: usize, check: bool, row: &[u64], column: &[u64]) -> Result<Plan, NoPlan> {
        let h = limit(moduli, check);
        let sigmas = |sums: &[u64]| -> Vec<i32> {
            sums.iter().map(|&sum| if sum == 0 { 0 } else { largest_quarter_power(sum, &h) }).collect()
        };
        let (sigma, tau) = (sigmas(row), sigmas(column));
        if sigma.iter().chain(&tau).any(|&s| s < -1) {
            Err(NoPlan::Range)
        } else {
            Ok(self.finish(moduli, &sigma, &tau))
        }
    }

    /// What entry (i, j) alone asks of its row and of its column, steps 1 and 2.
    fn own_needs(&self, i: usize, j: usize, accuracy: Accuracy, more_bits: bool) -> (i32, i32) {
        let (row, column) = (&self.a[i], &self.b[j]);
        let bits = 53 - floor_lg_t(accuracy, row.nonzeros.min(column.nonzeros));
        let lower = if more_bits { self.fine[j][i] } else { self.g[j][i] };
        let need = |sum: u64, exact: i32| {
            let bound = match lower {
                _ if !self.meet[j][i] => 0,
                0 => 10_000,
                lower if more_bits => bits + ceil_lg(sum << 14, lower),
                lower => bits + ceil_lg(sum, lower),
            };
            bound.max(0).min(exact)
        };
        (need(column.sum + column.nonzeros, row.exact_at), need(row.sum + row.nonzeros, column.exact_at))
    }

    /// needA_i and needB_j.
    fn needs(&self, accuracy: Accuracy, more_bits: bool) -> (Vec<i32>, Vec<i32>) {
        // A need is at least 0 if nothing else is exact with fewer bits.
        let least = |lines: &[Line]| -> Vec<i32> { lines.iter().map(|line| line.exact_at.min(0)).collect() };
        let (mut row, mut column) = (least(&self.a), least(&self.b));
        for (i, j) in self.pairs() {
            let (of_row, of_column) = self.own_needs(i, j, accuracy, more_bits);
            row[i] = row[i].max(of_row);
            column[j] = column[j].max(of_column);
        }
        (row, column)
    }

    /// Steps 1 to 4.
    fn certified(&self, accuracy: Accuracy, (most, check): (usize, bool), more_bits: bool) -> Option<Plan> {
        let (row, column) = self.needs(accuracy, more_bits);
        let holds = |moduli: usize, extra: i32| {
            let h = limit(moduli, check);
            self.pairs().all(|(i, j)| fits(self.upper(i, j), row[i] + column[j] + 2 * extra, &h))
        };
        let moduli = (2..=most).find(|&n| holds(n, 0))?;
        // Where every line is exact, more bits would be zeros.
        let exact = |needs: &[i32], lines: &[Line]| {
            needs.iter().zip(lines).all(|(&need, line)| line.nonzeros == 0 || need == line.exact_at)
        };
        let spare = if self.pairs().next().is_none() || (exact(&row, &self.a) && exact(&column, &self.b)) {
            0
        } else {
            (0..200).take_while(|&d| holds(moduli, d)).last().unwrap_or(0)
        };
        let with = |needs: Vec<i32>| -> Vec<i32> { needs.iter().map(|need| need + spare).collect() };
        Some(self.finish(moduli, &with(row), &with(column)))
    }

    /// Takes out the line with the most of the bad entries until none is left; false where that is too much.
    fn take_out(&mut self, mut bad: Vec<(usize, usize)>, out: &mut Out) -> bool {
        let (m, n) = (self.a.len(), self.b.len());
        let nothing = line_of(&[]);
        while !bad.is_empty() {
            let (mut of_row, mut of_column) = (vec![0; m], vec![0; n]);
            for &(i, j) in &bad {
                of_row[i] += 1;
                of_column[j] += 1;
            }
            // The last of the largest of a list that is turned round is the first.
            let row = (0..m).rev().max_by_key(|&i| of_row[i]).expect("there is a row");
            let column = (0..n).rev().max_by_key(|&j| of_column[j]).expect("there is a column");
            if of_row[row] >= of_column[column] {
                bad.retain(|entry| entry.0 != row);
                out.rows.push(row);
                self.a[row] = nothing;
            } else {
                bad.retain(|entry| entry.1 != column);
                out.columns.push(column);
                self.b[column] = nothing;
            }
            if too_much(out, m, n) {
                return false;
            }
        }
        true
    }

    /// Step 5d.
    fn without_the_worst(
        mut self,
        accuracy: Accuracy,
        (most, check): (usize, bool),
        more_bits: bool,
        mut out: Out,
    ) -> Option<Plan> {
        let h = limit(most, check);
        let own = |s: &Self, i, j| {
            let (row, column) = s.own_needs(i, j, accuracy, more_bits);
            row + column
        };
        for hopeless in [true, false] {
            let (row, column) = self.needs(accuracy, more_bits);
            let need = |i: usize, j: usize| if hopeless { own(&self, i, j) } else { row[i] + column[j] };
            let bad = self.pairs().filter(|&(i, j)| !fits(self.upper(i, j), need(i, j), &h)).collect();
            if !self.take_out(bad, &mut out) {
                return None;
            }
            if let Some(mut plan) = self.certified(accuracy, (most, check), more_bits) {
                out.rows.sort_unstable();
                out.columns.sort_unstable();
                plan.out = out;
                return Some(plan);
            }
        }
        unreachable!("all misfits are out")
    }
}

/// Mode fast (NUMERICS section 3); layout of the operands as in [`super::integer_product`].
pub fn plan_fast(a: &[f64], b: &[f64], k: usize, moduli: usize, check: bool) -> Result<Plan, NoPlan> {
    let (s, out) = Statistics::of_values(a, b, k)?;
    let squares = |lines: &[Line]| -> Vec<u64> { lines.iter().map(|line| line.squares).collect() };
    Ok(Plan { out, ..s.fixed(moduli, check, &squares(&s.a), &squares(&s.b))? })
}

/// Mode accurate.
pub fn plan_accurate(a: &[f64], b: &[f64], k: usize, moduli: usize, check: bool) -> Result<Plan, NoPlan> {
    let (s, out) = Statistics::of_values(a, b, k)?;
    let (mut row, mut column) = (vec![0; s.a.len()], vec![0; s.b.len()]);
    for (i, j) in s.pairs() {
        row[i] = s.upper(i, j).max(row[i]);
        column[j] = s.upper(i, j).max(column[j]);
    }
    Ok(Plan { out, ..s.fixed(moduli, check, &row, &column)? })
}

/// d_h of step 5c, by the largest exponents or by their averages; both operands by lines.
fn balance(a: &[Vec<Dyadic>], b: &[Vec<Dyadic>], k: usize, by: Balanced) -> Vec<i32> {
    let exponent = |x: &Dyadic| x.e + x.m.bits() as i32;
    let tops = |lines: &[Vec<Dyadic>]| -> Vec<Option<i32>> {
        lines.iter().map(|line| line.iter().filter(|x| !x.is_zero()).map(exponent).max()).collect()
    };
    let (of_a, of_b) = (tops(a), tops(b));
    let relative = |lines: &[Vec<Dyadic>], tops: &[Option<i32>], h: usize| -> Option<i32> {
        let of_line = |(line, top): (&Vec<Dyadic>, &Option<i32>)| {
            if line[h].is_zero() { None } else { Some(exponent(&line[h]) - (*top)?) }
        };
        let all: Vec<i32> = lines.iter().zip(tops).filter_map(of_line).collect();
        match by {
            Balanced::ByAverage if all.is_empty() => None,
            Balanced::ByAverage => Some(all.iter().sum::<i32>().div_euclid(all.len() as i32)),
            _ => all.into_iter().max(),
        }
    };
    let shift = |h: usize| match (relative(a, &of_a, h), relative(b, &of_b, h)) {
        (Some(e), Some(f)) => (f - e).div_euclid(2).clamp(-800, 800),
        _ => 0,
    };
    (0..k).map(shift).collect()
}

/// Mode auto: all steps, with the most moduli that are allowed, and whether the self-check needs room.
pub fn plan_auto(
    a: &[f64],
    b: &[f64],
    k: usize,
    accuracy: Accuracy,
    most: (usize, bool),
) -> Result<Plan, NoPlan> {
    let (plain, out) = Statistics::of_values(a, b, k)?;
    let ((a, _), (b, _)) = (lines(a, k), lines(b, k));
    let times = |lines: &[Vec<Dyadic>], d: &[i32], sign: i32| -> Vec<Vec<Dyadic>> {
        let element = |(h, x): (usize, &Dyadic)| Dyadic { m: x.m.clone(), e: x.e + sign * d[h] };
        lines.iter().map(|line| line.iter().enumerate().map(element).collect()).collect()
    };
    // The statistics and d_h of a view; the same shift for all changes nothing, and is no step.
    let view = |by: Balanced| -> Option<(Statistics, Vec<i32>)> {
        if by == Balanced::No {
            return Some((plain.clone(), Vec::new()));
        }
        let d = balance(&a, &b, k, by);
        let differ = d.iter().any(|&x| x != d[0]);
        differ.then(|| (Statistics::of(&times(&a, &d, 1), &times(&b, &d, -1)), d))
    };
    let mut best: Option<Plan> = None;
    for way in [Way::Plain, Way::MoreBits, Way::Balanced, Way::BalancedMoreBits] {
        let Some((statistics, inner)) = view(way.balanced()) else { continue };
        if let Some(plan) = statistics.certified(accuracy, most, way.has_more_bits())
            && best.as_ref().is_none_or(|best| plan.moduli < best.moduli)
        {
            best = Some(Plan { inner, way, out: out.clone(), ..plan });
        }
        if best.as_ref().is_some_and(|best| best.moduli <= if most.1 { 17 } else { 16 }) {
            break;
        }
    }
    let without_the_worst = |way: Way| {
        let (statistics, inner) = view(way.balanced())?;
        let plan = statistics.without_the_worst(accuracy, most, true, out.clone())?;
        Some(Plan { inner, way, ..plan })
    };
    let ways = [Way::MoreBits, Way::BalancedMoreBits, Way::AveragedMoreBits];
    best.or_else(|| ways.into_iter().find_map(without_the_worst)).ok_or(NoPlan::NotProvable)
}

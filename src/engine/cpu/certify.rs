//! The plan on the CPU (NUMERICS section 3): statistics of all lines, integer bounds of all entries, and the search for the plan.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::driver::{Planned, Run};
use super::kernels::{PANEL, Side};
use super::products::{Products, Sums, Wants};
use super::team::Shared;
use super::view::View;
use super::views::Views;
use super::workspace::{empty, vector};
use crate::engine::{Phases, Settings};
use crate::gemm::Rectangle;
use crate::options::Mode;
use crate::ozaki::bound::Line;
use crate::ozaki::moduli::{MAX_MODULI, crt};
use crate::ozaki::needs::{self, Bounds, Entries, LineTable, MORE_BITS};
use crate::ozaki::outliers::{BadEntries, WORD};
use crate::ozaki::plan::{self, Out, Plan, Way};
use crate::ozaki::wide::Magnitude;
use crate::route::Reason;

/// Is told of bad entries of a tile.
type Mark<'a> = &'a mut dyn FnMut(usize, usize);

/// Tiles that are looked at first when the largest bound is wanted: where the needs of the lines are alike, as they mostly are, one
/// of them has it.
const FIRST_TILES: usize = 32;

impl Run<'_> {
    /// # Safety
    ///
    /// A and B can be read; the CPU can run the kernels.
    pub unsafe fn plan(&self) -> Result<Planned, Reason> {
        #[cfg(test)]
        super::workspace::faults::panic_if_planned();
        let call = self.call;
        let per_line = size_of::<Line>() + LineTable::BYTES + 4 * size_of::<i64>() + View::BYTES;
        let _charge = self.charge((call.m + call.n).saturating_mul(per_line))?;
        let mut phases = Phases::default();
        let clock = Instant::now();
        // SAFETY: by the contract of this function, here and below.
        let mut products = unsafe { Products::scan(self, View::new(call)?)? };
        phases.scan = clock.elapsed();
        let clock = Instant::now();
        let out = products.view.not_finite()?;
        if out.is_too_much(call.m, call.n) {
            return Err(Reason::NonFinite);
        }
        let (rows, columns) = (vector(call.m, 0)?, vector(call.n, 0)?);
        let (moduli, check) = (self.settings.moduli, self.settings.check);
        let fresh = products.fresh;
        let (mut plan, mut products, bound) = match self.settings.mode {
            Mode::Fast => {
                (plan::fast(moduli, check, &products.a, &products.b, rows, columns)?, products, None)
            }
            Mode::Accurate => {
                let (row_maxima, column_maxima) = unsafe { self.maxima(&mut products)? };
                let maxima = (&row_maxima[..], &column_maxima[..]);
                (
                    plan::accurate(moduli, check, &products.a, &products.b, maxima, rows, columns)?,
                    products,
                    None,
                )
            }
            Mode::Auto | Mode::Native => {
                let (plan, products) = unsafe { self.certified(products, &out)? };
                if plan.moduli > self.settings.worth {
                    return Err(Reason::NoGain);
                }
                let promise = self.settings.accuracy.promise(most(&products.a).min(most(&products.b)));
                (plan, products, Some(promise))
            }
        };
        if plan.out == Out::default() {
            plan.out = out;
        }
        products.release();
        let exponents = (exponents(&products.a)?, exponents(&products.b)?);
        phases.bound = clock.elapsed();
        Ok(Planned { plan, bound, exponents, view: products.view, phases, fresh })
    }

    /// Mode accurate: R_i and K_j.
    ///
    /// # Safety
    ///
    /// A and B can be read, here and below.
    unsafe fn maxima(&self, products: &mut Products) -> Result<(Vec<u64>, Vec<u64>), Reason> {
        let (rows, columns) = self.tables(products)?;
        let (row_maxima, column_maxima) = (maxima(products.a.len())?, maxima(products.b.len())?);
        let visit = |at: Rectangle, g: Entries| {
            let bounds = bounds(&rows, &columns, at, g);
            let (mut r, mut k) = ([0; PANEL], [0; PANEL]);
            bounds.raise_maxima(&mut r[..at.rows], &mut k[..at.columns]);
            raise(&row_maxima[at.i..][..at.rows], &r);
            raise(&column_maxima[at.j..][..at.columns], &k);
        };
        // SAFETY: by the contract of this function.
        unsafe { products.for_each(&|_| true, &visit)? };
        Ok((values(row_maxima)?, values(column_maxima)?))
    }

    fn tables(&self, products: &Products) -> Result<(LineTable, LineTable), Reason> {
        let table = |lines| LineTable::new(lines, self.settings.accuracy).ok_or(Reason::NoMemory);
        Ok((table(&products.a)?, table(&products.b)?))
    }

    /// Mode auto: the plan with the fewest moduli that the steps find, and the products of its view. Each further step is tried only
    /// where those before it give more moduli than are good enough; and to balance by averages, and to take lines out, only where
    /// they give no plan at all.
    unsafe fn certified<'a>(
        &'a self,
        plain: Products<'a>,
        out: &Out,
    ) -> Result<(Plan, Products<'a>), Reason> {
        // SAFETY: by the contract of this function.
        if let Some(plan) = unsafe { self.exact(&plain)? } {
            return Ok((plan, plain));
        }
        let mut views = Views::new(self, plain);
        let mut best: Option<Plan> = None;
        for way in [Way::Plain, Way::MoreBits, Way::Balanced, Way::BalancedMoreBits] {
            // SAFETY: by the contract of this function, here and below.
            if way != Way::Plain && unsafe { views.is_in_vain(way, best.as_ref())? } {
                continue;
            }
            if let Some(products) = unsafe { views.of(way)? } {
                let (plan, worst) = unsafe { self.attempt(products, way)? };
                views.worst.get_or_insert(worst);
                best = fewer(best, plan);
            }
            if best.as_ref().is_some_and(|plan| plan.moduli <= plan::good_enough(self.settings.check)) {
                break;
            }
        }
        if let Some(plan) = best {
            let products = views.into(plan.way).ok_or(Reason::EngineFault)?;
            return Ok((plan, products));
        }
        for way in [Way::MoreBits, Way::BalancedMoreBits, Way::AveragedMoreBits] {
            if let Some(products) = unsafe { views.of(way)? }
                && let Some(plan) = unsafe { self.without_the_worst(products, way, out.clone())? }
            {
                let products = views.into(way).ok_or(Reason::EngineFault)?;
                return Ok((plan, products));
            }
        }
        Err(Reason::NotProvable)
    }

    /// Steps 1 to 4 with 5a, and 5b where more bits are wanted. None where no allowed number of moduli does. And the entry that asks
    /// for the most.
    ///
    /// # Safety
    ///
    /// A and B can be read, here and below.
    pub unsafe fn attempt(
        &self,
        products: &mut Products,
        way: Way,
    ) -> Result<(Option<Plan>, (usize, usize)), Reason> {
        let more_bits = way.has_more_bits();
        // SAFETY: by the contract of this function, here and below.
        let (row_needs, column_needs) = unsafe { self.needs(products, more_bits)? };
        let (largest, worst) = unsafe { self.largest(products, &row_needs, &column_needs)? };
        let (a, b) = (&products.a, &products.b);
        let Settings { moduli, check, .. } = *self.settings;
        let Ok(plan) = plan::auto(moduli, check, a, b, largest, row_needs, column_needs) else {
            return Ok((None, worst));
        };
        // What the plan says of balanced lines counts from their exponents: the kernels see them so.
        let turn_back = |side, lines: &[Line], mut exponents: Vec<i32>| {
            for (l, (s, line)) in exponents.iter_mut().zip(lines).enumerate() {
                if !line.is_zero() {
                    *s -= products.view.side(side).shift(l, 0);
                }
            }
            exponents
        };
        let mut inner = empty(products.view.inner().map_or(0, <[i32]>::len))?;
        inner.extend_from_slice(products.view.inner().unwrap_or_default());
        let plan = Plan {
            rows: turn_back(Side::Rows, a, plan.rows),
            columns: turn_back(Side::Columns, b, plan.columns),
            way,
            inner,
            ..plan
        };
        Ok((Some(plan), worst))
    }

    /// Steps 1 and 2, with 5a: needA_i and needB_j.
    unsafe fn needs(&self, products: &mut Products, more_bits: bool) -> Result<(Vec<i32>, Vec<i32>), Reason> {
        let (rows, columns) = self.tables(products)?;
        let (row_raised, column_raised) = (maxima(products.a.len())?, maxima(products.b.len())?);
        let zeros = AtomicBool::new(false);
        let raise_by = |at: Rectangle, r: [i64; PANEL], c: [i64; PANEL]| {
            raise(&row_raised[at.i..][..at.rows], &r.map(|need| need as u64));
            raise(&column_raised[at.j..][..at.columns], &c.map(|need| need as u64));
        };
        let visit = |at: Rectangle, bounds: Bounds| {
            let (mut r, mut c) = ([0; PANEL], [0; PANEL]);
            // SAFETY: the CPU runs the kernels.
            if unsafe { (self.kernels.raise_needs)(&bounds, &mut r[..at.rows], &mut c[..at.columns]) } {
                zeros.store(true, Ordering::Relaxed);
            }
            raise_by(at, r, c);
        };
        // SAFETY: by the contract of this function, here and below.
        if more_bits {
            let wants = Wants { more_bits, meet: false };
            unsafe {
                products.for_each_of(wants, &|at, sums| {
                    visit(at, lower_bounds(&rows, &columns, at, sums, more_bits));
                })?
            };
        } else {
            // The largest U_ij of each tile on the way: it says later which tiles need not be looked at again.
            let _charge = self.charge(2 * products.tiles() * size_of::<i64>())?;
            let mut largest = vector(products.tiles(), 0i64)?;
            let of_tiles = Shared::new(&mut largest);
            let visit = |at: Rectangle, g: Entries| {
                let bounds = bounds(&rows, &columns, at, g);
                visit(at, bounds);
                let none = [0; PANEL];
                // SAFETY: the number of this tile; the CPU runs the kernels.
                unsafe {
                    let key = (self.kernels.largest)(&bounds, &none[..at.rows], &none[..at.columns]);
                    of_tiles.chunk(products.number_of(&at), 1)[0] = key;
                }
            };
            unsafe { products.for_each(&|_| true, &visit)? };
            products.largest = largest;
        }
        if zeros.into_inner() {
            let visit = |at: Rectangle, sums: Sums| {
                let (mut r, mut c) = ([0; PANEL], [0; PANEL]);
                let meet = sums.meet;
                let bounds = lower_bounds(&rows, &columns, at, sums, more_bits);
                bounds.raise_meeting(meet, &mut r[..at.rows], &mut c[..at.columns]);
                raise_by(at, r, c);
            };
            unsafe { products.for_each_of(Wants { more_bits, meet: true }, &visit)? };
        }
        let needs = |raised: Vec<AtomicU64>, lines: &[Line]| -> Result<Vec<i32>, Reason> {
            let mut needs = empty(raised.len())?;
            needs.extend(raised.into_iter().map(|need| need.into_inner() as i32));
            plan::cap_needs(&mut needs, lines);
            Ok(needs)
        };
        Ok((needs(row_raised, &products.a)?, needs(column_raised, &products.b)?))
    }

    /// Steps 3 and 4: the largest 2^(needA_i + needB_j) U_ij, and an entry that has it.
    unsafe fn largest(
        &self,
        products: &mut Products,
        row_needs: &[i32],
        column_needs: &[i32],
    ) -> Result<(Magnitude, (usize, usize)), Reason> {
        let (rows, columns) = self.tables(products)?;
        let (mut row_keys, mut column_keys) = (vector(products.a.len(), 0)?, vector(products.b.len(), 0)?);
        needs::key_needs(row_needs, &products.a, &mut row_keys);
        needs::key_needs(column_needs, &products.b, &mut column_keys);
        let (largest, worst) = (AtomicI64::new(i64::MIN), Mutex::new((i64::MIN, (0, 0))));
        let visit = |at: Rectangle, g: Entries| {
            let bounds = bounds(&rows, &columns, at, g);
            let (r, c) = (&row_keys[at.i..][..at.rows], &column_keys[at.j..][..at.columns]);
            // SAFETY: the CPU runs the kernels.
            let key = unsafe { (self.kernels.largest)(&bounds, r, c) };
            if key > largest.fetch_max(key, Ordering::Relaxed) {
                let mut worst = worst.lock().unwrap_or_else(PoisonError::into_inner);
                if key > worst.0 {
                    let (i, j) = bounds.place_of_key(key, r, c);
                    *worst = (key, (at.i + i, at.j + j));
                }
            }
        };
        // No entry of a tile is above this.
        let most_of = |keys: &[i64]| -> Result<Vec<i64>, Reason> {
            let mut out = empty(keys.len().div_ceil(PANEL))?;
            out.extend(keys.chunks(PANEL).map(|keys| keys.iter().copied().max().unwrap_or(0)));
            Ok(out)
        };
        let (of_rows, of_columns) = (most_of(&row_keys)?, most_of(&column_keys)?);
        let mut caps = empty(products.largest.len())?;
        let with_needs = |(number, u): (usize, &i64)| {
            let (p, q) = (number % of_rows.len(), number / of_rows.len());
            needs::key_with(*u, of_rows[p] + of_columns[q])
        };
        caps.extend(products.largest.iter().enumerate().map(with_needs));
        // First those that promise the most, then those that could be above what these gave. Without a look before: all.
        let mut sorted = empty(caps.len())?;
        sorted.extend_from_slice(&caps);
        let last = sorted.len().saturating_sub(FIRST_TILES);
        let first = if sorted.is_empty() { i64::MIN } else { *sorted.select_nth_unstable(last).1 };
        let is_first = |tile: usize| caps.get(tile).is_none_or(|&cap| cap >= first);
        // SAFETY: by the contract of this function, here and below.
        unsafe { products.for_each(&is_first, &visit)? };
        let so_far = largest.load(Ordering::Relaxed);
        if caps.iter().any(|&cap| cap < first && cap > so_far) {
            unsafe { products.for_each(&|tile| !is_first(tile) && caps[tile] > so_far, &visit)? };
        }
        let (key, place) = worst.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((needs::largest_of_key(key), place))
    }

    /// Step 5d: the plan for the lines that are left when those with the most bad entries are taken out, until no entry is bad: first
    /// entries that no plan serves, then those that do not fit with what their lines need elsewhere. None where too much would be out.
    unsafe fn without_the_worst(
        &self,
        products: &mut Products,
        way: Way,
        mut out: Out,
    ) -> Result<Option<Plan>, Reason> {
        let more_bits = way.has_more_bits();
        let (m, n) = (products.a.len(), products.b.len());
        let Settings { moduli, check, .. } = *self.settings;
        let limit = Magnitude::limit(crt(moduli.min(MAX_MODULI)).limit(check));
        for hopeless in [true, false] {
            let (rows, columns) = self.tables(products)?;
            let _charge = self.charge(BadEntries::bytes(m, n))?;
            let mut bad = BadEntries::new(m, n).ok_or(Reason::NoMemory)?;
            let (words, words_of_column) = bad.words();
            let words = Shared::new(words);
            let mark = |at: Rectangle, for_each: &dyn Fn(Mark)| {
                let mut of_tile = [0u32; PANEL];
                for_each(&mut |i, j| of_tile[j] |= 1 << i);
                for (j, bits) in of_tile[..at.columns].iter().enumerate() {
                    // SAFETY: a word of this tile.
                    unsafe { words.chunk((at.j + j) * words_of_column + at.i / WORD, 1)[0] = *bits };
                }
            };
            // SAFETY: by the contract of this function, here and below.
            if hopeless {
                let (a, b) = (&products.a, &products.b);
                let visit = |at: Rectangle, sums: Sums| {
                    let bounds = lower_bounds(&rows, &columns, at, sums, more_bits);
                    let (g, meet) = (sums.g, sums.meet);
                    let exact = (&a[at.i..][..at.rows], &b[at.j..][..at.columns]);
                    mark(at, &|f| bounds.for_each_hopeless(g, meet, exact, limit, f));
                };
                unsafe { products.for_each_of(Wants { more_bits, meet: true }, &visit)? };
            } else {
                let (row_needs, column_needs) = unsafe { self.needs(products, more_bits)? };
                let visit = |at: Rectangle, g: Entries| {
                    let bounds = bounds(&rows, &columns, at, g);
                    let (r, c) = (&row_needs[at.i..][..at.rows], &column_needs[at.j..][..at.columns]);
                    mark(at, &|f| bounds.for_each_misfit(r, c, limit, f));
                };
                unsafe { products.for_each(&|_| true, &visit)? };
            }
            if !bad.take_out(&mut out) {
                return Ok(None);
            }
            out.rows.iter().for_each(|&i| products.take_out(Side::Rows, i));
            out.columns.iter().for_each(|&j| products.take_out(Side::Columns, j));
            if let (Some(mut plan), _) = unsafe { self.attempt(products, way)? } {
                out.rows.sort_unstable();
                out.columns.sort_unstable();
                plan.out = out;
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }
}

/// The plan with fewer moduli; the first where both have as many.
fn fewer(first: Option<Plan>, second: Option<Plan>) -> Option<Plan> {
    match (first, second) {
        (Some(first), Some(second)) if second.moduli < first.moduli => Some(second),
        (first, second) => first.or(second),
    }
}

fn most(lines: &[Line]) -> u64 {
    lines.iter().map(|line| line.nonzeros).max().unwrap_or(0)
}

pub fn exponents(lines: &[Line]) -> Result<Vec<i32>, Reason> {
    let mut out = empty(lines.len())?;
    out.extend(lines.iter().map(|line| line.exponent));
    Ok(out)
}

fn bounds<'a>(rows: &'a LineTable, columns: &'a LineTable, at: Rectangle, g: Entries<'a>) -> Bounds<'a> {
    let (rows, columns) = (rows.part(at.i, at.rows), columns.part(at.j, at.columns));
    Bounds { rows, columns, g, more_bits: 0, stride: PANEL }
}

/// The same with the lower bounds that there are.
fn lower_bounds<'a>(
    rows: &'a LineTable,
    columns: &'a LineTable,
    at: Rectangle,
    sums: Sums<'a>,
    more_bits: bool,
) -> Bounds<'a> {
    let more_bits = if more_bits { MORE_BITS } else { 0 };
    Bounds { more_bits, ..bounds(rows, columns, at, sums.lower) }
}

fn maxima(count: usize) -> Result<Vec<AtomicU64>, Reason> {
    let mut out = empty(count)?;
    out.resize_with(count, || AtomicU64::new(0));
    Ok(out)
}

fn values(maxima: Vec<AtomicU64>) -> Result<Vec<u64>, Reason> {
    let mut out = empty(maxima.len())?;
    out.extend(maxima.into_iter().map(AtomicU64::into_inner));
    Ok(out)
}

/// Most values are there already, and looking is cheaper than writing.
fn raise(maxima: &[AtomicU64], by: &[u64]) {
    for (maximum, &by) in maxima.iter().zip(by) {
        if by > maximum.load(Ordering::Relaxed) {
            maximum.fetch_max(by, Ordering::Relaxed);
        }
    }
}

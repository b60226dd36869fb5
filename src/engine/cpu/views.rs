//! The views of a call in which its plan is looked for (NUMERICS section 3, step 5), and how to see early that one is of no use.

use super::certify::exponents;
use super::driver::Run;
use super::kernels::{Chunk, DEPTH, InnerOfPanel, PANEL, Side};
use super::products::Products;
use super::team;
use super::view::{Balance, View};
use super::workspace::{Charge, vector};
use crate::gemm::{Gemm, Lines};
use crate::ozaki::balance::{self, Inner};
use crate::ozaki::bound::Line;
use crate::ozaki::needs::MORE_BITS_LONGEST;
use crate::ozaki::plan::{Balanced, Plan, Way};
use crate::route::Reason;

/// What balanced views are made from: taken before lines are taken out of the plain view, which is so for that view alone.
struct Base {
    /// The exponents along the inner dimension, of both operands.
    inner: [Vec<Inner>; 2],
    exponents: [Vec<i32>; 2],
    finite: View,
    _charge: Charge,
}

/// The views of a call in which a plan is looked for, each made when it is wanted first.
pub struct Views<'a> {
    run: &'a Run<'a>,
    plain: Products<'a>,
    /// The entry of the plain view that asks for the most.
    pub worst: Option<(usize, usize)>,
    sample: Option<Sample>,
    base: Option<Base>,
    /// The last one with a balanced inner dimension; its products are None where that cannot change the plan.
    balanced: Option<(Balanced, Option<Products<'a>>)>,
}

impl<'a> Views<'a> {
    pub fn new(run: &'a Run<'a>, plain: Products<'a>) -> Self {
        Self { run, plain, worst: None, sample: None, base: None, balanced: None }
    }

    /// The view of a way; None where the way is none for this call.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn of(&mut self, way: Way) -> Result<Option<&mut Products<'a>>, Reason> {
        if way.has_more_bits() && self.run.call.k > MORE_BITS_LONGEST {
            return Ok(None);
        }
        let by = way.balanced();
        if by == Balanced::No {
            return Ok(Some(&mut self.plain));
        }
        if self.balanced.as_ref().is_none_or(|(last, _)| *last != by) {
            self.plain.release();
            self.balanced = None;
            // SAFETY: by the contract of this function.
            self.balanced = Some((by, unsafe { self.balance(by)? }));
        }
        Ok(self.balanced.as_mut().and_then(|(_, products)| products.as_mut()))
    }

    /// The view of a way that gave a plan.
    pub fn into(self, way: Way) -> Option<Products<'a>> {
        match way.balanced() {
            Balanced::No => Some(self.plain),
            _ => self.balanced?.1,
        }
    }

    /// A way cannot give a plan with fewer moduli than there is already: that is certain if it cannot for some of the lines, since every
    /// line asks only for more. False where nothing is certain.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    pub unsafe fn is_in_vain(&mut self, way: Way, best: Option<&Plan>) -> Result<bool, Reason> {
        let (run, by) = (self.run, way.balanced());
        if way.has_more_bits() && run.call.k > MORE_BITS_LONGEST {
            return Ok(true);
        }
        let Some(worst) = self.worst.filter(|_| run.call.m.min(run.call.n) > 4 * Sample::LINES) else {
            return Ok(false);
        };
        // SAFETY: by the contract of this function, here and below.
        let d = if by == Balanced::No { None } else { unsafe { self.shifts(by)? } };
        if by != Balanced::No && d.is_none() {
            return Ok(true);
        }
        let sample = match &mut self.sample {
            Some(sample) => sample,
            none => none.insert(unsafe { Sample::new(run, &self.plain, worst)? }),
        };
        let balance = match (d, &self.base) {
            (Some(d), Some(base)) => {
                let [rows, columns] = [(0, &sample.rows), (1, &sample.columns)].map(|(side, lines)| {
                    lines.iter().map(|&line| base.exponents[side][line]).collect::<Vec<i32>>()
                });
                Some(Balance::new([&rows, &columns], d)?)
            }
            _ => None,
        };
        let call = sample.call(run.call);
        let run = Run { call: &call, ..*run };
        let mut products = unsafe { Products::scan(&run, View::new(&call)?.balanced(balance)?)? };
        let (plan, _) = unsafe { run.attempt(&mut products, way)? };
        products.release();
        Ok(plan.is_none_or(|plan| best.is_some_and(|best| plan.moduli >= best.moduli)))
    }

    /// d_h of step 5c; None where that cannot change the plan.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn shifts(&mut self, by: Balanced) -> Result<Option<Vec<i32>>, Reason> {
        let base = match &mut self.base {
            Some(base) => base,
            // SAFETY: by the contract of this function.
            none => none.insert(unsafe { Base::new(self.run, &self.plain)? }),
        };
        let [e, f] = &base.inner;
        Ok(match by {
            Balanced::ByAverage => balance::shifts([e, f], Inner::average),
            _ => balance::shifts([e, f], |inner| inner.most),
        })
    }

    /// The lines with a balanced inner dimension; None where that cannot change the plan.
    ///
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn balance(&mut self, by: Balanced) -> Result<Option<Products<'a>>, Reason> {
        // SAFETY: by the contract of this function, here and below.
        let Some(d) = (unsafe { self.shifts(by)? }) else { return Ok(None) };
        let Some(Base { exponents: [rows, columns], finite, .. }) = &self.base else { return Ok(None) };
        let view = finite.balanced(Some(Balance::new([rows, columns], d)?))?;
        let products = unsafe { Products::scan(self.run, view)? };
        debug_assert_eq!(
            products.view.count_out(),
            finite.count_out(),
            "balanced lines stay within the range of doubles"
        );
        Ok(Some(products))
    }
}

/// Some lines of a call, copied: enough to see that a way is in vain.
struct Sample {
    rows: Vec<usize>,
    columns: Vec<usize>,
    a: Vec<f64>,
    b: Vec<f64>,
    _charge: Charge,
}

impl Sample {
    /// Lines of each side, spread evenly, and the one that asks for the most.
    const LINES: usize = 127;

    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn new(run: &Run, plain: &Products, worst: (usize, usize)) -> Result<Self, Reason> {
        let call = run.call;
        let spread = |lines: &[Line], worst: usize| -> Vec<usize> {
            let all = (0..Self::LINES).map(|number| number * lines.len() / Self::LINES).chain([worst]);
            // Lines that are not finite take part in nothing.
            all.filter(|&line| !lines[line].is_zero()).collect()
        };
        let (rows, columns) = (spread(&plain.a, worst.0), spread(&plain.b, worst.1));
        let elements = (rows.len() + columns.len()).saturating_mul(call.k);
        let _charge = run.charge(elements.saturating_mul(size_of::<f64>()))?;
        let copy = |from: &Lines, lines: &[usize]| -> Result<Vec<f64>, Reason> {
            let mut out = vector(lines.len() * from.length, 0.0)?;
            let copied = team::for_each_chunk(run.threads, &mut out, from.length, &|number, out| {
                for (h, to) in out.iter_mut().enumerate() {
                    let at = lines[number] * from.line_stride + h * from.element_stride;
                    // SAFETY: an element, by the contract of this function.
                    *to = unsafe { from.pointer().wrapping_add(at).read_unaligned() };
                }
            });
            copied?;
            Ok(out)
        };
        let (a, b) = (copy(&call.a, &rows)?, copy(&call.b, &columns)?);
        Ok(Self { rows, columns, a, b, _charge })
    }

    /// The product of these lines alone.
    fn call(&self, of: &Gemm) -> Gemm {
        let (m, n) = (self.rows.len(), self.columns.len());
        let (a, b) = (Lines::dense(self.a.as_ptr(), m, of.k), Lines::dense(self.b.as_ptr(), n, of.k));
        Gemm { m, n, a, b, ..*of }
    }
}

impl Base {
    /// # Safety
    ///
    /// A and B can be read.
    unsafe fn new(run: &Run, plain: &Products) -> Result<Self, Reason> {
        let _charge = run.charge(run.call.k.saturating_mul(2 * size_of::<Inner>()))?;
        let exponents = [exponents(&plain.a)?, exponents(&plain.b)?];
        // SAFETY: by the contract of this function, here and below.
        let rows = unsafe { run.inner_exponents(plain, Side::Rows, &exponents[0])? };
        let columns = unsafe { run.inner_exponents(plain, Side::Columns, &exponents[1])? };
        Ok(Self { inner: [rows, columns], exponents, finite: plain.view.balanced(None)?, _charge })
    }
}

impl Run<'_> {
    /// For every inner index the exponents of the elements, relative to those of their lines.
    unsafe fn inner_exponents(
        &self,
        products: &Products,
        side: Side,
        exponents: &[i32],
    ) -> Result<Vec<Inner>, Reason> {
        let part = products.part(side);
        let mut all = vector(part.count, Inner::NONE)?;
        // A task has some elements of all lines.
        let step = (part.count.div_ceil(self.threads)).next_multiple_of(DEPTH);
        team::for_each_chunk(self.threads, &mut all, step, &|number, all| {
            let part = part.elements(number * step, all.len());
            for group in 0..part.groups() {
                let add = |p: usize, chunk: &Chunk, first: usize| {
                    let mut of_lines = [0; PANEL];
                    for (own, &e) in of_lines.iter_mut().zip(&exponents[part.lines_of(p)]) {
                        *own = e;
                    }
                    let mut of_panel = InnerOfPanel::NONE;
                    // SAFETY: the chunk can be read, and the CPU runs the kernels.
                    unsafe { (self.kernels.add_inner)(chunk, &of_lines, &mut of_panel) };
                    for (h, inner) in all[first..].iter_mut().take(DEPTH).enumerate() {
                        inner.most = inner.most.max(of_panel.most[h]);
                        inner.sum += i64::from(of_panel.sum[h]);
                        inner.count += i64::from(of_panel.count[h]);
                    }
                };
                // SAFETY: by the contract of this function.
                unsafe { self.for_each_chunk(&part, part.panels(group), add) };
            }
        })?;
        Ok(all)
    }
}

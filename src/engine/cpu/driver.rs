//! The walk of an emulated call on the CPU: scan, bound, plan, then block by block residues, product, reduce, reconstruct.
//!
//! All sums are exact integers, so the result does not depend on blocks or threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::block::Block;
use super::blocks::{Packed, rectangles};
use super::check::Check;
use super::kernels::{Earlier, Kernels, PANEL, Pass, Side, TILE};
use super::parts::{GROUP, Part};
use super::strassen::{Cut, Operands};
use super::team::{self, Panicked};
use super::view::View;
use super::workspace::{Charge, DEFAULT_BYTES};
use crate::engine::{Outcome, Phases, Report, Settings};
use crate::gemm::Gemm;
use crate::ozaki::moduli::crt;
use crate::ozaki::plan::{NoPlan, Plan};
use crate::ozaki::reconstruct::Reconstruct;
use crate::route::Reason;

/// Below this many 8-bit multiplications another thread costs more than it brings.
const WORTH_A_TEAM: u64 = 4_000_000;

impl From<Panicked> for Reason {
    fn from(_: Panicked) -> Self {
        Self::EngineFault
    }
}

impl From<NoPlan> for Reason {
    fn from(none: NoPlan) -> Self {
        match none {
            NoPlan::Range => Self::Range,
            NoPlan::NotProvable => Self::NotProvable,
            NoPlan::NotFinite => Self::NonFinite,
        }
    }
}

/// A call on its way.
pub struct Run<'a> {
    pub kernels: &'static Kernels,
    pub call: &'a Gemm,
    pub settings: &'a Settings,
    pub threads: usize,
}

/// What the plan stage leaves for the computation.
pub struct Planned {
    pub plan: Plan,
    /// The largest T + 1 that is proved (None in the modes that prove nothing).
    pub bound: Option<f64>,
    /// The exponents e of the rows and columns in the view: |x| < 2^e.
    pub exponents: (Vec<i32>, Vec<i32>),
    pub view: View,
    pub phases: Phases,
    /// Memory came fresh from the system.
    pub fresh: bool,
}

impl Planned {
    /// For a panel of a part what the kernels multiply its lines by, and a bound for the bits of the results.
    pub fn shifts(&self, part: &Part, p: usize) -> ([i32; PANEL], i32) {
        let (scales, exponents) = match part.side {
            Side::Rows => (&self.plan.rows, &self.exponents.0),
            Side::Columns => (&self.plan.columns, &self.exponents.1),
        };
        let (mut shifts, lines) = ([0; PANEL], part.lines_of(p));
        for (s, l) in shifts.iter_mut().zip(lines.clone()) {
            *s = part.view.shift(l, scales[l]);
        }
        let bits = shifts.iter().zip(&exponents[lines]).map(|(s, e)| s + e).max().unwrap_or(0);
        (shifts, bits)
    }
}

/// # Safety
///
/// As for [`crate::engine::Engine::gemm`]; the CPU can run the kernels.
pub unsafe fn gemm(kernels: &'static Kernels, call: &Gemm, settings: &Settings) -> Outcome {
    let run = Run::new(kernels, call, settings);
    // SAFETY: passed on from the caller, here and below.
    match unsafe { run.plan() } {
        Ok(planned) => unsafe { run.compute(planned) },
        Err(reason) => Outcome::Declined(reason),
    }
}

/// # Safety
///
/// A and B of the call can be read; the CPU can run the kernels.
pub unsafe fn plan(
    kernels: &'static Kernels,
    call: &Gemm,
    settings: &Settings,
) -> Result<(Plan, Option<f64>), Reason> {
    // SAFETY: passed on from the caller.
    unsafe { Run::new(kernels, call, settings).plan().map(|planned| (planned.plan, planned.bound)) }
}

impl<'a> Run<'a> {
    pub fn new(kernels: &'static Kernels, call: &'a Gemm, settings: &'a Settings) -> Self {
        let small = call.multiplications().saturating_mul(settings.moduli as u64) <= WORTH_A_TEAM;
        let threads = if small { 1 } else { settings.threads };
        Self { kernels, call, settings, threads }
    }

    pub fn limit(&self) -> usize {
        self.settings.workspace.unwrap_or(DEFAULT_BYTES)
    }

    pub fn charge(&self, bytes: usize) -> Result<Charge, Reason> {
        Charge::take(bytes, self.limit())
    }

    /// The residues of both operands for a block of C, those of B unless they are there already. `scratch(seat)` is what a thread has
    /// for Strassen's form.
    ///
    /// # Safety
    ///
    /// A and B can be read, and nobody else uses the panels and the scratch.
    pub unsafe fn residues(
        &self,
        planned: &Planned,
        cut: Cut,
        parts: &[(Part, Operands)],
        scratch: &(dyn Fn(usize) -> *mut u8 + Sync),
    ) -> Result<(), Panicked> {
        let groups = |part: &Part| Part { lines: cut.lines(part.lines), ..*part }.groups();
        let all: usize = parts.iter().map(|(part, _)| groups(part)).sum();
        let next = AtomicUsize::new(0);
        team::run(self.threads, self.threads.min(all), &|seat| {
            loop {
                let mut group = next.fetch_add(1, Ordering::Relaxed);
                let found = parts.iter().find(|(part, _)| {
                    let here = group < groups(part);
                    group -= if here { 0 } else { groups(part) };
                    here
                });
                let Some((part, operands)) = found else { break };
                // SAFETY: by the contract of this function; no other task has these panels.
                unsafe {
                    match cut.levels {
                        0 => self.pack(planned, part, &operands.get(0), group),
                        _ => self.pack_operands(planned, part, cut, operands, group, scratch(seat)),
                    }
                }
            }
        })
    }

    /// The residues of a group of panels.
    ///
    /// # Safety
    ///
    /// The matrix can be read, and nobody else uses the panels.
    pub unsafe fn pack(&self, planned: &Planned, part: &Part, packed: &Packed, group: usize) {
        let moduli = planned.plan.moduli;
        let panels = part.panels(group);
        let mut of_panels = [([0; PANEL], 0); GROUP];
        for (of_panel, p) in of_panels.iter_mut().zip(panels.clone()) {
            *of_panel = planned.shifts(part, p);
        }
        // SAFETY: by the contract of this function.
        unsafe {
            self.for_each_chunk(part, panels.clone(), |p, chunk, at| {
                let (s, bits) = &of_panels[p - panels.start];
                (self.kernels.residues)(part.side, chunk, s, *bits, moduli, packed.place(0, p, at));
            });
        }
    }

    /// The residues of the products of a block of tiles, whose first panels are p and q: modulus by modulus, so that the rows of one
    /// modulus stay in the cache.
    ///
    /// # Safety
    ///
    /// The panels are packed, and nobody else uses the residues.
    pub unsafe fn multiply(
        &self,
        moduli: usize,
        (a, b): (Packed, Packed),
        (p, q): (usize, usize),
        (down, across): (usize, usize),
        residues: *mut i8,
        add: bool,
    ) {
        let kernels = self.kernels;
        let crt = crt(moduli);
        let depth = (kernels.blocking)(a.length).depth;
        for first in (0..a.length).step_by(depth) {
            let count = depth.min(a.length - first);
            let offset = |side| (kernels.element_at)(side, a.length, 0, first) * kernels.element;
            for l in 0..moduli {
                let rows = |l: usize| a.panel(l, p).wrapping_add(offset(Side::Rows)).cast_const();
                let columns = |l: usize| b.panel(l, q).wrapping_add(offset(Side::Columns)).cast_const();
                let (residues, tile) = (residues.wrapping_add(l * TILE), moduli * TILE);
                let pass = Pass {
                    rows: rows(l),
                    columns: columns(l),
                    panel: a.panel,
                    length: a.length,
                    count,
                    down,
                    across,
                    modulus: l,
                    factor: crt.inverses[l],
                    residues,
                    tile,
                    earlier: (add || first > 0).then_some(Earlier { residues, tile }),
                    next_rows: rows(l + 1),
                    next_columns: columns(l + 1),
                };
                // SAFETY: by the contract of this function.
                unsafe { (kernels.pass)(&pass) };
            }
        }
    }

    /// The emulated product, block by block. Nothing can fail for want of memory after the first write to C.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    unsafe fn compute(&self, planned: Planned) -> Outcome {
        let call = self.call;
        let Planned { plan, bound, .. } = &planned;
        let (moduli, way, bound) = (plan.moduli, plan.way, *bound);
        let (blocks, room) = match self.blocks(moduli) {
            Ok(room) => room,
            Err(reason) => return Outcome::Declined(reason),
        };
        let reconstruct = Reconstruct::new(crt(moduli), call.alpha);
        let all = rectangles(call.m, call.n, (blocks.rows, blocks.columns));
        let mut b_holds = None;
        let mut phases = planned.phases;
        let check = self.settings.check.then(Check::default);
        let report = |out, phases, fresh| Report {
            moduli,
            way,
            bound,
            out,
            phases,
            fresh,
            checked: check.as_ref().map(Check::outcome),
            strassen: room.cut.levels,
        };
        for (number, at) in all.clone().enumerate() {
            let block = Block {
                run: self,
                planned: &planned,
                reconstruct: &reconstruct,
                check: check.as_ref(),
                at,
                blocks: &blocks,
                room: &room,
            };
            // A panic must not get past here: the caller would not know which tiles are written.
            // SAFETY: by the contract of this function.
            let computed =
                catch_unwind(AssertUnwindSafe(|| unsafe { block.compute(&mut b_holds, &mut phases) }));
            let reason = match computed {
                Ok(Ok(())) if check.as_ref().is_none_or(|check| !check.is_hopeless()) => None,
                Ok(Ok(())) => Some(Reason::FailedCheck),
                _ => Some(Reason::EngineFault),
            };
            if let Some(reason) = reason {
                // What is missing: the tiles of this block that are not written, and all later blocks.
                let missing = block.missing().chain(all.skip(number + 1));
                let out = &planned.plan.out;
                let rest = missing.flat_map(|part| part.without(&out.rows, &out.columns)).collect();
                return Outcome::Partial(report(planned.plan.out, phases, true), reason, rest);
            }
        }
        let fresh = planned.fresh || room.arena.fresh;
        room.arena.keep();
        Outcome::Done(report(planned.plan.out, phases, fresh))
    }
}

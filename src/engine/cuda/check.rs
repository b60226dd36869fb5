//! The self-check on a device (NUMERICS section 5): a block that has a value out of range is computed again, from A and B, before
//! anything of it is written to C.

use cudarc::driver::sys::CUdeviceptr;

use super::blocks::Blocks;
use super::compute::{Pending, SLOTS};
use super::device::Region;
use super::library::Fault;
use super::plan::CHECKS;
use super::run::{Run, Stop};
use crate::gemm::Rectangle;
use crate::observe::log::{self, Kind, Level};
use crate::ozaki::moduli::{LEGAL, MODULI, canonical};
use crate::ozaki::plan::Plan;
use crate::ozaki::reconstruct::{fraction, wrong_modulus};
use crate::ozaki::strassen::PRODUCTS;
use crate::route::Reason;

/// C11, C12, C21, C22 of Strassen's form: the products, counted from 0, with their signs.
const QUARTERS: [&[(usize, i64)]; 4] = [
    &[(0, 1), (1, 1)],
    &[(0, 1), (5, 1), (4, 1), (2, 1)],
    &[(0, 1), (5, 1), (6, 1), (3, -1)],
    &[(0, 1), (5, 1), (6, 1), (4, 1)],
];

/// A residue of an entry of part (i, j) of C with so many levels, not canonical, from those of the products. They are in planes from
/// `first` on, from which `read` reads.
fn residue(
    read: &impl Fn(usize) -> Result<i64, Fault>,
    [i, j]: [usize; 2],
    levels: usize,
    first: usize,
) -> Result<i64, Fault> {
    let Some(inner) = levels.checked_sub(1) else { return read(first) };
    let half = 1 << inner;
    let mut sum = 0;
    for &(product, sign) in QUARTERS[i / half * 2 + j / half] {
        let first = first + product * PRODUCTS.pow(inner as u32);
        sum += sign * residue(read, [i % half, j % half], inner, first)?;
    }
    Ok(sum)
}

/// What the kernel leaves of a block (kernels/reconstruct.cu).
struct Seen {
    /// The largest |C'| / P.
    peak: f64,
    /// Entries out of range.
    flagged: u64,
    /// The first of them, relative to the block, and its C' / P in units of 2^-24.
    first: (usize, usize),
    fraction: f64,
}

impl Seen {
    fn of([peak, flagged, first]: [u64; 3], rows: usize) -> Self {
        let place = (first >> 24) as usize;
        // The sign is the highest of the 24 bits.
        let fraction = f64::from((first as i32) << 8 >> 8) / f64::from(1 << 24);
        Self { peak: f64::from_bits(peak), flagged, first: (place % rows, place / rows), fraction }
    }
}

impl Run<'_> {
    /// Where the self-check leaves what it saw of the result in a slot.
    pub fn check_words(&self, slot: usize) -> CUdeviceptr {
        self.device.existing(Region::Constants) + (CHECKS + slot * size_of::<[u64; 3]>()) as u64
    }

    /// Waits for a block, and computes it again if it has an entry out of range.
    ///
    /// # Safety
    ///
    /// A, B and C can be read.
    pub unsafe fn check(
        &mut self,
        plan: &Plan,
        blocks: &Blocks,
        pending: Pending,
        c_on_device: bool,
    ) -> Result<(), Stop> {
        if !self.settings.check {
            return Ok(());
        }
        let Pending { at, slot } = pending;
        let mut before = None;
        loop {
            let mut words = [0u64; 3];
            self.device.wait(self.device.store, SLOTS[slot].1)?;
            self.read_on(self.device.store, self.check_words(slot), &mut words)?;
            let seen = Seen::of(words, at.rows);
            if seen.flagged == 0 {
                self.checked.peak = self.checked.peak.max(seen.peak / LEGAL);
                if let Some(before) = &before {
                    self.checked.repaired += 1;
                    let modulus = self.wrong_modulus(plan, blocks, at, before)?;
                    self.tell(at, before, modulus, true);
                }
                return Ok(());
            }
            if let Some(before) = before {
                self.tell(at, &before, None, false);
                return Err(Stop::Declined(Reason::FailedCheck));
            }
            self.checked.flagged += 1;
            before = Some(seen);
            for operand in [&mut self.a, &mut self.b] {
                (operand.raw_holds, operand.planes_hold) = (None, None);
            }
            // SAFETY: by the contract of this function.
            unsafe { self.block(plan, blocks, at, slot, c_on_device)? };
        }
    }

    /// The number of the modulus whose residue was wrong in the first flagged entry, from what it should have been: the residues of
    /// the second computation are still there.
    fn wrong_modulus(
        &self,
        plan: &Plan,
        blocks: &Blocks,
        at: Rectangle,
        before: &Seen,
    ) -> Result<Option<usize>, Fault> {
        let layout = blocks.layout;
        let (ld, columns) = (layout.rows(at.rows), layout.columns(at.columns));
        let (i, j) = before.first;
        let read = |plane: usize| {
            let place = plane * ld * columns + j % columns * ld + i % ld;
            let mut residue = [0i8];
            self.read(self.device.existing(Region::Residues) + place as u64, &mut residue)?;
            Ok(i64::from(residue[0]))
        };
        let mut residues = [0i8; MODULI.len()];
        for (l, out) in residues[..plan.moduli].iter_mut().enumerate() {
            let sum = residue(&read, [i / ld, j / columns], layout.levels, layout.planes(l))?;
            *out = canonical(sum, l) as i8;
        }
        let right = fraction(&residues[..plan.moduli]);
        Ok(wrong_modulus(before.fraction - right, plan.moduli))
    }

    fn tell(&self, at: Rectangle, seen: &Seen, modulus: Option<usize>, repaired: bool) {
        let (i, j) = (at.i + seen.first.0, at.j + seen.first.1);
        let (row, column) = if self.call.row_major { (j, i) } else { (i, j) };
        let what = match modulus {
            Some(l) => format!("a wrong residue modulo {}", MODULI[l]),
            None => "a value out of range".to_owned(),
        };
        let (level, end) = if repaired {
            (Level::Warn, "computed again")
        } else {
            (Level::Error, "again and again; the rest of the call is computed elsewhere")
        };
        let entries = seen.flagged;
        let text = format!(
            "the self-check found {what} at row {row}, column {column} of C (from 0), {entries} in the block, engine cuda: {end}"
        );
        log::capped(Kind::FailedCheck, level, &text);
    }
}

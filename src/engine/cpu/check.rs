//! The self-check (NUMERICS section 5): a tile of C that has a value out of range is computed again, from A and B, first by the same
//! kernels and then by others. It is written when it passes, and never if it does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::block::Block;
use super::blocks::{Packed, residue_bytes, tiles};
use super::driver::Run;
use super::kernels::{DEPTH, Kernels, PANEL, Peak, Side, TILE, runnable};
use super::parts::Part;
use super::workspace::{Arena, piece_bytes};
use crate::engine::Checked;
use crate::gemm::Rectangle;
use crate::observe::log::{self, Kind, Level};
use crate::ozaki::moduli::{LEGAL, MODULI};
use crate::route::Reason;

/// Tiles of a call that only other kernels could put right, at most: then the unit is broken, and the others are slow.
const MOST_BY_OTHERS: u64 = 16;

/// Elements of the inner dimension that are packed at a time.
const LENGTH: usize = 1024;

/// What the self-check of a call has seen.
#[derive(Default)]
pub struct Check {
    pub peak: Peak,
    flagged: AtomicU64,
    repaired: AtomicU64,
    by_others: AtomicU64,
    hopeless: AtomicBool,
}

impl Check {
    pub fn outcome(&self) -> Checked {
        Checked {
            peak: self.peak.get() / LEGAL,
            flagged: self.flagged.load(Ordering::Relaxed),
            repaired: self.repaired.load(Ordering::Relaxed),
        }
    }

    /// Some tile was not put right.
    pub fn is_hopeless(&self) -> bool {
        self.hopeless.load(Ordering::Relaxed)
    }
}

/// The residues of a tile, computed by some kernels.
struct Residues<'a> {
    kernels: &'a Kernels,
    start: *const i8,
}

impl Residues<'_> {
    fn get(&self, moduli: usize, l: usize, i: usize, j: usize) -> i8 {
        debug_assert!(l < moduli);
        // SAFETY: a tile has TILE residues for each modulus.
        unsafe { self.start.add(l * TILE + (self.kernels.residue_at)(i, j)).read() }
    }
}

/// Where two computations of a tile differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Difference {
    None,
    /// The first entry, relative to the tile, and the number of the only modulus in which any entry differs.
    In {
        i: usize,
        j: usize,
        modulus: Option<usize>,
    },
}

impl Difference {
    fn of(at: Rectangle, moduli: usize, x: &Residues, y: &Residues) -> Self {
        let (mut first, mut differing) = (None, 0u32);
        for (i, j) in (0..at.columns).flat_map(|j| (0..at.rows).map(move |i| (i, j))) {
            for l in (0..moduli).filter(|&l| x.get(moduli, l, i, j) != y.get(moduli, l, i, j)) {
                first.get_or_insert((i, j));
                differing |= 1 << l;
            }
        }
        let Some((i, j)) = first else { return Self::None };
        let modulus = differing.is_power_of_two().then(|| differing.trailing_zeros() as usize);
        Self::In { i, j, modulus }
    }
}

impl Block<'_> {
    /// Computes those tiles of a task again that are not complete.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`]; `residues` are those of the task.
    pub unsafe fn repair(&self, check: &Check, at: Rectangle, residues: *const i8, written: &[AtomicBool]) {
        let moduli = self.planned.plan.moduli;
        for (number, tile) in tiles(at).enumerate() {
            let written = &written[number..=number];
            if written[0].load(Ordering::Relaxed) {
                continue;
            }
            check.flagged.fetch_add(1, Ordering::Relaxed);
            let kernels = self.run.kernels;
            let found = Residues { kernels, start: residues.wrapping_add(number * moduli * TILE) };
            let mut difference = Difference::None;
            let mut repaired = false;
            for (kernels, others) in [(kernels, false), (others(kernels), true)] {
                if others && check.by_others.fetch_add(1, Ordering::Relaxed) >= MOST_BY_OTHERS {
                    break;
                }
                // SAFETY: by the contract of this function; these kernels run on this CPU.
                let again = unsafe { self.again(kernels, tile, written) };
                let Ok(again) = again else { break };
                let again = Residues { kernels, start: again.residues };
                difference = Difference::of(tile, moduli, &found, &again);
                repaired = written[0].load(Ordering::Relaxed);
                if repaired {
                    check.repaired.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
            if !repaired {
                check.hopeless.store(true, Ordering::Relaxed);
            }
            self.tell(tile, difference, repaired);
        }
    }

    /// The residues of a tile, computed anew, and the tile itself if they pass.
    ///
    /// # Safety
    ///
    /// As for [`crate::engine::Engine::gemm`].
    unsafe fn again(
        &self,
        kernels: &'static Kernels,
        tile: Rectangle,
        written: &[AtomicBool],
    ) -> Result<Again, Reason> {
        let run = Run { kernels, threads: 1, ..*self.run };
        let (call, moduli) = (run.call, self.planned.plan.moduli);
        let length = call.k.next_multiple_of(DEPTH).min(LENGTH);
        let lines = Packed::bytes(kernels, PANEL, length, moduli);
        let bytes = 2 * piece_bytes(lines) + piece_bytes(residue_bytes(1, moduli));
        let arena = Arena::take(bytes, run.limit())?;
        let mut pieces = arena.pieces();
        let packed = [pieces.next(lines), pieces.next(lines)];
        let residues: *mut i8 = pieces.next(residue_bytes(1, moduli)).cast();
        for first in (0..call.k).step_by(length) {
            let count = length.min(call.k - first);
            let packed = packed.map(|start| {
                let whole = Packed::new(start, kernels, PANEL, length);
                whole.with_length(kernels, count.next_multiple_of(DEPTH))
            });
            let part = |side, operand, first_line, lines| {
                let view = self.planned.view.side(side);
                Part { side, operand, first_line, lines, first, count, view }
            };
            let rows = part(Side::Rows, &call.a, tile.i, tile.rows);
            let columns = part(Side::Columns, &call.b, tile.j, tile.columns);
            // SAFETY: by the contract of this function; the memory is ours.
            unsafe {
                run.pack(self.planned, &rows, &packed[0], 0);
                run.pack(self.planned, &columns, &packed[1], 0);
                run.multiply(moduli, (packed[0], packed[1]), (0, 0), (1, 1), residues, first > 0);
            }
        }
        // SAFETY: as above.
        unsafe { self.reconstruct(kernels, tile, residues, written) };
        Ok(Again { residues, _arena: arena })
    }

    fn tell(&self, tile: Rectangle, difference: Difference, repaired: bool) {
        let (i, j, what) = match difference {
            Difference::None => {
                (0, 0, "a value out of range with the residues that it should have".to_owned())
            }
            Difference::In { i, j, modulus: Some(l) } => {
                (i, j, format!("a wrong residue modulo {}", MODULI[l]))
            }
            Difference::In { i, j, modulus: None } => (i, j, "wrong residues of several moduli".to_owned()),
        };
        let (i, j) = (tile.i + i, tile.j + j);
        let (row, column) = if self.run.call.row_major { (j, i) } else { (i, j) };
        let (level, end) = if repaired {
            (Level::Warn, "computed again")
        } else {
            (Level::Error, "again and again; the rest of the call is computed natively")
        };
        let text = format!(
            "the self-check found {what} at row {row}, column {column} of C (from 0), engine {}: {end}",
            self.run.kernels.name
        );
        log::capped(Kind::FailedCheck, level, &text);
    }
}

struct Again {
    residues: *const i8,
    _arena: Box<Arena>,
}

/// Another way to compute the same; the same way where this CPU has no other.
fn others(kernels: &'static Kernels) -> &'static Kernels {
    runnable().find(|others| others.name != kernels.name).unwrap_or(kernels)
}

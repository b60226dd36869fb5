//! The speed of the products of a table of kernels, for people who ask (`oz2run --doctor`).

use std::time::{Duration, Instant};

use super::kernels::{Kernels, PANEL, Pass, TILE};

/// Elements of the inner dimension: panels stay in the first caches.
const LENGTH: usize = 1024;
/// Tiles of a pass in each direction, at most.
const TILES: usize = 4;
/// So long it is measured; the best of some parts counts.
const TIME: Duration = Duration::from_millis(10);
const PARTS: u32 = 5;

/// A panel with room for the widest elements.
#[repr(C, align(64))]
struct Panel([u8; PANEL * LENGTH * size_of::<i16>()]);

#[repr(C, align(64))]
struct Residues([i8; TILES * TILES * TILE]);

/// 10^12 operations a second of one thread, a multiplication and an addition being two: products and their reduction to residues.
///
/// # Safety
///
/// The CPU can run the kernels.
pub unsafe fn tops(kernels: &Kernels) -> f64 {
    static PANEL_OF_ONES: Panel = Panel([1; PANEL * LENGTH * size_of::<i16>()]);
    let panel = PANEL_OF_ONES.0.as_ptr();
    let mut residues = Residues([0; TILES * TILES * TILE]);
    let blocking = (kernels.blocking)(LENGTH);
    // All panels are the same one.
    let pass = Pass {
        rows: panel,
        columns: panel,
        panel: 0,
        length: LENGTH,
        count: LENGTH,
        down: blocking.down.min(TILES),
        across: blocking.across.min(TILES),
        modulus: 1,
        factor: 1,
        residues: residues.0.as_mut_ptr(),
        tile: TILE,
        earlier: None,
        next_rows: panel,
        next_columns: panel,
    };
    let mut best = 0.0f64;
    for _ in 0..PARTS {
        let (start, mut passes) = (Instant::now(), 0u32);
        while start.elapsed() < TIME / PARTS {
            // SAFETY: by the contract of this function; the panels have LENGTH elements.
            unsafe { (kernels.pass)(&pass) };
            passes += 1;
        }
        let operations = f64::from(passes) * (2 * pass.down * pass.across * TILE * LENGTH) as f64;
        best = best.max(operations / start.elapsed().as_secs_f64() * 1e-12);
    }
    best
}

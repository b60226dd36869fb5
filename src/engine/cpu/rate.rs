//! The speed of the products of a table of kernels, for people who ask (`oz2run --doctor`).

use std::time::{Duration, Instant};

use super::kernels::{Kernels, PANEL, Product, TILE, Tile};

/// Elements of the inner dimension: both panels stay in the first caches.
const LENGTH: usize = 512;
/// So long it is measured; the best of some parts counts.
const TIME: Duration = Duration::from_millis(10);
const PARTS: u32 = 5;

/// A panel with room for the widest elements.
#[repr(C, align(64))]
struct Panel([u8; PANEL * LENGTH * size_of::<i16>()]);

/// 10^12 operations a second of one thread, a multiplication and an addition being two.
///
/// # Safety
///
/// The CPU can run the kernels.
pub unsafe fn tops(kernels: &Kernels) -> f64 {
    static PANEL_OF_ONES: Panel = Panel([1; PANEL * LENGTH * size_of::<i16>()]);
    let panel = PANEL_OF_ONES.0.as_ptr();
    let mut sums = Tile([0; TILE]);
    let mut best = 0.0f64;
    for _ in 0..PARTS {
        let (start, mut tiles) = (Instant::now(), 0u32);
        while start.elapsed() < TIME / PARTS {
            for _ in 0..8 {
                // SAFETY: by the contract of this function; the panels have LENGTH elements.
                unsafe {
                    (kernels.product)(&Product::whole(panel, panel, LENGTH), std::slice::from_mut(&mut sums))
                };
            }
            tiles += 8;
        }
        let operations = f64::from(tiles) * (2 * TILE * LENGTH) as f64;
        best = best.max(operations / start.elapsed().as_secs_f64() * 1e-12);
    }
    best
}

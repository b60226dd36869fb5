use oz2blas::engine::cpu::kernels::{Kernels, PANEL, Pass, Side, Stream, TILE, Tile, portable};

/// All but the products is that of the portable kernels.
pub static KERNELS: Kernels = Kernels { name: "toy", available: || true, product, pass, ..portable::KERNELS };

/// Element `h` of line `l` of a panel, as the portable kernels pack it.
///
/// # Safety
///
/// The panel has lines of `length` elements.
unsafe fn element(panel: *const u8, length: usize, l: usize, h: usize) -> i32 {
    let at = (portable::KERNELS.element_at)(Side::Rows, length, l, h);
    // SAFETY: inside of the panel; its elements are 16-bit integers.
    i32::from(unsafe { panel.cast::<i16>().add(at).read() })
}

/// The sums of a tile over the first `count` elements.
///
/// # Safety
///
/// Both panels have lines of `length` elements, and at least `count` from here on.
unsafe fn sums(rows: *const u8, columns: *const u8, length: usize, count: usize, tile: &mut Tile) {
    for (at, sum) in tile.0.iter_mut().enumerate() {
        let (i, j) = (at % PANEL, at / PANEL);
        // SAFETY: by the contract of this function.
        let product = |h| unsafe { element(rows, length, i, h) * element(columns, length, j, h) };
        *sum = (0..count).map(product).sum();
    }
}

unsafe fn product(rows: *const u8, columns: *const u8, length: usize, _: Stream, tile: &mut Tile) {
    // SAFETY: by the contract of the table.
    unsafe { sums(rows, columns, length, length, tile) };
}

unsafe fn pass(pass: &Pass) {
    let mut tile = Tile([0; TILE]);
    portable::for_each_tile(pass, |rows, columns, residues| {
        // SAFETY: by the contract of the table.
        unsafe {
            sums(rows, columns, pass.length, pass.count, &mut tile);
            portable::reduce(pass, &tile, residues);
        }
    });
}

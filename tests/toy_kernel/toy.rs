use oz2blas::engine::cpu::kernels::{Kernels, PANEL, Pass, Product, Side, TILE, Tile, portable};

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

/// Adds the first `count` elements to the sums of a tile.
///
/// # Safety
///
/// Both panels have lines of `length` elements, and at least `count` from here on.
unsafe fn add(rows: *const u8, columns: *const u8, length: usize, count: usize, tile: &mut Tile) {
    for (at, sum) in tile.0.iter_mut().enumerate() {
        let (i, j) = (at % PANEL, at / PANEL);
        // SAFETY: by the contract of this function.
        let product = |h| unsafe { element(rows, length, i, h) * element(columns, length, j, h) };
        *sum += (0..count).map(product).sum::<i32>();
    }
}

unsafe fn product(product: &Product, sums: &mut [Tile]) {
    for (of, tile) in product.tiles(sums) {
        if !of.add {
            tile.0.fill(0);
        }
        // SAFETY: by the contract of the table.
        unsafe { add(of.rows, of.columns, of.length, of.count, tile) };
    }
}

unsafe fn pass(pass: &Pass) {
    portable::for_each_tile(pass, |rows, columns, residues| {
        let mut tile = Tile([0; TILE]);
        // SAFETY: by the contract of the table.
        unsafe {
            add(rows, columns, pass.length, pass.count, &mut tile);
            portable::reduce(pass, &tile, residues);
        }
    });
}

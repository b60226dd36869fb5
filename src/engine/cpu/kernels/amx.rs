//! Kernels for Intel AMX: tile products of bytes. Everything else comes from [`super::avx512`].
//!
//! The intrinsics for AMX are not in stable Rust, so the tile instructions are written as assembly. The compiler never uses tile
//! registers itself, so what one block leaves in them the next one finds, as long as no foreign code runs in between: a sequence
//! of blocks stays in one function, which configures the tiles first and releases them at the end.
//!
//! A tile product computes the transpose of a tile of C, (op(B) panel)^T (op(A) panel)^T, so that what is contiguous in it is
//! contiguous in C: tiles 0 to 3 hold 2 x 2 tiles of 16 x 16 sums, 4 and 5 the columns of op(B), 6 and 7 the rows of op(A).

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch, _xgetbv};
use std::sync::atomic::{AtomicU8, Ordering};

use super::avx512::{self, CHUNK_BYTES, Reduction};
use super::{Blocking, DEPTH, Kernels, PANEL, Pass, Product, Stream, TILE, Tile};

pub static KERNELS: Kernels = Kernels {
    name: "amx",
    available,
    order: avx512::order,
    direct: true,
    element: 1,
    blocking,
    element_at: avx512::element_at,
    residue_at: avx512::residue_at,
    gather: avx512::gather,
    scan: avx512::scan,
    magnitudes: avx512::magnitudes,
    magnitude_at: avx512::magnitude_at,
    residues: avx512::residues,
    product,
    pass,
    reconstruct: avx512::reconstruct,
    change: avx512::change,
    add_inner: avx512::add_inner,
    lower_bounds: avx512::lower_bounds,
    raise_needs: avx512::raise_needs,
    largest: avx512::largest,
    combine: avx512::combine,
    sum: avx512::sum,
};

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// AMX is there and the system lets this process use it. Asks for the permission at the first call; threads that are made later
/// inherit it, and so do children.
pub fn available() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == YES;
    }
    let usable = avx512::available() && has_tiles() && permitted();
    KNOWN.store(if usable { YES } else { NO }, Ordering::Relaxed);
    usable
}

/// The processor has byte tile products, and the system saves the tile registers (XCR0 bits 17 and 18).
fn has_tiles() -> bool {
    #[target_feature(enable = "xsave")]
    fn state() -> u64 {
        // SAFETY: register 0 exists wherever XSAVE does.
        unsafe { _xgetbv(0) }
    }
    let leaf = __cpuid_count(7, 0);
    let (tile, int8) = (leaf.edx >> 24 & 1, leaf.edx >> 25 & 1);
    // SAFETY: XSAVE is there.
    tile == 1 && int8 == 1 && is_x86_feature_detected!("xsave") && unsafe { state() } >> 17 & 3 == 3
}

/// Linux wants to be asked before a process uses the tile data, which make its signal frames larger.
fn permitted() -> bool {
    #[cfg(target_os = "linux")]
    {
        const REQUEST_PERMISSION: libc::c_long = 0x1023;
        const TILE_DATA: libc::c_long = 18;
        // SAFETY: the call takes two numbers and changes nothing but the permission.
        unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// The rows of a block for one modulus stay in the L2 cache, half a megabyte of them, because those of the next modulus come in
/// meanwhile.
fn blocking(length: usize) -> Blocking {
    const L2_BYTES: usize = 512 << 10;
    const MOST_DEPTH: usize = 1024;
    let depth = length.min(MOST_DEPTH);
    let down = (L2_BYTES / (PANEL * depth)).clamp(4, 16);
    Blocking { down, across: 64, depth: MOST_DEPTH }
}

/// Eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

static CONFIGURATION: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1; // palette
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64; // bytes of a row
        bytes[48 + tile] = 16; // rows
        tile += 1;
    }
    Configuration(bytes)
};

/// # Safety
///
/// AMX is available, here and below.
#[inline(always)]
unsafe fn configure() {
    // SAFETY: by the contract of this function.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly)) };
}

/// Without tile data there is less to save when the thread is switched.
#[inline(always)]
unsafe fn release() {
    // SAFETY: as above.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

#[inline(always)]
unsafe fn zero_sums() {
    // SAFETY: as above.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, nomem));
    }
}

#[inline(always)]
unsafe fn store_sums(to: *mut i32) {
    // SAFETY: a tile of PANEL x PANEL numbers, 128 bytes a row.
    unsafe {
        asm!("tilestored [{to} + {row}], tmm0", "tilestored [{to} + {row} + 64], tmm1",
            "tilestored [{to} + {row} + 2048], tmm2", "tilestored [{to} + {row} + 2112], tmm3",
            to = in(reg) to, row = in(reg) 4 * PANEL, options(nostack));
    }
}

/// DEPTH elements. The four loads come first. The rows, which pass by, have the hint that keeps them from pushing the columns, which
/// are used again for the next rows, out of the first cache: both were measured to matter (docs/measured/amx.md).
#[inline(always)]
unsafe fn multiply(rows: *const u8, columns: *const u8) {
    // SAFETY: a whole chunk of each by the contract of `Kernels::product`.
    unsafe {
        asm!("tileloadd tmm4, [{b} + {row}]",
            "tileloaddt1 tmm6, [{a} + {row}]",
            "tileloaddt1 tmm7, [{a} + {row} + 1024]",
            "tileloadd tmm5, [{b} + {row} + 1024]",
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm4, tmm7",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7",
            a = in(reg) rows, b = in(reg) columns, row = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
            out("tmm7") _, options(nostack, readonly));
    }
}

#[inline(always)]
unsafe fn load_sums(from: *const i32) {
    // SAFETY: a tile of PANEL x PANEL numbers, 128 bytes a row.
    unsafe {
        asm!("tileloadd tmm0, [{from} + {row}]", "tileloadd tmm1, [{from} + {row} + 64]",
            "tileloadd tmm2, [{from} + {row} + 2048]", "tileloadd tmm3, [{from} + {row} + 2112]",
            from = in(reg) from, row = in(reg) 4 * PANEL,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, options(nostack, readonly));
    }
}

unsafe fn product(product: &Product, sums: &mut [Tile]) {
    let mut next = product.next;
    // SAFETY: by the contract of the table.
    unsafe {
        configure();
        for (of, sums) in product.tiles(sums) {
            let mut next_rows = of.next_rows;
            if of.add {
                load_sums(sums.0.as_ptr());
            } else {
                zero_sums();
            }
            for step in 0..of.count / DEPTH {
                multiply(of.rows.add(step * CHUNK_BYTES), of.columns.add(step * CHUNK_BYTES));
                next.step();
                next_rows.step();
            }
            store_sums(sums.0.as_mut_ptr());
        }
        release();
    }
}

/// Row pairs of a tile of sums: the reduction of two columns at a time.
const PAIRS: usize = PANEL / 2;

/// While one tile is multiplied, the sums of the one before are reduced: the vector units have nothing else to do.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512ifma")]
unsafe fn pass(pass: &Pass) {
    let reduction = Reduction::new(pass.modulus, pass.factor);
    let mut sums = [const { Tile([0; TILE]) }; 2];
    let steps = pass.count / DEPTH;
    let add = pass.earlier.is_some();
    // SAFETY: by the contract of the table, here and below.
    unsafe {
        configure();
        // What the residues of the tile before are added to, and where they go.
        let mut before: (*const i8, *mut i8) = (std::ptr::null(), std::ptr::null_mut());
        let mut current = 0;
        // The rows of the next pass come over all tiles, the next panel of columns over the tiles of this one.
        let chunk_lines = CHUNK_BYTES / 64;
        let mut next_rows = Stream { at: pass.next_rows, lines: chunk_lines.div_ceil(pass.across) };
        for q in 0..pass.across {
            let columns = pass.columns.add(q * pass.panel);
            let next = if q + 1 < pass.across { columns.wrapping_add(pass.panel) } else { pass.next_columns };
            let mut next_columns = Stream { at: next, lines: chunk_lines.div_ceil(pass.down) };
            for p in 0..pass.down {
                let rows = pass.rows.add(p * pass.panel);
                let at = q * pass.down + p;
                zero_sums();
                let old = sums[current ^ 1].0.as_ptr();
                let out = pass.residues.add(at * pass.tile);
                let earlier = pass.earlier.map_or(out.cast_const(), |earlier| earlier.of(at));
                let mut step = |step: usize| {
                    let offset = step * CHUNK_BYTES;
                    multiply(rows.add(offset), columns.add(offset));
                    _mm_prefetch::<_MM_HINT_ET0>(out.wrapping_add(64 * step));
                    if add {
                        _mm_prefetch::<_MM_HINT_T0>(earlier.wrapping_add(64 * step));
                    }
                    next_columns.step();
                    next_rows.step();
                };
                let reduce = |pair: usize| {
                    let (earlier, out) = (before.0.wrapping_add(64 * pair), before.1.add(64 * pair));
                    reduction.columns(old.add(2 * PANEL * pair), add, earlier, out);
                };
                if before.1.is_null() {
                    (0..steps).for_each(&mut step);
                } else if steps < PAIRS {
                    // Short products have more than one pair to reduce in a step.
                    let mut pair = 0;
                    for at in 0..steps {
                        step(at);
                        let due = (at + 1) * PAIRS / steps;
                        (pair..due).for_each(reduce);
                        pair = due;
                    }
                } else {
                    for at in 0..PAIRS {
                        step(at);
                        reduce(at);
                    }
                    (PAIRS..steps).for_each(&mut step);
                }
                store_sums(sums[current].0.as_mut_ptr());
                before = (earlier, out);
                current ^= 1;
            }
        }
        release();
        for pair in 0..PAIRS {
            let old = sums[current ^ 1].0.as_ptr();
            let (earlier, out) = (before.0.wrapping_add(64 * pair), before.1.add(64 * pair));
            reduction.columns(old.add(2 * PANEL * pair), add, earlier, out);
        }
    }
}

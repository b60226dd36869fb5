//! Which product a device computes with. The one in use is cuBLAS with a separate reduction. The other, with the reduction inside
//! (kernels/product_*.cu, called fused here), has not run on hardware yet and is for measurements: OZ2_CUDA_PRODUCT=fused asks for it.
//! It can have levels of Strassen's form (docs/gpu.md).
//! Before its first use on a device it must agree with cuBLAS there, byte for byte; else that device stays with cuBLAS.

use std::ffi::{CStr, c_int, c_uint};

use cudarc::driver::sys::{CUdeviceptr, CUfunction};

use super::blocks::Layout;
use super::device::{Device, Region, load_module};
use super::launch::{Launch, Parameter};
use super::library::Fault;
use crate::ozaki::moduli::{MODULI, canonical};
use crate::ozaki::strassen::{MOST_LEVELS, PRODUCTS};

/// A kernel of the fused product. Its tiles have 128 columns.
struct Variant {
    entry: &'static CStr,
    /// Rows of a tile.
    rows: usize,
    /// Blocks of a cluster, which take a tile each, side by side.
    cluster: usize,
    threads: usize,
    /// Bytes of dynamic shared memory (Ring::bytes of kernels/product_wgmma.cu).
    shared: usize,
}

/// The kernels of one source.
struct Family {
    file: &'static str,
    text: &'static str,
    /// The operands come as tensor maps.
    maps: bool,
    /// Blocks that fit a multiprocessor.
    resident: usize,
    /// By the size of their tiles, that for large products first; of each the clusters that there are.
    sizes: &'static [&'static [Variant]],
}

static MMA: Family = Family {
    file: "product_mma",
    text: include_str!("../../../kernels/ptx/product_mma.compute_80.ptx"),
    maps: false,
    resident: 2,
    sizes: &[&[Variant { entry: c"oz2_product_mma", rows: 128, cluster: 1, threads: 128, shared: 0 }]],
};

const fn wgmma(entry: &'static CStr, rows: usize, cluster: usize) -> Variant {
    Variant { entry, rows, cluster, threads: 384, shared: 197_888 }
}

static WGMMA: Family = Family {
    file: "product_wgmma",
    text: include_str!("../../../kernels/ptx/product_wgmma.compute_90a.ptx"),
    maps: true,
    resident: 1,
    sizes: &[
        &[wgmma(c"oz2_product_wgmma_256_1", 256, 1), wgmma(c"oz2_product_wgmma_256_2", 256, 2)],
        &[wgmma(c"oz2_product_wgmma_128_1", 128, 1), wgmma(c"oz2_product_wgmma_128_2", 128, 2)],
    ],
};

/// Blocks of a cluster for larger and smaller tiles, by the model of the time; the last table of scripts/gpu-check tells what is
/// faster. OZ2_CUDA_CLUSTER=1 or 2 in the environment is for both sizes, for measurements.
const CLUSTERS: [usize; 2] = [2, 1];

/// Columns of a tile.
const COLUMNS: usize = 128;
/// Tiles along the columns of C that are worked on together (tile_at in the kernels).
const BAND: c_int = 8;
/// With fewer rounds of blocks than this the smaller tiles fill the device better. By the model of the time; to be measured.
const LEAST_ROUNDS: usize = 6;

/// The fused product of a device.
pub struct Fused {
    family: &'static Family,
    /// The one for large products first.
    variants: Vec<&'static Variant>,
    functions: Vec<CUfunction>,
    multiprocessors: usize,
    /// On the device, the number of the modulus of every plane: without Strassen's form, then with one level of it, then with two.
    modulus_of: CUdeviceptr,
}

/// Is the fused product asked for?
pub fn is_wanted() -> bool {
    std::env::var_os("OZ2_CUDA_PRODUCT").is_some_and(|value| value == "fused")
}

/// The kernels of a family that are used, the one for large products first.
fn chosen(family: &'static Family) -> Vec<&'static Variant> {
    let wanted = std::env::var("OZ2_CUDA_CLUSTER").ok().and_then(|value| value.parse().ok());
    let choose = |(of_size, usual): (&'static &'static [Variant], usize)| {
        let cluster = wanted.unwrap_or(usual);
        of_size.iter().find(|variant| variant.cluster == cluster).unwrap_or(&of_size[0])
    };
    family.sizes.iter().zip(CLUSTERS).map(choose).collect()
}

/// As CUtensorMap: made by the driver.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct TensorMap([u64; 16]);

impl Parameter for TensorMap {}

/// The planes of an operand: bytes, with the inner dimension padded, then lines, then planes.
fn tensor_map(
    device: &Device,
    address: CUdeviceptr,
    [length, lines, planes]: [usize; 3],
    box_lines: usize,
) -> Result<TensorMap, Fault> {
    const UINT8: c_int = 0;
    const NO_INTERLEAVE: c_int = 0;
    const SWIZZLE_128B: c_int = 3;
    const L2_PROMOTION_256B: c_int = 3;
    const ZEROS_OUTSIDE: c_int = 0;
    const BOX_LENGTH: c_uint = 128;
    let sizes = [length as u64, lines as u64, planes as u64];
    let strides = [sizes[0], sizes[0] * sizes[1]];
    let (boxes, steps) = ([BOX_LENGTH, box_lines as c_uint, 1], [1; 3]);
    let mut map = TensorMap([0; 16]);
    // SAFETY: the arrays have the lengths that three dimensions ask for; the call writes the map.
    unsafe {
        device.libraries.driver.cuTensorMapEncodeTiled(
            (&raw mut map).cast(),
            UINT8,
            3,
            address,
            sizes.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            NO_INTERLEAVE,
            SWIZZLE_128B,
            L2_PROMOTION_256B,
            ZEROS_OUTSIDE,
        )?;
    }
    Ok(map)
}

impl Device {
    /// Loads the fused product and compares it with cuBLAS. False: this device has none, or it did not pass.
    pub fn start_fused(&mut self) -> bool {
        let started = self.enter().and_then(|_current| self.try_fused());
        let kernels: Vec<&CStr> =
            self.fused.iter().flat_map(|fused| &fused.variants).map(|variant| variant.entry).collect();
        match &started {
            Ok(Some(file)) => {
                tracing::debug!(file, ?kernels, "the fused product agrees with cuBLAS and is used");
            }
            Ok(None) => tracing::debug!("no fused product for this device: cuBLAS"),
            Err(why) => tracing::debug!(why = format!("{why:?}"), "the fused product is not used: cuBLAS"),
        }
        let is_ready = matches!(started, Ok(Some(_)));
        if !is_ready {
            self.fused = None;
        }
        is_ready
    }

    /// The file of the kernels that are in `fused` now.
    fn try_fused(&mut self) -> Result<Option<&'static str>, Fault> {
        let family = match self.capability()? {
            // Code with instructions that only this one has.
            (9, 0) => &WGMMA,
            (8.., _) => &MMA,
            _ => return Ok(None),
        };
        let driver = &self.libraries.driver;
        let variants = chosen(family);
        let entries: Vec<&CStr> = variants.iter().map(|variant| variant.entry).collect();
        let functions = load_module(self.libraries, family.file, family.text, &entries)?;
        const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;
        for (variant, &function) in variants.iter().zip(&functions) {
            if variant.shared > 0 {
                // SAFETY: a function that was loaded just now.
                unsafe {
                    driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_BYTES, variant.shared as c_int)?
                };
            }
        }
        let of_planes = |levels| {
            let products = PRODUCTS.pow(levels);
            (0..products * MODULI.len()).map(move |plane| (plane / products) as c_int)
        };
        let numbers: Vec<c_int> = (0..=MOST_LEVELS as u32).flat_map(of_planes).collect();
        let (bytes, mut modulus_of) = (size_of_val(numbers.as_slice()), 0);
        // SAFETY: the first call writes the address; the second has room for what it copies.
        unsafe {
            driver.cuMemAlloc_v2(&raw mut modulus_of, bytes)?;
            driver.cuMemcpyHtoD_v2(modulus_of, numbers.as_ptr().cast(), bytes)?;
        }
        let multiprocessors = self.multiprocessors()?;
        let count = variants.len();
        self.fused = Some(Fused { family, variants, functions, multiprocessors, modulus_of });
        let agree = (0..count).try_for_each(|variant| self.compare_with_cublas(variant));
        let given_back = self.give_all_back();
        agree.and(given_back)?;
        Ok(Some(family.file))
    }

    /// What this device's product wants of its planes, with so many levels of Strassen's form if it has them; a later choice is for
    /// where memory does not suffice for the ones before.
    pub fn layouts(&self, levels: usize) -> &'static [Layout] {
        match (&self.fused, levels) {
            (None, _) => &[Layout::CUBLAS],
            (Some(_), levels) => &Layout::FUSED[MOST_LEVELS - levels..],
        }
    }

    /// The canonical residues of the products of all planes, in the region for residues, added to those that are there if `add`.
    /// `shape`: the rows, columns and pitch of the planes.
    pub fn fused_product(
        &self,
        shape: [usize; 3],
        moduli: usize,
        layout: &Layout,
        add: bool,
    ) -> Result<Launch, Fault> {
        let Some(fused) = &self.fused else { return Err(Fault::Status("no fused product", 0)) };
        let planes = layout.planes(moduli);
        // Behind the planes of fewer levels.
        let first: usize = (0..layout.levels as u32).map(|level| PRODUCTS.pow(level) * MODULI.len()).sum();
        let modulus_of = fused.modulus_of + (first * size_of::<c_int>()) as u64;
        let rounds = |variant: &Variant| {
            variant.blocks(shape, planes) / (fused.multiprocessors * fused.family.resident).max(1)
        };
        let large = fused.variants.iter().position(|variant| rounds(variant) >= LEAST_ROUNDS);
        let variant = large.unwrap_or(fused.variants.len() - 1);
        let regions = [Region::PlanesA, Region::PlanesB, Region::Residues];
        self.fused_launch(variant, shape, (planes, modulus_of), add, regions, usize::MAX)
    }

    /// The launch of a variant with at most so many blocks.
    fn fused_launch(
        &self,
        number: usize,
        shape: [usize; 3],
        (planes, modulus_of): (usize, CUdeviceptr),
        add: bool,
        regions: [Region; 3],
        most_blocks: usize,
    ) -> Result<Launch, Fault> {
        let Some(fused) = &self.fused else { return Err(Fault::Status("no fused product", 0)) };
        let variant = fused.variants[number];
        let [a, b, out] = regions.map(|region| self.existing(region));
        let [rows, columns, pitch] = shape;
        let most = (fused.multiprocessors * fused.family.resident).min(most_blocks) / variant.cluster;
        let blocks = variant.blocks(shape, planes).min(most.max(1) * variant.cluster);
        let launch =
            Launch::new(fused.functions[number], [blocks, 1], variant.threads).sharing(variant.shared);
        let launch = if fused.family.maps {
            let of_a = tensor_map(self, a, [pitch, rows, planes], variant.rows / variant.cluster)?;
            launch.with(of_a).with(tensor_map(self, b, [pitch, columns, planes], COLUMNS)?)
        } else {
            launch.with(a).with(b)
        };
        let sizes = [rows, columns, pitch, planes].map(|x| x as c_int);
        let launch = sizes.into_iter().fold(launch, Launch::with);
        Ok(launch.with(modulus_of).with(out).with(c_int::from(add)).with(BAND))
    }

    /// An error unless a variant leaves what cuBLAS and the reduction leave: with one element a line of B, which shows A itself, so that
    /// a wrong layout shows; over more steps than the ring has stages; with several ragged tiles a block.
    fn compare_with_cublas(&mut self, variant: usize) -> Result<(), Fault> {
        let modulus_of = self.fused.as_ref().map_or(0, |fused| fused.modulus_of);
        for (shape, planes, one_hot) in
            [([64, 64, 64], 1, true), ([64, 32, 928], 2, false), ([320, 288, 96], 3, false)]
        {
            let [rows, columns, pitch] = shape;
            let (mut a, mut permuted) = (vec![0i8; planes * rows * pitch], vec![0i8; planes * rows * pitch]);
            let mut b = vec![0i8; planes * columns * pitch];
            let mut state = 1u64;
            let mut residue = |plane: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                canonical((state >> 56) as i64, plane) as i8
            };
            for at in 0..a.len() {
                let (line, h) = (at / pitch, at % pitch);
                a[at] = residue(line / rows);
                permuted[place(line) * pitch + h] = a[at];
            }
            for (at, b) in b.iter_mut().enumerate() {
                let (line, h) = (at / pitch, at % pitch);
                *b = if one_hot { i8::from(line == h) } else { residue(line / columns) };
            }
            let bytes = planes * rows * columns;
            for (region, values) in [(Region::PlanesA, &a), (Region::PlanesB, &b), (Region::RawA, &permuted)]
            {
                let to = self.region(region, values.len())?;
                // SAFETY: the region is as large as the values.
                unsafe { self.libraries.driver.cuMemcpyHtoD_v2(to, values.as_ptr().cast(), values.len())? };
            }
            self.region(Region::Sums, 4 * bytes)?;
            let [right, tried] = [self.region(Region::Residues, bytes)?, self.region(Region::C0, bytes)?];
            for add in [false, true] {
                self.product(shape, [Region::PlanesA, Region::PlanesB], 0, planes)?;
                self.reduce(rows * columns, 0, planes, add)?;
                let regions = [Region::RawA, Region::PlanesB, Region::C0];
                let launch = self.fused_launch(variant, shape, (planes, modulus_of), add, regions, 2)?;
                // SAFETY: the regions hold the planes.
                unsafe { self.start(&launch)? };
            }
            self.wait_for(self.compute)?;
            let mut results = [vec![0i8; bytes], vec![0i8; bytes]];
            for (from, values) in [right, tried].into_iter().zip(&mut results) {
                // SAFETY: the region holds as many bytes.
                unsafe { self.libraries.driver.cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), from, bytes)? };
            }
            if results[0] != results[1] {
                return Err(Fault::Status("a comparison with cuBLAS", variant as c_int));
            }
        }
        Ok(())
    }
}

impl Variant {
    /// Blocks for all tiles.
    fn blocks(&self, [rows, columns, _]: [usize; 3], planes: usize) -> usize {
        planes * rows.div_ceil(self.rows) * columns.div_ceil(COLUMNS * self.cluster) * self.cluster
    }
}

/// Where a line of A lies for the fused product (kernels/residues.cu).
fn place(line: usize) -> usize {
    line - line % 64 + 8 * (line % 16 / 2) + 2 * (line % 64 / 16) + line % 2
}

//! The product kernels with the reduction inside on the software device, where their twins in plain C++ run: parameters, launches,
//! tensor maps. What the instructions do is for tests/ptx_model.

mod common;

use std::ffi::{CStr, CString, c_void};

use common::{alloc, created, device, synchronize};
use oz2blas::ozaki::moduli::canonical;
use softgpu::api::{copy::*, module::*, tensor::cuTensorMapEncodeTiled};

const MMA: &str = include_str!("../../../kernels/ptx/product_mma.compute_80.ptx");
const WGMMA: &str = include_str!("../../../kernels/ptx/product_wgmma.compute_90a.ptx");
/// Entry, rows of a tile, blocks of a cluster; 128 columns of a tile always.
const KERNELS: [(&CStr, usize, usize); 5] = [
    (c"oz2_product_mma", 128, 1),
    (c"oz2_product_wgmma_256_1", 256, 1),
    (c"oz2_product_wgmma_256_2", 256, 2),
    (c"oz2_product_wgmma_128_1", 128, 1),
    (c"oz2_product_wgmma_128_2", 128, 2),
];

#[repr(align(64))]
struct Map([u64; 16]);

/// A map of planes of lines, or the status of the driver.
fn map(address: u64, sizes: [u64; 3], box_lines: u32) -> Result<Map, i32> {
    let mut map = Map([0; 16]);
    let (strides, boxes, steps) = ([sizes[0], sizes[0] * sizes[1]], [128, box_lines, 1], [1u32; 3]);
    let status = unsafe {
        cuTensorMapEncodeTiled(
            &mut map.0,
            0,
            3,
            address,
            sizes.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            0,
            3,
            0,
            0,
        )
    };
    if status == 0 { Ok(map) } else { Err(status) }
}

fn load(text: &str) -> Result<usize, i32> {
    let text = CString::new(text).unwrap();
    let mut module = 0;
    match unsafe { cuModuleLoadData(&mut module, text.as_ptr().cast()) } {
        0 => Ok(module),
        status => Err(status),
    }
}

fn on_device<T>(values: &[T]) -> u64 {
    let bytes = size_of_val(values);
    let address = alloc(bytes);
    assert_eq!(unsafe { cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes) }, 0);
    address
}

fn launch(function: usize, grid: usize, [threads, shared]: [u32; 2], parameters: &mut [*mut c_void]) -> i32 {
    unsafe {
        let all = parameters.as_mut_ptr();
        cuLaunchKernel(function, grid as u32, 1, 1, threads, 1, 1, shared, 0, all, std::ptr::null_mut())
    }
}

#[test]
fn every_kernel_leaves_the_residues_of_the_product() {
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for switches in ["order=forward", "order=reverse"] {
        let _device = device(switches);
        let modules = [load(MMA).unwrap(), load(WGMMA).unwrap()];
        for (name, tile_rows, cluster) in KERNELS {
            for (rows, columns, pitch, planes, most_blocks) in
                [(64, 1, 16, 1, 100), (320, 300, 48, 3, 4), (576, 140, 128, 2, 1000)]
            {
                let moduli_of: Vec<i32> = (0..planes as i32).map(|plane| (7 * plane + 2) % 20).collect();
                let mut residues = |count: usize| -> Vec<i8> {
                    let of = |plane: usize| canonical(below(256) as i64, moduli_of[plane] as usize) as i8;
                    (0..planes).flat_map(|plane| vec![plane; count]).map(of).collect()
                };
                let (a, b) = (residues(rows * pitch), residues(columns * pitch));
                let before = residues(rows * columns);
                let place = |i: usize| i - i % 64 + 8 * (i % 16 / 2) + 2 * (i % 64 / 16) + i % 2;
                for add in [0i32, 1] {
                    let (at_a, at_b, out) = (on_device(&a), on_device(&b), on_device(&before));
                    let moduli_at = on_device(&moduli_of);
                    let module = modules[usize::from(name != KERNELS[0].0)];
                    let function =
                        created(|function| unsafe { cuModuleGetFunction(function, module, name.as_ptr()) });
                    let (r, c, p, l, band) = (rows as i32, columns as i32, pitch as i32, planes as i32, 2i32);
                    let tiles = planes * rows.div_ceil(tile_rows) * columns.div_ceil(128 * cluster);
                    let grid = (tiles * cluster).min(most_blocks / cluster * cluster).max(cluster);
                    fn pointer<T>(value: &T) -> *mut c_void {
                        (value as *const T).cast_mut().cast()
                    }
                    let sizes = |lines: usize| [pitch as u64, lines as u64, planes as u64];
                    let map_a = map(at_a, sizes(rows), (tile_rows / cluster) as u32).unwrap();
                    let map_b = map(at_b, sizes(columns), 128).unwrap();
                    let mma = name == KERNELS[0].0;
                    let operands = if mma {
                        [pointer(&at_a), pointer(&at_b)]
                    } else {
                        [pointer(&map_a), pointer(&map_b)]
                    };
                    let rest = [
                        pointer(&r),
                        pointer(&c),
                        pointer(&p),
                        pointer(&l),
                        pointer(&moduli_at),
                        pointer(&out),
                    ];
                    let mut parameters = [&operands[..], &rest, &[pointer(&add), pointer(&band)]].concat();
                    let block = [if mma { 128 } else { 384 }, 0];
                    if cluster == 2 {
                        assert_eq!(launch(function, 3, block, &mut parameters), 912, "half a cluster");
                    }
                    assert_eq!(launch(function, grid, block, &mut parameters), 0);
                    assert_eq!(synchronize(), 0, "{name:?}");
                    let mut got = vec![0i8; before.len()];
                    unsafe { cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), out, got.len()) };
                    for (at, &got) in got.iter().enumerate() {
                        let (l, j, i) = (at / (rows * columns), at / rows % columns, at % rows);
                        let x = &a[(l * rows + place(i)) * pitch..][..pitch];
                        let y = &b[(l * columns + j) * pitch..][..pitch];
                        let sum: i64 = x.iter().zip(y).map(|(&x, &y)| i64::from(x) * i64::from(y)).sum();
                        let want =
                            canonical(sum + i64::from(add) * i64::from(before[at]), moduli_of[l] as usize);
                        assert_eq!(
                            i64::from(got),
                            i64::from(want),
                            "{name:?} {rows} {columns} plane {l} row {i} column {j}"
                        );
                    }
                }
            }
        }
    }
}

/// Code for one GPU is refused by all others, and so are maps that TMA could not use.
#[test]
fn what_does_not_fit_is_refused() {
    for (switches, mma, wgmma) in
        [("cc=75", 218, 218), ("cc=80", 0, 218), ("cc=90", 0, 0), ("cc=100", 0, 218), ("cc=120", 0, 218)]
    {
        let _device = device(switches);
        assert_eq!(
            (load(MMA).err().unwrap_or(0), load(WGMMA).err().unwrap_or(0)),
            (mma, wgmma),
            "{switches}"
        );
    }
    let _device = device("");
    let at = alloc(1 << 16);
    assert!(map(at, [48, 64, 2], 128).is_ok());
    assert_eq!(map(at + 8, [48, 64, 2], 128).err(), Some(1), "address");
    assert_eq!(map(at, [40, 64, 2], 128).err(), Some(1), "distance of lines");
    assert_eq!(map(at, [48, 64, 2], 257).err(), Some(1), "box");
    assert_eq!(map(at, [48, 0, 2], 128).err(), Some(1), "nothing");
}

//! The products of cuBLAS, and what it refuses.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use softgpu::api::{blas::*, memory::*, stream::*};
use softgpu::testing::{configure, download, set_faults, start, upload};

mod common;
use common::*;

fn new_handle() -> usize {
    created(|out| unsafe { cublasCreate_v2(out) })
}

/// Deterministic, over the whole range of a byte.
fn bytes(count: usize, seed: usize) -> Vec<i8> {
    (0..count).map(|i| ((i * 197 + seed * 61) % 256) as u8 as i8).collect()
}

fn at<T: Copy>(values: &[T], ld: usize, transposed: bool, row: usize, column: usize) -> T {
    if transposed { values[row * ld + column] } else { values[column * ld + row] }
}

#[test]
fn integers_multiply_exactly() {
    let (m, n, k, batch) = (13usize, 10usize, 67usize, 3usize);
    for mode in MODES {
        let _device = device(mode);
        let handle = new_handle();
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let (lda, ldb, ldc) = (if ta { 68 } else { 16 }, if tb { 12 } else { 68 }, 15);
            let (sa, sb, sc) = (lda * if ta { m } else { k }, ldb * if tb { k } else { n }, ldc * n + 2);
            let (a, b) = (bytes(sa * batch, 1), bytes(sb * batch, 2));
            let c: Vec<i32> = (0..(sc * batch) as i32).collect();
            let (da, db, dc) = (upload(&a), upload(&b), upload(&c));
            let (alpha, beta) = (3i32, -2i32);
            let status = unsafe {
                cublasGemmStridedBatchedEx(
                    handle,
                    c_int::from(ta),
                    c_int::from(tb),
                    m as c_int,
                    n as c_int,
                    k as c_int,
                    (&raw const alpha).cast(),
                    da,
                    3,
                    lda as c_int,
                    sa as i64,
                    db,
                    3,
                    ldb as c_int,
                    sb as i64,
                    (&raw const beta).cast(),
                    dc,
                    10,
                    ldc as c_int,
                    sc as i64,
                    batch as c_int,
                    72,
                    -1,
                )
            };
            assert_eq!(status, 0);
            let mut wanted = c.clone();
            for t in 0..batch {
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let term = |l| {
                        let x = at(&a[t * sa..], lda, ta, i, l);
                        i32::from(x) * i32::from(at(&b[t * sb..], ldb, tb, l, j))
                    };
                    let slot = &mut wanted[t * sc + j * ldc + i];
                    *slot = alpha * (0..k).map(term).sum::<i32>() + beta * *slot;
                }
            }
            assert_eq!(download::<i32>(dc, c.len()), wanted, "{mode} {ta} {tb}");
        }
    }
}

/// C = A B of order n with leading dimensions ld, from `a` and `b` into `c`.
fn square(handle: usize, n: c_int, ld: c_int, scalars: [*const c_void; 2], [a, b, c]: [u64; 3]) -> c_int {
    let [alpha, beta] = scalars;
    unsafe { cublasGemmEx(handle, 1, 0, n, n, n, alpha, a, 3, ld, b, 3, ld, beta, c, 10, n.max(1), 72, -1) }
}

static ONE: i32 = 1;
static ZERO: i32 = 0;

fn plain() -> [*const c_void; 2] {
    [(&raw const ONE).cast(), (&raw const ZERO).cast()]
}

#[test]
fn what_cublas_refuses_is_refused() {
    let _device = device("devices=2");
    let handle = new_handle();
    let memory = [alloc(1 << 10), alloc(1 << 10), alloc(1 << 12)];
    let [a, b, c] = memory;
    assert_eq!(square(handle, 8, 8, plain(), memory), 0);
    assert_eq!(square(handle, 6, 6, plain(), memory), 15, "leading dimensions are multiples of 4");
    assert_eq!(square(handle, 8, 8, plain(), [a + 1, b, c]), 15, "addresses too");
    assert_eq!(square(handle, 8, 4, plain(), memory), 7);
    assert_eq!(square(handle + 1, 8, 8, plain(), memory), 1);
    assert_eq!(square(handle, 8, 8, [std::ptr::null(); 2], memory), 7);
    assert_eq!(square(handle, 0, 4, plain(), [0; 3]), 0);
    start(1);
    assert_eq!(square(handle, 8, 8, plain(), memory), 13, "another device is current");
    start(0);
    assert_eq!(synchronize(), 0);
    // C over the end of its memory: found when it runs.
    assert_eq!(square(handle, 16, 16, plain(), [a, b, alloc(1000)]), 0);
    assert_eq!(synchronize(), 700);
    assert_eq!(square(handle, 8, 8, plain(), memory), 13);
}

#[test]
fn the_workspace_is_used_and_forgotten_with_the_stream() {
    let _device = device("");
    let (handle, stream) = (new_handle(), new_stream());
    let memory = [upload(&[1i8; 64]), upload(&[1i8; 64]), alloc(256)];
    let workspace = upload(&[0u8; 512]);
    unsafe {
        assert_eq!(cublasSetWorkspace_v2(handle, workspace + 8, 256), 7);
        assert_eq!(cublasSetWorkspace_v2(handle, workspace, 512), 0);
        assert_eq!(cublasSetStream_v2(handle, stream), 0);
        assert_eq!(square(handle, 8, 8, plain(), memory), 0);
        assert_eq!(download::<u8>(workspace, 512), [0; 512]);
        assert_eq!(cublasSetWorkspace_v2(handle, workspace, 512), 0);
        assert_eq!(square(handle, 8, 8, plain(), memory), 0);
        assert_ne!(download::<u8>(workspace, 512), [0; 512]);
        assert_eq!(download::<i32>(memory[2], 64), [8; 64]);
        // Its memory goes, the product is refused by the device.
        assert_eq!(square(handle, 8, 8, plain(), memory), 0);
        assert_eq!(cuMemFreeAsync(workspace, 0), 0);
        cuStreamSynchronize(0);
        assert_eq!(cuStreamSynchronize(stream), 700);
    }
}

#[test]
fn scalars_may_lie_on_the_device() {
    let _device = device("mode=lazy");
    let handle = new_handle();
    let memory = [upload(&[1i8; 64]), upload(&[2i8; 64]), upload(&[100i32; 64])];
    let scalars = upload(&[5i32, -1]);
    unsafe {
        assert_eq!(cublasSetPointerMode_v2(handle, 1), 0);
        let pointers = [scalars as *const c_void, (scalars + 4) as *const c_void];
        assert_eq!(square(handle, 8, 8, pointers, memory), 0);
    }
    assert_eq!(download::<i32>(memory[2], 64), [5 * 16 - 100; 64]);
}

#[test]
fn doubles_multiply() {
    for mode in MODES {
        let _device = device(mode);
        let (m, n, k) = (7usize, 5usize, 9usize);
        let whole = |count: usize, seed: usize| {
            (0..count).map(|i| ((i * 7 + seed) % 19) as f64 - 9.0).collect::<Vec<_>>()
        };
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let (lda, ldb, ldc) = (if ta { k } else { m } + 1, if tb { n } else { k } + 2, m + 3);
            let (a, b, c) = (whole(lda * m.max(k), 1), whole(ldb * n.max(k), 5), whole(ldc * n, 3));
            let (da, db, dc) = (upload(&a), upload(&b), upload(&c));
            let (alpha, beta, handle) = (2.0, 0.5, new_handle());
            let (ld, size) = ([lda, ldb, ldc].map(|ld| ld as i64), [m, n, k].map(|size| size as i64));
            let (ta_, tb_) = (c_int::from(ta), c_int::from(tb));
            let [m_, n_, k_] = size;
            let status = unsafe {
                cublasDgemm_v2_64(
                    handle, ta_, tb_, m_, n_, k_, &alpha, da, ld[0], db, ld[1], &beta, dc, ld[2],
                )
            };
            assert_eq!(status, 0);
            let mut wanted = c.clone();
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let sum: f64 = (0..k).map(|l| at(&a, lda, ta, i, l) * at(&b, ldb, tb, l, j)).sum();
                wanted[j * ldc + i] = alpha * sum + beta * wanted[j * ldc + i];
            }
            assert_eq!(download::<f64>(dc, c.len()), wanted, "{mode} {ta} {tb}");
        }
        // beta = 0: C is not read, not even a NaN.
        let (one, zero) = (1.0, 0.0);
        let c = upload(&[f64::NAN]);
        let (a, b) = (upload(&[3.0]), upload(&[4.0]));
        let status = unsafe { cublasDgemm_v2(new_handle(), 0, 0, 1, 1, 1, &one, a, 1, b, 1, &zero, c, 1) };
        assert_eq!((status, download::<f64>(c, 1)), (0, vec![12.0]));
    }
}

#[test]
fn products_fail_when_ordered() {
    let _device = device("");
    let handle = new_handle();
    let memory = [alloc(64), alloc(64), alloc(256)];
    set_faults("cublasGemmEx@2=14,launch:gemm@2=719");
    assert_eq!(square(handle, 8, 8, plain(), memory), 0);
    assert_eq!(square(handle, 8, 8, plain(), memory), 14);
    assert_eq!(synchronize(), 0);
    assert_eq!(square(handle, 8, 8, plain(), memory), 0);
    assert_eq!(synchronize(), 719);
    unsafe {
        assert_eq!(cublasDestroy_v2(handle), 13);
        assert_eq!(cublasDestroy_v2(handle), 1);
    }
    let mut parts = [0; 3];
    let status = |(i, part): (usize, &mut c_int)| unsafe { cublasGetProperty(i as c_int, part) };
    assert!(parts.iter_mut().enumerate().all(|part| status(part) == 0));
    assert_eq!(parts[0], 12);
    configure("");
    assert_eq!(unsafe { cublasCreate_v2(&mut 0) }, 1, "no context");
}

/// Fifteen products of order 512 in a few seconds: the tests of the library rely on it.
#[test]
fn products_are_fast_enough() {
    let _device = device("");
    let n = 512;
    let values = bytes(n * n, 5);
    let (a, c) = (upload(&values), alloc(n * n * 4));
    let handle = new_handle();
    let clock = Instant::now();
    for _ in 0..15 {
        assert_eq!(square(handle, n as c_int, n as c_int, plain(), [a, a, c]), 0);
    }
    assert_eq!(synchronize(), 0);
    let seconds = clock.elapsed().as_secs_f64();
    eprintln!("15 products of order {n}: {seconds:.2} s");
    assert!(seconds < 10.0, "{seconds}");
}

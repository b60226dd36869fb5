//! The device computes, and keeps the order that it promises and no other.

use std::ffi::{c_int, c_void};

use softgpu::api::{context::*, copy::*, memory::*, stream::*};
use softgpu::status::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_PERMITTED, NOT_READY};
use softgpu::testing::Argument::{Double, Int, Long, Pointer};
use softgpu::testing::{download, launch, start, upload};

mod common;
use common::*;

#[test]
fn kernels_compute_in_every_mode() {
    for mode in MODES {
        let _device = device(mode);
        let n = 1000;
        let x: Vec<f64> = (0..n).map(|i| f64::from(i) * 0.37 - 100.0).collect();
        let y: Vec<f64> = (0..n).map(|i| f64::from(i).sqrt()).collect();
        let (dx, dy) = (upload(&x), upload(&y));
        let arguments = [Pointer(dy), Pointer(dx), Double(1.0 / 3.0), Double(3.0), Long(n.into())];
        assert_eq!(launch(0, "own_axpby", [3, 1, 1], [64, 1, 1], &arguments), 0);
        let got: Vec<f64> = download(dy, n as usize);
        let wanted: Vec<f64> = x.iter().zip(&y).map(|(x, y)| (1.0f64 / 3.0).mul_add(*x, 3.0 * y)).collect();
        assert_eq!(got, wanted, "{mode}");

        let (rows, k) = (37, 27);
        let maxima = alloc(rows * 8);
        let arguments = [Pointer(dx), Long(rows as i64), Int(k), Pointer(maxima)];
        assert_eq!(launch(0, "own_row_max", [rows as u32, 1, 1], [256, 1, 1], &arguments), 0);
        let row = |r: usize| (0..k as usize).map(|j| x[r + j * rows].abs()).fold(0.0, f64::max);
        assert_eq!(download::<f64>(maxima, rows), (0..rows).map(row).collect::<Vec<_>>(), "{mode}");

        let values: Vec<i32> = (0..96).collect();
        let (turned, before) = (upload(&values), alloc(3 * 4));
        assert_eq!(launch(0, "own_turn", [3, 1, 1], [32, 1, 1], &[Pointer(turned), Pointer(before)]), 0);
        let wanted: Vec<i32> = (0..96).map(|i| i / 32 * 32 + 31 - i % 32).collect();
        assert_eq!(download::<i32>(turned, 96), wanted, "{mode}");
        // Shared memory is poisoned before every block.
        assert_eq!(download::<u32>(before, 3), [0xa5a5_a5a5; 3], "{mode}");
    }
}

#[test]
fn warps_exchange_values() {
    for mode in ["order=forward", "order=reverse"] {
        let _device = device(mode);
        let out = alloc(64 * 6 * 4);
        assert_eq!(launch(0, "own_warp", [1, 1, 1], [64, 1, 1], &[Pointer(out)]), 0);
        for (thread, got) in download::<i32>(out, 64 * 6).chunks(6).enumerate() {
            let lane = thread as i32 % 32;
            let below = (lane - 1).max(0);
            let above = if lane % 8 == 7 { lane } else { lane + 1 };
            let odd = 0xaaaa_aaaa_u32 as i32;
            assert_eq!(got, [31 * 16, below, above, lane / 8 * 8 + 3, odd, 10], "{mode} thread {thread}");
        }
        let halves = alloc(32 * 4);
        assert_eq!(launch(0, "own_half_warps", [1, 1, 1], [32, 1, 1], &[Pointer(halves)]), 0);
        let wanted: Vec<i32> = (0..32).map(|lane| if lane < 16 { 2 + 10 } else { 2000 }).collect();
        assert_eq!(download::<i32>(halves, 32), wanted, "{mode}");
    }
}

#[test]
fn conversions_saturate_and_atomics_count() {
    let _device = device("");
    let x = [0.5, 1.5, -2.5, 1e300, -1e300, f64::NAN, f64::INFINITY, 2147483647.4, -9.223_372_036_854_776e18];
    let wide = [0, 2, -2, i64::MAX, i64::MIN, i64::MIN, i64::MAX, 2147483647, i64::MIN];
    let narrow = [0, 2, -2, i32::MAX, i32::MIN, i32::MIN, i32::MAX, i32::MAX, i32::MIN];
    let (dx, dw, dn) = (upload(&x), alloc(x.len() * 8), alloc(x.len() * 4));
    let arguments = [Pointer(dx), Pointer(dw), Pointer(dn), Int(x.len() as i32)];
    assert_eq!(launch(0, "own_convert", [1, 1, 1], [1, 1, 1], &arguments), 0);
    assert_eq!(download::<i64>(dw, x.len()), wide);
    assert_eq!(download::<i32>(dn, x.len()), narrow);

    let (i, u) = (upload(&[0i32, -5, 1000, 0]), upload(&[7u64]));
    assert_eq!(launch(0, "own_atomics", [2, 1, 1], [100, 1, 1], &[Pointer(i), Pointer(u)]), 0);
    assert_eq!(download::<i32>(i, 4), [200, 99, 0, 255]);
    assert_eq!(download::<u64>(u, 1), [7 + (200 << 40)]);
}

#[test]
fn rounding_of_the_host_does_not_reach_the_kernel() {
    let _device = device("");
    let (x, y) = (upload(&[1.0f64]), upload(&[1e-30f64]));
    let arguments = [Pointer(y), Pointer(x), Double(1.0), Double(1.0), Long(1)];
    let status;
    // SAFETY: only launches and synchronisation between setting rounding upwards and setting it back.
    unsafe {
        let mut control = 0u32;
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control);
        let up = control | 0x4000;
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const up);
        launch(0, "own_axpby", [1, 1, 1], [1, 1, 1], &arguments);
        status = synchronize();
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control);
    }
    assert_eq!(status, 0);
    assert_eq!(download::<f64>(y, 1), [1.0]);
}

#[test]
fn work_waits_in_lazy_mode_and_not_in_eager_mode() {
    for (mode, seen) in [("mode=lazy", 1), ("mode=eager", 2)] {
        let _device = device(mode);
        let (stream, address, host) = (new_stream(), upload(&[2i32]), pinned(&[1i32]));
        unsafe {
            assert_eq!(cuMemcpyDtoHAsync_v2(host.cast(), address, 4, stream), 0);
            assert_eq!(host.read(), seen, "{mode}");
            if seen == 1 {
                assert_eq!(cuStreamQuery(stream), NOT_READY);
            }
            assert_eq!(cuStreamQuery(stream), 0);
            assert_eq!(host.read(), 2);
        }
    }
}

/// A chain over two streams: filled on one, doubled on the other, copied out on the first.
fn chain(events: bool) -> i32 {
    let (a, b) = (new_stream(), new_stream());
    let (address, host) = (alloc(4), pinned(&[-1i32]));
    let (first, second) = (new_event(), new_event());
    unsafe {
        assert_eq!(cuMemsetD32Async(address, 21, 1, a), 0);
        if events {
            assert_eq!(cuEventRecord(first, a), 0);
            assert_eq!(cuStreamWaitEvent(b, first, 0), 0);
        }
        // 21 and 21 as bytes: own_fill writes the lowest byte.
        assert_eq!(
            launch(b, "own_fill", [1, 1, 1], [1, 1, 1], &[Pointer(address), Long(0), Int(1), Int(42)]),
            0
        );
        if events {
            assert_eq!(cuEventRecord(second, b), 0);
            assert_eq!(cuStreamWaitEvent(a, second, 0), 0);
        }
        assert_eq!(cuMemcpyDtoHAsync_v2(host.cast(), address, 4, a), 0);
        assert_eq!(cuStreamSynchronize(a), 0);
        host.read()
    }
}

#[test]
fn events_order_streams() {
    for seed in 1..60 {
        let _device = device(&format!("mode=random seed={seed}"));
        assert_eq!(chain(true), 42, "seed {seed}");
    }
    for mode in MODES {
        let _device = device(mode);
        assert_eq!(chain(true), 42, "{mode}");
    }
}

#[test]
fn a_missing_event_shows() {
    let wrong = (1..60).filter(|seed| {
        let _device = device(&format!("mode=random seed={seed}"));
        chain(false) != 42
    });
    let wrong = wrong.count();
    assert!(wrong > 10, "{wrong} of 59");
    let _device = device("mode=lazy");
    assert_ne!(chain(false), 42);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    let _device = device("mode=lazy");
    let blocking = created(|out| unsafe { cuStreamCreate(out, 0) });
    for (stream, wanted) in [(blocking, 7), (new_stream(), 0xa5)] {
        let address = alloc(1);
        let mut value = 0u8;
        unsafe {
            assert_eq!(cuMemsetD8Async(address, 7, 1, stream), 0);
            assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), address, 1), 0);
        }
        assert_eq!(value, wanted);
    }
}

#[test]
fn events_measure_and_answer() {
    let _device = device("mode=lazy");
    let (stream, from, to) = (new_stream(), new_event(), new_event());
    let mut milliseconds = -1.0;
    unsafe {
        assert_eq!(cuEventQuery(from), 0); // never recorded: done
        assert_eq!(cuEventElapsedTime(&mut milliseconds, from, to), INVALID_HANDLE);
        assert_eq!(cuEventRecord(from, stream), 0);
        assert_eq!(cuEventRecord(to, stream), 0);
        assert_eq!(cuEventElapsedTime(&mut milliseconds, from, to), NOT_READY);
        assert_eq!(cuEventQuery(to), NOT_READY);
        assert_eq!(cuEventSynchronize(to), 0);
        assert_eq!(cuEventElapsedTime_v2(&mut milliseconds, from, to), 0);
        assert!(milliseconds >= 0.0);
        assert_eq!(cuEventDestroy_v2(to), 0);
        assert_eq!(cuEventQuery(to), INVALID_HANDLE);
    }
}

#[test]
fn a_pageable_source_is_read_at_once_and_a_page_locked_one_later() {
    let _device = device("mode=lazy");
    let (stream, address) = (new_stream(), alloc(4));
    let mut source = vec![5i32];
    unsafe {
        assert_eq!(cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), 4, stream), 0);
        source[0] = 6;
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(download::<i32>(address, 1), [5]);

        assert_eq!(cuMemHostRegister_v2(source.as_mut_ptr().cast(), 4, 0), 0);
        assert_eq!(cuMemHostRegister_v2(source.as_mut_ptr().cast(), 4, 0), 712);
        assert_eq!(cuMemcpyHtoDAsync_v2(address, source.as_ptr().cast(), 4, stream), 0);
        source.as_mut_ptr().write_volatile(7);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(download::<i32>(address, 1), [7]);
        assert_eq!(cuMemHostUnregister(source.as_mut_ptr().cast()), 0);
        assert_eq!(cuMemHostUnregister(source.as_mut_ptr().cast()), 713);
    }
}

fn side(kind: u32, address: u64, pitch: usize, x: usize, y: usize) -> Side2D {
    let (host, device) = if kind == 1 { (address, 0) } else { (0, address) };
    Side2D { x, y, kind, host, device, array: 0, pitch }
}

#[test]
fn copies_in_two_dimensions() {
    for mode in MODES {
        let _device = device(mode);
        let stream = new_stream();
        let source: Vec<u8> = (0..10 * 16).map(|i| i as u8).collect();
        let packed = alloc(5 * 4);
        let mut back = vec![0xeeu8; 4 * 9];
        let into = Memcpy2D {
            source: side(1, source.as_ptr() as u64, 16, 3, 2),
            target: side(2, packed, 5, 0, 0),
            width: 5,
            height: 4,
        };
        let out = Memcpy2D {
            source: side(2, packed, 5, 0, 0),
            target: side(1, back.as_mut_ptr() as u64, 9, 1, 0),
            width: 5,
            height: 4,
        };
        unsafe {
            assert_eq!(cuMemcpy2DAsync_v2(&into, stream), 0);
            assert_eq!(cuMemcpy2DAsync_v2(&out, stream), 0); // to pageable memory: there when it returns
        }
        for row in 0..4 {
            let begin = (row + 2) * 16 + 3;
            assert_eq!(back[row * 9], 0xee);
            assert_eq!(back[row * 9 + 1..][..5], source[begin..][..5], "{mode} row {row}");
            assert_eq!(back[row * 9 + 6..][..3], [0xee; 3]);
        }
        let narrow = Memcpy2D { source: side(1, source.as_ptr() as u64, 4, 0, 0), ..into };
        let wide = Memcpy2D { source: side(1, source.as_ptr() as u64, 1 << 31, 0, 0), ..into };
        assert_eq!(unsafe { cuMemcpy2DAsync_v2(&narrow, stream) }, INVALID_VALUE);
        assert_eq!(unsafe { cuMemcpy2DAsync_v2(&wide, stream) }, INVALID_VALUE);
    }
}

#[test]
fn contexts_are_a_stack_of_each_thread() {
    let _device = device("devices=2");
    let (mut first, mut second, mut current, mut popped) = (0, 0, 0, 0);
    unsafe {
        assert_eq!(cuCtxGetCurrent(&mut first), 0);
        assert_eq!(cuCtxPushCurrent_v2(first + 0x100), INVALID_CONTEXT); // not retained yet
        assert_eq!(cuDevicePrimaryCtxRetain(&mut second, 1), 0);
        assert_eq!(cuCtxPushCurrent_v2(second), 0);
        let mut number = -1;
        assert_eq!(cuCtxGetDevice(&mut number), 0);
        assert_eq!(number, 1);
        std::thread::spawn(move || {
            let mut current = 1;
            assert_eq!(cuCtxGetCurrent(&mut current), 0);
            assert_eq!(current, 0);
            assert_eq!(cuCtxSynchronize(), INVALID_CONTEXT);
            assert_eq!(cuCtxPopCurrent_v2(&mut current), INVALID_CONTEXT);
        })
        .join()
        .unwrap();
        assert_eq!(cuCtxPopCurrent_v2(&mut popped), 0);
        assert_eq!(cuCtxGetCurrent(&mut current), 0);
        assert_eq!((popped, current), (second, first));
        let (mut flags, mut active) = (9, 9);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(1), 0);
        assert_eq!(cuDevicePrimaryCtxGetState(1, &mut flags, &mut active), 0);
        assert_eq!((flags, active), (0, 0));
        assert_eq!(cuDevicePrimaryCtxRelease_v2(1), INVALID_CONTEXT);
    }
}

#[test]
fn pointers_are_known() {
    let _device = device("devices=2");
    start(1);
    let (address, host) = (alloc(16), pinned(&[0u8; 16]));
    let mut managed = 0;
    assert_eq!(unsafe { cuMemAllocManaged(&mut managed, 16, 1) }, 0);
    unsafe { (managed as *mut u8).write(3) }; // the host may
    assert_eq!(download::<u8>(managed, 1), [3]);
    let plain = [0u8; 4];
    let ask = |address: u64| {
        let (mut kind, mut is_managed, mut ordinal, mut pointer) = (9u32, 9u32, 9i32, 9u64);
        let which = [2, 8, 9, 3];
        let mut values: [*mut c_void; 4] = [
            (&raw mut kind).cast(),
            (&raw mut is_managed).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut pointer).cast(),
        ];
        let status = unsafe { cuPointerGetAttributes(4, which.as_ptr(), values.as_mut_ptr(), address) };
        (status, kind, is_managed, ordinal, pointer)
    };
    assert_eq!(ask(address + 5), (0, 2, 0, 1, address + 5));
    assert_eq!(ask(host as u64), (0, 1, 0, 1, host as u64));
    assert_eq!(ask(managed), (0, 2, 1, 1, managed));
    assert_eq!(ask(plain.as_ptr() as u64), (0, 0, 0, -2, 0));
    let mut kind = 0u32;
    let alone = unsafe { cuPointerGetAttribute((&raw mut kind).cast(), 2, plain.as_ptr() as u64) };
    assert_eq!(alone, INVALID_VALUE);
    let (mut mapped, mut flags) = (0, 7);
    unsafe {
        assert_eq!(cuMemHostGetDevicePointer_v2(&mut mapped, host.cast(), 0), 0);
        assert_eq!(cuMemHostGetFlags(&mut flags, host.cast()), 0);
        assert_eq!(cuMemFree_v2(managed), 0);
    }
    assert_eq!((mapped, flags), (host as u64, 0));
}

extern "C" fn call_back(data: *mut c_void) {
    // CUDA may not be called from here.
    unsafe { data.cast::<c_int>().write(cuCtxSynchronize()) };
}

#[test]
fn host_functions_run_in_stream_order() {
    let _device = device("mode=lazy");
    let (stream, mut seen) = (new_stream(), 0);
    unsafe {
        assert_eq!(cuLaunchHostFunc(stream, Some(call_back), (&raw mut seen).cast()), 0);
        assert_eq!((&raw const seen).read_volatile(), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!((&raw const seen).read_volatile(), NOT_PERMITTED);
    }
}

/// The name that a failure is ordered by is the name of the function.
#[test]
fn entry_points_know_their_names() {
    let sources = [
        include_str!("../src/api/blas.rs"),
        include_str!("../src/api/context.rs"),
        include_str!("../src/api/copy.rs"),
        include_str!("../src/api/memory.rs"),
        include_str!("../src/api/module.rs"),
        include_str!("../src/api/stream.rs"),
    ];
    let mut seen = 0;
    for source in sources {
        for part in source.split("pub unsafe extern \"C\" fn cu").skip(1) {
            let name = part.split('(').next().unwrap();
            let entered = part.split("enter(\"cu").nth(1).or(part.split("enter_blas(\"cu").nth(1)).unwrap();
            assert_eq!(entered.split('"').next().unwrap(), name);
            seen += 1;
        }
    }
    assert!(seen > 70, "{seen}");
}

#[test]
fn threads_of_the_host_share_the_device() {
    let _device = device("mode=random seed=9");
    let work = |thread: i32| {
        start(0);
        let stream = new_stream();
        for i in 0..50 {
            let address = alloc(256);
            let arguments = [Pointer(address), Long(0), Int(256), Int(thread + i)];
            assert_eq!(launch(stream, "own_fill", [1, 1, 1], [32, 1, 1], &arguments), 0);
            let mut bytes = [0u8; 256];
            unsafe {
                assert_eq!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, 256, stream), 0);
                assert_eq!(cuMemFree_v2(address), 0);
            }
            assert_eq!(bytes, [(thread + i) as u8; 256]);
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|thread| drop(scope.spawn(move || work(thread))));
    });
}

//! Graphs of the software device: copies of parameters, the order of nodes, handles.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{MODES, alloc, created, device, new_stream, synchronize};
use softgpu::api::{control::*, copy::*, graph::*};

/// Calls with a node of own_fill (kernels/own.cu): writes a byte to the first places behind an address.
fn fill<T>(function: usize, out: u64, places: i32, byte: i32, call: impl Fn(*const KernelNode) -> T) -> T {
    let (mut out, mut first, mut places, mut byte) = (out, 0i64, places, byte);
    let mut arguments: [*mut c_void; 4] =
        [(&raw mut out).cast(), (&raw mut first).cast(), (&raw mut places).cast(), (&raw mut byte).cast()];
    let (grid, threads, arguments) = ([1; 3], [1; 3], arguments.as_mut_ptr());
    let (dynamic_bytes, extra, kernel, context) = (0, null_mut(), 0, 0);
    call(&KernelNode { function, grid, threads, dynamic_bytes, arguments, extra, kernel, context })
}

fn function() -> usize {
    created(|out| unsafe { softgpu_function(out, c"own_fill".as_ptr()) })
}

/// Adds such a node, which waits for those before.
fn add(graph: usize, before: &[usize], out: u64, places: i32, byte: i32) -> usize {
    fill(function(), out, places, byte, |node| {
        created(|handle| unsafe {
            cuGraphAddKernelNode_v2(handle, graph, before.as_ptr(), before.len(), node)
        })
    })
}

fn new_graph() -> usize {
    created(|out| unsafe { cuGraphCreate(out, 0) })
}

fn instantiate(graph: usize) -> usize {
    created(|out| unsafe { cuGraphInstantiateWithFlags(out, graph, 0) })
}

fn read(address: u64) -> [u8; 4] {
    let mut bytes = [0; 4];
    assert_eq!(unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, 4) }, 0);
    bytes
}

#[test]
fn a_graph_is_replayed_with_the_parameters_of_its_launch() {
    for mode in MODES {
        let _device = device(mode);
        let (out, stream, graph) = (alloc(4), new_stream(), new_graph());
        let first = add(graph, &[], out, 4, 1);
        let second = add(graph, &[first], out, 3, 2);
        add(graph, &[first, second], out, 2, 3);
        let executable = instantiate(graph);
        // What is instantiated does not need the graph any more, and what is queued not what is instantiated.
        assert_eq!(unsafe { cuGraphDestroy(graph) }, 0);
        let launch = || assert_eq!(unsafe { cuGraphLaunch(executable, stream) }, 0);
        launch();
        assert_eq!(synchronize(), 0);
        assert_eq!(read(out), [3, 3, 2, 1], "{mode}");
        launch();
        let set = |node| unsafe { cuGraphExecKernelNodeSetParams_v2(executable, second, node) };
        assert_eq!(fill(function(), out, 3, 9, set), 0);
        if mode == "mode=lazy" {
            assert_eq!(read(out), [3, 3, 2, 1], "not done yet");
        }
        assert_eq!(synchronize(), 0);
        assert_eq!(read(out), [3, 3, 2, 1], "{mode}: what was queued stays");
        launch();
        assert_eq!((unsafe { cuGraphExecDestroy(executable) }, unsafe { softgpu_graphs() }), (0, 0));
        assert_eq!(synchronize(), 0);
        assert_eq!(read(out), [3, 3, 9, 1], "{mode}");
    }
}

#[test]
fn nodes_without_an_edge_come_in_the_wrong_order() {
    let _device = device("");
    let (out, stream, graph) = (alloc(4), new_stream(), new_graph());
    let first = add(graph, &[], out, 4, 1);
    add(graph, &[], out, 4, 2);
    add(graph, &[first], out, 1, 3);
    assert_eq!(unsafe { cuGraphLaunch(instantiate(graph), stream) }, 0);
    assert_eq!(synchronize(), 0);
    assert_eq!(read(out), [3, 1, 1, 1]);
}

#[test]
fn wrong_handles_and_parameters_are_refused() {
    let _device = device("");
    let (out, graph) = (alloc(4), new_graph());
    let node = add(graph, &[], out, 4, 1);
    let executable = instantiate(graph);
    let mut handle = 0;
    unsafe {
        assert_eq!(cuGraphCreate(&mut handle, 1), 1);
        assert_eq!(cuGraphInstantiateWithFlags(&mut handle, executable, 0), 400);
        assert_eq!(cuGraphLaunch(graph, 0), 400);
        let strange = |before: &[usize], function| {
            fill(function, out, 4, 1, |node| {
                cuGraphAddKernelNode_v2(&mut { handle }, graph, before.as_ptr(), before.len(), node)
            })
        };
        assert_eq!([strange(&[executable], function()), strange(&[], 5)], [1, 400]);
        assert_eq!(cuGraphAddKernelNode_v2(&mut handle, graph, null_mut(), 0, null_mut()), 1);
        let set = |node: usize| {
            move |parameters: *const KernelNode| {
                cuGraphExecKernelNodeSetParams_v2(executable, node, parameters)
            }
        };
        assert_eq!(
            [fill(function(), out, 4, 1, set(graph)), fill(function(), out, 4, 1, set(node))],
            [400, 0]
        );
        assert_eq!([cuGraphDestroy(graph), cuGraphDestroy(graph), cuGraphExecDestroy(graph)], [0, 400, 400]);
    }
}

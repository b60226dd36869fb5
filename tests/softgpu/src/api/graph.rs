//! Graphs of kernels: made node by node, instantiated, their nodes given other parameters, launched.

use std::ffi::{c_uint, c_void};

use super::module::launch_of;
use super::put;
use crate::graph::{Executable, Graph, Node};
use crate::ops::Op;
use crate::state::{State, enter};
use crate::status::{INVALID_HANDLE, INVALID_VALUE, Outcome, Status};

/// CUDA_KERNEL_NODE_PARAMS_v2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelNode {
    pub function: usize,
    pub grid: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub dynamic_bytes: c_uint,
    pub arguments: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    /// A CUkernel in place of the function: not served.
    pub kernel: usize,
    /// Null: the current one.
    pub context: usize,
}

unsafe fn launch(state: &State, device: usize, node: *const KernelNode) -> Outcome<crate::kernel::Launch> {
    let node = node.as_ref().copied().ok_or(INVALID_VALUE)?;
    if node.kernel != 0 || node.context != 0 {
        return Err(INVALID_VALUE);
    }
    let KernelNode { function, grid, threads, dynamic_bytes, arguments, extra, .. } = node;
    launch_of(state, function, device, [grid, threads], dynamic_bytes, arguments, extra)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(out: *mut usize, flags: c_uint) -> Status {
    enter("cuGraphCreate", |state| {
        let device = state.device()?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = state.handle();
        state.graphs.insert(handle, Graph { device, nodes: vec![] });
        put(out, handle)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    out: *mut usize,
    graph: usize,
    before: *const usize,
    count: usize,
    node: *const KernelNode,
) -> Status {
    enter("cuGraphAddKernelNode_v2", |state| {
        let device = state.graphs.get(&graph).ok_or(INVALID_HANDLE)?.device;
        let launch = launch(state, device, node)?;
        let handle = state.handle();
        let nodes = &mut state.graphs.get_mut(&graph).ok_or(INVALID_HANDLE)?.nodes;
        let before = if count == 0 { &[] } else { std::slice::from_raw_parts(before, count) };
        let number = |handle: &usize| nodes.iter().position(|node| node.handle == *handle);
        let before: Option<Vec<usize>> = before.iter().map(number).collect();
        nodes.push(Node { handle, launch, before: before.ok_or(INVALID_VALUE)? });
        put(out, handle)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(out: *mut usize, graph: usize, flags: u64) -> Status {
    enter("cuGraphInstantiateWithFlags", |state| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let Graph { device, nodes } = state.graphs.get(&graph).ok_or(INVALID_HANDLE)?.clone();
        let handle = state.handle();
        state.executables.insert(handle, Executable { device, nodes });
        put(out, handle)
    })
}

/// For later launches; those that are queued stay as they are. The function may be another one of the same context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecKernelNodeSetParams_v2(
    executable: usize,
    node: usize,
    parameters: *const KernelNode,
) -> Status {
    enter("cuGraphExecKernelNodeSetParams_v2", |state| {
        let device = state.executables.get(&executable).ok_or(INVALID_HANDLE)?.device;
        let launch = launch(state, device, parameters)?;
        let nodes = &mut state.executables.get_mut(&executable).ok_or(INVALID_HANDLE)?.nodes;
        nodes.iter_mut().find(|one| one.handle == node).ok_or(INVALID_HANDLE)?.launch = launch;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> Status {
    enter("cuGraphLaunch", |state| {
        let device = state.device()?;
        let key = state.stream(stream)?;
        let executable = state.executables.get(&executable).ok_or(INVALID_HANDLE)?;
        if executable.device != device || state.streams.get(key)?.device != device {
            return Err(INVALID_HANDLE);
        }
        for launch in executable.in_order() {
            state.push(key, Op::Launch(launch));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(executable: usize) -> Status {
    enter("cuGraphExecDestroy", |state| state.executables.remove(&executable).map(drop).ok_or(INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: usize) -> Status {
    enter("cuGraphDestroy", |state| state.graphs.remove(&graph).map(drop).ok_or(INVALID_HANDLE))
}

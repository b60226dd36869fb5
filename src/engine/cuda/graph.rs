//! The kernels of a small product as one CUDA graph, made at the first call of a shape and replayed by the later ones: one call of the
//! driver in place of three. Between calls only the nodes change whose parameters are others than last time.
//!
//! Only with the fused product, whose launches are ours. If anything about graphs fails, the device launches kernels one by one from
//! then on.

use std::ffi::c_uint;
use std::ptr::null_mut;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS_v2, CUgraph, CUgraphExec, CUgraphNode};

use super::device::Device;
use super::launch::Launch;
use super::library::{Fault, Graphs};

/// Products up to this m n k are replayed. With larger ones three launches are nothing beside their work. Not measured yet
/// (scripts/gpu-check).
pub const MOST_WORK: usize = 2048 * 2048 * 2048;
/// Shapes that are kept. The one that was not used for the longest time goes.
const MOST_SHAPES: usize = 8;

/// m, n, k, and the number of moduli.
pub type Shape = [usize; 4];

/// The graph of a shape, with the launches as its nodes have them now.
struct Kept {
    shape: Shape,
    launches: Vec<Launch>,
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
    executable: CUgraphExec,
}

/// The graphs of a device, the last used one at the end.
#[derive(Default)]
pub struct Replays {
    kept: Vec<Kept>,
    /// A function of graphs has failed here.
    pub failed: bool,
}

/// Are graphs to be left alone? For measurements: OZ2_CUDA_GRAPHS=0 in the environment, no option of the library.
pub fn unwanted() -> bool {
    std::env::var_os("OZ2_CUDA_GRAPHS").is_some_and(|value| value == "0")
}

/// A launch as the driver wants it for a node; it reads the parameters from `pointers`.
fn node_of(launch: &Launch, pointers: &mut [*mut std::ffi::c_void]) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    let ([grid_x, grid_y], one): (_, c_uint) = (launch.grid, 1);
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: launch.function,
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: one,
        blockDimX: launch.threads,
        blockDimY: one,
        blockDimZ: one,
        sharedMemBytes: launch.shared,
        kernelParams: pointers.as_mut_ptr(),
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    }
}

impl Kept {
    /// A graph of launches, each of which waits for the one before.
    ///
    /// # Safety
    ///
    /// As for [`Device::start`].
    unsafe fn new(driver: &Graphs, shape: Shape, launches: &[Launch]) -> Result<Self, Fault> {
        let mut made = Self {
            shape,
            launches: launches.to_vec(),
            graph: null_mut(),
            nodes: Vec::with_capacity(launches.len()),
            executable: null_mut(),
        };
        // SAFETY: the calls write handles, and copy the parameters that the pointers lead to.
        match unsafe { made.fill(driver) } {
            Ok(()) => Ok(made),
            Err(fault) => {
                // SAFETY: handles of this function.
                let _ = unsafe { made.destroy(driver) };
                Err(fault)
            }
        }
    }

    unsafe fn fill(&mut self, driver: &Graphs) -> Result<(), Fault> {
        // SAFETY: by the contract of `new`.
        unsafe {
            driver.cuGraphCreate(&raw mut self.graph, 0)?;
            for launch in &self.launches {
                let (mut node, before) =
                    (null_mut(), self.nodes.last().map_or(&[][..], std::slice::from_ref));
                let mut pointers = launch.pointers();
                let parameters = node_of(launch, &mut pointers);
                let (count, before) = (before.len(), before.as_ptr());
                driver.cuGraphAddKernelNode_v2(
                    &raw mut node,
                    self.graph,
                    before,
                    count,
                    &raw const parameters,
                )?;
                self.nodes.push(node);
            }
            driver.cuGraphInstantiateWithFlags(&raw mut self.executable, self.graph, 0)
        }
    }

    /// Gives the nodes the parameters of these launches, where they are others.
    ///
    /// # Safety
    ///
    /// As for [`Device::start`].
    unsafe fn update(&mut self, driver: &Graphs, launches: &[Launch]) -> Result<(), Fault> {
        for ((now, launch), &node) in self.launches.iter_mut().zip(launches).zip(&self.nodes) {
            if now != launch {
                let mut pointers = launch.pointers();
                let parameters = node_of(launch, &mut pointers);
                // SAFETY: a node of this graph; the call copies the parameters.
                unsafe {
                    driver.cuGraphExecKernelNodeSetParams_v2(self.executable, node, &raw const parameters)?;
                }
                *now = *launch;
            }
        }
        Ok(())
    }

    /// Gives the graph back. What of it is in work goes on.
    unsafe fn destroy(self, driver: &Graphs) -> Result<(), Fault> {
        // SAFETY: handles that nobody uses any more.
        unsafe {
            let executable = match self.executable.is_null() {
                true => Ok(()),
                false => driver.cuGraphExecDestroy(self.executable),
            };
            let graph = if self.graph.is_null() { Ok(()) } else { driver.cuGraphDestroy(self.graph) };
            executable.and(graph)
        }
    }

    fn is_for(&self, shape: Shape, launches: &[Launch]) -> bool {
        let function = |launch: &Launch| launch.function;
        self.shape == shape && self.launches.iter().map(function).eq(launches.iter().map(function))
    }
}

impl Device {
    /// Queues the launches of a product one after the other on the compute stream: as a graph, or one by one where there are none.
    ///
    /// # Safety
    ///
    /// As for [`Device::start`].
    pub unsafe fn replay(&mut self, shape: Shape, launches: &[Launch]) -> Result<(), Fault> {
        if let Some(driver) = self.libraries.graphs.as_ref().filter(|_| !self.replays.failed) {
            // SAFETY: by the contract of this function, here and below.
            match unsafe { self.try_replay(driver, shape, launches) } {
                Ok(()) => return Ok(()),
                Err(why) => {
                    tracing::debug!(
                        why = format!("{why:?}"),
                        "CUDA graphs fail: kernels are launched one by one"
                    );
                    self.replays.failed = true;
                }
            }
        }
        launches.iter().try_for_each(|launch| unsafe { self.start(launch) })
    }

    unsafe fn try_replay(&mut self, driver: &Graphs, shape: Shape, launches: &[Launch]) -> Result<(), Fault> {
        let kept = &mut self.replays.kept;
        // SAFETY: by the contract of `replay`, here and below.
        let mut current = match kept.iter().position(|one| one.is_for(shape, launches)) {
            Some(place) => kept.remove(place),
            None => {
                if kept.len() >= MOST_SHAPES {
                    unsafe { kept.remove(0).destroy(driver)? };
                }
                unsafe { Kept::new(driver, shape, launches)? }
            }
        };
        let launched = unsafe {
            current
                .update(driver, launches)
                .and_then(|()| driver.cuGraphLaunch(current.executable, self.compute))
        };
        self.replays.kept.push(current);
        launched
    }
}

//! What can stand in the queue of a stream, and how it is done.

use std::ffi::c_void;
use std::time::Instant;

use crate::kernel::{self, Launch};
use crate::memory::{Memory, POISON};
use crate::products::{self, Product, Scalar};
use crate::state::{State, run_host_function};
use crate::status::{Outcome, SUCCESS};

/// Rows of bytes, `rows` times `width`, a pitch apart on either side.
pub struct Copy {
    pub target: u64,
    pub source: u64,
    pub width: usize,
    pub rows: usize,
    pub target_pitch: usize,
    pub source_pitch: usize,
    /// Pageable memory on either side: a plain pointer of the host, of which nothing is known.
    pub target_pageable: bool,
    pub source_pageable: bool,
}

pub enum Op {
    Launch(Launch),
    Copy(Copy),
    /// A copy from pageable memory, which the driver read when it was called.
    Staged {
        target: u64,
        width: usize,
        pitch: usize,
        bytes: Vec<u8>,
    },
    Set {
        target: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    Born(u64),
    Free(u64),
    Record {
        event: usize,
    },
    Wait {
        point: (usize, u64),
    },
    HostFunction {
        function: extern "C" fn(*mut c_void),
        data: usize,
    },
    Product(Box<Product>),
}

impl State {
    /// Does one piece of work. On a lost device nothing is done any more, only counted.
    pub fn run(&mut self, op: Op, device: usize, point: (usize, u64)) -> Outcome {
        if self.lost[device] != SUCCESS {
            return Ok(());
        }
        match op {
            Op::Launch(launch) => self.run_launch(launch, device),
            Op::Copy(copy) => {
                self.due("launch:copy", Some(device), None)?;
                self.run_copy(&copy, device)
            }
            Op::Staged { target, width, pitch, bytes } => {
                self.due("launch:copy", Some(device), None)?;
                for (row, bytes) in bytes.chunks(width.max(1)).enumerate() {
                    let target = self.memory.on_device(target + (row * pitch) as u64, bytes.len(), device)?;
                    // SAFETY: on_device vouches for as many bytes.
                    unsafe { target.copy_from(bytes.as_ptr(), bytes.len()) };
                }
                Ok(())
            }
            Op::Set { target, pattern, count } => {
                self.due("launch:set", Some(device), None)?;
                let target = self.memory.on_device(target, pattern.len() * count, device)?;
                for i in 0..count {
                    // SAFETY: on_device vouches for all of them.
                    unsafe { target.add(i * pattern.len()).copy_from(pattern.as_ptr(), pattern.len()) };
                }
                Ok(())
            }
            Op::Born(address) => {
                if let Some(block) = self.memory.get_mut(address) {
                    block.born = true;
                }
                Ok(())
            }
            Op::Free(address) => {
                self.check_red_zones("at cuMemFreeAsync");
                self.memory.release(address);
                Ok(())
            }
            Op::Record { event } => {
                if let Some(event) =
                    self.streams.events.get_mut(&event).filter(|event| event.point == Some(point))
                {
                    event.time = Some(Instant::now());
                }
                Ok(())
            }
            Op::Wait { .. } => Ok(()),
            Op::HostFunction { function, data } => {
                run_host_function(function, data);
                Ok(())
            }
            Op::Product(product) => self.run_product(&product, device),
        }
    }

    fn run_launch(&mut self, launch: Launch, device: usize) -> Outcome {
        let name = launch.kernel.name();
        self.due(&format!("launch:{name}"), Some(device), None)?;
        let residues = name.starts_with("oz2_product_").then(|| products::Residues::of(&launch));
        kernel::run(&self.memory, device, launch, self.config.reverse)?;
        self.check_red_zones(&format!("after {name}"));
        if let Some(residues) = residues
            && let Err(number) = self.due("flip:product", Some(device), None)
        {
            residues.flip(&self.memory, device, number as usize)?;
        }
        Ok(())
    }

    fn run_copy(&self, copy: &Copy, device: usize) -> Outcome {
        let side = |address: u64, pageable: bool| {
            if pageable { Ok(address as *mut u8) } else { self.memory.on_device(address, copy.width, device) }
        };
        for row in 0..copy.rows {
            let source = side(copy.source + (row * copy.source_pitch) as u64, copy.source_pageable)?;
            let target = side(copy.target + (row * copy.target_pitch) as u64, copy.target_pageable)?;
            // SAFETY: known memory was looked up; for pageable memory the caller vouches, as with CUDA.
            unsafe { std::ptr::copy(source, target, copy.width) };
        }
        Ok(())
    }

    fn run_product(&mut self, product: &Product, device: usize) -> Outcome {
        self.due(product.launch_name(), Some(device), None)?;
        if let Some((address, bytes)) = product.workspace {
            // cuBLAS is free to use all of it: whoever keeps data there, or lends it to two streams, finds out.
            let start = self.memory.on_device(address, bytes, device)?;
            // SAFETY: on_device vouches for all of it.
            unsafe {
                let touched = bytes.min(4096);
                start.write_bytes(POISON ^ 0xff, touched);
                start.add(bytes - touched).write_bytes(POISON ^ 0xff, touched);
            }
        }
        products::run(product, &self.memory, device)?;
        if product.kind == products::Type::Int8
            && let Err(number) = self.due("flip:gemm", Some(device), None)
        {
            products::flip(product, &self.memory, device, number as usize)?;
        }
        Ok(())
    }
}

impl Scalar {
    /// The value, which may lie on the device (cublasSetPointerMode).
    pub fn value<T: std::marker::Copy>(&self, memory: &Memory, device: usize) -> Outcome<T> {
        match self {
            // SAFETY: the bytes were read from a T of the caller.
            Scalar::Host(bytes) => Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }),
            Scalar::Device(address) => {
                let pointer = memory.on_device(*address, size_of::<T>(), device)?;
                // SAFETY: on_device vouches for the bytes.
                Ok(unsafe { pointer.cast::<T>().read_unaligned() })
            }
        }
    }
}

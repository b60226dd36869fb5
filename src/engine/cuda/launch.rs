//! A launch of a kernel as a value: it can be started, or kept and compared with the next one (graph.rs).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{CUdeviceptr, CUfunction};

use super::device::Device;
use super::library::Fault;

/// What a kernel may take as a parameter: bytes without gaps between them.
pub trait Parameter: Copy {}

impl Parameter for c_int {}
impl Parameter for i64 {}
impl Parameter for f64 {}
impl Parameter for CUdeviceptr {}

/// Room for the parameters of the largest kernels: two tensor maps and some words, or many words.
const BYTES: usize = 384;
const MOST: usize = 20;

/// A kernel, its grid, and its parameters.
#[derive(Clone, Copy, PartialEq)]
#[repr(align(64))]
pub struct Launch {
    /// The parameters, each at a multiple of its alignment. A tensor map has the strictest one, that of this struct.
    bytes: [u8; BYTES],
    places: [u16; MOST],
    count: usize,
    end: usize,
    pub function: CUfunction,
    /// Blocks.
    pub grid: [c_uint; 2],
    /// Of a block.
    pub threads: c_uint,
    /// Bytes of dynamic shared memory.
    pub shared: c_uint,
}

impl Launch {
    pub fn new(function: CUfunction, grid: [usize; 2], threads: usize) -> Self {
        Self {
            bytes: [0; BYTES],
            places: [0; MOST],
            count: 0,
            end: 0,
            function,
            grid: grid.map(|blocks| blocks as c_uint),
            threads: threads as c_uint,
            shared: 0,
        }
    }

    /// With so many bytes of dynamic shared memory.
    pub fn sharing(self, bytes: usize) -> Self {
        Self { shared: bytes as c_uint, ..self }
    }

    /// Adds the next parameter.
    pub fn with<T: Parameter>(mut self, value: T) -> Self {
        let place = self.end.next_multiple_of(align_of::<T>());
        let room = &mut self.bytes[place..place + size_of::<T>()];
        // SAFETY: the room has the size of the value, whose bytes are all there (Parameter).
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const value).cast(), room.as_mut_ptr(), size_of::<T>())
        };
        self.places[self.count] = place as u16;
        (self.count, self.end) = (self.count + 1, place + size_of::<T>());
        self
    }

    /// Where the parameters are, as the driver wants it. It copies them.
    pub fn pointers(&self) -> [*mut c_void; MOST] {
        let mut pointers = [null_mut(); MOST];
        for (pointer, &place) in pointers.iter_mut().zip(&self.places[..self.count]) {
            *pointer = (&raw const self.bytes[usize::from(place)]).cast_mut().cast();
        }
        pointers
    }
}

impl Device {
    /// Queues a launch on the compute stream.
    ///
    /// # Safety
    ///
    /// The parameters are those of the kernel, and the memory behind them is large enough.
    pub unsafe fn start(&self, launch: &Launch) -> Result<(), Fault> {
        let mut parameters = launch.pointers();
        // SAFETY: by the contract of this function.
        unsafe {
            self.libraries.driver.cuLaunchKernel(
                launch.function,
                launch.grid[0],
                launch.grid[1],
                1,
                launch.threads,
                1,
                1,
                launch.shared,
                self.compute,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        }
    }
}

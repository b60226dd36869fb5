//! A CUDA device in software: the part of the driver API and of cuBLAS that oz2blas calls, run by the host's processor.
//! One shared object stands in for libcuda.so.1 and libcublas.so.12 (`scripts/softgpu` makes the symbolic links). README.md says
//! what it can show and what it cannot.
//!
//! - `config`: the switches. `faults`: failures on order. `trace`: what was called.
//! - `state`: the one device state behind one lock, and `enter`, through which every entry point goes.
//! - `memory`: allocations, poison, red zones. `stream`: queues, events, and in which order work is done.
//! - `ops`: what can stand in a queue. `kernel`: compiled kernels and PTX. `graph`: kernels in an order. `products`: the matrix products of cuBLAS.
//! - `api`: the entry points. `testing`: a thin layer for Rust tests.

pub mod api;
mod config;
mod context;
mod faults;
mod graph;
mod kernel;
mod memory;
mod ops;
mod products;
mod state;
pub mod status;
mod stream;
pub mod testing;
mod trace;

//! oz2blas: DGEMM in 8-bit integer arithmetic by the Ozaki Scheme II, behind the C interface of a BLAS.
//!
//! A call comes in through the C border ([`abi`]), becomes one validated value ([`gemm`]), is routed ([`route`], by
//! [`options`]), and is computed by an engine ([`engine`], by the scheme in [`ozaki`]) or by the BLAS underneath
//! ([`native`]); [`observe`] tells what happened. Dependencies point down this list and never back:
//!
//! abi -> route -> engine, native -> ozaki -> rns
//!
//! ARCHITECTURE.md walks through one call.

pub mod abi;
pub mod engine;
pub mod gemm;
pub mod native;
pub mod observe;
pub mod options;
pub mod ozaki;
pub mod rns;
pub mod route;

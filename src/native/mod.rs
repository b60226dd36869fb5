//! The BLAS underneath: who it is ([`find`]), how it is called ([`call`]), and the embedded one ([`builtin`]).

pub mod builtin;
pub mod call;
pub mod find;

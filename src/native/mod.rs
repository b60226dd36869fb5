//! The BLAS underneath: who it is ([`find`]), how it is called ([`call`]), and our own:
//! DGEMM and error handlers ([`builtin`]) and all the rest ([`embedded`]).

pub mod builtin;
pub mod call;
pub mod embedded;
pub mod find;
pub mod integers;
mod linked;
pub mod objects;

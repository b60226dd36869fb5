//! Residue number systems (RNS): integers as their residues modulo many small moduli.
//!
//! Adding and multiplying such numbers needs no carries; finding out how large one is does not come for free. This module does
//! it with two doubles: the *interval evaluation* encloses X / M, M the product of the moduli, and so orders numbers, tells
//! signs and finds the largest of an array. Where two enclosures overlap the answer comes from mixed-radix digits: every
//! answer is exact.
//!
//! [`moduli`] has the sets and makes new ones, [`System`] the constants of a set and the conversions from and to big integers,
//! [`interval`] the enclosure of one number, [`fraction`] the quick form for many, [`mixed_radix`] the digits, [`compare`] order
//! and sign, [`mod@array`] whole arrays on several threads. docs/rns.md tells the formulas.
//!
//! Source: K. Isupov, High-Performance Computation in Residue Number System Using Floating-Point Arithmetic, Computation 9(2),
//! 9, 2021, with corrections that docs/rns.md names.
//!
//! A number is a slice of `n` canonical residues, 0 <= x_i < m_i, in the order of the moduli. An array of `count` numbers keeps
//! the residues of one modulus together: residue i of number j is at `i * count + j`.

#![forbid(unsafe_code)]

pub mod array;
pub mod compare;
mod directed;
pub mod fraction;
pub mod interval;
pub mod mixed_radix;
mod modular;
pub mod moduli;
pub mod system;

pub use interval::Interval;
pub use system::System;

/// The example of docs/rns.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/rns.md")]
struct Example;

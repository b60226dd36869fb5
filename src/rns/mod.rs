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
//!
//! ```
//! use num_bigint::BigUint;
//! use oz2blas::rns::{System, moduli};
//! use std::cmp::Ordering;
//!
//! let system = System::new(&moduli::paper_set(8)?)?;
//! let x = system.residues(&BigUint::from(10u32).pow(30));
//! let y = system.residues(&(BigUint::from(10u32).pow(30) + 1u32));
//!
//! // X / M lies in [low, upp] 2^exponent, which is narrower than 1e-7 X / M.
//! let interval = system.interval(&x);
//! assert!(interval.low > 0.0 && interval.upp - interval.low <= 1e-7 * interval.upp);
//! // The two are too close for their intervals: the mixed-radix digits decide.
//! assert_eq!(system.compare(&x, &y), Ordering::Less);
//!
//! // Residue i of number j at i * 2 + j.
//! let array: Vec<u32> = x.iter().zip(&y).flat_map(|(&x, &y)| [x, y]).collect();
//! assert_eq!(system.max(&array, 1), Some(1));
//! assert_eq!(system.value(&y), BigUint::from(10u32).pow(30) + 1u32);
//! # Ok::<(), oz2blas::rns::moduli::Error>(())
//! ```

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

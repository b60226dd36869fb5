//! The Ozaki Scheme II: a product of double matrices from products of 8-bit integer matrices.
//!
//! The steps, in order, each with one name everywhere: [`scan`] finds the exponents of every row and column, [`bound`] takes
//! 7-bit magnitudes whose integer product bounds every entry of |A||B|, [`plan`] chooses the number of moduli and the scaling (by
//! what [`needs`] says of every entry, or without a look at them where all lines are [`exact`], if need be with a [`balance`] of the inner dimension or without [`outliers`]),
//! [`residues`] scales and reduces modulo each modulus, the *product* multiplies residues (an engine does that, by the form of
//! [`strassen`] if it pays),
//! [`residues::reduce`] brings the 32-bit sums back to residues, and [`reconstruct`] puts the double together by the CRT.
//! [`mod@reference`] does all of it slowly in big integers: what every engine is compared with, bit for bit.
//!
//! A *line* is a row of op(A) or a column of op(B): what is scaled by one power of two. Nothing here knows of C, of threads
//! or of devices, and nothing is unsafe.

#![forbid(unsafe_code)]

pub mod balance;
pub mod bound;
pub mod exact;
pub mod float;
pub mod moduli;
pub mod needs;
pub mod outliers;
pub mod plan;
pub mod reconstruct;
pub mod reference;
pub mod residues;
pub mod scan;
pub mod strassen;
pub mod wide;

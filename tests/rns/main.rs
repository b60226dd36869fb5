//! Residue number systems (`oz2blas::rns`) against big integers: every claim about an interval or an order is checked exactly.
//!
//! OZ2_TEST_SCALE multiplies the number of random cases.

mod arrays;
mod conversions;
mod enclosure;
mod numbers;
mod order;

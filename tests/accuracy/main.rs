//! Every inequality of docs/accuracy.md, on random and adversarial data, by exact arithmetic. The numbers in brackets are those of that
//! document.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod certificate;
mod exact;
mod far;
mod operands;
mod parts;

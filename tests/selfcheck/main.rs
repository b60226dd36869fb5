//! The self-check (docs/self-check.md): what it finds, what it must not flag, and what it cannot see, measured by faults that are
//! put in on purpose. OZ2_TEST_SCALE multiplies the number of injections (`scripts/soak self-check` has the full count).

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod entries;
mod plans;

/// A count for CI, multiplied by OZ2_TEST_SCALE.
fn scaled(count: u64) -> u64 {
    let scale = std::env::var("OZ2_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    (count as f64 * scale) as u64
}

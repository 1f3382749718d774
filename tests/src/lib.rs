//! The harness of the tests: guests, built on first use.

pub mod crds;
mod guest;

pub use guest::guest;

//! The harness of the tests: guests, built on first use.

mod guest;

pub use guest::guest;

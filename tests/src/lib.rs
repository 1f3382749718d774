//! The harness of the tests: guests, built on first use; recorded cases.

pub mod crds;
pub mod goldens;
mod guest;

pub use guest::{definitions, guest, loaded};

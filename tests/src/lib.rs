//! The harness of the tests: guests, built on first use; recorded cases; programs that not every machine has.

pub mod crds;
pub mod go;
pub mod goldens;
mod guest;
pub mod tool;

pub use guest::{definitions, guest, loaded};

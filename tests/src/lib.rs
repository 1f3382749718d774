//! The harness of the tests: guests, built on first use; recorded cases; a control plane; hostile neighbours; programs that not every machine has.

pub mod cluster;
pub mod crds;
pub mod go;
pub mod goldens;
mod guest;
pub mod hostile;
pub mod rules;
pub mod tool;

pub use guest::{definitions, guest, loaded, rebuilt};

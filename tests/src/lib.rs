//! The harness of the tests: guests, built on first use; recorded cases; control planes; hostile
//! neighbours; optional programs.

pub mod cluster;
pub mod crds;
pub mod go;
pub mod goldens;
mod guest;
pub mod helm;
pub mod hostile;
pub mod istio_client;
pub mod language;
pub mod reference;
pub mod registry;
pub mod rules;
pub mod tls;
pub mod tool;

pub use guest::{code_cache, definitions, guest, loaded, objects_in, parts, rebuilt};

//! Modules in OCI registries: references, what is asked of a registry and how its answers are
//! checked, pulled artifacts on disk, and signatures.
//!
//! Everything that a registry says is hostile input: addresses are checked before they are asked,
//! bodies are bounded, and nothing counts as pulled before its digest was computed.

mod address;
pub mod artifact;
mod credentials;
mod error;
mod reference;
mod repository;
pub mod signature;
mod store;
#[cfg(test)]
mod tests;
mod transport;

use std::sync::Arc;

use self::transport::Transport;
pub use self::{
    credentials::{Credentials, DockerConfig, InvalidCredentials},
    error::Error,
    reference::{InvalidReference, Reference},
    repository::{Blob, Document, Repository, Sink},
    store::{Store, Stored, Writer},
    transport::{InvalidOptions, Options, Times},
};
pub use mortise_core::reconcile::ModuleDigest as Digest;

/// The largest module that is read, in bytes. Go guests have 10 to 60 MiB; compiling a module takes
/// some ten times its size of memory.
pub const MAX_MODULE_BYTES: u64 = 64 << 20;

/// The way to all registries. Cheap to clone.
#[derive(Clone)]
pub struct Registries(Arc<Transport>);

// === impl Registries ===

impl Registries {
    /// Prepares requests.
    ///
    /// # Errors
    ///
    /// Fails for certificates or a proxy that cannot be read.
    pub fn build(options: Options) -> Result<Self, InvalidOptions> {
        Ok(Self(Arc::new(Transport::build(options)?)))
    }

    /// Returns the repository of a reference. `pushes`: it is written to.
    pub fn repository(
        &self,
        of: &Reference,
        credentials: Option<Credentials>,
        pushes: bool,
    ) -> Repository {
        Repository::new(&self.0, of, credentials, pushes)
    }
}

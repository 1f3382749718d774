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

pub use self::{
    credentials::{Credentials, DockerConfig, InvalidCredentials},
    error::Error,
    reference::{InvalidReference, Reference, is_registry},
    repository::{Blob, Document, Repository, Sink},
    store::{Room, Store, Stored, Writer},
    transport::{InvalidOptions, Options, Times},
};
pub use mortise_core::reconcile::ModuleDigest as Digest;

use std::sync::Arc;

use self::transport::Transport;

/// The largest module that is read, in bytes. Go guests have 10 to 60 MiB; compiling a module takes
/// some ten times its size of memory.
pub const MAX_MODULE_BYTES: u64 = 64 << 20;

/// Reads a text as each thing that a registry may say in a header or a small answer.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_answer(text: &str) {
    repository::check_challenge(text);
    if let Some(address) = address::Address::parse("https://example.com/v2/") {
        let joined = address.join(text);
        assert!(joined.is_none_or(|joined| !joined.host.contains('@')), "{text}");
    }
    if let Ok(config) = DockerConfig::parse(text.as_bytes())
        && let Ok(reference) = "example.com/a:1".parse()
    {
        drop(config.credentials(&reference));
    }
}

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

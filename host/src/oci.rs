//! Modules in OCI registries: references, requests and the validation of answers, pulled artifacts
//! on disk, and signatures.
//!
//! Every answer of a registry is hostile input: `http` checks addresses before a request, bodies
//! are bounded, and an artifact counts as pulled only after its digest was computed.

pub mod artifact;
mod credentials;
mod error;
mod reference;
mod repository;
pub mod signature;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    credentials::{Credentials, DockerConfig, InvalidCredentials},
    error::Error,
    reference::{InvalidReference, Reference, is_registry},
    repository::{Blob, Document, Repository, Sink},
    store::{Incoming, Keep, Keeps, Room, Store, Stored, Writer},
};
pub use crate::http::{InvalidOptions, Options, Times};
pub use mortise_core::digest::ModuleDigest as Digest;

use std::sync::Arc;

use crate::http::Connector;

/// The largest module that is accepted, in bytes. Go guests have 10 to 60 MiB; compiling a module
/// takes about ten times its size in memory.
pub const MAX_MODULE_BYTES: u64 = 64 << 20;

/// Parses a text as each value that a registry may send in a header or a small answer.
#[cfg(any(test, fuzzing))]
pub(crate) fn check_answer(text: &str) {
    repository::check_headers(text);
    if let Some(address) = crate::http::Address::parse("https://example.com/v2/") {
        let joined = address.join(text);
        assert!(joined.is_none_or(|joined| !joined.host.contains('@')), "{text}");
    }
    if let Ok(config) = DockerConfig::parse(text.as_bytes())
        && let Ok(reference) = "example.com/a:1".parse()
    {
        drop(config.credentials(&reference));
    }
}

/// The client of all registries. Cheap to clone.
#[derive(Clone)]
pub struct Registries {
    connector: Arc<Connector>,
    plain: Arc<[String]>,
}

// === impl Registries ===

impl Registries {
    /// Builds the client.
    ///
    /// # Errors
    ///
    /// Fails for certificates or a proxy address that cannot be parsed.
    pub fn build(options: Options) -> Result<Self, InvalidOptions> {
        Ok(Self { connector: Arc::new(Connector::build(options)?), plain: Arc::default() })
    }

    /// Allows plain HTTP for these registries, `HOST` or `HOST:PORT`.
    #[must_use]
    pub fn with_plain(self, plain: Vec<String>) -> Self {
        Self { plain: plain.into(), ..self }
    }

    /// Returns the repository of a reference. `pushes`: it is written to.
    pub fn repository(
        &self,
        of: &Reference,
        credentials: Option<Credentials>,
        pushes: bool,
    ) -> Repository {
        Repository::new(self.clone(), of, credentials, pushes)
    }

    /// Returns whether plain HTTP is allowed for a registry.
    fn is_plain(&self, registry: &str) -> bool {
        self.plain.iter().any(|plain| plain == registry)
    }
}

//! Calls to systems outside of the cluster: what a processor asks for, what it may, and what is sent.
//!
//! The rules are here and need no network. [`Sending`] lets a call through or refuses it, and what
//! it lets through is sent by an [`Outbound`]: the host's client, or a test's answers.

mod credential;
mod granted;
mod header;
pub mod pauses;
mod sending;
#[cfg(test)]
mod tests;

pub(crate) use granted::Granted;
pub(crate) use sending::Gate;
pub use sending::{Ended, Sending};

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::contract::bounds;
pub use crate::{
    contract::{
        origin::{Origin, Target},
        outbound::{Answer, Call, CallError, Credential, CredentialFault, Method, Scheme},
    },
    reads::record::Made,
};

/// A grant of a Processor: an entry of its `spec.egress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Egress {
    /// The origin, which may have `*` for labels of its host.
    pub origin: String,
    /// The objects that may hold what calls are authenticated with.
    pub credentials: Vec<GrantedCredential>,
    pub rate: Option<Rate>,
    /// The PEM texts of the authorities that certificates are checked with; `None`: the usual ones.
    pub ca_bundle: Option<Arc<str>>,
    /// True if the origin may have addresses that are not public.
    pub private: bool,
    /// `HOST:PORT` to connect to instead of what the origin resolves to.
    pub connect: Option<Arc<str>>,
}

/// Objects of a kind that may hold credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantedCredential {
    pub group: String,
    pub kind: String,
    /// A label selector; empty: all.
    pub labels: String,
}

/// The rate at which calls are sent: so many a second, after so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

/// A call that all rules have let through, as it is sent.
#[derive(Debug)]
pub struct Allowed {
    pub method: Method,
    pub target: Target,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub authorization: Option<Authorization>,
    /// The grant, of which the client obeys address, authorities, rate and connection.
    pub egress: Arc<Egress>,
    /// The time for which nothing is sent after 429 that names none.
    pub pause: Duration,
    pub timeout: Duration,
    /// The Processor, as `namespace/name`.
    pub processor: Arc<str>,
}

/// A header that authenticates a call. `Debug` prints neither its value nor its length.
pub struct Authorization {
    /// The credential's place: pauses are kept by it and the origin of the grant.
    pub credential: Credential,
    /// In lower case.
    pub header: String,
    pub value: zeroize::Zeroizing<String>,
}

/// A client that sends what all rules have let through, never twice.
pub trait Outbound: Send + Sync {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>>;
}

// === impl Call ===

impl Call {
    /// Returns the bytes of the arguments.
    pub fn size(&self) -> usize {
        let Self { method: _, url, headers, body, credential, timeout: _ } = self;
        let credential = credential.as_ref().map_or(0, |Credential { of, at, scheme }| {
            let scheme = match scheme {
                Scheme::Bearer => 0,
                Scheme::Basic(text) | Scheme::Header(text) => text.len(),
            };
            bounds::get_size(of, std::slice::from_ref(at)) + scheme
        });
        url.len() + size_of(headers) + body.as_ref().map_or(0, Vec::len) + credential
    }
}

// === impl Answer ===

impl Answer {
    /// Returns the bytes of headers and body.
    pub fn size(&self) -> usize {
        size_of(&self.headers) + self.body.len()
    }
}

fn size_of(headers: &[(String, String)]) -> usize {
    headers.iter().map(|(name, value)| bounds::ENTRY + name.len() + value.len()).sum()
}

// === impl CallError ===

impl CallError {
    /// Returns the error in one word, for records and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::NotHeld => "not-held",
            Self::Credential(CredentialFault::NoObject) => "credential-no-object",
            Self::Credential(CredentialFault::NoValue) => "credential-no-value",
            Self::Credential(CredentialFault::NotText) => "credential-not-text",
            Self::Paused(_) => "paused",
            Self::NotSent(_) => "not-sent",
            Self::NoAnswer(_) => "no-answer",
            Self::TooLarge => "too-large",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Returns the error with its text cut.
    fn bounded(mut self) -> Self {
        match &mut self {
            Self::Denied(text)
            | Self::NotSent(text)
            | Self::NoAnswer(text)
            | Self::Invalid(text) => bounds::text::cut(text, bounds::CALL_ERROR),
            Self::NotHeld | Self::Credential(_) | Self::Paused(_) | Self::TooLarge => {}
        }
        self
    }
}

// === impl Authorization ===

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { credential, header, value: _ } = self;
        f.debug_struct("Authorization")
            .field("credential", credential)
            .field("header", header)
            .finish_non_exhaustive()
    }
}

//! Calls to systems outside of the cluster: what a processor asks for, what it may, and what is sent.
//!
//! The rules are here and need no network. [`Sending`] lets a call through or refuses it, and what
//! it lets through is sent by an [`Outbound`]: the host's client, or a test's answers.

mod origin;
mod url;

pub use origin::Origin;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::{contract::ObjectRef, reads::View};

/// The method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// A call that a processor asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: Method,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub credential: Option<Credential>,
    /// In milliseconds.
    pub timeout: u64,
}

/// The place of what a call is authenticated with: a path of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    pub of: ObjectRef,
    pub at: String,
    pub scheme: Scheme,
}

/// The way in which a credential is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    Bearer,
    /// The name of the user, whose password the credential is.
    Basic(String),
    /// The name of the header.
    Header(String),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The reason why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    Denied(String),
    NotHeld,
    Credential(CredentialFault),
    /// For so many milliseconds from now.
    Paused(u64),
    NotSent(String),
    NoAnswer(String),
    TooLarge,
    Invalid(String),
}

/// The reason why a credential has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialFault {
    NoObject,
    NoValue,
    NotText,
}

/// What a Processor grants: an entry of its `spec.egress`.
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
    /// The time for which nothing is sent after 429 and 503 that name none.
    pub pause: Duration,
    pub timeout: Duration,
    /// The Processor, as `namespace/name`.
    pub processor: Arc<str>,
}

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// True for `https`.
    pub tls: bool,
    /// A DNS name in lower case, or an IP address without brackets.
    pub host: String,
    pub port: u16,
    /// The path and the query, from the first `/` on.
    pub path_and_query: String,
}

/// A header that authenticates a call. `Debug` prints neither its value nor its length.
pub struct Authorization {
    /// The credential's place: pauses are kept by it.
    pub credential: Credential,
    /// In lower case.
    pub header: String,
    pub value: zeroize::Zeroizing<String>,
}

/// A client that sends what all rules have let through, never twice.
pub trait Outbound: Send + Sync {
    fn send(&self, call: Allowed) -> BoxFuture<'_, Result<Answer, CallError>>;
}

/// The calls of one call of a processor: their rules, their limits and their records.
#[derive(Debug)]
pub struct Sending {
    /// The reason why nothing is sent.
    closed: &'static str,
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

// === impl Sending ===

impl Sending {
    /// Creates the state of a call that sends nothing, for the given reason.
    pub fn closed(reason: &'static str) -> Self {
        Self { closed: reason }
    }

    /// Sends a call, or refuses it.
    #[expect(clippy::unused_async, reason = "a call that is sent is waited for")]
    pub async fn send(&mut self, _view: &mut View, _call: Call) -> Result<Answer, CallError> {
        Err(CallError::Denied(self.closed.to_owned()))
    }
}

impl Default for Sending {
    fn default() -> Self {
        Self::closed("this call of the processor sends nothing")
    }
}

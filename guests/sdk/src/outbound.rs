//! Calls to systems outside of the cluster, over HTTP.
//!
//! The host makes the call: the processor names the object that holds the credential, and never
//! sees its value. The origin and the method must be declared by an
//! [`OutboundRule`](crate::OutboundRule), and granted in `spec.egress` of the Processor. Methods
//! other than GET and HEAD are refused until the object as it is stored holds a finalizer of its
//! reconciler. [`ensure`] creates in the order that follows from this.

mod ensure;

pub use ensure::{Error, ensure};

use std::{fmt, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

#[doc(inline)]
pub use crate::bindings::mortise::host::outbound::{
    Answer, Call, Credential, CredentialFault, Method, Scheme,
};
use crate::{
    Failure, Host, ObjectRef, bindings::mortise::host::outbound as contract, outcome::milliseconds,
};

/// The time for a call that sets none. The host cuts it to what is left of the reconcile's own time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Calls to systems outside of the cluster.
#[derive(Clone, Copy)]
pub struct Outbound<'a>(&'a Host);

/// A call that is not sent yet.
#[must_use = "a call is made by `send`"]
pub struct Prepared<'a> {
    host: &'a Host,
    call: Call,
    /// The reason why the body is no JSON.
    unfit: Option<String>,
}

/// The reason why a call has no answer.
///
/// `?` turns it into a [`Failure`] that runs again when the call may succeed: after
/// [`Paused`](Self::Paused) at the end of the pause; after [`NotHeld`](Self::NotHeld),
/// [`NotSent`](Self::NotSent) and [`NoAnswer`](Self::NoAnswer) with exponential back-off; after the
/// others on a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was sent: the call is not declared, not granted, or not possible now. The text says
    /// which, and what would be accepted.
    Denied(String),
    /// Nothing was sent: the method is neither GET nor HEAD, and the object as it is stored holds no
    /// finalizer of the reconciler.
    NotHeld,
    /// Nothing was sent: the credential has no value. The object runs again when it has.
    Credential(CredentialFault),
    /// Nothing was sent: the other side asked for a pause of so long from now, or the rate of the
    /// grant does.
    Paused(Duration),
    /// Nothing was sent: no address, no connection, no handshake. Safe to repeat.
    NotSent(String),
    /// Something was sent and no whole answer came. It may have been done.
    NoAnswer(String),
    /// The answer is larger than the limit. What was asked for may have been done.
    TooLarge,
    /// Nothing was sent: the URL, a header or the body is malformed. The same call never succeeds.
    Invalid(String),
}

// === impl Host ===

impl Host {
    /// Begins a call to a system outside of the cluster.
    pub fn outbound(&self) -> Outbound<'_> {
        Outbound(self)
    }
}

// === impl Outbound ===

impl<'a> Outbound<'a> {
    /// Prepares a GET of a whole URL: `https://api.example.com/v1/items?size=10`.
    pub fn get(self, url: impl Into<String>) -> Prepared<'a> {
        self.call(Method::Get, url)
    }

    /// Prepares a POST.
    pub fn post(self, url: impl Into<String>) -> Prepared<'a> {
        self.call(Method::Post, url)
    }

    /// Prepares a PUT.
    pub fn put(self, url: impl Into<String>) -> Prepared<'a> {
        self.call(Method::Put, url)
    }

    /// Prepares a PATCH.
    pub fn patch(self, url: impl Into<String>) -> Prepared<'a> {
        self.call(Method::Patch, url)
    }

    /// Prepares a DELETE.
    pub fn delete(self, url: impl Into<String>) -> Prepared<'a> {
        self.call(Method::Delete, url)
    }

    /// Prepares a call of any method.
    pub fn call(self, method: Method, url: impl Into<String>) -> Prepared<'a> {
        let call = Call {
            method,
            url: url.into(),
            headers: Vec::new(),
            body: None,
            credential: None,
            timeout: milliseconds(TIMEOUT),
        };
        Prepared { host: self.0, call, unfit: None }
    }
}

// === impl Prepared ===

impl Prepared<'_> {
    /// Adds a header. The host sets those of the connection, `host` and `content-length` itself, and
    /// refuses them here.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.call.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.call.body = Some(body.into());
        self
    }

    /// Sets a body of JSON, and its content type.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body(body).header("content-type", "application/json"),
            Err(error) => {
                self.unfit = Some(format!("the body is no JSON: {error}"));
                self
            }
        }
    }

    /// Sets what the call is authenticated with.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.call.credential = Some(credential);
        self
    }

    /// Sets the time for the whole call. The default is 10 s; a call never takes longer than what is
    /// left of the reconcile's own time.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = milliseconds(timeout);
        self
    }

    /// Makes the call, and waits for the answer, whatever its status is. The host never repeats it.
    pub fn send(self) -> Result<Answer, CallError> {
        match self.unfit {
            Some(unfit) => Err(CallError::Invalid(unfit)),
            None => Ok(self.host.source().send(&self.call)?),
        }
    }
}

// === impl Method ===

impl Method {
    /// Returns the name of the method, as HTTP writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

// === impl Credential ===

impl Credential {
    /// Sends the text at a path of an object as a bearer token: `Credential::bearer(&secret,
    /// "data.token")`. Of a Secret's `data`, the decoded text is sent.
    pub fn bearer(of: &ObjectRef, at: impl Into<String>) -> Self {
        Self { of: of.clone(), at: at.into(), scheme: Scheme::Bearer }
    }

    /// Sends the text as the password of a user (HTTP basic authentication).
    pub fn basic(of: &ObjectRef, at: impl Into<String>, user: impl Into<String>) -> Self {
        Self { of: of.clone(), at: at.into(), scheme: Scheme::Basic(user.into()) }
    }

    /// Sends the text in a header of this name.
    pub fn header(of: &ObjectRef, at: impl Into<String>, name: impl Into<String>) -> Self {
        Self { of: of.clone(), at: at.into(), scheme: Scheme::Header(name.into()) }
    }
}

// === impl Answer ===

impl Answer {
    /// Returns whether the status is one of 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the first value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(held, _)| held == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the body. The error may quote the body: see [`Error`] for one that does not.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

// === impl CallError ===

impl CallError {
    /// Returns whether what was asked for may have been done.
    pub fn may_be_done(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::TooLarge)
    }
}

impl From<contract::CallError> for CallError {
    fn from(error: contract::CallError) -> Self {
        match error {
            contract::CallError::Denied(why) => Self::Denied(why),
            contract::CallError::NotHeld => Self::NotHeld,
            contract::CallError::Credential(fault) => Self::Credential(fault),
            contract::CallError::Paused(pause) => Self::Paused(Duration::from_millis(pause)),
            contract::CallError::NotSent(why) => Self::NotSent(why),
            contract::CallError::NoAnswer(why) => Self::NoAnswer(why),
            contract::CallError::TooLarge => Self::TooLarge,
            contract::CallError::Invalid(why) => Self::Invalid(why),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why) => write!(f, "the call is denied: {why}"),
            Self::NotHeld => {
                f.write_str("nothing was sent: the stored object holds no finalizer yet")
            }
            Self::Credential(fault) => {
                let fault = match fault {
                    CredentialFault::NoObject => "there is no object that holds the credential",
                    CredentialFault::NoValue => "the credential is empty, or not in its object",
                    CredentialFault::NotText => "the credential is not a text for a header",
                };
                write!(f, "nothing was sent: {fault}")
            }
            Self::Paused(pause) => {
                write!(f, "nothing was sent: calls are paused for {pause:?}")
            }
            Self::NotSent(why) => write!(f, "nothing was sent: {why}"),
            Self::NoAnswer(why) => write!(f, "no answer to what was sent: {why}"),
            Self::TooLarge => f.write_str("the answer is too large"),
            Self::Invalid(why) => write!(f, "the call is not valid: {why}"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            CallError::Paused(pause) => failure.retry_after(pause),
            CallError::NotHeld | CallError::NotSent(_) | CallError::NoAnswer(_) => failure,
            CallError::Denied(_)
            | CallError::Credential(_)
            | CallError::TooLarge
            | CallError::Invalid(_) => failure.retry_on_change(),
        }
    }
}

#[cfg(test)]
mod tests;

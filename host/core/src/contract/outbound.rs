//! The types of wit/outbound.wit: calls to systems outside of the cluster, and their answers.

use serde::{Serialize, Serializer};

use super::{Methods, ObjectRef};

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

// === impl Method ===

impl Method {
    /// Returns the name of the method in HTTP.
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

    /// Returns whether the method changes nothing on the other side.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

impl From<Method> for Methods {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Head => Self::HEAD,
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

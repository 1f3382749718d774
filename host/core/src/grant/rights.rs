//! The rights of a processor's account: questions to the API server, and their answers.
//!
//! Core only uses the answers. The host asks the API server, behind the trait [`Rights`].

mod account;
mod denial;
mod question;

pub use account::Account;
pub use denial::{Denial, Lack};
pub use question::Question;

use std::fmt::Debug;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    contract::{Kind, ObjectRef},
    store::Scope,
};

/// The verbs that an account needs to get objects from the store; [`LIST`]: to list them.
pub const GET: [&str; 3] = ["get", "list", "watch"];
pub const LIST: [&str; 2] = ["list", "watch"];

/// The rights of one processor's account.
pub trait Rights: Debug + Send + Sync {
    /// Returns the account that the rights belong to.
    fn account(&self) -> &Account;

    /// Returns how a read may be answered, if that is known without a request.
    fn known(&self, kind: &Kind, place: ReadTarget<'_>) -> Option<Permit>;

    /// Returns how a read may be answered; asks the API server if necessary. Fails with the reason
    /// why there is no answer.
    fn permit<'a>(
        &'a self,
        kind: &'a Kind,
        place: ReadTarget<'a>,
    ) -> BoxFuture<'a, Result<Permit, String>>;

    /// Gets an object live from the API server, as the account; `None` if it does not exist.
    fn get<'a>(&'a self, of: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Value>, NotRead>>;

    /// Returns whether a scope may be watched, which includes a list. `None` if that is not known.
    fn may_watch(&self, kind: &Kind, scope: &Scope) -> Option<bool>;

    /// Records a right that the API server refused, so that it is checked again with the others.
    fn relies_on(&self, refused: &Question);

    /// Returns the digest of the answers to the questions that the description needs; `None` before
    /// the first answers.
    fn digest(&self) -> Option<String>;
}

/// The reason why an object was not read live.
#[derive(Debug)]
pub enum NotRead {
    /// The account lacks this right.
    Denied(Question),
    /// The cluster does not serve the kind.
    Unserved,
    /// The API server did not answer, or refused for another reason.
    Failed(String),
}

/// The way in which a read may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Answered from the store.
    Stored,
    /// Answered by a request as the account: the account may get the object, but not list or watch
    /// it.
    Live,
    /// Refused: the account lacks this right.
    Denied(Question),
    /// The cluster does not serve the kind.
    Unserved,
    /// Not answered for now: the cluster is not connected, for this reason. The run waits for the
    /// kind, whose watch connects.
    Unreachable(String),
}

/// The target of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadTarget<'a> {
    /// The namespace; `None`: all namespaces, or a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The object's name; `None`: every object.
    pub name: Option<&'a str>,
    /// The type of the read.
    pub read: Read,
}

/// The type of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A get of one object; answered live if the account may not list or watch the object.
    Get,
    /// A list of a selection.
    List,
    /// A get of the reconciled object of a call, which must be watched.
    Reconciled,
}

// === impl ReadTarget ===

impl<'a> ReadTarget<'a> {
    pub fn object(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace, name: Some(name), read: Read::Get }
    }

    pub fn list(namespace: Option<&'a str>, name: Option<&'a str>) -> Self {
        Self { namespace, name, read: Read::List }
    }

    /// Returns the read of the object that a call is about.
    pub fn reconciled(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace, name: Some(name), read: Read::Reconciled }
    }

    pub fn verbs(&self) -> &'static [&'static str] {
        if self.read == Read::List { &LIST } else { &GET }
    }
}

//! The webhooks of a cluster: conversion between the versions of custom kinds, and admission.
//!
//! Kubernetes asks servers that objects of the cluster name. This API asks one value instead
//! ([`EmbeddedApi::set_webhooks`](crate::EmbeddedApi::set_webhooks)), at the border of the storage:
//! an object is stored in the storage version of its kind, whatever version it was written in. It
//! asks for the kinds that the value converts, whatever their definitions say of conversion.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;
use serde_json::Value;

use crate::Failure;

/// The webhooks of a cluster.
///
/// The methods are called while the state of the API is locked: they must not send a request to
/// the API, or wait for somebody who does.
pub trait Webhooks: Send + Sync {
    /// Returns whether the objects of a kind are converted between their versions.
    fn converts(&self, group: &str, kind: &str) -> bool;

    /// Returns the objects, which have one kind, in the version `to`, an `apiVersion`: as many, in
    /// the same order, with the metadata that they had except for labels and annotations.
    ///
    /// # Errors
    ///
    /// Fails as a whole if one object cannot be converted.
    fn convert(&self, kind: &str, to: &str, objects: Vec<Value>) -> Result<Vec<Value>, String>;

    /// Looks at a write or a deletion before it is carried out.
    ///
    /// # Errors
    ///
    /// Fails if the request is refused.
    fn admit(&self, review: &Review<'_>) -> Result<Admitted, Refused>;
}

/// A request that is about to be carried out, of any kind.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version of the request.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The object as it is to be stored; `None`: a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is stored; `None`: a creation.
    pub old: Option<&'a Value>,
    /// The name of the user who asks.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// True if nothing is stored.
    pub dry_run: bool,
}

/// The fate of a request that is carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Admitted {
    /// The object to store; `None`: as it was asked for.
    pub object: Option<Value>,
    /// Warnings for whoever asks.
    pub warnings: Vec<String>,
}

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A hook said no.
    #[error("admission webhook {hook:?} denied the request: {message}")]
    Denied {
        /// The name of the hook.
        hook: String,
        /// The HTTP status.
        code: u16,
        /// The message of the hook.
        message: String,
    },

    /// A hook that must answer did not.
    #[error("failed calling webhook {hook:?}: {message}")]
    Failed {
        /// The name of the hook.
        hook: String,
        /// The problem.
        message: String,
    },
}

/// The webhooks that are in use, shared by the resources of a cluster.
#[derive(Default)]
pub(crate) struct InUse(RwLock<Option<Arc<dyn Webhooks>>>);

// === impl Refused ===

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match &refused {
            Refused::Denied { code, .. } => Self::refused(*code, &refused.to_string()),
            Refused::Failed { .. } => Self::internal(&refused.to_string()),
        }
    }
}

// === impl InUse ===

impl InUse {
    pub(crate) fn set(&self, webhooks: Option<Arc<dyn Webhooks>>) {
        *self.0.write() = webhooks;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Webhooks>> {
        self.0.read().clone()
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InUse").field("any", &self.0.read().is_some()).finish()
    }
}

#[cfg(test)]
mod tests;

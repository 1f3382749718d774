//! Permission claims: which objects of built-in kinds both sides share, and who owns them.

mod owner;
mod path;
mod selector;

pub(crate) use owner::{Owner, decide};
pub(crate) use path::to_path;
pub(crate) use selector::{Subject, is_valid, labels_text, matches_labels, named, refers};

use mortise_sdk::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most claims of an export that are honoured.
pub(crate) const MAX_CLAIMS: usize = 16;

/// A resource that can be claimed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Claimable {
    /// Objects of kind `ConfigMap`.
    ConfigMaps,
    /// Objects of kind `Secret`, but for those with tokens of service accounts or for bootstrapping.
    Secrets,
    /// Objects of kind `ServiceAccount`.
    ServiceAccounts,
}

impl Claimable {
    /// The resources that can be claimed.
    pub const ALL: [Self; 3] = [Self::ConfigMaps, Self::Secrets, Self::ServiceAccounts];

    /// Returns the resource in the plural.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMaps => "configmaps",
            Self::Secrets => "secrets",
            Self::ServiceAccounts => "serviceaccounts",
        }
    }

    /// Returns the kind.
    pub fn kind(self) -> Kind {
        Kind::new(
            "",
            "v1",
            match self {
                Self::ConfigMaps => "ConfigMap",
                Self::Secrets => "Secret",
                Self::ServiceAccounts => "ServiceAccount",
            },
        )
    }

    /// Returns the resource that a claim names.
    pub(crate) fn of(group: &str, resource: &str) -> Option<Self> {
        let named = |claimable: &Self| group.is_empty() && claimable.resource() == resource;
        Self::ALL.into_iter().find(named)
    }
}

//! What makes a Rust type a Kubernetes object.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Kind;

/// A Rust type for objects, or parts of objects, of one kind.
///
/// It need not hold apiVersion and kind: they are known from the type, and added to what is written.
pub trait Object {
    /// The API group; "" for the core group.
    const GROUP: &'static str;
    /// The version that is read and written.
    const VERSION: &'static str;
    /// The kind.
    const KIND: &'static str;

    /// The three as the contract has them.
    fn kind() -> Kind {
        Kind::new(Self::GROUP, Self::VERSION, Self::KIND)
    }
}

/// The metadata that a processor works with. What is empty is not written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name within its namespace.
    pub name: String,
    /// None for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Given by the API server. In a manifest: a precondition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Given by the API server. In a manifest: a precondition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Counts the changes of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// When its deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// By what it is selected.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Notes of all kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What must be done before it is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// With which objects it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

impl Metadata {
    /// The metadata of an object of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// In this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Owned by this object: it goes with it.
    #[must_use]
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.owner_references.push(owner);
        self
    }

    /// Whether its deletion was asked for.
    pub fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// An owner of an object, which takes the object along when it is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's group and version.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid, without which the object is taken for an orphan and deleted.
    pub uid: String,
    /// Whether the owner manages it; at most one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner waits for it when it is deleted in the foreground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// The managing owner of a type, by its metadata as it was read.
    pub fn controller<T: Object>(metadata: &Metadata) -> Self {
        Self {
            api_version: T::kind().api_version(),
            kind: T::KIND.to_owned(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// `True`, `False` or `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// It cannot be told.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(is_so: bool) -> Self {
        if is_so { Self::True } else { Self::False }
    }
}

/// One condition of a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said something about.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// Whether it is so.
    pub status: ConditionStatus,
    /// Why, in one word in camel case.
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// The generation that this was said of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Since when the status is what it is.
    #[serde(default)]
    pub last_transition_time: String,
}

impl Condition {
    /// A condition whose time is not known yet; [`crate::status::set_condition`] gives it one.
    pub fn new(
        condition_type: impl Into<String>,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition_type: condition_type.into(),
            status,
            reason: reason.into(),
            message: message.into(),
            observed_generation: None,
            last_transition_time: String::new(),
        }
    }
}

/// JSON text of an object whose type holds neither apiVersion nor kind.
pub(crate) fn to_json(kind: &Kind, object: &impl Serialize) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed<'a, T> {
        api_version: String,
        kind: &'a str,
        #[serde(flatten)]
        object: &'a T,
    }
    serde_json::to_string(&Typed { api_version: kind.api_version(), kind: &kind.kind, object })
        .expect("the keys of an object are strings")
}

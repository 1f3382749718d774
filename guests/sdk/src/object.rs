//! The trait and the metadata that make a Rust type a Kubernetes object.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Kind;

/// A Rust type for objects, or parts of objects, of one kind.
///
/// The type needs no fields for apiVersion and kind: both are known from these constants, and the
/// SDK adds them to manifests.
pub trait Object {
    /// The API group; "" for the core group.
    const GROUP: &'static str;
    /// The version of the group in which objects are read and written.
    const VERSION: &'static str;
    /// The kind in the singular, such as `Deployment`.
    const KIND: &'static str;

    /// Returns group, version and kind as a record of the contract.
    fn kind() -> Kind {
        Kind::new(Self::GROUP, Self::VERSION, Self::KIND)
    }
}

/// The metadata of an object, as far as processors use it.
///
/// When the object is written, fields other than the name are left out if they are empty or `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// The name, unique for the kind within its namespace.
    pub name: String,
    /// The namespace; `None` for cluster-scoped kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The uid, which the API server sets. In a manifest it is a precondition: the write fails if
    /// the object has another uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The resource version, which the API server sets. In a manifest it is a precondition: the
    /// write fails if the object has another resource version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The number that the API server increases with each change of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The time of creation, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// The time set by the API server when the deletion of the object is requested, in RFC 3339;
    /// `None` if no deletion was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// The labels, by which selectors find the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations: notes of any kind, which label selectors do not see.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The finalizers: as long as there is one, a deleted object stays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The owners of the object: Kubernetes deletes the object along with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

impl Metadata {
    /// Creates the metadata of an object with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Adds a label, or replaces its value.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds an owner: Kubernetes deletes the object when it has deleted the owner.
    #[must_use]
    pub fn owned_by(mut self, owner: OwnerReference) -> Self {
        self.owner_references.push(owner);
        self
    }

    /// Returns whether the deletion of the object was requested.
    pub fn is_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// A reference to an owner of an object. Kubernetes deletes the object along with its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's group and version, such as `apps/v1`.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid. Without it, Kubernetes takes the object for an orphan and deletes it.
    pub uid: String,
    /// True if the owner manages the object; at most one owner does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// True if a foreground deletion of the owner waits until the object is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Creates a reference to an owner of type `T` that manages the object, from the owner's
    /// metadata as it was read. A foreground deletion of the owner waits for the object.
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
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The state cannot be determined.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(is_so: bool) -> Self {
        if is_so { Self::True } else { Self::False }
    }
}

/// A condition of a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition, in camel case, such as `Ready`.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// The state: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// The reason, in one word in camel case.
    pub reason: String,
    /// The message for people.
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
    /// Creates a condition without a transition time; [`crate::status::set_condition`] sets the
    /// time.
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

/// Returns the JSON text of an object whose type holds neither apiVersion nor kind.
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

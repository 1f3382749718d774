//! The served kinds: every group, version and resource, built in or defined by a CRD.
//!
//! A [`Resource`] answers all that depends on the kind; it holds no objects. The [`Registry`] finds
//! resources by a path or by the type of an object. Kinds without a schema can be served, too
//! ([`Registry::add_untyped`]).

mod check;
mod convert;
mod custom;
mod described;
mod field;
mod registry;
mod table;
mod version;
mod write;

pub(crate) use custom::{Column, CustomVersion};
pub(crate) use described::is_established;
pub(crate) use registry::{GroupVersions, Registry};
pub(crate) use version::by_priority;
pub(crate) use write::Decoded;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{builtin::address::Addresses, schema::Schema, webhooks::InUse};

/// A resource in one version, as a path names it: `/apis/<group>/<version>/…/<plural>`.
#[derive(Debug)]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The group under which objects are stored: differs from `group` only for `events.k8s.io`,
    /// whose events are stored in the core group.
    pub(crate) storage_group: String,
    /// The version in which objects are stored.
    pub(crate) storage_version: String,
    pub(crate) verbs: &'static [&'static str],
    /// The subresources, in the order of discovery.
    pub(crate) subresources: Vec<Subresource>,
    pub(crate) scale: Option<Scale>,
    /// The types of the fields, for server-side apply and patches.
    pub(crate) schema: Schema,
    pub(crate) form: Form,
    /// The addresses in use in the cluster, shared by its resources.
    pub(crate) addresses: Arc<Addresses>,
    /// The webhooks of the cluster, shared by its resources.
    pub(crate) webhooks: Arc<InUse>,
}

/// The source of a resource's description.
#[derive(Debug)]
pub(crate) enum Form {
    /// The definitions of Kubernetes: holds the name of the definition.
    BuiltIn(&'static str),
    /// A CRD.
    Custom(Arc<CustomVersion>),
    /// No description: every field is kept unchanged.
    Untyped,
}

/// A subresource: a path below an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The group and version of the objects that are sent and answered, if they differ from those
    /// of the resource.
    pub(crate) group_version: Option<(String, String)>,
    pub(crate) verbs: &'static [&'static str],
}

/// The places of a scale's parts in an object: keys from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: ScaleSelector,
}

/// The source of a scale's selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScaleSelector {
    /// The scale has no selector.
    None,
    /// The text at these keys.
    Text(Vec<String>),
    /// The label selector `spec.selector`, written as a text.
    Labels,
}

/// The treatment of fields that a schema does not know (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Unknown fields are dropped.
    Ignore,
    /// Unknown fields are dropped, with a warning each.
    #[default]
    Warn,
    /// Unknown fields are refused.
    Strict,
}

// === impl Resource ===

impl Resource {
    /// Returns the `apiVersion` of objects: `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Returns the group and the plural under which objects are stored: the same for all versions.
    pub(crate) fn storage_key(&self) -> (&str, &str) {
        (&self.storage_group, &self.plural)
    }

    /// Returns the `apiVersion` of stored objects.
    pub(crate) fn storage_api_version(&self) -> String {
        api_version(&self.storage_group, &self.storage_version)
    }

    /// Returns whether objects are stored at all: reviews are only answered.
    pub(crate) fn is_stored(&self) -> bool {
        self.verbs.contains(&"get")
    }

    pub(crate) fn is_custom(&self) -> bool {
        !matches!(self.form, Form::BuiltIn(_))
    }

    /// Returns whether the objects are namespaces.
    pub(crate) fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns whether the status is written only through its own path.
    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// Returns the `apiVersion` of a group and version: `v1`, `apps/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

//! Permission claims: objects of built-in kinds that both sides share.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// A claim on objects of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["resource", "selector"]))]
pub struct PermissionClaim {
    /// The API group; empty for the core group.
    #[schemars(extend("pattern" = schema::GROUP_PATTERN))]
    pub group: String,
    /// The resource in the plural.
    #[schemars(extend("pattern" = schema::RESOURCE_PATTERN))]
    pub resource: String,
    /// The objects: those that any of the selectors takes.
    pub selector: Selector,
}

/// Selectors of claimed objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Takes objects by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Takes objects by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_resources: Vec<Named>,
    /// Takes objects to which others refer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

/// A label selector of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// The labels that an object must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<Expression>,
}

/// A requirement of a label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["key", "operator"]))]
pub struct Expression {
    /// The key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// An object by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct Named {
    /// The name.
    pub name: String,
    /// The namespace; empty: any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Objects that refer to claimed ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["jsonPath", "resource"]))]
pub struct Reference {
    /// The API group of the referring objects.
    #[schemars(extend("pattern" = schema::GROUP_PATTERN))]
    pub group: String,
    /// Their resource in the plural.
    #[schemars(extend("pattern" = schema::RESOURCE_PATTERN))]
    pub resource: String,
    /// Their versions; empty: those of the export.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// The places of the references.
    pub json_path: JsonPath,
}

/// The places of references in an object, in gjson's dot syntax: `spec.secretRefs.#.name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JsonPath {
    /// The place of the name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The place of the namespace; empty: no place says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

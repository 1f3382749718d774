//! Rules of scheduling, as Kubernetes' core/v1 declares them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{null_is_default, schema};

/// The rules of scheduling of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Affinity {
    /// Rules about nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
    /// Rules about Pods to be near to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_affinity: Option<PodAffinity>,
    /// Rules about Pods to be away from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Rules about nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeAffinity {
    /// Rules that must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
    /// Rules that should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(transform = schema::atomic)]
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// A selector of nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["nodeSelectorTerms"], "x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelector {
    /// The terms, one of which must hold.
    #[schemars(transform = schema::atomic)]
    pub node_selector_terms: Option<Vec<NodeSelectorTerm>>,
}

/// Requirements that a node must meet together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub match_expressions: Vec<Requirement>,
    /// Requirements on fields.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub match_fields: Vec<Requirement>,
}

/// A requirement on a value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["key", "operator"]))]
pub struct Requirement {
    /// The key of the value.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// The relation between the value and `values`.
    #[serde(deserialize_with = "null_is_default")]
    pub operator: String,
    /// The values to compare with.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub values: Vec<String>,
}

/// A rule about nodes that should hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["preference", "weight"]))]
pub struct PreferredSchedulingTerm {
    /// The weight of the rule.
    #[schemars(transform = schema::int32)]
    pub weight: i64,
    /// The nodes that are preferred.
    #[serde(deserialize_with = "null_is_default")]
    pub preference: NodeSelectorTerm,
}

/// Rules about other Pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PodAffinity {
    /// Rules that must hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(transform = schema::atomic)]
    pub required: Vec<PodAffinityTerm>,
    /// Rules that should hold.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(transform = schema::atomic)]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// A rule about other Pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["topologyKey"]))]
pub struct PodAffinityTerm {
    /// The Pods that are meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// The namespaces of these Pods.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub namespaces: Vec<String>,
    /// The label of nodes that says what near is.
    #[serde(deserialize_with = "null_is_default")]
    pub topology_key: String,
    /// The namespaces of these Pods, by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels in which these Pods must be equal to the Pod.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub match_label_keys: Vec<String>,
    /// Labels in which these Pods must differ from the Pod.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub mismatch_label_keys: Vec<String>,
}

/// A rule about other Pods that should hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["podAffinityTerm", "weight"]))]
pub struct WeightedPodAffinityTerm {
    /// The weight of the rule.
    #[schemars(transform = schema::int32)]
    pub weight: i64,
    /// The rule.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_affinity_term: PodAffinityTerm,
}

/// A selector of objects by their labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic)]
    pub match_expressions: Vec<Requirement>,
}

//! The kinds in which a provider offers resources.

use mortise_sdk::object::Metadata;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Conditions, Empty, PermissionClaim, schema, schema::Free};

/// Offers resources to one consumer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct Export {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The resources.
    pub spec: ExportSpec,
    /// The state in detail.
    pub status: ExportStatus,
}

/// The status of an [`Export`].
pub type ExportStatus = Conditions;

/// The resources of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["informerScope", "isolation", "resources"]))]
pub struct ExportSpec {
    /// The resources, each with a `BoundSchema` of its name.
    #[schemars(extend("minItems" = 1), transform = schema::resources_immutable)]
    pub resources: Vec<Resource>,
    /// Objects of built-in kinds that both sides share.
    #[schemars(transform = schema::claims_immutable)]
    pub permission_claims: Vec<PermissionClaim>,
    /// The scope of the consumer's watches: `Cluster`, or `Namespaced` for single namespaces.
    #[schemars(extend("enum" = ["Cluster", "Namespaced"]), transform = schema::scope_immutable)]
    pub informer_scope: String,
    /// The former name of `isolation`.
    #[schemars(
        extend("enum" = ["Prefixed", "Namespaced", "None"]),
        transform = schema::deprecated_isolation_immutable
    )]
    pub cluster_scoped_isolation: String,
    /// The way in which cluster-scoped objects of several consumers are kept apart.
    #[schemars(
        extend("enum" = ["Prefixed", "Namespaced", "None"]),
        transform = schema::isolation_immutable
    )]
    pub isolation: String,
}

/// A resource of an API group, with versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["resource"]))]
pub struct Resource {
    /// The API group; empty for the core group.
    #[schemars(extend("pattern" = schema::GROUP_PATTERN))]
    pub group: String,
    /// The resource in the plural.
    #[schemars(extend("pattern" = schema::RESOURCE_PATTERN))]
    pub resource: String,
    /// The versions.
    pub versions: Vec<String>,
}

impl Resource {
    /// Returns the name of the `BoundSchema`, which is the name of the CRD.
    pub fn schema_name(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group.as_str() };
        format!("{}.{group}", self.resource)
    }
}

/// Asks a provider for an export.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct ExportRequest {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The resources that are asked for.
    pub spec: ExportRequestSpec,
    /// The state of the request.
    pub status: ExportRequestStatus,
}

/// The resources that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["resources"]))]
pub struct ExportRequestSpec {
    /// Whatever the provider wants to know.
    #[schemars(transform = schema::parameters_immutable)]
    pub parameters: Free,
    /// The resources.
    #[schemars(extend("minItems" = 1), transform = schema::resources_immutable)]
    pub resources: Vec<Resource>,
    /// Objects of built-in kinds that both sides share.
    #[schemars(transform = schema::claims_immutable)]
    pub permission_claims: Vec<PermissionClaim>,
    /// Namespaces that shall be there from the beginning.
    #[schemars(transform = schema::namespaces_immutable)]
    pub namespaces: Vec<NamespaceName>,
    /// The policy for the schemas when the provider changes its own.
    #[schemars(
        extend("enum" = ["Never", "Always"], "default" = "Never"),
        transform = schema::policy_immutable
    )]
    pub schema_update_policy: String,
}

/// The name of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct NamespaceName {
    /// The name.
    pub name: String,
}

/// The state of a request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExportRequestStatus {
    /// The phase of the request.
    #[schemars(extend("enum" = ["Pending", "Failed", "Succeeded"], "default" = "Pending"))]
    pub phase: String,
    /// The reason why the request has failed.
    pub terminal_message: String,
    /// The state in detail.
    pub conditions: Vec<Condition>,
}

/// The definition of one resource, as the provider wants it at the consumer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BoundSchema {
    /// Standard object's metadata.
    #[schemars(skip)]
    pub metadata: Metadata,
    /// The definition.
    pub spec: BoundSchemaSpec,
    /// The state of the CRD at the consumer.
    pub status: BoundSchemaStatus,
}

/// A definition, much like that of a CRD.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["group", "informerScope", "names", "scope", "versions"]))]
pub struct BoundSchemaSpec {
    /// The scope of the consumer's watches: `Cluster`, or `Namespaced` for single namespaces.
    #[schemars(extend("allOf" = [{"enum": ["Cluster", "Namespaced"]}, {"enum": ["Cluster", "Namespaced"]}]))]
    pub informer_scope: String,
    /// The API group.
    pub group: String,
    /// The names of the resource.
    pub names: Names,
    /// The scope at the consumer: `Cluster` or `Namespaced`.
    #[schemars(extend("enum" = ["Cluster", "Namespaced"]))]
    pub scope: String,
    /// The versions.
    #[schemars(extend(
        "minItems" = 1,
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub versions: Vec<Version>,
    /// The conversion between versions.
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "Webhook must be specified if strategy=Webhook",
        "rule": "(self.strategy == 'None' && !has(self.webhook))  || (self.strategy == 'Webhook' && has(self.webhook))",
    }]))]
    pub conversion: Option<Conversion>,
}

/// The names of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["kind", "plural"]))]
pub struct Names {
    /// The resource in the plural.
    pub plural: String,
    /// The resource in the singular.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub singular: String,
    /// Short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub short_names: Vec<String>,
    /// The kind.
    pub kind: String,
    /// The kind of lists.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub list_kind: String,
    /// Names under which several kinds are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub categories: Vec<String>,
}

/// A version of a resource.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "schema", "served", "storage"]))]
pub struct Version {
    /// The name of the version.
    #[schemars(extend("minLength" = 1, "pattern" = "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$"))]
    pub name: String,
    /// True if the version is served.
    pub served: bool,
    /// True if objects are stored in this version.
    pub storage: bool,
    /// True if users of the version are warned.
    pub deprecated: bool,
    /// The warning.
    pub deprecation_warning: Option<String>,
    /// The schema of objects, as such or under `openAPIV3Schema`.
    #[schemars(with = "Free", extend("x-kubernetes-map-type" = "atomic"))]
    pub schema: Value,
    /// The subresources.
    pub subresources: Option<Subresources>,
    /// The columns that kubectl prints.
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub additional_printer_columns: Vec<Column>,
}

impl Default for Version {
    fn default() -> Self {
        Self {
            name: String::new(),
            served: true,
            storage: false,
            deprecated: false,
            deprecation_warning: None,
            schema: Value::Null,
            subresources: None,
            additional_printer_columns: Vec::new(),
        }
    }
}

/// The subresources of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Subresources {
    /// There if objects have a status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Empty>,
    /// There if objects can be scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
}

/// The fields behind the subresource `scale`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["specReplicasPath", "statusReplicasPath"]))]
pub struct Scale {
    /// The path of the desired number.
    pub spec_replicas_path: String,
    /// The path of the actual number.
    pub status_replicas_path: String,
    /// The path of the label selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector_path: Option<String>,
}

/// A column that kubectl prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["jsonPath", "name", "type"]))]
pub struct Column {
    /// The heading.
    pub name: String,
    /// The type of the value.
    #[serde(rename = "type")]
    pub column_type: String,
    /// The format of the value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// The description for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The importance; above 0: printed with `-o wide` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The path of the value.
    pub json_path: String,
}

/// The conversion between the versions of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Conversion {
    /// `None` or `Webhook`.
    #[schemars(extend("enum" = ["None", "Webhook"]))]
    pub strategy: String,
    /// The webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// A conversion webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Webhook {
    /// The webhook's address.
    pub client_config: Option<ClientConfig>,
    /// The versions of the review that the webhook takes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conversion_review_versions: Vec<String>,
}

/// The address of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientConfig {
    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub url: Option<String>,
    /// The authorities of its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

/// The state of a CRD at the consumer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct BoundSchemaStatus {
    /// The names that the consumer's API server has accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_names: Option<Names>,
    /// The versions in which objects were ever stored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stored_versions: Vec<String>,
    /// The conditions of the CRD, and their summary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instantiations: Option<isize>,
}

//! Parts of the schemas that the types cannot say.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};

/// The pattern of an API group, which may be empty.
pub(super) const GROUP_PATTERN: &str =
    r"^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$";
/// The pattern of a resource in the plural.
pub(super) const RESOURCE_PATTERN: &str = "^[a-z][-a-z0-9]*[a-z0-9]$";

/// A JSON object with any fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Free(pub Value);

impl JsonSchema for Free {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Free".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}

/// Adds a rule that forbids changes.
fn immutable(schema: &mut Schema, message: &str) {
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        json!([{"message": message, "rule": "self == oldSelf"}]),
    );
}

macro_rules! immutable {
    ($($name:ident: $message:literal),* $(,)?) => {
        $(pub(super) fn $name(schema: &mut Schema) {
            immutable(schema, $message);
        })*
    };
}

immutable! {
    secret_immutable: "kubeconfigSecretRef is immutable",
    resources_immutable: "resources are immutable",
    claims_immutable: "permissionClaims are immutable",
    scope_immutable: "informerScope is immutable",
    isolation_immutable: "isolation is immutable",
    deprecated_isolation_immutable: "clusterScopedIsolation is immutable",
    parameters_immutable: "parameters are immutable",
    namespaces_immutable: "namespaces are immutable",
    policy_immutable: "schemaUpdatePolicy is immutable",
}

//! The `CustomResourceDefinition` of the APIRule.

use mortise_sdk::{
    Object,
    crd::{Column, Definition, object_schema},
};
use serde_json::{Value, json};

use super::ApiRule;

/// Returns the definition. Versions v2 and v2alpha1 share one schema, except that v2 requires a
/// spec, and need no conversion.
pub fn definition() -> Value {
    let stored = object_schema::<ApiRule>();
    let mut newest = stored.clone();
    if let Some(newest) = newest.as_object_mut() {
        newest.insert("required".to_owned(), json!(["spec"]));
    }
    let columns = [
        Column { name: "Status", column_type: "string", json_path: ".status.state" },
        Column { name: "Hosts", column_type: "string", json_path: ".spec.hosts" },
    ];
    Definition::new(&ApiRule::kind(), "apirules")
        .category("kyma-api-gateway")
        .version("v2", false, &newest, &columns)
        .version("v2alpha1", true, &stored, &columns)
        .conversion(json!({"strategy": "None"}))
        .build()
}

//! The `CustomResourceDefinition` of the Istio resource.

use mortise_sdk::{
    Object,
    crd::{Column, Definition, object_schema},
};
use serde_json::Value;

use super::Istio;

/// Returns the definition. v1alpha2 is its only version.
pub fn definition() -> Value {
    let columns = [Column { name: "State", column_type: "string", json_path: ".status.state" }];
    Definition::new(&Istio::kind(), "istios")
        .category("kyma-modules")
        .category("kyma-istio")
        .version(Istio::VERSION, true, &object_schema::<Istio>(), &columns)
        .build()
}

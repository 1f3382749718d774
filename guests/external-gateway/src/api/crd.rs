//! The `CustomResourceDefinition` of the ExternalGateway.

use api_gateway_module::api::definition_of;
use mortise_sdk::crd::Column;
use serde_json::Value;

use super::ExternalGateway;

/// Returns the definition. v1alpha1 is its only version.
pub fn definition() -> Value {
    let column = |name, column_type, json_path| Column { name, column_type, json_path };
    let columns = [
        column("External Domain", "string", ".spec.externalDomain"),
        column("State", "string", ".status.state"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason"),
    ];
    let categories = ["all", "kyma-project", "externalgateway"];
    definition_of::<ExternalGateway>("externalgateways", &categories, &columns)
}

//! The `CustomResourceDefinition` of the RateLimit.

use api_gateway_module::api::definition_of;
use mortise_sdk::crd::Column;
use serde_json::Value;

use super::RateLimit;

/// Returns the definition. v1alpha1 is its only version.
pub fn definition() -> Value {
    let columns = [
        Column { name: "Status", column_type: "string", json_path: ".status.state" },
        Column { name: "Age", column_type: "date", json_path: ".metadata.creationTimestamp" },
    ];
    definition_of::<RateLimit>("ratelimits", &[], &columns)
}

//! The `CustomResourceDefinition` of the APIRule.

use mortise_sdk::{
    Object,
    crd::{Column, Definition, object_schema},
};
use serde_json::{Value, json};

use super::{ApiRule, v1beta1};

/// The warning to those who use v1beta1.
const DEPRECATED: &str =
    "Version v1beta1 of APIRule is no longer supported. Migrate to version v2.";

/// Returns the definition. Versions v2 and v2alpha1 share one schema, except that v2 requires a
/// spec.
///
/// Objects of these two versions need no conversion. Version v1beta1 is defined, so that the
/// definition takes the place of the original's, and not served: an API server that cannot ask
/// for a conversion would store its spec under the name of another version and drop it when it is
/// read.
pub fn definition() -> Value {
    let stored = object_schema::<ApiRule>();
    let mut newest = stored.clone();
    if let Some(newest) = newest.as_object_mut() {
        newest.insert("required".to_owned(), json!(["spec"]));
    }
    let column = |name, json_path| Column { name, column_type: "string", json_path };
    let columns = [column("Status", ".status.state"), column("Hosts", ".spec.hosts")];
    let old_columns =
        [column("Status", ".status.APIRuleStatus.code"), column("Host", ".spec.host")];
    Definition::new(&ApiRule::kind(), "apirules")
        .category("kyma-api-gateway")
        .version("v2", false, &newest, &columns)
        .version("v2alpha1", true, &stored, &columns)
        .version("v1beta1", false, &object_schema::<v1beta1::ApiRule>(), &old_columns)
        .deprecated(DEPRECATED)
        .not_served()
        .conversion(json!({"strategy": "None"}))
        .build()
}

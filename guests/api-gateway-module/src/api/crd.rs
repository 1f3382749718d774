//! The `CustomResourceDefinition` of the APIGateway.

use mortise_sdk::{
    Object,
    crd::{Column, Definition, object_schema},
};
use schemars::JsonSchema;
use serde_json::Value;

use super::ApiGateway;

/// Returns the definition. v1alpha1 is its only version.
pub fn definition() -> Value {
    let columns = [Column { name: "State", column_type: "string", json_path: ".status.state" }];
    Definition::new(&ApiGateway::kind(), "apigateways")
        .cluster_scoped()
        .category("kyma-modules")
        .category("kyma-api-gateway")
        .version(ApiGateway::VERSION, true, &object_schema::<ApiGateway>(), &columns)
        .build()
}

/// Returns the definition of a namespaced kind with one version and these categories.
pub fn definition_of<T: Object + JsonSchema>(
    plural: &str,
    categories: &[&str],
    columns: &[Column],
) -> Value {
    let definition = categories
        .iter()
        .fold(Definition::new(&T::kind(), plural), |of, category| of.category(category));
    definition.version(T::VERSION, true, &object_schema::<T>(), columns).build()
}

//! Validation of defaults: they must satisfy their schema, without fields that it does not know.

use serde_json::Value;

use super::super::{Node, embedded, evaluate, list, prune, validate};
use crate::field_error::{FieldError, FieldPath};

/// Returns the errors of all defaults in a schema.
pub(super) fn check(schema: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(schema, path, &mut errors);
    errors
}

fn visit(schema: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    if let Some(default) = map.get("default").filter(|default| !default.is_null()) {
        errors.extend(one(schema, default, &path.child("default")));
    }
    if let Some(items) = map.get("items") {
        visit(items, &path.child("items"), errors);
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        let here = path.child("properties");
        properties.iter().for_each(|(name, schema)| visit(schema, &here.key(name), errors));
    }
}

fn one(schema: &Value, default: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let node = Node::compile(schema);
    let mut pruned = default.clone();
    let unknown = if node.embedded {
        prune::prune(&mut pruned, &node)
    } else {
        prune::prune_plain(&mut pruned, &node)
    };
    let mut errors = Vec::new();
    if !unknown.is_empty() {
        errors.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let prefix = path.to_string();
    let mut found = embedded::validate(&node, default);
    if found.is_empty() {
        found = validate::validate(&node, default, None, None);
    }
    if found.is_empty() {
        found = list::validate(&node, default);
    }
    if found.is_empty() {
        found = evaluate::validate_default(&node, default);
    }
    errors.extend(
        found.into_iter().map(|error| FieldError { field: below(&prefix, &error.field), ..error }),
    );
    errors
}

/// Returns the field of an error in a default.
fn below(path: &str, field: &str) -> String {
    match field {
        "<nil>" => path.to_owned(),
        item if item.starts_with('[') => format!("{path}{item}"),
        field => format!("{path}.{field}"),
    }
}

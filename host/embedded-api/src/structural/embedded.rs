//! Embedded resources: `x-kubernetes-embedded-resource`.

use serde_json::{Map, Value};

use super::Node;
use crate::{
    field_error::{FieldError, FieldPath},
    name::{self, MetadataRules, NameRule},
};

/// The known fields of `metadata`.
const METADATA_FIELDS: [&str; 16] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "clusterName",
];

/// Drops the unknown fields in the metadata of embedded resources, and returns their paths, sorted.
pub(super) fn prune_metadata(object: &mut Value, root: &Node) -> Vec<String> {
    let mut unknown = Vec::new();
    below_mut(object, root, &FieldPath::root(), &mut unknown);
    unknown.sort();
    unknown
}

fn below_mut(value: &mut Value, node: &Node, path: &FieldPath<'_>, unknown: &mut Vec<String>) {
    if !node.has.embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded
                && let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
            {
                let here = path.child("metadata");
                prune_fields(metadata, &here, unknown);
            }
            for (name, value) in map {
                if let Some(child) = node.field(name) {
                    below_mut(value, child, &path.child(name), unknown);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                items
                    .iter_mut()
                    .enumerate()
                    .for_each(|(index, item)| below_mut(item, child, &path.index(index), unknown));
            }
        }
        _ => {}
    }
}

fn prune_fields(
    metadata: &mut Map<String, Value>,
    path: &FieldPath<'_>,
    unknown: &mut Vec<String>,
) {
    metadata.retain(|name, value| {
        let known = METADATA_FIELDS.contains(&name.as_str());
        if !known {
            unknown.push(path.child(name).to_string());
        }
        known && !is_omitted(value)
    });
}

/// Returns whether Kubernetes omits a value when it writes the metadata it has read.
fn is_omitted(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the error that prevents an object from being read, if any: an embedded resource whose
/// fields have the wrong types.
pub(super) fn unreadable(root: &Node, object: &Value) -> Option<FieldError> {
    let mut errors = Vec::new();
    below(object, root, &FieldPath::root(), &mut |map, path| types(map, path, &mut errors));
    errors.into_iter().next()
}

fn types(map: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if let Some(value) = map.get(key).filter(|value| !value.is_string()) {
            errors.push(FieldError::invalid(path.child(key), value.clone(), "must be a string"));
        }
    }
    let Some(metadata) = map.get("metadata").filter(|metadata| !metadata.is_null()) else { return };
    let here = path.child("metadata");
    let texts =
        |value: &Value| value.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let fits = |(key, value): (&String, &Value)| match key.as_str() {
        _ if value.is_null() => true,
        "labels" | "annotations" => texts(value),
        "ownerReferences" | "finalizers" | "managedFields" => value.is_array(),
        "generation" | "deletionGracePeriodSeconds" => value.is_number(),
        _ => value.is_string(),
    };
    if !metadata.as_object().is_some_and(|metadata| metadata.iter().all(fits)) {
        errors.push(FieldError::invalid(here, metadata.clone(), "is no metadata of an object"));
    }
}

/// Validates all embedded resources: they need `apiVersion` and `kind`, and valid metadata.
pub(super) fn validate(root: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    below(object, root, &FieldPath::root(), &mut |map, path| resource(map, path, &mut errors));
    errors
}

/// Visits all embedded resources.
fn below(
    value: &Value,
    node: &Node,
    path: &FieldPath<'_>,
    visit: &mut impl FnMut(&Map<String, Value>, &FieldPath<'_>),
) {
    if !node.has.embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                visit(map, path);
            }
            for (name, value) in map {
                if let Some(child) = node.properties.get(name) {
                    below(value, child, &path.child(name), visit);
                } else if let Some(child) = node.values() {
                    below(value, child, &path.key(name), visit);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    below(item, child, &path.index(index), visit);
                }
            }
        }
        _ => {}
    }
}

/// Validates one embedded resource.
pub(super) fn resource(
    map: &Map<String, Value>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for key in ["apiVersion", "kind"] {
        let here = path.child(key);
        match map.get(key) {
            None => errors.push(FieldError::required(here, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::required(here, ""));
            }
            Some(Value::String(text)) => errors.extend(
                wrong_text(key, text)
                    .map(|detail| FieldError::invalid(here, text.as_str(), detail)),
            ),
            Some(other) => {
                errors.push(FieldError::invalid(here, other.clone(), "must be a string"));
            }
        }
    }
    if let Some(metadata) = map.get("metadata") {
        let here = path.child("metadata");
        if metadata.is_object() {
            errors.extend(wrong_metadata(metadata, &here));
        } else if !metadata.is_null() {
            errors.push(FieldError::type_invalid(here, metadata.clone(), "must be an object"));
        }
    }
}

fn wrong_text(key: &str, text: &str) -> Option<String> {
    if key == "apiVersion" {
        return (text.matches('/').count() > 1)
            .then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let faults = name::is_label_1035(&text.to_lowercase());
    (!faults.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", faults.join(",")))
}

fn wrong_metadata(metadata: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut named = metadata.clone();
    let has =
        |key: &str| metadata.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !has("name")
        && let Some(map) = named.as_object_mut()
    {
        // Embedded resources need no name.
        map.insert("name".to_owned(), "unnamed".into());
    }
    let rules = MetadataRules {
        name: NameRule::PathSegment,
        namespaced: has("namespace"),
        qualified_finalizers: false,
    };
    name::validate_metadata(&named, rules, path)
}

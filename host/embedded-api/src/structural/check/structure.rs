//! Structural schemas: every place has a type, and junctors only restrict what is specified outside
//! of them.

use serde_json::{Map, Value, json};

use super::{super::re2, flag, is_empty, text};
use crate::field_error::{FieldError, FieldPath};

/// The position of a place in the schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the errors of a schema, in the order of their texts.
pub(super) fn check(schema: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    place(schema, Level::Root, path, &mut errors);
    restrictions_are_known(schema, schema, path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn place(schema: &Value, level: Level, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    let items = path.child("items");
    match map.get("items") {
        None if text(map, "type") == "array" => {
            errors.push(FieldError::required(items, "must be specified"));
        }
        None => {}
        Some(schema) => place(schema, Level::Item, &items, errors),
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        let here = path.child("properties");
        properties
            .iter()
            .for_each(|(name, schema)| place(schema, Level::Field, &here.key(name), errors));
    }
    if let Some(additional) =
        map.get("additionalProperties").filter(|additional| !additional.is_null())
    {
        let here = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(here, "must not be used at the root"));
        }
        place(additional, Level::Field, &here, errors);
    }
    extensions(map, path, errors);
    let any_of = is_int_or_string(map.get("anyOf"));
    let first_all_of = map
        .get("allOf")
        .and_then(|all| all.get(0))
        .is_some_and(|first| is_int_or_string(first.get("anyOf")));
    restrictions(map, Skip { any_of, first_all_of }, path, errors);
    kinds(map, level, path, errors);
    if level == Level::Root || flag(map, "x-kubernetes-embedded-resource") {
        type_fields(map, path, errors);
    }
    metadata(map, level, path, errors);
}

fn extensions(map: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !flag(map, "x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(map, name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.child(name), true, detail));
        }
    }
}

/// Validates the type of a place.
fn kinds(
    map: &Map<String, Value>,
    level: Level,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(map, "type");
    let embedded = flag(map, "x-kubernetes-embedded-resource");
    let untyped = flag(map, "x-kubernetes-int-or-string")
        || flag(map, "x-kubernetes-preserve-unknown-fields");
    let here = path.child("type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(here, detail)
        } else {
            FieldError::invalid(here, kind, detail)
        });
    } else if kind.is_empty() && !untyped {
        let what = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(here, format!("must not be empty {what}")));
    }
    if embedded && map.get("additionalProperties").is_some_and(|additional| !additional.is_null()) {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(path.child("additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(here, kind, "must be object at the root"));
    }
    if embedded && !flag(map, "x-kubernetes-preserve-unknown-fields") && is_empty(map, "properties")
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.child("properties"), detail));
    }
}

/// Validates that `apiVersion` and `kind` are strings.
fn type_fields(map: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        let Some(schema) = map.get("properties").and_then(|properties| properties.get(name)) else {
            continue;
        };
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != "string" {
            errors.push(FieldError::invalid(
                properties.key(name).child("type"),
                kind,
                "must be string",
            ));
        }
    }
}

/// Validates that `metadata` is an object, and that the root restricts nothing of it but names.
fn metadata(
    map: &Map<String, Value>,
    level: Level,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(metadata) = map.get("properties").and_then(|properties| properties.get("metadata"))
    else {
        return;
    };
    let properties = path.child("properties");
    let here = properties.key("metadata");
    let kind = metadata.get("type").and_then(Value::as_str).unwrap_or_default();
    let checked = level == Level::Root || flag(map, "x-kubernetes-embedded-resource");
    if checked && kind != "object" {
        errors.push(FieldError::invalid(here.child("type"), kind, "must be object"));
    }
    if level == Level::Root && says_more_than_names(metadata) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(here, detail));
    }
}

fn says_more_than_names(metadata: &Value) -> bool {
    let Some(map) = metadata.as_object() else { return false };
    map.iter().any(|(key, value)| match (key.as_str(), value) {
        ("type" | "default", _) | (_, Value::Null | Value::Bool(false)) => false,
        ("properties", Value::Object(properties)) => {
            properties.keys().any(|name| !matches!(name.as_str(), "name" | "generateName"))
        }
        (_, Value::String(text)) => !text.is_empty(),
        (_, Value::Array(items)) => !items.is_empty(),
        _ => true,
    })
}

/// Returns whether this is the only use of types in a junctor that is valid:
/// `anyOf: [{type: integer}, {type: string}]`.
fn is_int_or_string(any_of: Option<&Value>) -> bool {
    any_of == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

/// The junctors of a place that are valid although they have types.
#[derive(Clone, Copy, Default)]
struct Skip {
    any_of: bool,
    first_all_of: bool,
}

/// Validates the junctors and the pattern of a place.
fn restrictions(
    map: &Map<String, Value>,
    skip: Skip,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for name in ["anyOf", "allOf", "oneOf"] {
        if name == "anyOf" && skip.any_of {
            continue;
        }
        let here = path.child(name);
        for (index, schema) in
            map.get(name).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let skip_any_of = skip.first_all_of && name == "allOf" && index == 0;
            nested(schema, skip_any_of, &here.index(index), errors);
        }
    }
    if let Some(not) = map.get("not") {
        nested(not, false, &path.child("not"), errors);
    }
    let pattern = text(map, "pattern");
    if let Err(fault) = re2::compile(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {fault}");
        errors.push(FieldError::invalid(path.child("pattern"), pattern, detail));
    }
}

/// Validates a schema below a junctor, which may only restrict.
fn nested(schema: &Value, skip_any_of: bool, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    restrictions(map, Skip { any_of: skip_any_of, first_all_of: false }, path, errors);
    if let Some(items) = map.get("items") {
        nested(items, false, &path.child("items"), errors);
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        let here = path.child("properties");
        properties.iter().for_each(|(name, schema)| nested(schema, false, &here.key(name), errors));
        if properties.contains_key("metadata") {
            errors.push(FieldError::forbidden(
                here.key("metadata"),
                "must not be specified in a nested context",
            ));
        }
    }
    for (name, what) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("externalDocs", "undefined"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        let said = match what {
            "empty" => !is_empty(map, name),
            "false" => flag(map, name),
            _ => map.get(name).is_some_and(|value| !value.is_null()),
        };
        if said {
            errors.push(FieldError::forbidden(
                path.child(name),
                format!("must be {what} to be structural"),
            ));
        }
    }
}

/// Validates that all fields restricted by junctors of the root are specified outside of junctors,
/// too (the API server does not validate junctors further below). `nested` holds the junctors,
/// `schema` is the schema that must specify the fields.
fn restrictions_are_known(
    nested: &Value,
    schema: &Value,
    path: &FieldPath<'_>,
    nested_path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = nested.get("not") {
        nested_is_known(not, schema, path, &nested_path.child("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let here = nested_path.child(name);
        for (index, alternative) in
            nested.get(name).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            nested_is_known(alternative, schema, path, &here.index(index), errors);
        }
    }
}

fn nested_is_known(
    nested: &Value,
    schema: &Value,
    path: &FieldPath<'_>,
    nested_path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    restrictions_are_known(nested, schema, path, nested_path, errors);
    if let Some(items) = nested.get("items") {
        let (here, nested_here) = (path.child("items"), nested_path.child("items"));
        known_or_missing(items, schema.get("items"), &here, &nested_here, errors);
    }
    let (here, nested_here) = (path.child("properties"), nested_path.child("properties"));
    for (name, property) in
        nested.get("properties").and_then(Value::as_object).into_iter().flatten()
    {
        let known = schema.get("properties").and_then(|properties| properties.get(name));
        known_or_missing(property, known, &here.key(name), &nested_here.key(name), errors);
    }
}

fn known_or_missing(
    nested: &Value,
    schema: Option<&Value>,
    path: &FieldPath<'_>,
    nested_path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    match schema {
        Some(schema) => nested_is_known(nested, schema, path, nested_path, errors),
        None => errors
            .push(FieldError::required(path, format!("because it is defined in {nested_path}"))),
    }
}

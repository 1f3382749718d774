//! Validation of the merge types of lists and maps.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{flag, is_empty, shown_list, text};
use crate::field_error::{FieldError, FieldPath};

/// Validates `x-kubernetes-list-type`, `-list-map-keys` and `-map-type` of one place.
pub(super) fn check(map: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let list = map.get("x-kubernetes-list-type").and_then(Value::as_str);
    let map_type = map.get("x-kubernetes-map-type").and_then(Value::as_str);
    if let Some(map_type) = map_type {
        type_is(map, "object", "x-kubernetes-map-type", path, errors);
        if !matches!(map_type, "atomic" | "granular") {
            let here = path.child("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(here, map_type, ["atomic", "granular"]));
        }
    }
    let here = path.child("x-kubernetes-list-type");
    if let Some(list) = list {
        let fits = type_is(map, "array", "x-kubernetes-list-type", path, errors);
        if let Some(items) = map.get("items").filter(|_| fits && list == "set") {
            set_items(items, &path.child("items"), errors);
        }
        if !matches!(list, "atomic" | "set" | "map") {
            errors.push(FieldError::not_supported(here, list, ["atomic", "set", "map"]));
        }
    }
    if !is_empty(map, "x-kubernetes-list-map-keys") && list != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list {
            None => FieldError::required(here, detail),
            Some(list) => FieldError::invalid(here, list, detail),
        });
    }
    if list == Some("map") {
        map_list(map, path, errors);
    }
    if let Some(list @ ("set" | "map")) = list {
        items_are_there(map, list, path, errors);
    }
}

fn type_is(
    map: &Map<String, Value>,
    wanted: &str,
    because: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> bool {
    let kind = text(map, "type");
    if kind == wanted {
        return true;
    }
    let here = path.child("type");
    let detail = format!("must be {wanted} if {because} is specified");
    errors.push(if kind.is_empty() {
        FieldError::required(here, detail)
    } else {
        FieldError::invalid(here, kind, detail)
    });
    false
}

fn set_items(items: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let said = |key: &str| items.get(key).and_then(Value::as_str);
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = said("x-kubernetes-list-type");
    match said("type") {
        Some("array") if list.is_some_and(|list| list != "atomic") => {
            errors.push(FieldError::invalid(
                path.child("x-kubernetes-list-type"),
                list.unwrap_or_default(),
                detail,
            ));
        }
        Some("object") if said("x-kubernetes-map-type") != Some("atomic") => {
            // The API server shows the list type here.
            let shown = shown_list(items.get("x-kubernetes-list-type"));
            errors.push(FieldError::invalid(
                path.child("x-kubernetes-map-type"),
                null_as_text(shown),
                detail,
            ));
        }
        _ => {}
    }
}

/// Shows an absent value as the text `"null"`, as Kubernetes prints a nil pointer.
fn null_as_text(shown: crate::field_error::Shown) -> crate::field_error::Shown {
    match shown {
        crate::field_error::Shown::Raw(_) => Value::Null.into(),
        other => other,
    }
}

fn keys(map: &Map<String, Value>) -> impl Iterator<Item = &str> {
    map.get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn map_list(map: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("x-kubernetes-list-map-keys");
    if is_empty(map, "x-kubernetes-list-map-keys") {
        errors
            .push(FieldError::required(here, "must not be empty if x-kubernetes-list-type is map"));
    }
    let items_path = path.child("items");
    let Some(items) = map.get("items") else {
        errors.push(FieldError::required(
            items_path,
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    let kind = items.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(items_path.child("type"), kind, detail));
        return;
    }
    let properties_path = items_path.child("properties");
    let mut seen = BTreeSet::new();
    for key in keys(map) {
        let property = items.get("properties").and_then(|properties| properties.get(key));
        match property.map(|property| property.get("type").and_then(Value::as_str)) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(
                    here,
                    shown_list(map.get("x-kubernetes-list-map-keys")),
                    detail,
                ));
            }
            Some(Some("array" | "object")) => {
                let detail =
                    "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(
                    properties_path.key(key).child("type"),
                    kind,
                    detail,
                ));
            }
            Some(_) => {}
        }
        if !seen.insert(key) {
            let shown = shown_list(map.get("x-kubernetes-list-map-keys"));
            errors.push(FieldError::invalid(here, shown, "must not contain duplicate entries"));
        }
    }
}

/// Validates that items of sets and maps cannot be null, and that the keys of map items are always
/// present.
fn items_are_there(
    map: &Map<String, Value>,
    list: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(items) = map.get("items").and_then(Value::as_object) else { return };
    let items_path = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(FieldError::forbidden(items_path.child("nullable"), detail));
    }
    if list != "map" {
        return;
    }
    let required: Vec<&str> = items
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = items_path.child("properties");
    for key in keys(map) {
        let Some(property) =
            items.get("properties").and_then(|all| all.get(key)).and_then(Value::as_object)
        else {
            continue;
        };
        let here = properties.key(key);
        if !required.contains(&key) && property.get("default").is_none_or(Value::is_null) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(here.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(here.child("nullable"), detail));
        }
    }
}

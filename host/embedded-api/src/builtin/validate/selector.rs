//! Validation of label selectors in objects (`matchLabels`, `matchExpressions`).

use super::{FieldError, FieldPath, Value, add_invalid, is_empty, items, members, text};
use crate::name;

pub(super) fn validate(selector: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(labels) = selector["matchLabels"].as_object() {
        errors.extend(name::validate_labels(labels, &path.child("matchLabels")));
    }
    let path = path.child("matchExpressions");
    for (index, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        requirement(expression, &path.index(index), errors);
    }
}

fn requirement(requirement: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let values = &requirement["values"];
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if is_empty(values) {
                let fault = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(path.child("values"), fault));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !is_empty(values) {
                let fault = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(path.child("values"), fault));
            }
        }
        other => {
            let fault = "not a valid selector operator";
            errors.push(FieldError::invalid(path.child("operator"), other, fault));
        }
    }
    let key = text(requirement, "key");
    add_invalid(errors, &path.child("key"), key, name::is_qualified_name(key));
}

/// Returns whether a selector matches everything.
pub(super) fn is_everything(selector: &Value) -> bool {
    is_empty(&selector["matchLabels"]) && is_empty(&selector["matchExpressions"])
}

/// Returns whether a selector matches labels; an absent selector matches nothing.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let equal =
        members(&selector["matchLabels"]).all(|(key, value)| labels.get(key) == Some(value));
    equal
        && items(&selector["matchExpressions"]).iter().all(|expression| {
            let value = labels.get(text(expression, "key"));
            let listed = value.is_some_and(|value| items(&expression["values"]).contains(value));
            match text(expression, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

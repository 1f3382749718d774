//! Validation of the configurations of admission webhooks.

use super::{
    FieldError, FieldPath, Value, items,
    place::{self, Rule},
    selector, text,
};
use crate::name;

const RULES: [(&str, Rule); 6] = [
    ("rules[].operations[]", Rule::OneOf(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"])),
    ("failurePolicy", Rule::OneOf(&["Fail", "Ignore"])),
    ("matchPolicy", Rule::OneOf(&["Equivalent", "Exact"])),
    ("sideEffects", Rule::OneOf(&["None", "NoneOnDryRun"])),
    ("timeoutSeconds", Rule::Range(1, 30, "the timeout value must be between 1 and 30 seconds")),
    ("reinvocationPolicy", Rule::OneOf(&["IfNeeded", "Never"])),
];

pub(super) fn configuration(object: &Value, errors: &mut Vec<FieldError>) {
    place::each(object, "webhooks[]", &FieldPath::root(), &mut |hook, path| {
        webhook(hook, path, errors);
    });
}

fn webhook(hook: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("name");
    let name = text(hook, "name");
    let faults = name::is_subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid(here, name, faults.join(",")));
    } else if name.split('.').count() < 3 {
        let fault = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(here, name, fault));
    }
    place::each(hook, "rules[]", path, &mut |rule, path| {
        for list in ["operations", "apiGroups", "apiVersions", "resources"] {
            if items(&rule[list]).is_empty() {
                errors.push(FieldError::required(path.child(list), ""));
            }
        }
    });
    place::check(&RULES, hook, path, errors);
    if hook["sideEffects"].is_null() {
        let fault = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(path.child("sideEffects"), fault));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selector::validate(&hook[field], &path.child(field), errors);
    }
    let client = &hook["clientConfig"];
    if client["url"].is_null() == client["service"].is_null() {
        let fault = "exactly one of url or service is required";
        errors.push(FieldError::required(path.child("clientConfig"), fault));
    }
    reviews(&hook["admissionReviewVersions"], &path.child("admissionReviewVersions"), errors);
}

/// Validates the versions of reviews that a webhook understands.
fn reviews(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let all = items(value);
    if all.is_empty() {
        return errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
    }
    if !all.iter().any(|item| item == "v1" || item == "v1beta1") {
        let fault = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, value.clone(), fault));
    }
}

//! Validation of roles and their bindings.

use super::{FieldError, FieldPath, Shown, Value, add_invalid, is_empty, items, shown, text};
use crate::{field_error::go_json, name};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn rules(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("rules");
    for (index, rule) in items(&object["rules"]).iter().enumerate() {
        rule_of(rule, namespaced, &path.index(index), errors);
    }
    let aggregation = &object["aggregationRule"];
    if !namespaced && !aggregation.is_null() && is_empty(&aggregation["clusterRoleSelectors"]) {
        let fault = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", fault));
    }
}

fn rule_of(rule: &Value, namespaced: bool, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if is_empty(&rule["verbs"]) {
        errors.push(FieldError::required(
            path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    let urls = &rule["nonResourceURLs"];
    if !is_empty(urls) {
        let here = path.child("nonResourceURLs");
        if namespaced {
            let fault = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(here, shown(urls), fault));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !is_empty(&rule[key])) {
            let fault = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(here, shown(urls), fault));
        }
        return;
    }
    for (key, fault) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if is_empty(&rule[key]) {
            errors.push(FieldError::required(path.child(key), fault));
        }
    }
}

pub(super) fn binding(object: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let reference = &object["roleRef"];
    let path = FieldPath::new("roleRef");
    let group = text(reference, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(path.child("apiGroup"), group, [GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(reference, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("kind"), kind, kinds));
    }
    match text(reference, "name") {
        "" => errors.push(FieldError::required(path.child("name"), "")),
        name => add_invalid(errors, &path.child("name"), name, name::is_path_segment(name)),
    }
    let path = FieldPath::new("subjects");
    for (index, subject) in items(&object["subjects"]).iter().enumerate() {
        subject_of(subject, namespaced, &path.index(index), errors);
    }
}

fn subject_of(
    subject: &Value,
    namespaced: bool,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                add_invalid(errors, &path.child("name"), name, name::is_subdomain(name));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(path.child("apiGroup"), group, [""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(path.child("apiGroup"), group, [GROUP]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(path.child("kind"), other, kinds));
        }
    }
}

/// Validates that the role of a binding is unchanged.
pub(super) fn binding_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new["roleRef"] != old["roleRef"] {
        let reference = &new["roleRef"];
        let quoted = |key: &str| go_json(&Value::from(text(reference, key)));
        // The server's internal type has other field names.
        let raw = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            quoted("apiGroup"),
            quoted("kind"),
            quoted("name")
        );
        errors.push(FieldError::invalid("roleRef", Shown::Raw(raw), "cannot change roleRef"));
    }
}

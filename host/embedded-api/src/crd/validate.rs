//! Validation of CRDs, with the messages of Kubernetes.
//!
//! Kubernetes validates a form of the CRD in which schema, subresources, columns and selectable
//! fields occur once if they are the same in all versions; the paths in its messages are those of
//! that form ([`Hoisted`]).

use std::collections::HashSet;

use serde_json::Value;

use super::approval::{ANNOTATION, Approval};
use crate::{
    builtin::edit::{at, is_empty, items, text},
    field_error::{FieldError, FieldPath, Shown, go_json},
    kind::is_established,
    name, structural,
};

const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

const NOT_PRESERVED: &str = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";

/// The parts that occur once, as they are the same in all versions.
struct Hoisted {
    parts: Vec<&'static str>,
    /// True if some version has a status subresource.
    status: bool,
}

impl Hoisted {
    fn of(versions: &[Value]) -> Self {
        let mut parts =
            vec!["schema", "subresources", "additionalPrinterColumns", "selectableFields"];
        let pairs = || versions.iter().zip(versions.iter().skip(1));
        parts.retain(|part| pairs().all(|(one, next)| one[part] == next[part]));
        Self { parts, status: versions.iter().any(has_status) }
    }

    fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }
}

fn has_status(version: &Value) -> bool {
    at(version, &["subresources", "status"]).is_object()
}

/// Validates a CRD, except for the common rules of metadata.
pub(crate) fn validate(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &crd["spec"];
    let name = text(&crd["metadata"], "name");
    let wanted = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    if name != wanted {
        let fault = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, fault));
    }
    validate_spec(spec, &mut errors);
    if spec["preserveUnknownFields"] == true {
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, NOT_PRESERVED));
    }
    stored_versions(crd, &mut errors);
    approval(crd, &mut errors);
    errors
}

pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_spec(&new["spec"], &mut errors);
    let fixed: &[&[&str]] = if is_established(old) {
        &[&["scope"], &["names", "kind"], &["group"], &["names", "plural"]]
    } else {
        &[&["group"], &["names", "plural"]]
    };
    for keys in fixed {
        let value = at(&new["spec"], keys);
        if value != at(&old["spec"], keys) {
            let field = format!("spec.{}", keys.join("."));
            errors.push(FieldError::invalid(field, value.clone(), "field is immutable"));
        }
    }
    let preserves = |crd: &Value| *at(crd, &["spec", "preserveUnknownFields"]) == true;
    if preserves(new) && !preserves(old) {
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, NOT_PRESERVED));
    }
    stored_versions(new, &mut errors);
    approval(new, &mut errors);
    errors
}

fn validate_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    group(text(spec, "group"), &path, errors);
    let scope = text(spec, "scope");
    match scope {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required(path.child("scope"), "")),
        _ => {
            let known = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported(path.child("scope"), scope, known));
        }
    }
    let versions = items(&spec["versions"]);
    let hoisted = Hoisted::of(versions);
    let here = path.child("versions");
    for (index, version) in versions.iter().enumerate() {
        if !at(version, &["schema", "openAPIV3Schema"]).is_object() {
            let here = here.index(index);
            let here = here.child("schema");
            errors.push(FieldError::required(here.child("openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        version_by_itself(version, &hoisted, &here.index(index), errors);
    }
    version_list(versions, &hoisted, &here, errors);
    names(&spec["names"], &path.child("names"), errors);
    if let Some(version) = versions.first() {
        hoisted_parts(version, &hoisted, &path, errors);
    }
    conversion(&spec["conversion"], &path.child("conversion"), errors);
}

fn group(group: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("group");
    let faults = name::is_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid(path, group, faults.join(",")));
    } else if !group.contains('.') {
        let fault = "should be a domain with at least one dot";
        errors.push(FieldError::invalid(path, group, fault));
    }
}

/// Validates the name of a version, and the parts that differ between versions.
fn version_by_itself(
    version: &Value,
    hoisted: &Hoisted,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(version, "name");
    let faults = name::is_label_1035(name);
    if !faults.is_empty() {
        errors.push(FieldError::invalid(path.child("name"), name, faults.join(",")));
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        deprecation(version, warning, path, errors);
    }
    if !hoisted.has("schema") {
        let here = path.child("schema");
        let schema = at(version, &["schema", "openAPIV3Schema"]);
        let status = has_status(version);
        errors.extend(structural::check(schema, &here.child("openAPIV3Schema"), status));
    }
    if !hoisted.has("subresources") {
        subresources(&version["subresources"], &path.child("subresources"), errors);
    }
    if !hoisted.has("additionalPrinterColumns") {
        columns(version, path, errors);
    }
    if !hoisted.has("selectableFields") {
        selectable(version, path, errors);
    }
}

fn deprecation(version: &Value, warning: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("deprecationWarning");
    let mut faults = Vec::new();
    if version["deprecated"] == true {
        if warning.len() > 256 {
            faults.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            faults.push("must not be an empty string".to_owned());
        }
        if let Some((index, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
            faults.push(format!(
                "must only contain printable UTF-8 characters; control character found at index {index}"
            ));
        }
    } else {
        faults.push("can only be set for deprecated versions".to_owned());
    }
    errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, warning, fault)));
}

/// Validates the parts that occur once for all versions.
fn hoisted_parts(
    version: &Value,
    hoisted: &Hoisted,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let schema = at(version, &["schema", "openAPIV3Schema"]);
    if hoisted.has("schema") && schema.is_object() {
        let here = path.child("validation");
        let status = hoisted.status;
        errors.extend(structural::check(schema, &here.child("openAPIV3Schema"), status));
    }
    if hoisted.has("subresources") {
        subresources(&version["subresources"], &path.child("subresources"), errors);
    }
    if hoisted.has("additionalPrinterColumns") {
        columns(version, path, errors);
    }
    if hoisted.has("selectableFields") {
        selectable(version, path, errors);
    }
}

fn version_list(
    versions: &[Value],
    hoisted: &Hoisted,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut seen = HashSet::new();
    let shown = || Shown::Raw(shown_versions(versions, hoisted));
    if !versions.iter().all(|version| seen.insert(text(version, "name"))) {
        errors.push(FieldError::invalid(path, shown(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let fault = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(path, shown(), fault));
    }
}

/// Returns versions as Kubernetes prints them: with the names of its internal type.
fn shown_versions(versions: &[Value], hoisted: &Hoisted) -> String {
    let part = |version: &Value, key: &str| {
        if hoisted.has(key) { "null".to_owned() } else { go_json(&version[key]) }
    };
    let shown = versions.iter().map(|version| {
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
            go_json(&text(version, "name").into()),
            version["served"] == true,
            version["storage"] == true,
            version["deprecated"] == true,
            go_json(&version["deprecationWarning"]),
            part(version, "schema"),
            part(version, "subresources"),
            part(version, "additionalPrinterColumns"),
            part(version, "selectableFields"),
        )
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) }
}

fn names(names: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(FieldError::required(path.child(key), ""));
        }
    }
    for key in ["plural", "singular"] {
        label(text(names, key), "", &path.child(key), errors);
    }
    for key in ["kind", "listKind"] {
        let prefix = "may have mixed case, but should otherwise match: ";
        label(text(names, key), prefix, &path.child(key), errors);
    }
    for key in ["shortNames", "categories"] {
        let here = path.child(key);
        for (index, name) in items(&names[key]).iter().enumerate() {
            label(name.as_str().unwrap_or(""), "", &here.index(index), errors);
        }
        if key == "shortNames" {
            let kind = text(names, "kind");
            if !kind.is_empty() && kind == text(names, "listKind") {
                let fault = "kind and listKind may not be the same";
                errors.push(FieldError::invalid(path.child("listKind"), kind, fault));
            }
        }
    }
}

/// Validates a DNS label; if there is a prefix, in letters of any case.
fn label(value: &str, prefix: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let checked = if prefix.is_empty() { value.to_owned() } else { value.to_lowercase() };
    let faults = name::is_label_1035(&checked);
    if !value.is_empty() && !faults.is_empty() {
        errors.push(FieldError::invalid(path, value, format!("{prefix}{}", faults.join(","))));
    }
}

fn subresources(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let scale = &value["scale"];
    if !scale.is_object() {
        return;
    }
    for (key, parts, required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."][..], true),
        ("labelSelectorPath", &[".spec.", ".status."][..], false),
    ] {
        let field = format!("scale.{key}");
        let here = path.child(&field);
        let place = text(scale, key);
        if place.is_empty() {
            if required {
                errors.push(FieldError::required(here, ""));
            }
        } else if let Some(fault) = path_fault(place) {
            errors.push(FieldError::invalid(here, place, fault));
        } else if !parts.iter().any(|part| place.starts_with(part)) {
            let fault = match key {
                "specReplicasPath" => "should be a json path under .spec",
                "statusReplicasPath" => "should be a json path under .status",
                _ => "should be a json path under either .spec or .status",
            };
            errors.push(FieldError::invalid(here, place, fault));
        }
    }
}

/// Returns the reason for which a text is no path of fields: `.spec.replicas`.
fn path_fault(path: &str) -> Option<&'static str> {
    (!path.starts_with('.')).then_some("must be a simple json path starting with .")
}

fn columns(version: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("additionalPrinterColumns");
    for (index, column) in items(&version["additionalPrinterColumns"]).iter().enumerate() {
        let path = path.index(index);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        }
        let kind = text(column, "type");
        if kind.is_empty() {
            let fault = format!("must be one of {}", TYPES.join(","));
            errors.push(FieldError::required(path.child("type"), fault));
        } else if !TYPES.contains(&kind) {
            let fault = format!("must be one of {}", TYPES.join(","));
            errors.push(FieldError::invalid(path.child("type"), kind, fault));
        }
        let format = text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            let fault = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(path.child("format"), format, fault));
        }
        if text(column, "jsonPath").is_empty() {
            errors.push(FieldError::required(path.child("JSONPath"), ""));
        }
    }
}

fn selectable(version: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    const MAX_SELECTABLE_FIELDS: usize = 8;
    let path = path.child("selectableFields");
    let fields = items(&version["selectableFields"]);
    let schema = at(version, &["schema", "openAPIV3Schema"]);
    let mut seen = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let place = text(field, "jsonPath");
        let here = path.index(index);
        let at_path = here.child("jsonPath");
        if place.is_empty() {
            errors.push(FieldError::required(at_path, ""));
            continue;
        }
        let Some(found) = schema_at(schema, place) else {
            let fault = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(at_path, place, fault));
            continue;
        };
        if place == ".metadata" || place.starts_with(".metadata.") {
            let fault = "must not point to fields in metadata";
            errors.push(FieldError::invalid(at_path, place, fault));
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            let fault = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(at_path, place, fault));
        }
        if !seen.insert(place) {
            errors.push(FieldError::duplicate(at_path, place));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}

/// Returns the schema of the field at a path of names: `.spec.color`.
fn schema_at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    let mut names = path.strip_prefix('.')?.split('.');
    names.try_fold(schema, |schema, name| schema["properties"].get(name))
}

fn conversion(conversion: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match text(conversion, "strategy") {
        "None" if !conversion["webhook"].is_null() => {
            let fault = "should not be set when strategy is not set to Webhook";
            for (part, field) in [
                ("clientConfig", "webhookClientConfig"),
                ("conversionReviewVersions", "conversionReviewVersions"),
            ] {
                if !is_empty(at(conversion, &["webhook", part])) {
                    errors.push(FieldError::forbidden(path.child(field), fault));
                }
            }
        }
        "None" | "" => {}
        "Webhook" => {
            let client = at(conversion, &["webhook", "clientConfig"]);
            let here = path.child("webhookClientConfig");
            if client.is_null() {
                errors.push(FieldError::required(here, "required when strategy is set to Webhook"));
            } else if client["url"].is_null() == client["service"].is_null() {
                errors
                    .push(FieldError::required(here, "exactly one of url or service is required"));
            }
            if is_empty(at(conversion, &["webhook", "conversionReviewVersions"])) {
                errors.push(FieldError::required(path.child("conversionReviewVersions"), ""));
            }
        }
        other => {
            let known = ["None", "Webhook"];
            errors.push(FieldError::not_supported(path.child("strategy"), other, known));
        }
    }
}

/// Validates that `storedVersions` names versions of the CRD only, and the storage version.
fn stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status.storedVersions");
    let stored = at(crd, &["status", "storedVersions"]);
    let names: Vec<_> = items(stored).iter().filter_map(Value::as_str).collect();
    let shown =
        || if names.is_empty() { Shown::Raw("null".to_owned()) } else { stored.clone().into() };
    if names.is_empty() {
        errors.push(FieldError::invalid(path, shown(), "must have at least one stored version"));
        return;
    }
    let versions = items(at(crd, &["spec", "versions"]));
    for version in versions.iter().filter(|version| version["storage"] == true) {
        let name = text(version, "name");
        if !names.contains(&name) {
            let fault = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path, shown(), fault));
        }
    }
    for (index, name) in names.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let fault = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(path.index(index), *name, fault));
        }
    }
}

/// Validates that a CRD in a group of Kubernetes has an approval annotation.
fn approval(crd: &Value, errors: &mut Vec<FieldError>) {
    let annotations = FieldPath::new("metadata.annotations");
    let path = annotations.key(ANNOTATION);
    match Approval::of(crd) {
        Some(approval @ Approval::Missing) => {
            errors.push(FieldError::required(path, approval.message()));
        }
        Some(approval @ Approval::Invalid) => {
            let value = text(at(crd, &["metadata", "annotations"]), ANNOTATION);
            errors.push(FieldError::invalid(path, value, approval.message()));
        }
        Some(Approval::Bypassed(_) | Approval::Approved(_)) | None => {}
    }
}

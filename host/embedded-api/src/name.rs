//! Validation of names, labels, annotations and other metadata, with the messages of Kubernetes.

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::field_error::{FieldError, FieldPath, Shown, go_quote};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const MAX_LABEL_BYTES: usize = 63;
const MAX_SUBDOMAIN_BYTES: usize = 253;
/// The largest size of keys and values of all annotations together, in bytes.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// The rule for the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    #[default]
    Subdomain,
    /// DNS-1123 label: namespaces.
    Label,
    /// DNS-1035 label: Services.
    Label1035,
    /// Anything that can stand between slashes in a path: RBAC.
    PathSegment,
}

/// The rules for the metadata of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MetadataRules {
    /// The rule for names.
    pub(crate) name: NameRule,
    /// True if objects are in a namespace.
    pub(crate) namespaced: bool,
    /// True if finalizers must have a domain or be standard ones of Kubernetes: the kinds of the
    /// core group and others built in.
    pub(crate) qualified_finalizers: bool,
}

// === names ===

impl NameRule {
    /// Returns the errors of a name.
    pub(crate) fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => is_subdomain(name),
            Self::Label => is_label(name),
            Self::Label1035 => is_label_1035(name),
            Self::PathSegment => is_path_segment(name),
        }
    }

    /// Returns the errors of a `generateName`, which the server completes to a name.
    pub(crate) fn check_prefix(self, prefix: &str) -> Vec<String> {
        if self == Self::PathSegment {
            return contained_in_segment(prefix);
        }
        // The server appends a letter or a digit, so that a dash at the end is valid.
        match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => {
                let mut completed: String = rest.to_owned();
                completed.pop();
                completed.push('a');
                self.check(&completed)
            }
            _ => self.check(prefix),
        }
    }
}

/// Returns the reasons for which a text is no DNS-1123 label.
pub(crate) fn is_label(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(LABEL));
    let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                and must start and end with an alphanumeric character";
    check(text, MAX_LABEL_BYTES, &REGEX, || regex_text(what, LABEL, &["my-name", "123-abc"]))
}

/// Returns the reasons for which a text is no DNS-1035 label.
pub(crate) fn is_label_1035(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_1035));
    let what = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
                and end with an alphanumeric character";
    check(text, MAX_LABEL_BYTES, &REGEX, || regex_text(what, LABEL_1035, &["my-name", "abc-123"]))
}

/// Returns the reasons for which a text is no DNS-1123 subdomain.
pub(crate) fn is_subdomain(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN));
    let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                and must start and end with an alphanumeric character";
    check(text, MAX_SUBDOMAIN_BYTES, &REGEX, || regex_text(what, SUBDOMAIN, &["example.com"]))
}

/// Returns the reasons for which a text is no DNS-1123 subdomain behind `*.`.
pub(crate) fn is_wildcard_subdomain(text: &str) -> Vec<String> {
    static PATTERN: LazyLock<String> = LazyLock::new(|| format!(r"\*\.{SUBDOMAIN}"));
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(&PATTERN));
    let what = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
                which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    check(text, MAX_SUBDOMAIN_BYTES, &REGEX, || regex_text(what, &PATTERN, &["*.example.com"]))
}

/// Returns the reasons for which a text is no segment of a path.
pub(crate) fn is_path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    contained_in_segment(text)
}

fn contained_in_segment(text: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|part| text.contains(part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Returns the reasons for which a text is no qualified name, as the keys of labels and annotations
/// are: `example.com/name`.
pub(crate) fn is_qualified_name(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(QUALIFIED));
    let what = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let message = || regex_text(what, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut faults = Vec::new();
    let mut parts = text.split('/');
    let first = parts.next().unwrap_or_default();
    let name = match (parts.next(), parts.next()) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(
                    is_subdomain(first).into_iter().map(|fault| format!("prefix part {fault}")),
                );
            }
            name
        }
        (Some(_), Some(_)) => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                message()
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL_BYTES {
        faults.push(format!("name part must be no more than {MAX_LABEL_BYTES} characters"));
    }
    if !REGEX.is_match(name) {
        faults.push(format!("name part {}", message()));
    }
    faults
}

/// Returns the reasons for which a text is no value of a label.
pub(crate) fn is_label_value(text: &str) -> Vec<String> {
    static REGEX: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_VALUE));
    let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                and must start and end with an alphanumeric character";
    check(text, MAX_LABEL_BYTES, &REGEX, || {
        regex_text(what, LABEL_VALUE, &["MyValue", "my_value", "12345"])
    })
}

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("the pattern is written here, and tested")
}

fn check(text: &str, most: usize, regex: &Regex, message: impl FnOnce() -> String) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > most {
        faults.push(format!("must be no more than {most} characters"));
    }
    if !regex.is_match(text) {
        faults.push(message());
    }
    faults
}

fn regex_text(what: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

// === metadata ===

/// Validates the metadata of an object that is to be created; `path` is the path of the metadata.
pub(crate) fn validate_metadata(
    metadata: &Value,
    rules: MetadataRules,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let (generate, name, namespace) = (text("generateName"), text("name"), text("namespace"));
    if !generate.is_empty() {
        add_invalid(
            &mut errors,
            &path.child("generateName"),
            generate,
            rules.name.check_prefix(generate),
        );
    }
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), "name or generateName is required"));
    } else {
        add_invalid(&mut errors, &path.child("name"), name, rules.name.check(name));
    }
    let here = path.child("namespace");
    match (rules.namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(here, "")),
        (true, false) => add_invalid(&mut errors, &here, namespace, is_label(namespace)),
        (false, false) => errors.push(FieldError::forbidden(here, "not allowed on this type")),
        (false, true) => {}
    }
    if let Some(generation) =
        metadata.get("generation").and_then(Value::as_i64).filter(|generation| *generation < 0)
    {
        errors.push(FieldError::invalid(
            path.child("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    validate_common(metadata, path, &mut errors);
    validate_finalizers(metadata, path, &mut errors);
    if rules.qualified_finalizers {
        validate_qualified_finalizers(metadata, path, &mut errors);
    }
    errors
}

/// Validates the metadata of an object that replaces `old`.
pub(crate) fn validate_metadata_update(
    metadata: &Value,
    old: &Value,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        validate_no_new_finalizers(metadata, old, path, &mut errors);
    }
    if metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default().is_empty() {
        errors.push(FieldError::invalid(
            path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    let generation =
        |metadata: &Value| metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(metadata) < generation(old) {
        errors.push(FieldError::invalid(
            path.child("generation"),
            generation(metadata),
            "must not be decremented",
        ));
    }
    for (key, text) in [
        ("name", true),
        ("namespace", true),
        ("uid", true),
        ("creationTimestamp", false),
        ("deletionTimestamp", false),
        ("deletionGracePeriodSeconds", false),
    ] {
        let value = |metadata: &Value| match metadata.get(key) {
            None | Some(Value::Null) if text => Value::from(""),
            other => other.cloned().unwrap_or_default(),
        };
        let (new, old) = (value(metadata), value(old));
        if new != old {
            let shown = if key == "creationTimestamp" && new.is_null() {
                Shown::Raw("null".to_owned())
            } else {
                new.into()
            };
            errors.push(FieldError::invalid(path.child(key), shown, "field is immutable"));
        }
    }
    validate_common(metadata, path, &mut errors);
    errors
}

/// Validates the metadata of any object, new or old, except for its name.
pub(crate) fn validate_any_metadata(metadata: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_common(metadata, path, &mut errors);
    validate_finalizers(metadata, path, &mut errors);
    errors
}

fn validate_common(metadata: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        validate_owners(owners, &path.child("ownerReferences"), errors);
    }
}

pub(crate) fn validate_labels(
    labels: &Map<String, Value>,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        add_invalid(&mut errors, path, key, is_qualified_name(key));
        add_invalid(&mut errors, path, value, is_label_value(value));
    }
    errors
}

pub(crate) fn validate_annotations(
    annotations: &Map<String, Value>,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        add_invalid(&mut errors, path, key, is_qualified_name(&key.to_lowercase()));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(path, MAX_ANNOTATIONS_BYTES));
    }
    errors
}

fn validate_owners(owners: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut controller: Option<&str> = None;
    for owner in owners {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion").rsplit('/').next().unwrap_or_default().is_empty() {
            errors.push(FieldError::invalid(
                path.child("apiVersion"),
                text("apiVersion"),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(path.child(key), "", "must not be empty"));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, Shown::Raw(owner_text(owner)), detail));
        }
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        if let Some(first) = controller {
            let shown: Vec<String> = owners.iter().map(owner_text).collect();
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}",
                text("name")
            );
            errors.push(FieldError::invalid(
                path,
                Shown::Raw(format!("[{}]", shown.join(","))),
                detail,
            ));
        }
        controller.get_or_insert(text("name"));
    }
}

/// Returns an owner reference as Go writes it: the fields in the order of their declaration.
fn owner_text(owner: &Value) -> String {
    let fields: Vec<String> =
        ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]
            .into_iter()
            .filter_map(|key| owner.get(key).map(|value| format!("\"{key}\":{value}")))
            .collect();
    format!("{{{}}}", fields.join(","))
}

fn finalizers(metadata: &Value) -> Vec<&str> {
    metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn validate_finalizers(metadata: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let names = finalizers(metadata);
    let here = path.child("finalizers");
    for name in &names {
        add_invalid(errors, &here, name, is_qualified_name(name));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let all: Vec<Value> = names.iter().map(|name| Value::from(*name)).collect();
        errors.push(FieldError::invalid(
            here,
            all,
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// Validates that each finalizer of a built-in kind has a domain or is a standard one of
/// Kubernetes.
pub(crate) fn validate_qualified_finalizers(
    metadata: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let here = path.child("finalizers");
    for (index, name) in finalizers(metadata).iter().enumerate() {
        if !name.contains('/') && !matches!(*name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(here.index(index), *name, detail));
        }
    }
}

fn validate_no_new_finalizers(
    metadata: &Value,
    old: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let before = finalizers(old);
    let mut added: Vec<&str> =
        finalizers(metadata).into_iter().filter(|name| !before.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let quoted: Vec<String> = added.into_iter().map(go_quote).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        errors.push(FieldError::forbidden(path.child("finalizers"), detail));
    }
}

fn add_invalid(
    errors: &mut Vec<FieldError>,
    path: &FieldPath<'_>,
    value: &str,
    faults: Vec<String>,
) {
    errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)));
}

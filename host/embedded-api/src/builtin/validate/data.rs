//! Validation of `ConfigMap`s and Secrets.

use super::{FieldError, FieldPath, Value, add_invalid, at, members, text};

/// The largest size of keys and values of one object together, in bytes.
const MAX_DATA_BYTES: usize = 1024 * 1024;

pub(super) fn config_map(object: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (field, other) in [("data", Some("binaryData")), ("binaryData", None)] {
        let path = FieldPath::new(field);
        for (key, value) in members(&object[field]) {
            add_invalid(errors, &path.key(key), key, key_faults(key));
            if other.is_some_and(|other| object[other].get(key).is_some()) {
                let fault = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(path.key(key), key.as_str(), fault));
            }
            let length = value.as_str().map_or(0, str::len);
            size += if other.is_some() { length } else { decoded(length) };
        }
    }
    if size > MAX_DATA_BYTES {
        errors.push(FieldError::too_long("", MAX_DATA_BYTES));
    }
}

pub(super) fn secret(object: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("data");
    let mut size = 0;
    for (key, value) in members(&object["data"]) {
        add_invalid(errors, &path.key(key), key, key_faults(key));
        size += decoded(value.as_str().map_or(0, str::len));
    }
    if size > MAX_DATA_BYTES {
        errors.push(FieldError::too_long(path, MAX_DATA_BYTES));
    }
    let missing = |key: &str| object["data"].get(key).is_none();
    let mut require = |key: &str| {
        if missing(key) {
            errors.push(FieldError::required(path.key(key), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(require),
        "kubernetes.io/dockercfg" => require(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => require(".dockerconfigjson"),
        "kubernetes.io/ssh-auth" => require("ssh-privatekey"),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            ["username", "password"].into_iter().for_each(require);
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(at(object, &["metadata", "annotations"]), name).is_empty() {
                errors.push(FieldError::required(
                    FieldPath::new("metadata.annotations").key(name),
                    "",
                ));
            }
        }
        _ => {}
    }
}

/// Validates that an immutable object is unchanged, and that a Secret keeps its type.
pub(super) fn update(definition: &str, new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let is_secret = definition == "api.core.v1.Secret";
    if is_secret && new["type"] != old["type"] {
        errors.push(FieldError::invalid("type", text(new, "type"), "field is immutable"));
    }
    if old["immutable"] != true {
        return;
    }
    let fault = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", fault));
    }
    let fields: &[&str] = if is_secret { &["data"] } else { &["data", "binaryData"] };
    for field in fields {
        if new[field] != old[field] {
            errors.push(FieldError::forbidden(field, fault));
        }
    }
}

/// Returns the approximate number of bytes in a base64 text of some length.
fn decoded(length: usize) -> usize {
    length / 4 * 3
}

/// Returns the reasons for which a text is no key of data.
fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > 253 {
        faults.push("must be no more than 253 characters".to_owned());
    }
    let allowed =
        |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'.' | b'_');
    if key.is_empty() || !key.bytes().all(allowed) {
        let fault = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        faults.push(fault.to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

//! The namespace and name of an object, and other texts of its metadata.

pub(super) use crate::key::NamespacedName;

use serde_json::Value;

// === impl NamespacedName ===

impl NamespacedName {
    pub(super) fn of(object: &Value) -> Self {
        Self::new(metadata(object, "namespace"), metadata(object, "name"))
    }
}

/// Returns a string in an object's metadata; empty if there is none under this key.
pub(super) fn metadata<'a>(object: &'a Value, key: &str) -> &'a str {
    let held = object.get("metadata").and_then(|metadata| metadata.get(key));
    held.and_then(Value::as_str).unwrap_or_default()
}

/// Returns an object's resource version as a number; 0 if it is not a number.
pub(super) fn revision(object: &Value) -> u64 {
    metadata(object, "resourceVersion").parse().unwrap_or_default()
}

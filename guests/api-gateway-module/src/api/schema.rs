//! The parts of the CRD's schema that the Rust types do not express.

use schemars::Schema;
use serde_json::{Value, json};

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

pub(super) fn state(schema: &mut Schema) {
    set(schema, "enum", json!(["Processing", "Deleting", "Ready", "Error", "Warning"]));
}

/// Makes a list a map of conditions by their type.
pub fn conditions(schema: &mut Schema) {
    set(schema, "x-kubernetes-list-type", "map");
    set(schema, "x-kubernetes-list-map-keys", json!(["type"]));
}

pub(super) fn condition_type(schema: &mut Schema) {
    let pattern = concat!(
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    );
    set(schema, "maxLength", 316);
    set(schema, "pattern", pattern);
}

pub(super) fn reason(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 1024);
    set(schema, "pattern", "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$");
}

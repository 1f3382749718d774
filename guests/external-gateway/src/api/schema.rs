//! The parts of the CRD's schema that the Rust types do not express.

use schemars::Schema;
use serde_json::{Value, json};

const DOMAIN: &str =
    r"^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
const NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

pub(super) fn external_domain(schema: &mut Schema) {
    set(schema, "maxLength", 255);
    set(schema, "pattern", DOMAIN);
}

pub(super) fn subdomain(schema: &mut Schema) {
    set(schema, "default", "external");
    set(schema, "maxLength", 63);
    set(schema, "pattern", NAME);
}

pub(super) fn regions(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 253);
    set(schema, "pattern", NAME);
}

pub(super) fn state(schema: &mut Schema) {
    set(schema, "enum", json!(["Processing", "Ready", "Error"]));
}

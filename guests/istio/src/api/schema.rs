//! The parts of the CRD's schema that the Rust types do not express.

use schemars::Schema;
use serde_json::{Value, json};

const TRUST_DOMAIN: &str = r"^[a-z0-9]*([a-z0-9-_]*)?(\.[a-z0-9]*([a-z0-9-_]*[a-z0-9]*)?)*$";
const INT_OR_STRING: &str =
    "(type(self) == int ? self >= 0 && self <= 2147483647: self.size() >= 0)";
const INT_OR_STRING_MESSAGE: &str = "must not be negative, more than 2147483647 or an empty string";

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

pub(super) fn trusted_proxies(schema: &mut Schema) {
    schema.remove("format");
    set(schema, "minimum", 0);
    set(schema, "maximum", u32::MAX);
}

pub(super) fn forward_client_cert_details(schema: &mut Schema) {
    let details =
        ["APPEND_FORWARD", "SANITIZE_SET", "SANITIZE", "ALWAYS_FORWARD_ONLY", "FORWARD_ONLY"];
    set(schema, "enum", json!(details));
}

pub(super) fn traffic_policy(schema: &mut Schema) {
    set(schema, "enum", json!(["Local", "Cluster"]));
}

pub(super) fn trust_domain(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 255);
    set(schema, "pattern", TRUST_DOMAIN);
}

pub(super) fn int32(schema: &mut Schema) {
    set(schema, "format", "int32");
}

pub(super) fn replicas(schema: &mut Schema) {
    int32(schema);
    set(schema, "minimum", 0);
    set(schema, "maximum", i32::MAX);
}

pub(super) fn max_surge(schema: &mut Schema) {
    int_or_string(schema, "^[0-9]+%?$");
}

pub(super) fn max_unavailable(schema: &mut Schema) {
    int_or_string(schema, "^((100|[0-9]{1,2})%|[0-9]+)$");
}

fn int_or_string(schema: &mut Schema, pattern: &str) {
    set(schema, "anyOf", json!([{"type": "integer"}, {"type": "string"}]));
    set(schema, "pattern", pattern);
    set(schema, "x-kubernetes-int-or-string", true);
    let rule = json!([{"message": INT_OR_STRING_MESSAGE, "rule": INT_OR_STRING}]);
    set(schema, "x-kubernetes-validations", rule);
}

pub(super) fn cpu(schema: &mut Schema) {
    set(schema, "pattern", r"^([0-9]+m?|[0-9]\.[0-9]{1,3})$");
}

pub(super) fn memory(schema: &mut Schema) {
    let pattern = r"^[0-9]+(((\.[0-9]+)?(E|P|T|G|M|k|Ei|Pi|Ti|Gi|Mi|Ki|m)?)|(e[0-9]+))$";
    set(schema, "pattern", pattern);
}

/// Makes a list one value, which is replaced whole.
pub(super) fn atomic(schema: &mut Schema) {
    set(schema, "x-kubernetes-list-type", "atomic");
}

/// Makes a list a map of conditions by their type, so that several writers can each own theirs.
pub(super) fn conditions(schema: &mut Schema) {
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

//! The parts of the CRD's schema that the Rust types do not express.

use schemars::Schema;
use serde_json::{Value, json};

const HOST: &str = concat!(
    r"^(?:\*\.(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]{2,63}|",
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)",
    r"(?:(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*(?:\.[a-z0-9]{2,63}))?)$",
);
const HOST_MESSAGE: &str = concat!(
    "Host must be a lowercase RFC 1123 label (must consist of lowercase alphanumeric characters or '-', and must start ",
    "and end with an lowercase alphanumeric character), a fully qualified domain name, or a wildcard domain name ",
    "(e.g. *.local.kyma.dev)",
);
const NAMESPACED_NAME: &str =
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$";
const PATH: &str =
    r"^((\/([A-Za-z0-9-._~!$&'()+,;=:@]|%[0-9a-fA-F]{2})*)|(\/\{\*{1,2}\}))+$|^\/\*$";
const ONE_OF: &str =
    "((has(self.extAuth)?1:0)+(has(self.jwt)?1:0)+((has(self.noAuth)&&self.noAuth==true)?1:0))==1";
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
const STATES: [&str; 5] = ["Processing", "Deleting", "Ready", "Error", "Warning"];

/// Returns a CEL rule that matches the value against a regular expression.
fn matches(pattern: &str, message: &str) -> Value {
    let escaped = pattern.replace('\\', "\\\\");
    rule(&format!("self.matches('{escaped}')"), message)
}

fn rule(rule: &str, message: &str) -> Value {
    json!([{"rule": rule, "message": message}])
}

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

pub(super) fn hosts(schema: &mut Schema) {
    set(schema, "minItems", 1);
    set(schema, "maxItems", 1);
    let validations = matches(HOST, HOST_MESSAGE);
    set(
        schema,
        "items",
        json!({"type": "string", "maxLength": 255, "x-kubernetes-validations": validations}),
    );
}

pub(super) fn gateway(schema: &mut Schema) {
    set(schema, "maxLength", 127);
    set(
        schema,
        "x-kubernetes-validations",
        matches(NAMESPACED_NAME, "Gateway must be in the namespace/name format"),
    );
}

pub(super) fn external_gateway(schema: &mut Schema) {
    let message = "ExternalGateway must be in the namespace/name format";
    set(schema, "maxLength", 127);
    set(schema, "x-kubernetes-validations", matches(NAMESPACED_NAME, message));
}

pub(super) fn timeout(schema: &mut Schema) {
    schema.remove("format");
    set(schema, "minimum", 1);
    set(schema, "maximum", 3900);
}

pub(super) fn port(schema: &mut Schema) {
    set(schema, "format", "int32");
    set(schema, "minimum", 1);
    set(schema, "maximum", 65535);
}

pub(super) fn path(schema: &mut Schema) {
    set(schema, "pattern", PATH);
}

pub(super) fn methods(schema: &mut Schema) {
    set(schema, "minItems", 1);
    set(schema, "items", json!({"type": "string", "enum": METHODS}));
}

pub(super) fn one_access_strategy(schema: &mut Schema) {
    let message = "One of the following fields must be set: noAuth, jwt, extAuth";
    set(schema, "x-kubernetes-validations", rule(ONE_OF, message));
}

pub(super) fn state(schema: &mut Schema) {
    set(schema, "enum", json!(STATES));
}

/// The original's pattern with its stray bracket, which not all engines take without an escape.
const V1BETA1_HOST: &str =
    r"^([a-zA-Z0-9][a-zA-Z0-9-_]*\.)*[a-zA-Z0-9]*[a-zA-Z0-9-_]*[\[a-zA-Z0-9]+$";

pub(super) fn v1beta1_host(schema: &mut Schema) {
    set(schema, "minLength", 3);
    set(schema, "maxLength", 256);
    set(schema, "pattern", V1BETA1_HOST);
}

pub(super) fn v1beta1_rules(schema: &mut Schema) {
    set(schema, "minItems", 1);
}

pub(super) fn free_form(schema: &mut Schema) {
    set(schema, "type", "object");
    set(schema, "x-kubernetes-preserve-unknown-fields", true);
}

//! Rules for fields in the CRD's schema, beyond types, so that the API server refuses most wrong
//! values.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The pattern by which the API server checks the names of objects.
const OBJECT_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// No part of a path may be empty, or start with a dot: `..` would lead out of the folder.
const MODULE_PATH: &str =
    r"^(/modules/)?[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$";
/// A package, an interface and a version, as WIT names them.
const INTERFACE: &str =
    r"^[a-z][a-z0-9-]*:[a-z][a-z0-9-]*/[a-z][a-z0-9-]*(@[0-9][0-9A-Za-z.+-]*)?$";
/// Scheme and host; the host parses the rest.
const SERVERS: &str = r"^https?://[^@/?# ]+$";
const HOST_AND_PORT: &str = r"^[^@/?# ]+:[0-9]{1,5}$";
const NAMESPACE: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const MANAGERS: &str =
    "!self.startsWith('mortise/') || self.matches('^mortise/[a-z0-9-]+/[a-z0-9.-]+$')";
const MEMORY: &str = r"^[1-9][0-9]{0,9}(k|Ki|M|Mi|G|Gi)?$";
const DEADLINE: &str = r"^[1-9][0-9]{0,5}(ms|s|m)$";

fn set(schema: &mut Schema, key: &str, value: impl Into<Value>) {
    schema.insert(key.to_owned(), value.into());
}

fn rule(schema: &mut Schema, rule: &str, message: &str) {
    set(schema, "x-kubernetes-validations", json!([{"rule": rule, "message": message}]));
}

fn text(schema: &mut Schema, longest: u64, pattern: &str) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", longest);
    set(schema, "pattern", pattern);
}

fn number(schema: &mut Schema, least: u32, most: u32) {
    set(schema, "format", "int32");
    set(schema, "minimum", least);
    set(schema, "maximum", most);
}

pub(super) fn one_module(schema: &mut Schema) {
    rule(
        schema,
        "has(self.image) != has(self.path)",
        "exactly one of image and path must be given",
    );
}

/// Libraries are told apart by their interfaces; each is compiled, and linked at each load.
pub(super) fn libraries(schema: &mut Schema) {
    set(schema, "maxItems", 8);
    set(schema, "x-kubernetes-list-type", "map");
    set(schema, "x-kubernetes-list-map-keys", json!(["interface"]));
}

pub(super) fn interface(schema: &mut Schema) {
    text(schema, 256, INTERFACE);
}

pub(super) fn object_name(schema: &mut Schema) {
    text(schema, 253, OBJECT_NAME);
}

pub(super) fn image(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 1024);
}

pub(super) fn pull_secrets(schema: &mut Schema) {
    set(schema, "maxItems", 8);
    set(schema, "x-kubernetes-list-type", "map");
    set(schema, "x-kubernetes-list-map-keys", json!(["name"]));
}

pub(super) fn keys(schema: &mut Schema) {
    set(schema, "minItems", 1);
    set(schema, "maxItems", 16);
    set(schema, "x-kubernetes-list-type", "atomic");
    set(schema, "items", json!({"type": "string", "minLength": 1, "maxLength": 4096}));
}

pub(super) fn module_path(schema: &mut Schema) {
    text(schema, 1024, MODULE_PATH);
}

pub(super) fn memory(schema: &mut Schema) {
    text(schema, 12, MEMORY);
}

pub(super) fn deadline(schema: &mut Schema) {
    text(schema, 8, DEADLINE);
}

pub(super) fn concurrency(schema: &mut Schema) {
    number(schema, 1, 256);
}

pub(super) fn rate(schema: &mut Schema) {
    number(schema, 1, 10_000);
}

pub(super) fn count(schema: &mut Schema) {
    set(schema, "format", "int64");
    schema.remove("minimum");
}

pub(super) fn time(schema: &mut Schema) {
    set(schema, "format", "date-time");
}

/// Each origin is granted once.
pub(super) fn egress(schema: &mut Schema) {
    set(schema, "maxItems", 32);
    set(schema, "x-kubernetes-list-type", "map");
    set(schema, "x-kubernetes-list-map-keys", json!(["origin"]));
}

pub(super) fn origin(schema: &mut Schema) {
    text(schema, 300, SERVERS);
}

pub(super) fn credentials(schema: &mut Schema) {
    set(schema, "maxItems", 16);
    set(schema, "x-kubernetes-list-type", "atomic");
}

pub(super) fn group(schema: &mut Schema) {
    set(schema, "maxLength", 253);
}

pub(super) fn kind(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 63);
}

pub(super) fn labels(schema: &mut Schema) {
    set(schema, "maxLength", 1024);
}

pub(super) fn ca_bundle(schema: &mut Schema) {
    set(schema, "minLength", 1);
    set(schema, "maxLength", 64 << 10);
}

pub(super) fn connect(schema: &mut Schema) {
    text(schema, 300, HOST_AND_PORT);
}

/// Each entry names servers, and each is compared with those of each kubeconfig.
pub(super) fn clusters(schema: &mut Schema) {
    set(schema, "maxItems", 16);
    set(schema, "x-kubernetes-list-type", "atomic");
}

pub(super) fn servers(schema: &mut Schema) {
    set(schema, "minItems", 1);
    set(schema, "maxItems", 16);
    set(schema, "x-kubernetes-list-type", "set");
    let item = json!({"type": "string", "minLength": 1, "maxLength": 512, "pattern": SERVERS});
    set(schema, "items", item);
}

pub(super) fn namespace(schema: &mut Schema) {
    text(schema, 63, NAMESPACE);
}

/// Names of field managers, as long as the API server allows. Ours are never taken from each other,
/// but in other clusters from those of another home.
pub(super) fn managers(schema: &mut Schema) {
    set(schema, "maxItems", 64);
    set(schema, "x-kubernetes-list-type", "set");
    let message = "fields of other Processors are never taken over: name the managers of a former operator, or those of a Processor of another home cluster as mortise/NAMESPACE/PROCESSOR";
    let rules = json!([{"rule": MANAGERS, "message": message}]);
    let item = json!({"type": "string", "minLength": 1, "maxLength": 128, "x-kubernetes-validations": rules});
    set(schema, "items", item);
}

/// The values without the documentation of each, which Kubernetes has no place for.
pub(super) fn plain_enum(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.remove("oneOf") else { return };
    let values: Vec<Value> = variants.iter().filter_map(|of| of.get("const").cloned()).collect();
    set(schema, "type", "string");
    set(schema, "enum", values);
}

pub(super) fn atomic(schema: &mut Schema) {
    set(schema, "x-kubernetes-list-type", "atomic");
}

pub(super) fn by_type(schema: &mut Schema) {
    set(schema, "x-kubernetes-list-type", "map");
    set(schema, "x-kubernetes-list-map-keys", json!(["type"]));
}

pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    let most = 4096;
    json_schema!({"type": "object", "maxProperties": most, "x-kubernetes-preserve-unknown-fields": true})
}

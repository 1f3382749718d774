//! The schemas of all served kinds as `OpenAPI` documents: in version 3 an index and a document for
//! each group and version, in version 2 one document for everything.
//!
//! Documents are JSON. A client that accepts nothing but the protobuf form of version 2 gets a
//! document that describes no kind: kubectl requests that form when version 3 lacks a kind (one
//! that is about to be created), and then validates nothing by itself. The built-in definitions
//! have no descriptions.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    builtin::{
        definition::PUBLISHED,
        edit::{at, members, set},
    },
    discovery::Document,
    kind::{Form, Registry, Resource, Subresource},
};

const SCHEMAS: &str = "#/components/schemas/";
const DEFINITIONS: &str = "#/definitions/";
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// The parameters of a write, and of a patch.
const WRITING: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const PATCHING: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];

/// The content type of version 2 in protobuf. Clients request it with `@v1.0`, which is no valid
/// media type; servers answer with this one.
const PROTOBUF_2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A document of version 2 in protobuf: the field `swagger` with the text `2.0`, and nothing else.
const EMPTY_2: &[u8] = b"\x0a\x032.0";

/// Answers a path below `/openapi`; `None` if nothing is served there.
pub(crate) fn answer(registry: &Registry, path: &[&str], accept: &str) -> Option<Document> {
    let found = match path {
        ["v2"] => version2(registry),
        ["v3"] => index(registry),
        ["v3", "version"] => json!({"openapi": "3.0.0", "info": info(), "paths": {}}),
        ["v3", "api", version] => version3(registry, "", version)?,
        ["v3", "apis", group, version] if !group.is_empty() => version3(registry, group, version)?,
        _ => return None,
    };
    if takes_json(accept) {
        Some(Document::Json(found))
    } else if path == ["v2"] && accept.contains("spec.v2") {
        Some(Document::Bytes(EMPTY_2, PROTOBUF_2))
    } else {
        Some(Document::NotAcceptable("application/json"))
    }
}

fn takes_json(accept: &str) -> bool {
    let types = accept.split(',').map(|part| part.split(';').next().unwrap_or("").trim());
    accept.trim().is_empty()
        || types
            .into_iter()
            .any(|kind| matches!(kind, "application/json" | "application/*" | "*/*"))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.34"})
}

/// Returns the title of a document that describes CRDs.
fn custom_info() -> Value {
    json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
}

/// Returns the path of a group and version: `api/v1`, `apis/apps/v1`.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns the index: the URL of each document, with a hash that changes with the document.
fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in &group.versions {
            let root = root(group.group, version);
            let stamps = registry.resources(group.group, version).map(|resource| resource.stamp());
            let stamp: u64 = stamps.fold(0, |sum, stamp| sum.wrapping_mul(31).wrapping_add(stamp));
            let url = format!("/openapi/v3/{root}?hash={stamp:016X}");
            paths.insert(root, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn version3(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    if !registry.has_version(group, version) {
        return None;
    }
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in registry.resources(group, version) {
        add_paths(resource, &mut paths);
        add_schemas(resource, SCHEMAS, &mut schemas);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": if registry.is_built_in(group) { info() } else { custom_info() },
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn version2(registry: &Registry) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in registry.all() {
        add_paths(resource, &mut paths);
        add_schemas(resource, DEFINITIONS, &mut schemas);
    }
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": schemas})
}

fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let base = format!("/{}", root(&resource.group, &resource.version));
    let all = format!("{base}/{}", resource.plural);
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        all.clone()
    };
    let kind = group_version_kind(resource, &resource.kind);
    let operation = |verb: &str, action: &str, parameters: &[&str]| {
        resource.verbs.contains(&verb).then(|| operation(&kind, action, parameters))
    };
    if resource.namespaced {
        insert(paths, all, [("get", operation("list", "list", &[]))]);
    }
    insert(
        paths,
        collection.clone(),
        [
            ("get", operation("list", "list", &[])),
            ("post", operation("create", "post", &WRITING)),
            ("delete", operation("deletecollection", "deletecollection", &["dryRun"])),
        ],
    );
    insert(
        paths,
        format!("{collection}/{{name}}"),
        [
            ("get", operation("get", "get", &[])),
            ("put", operation("update", "put", &WRITING)),
            ("patch", operation("patch", "patch", &PATCHING)),
            ("delete", operation("delete", "delete", &["dryRun"])),
        ],
    );
    for subresource in &resource.subresources {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        add_subresource(resource, subresource, path, paths);
    }
}

fn add_subresource(
    resource: &Resource,
    subresource: &Subresource,
    path: String,
    paths: &mut Map<String, Value>,
) {
    let kind = match &subresource.group_version {
        // Kubernetes describes the scale of a custom resource as one of its own kind.
        Some((group, version)) if !resource.is_custom() => {
            json!({"group": group, "kind": subresource.kind, "version": version})
        }
        _ => group_version_kind(resource, &resource.kind),
    };
    let operation = |verb: &str, action: &str, parameters: &[&str]| {
        subresource.verbs.contains(&verb).then(|| operation(&kind, action, parameters))
    };
    insert(
        paths,
        path,
        [
            ("get", operation("get", "get", &[])),
            ("post", operation("create", "post", &WRITING)),
            ("put", operation("update", "put", &WRITING)),
            ("patch", operation("patch", "patch", &PATCHING)),
        ],
    );
}

fn operation(kind: &Value, action: &str, parameters: &[&str]) -> Value {
    let parameters = parameters.iter().map(|name| parameter(name));
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": {"200": {"description": "OK"}},
    })
}

fn insert<const N: usize>(
    paths: &mut Map<String, Value>,
    path: String,
    operations: [(&str, Option<Value>); N],
) {
    let known =
        operations.into_iter().filter_map(|(name, operation)| Some((name.to_owned(), operation?)));
    let known: Map<String, Value> = known.collect();
    if !known.is_empty() {
        paths.insert(path, Value::Object(known));
    }
}

fn parameter(name: &str) -> Value {
    let kind = if name == "force" { "boolean" } else { "string" };
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

/// Adds the schema of a kind, that of its list, and all definitions that they refer to.
fn add_schemas(resource: &Resource, prefix: &str, schemas: &mut Map<String, Value>) {
    let name = match &resource.form {
        Form::BuiltIn(definition) => {
            let name = format!("io.k8s.{definition}");
            add_definition(&name, prefix, schemas);
            name
        }
        Form::Custom(custom) => add_custom(resource, &custom.open_api, prefix, schemas),
        Form::Untyped => {
            let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            add_custom(resource, &anything, prefix, schemas)
        }
    };
    if resource.is_stored() {
        add_definition(LIST_METADATA, prefix, schemas);
        schemas.insert(format!("{name}List"), list(resource, &name, prefix));
    }
}

/// Adds a published definition, and those that it refers to.
fn add_definition(name: &str, prefix: &str, schemas: &mut Map<String, Value>) {
    let mut waiting = vec![name.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if schemas.contains_key(&name) || !seen.insert(name.clone()) {
            continue;
        }
        let Some(definition) = PUBLISHED.get(&name) else { continue };
        let mut definition = definition.clone();
        redirect(&mut definition, prefix, &mut waiting);
        schemas.insert(name, definition);
    }
}

/// Changes the prefix of all references, and collects the names that they refer to.
fn redirect(schema: &mut Value, prefix: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str().and_then(|text| text.strip_prefix(DEFINITIONS)) {
                    Some(name) if key == "$ref" => {
                        found.push(name.to_owned());
                        *value = format!("{prefix}{name}").into();
                    }
                    _ => redirect(value, prefix, found),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, prefix, found)),
        _ => {}
    }
}

/// Returns the name of a custom kind's schema: `dev.example.widgets.v1.Widget` in the group
/// `widgets.example.dev`.
fn custom_name(resource: &Resource) -> String {
    let group: Vec<_> = resource.group.split('.').rev().collect();
    format!("{}.{}.{}", group.join("."), resource.version, resource.kind)
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const METADATA_OF_LIST: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

fn type_fields(metadata: &str, description: &str, prefix: &str) -> Map<String, Value> {
    let fields = json!({
        "apiVersion": {"type": "string", "description": API_VERSION},
        "kind": {"type": "string", "description": KIND},
        "metadata": {"allOf": [{"$ref": format!("{prefix}{metadata}")}], "description": description},
    });
    members(&fields).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn add_custom(
    resource: &Resource,
    open_api: &Value,
    prefix: &str,
    schemas: &mut Map<String, Value>,
) -> String {
    let name = custom_name(resource);
    add_definition(METADATA, prefix, schemas);
    let mut schema = open_api.clone();
    // Version 2 cannot express alternatives.
    if prefix == SCHEMAS {
        add_alternatives(&mut schema);
    }
    let mut properties = type_fields(METADATA, OBJECT_METADATA, prefix);
    for (key, value) in members(at(&schema, &["properties"])) {
        properties.entry(key.clone()).or_insert_with(|| value.clone());
    }
    set(&mut schema, "properties", Value::Object(properties));
    set(
        &mut schema,
        "x-kubernetes-group-version-kind",
        json!([group_version_kind(resource, &resource.kind)]),
    );
    schemas.insert(name.clone(), schema);
    name
}

/// Adds the alternatives that `x-kubernetes-int-or-string` stands for.
fn add_alternatives(schema: &mut Value) {
    let has_none = schema.get("anyOf").is_none() && schema.get("allOf").is_none();
    if schema["x-kubernetes-int-or-string"] == true && has_none {
        set(schema, "anyOf", json!([{"type": "integer"}, {"type": "string"}]));
    }
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    fields.into_iter().flat_map(Map::values_mut).for_each(add_alternatives);
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(key).filter(|inner| inner.is_object()) {
            add_alternatives(inner);
        }
    }
}

fn group_version_kind(resource: &Resource, kind: &str) -> Value {
    json!({"group": resource.group, "kind": kind, "version": resource.version})
}

fn list(resource: &Resource, item: &str, prefix: &str) -> Value {
    let mut properties = type_fields(LIST_METADATA, METADATA_OF_LIST, prefix);
    let Resource { kind, list_kind, plural, .. } = resource;
    let mut items = json!({"type": "array", "items": {"$ref": format!("{prefix}{item}")}});
    if resource.is_custom() {
        set(&mut items, "description", format!("List of {plural}. More info: {CONVENTIONS}"));
    }
    properties.insert("items".to_owned(), items);
    let mut list = json!({"type": "object", "required": ["items"], "properties": properties});
    set(
        &mut list,
        "x-kubernetes-group-version-kind",
        json!([group_version_kind(resource, list_kind)]),
    );
    if resource.is_custom() {
        set(&mut list, "description", format!("{list_kind} is a list of {kind}"));
    }
    list
}

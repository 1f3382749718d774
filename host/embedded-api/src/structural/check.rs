//! Validation of the schemas of CRDs.

mod default;
mod list;
mod root;
mod rule;
mod structure;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::Node;
use crate::field_error::{FieldError, FieldPath, Shown};

/// The types of `OpenAPI`, in the order in which messages list them.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The keywords that schemas in general can have, but not those of custom resources.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Validates the `openAPIV3Schema` of one version; `path` is the path of the schema, and `status`
/// says that there is a status subresource.
pub(crate) fn check(schema: &Value, path: &FieldPath<'_>, status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(root) = schema.as_object() else { return errors };
    if status {
        errors.extend(root::check(root, path));
    }
    if flag(root, "nullable") {
        errors.push(FieldError::forbidden(
            path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let unsupported = first_unsupported(root);
    let mut structural = false;
    if unsupported.is_none() {
        let faults = structure::check(schema, path);
        let faults = if faults.is_empty() { default::check(schema, path) } else { faults };
        structural = faults.is_empty();
        errors.extend(faults);
    }
    let node = Node::compile(schema);
    let mut found = Faults::default();
    let scope = Scope { rules: structural, root: true, ..Scope::default() };
    visit(schema, Some(&node), scope, path, &mut found);
    errors.append(&mut found.schema);
    errors.append(&mut found.rules);
    if errors.is_empty()
        && let Some(name) = unsupported
    {
        errors.push(FieldError::invalid(
            path,
            "",
            format!("OpenAPIV3Schema '{name}' is not supported"),
        ));
    }
    errors
}

/// Errors of the schema, and those of rules, which come after them.
#[derive(Default)]
struct Faults {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

/// The context of a place in the schema, from the places around it.
#[derive(Clone, Copy, Default)]
struct Scope<'a> {
    /// True if rules are validated: the schema is structural, and the place is not below a junctor.
    rules: bool,
    root: bool,
    /// True inside of `metadata`, `kind` or `apiVersion` of a resource.
    in_meta: bool,
    /// The reason for which defaults are forbidden, if they are.
    no_defaults: Option<&'a str>,
    /// The place below which old and new values cannot be compared, if any.
    incomparable: Option<&'a FieldPath<'a>>,
}

fn visit(
    schema: &Value,
    node: Option<&Node>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    found: &mut Faults,
) {
    let Some(map) = schema.as_object() else { return };
    let before = found.schema.len();
    standard(map, scope, path, &mut found.schema);
    if flag(map, "uniqueItems") {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.schema.push(FieldError::forbidden(path.child("uniqueItems"), detail));
    }
    visit_additional(map, node, scope, path, found);
    visit_properties(map, node, scope, path, found);
    visit_junctors(map, scope, path, found);
    visit_items(map, node, scope, path, found);
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let here = path.child("x-kubernetes-preserve-unknown-fields");
        found.schema.push(FieldError::invalid(here, false, "must be true or undefined"));
    }
    list::check(map, path, &mut found.schema);
    let Some(rules) = map.get("x-kubernetes-validations").and_then(Value::as_array) else { return };
    let here = path.child("x-kubernetes-validations");
    rule::check_texts(rules, schema, &here, &mut found.schema);
    let clean = found.schema.len() == before;
    if let Some(node) = node.filter(|_| clean && scope.rules) {
        let place = rule::Place {
            node,
            resource: scope.root || node.embedded,
            incomparable: scope.incomparable,
        };
        rule::check_programs(rules, place, &here, &mut found.rules);
    }
}

/// Refuses what `OpenAPI` allows and custom resources do not.
fn standard(
    map: &Map<String, Value>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(map, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.child("type"), kind, TYPES));
    }
    if let Some(reason) = scope.no_defaults
        && is_set(map, "default")
    {
        errors.push(FieldError::forbidden(
            path.child("default"),
            format!("must not be set {reason}"),
        ));
    }
    for name in UNSUPPORTED.into_iter().filter(|name| is_set(map, name)) {
        errors.push(FieldError::forbidden(path.child(name), format!("{name} is not supported")));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(path.child("type"), detail));
    }
    if map.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            path.child("items"),
            "items must be a schema object and not an array",
        ));
    }
    if scope.in_meta && flag(map, "x-kubernetes-embedded-resource") {
        let here = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(here, "must not be used inside of resource meta"));
    }
}

fn visit_additional(
    map: &Map<String, Value>,
    node: Option<&Node>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    found: &mut Faults,
) {
    let Some(additional) =
        map.get("additionalProperties").filter(|additional| !additional.is_null())
    else {
        return;
    };
    let here = path.child("additionalProperties");
    if !is_empty(map, "properties") && *additional != Value::Bool(true) {
        found.schema.push(FieldError::forbidden(
            here,
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    let no_defaults = if scope.in_meta {
        Some("inside additionalProperties applying to object metadata")
    } else {
        scope.no_defaults
    };
    let below = Scope { root: false, no_defaults, ..scope };
    visit(additional, node.and_then(Node::values), below, &here, found);
}

fn visit_properties(
    map: &Map<String, Value>,
    node: Option<&Node>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    found: &mut Faults,
) {
    let Some(properties) = map.get("properties").and_then(Value::as_object) else { return };
    let here = path.child("properties");
    let is_resource = scope.root || flag(map, "x-kubernetes-embedded-resource");
    for (name, schema) in properties {
        let meta = is_resource && super::prune::META_FIELDS.contains(&name.as_str());
        let reason = format!("in top-level {name}");
        let below = Scope {
            root: false,
            in_meta: scope.in_meta || meta,
            no_defaults: if meta && scope.root { Some(&reason) } else { scope.no_defaults },
            incomparable: scope
                .incomparable
                .or((text(map, "x-kubernetes-map-type") == "atomic").then_some(path)),
            ..scope
        };
        let child = node.and_then(|node| node.properties.get(name));
        visit(schema, child, below, &here.key(name), found);
    }
}

fn visit_junctors(
    map: &Map<String, Value>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    found: &mut Faults,
) {
    let below = Scope { root: false, rules: false, ..scope };
    if let Some(not) = map.get("not") {
        visit(not, None, below, &path.child("not"), found);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        let here = path.child(name);
        for (index, schema) in
            map.get(name).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            visit(schema, None, below, &here.index(index), found);
        }
    }
}

fn visit_items(
    map: &Map<String, Value>,
    node: Option<&Node>,
    scope: Scope<'_>,
    path: &FieldPath<'_>,
    found: &mut Faults,
) {
    let Some(items) = map.get("items") else { return };
    let comparable = text(map, "x-kubernetes-list-type") == "map";
    let below = Scope {
        root: false,
        incomparable: scope.incomparable.or((!comparable).then_some(path)),
        ..scope
    };
    let here = path.child("items");
    match items {
        Value::Array(several) => {
            several
                .iter()
                .enumerate()
                .for_each(|(index, schema)| visit(schema, None, below, &here.index(index), found));
        }
        schema => visit(schema, node.and_then(|node| node.items.as_deref()), below, &here, found),
    }
}

/// Returns the keyword, if any, because of which the schema cannot be read as a structural one at
/// all.
fn first_unsupported(map: &Map<String, Value>) -> Option<&'static str> {
    let names = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
    ];
    let more = [
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let here =
        names.into_iter().chain(more).find(|(key, _)| is_set(map, key)).map(|(_, name)| name);
    let here = here.or_else(|| map.get("items").is_some_and(Value::is_array).then_some("items"));
    here.or_else(|| {
        children(map).find_map(|(_, schema)| schema.as_object().and_then(first_unsupported))
    })
}

/// Returns the schemas directly below a place, each with its key.
fn children(map: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    map.iter().flat_map(|(key, value)| -> Box<dyn Iterator<Item = (&str, &Value)>> {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                Box::new(properties.values().map(|schema| ("properties", schema)))
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(several)) => {
                Box::new(several.iter().map(|schema| (key.as_str(), schema)))
            }
            ("not" | "items" | "additionalProperties", Value::Object(_)) => {
                Box::new(std::iter::once((key.as_str(), value)))
            }
            _ => Box::new(std::iter::empty()),
        }
    })
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns whether a key has a value; for most keys null, false, and empty texts and objects count
/// as none.
fn is_set(map: &Map<String, Value>, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => {
            key == "default" && map.get(key).is_some_and(Value::is_boolean)
        }
        Some(Value::String(text)) => !text.is_empty() || key == "default",
        Some(Value::Object(map)) => {
            !map.is_empty() || matches!(key, "default" | "dependencies" | "additionalItems")
        }
        Some(_) => true,
    }
}

fn is_empty(map: &Map<String, Value>, key: &str) -> bool {
    match map.get(key) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(value) => value.is_null(),
        None => true,
    }
}

/// Returns a list of texts as messages show it.
fn shown_list(list: Option<&Value>) -> Shown {
    list.map_or_else(|| Shown::Raw("null".to_owned()), |list| Shown::Value(list.clone()))
}

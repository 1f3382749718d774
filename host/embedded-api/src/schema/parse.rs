//! Conversion of `OpenAPI` schemas to types.

use std::sync::Arc;

use serde_json::Value;

use super::{Atom, Field, List, Map, OBJECT_META, Relation, Scalar, Strategy, Type, UNTYPED};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The defaults of keys of list maps that only the newer `OpenAPI` document publishes: definition,
/// field, default.
const KEY_DEFAULTS: [(&str, &str, &str); 3] = [
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name", ""),
];

/// The context of a walk into a schema.
#[derive(Debug, Clone, Copy)]
struct Context {
    /// True if objects without `additionalProperties` accept unknown fields.
    preserve_unknown: bool,
    /// True for a built-in type: a required field without a default counts as its zero value.
    built_in: bool,
}

/// Returns the atom of a built-in definition.
pub(super) fn definition(name: &str, source: &Value) -> Atom {
    match name {
        QUANTITY => Atom { scalar: Some(Scalar::Untyped), ..Atom::default() },
        // The newer `OpenAPI` document, which Kubernetes reads, has no type for it: the value
        // decides between number and text.
        INT_OR_STRING => atom(&Value::Null, Context { preserve_unknown: false, built_in: true }),
        // The value is decoded and encoded unchanged.
        RAW_EXTENSION => UNTYPED.clone(),
        _ => {
            let mut atom = atom(source, Context { preserve_unknown: false, built_in: true });
            add_key_defaults(name, &mut atom);
            atom
        }
    }
}

fn add_key_defaults(definition: &str, atom: &mut Atom) {
    for (_, key, default) in KEY_DEFAULTS.iter().filter(|(name, ..)| *name == definition) {
        let fields = atom.map.iter_mut().flat_map(|map| &mut map.fields);
        for field in fields.filter(|field| field.name == *key) {
            field.default = Some(Value::from(*default));
        }
    }
}

/// Returns the root type of a custom resource: that of the CRD, with the fields that all objects
/// have.
pub(super) fn custom_root(source: &Value, preserve_unknown: bool) -> Type {
    let context = Context { preserve_unknown, built_in: false };
    let mut atom = atom(source, context);
    let mut map = atom.map.take().unwrap_or_default();
    add_object_fields(&mut map);
    Type::inline(Atom { map: Some(map), ..Atom::default() })
}

/// Returns the `apiVersion`s and kinds that a definition describes.
pub(super) fn kinds_of(source: &Value) -> Vec<(String, String)> {
    let kinds = source.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
    let of = |kind: &Value| {
        let text = |key| kind.get(key).and_then(Value::as_str);
        let (group, version) = (text("group")?, text("version")?);
        let api_version = match group {
            "" => version.to_owned(),
            _ => format!("{group}/{version}"),
        };
        Some((api_version, text("kind")?.to_owned()))
    };
    kinds.into_iter().flatten().filter_map(of).collect()
}

fn atom(source: &Value, mut context: Context) -> Atom {
    context.preserve_unknown |= flag(source, "x-kubernetes-preserve-unknown-fields");
    match text(source, "type") {
        None => Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(list(source, context)),
            map: Some(map(source, context)),
        },
        Some("object") => Atom { map: Some(map(source, context)), ..Atom::default() },
        Some("array") => Atom { list: Some(list(source, context)), ..Atom::default() },
        Some(primitive) => {
            Atom { scalar: Some(scalar(primitive, text(source, "format"))), ..Atom::default() }
        }
    }
}

fn scalar(primitive: &str, format: Option<&str>) -> Scalar {
    match (primitive, format) {
        ("integer" | "number", _) => Scalar::Numeric,
        ("boolean", _) => Scalar::Boolean,
        ("string", None | Some("" | "byte")) => Scalar::String,
        _ => Scalar::Untyped,
    }
}

fn type_of(source: &Value, context: Context) -> Type {
    let inherited = source.get("allOf").and_then(Value::as_array);
    let single = inherited.filter(|all| all.len() == 1).and_then(|all| all.first());
    let reference = text(source, "$ref").or_else(|| text(single?, "$ref"));
    match reference.and_then(|reference| reference.rsplit('/').next()) {
        Some(name) => Type::named(name, atomic_map(source)),
        None => Type::inline(atom(source, context)),
    }
}

fn list(source: &Value, context: Context) -> List {
    let items = source.get("items").map_or_else(Type::default, |items| type_of(items, context));
    List { items: Arc::new(items), relation: relation(source), strategy: strategy(source) }
}

fn relation(source: &Value) -> Relation {
    if let Some(kind) = text(source, "x-kubernetes-list-type") {
        return match kind {
            "set" => Relation::Set,
            "map" => Relation::Map(map_keys(source)),
            _ => Relation::Atomic,
        };
    }
    match strategy(source) {
        Strategy { merge: true, key: Some(key), .. } => Relation::Map(vec![key]),
        Strategy { merge: true, .. } => Relation::Set,
        Strategy { .. } => Relation::Atomic,
    }
}

fn map_keys(source: &Value) -> Vec<String> {
    let keys = source.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let names = keys.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

fn strategy(source: &Value) -> Strategy {
    let words = text(source, "x-kubernetes-patch-strategy").unwrap_or_default();
    let has = |word| words.split(',').any(|each| each == word);
    Strategy {
        merge: has("merge"),
        key: text(source, "x-kubernetes-patch-merge-key").map(str::to_owned),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
    }
}

fn map(source: &Value, context: Context) -> Map {
    let properties = source.get("properties").and_then(Value::as_object);
    let declared = properties.into_iter().flatten();
    let mut fields: Vec<Field> =
        declared.map(|(name, field_source)| field(source, name, field_source, context)).collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let rest = match source.get("additionalProperties") {
        None if context.preserve_unknown || fields.is_empty() => Some(Type::deduced()),
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(Type::deduced()),
        Some(other) => Some(type_of(other, context)),
    };
    let mut map =
        Map { fields, rest: rest.map(Arc::new), atomic: atomic_map(source).unwrap_or_default() };
    if flag(source, "x-kubernetes-embedded-resource") {
        add_object_fields(&mut map);
    }
    map
}

fn field(parent: &Value, name: &str, source: &Value, context: Context) -> Field {
    let required = || {
        let names = parent.get("required").and_then(Value::as_array);
        names.into_iter().flatten().any(|each| each == name)
    };
    let zero = || if context.built_in && required() { zero_value(source) } else { None };
    Field {
        name: name.to_owned(),
        type_: Arc::new(type_of(source, context)),
        default: source.get("default").cloned().or_else(zero),
        strategy: strategy(source),
    }
}

/// Returns the value of an unset required field of a built-in type.
fn zero_value(source: &Value) -> Option<Value> {
    match text(source, "type")? {
        "string" => Some(Value::from("")),
        "integer" | "number" => Some(Value::from(0)),
        "boolean" => Some(Value::from(false)),
        _ => None,
    }
}

/// Adds `apiVersion`, `kind` and `metadata`, replacing those of the schema.
fn add_object_fields(map: &mut Map) {
    let text = || Type::inline(Atom { scalar: Some(Scalar::String), ..Atom::default() });
    let fields =
        [("apiVersion", text()), ("kind", text()), ("metadata", Type::named(OBJECT_META, None))];
    for (name, type_) in fields {
        map.fields.retain(|field| field.name != name);
        map.fields.push(Field {
            name: name.to_owned(),
            type_: Arc::new(type_),
            default: None,
            strategy: Strategy::default(),
        });
    }
    map.fields.sort_by(|a, b| a.name.cmp(&b.name));
}

fn atomic_map(source: &Value) -> Option<bool> {
    text(source, "x-kubernetes-map-type").map(|kind| kind == "atomic")
}

fn flag(source: &Value, key: &str) -> bool {
    source.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn text<'a>(source: &'a Value, key: &str) -> Option<&'a str> {
    source.get(key).and_then(Value::as_str)
}

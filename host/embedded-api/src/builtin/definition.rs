//! The types of the built-in kinds: their fields, the types of these, and the fields that are
//! written although they are empty.
//!
//! The types are made from two tables: `schemas-1.34.json`, the definitions of the `OpenAPI`
//! document without their descriptions, and `shapes-1.34.json`, which has for each definition what
//! the document lacks: `always`, the fields that are written even when they are absent, with the
//! value that stands for absence; and `keep`, the texts, numbers and booleans for which absence and
//! emptiness differ. All other fields are omitted when empty.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use serde_json::Value;

/// The published definitions, by full name.
pub(crate) static PUBLISHED: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../schemas-1.34.json")).expect("the file is a JSON object")
});

static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(Definitions::load);

/// Definitions by group, version and kind.
static KINDS: LazyLock<HashMap<(String, String, String), &'static str>> = LazyLock::new(|| {
    let mut kinds = HashMap::new();
    for (name, definition) in PUBLISHED.iter() {
        for kind in definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let text = |key: &str| kind[key].as_str().unwrap_or("").to_owned();
            kinds.insert((text("group"), text("version"), text("kind")), name.as_str());
        }
    }
    kinds
});

/// A type of the definitions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    Object(usize),
    List(Box<Shape>),
    Map(Box<Shape>),
    Text,
    /// Bytes in base64.
    Bytes,
    /// A time with seconds, or with microseconds.
    Time {
        micro: bool,
    },
    Quantity,
    IntOrText,
    /// An integer of 64 bits, or of 32.
    Integer {
        long: bool,
    },
    Number,
    Boolean,
    /// Any value, kept unchanged.
    Any,
    /// An object of that type, or any other value.
    ObjectOr(usize),
}

/// A field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    /// True if an empty text, zero or false differs from absence.
    pub(crate) keep: bool,
    /// The value that is written when the field is absent, if any.
    pub(crate) always: Option<Value>,
}

/// The fields of an object.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// The name of the type in Go, with its package: `v1.Pod`.
    pub(crate) name: String,
    pub(crate) fields: BTreeMap<String, Field>,
}

struct Definitions {
    names: HashMap<String, usize>,
    order: Vec<&'static str>,
    objects: Vec<Object>,
}

/// Returns the object type of a definition: `api.core.v1.Pod`, with or without the prefix
/// `io.k8s.`.
pub(crate) fn find(name: &str) -> Option<&'static Object> {
    DEFINITIONS
        .names
        .get(name.strip_prefix("io.k8s.").unwrap_or(name))
        .and_then(|&index| object(index))
}

/// Returns the name of a kind's definition.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let key = (group.to_owned(), version.to_owned(), kind.to_owned());
    KINDS.get(&key).map(|name| short(name))
}

/// Returns the name of the definition that a shape refers to.
pub(crate) fn name(index: usize) -> Option<&'static str> {
    DEFINITIONS.order.get(index).copied()
}

/// Returns the object type that a shape refers to.
pub(crate) fn object(index: usize) -> Option<&'static Object> {
    DEFINITIONS.objects.get(index)
}

// === impl Definitions ===

impl Definitions {
    fn load() -> Self {
        let shapes: BTreeMap<String, Value> =
            serde_json::from_str(include_str!("../shapes-1.34.json"))
                .expect("the file is a JSON object");
        let names = PUBLISHED.keys().enumerate();
        let names = names.map(|(index, name)| (short(name).to_owned(), index)).collect();
        let order = PUBLISHED.keys().map(|name| short(name)).collect();
        let mut definitions = Self { names, order, objects: Vec::new() };
        for (name, definition) in PUBLISHED.iter() {
            let object = definitions.object(name, definition, shapes.get(name));
            definitions.objects.push(object);
        }
        definitions
    }

    fn object(&self, name: &str, definition: &Value, extra: Option<&Value>) -> Object {
        let keep = extra.and_then(|extra| extra["keep"].as_array());
        let always = extra.and_then(|extra| extra["always"].as_object());
        let properties = definition["properties"].as_object().into_iter().flatten();
        let fields = properties.map(|(name, property)| {
            let field = Field {
                shape: self.shape(property),
                keep: keep.is_some_and(|keep| keep.iter().any(|kept| kept == name)),
                always: always.and_then(|always| always.get(name)).cloned(),
            };
            (name.clone(), field)
        });
        let package = name.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
        let name = name.get(package..).unwrap_or(name).to_owned();
        Object { name, fields: fields.collect() }
    }

    fn shape(&self, schema: &Value) -> Shape {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.reference(short(reference.rsplit('/').next().unwrap_or(reference)));
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("string"), Some("byte")) => Shape::Bytes,
            (Some("string"), _) => Shape::Text,
            (Some("integer"), format) => Shape::Integer { long: format == Some("int64") },
            (Some("number"), _) => Shape::Number,
            (Some("boolean"), _) => Shape::Boolean,
            (Some("array"), _) => Shape::List(Box::new(self.shape(&schema["items"]))),
            (Some("object"), _) if schema["additionalProperties"].is_object() => {
                Shape::Map(Box::new(self.shape(&schema["additionalProperties"])))
            }
            _ => Shape::Any,
        }
    }

    fn reference(&self, name: &str) -> Shape {
        let props = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        match name.rsplit('.').next().unwrap_or(name) {
            "Quantity" => Shape::Quantity,
            "IntOrString" => Shape::IntOrText,
            "Time" => Shape::Time { micro: false },
            "MicroTime" => Shape::Time { micro: true },
            "JSON" | "RawExtension" | "FieldsV1" | "JSONSchemaPropsOrStringArray" => Shape::Any,
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" => {
                self.names.get(props).map_or(Shape::Any, |&index| Shape::ObjectOr(index))
            }
            _ => self.names.get(name).map_or(Shape::Any, |&index| Shape::Object(index)),
        }
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("io.k8s.").unwrap_or(name)
}

//! Values for a schema: mostly valid, from few alternatives so that they coincide, and sometimes
//! invalid.

use std::collections::BTreeSet;

use proptest::{
    collection::vec,
    option,
    prelude::{BoxedStrategy, Just, Strategy as _},
    prop_oneof, sample,
};
use serde_json::{Map, Value, json};

/// The keys of maps, and all texts.
const TEXTS: [&str; 3] = ["a", "b", "c"];
/// The average number of fields of a record that are present.
const FIELDS: f64 = 3.5;
/// The probability that a required field is present: high enough that most objects are valid.
const REQUIRED: f64 = 0.97;

/// Generates a value for a place with this schema.
pub(super) fn value(schema: &Value) -> BoxedStrategy<Value> {
    prop_oneof![
        196 => right(schema),
        3 => Just(Value::Null),
        1 => sample::select(vec![json!("wrong"), json!(7), json!([]), json!({})]),
    ]
    .boxed()
}

/// Generates an object with this schema: the fields beside `apiVersion`, `kind` and `metadata`.
pub(super) fn fields(schema: &Value) -> BoxedStrategy<Map<String, Value>> {
    let as_map = |value| match value {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    record(schema).prop_map(as_map).boxed()
}

fn right(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return sample::select(values.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return sample::select(vec![json!(1), json!(2), json!("1"), json!("50%")]).boxed();
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return embedded(schema);
    }
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match schema["type"].as_str() {
        Some("object") if is_open => opened(schema),
        Some("object") if schema["additionalProperties"].is_object() => map(schema),
        Some("object") => record(schema),
        Some("array") => list(schema),
        Some("integer") => (0..3).prop_map(|number| json!(number)).boxed(),
        Some("number") => sample::select(vec![json!(1), json!(1.0), json!(0.5)]).boxed(),
        Some("boolean") => sample::select(vec![json!(true), json!(false)]).boxed(),
        Some("string") => sample::select(&TEXTS[..]).prop_map(Value::from).boxed(),
        _ => anything(),
    }
}

fn record(schema: &Value) -> BoxedStrategy<Value> {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let count = u32::try_from(properties.len().max(1)).map_or(1.0, f64::from);
    let chance = (FIELDS / count).min(0.6);
    let mut fields: Vec<BoxedStrategy<Option<(String, Value)>>> = Vec::new();
    for (name, schema) in properties {
        let chance = if required.contains(&json!(name)) { REQUIRED } else { chance };
        let field = value(&schema).prop_map(move |value| (name.clone(), value));
        fields.push(option::weighted(chance, field).boxed());
    }
    let unknown = Just(("unknown".to_owned(), json!("x")));
    fields.push(option::weighted(0.01, unknown).boxed());
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

fn map(schema: &Value) -> BoxedStrategy<Value> {
    let entry = (sample::select(&TEXTS[..]), value(&schema["additionalProperties"]));
    let entries = vec(entry.prop_map(|(key, value)| (key.to_owned(), value)), 0..3);
    entries.prop_map(|entries| Value::Object(entries.into_iter().collect())).boxed()
}

fn list(schema: &Value) -> BoxedStrategy<Value> {
    let least = usize::from(schema["minItems"].is_number());
    let items = vec(value(&schema["items"]), least..4);
    let keys: Vec<String> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => serde_json::from_value(schema["x-kubernetes-list-map-keys"].clone())
            .expect("the keys of a list of type map are texts"),
        Some("set") => Vec::new(),
        _ => return items.prop_map(Value::Array).boxed(),
    };
    // Mostly without items of the same key.
    let defaults = schema["items"]["properties"].clone();
    let distinct = move |items: Vec<Value>| {
        let identity = |item: &Value| {
            let of = |key: &String| match &item[key] {
                Value::Null => defaults[key]["default"].clone(),
                value => value.clone(),
            };
            if keys.is_empty() {
                item.to_string()
            } else {
                format!("{:?}", keys.iter().map(of).collect::<Vec<_>>())
            }
        };
        let mut seen = BTreeSet::new();
        items.into_iter().filter(|item| seen.insert(identity(item))).collect()
    };
    prop_oneof![30 => items.clone().prop_map(distinct), 1 => items].prop_map(Value::Array).boxed()
}

/// Generates an object that may have more fields than its schema.
fn opened(schema: &Value) -> BoxedStrategy<Value> {
    let more = option::weighted(0.5, (sample::select(&["x", "y"][..]), anything()));
    (record(schema), more)
        .prop_map(|(mut value, more)| {
            if let (Some(fields), Some((key, more))) = (value.as_object_mut(), more) {
                fields.insert(key.to_owned(), more);
            }
            value
        })
        .boxed()
}

fn embedded(schema: &Value) -> BoxedStrategy<Value> {
    let spec = if schema["properties"].is_object() {
        value(&schema["properties"]["spec"])
    } else {
        anything()
    };
    let labels = option::of(map(&json!({"additionalProperties": {"type": "string"}})));
    let whole =
        (sample::select(&TEXTS[..]), labels, option::of(spec), option::weighted(0.9, Just(())));
    let build = |(name, labels, spec, is_typed): (_, Option<Value>, Option<Value>, Option<()>)| {
        let mut object = json!({"metadata": {"name": name}});
        if is_typed.is_some() {
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("Inner");
        }
        if let Some(labels) = labels {
            object["metadata"]["labels"] = labels;
        }
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        object
    };
    whole.prop_map(build).boxed()
}

/// Generates a value for a place without a schema.
fn anything() -> BoxedStrategy<Value> {
    let leaf = sample::select(vec![json!("a"), json!("b"), json!(1), json!(true), json!(0.5)]);
    let map = |inner: BoxedStrategy<Value>| {
        let key = sample::select(&TEXTS[..]).prop_map(str::to_owned);
        vec((key, inner), 0..3).prop_map(|entries| Value::Object(entries.into_iter().collect()))
    };
    let list = |inner: BoxedStrategy<Value>| vec(inner, 0..3).prop_map(Value::Array);
    let flat = prop_oneof![4 => leaf, 1 => Just(Value::Null)].boxed();
    let inner =
        prop_oneof![3 => flat.clone(), 1 => map(flat.clone()), 1 => list(flat.clone())].boxed();
    prop_oneof![3 => flat, 2 => map(inner.clone()), 2 => list(inner)].boxed()
}

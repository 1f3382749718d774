//! The definitions as they stand in `crds/`.

use kube::CustomResourceExt as _;
use serde_json::Value;

use super::Processor;

/// The `CustomResourceDefinition` of the Processor.
pub fn processors() -> Value {
    // A definition is made of texts, numbers and booleans: there is nothing in it that JSON cannot
    // hold.
    let mut definition = serde_json::to_value(Processor::crd()).unwrap_or_default();
    tidy(&mut definition);
    definition
}

/// Takes away what derived schemas say too much: that what may be absent may be null as well, that
/// nothing is the default of what is absent, that a bound is no whole number.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(Value::is_string) {
                fields.remove("nullable");
                fields.remove("title");
                fields.retain(|key, value| key != "default" || says_something(value));
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|_| number.is_f64()).filter(|of| of.fract() == 0.0);
            if let Some(whole) = whole.and_then(|of| format!("{of:.0}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

fn says_something(default: &Value) -> bool {
    default.as_str() != Some("") && default.as_i64() != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk<'a>(value: &'a Value, see: &mut dyn FnMut(&'a serde_json::Map<String, Value>)) {
        match value {
            Value::Object(fields) => {
                see(fields);
                fields.values().for_each(|value| walk(value, see));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, see)),
            _ => {}
        }
    }

    #[test]
    fn a_status_requires_only_condition_types_and_has_no_defaults() {
        let definition = processors();
        let status = definition
            .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status")
            .unwrap();
        let mut required = Vec::new();
        walk(status, &mut |fields| required.extend(fields.get("required")));
        assert_eq!(required, [&serde_json::json!(["type"])]);
        let mut defaults = 0;
        walk(status, &mut |fields| defaults += usize::from(fields.contains_key("default")));
        assert_eq!(defaults, 0, "what the host does not say is not said for it");
    }

    #[test]
    fn every_field_is_described() {
        let definition = processors();
        let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
        let mut plain = Vec::new();
        walk(schema, &mut |fields| {
            let properties = fields.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                if property.get("description").is_none() {
                    plain.push(name.clone());
                }
            }
        });
        assert_eq!(plain, Vec::<String>::new());
    }
}

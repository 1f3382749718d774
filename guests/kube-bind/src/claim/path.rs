//! Places in objects, in the dot syntax of gjson: `spec.secretRefs.#.name`.
//!
//! Of that syntax, keys, indexes and `#` are known, and `\` before a sign. Anything else, such as
//! `[*]`, is a key that no object has.

use serde_json::Value;

use crate::mark;

/// The most values that one place has.
const MAX_VALUES: usize = 10_000;

/// Returns the texts at a place, trimmed: numbers and booleans as text, the items of lists singly.
pub(crate) fn lookup(object: &Value, path: &str) -> Vec<String> {
    let mut values = vec![object];
    for part in parts(path) {
        let step = values.into_iter().flat_map(|value| step(value, &part));
        values = step.take(MAX_VALUES).collect();
    }
    let items = values.into_iter().flat_map(|value| match value {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    });
    items.filter_map(text).take(MAX_VALUES).collect()
}

fn step<'a>(value: &'a Value, part: &str) -> Vec<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(part).into_iter().collect(),
        Value::Array(items) if part == "#" => items.iter().collect(),
        Value::Array(items) => {
            part.parse::<usize>().ok().and_then(|index| items.get(index)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(is_so.to_string()),
        _ => None,
    }
}

/// Returns the place in the notation of the contract, if it has one there.
pub(crate) fn to_path(path: &str) -> Option<String> {
    let mut text = String::new();
    for part in parts(path) {
        if part == "#" {
            text.push_str("[]");
        } else if part.parse::<usize>().is_ok() {
            return None;
        } else if part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(&part);
        } else {
            text = mark::path(&text, &part);
        }
    }
    (!text.is_empty() && !text.starts_with('[')).then_some(text)
}

/// Splits a place at its dots.
fn parts(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut signs = path.chars();
    while let Some(sign) = signs.next() {
        let sign = match sign {
            '.' => {
                parts.push(String::new());
                continue;
            }
            '\\' => signs.next(),
            other => Some(other),
        };
        if let Some(part) = parts.last_mut() {
            part.extend(sign);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_found_in_the_syntax_of_gjson() {
        let object = json!({"spec": {
            "secretName": " a ", "names": ["a", "b"], "port": 80, "a.b": "dot",
            "refs": [{"name": "a", "keys": ["x"]}, {"name": "b", "keys": ["y", "z"]}, {}],
        }});
        let cases: [(&str, &[&str]); 9] = [
            ("spec.secretName", &["a"]),
            ("spec.names", &["a", "b"]),
            ("spec.names.1", &["b"]),
            ("spec.refs.#.name", &["a", "b"]),
            ("spec.refs.#.keys", &["x", "y", "z"]),
            ("spec.port", &["80"]),
            (r"spec.a\.b", &["dot"]),
            ("spec.refs[*].name", &[]),
            ("spec.none", &[]),
        ];
        for (path, expected) in cases {
            assert_eq!(lookup(&object, path), expected, "{path}");
        }
    }

    #[test]
    fn places_are_translated_into_the_notation_of_the_contract() {
        let cases = [
            ("spec.secretName", Some("spec.secretName")),
            ("spec.refs.#.name", Some("spec.refs[].name")),
            (r"spec.a\.b", Some(r#"spec["a.b"]"#)),
            ("spec.names.1", None),
            ("#.name", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(to_path(path).as_deref(), expected, "{path}");
        }
    }
}

//! Places in objects, in the dot syntax of gjson: `spec.secretRefs.#.name`.
//!
//! Of that syntax, keys, indexes and `#` are known, and `\` before a sign. Anything else, such as
//! `[*]`, is a key that no object has.

use serde_json::Value;

use crate::mark;

/// The most values that one place has.
const MAX_VALUES: usize = 10_000;

/// Returns the texts at a place, trimmed: numbers and booleans as text, the items of a list singly,
/// but not those of lists in it. `None` if there is no such place.
pub(crate) fn lookup(object: &Value, path: &str) -> Option<Vec<String>> {
    Some(match find(object, &parts(path))? {
        Value::Array(items) => items.iter().take(MAX_VALUES).filter_map(text).collect(),
        value => text(&value).into_iter().collect(),
    })
}

/// Returns the value at a place. `#` stands for each item of a list, and the place is a list then,
/// whatever the items have; at the end it is their number.
fn find(value: &Value, parts: &[String]) -> Option<Value> {
    let Some((part, rest)) = parts.split_first() else { return Some(value.clone()) };
    match value {
        Value::Object(fields) => find(fields.get(part)?, rest),
        Value::Array(items) if part == "#" && rest.is_empty() => Some(items.len().into()),
        Value::Array(items) if part == "#" => {
            Some(items.iter().filter_map(|item| find(item, rest)).collect())
        }
        Value::Array(items) => find(items.get(part.parse::<usize>().ok()?)?, rest),
        _ => None,
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
        let cases: [(&str, Option<&[&str]>); 12] = [
            ("spec.secretName", Some(&["a"])),
            ("spec.names", Some(&["a", "b"])),
            ("spec.names.1", Some(&["b"])),
            ("spec.names.#", Some(&["2"])),
            ("spec.refs.#.name", Some(&["a", "b"])),
            ("spec.refs.#.keys", Some(&[])),
            ("spec.refs.#.none", Some(&[])),
            ("spec.port.#.none", None),
            ("spec.port", Some(&["80"])),
            (r"spec.a\.b", Some(&["dot"])),
            ("spec.refs[*].name", None),
            ("spec.none", None),
        ];
        for (path, expected) in cases {
            let expected = expected.map(|texts| texts.iter().map(ToString::to_string).collect());
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

//! YAML inside of `ConfigMap`s, as values of JSON.

use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;

/// Returns the value of a YAML text; null if there is none.
///
/// # Errors
///
/// Fails if the text is no YAML. The message only begins as the original's.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    // As the original's parser: of equal keys the last counts.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("error converting YAML to JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_with_its_types() {
        let cases = [
            ("", json!(null)),
            ("a: true\nb: \"true\"\nc: 15999\n", json!({"a": true, "b": "true", "c": 15999})),
            ("a: yes\nb: off\n", json!({"a": true, "b": false})),
            ("a: 1\nb: 2\na: 3\n", json!({"a": 3, "b": 2})),
            ("a: &x {b: [1]}\nc: *x\n", json!({"a": {"b": [1]}, "c": {"b": [1]}})),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["a: [\n\n", "a: b: c", "{", "a: *x"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("error converting YAML to JSON: "), "{text:?}: {error}");
        }
    }
}

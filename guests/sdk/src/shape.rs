//! Messages about an object that does not fit its Rust type, in the words of Kubernetes:
//! `spec.rules must be an array, not a string`.
//!
//! The messages of serde name Rust types and quote values. Authors of objects know neither `struct`
//! nor `sequence`, and a value may come from a Secret. The path of the field comes from the
//! position at which the parser stopped.

use std::fmt::Write as _;

/// Describes the mismatch between a JSON text and the Rust type that it was parsed as.
pub(crate) fn describe(text: &str, error: &serde_json::Error) -> String {
    let place = place(text, error.line(), error.column());
    let place = if place.is_empty() { "it" } else { &place };
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if let Some(field) = message.strip_prefix("missing field `") {
        let field = field.trim_end_matches('`');
        return if place == "it" {
            format!("{field} is required")
        } else {
            format!("{place}.{field} is required")
        };
    }
    if let Some((_, expected)) = parts(message, "invalid value: ") {
        return format!("{place} must be {}", words(expected));
    }
    let mismatch = parts(message, "invalid type: ")
        .and_then(|(found, expected)| Some((article(found.split(' ').next()?)?, words(expected))));
    match mismatch {
        Some((found, expected)) => format!("{place} must be {expected}, not {found}"),
        None => format!("{place}: {message}"),
    }
}

/// Splits a message of serde into what was found and what was expected.
fn parts<'a>(message: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(start)?.rsplit_once(", expected ")
}

/// Translates serde's word for a found type into the word of Kubernetes' schemas.
fn article(found: &str) -> Option<&'static str> {
    Some(match found {
        "string" | "character" => "a string",
        "integer" => "an integer",
        "floating" => "a number with a fraction",
        "boolean" => "a boolean",
        "sequence" => "an array",
        "map" => "an object",
        "null" => "null",
        _ => return None,
    })
}

fn words(expected: &str) -> &str {
    match expected {
        "a sequence" => "an array",
        "a map" => "an object",
        "i8" | "i16" | "i64" | "isize" | "u64" | "usize" => "an integer that fits",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "i32" => "an integer from -2147483648 to 2147483647",
        "f32" | "f64" => "a number",
        "unit" => "null",
        text if text.starts_with("struct ") => "an object",
        text => text,
    }
}

/// An object (with the current key) or a list (with the index) that encloses the parser's position.
enum Frame {
    Object(Option<String>),
    Array(usize),
}

/// Returns the path of the value at which the parser stopped; "" for the whole text.
fn place(text: &str, line: usize, column: usize) -> String {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let end = (before + column).min(text.len());
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at).filter(|_| at < end) {
        match byte {
            b'{' => frames.push(Frame::Object(None)),
            b'[' => frames.push(Frame::Array(0)),
            b'}' | b']' => drop(frames.pop()),
            b',' => match frames.last_mut() {
                Some(Frame::Object(key)) => *key = None,
                Some(Frame::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let string = string(text.get(at..).unwrap_or_default());
                if let Some(Frame::Object(key @ None)) = frames.last_mut() {
                    *key = serde_json::from_str(string).ok();
                }
                at += string.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    path(&frames)
}

/// Returns the JSON string at the start of a text, with its quotes; at least one character.
fn string(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.and_then(|end| text.get(..end + 2)).unwrap_or(text)
}

fn path(frames: &[Frame]) -> String {
    let mut path = String::new();
    for frame in frames {
        // Writing to a string cannot fail.
        let _ = match frame {
            Frame::Object(None) => Ok(()),
            Frame::Object(Some(key)) if key.contains(['.', '/']) => write!(path, "[{key:?}]"),
            Frame::Object(Some(key)) if path.is_empty() => write!(path, "{key}"),
            Frame::Object(Some(key)) => write!(path, ".{key}"),
            Frame::Array(index) => write!(path, "[{index}]"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "only what does not fit is looked at")]

    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Thing {
        spec: Spec,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        rules: Vec<Rule>,
        data: BTreeMap<String, String>,
        size: u8,
        kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    struct Rule {
        path: String,
    }

    #[derive(Debug, Default, Deserialize)]
    enum Kind {
        #[default]
        Small,
    }

    #[test]
    fn what_does_not_fit_is_told_by_its_place_and_in_words_of_kubernetes() {
        let cases = [
            (r#""secret""#, "it must be an object, not a string"),
            (r#"{"spec":null}"#, "spec must be an object, not null"),
            (r#"{"spec":"secret"}"#, "spec must be an object, not a string"),
            (
                r#"{"other":{"spec":["]}",{}]},"spec":{"rules":"none"}}"#,
                "spec.rules must be an array, not a string",
            ),
            (
                r#"{"spec":{"rules":[{"path":"a"},{"path":{}}]}}"#,
                "spec.rules[1].path must be a string, not an object",
            ),
            (
                r#"{"spec":{"rules":[{"path":"a"},7]}}"#,
                "spec.rules[1] must be an object, not an integer",
            ),
            (r#"{"spec":{"rules":[{"path":"a"},{"p":[1]}]}}"#, "spec.rules[1].path is required"),
            ("{\n \"spec\": {\n  \"rules\": [\n   {}]}}", "spec.rules[0].path is required"),
            (
                r#"{"spec":{"data":{"a \" b":"x","a.b/c":true}}}"#,
                r#"spec.data["a.b/c"] must be a string, not a boolean"#,
            ),
            (r#"{"spec":{"size":300}}"#, "spec.size must be an integer from 0 to 255"),
            (
                r#"{"spec":{"size":1.5}}"#,
                "spec.size must be an integer from 0 to 255, not a number with a fraction",
            ),
            (r#"{"spec":{"kind":"Big"}}"#, "spec.kind: unknown variant `Big`, expected `Small`"),
        ];
        for (text, expected) in cases {
            let error = serde_json::from_str::<Thing>(text).unwrap_err();
            assert_eq!(describe(text, &error), expected, "{text}: {error}");
        }
    }
}

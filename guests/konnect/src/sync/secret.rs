//! Secret values of bodies: an error of the API may quote what it was sent.

use serde_json::Value;

/// Fields of bodies whose texts are secret, with all below them.
const FIELDS: [&str; 8] =
    ["config", "jwk", "key", "key_alt", "password", "pem", "private_key", "secret"];
/// A text of at least this many bytes is secret also as a part of a word.
const LONG: usize = 6;
/// The text that stands in a message for a secret one.
const HIDDEN: &str = "***";
/// The most secret texts that are looked for. A message about a body with more is hidden whole.
const MAX_TEXTS: usize = 1_000;

/// Returns a message without the secret texts of a body, as they are and as JSON quotes them, nor
/// long parts of them: the texts within a JSON text, and lines.
pub(crate) fn hide(message: &str, body: &Value) -> String {
    let mut secrets = Vec::new();
    collect(body, false, &mut secrets);
    if secrets.len() > MAX_TEXTS {
        return HIDDEN.to_owned();
    }
    // A longer one may contain a shorter one.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.iter().fold(message.to_owned(), |message, secret| {
        let quoted = Value::from(secret.as_str()).to_string();
        let quoted = quoted.trim_matches('"');
        let message = replace(&message, quoted);
        if quoted == secret { message } else { replace(&message, secret) }
    })
}

fn collect(value: &Value, is_secret: bool, into: &mut Vec<String>) {
    match value {
        Value::String(text) if is_secret && !text.trim().is_empty() => {
            let mut parts: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
            collect(&serde_json::from_str(text).unwrap_or_default(), true, &mut parts);
            parts.retain(|part| part.len() >= LONG && part != text);
            into.push(text.clone());
            into.append(&mut parts);
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, is_secret, into)),
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, is_secret || FIELDS.contains(&name.as_str()), into);
            }
        }
        _ => {}
    }
}

/// Replaces a text; a short one only where it is a whole word.
fn replace(message: &str, secret: &str) -> String {
    let mut replaced = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(secret) {
        let is_part = |of: Option<char>| of.is_some_and(|of| of.is_alphanumeric() || of == '_');
        let last = before.chars().next_back().or_else(|| replaced.chars().next_back());
        let is_word = !is_part(last) && !is_part(after.chars().next());
        replaced.push_str(before);
        replaced.push_str(if secret.len() >= LONG || is_word { HIDDEN } else { secret });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_secret_text_of_a_body_is_in_a_message() {
        let body = json!({
            "key": "k", "password": "hunter2-long", "name": "public", "tags": ["t"],
            "config": {"redis": {"password": "p1"}, "list": ["inner-value"]},
            "pem": {"private_key": "-----BEGIN\nabc\nof-the-pem\n-----END"},
            "jwk": r#"{"kty": "oct", "k": "of-the-jwk"}"#,
        });
        let pem = "-----BEGIN\nabc\nof-the-pem\n-----END";
        let quoted = json!({"e": pem, "m": "key k of public"}).to_string();
        let cases = [
            ("key (type: unique) failed for k: 'k'", "key (type: unique) failed for ***: '***'"),
            ("xhunter2-longx p1 p12 public t", "x***x *** p12 public t"),
            ("inner-value", "***"),
            (quoted.as_str(), r#"{"e":"***","m":"key *** of public"}"#),
            ("abc: of-the-pem", "abc: ***"),
            ("oct: of-the-jwk", "oct: ***"),
        ];
        for (message, expected) in cases {
            assert_eq!(hide(message, &body), expected);
        }
        let many = json!({"key": "a line\n".repeat(MAX_TEXTS)});
        assert_eq!(hide("a message", &many), "***");
    }
}

//! The configuration of a `KongPlugin`, which may stand in Secrets.

use serde_json::{Map, Value};

use crate::kind::{at, text};

/// A key of a Secret in the namespace of the plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretKey {
    /// The name of the Secret.
    pub name: String,
    /// The key in it.
    pub key: String,
}

/// Returns a plugin whose `config` is complete: that of `configFrom`, or with `configPatches`.
///
/// `value` reads a key of a Secret: the text there, or the reason why there is none.
///
/// # Errors
///
/// A text for a condition, or an error of `value`. It never quotes a value.
pub fn configured<E>(
    plugin: &Value,
    value: impl Fn(&SecretKey) -> Result<Result<String, String>, E>,
) -> Result<Result<Value, String>, E> {
    let mut config = at(plugin, "config").cloned();
    if let Some(from) = at(plugin, "configFrom") {
        let key = secret_key(from);
        let text = match value(&key)? {
            Ok(text) => text,
            Err(message) => return Ok(Err(message)),
        };
        config = match parse(&text).filter(Value::is_object) {
            Some(config) => Some(config),
            None => return Ok(Err(format!("{} is not a map in JSON or YAML", key.display()))),
        };
    }
    let patches = at(plugin, "configPatches").and_then(Value::as_array).into_iter().flatten();
    for patch in patches {
        let key = patch.get("valueFrom").map(secret_key).unwrap_or_default();
        let text = match value(&key)? {
            Ok(text) => text,
            Err(message) => return Ok(Err(message)),
        };
        let Some(value) = parse(&text) else {
            return Ok(Err(format!("{} is not JSON or YAML", key.display())));
        };
        let path = text_of(patch, "path");
        let config = config.get_or_insert_with(|| Value::Object(Map::new()));
        if add(config, path, value).is_none() {
            let message = format!("the configuration has no place for a patch at `{path}`");
            return Ok(Err(message));
        }
    }
    let mut plugin = plugin.clone();
    if let (Some(config), Some(fields)) = (config, plugin.as_object_mut()) {
        fields.insert("config".to_owned(), config);
    }
    Ok(Ok(plugin))
}

fn secret_key(from: &Value) -> SecretKey {
    let field = |field| text_of(from, field).to_owned();
    SecretKey { name: field("secretKeyRef.name"), key: field("secretKeyRef.key") }
}

fn text_of<'a>(object: &'a Value, path: &str) -> &'a str {
    text(object, path).unwrap_or_default()
}

/// Parses JSON, or the YAML that people write into Secrets.
fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).or_else(|_| serde_saphyr::from_str(text)).ok()
}

/// Adds a value at a JSON pointer, as the operation `add` of RFC 6902 does; `None` if its parent is
/// missing.
fn add(into: &mut Value, pointer: &str, value: Value) -> Option<()> {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        *into = pointer.is_empty().then_some(value)?;
        return Some(());
    };
    let last = last.replace("~1", "/").replace("~0", "~");
    match into.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = last.parse().ok().filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

// === impl SecretKey ===

impl SecretKey {
    fn display(&self) -> String {
        format!("key {} of Secret {}", self.key, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::json;

    use super::*;

    fn config(plugin: &Value) -> Result<Value, String> {
        let value = |key: &SecretKey| {
            let value = match (key.name.as_str(), key.key.as_str()) {
                ("s", "json") => r#"{"minute": 7}"#,
                ("s", "yaml") => "minute: 8\npolicy: local\n",
                ("s", "text") => "hunter2",
                ("s", "broken") => "{hunter2",
                _ => return Ok::<_, Infallible>(Err(format!("no {}", key.display()))),
            };
            Ok(Ok(value.to_owned()))
        };
        let Ok(configured) = configured(plugin, value);
        configured.map(|plugin| plugin.get("config").cloned().unwrap_or_default())
    }

    fn from(key: &str) -> Value {
        json!({"configFrom": {"secretKeyRef": {"name": "s", "key": key}}})
    }

    fn patched(config: &Value, path: &str, key: &str) -> Value {
        let value = json!({"secretKeyRef": {"name": "s", "key": key}});
        json!({"config": config, "configPatches": [{"path": path, "valueFrom": value}]})
    }

    #[test]
    fn the_configuration_comes_from_the_plugin_or_its_secrets() {
        let cases = [
            (json!({"config": {"minute": 5}}), json!({"minute": 5})),
            (json!({}), Value::Null),
            (from("json"), json!({"minute": 7})),
            (from("yaml"), json!({"minute": 8, "policy": "local"})),
            (patched(&json!({"a": {}}), "/a/b~1c", "text"), json!({"a": {"b/c": "hunter2"}})),
            (patched(&json!({"a": [1]}), "/a/-", "json"), json!({"a": [1, {"minute": 7}]})),
            (patched(&json!({"a": [1]}), "/a/0", "text"), json!({"a": ["hunter2", 1]})),
        ];
        for (plugin, expected) in cases {
            assert_eq!(config(&plugin), Ok(expected), "{plugin}");
        }
    }

    #[test]
    fn an_error_never_quotes_a_value() {
        let cases = [
            (from("none"), "no key none of Secret s"),
            (from("broken"), "key broken of Secret s is not a map in JSON or YAML"),
            (from("text"), "key text of Secret s is not a map in JSON or YAML"),
            (patched(&json!({}), "/a", "broken"), "key broken of Secret s is not JSON or YAML"),
            (
                patched(&json!({}), "/a/b", "text"),
                "the configuration has no place for a patch at `/a/b`",
            ),
            (
                patched(&json!({"a": []}), "/a/1", "text"),
                "the configuration has no place for a patch at `/a/1`",
            ),
        ];
        for (plugin, message) in cases {
            assert_eq!(config(&plugin), Err(message.to_owned()), "{plugin}");
        }
    }
}

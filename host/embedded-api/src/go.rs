//! Values as Go prints them, for messages of Kubernetes that show them so.

use std::fmt;

use serde_json::Value;

/// Returns Go's name for the type of a JSON value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Displays a value as Go prints it: `[a b]`, `map[key:value]`.
pub(crate) struct Plain<'a>(pub(crate) &'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => {
                let each: Vec<String> = items.iter().map(|item| Plain(item).to_string()).collect();
                write!(f, "[{}]", each.join(" "))
            }
            Value::Object(map) => {
                let each: Vec<String> =
                    map.iter().map(|(key, value)| format!("{key}:{}", Plain(value))).collect();
                write!(f, "map[{}]", each.join(" "))
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}

/// Displays a value as Go source: `[]interface {}{…}`, `map[string]interface {}{…}`.
pub(crate) struct Syntax<'a>(pub(crate) &'a Value);

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Array(items) => {
                let each: Vec<String> = items.iter().map(|item| Syntax(item).to_string()).collect();
                write!(f, "[]interface {{}}{{{}}}", each.join(", "))
            }
            Value::Object(map) => {
                let each: Vec<String> =
                    map.iter().map(|(key, value)| format!("{key:?}:{}", Syntax(value))).collect();
                write!(f, "map[string]interface {{}}{{{}}}", each.join(", "))
            }
            scalar => write!(f, "{scalar}"),
        }
    }
}

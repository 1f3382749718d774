//! JSON values as Rust types.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value, by way of its text: the same types are also read from the text of objects and
/// annotations, and a second way to read them would double their code in the component.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    parse(&value.to_string())
}

/// Reads a text. The message of the error has no position: it is about a value that people know
/// from an object.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        message.split(" at line ").next().unwrap_or_default().to_owned()
    })
}

//! YAML as Kubernetes and kubectl read it: by the rules of YAML 1.1, where a number with a leading
//! 0 is octal and a key without quotes may be a truth value.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Options;

use super::body::Tracked;

/// A document, or a part of one, of any type.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document(pub Value);

/// Returns the options of the parser for files of the user: without the budget for texts of
/// others, and with errors of one line.
pub fn options() -> Options {
    serde_saphyr::options! { budget: None, with_snippet: false, legacy_octal_numbers: true }
}

/// Reads the documents of a file.
///
/// # Errors
///
/// Fails for a text that is no YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    let documents: Vec<Document> = serde_saphyr::from_multiple_with_options(text, options())?;
    Ok(documents.into_iter().map(|Document(value)| value).collect())
}

/// Reads the values of a list, for `deserialize_with` of a field.
///
/// # Errors
///
/// Fails for a text that is no YAML, and for a value that is no list.
pub fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let documents = Vec::<Document>::deserialize(deserializer)?;
    Ok(documents.into_iter().map(|Document(value)| value).collect())
}

/// Reads the first document of a text of somebody else; all that follows is ignored. Returns the
/// keys that occur twice, too.
pub(crate) fn first(text: &str) -> Result<(Value, Vec<String>), serde_saphyr::Error> {
    let mut first = None;
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let end =
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            first = Some(Tracked::read(deserializer)?);
            Ok(())
        });
    match (first, end) {
        (Some(first), _) => Ok(first),
        (None, Err(fault)) => Err(fault),
        (None, Ok(())) => Ok((Value::Null, Vec::new())),
    }
}

// === impl Document ===

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tracked::read(deserializer).map(|(value, _)| Self(value))
    }
}

//! What a renderer answers, native or component.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The result of one call.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    rendered: Option<Rendered>,
    #[serde(default)]
    error: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rendered {
    pub(crate) components: Vec<Component>,
    pub(crate) merged: String,
    // Go writes an empty list as null.
    #[serde(deserialize_with = "list")]
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) manifests: Vec<Manifest>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) content: String,
}

fn list<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

impl Answer {
    pub(crate) fn rendered(&self) -> Option<&Rendered> {
        self.rendered.as_ref()
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.rendered.is_none().then_some(&self.error)
    }

    /// Returns the record of an answer: a digest, or the error's text.
    pub(crate) fn record(&self) -> String {
        let Some(rendered) = &self.rendered else { return format!("error: {}", self.error) };
        let text = serde_json::to_string(rendered).unwrap();
        format!("{} bytes, sha256 {:x}", text.len(), Sha256::digest(text))
    }
}

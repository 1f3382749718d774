//! Requests to the API of a cluster.

use std::path::Path;

use anyhow::{Context as _, ensure};
use mortise_sdk::testing::cluster::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{text, texts};

/// A request to a cluster.
#[derive(Debug, Clone, Copy)]
pub(in crate::goldens) enum Verb {
    Get,
    Create,
    Merge,
    Delete,
}

/// An API to which a runner sends requests as an administrator.
pub(in crate::goldens) trait Requests {
    /// Sends a request. The body is null if there is none.
    ///
    /// # Errors
    ///
    /// Fails with [`Refused`] if the API refuses it.
    fn send(&self, verb: Verb, path: &str, body: &Value) -> anyhow::Result<Value>;

    /// Returns the objects that a runner compares, and those of other kinds if they come for free.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read.
    fn objects(&self) -> anyhow::Result<Vec<Value>>;
}

/// The object of an action.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::goldens) struct Of {
    pub(in crate::goldens) api_version: String,
    pub(in crate::goldens) kind: String,
    #[serde(default)]
    pub(in crate::goldens) namespace: String,
    pub(in crate::goldens) name: String,
}

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{request} is refused with {status}: {message}")]
pub(in crate::goldens) struct Refused {
    /// Method and path.
    pub(in crate::goldens) request: String,
    pub(in crate::goldens) status: u16,
    pub(in crate::goldens) message: String,
}

// === impl Of ===

impl Of {
    /// Returns the identity of an object.
    ///
    /// # Errors
    ///
    /// Fails if the object has no kind or name.
    pub(in crate::goldens) fn object(object: &Value) -> anyhow::Result<Self> {
        let metadata = &object["metadata"];
        Ok(serde_json::from_value(json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"],
            "namespace": metadata.get("namespace").unwrap_or(&json!("")),
        }))?)
    }
}

/// Returns the definitions of kinds in the files of a folder.
///
/// # Errors
///
/// Fails if a file cannot be read or parsed, or if there is none.
pub(in crate::goldens) fn definitions(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let texts = texts(folder)?;
    let parsed = texts.values().map(|text| serde_saphyr::from_str(text));
    Ok(parsed.collect::<Result<_, _>>()?)
}

/// Returns the group of an `apiVersion`.
pub(in crate::goldens) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the path of an object.
///
/// # Errors
///
/// Fails if the cluster does not serve its kind.
pub(in crate::goldens) fn path_of(cluster: &impl Requests, of: &Of) -> anyhow::Result<String> {
    let root = if of.api_version.contains('/') { "/apis" } else { "/api" };
    let root = format!("{root}/{}", of.api_version);
    let served = send(cluster, Verb::Get, &root, &Value::Null)?;
    let is_meant =
        |resource: &&Value| resource["kind"] == of.kind && !text(resource, "/name").contains('/');
    let mut resources = served["resources"].as_array().into_iter().flatten();
    let resource = resources.find(is_meant).with_context(|| format!("{of:?} is not served"))?;
    let plural = text(resource, "/name");
    Ok(if resource["namespaced"] == true {
        ensure!(!of.namespace.is_empty(), "{of:?} has no namespace");
        format!("{root}/namespaces/{}/{plural}/{}", of.namespace, of.name)
    } else {
        format!("{root}/{plural}/{}", of.name)
    })
}

/// Sends a request to a cluster.
///
/// # Errors
///
/// Fails with [`Refused`] if the API refuses it.
pub(in crate::goldens) fn send(
    cluster: &impl Requests,
    verb: Verb,
    path: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    cluster.send(verb, path, body)
}

// === impl Verb ===

impl Verb {
    /// Returns the method and the content type.
    fn method(self) -> (&'static str, &'static str) {
        match self {
            Self::Get => ("GET", "application/json"),
            Self::Create => ("POST", "application/json"),
            Self::Merge => ("PATCH", "application/merge-patch+json"),
            Self::Delete => ("DELETE", "application/json"),
        }
    }
}

// === impl Cluster ===

impl Requests for Cluster {
    fn send(&self, verb: Verb, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (method, content) = verb.method();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", content);
        match self.api().answer(request.body(body)?) {
            (200..=299, answer) => Ok(answer),
            (status, answer) => {
                let message = text(&answer, "/message").to_owned();
                Err(Refused { request: format!("{method} {path}"), status, message }.into())
            }
        }
    }

    fn objects(&self) -> anyhow::Result<Vec<Value>> {
        Ok(self.api().objects())
    }
}

//! The Pods that a RateLimit selects.

use std::collections::BTreeMap;

use mortise_sdk::{Error, Host, Selection, kubernetes, object::Metadata};
use serde::Deserialize;

/// The annotation that Istio sets on a Pod into which it has injected a sidecar.
const SIDECAR: &str = "sidecar.istio.io/status";
/// The fields that are read of Pods.
pub(crate) const FIELDS: [&str; 2] =
    ["metadata.annotations[\"sidecar.istio.io/status\"]", "metadata.labels"];

/// A Pod, reduced to what decides on its limits.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Pod {
    pub(crate) metadata: Metadata,
}

impl Pod {
    pub(crate) fn has_sidecar(&self) -> bool {
        self.metadata.annotations.contains_key(SIDECAR)
    }

    pub(crate) fn is_ingress_gateway(&self) -> bool {
        self.metadata.labels.get("istio").is_some_and(|istio| istio == "ingressgateway")
    }

    pub(crate) fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.iter().all(|(key, value)| self.metadata.labels.get(key) == Some(value))
    }
}

/// Returns the Pods of a namespace that have all these labels.
pub(crate) fn pods(
    host: &Host,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Result<Vec<Pod>, Error> {
    // A label that no Pod can have would be read as another selector.
    if !labels.iter().all(|(key, value)| is_key(key) && is_value(value)) {
        return Ok(Vec::new());
    }
    let selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods = Selection::of::<kubernetes::Pod>().namespace(namespace).labels(selector.join(","));
    host.list(&pods.fields(FIELDS))
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_domain =
        |prefix: &str| prefix.split('.').all(|label| !label.is_empty() && is_value(label));
    prefix.is_none_or(is_domain) && !name.is_empty() && is_value(name)
}

/// Returns whether a text is the value of a label: letters, digits, `-`, `_` and `.`, where the
/// first and the last are letters or digits.
fn is_value(text: &str) -> bool {
    let is_plain = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    let mut bytes = text.bytes();
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && is_plain(bytes.next())
        && is_plain(bytes.next_back())
}

#[cfg(test)]
mod tests {
    use mortise_sdk::testing::Stub;
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_that_no_pod_can_have_select_none() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "a", "labels": {"app": "web", "x.io/y": "", "z": "1"}},
        });
        let stub = Stub::new().objects([pod]);
        let cases = [
            (vec![("app", "web")], 1),
            (vec![("app", "web"), ("x.io/y", "")], 1),
            (vec![("app", "other")], 0),
            (vec![("app", "web,z")], 0),
            (vec![("app", "web,!missing")], 0),
            (vec![("!missing", "x")], 0),
            (vec![("app in (web),z", "1")], 0),
            (vec![("", "web")], 0),
            (vec![("a/b/c", "web")], 0),
            (vec![("/app", "web")], 0),
            (vec![("app", "-web")], 0),
        ];
        for (labels, expected) in cases {
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let labels: BTreeMap<String, String> = labels.collect();
            assert_eq!(pods(&stub.host(), "a", &labels).unwrap().len(), expected, "{labels:?}");
            assert_eq!(pods(&stub.host(), "b", &labels).unwrap().len(), 0);
        }
    }
}

//! Copies of objects for the other side.

use std::collections::{BTreeMap, BTreeSet};

use mortise_sdk::{
    Kind, Manifest,
    object::{Metadata, OwnerReference},
};
use serde_json::{Map, Value, json};

use crate::{
    config::{Config, Part},
    isolation::Name,
    mark,
};

/// The most annotations of an object that are copied: each is a path of the manifest.
const MAX_ANNOTATIONS: usize = 100;
/// The domain of labels and annotations that are never copied: some give consent to the host.
const OWN_DOMAIN: &str = "mortise.dev";
/// Top-level fields that have no part in the payload.
const SPECIAL: [&str; 5] = ["apiVersion", "kind", "metadata", "status", "spec"];
/// The most top-level fields besides these that stay as they were at creation.
const MAX_PAYLOAD: usize = 20;

/// Returns the manifest of an object of a bound kind at the provider.
///
/// Labels, annotations and fields besides `spec` go up at creation only, unless the configuration
/// names them.
pub(crate) fn up<'a>(
    source: &Content,
    (namespace, name): &Name,
    marks: impl IntoIterator<Item = (&'a str, String)>,
    owner: Option<OwnerReference>,
    config: &Config,
) -> Manifest {
    let Content { fields, metadata: of, .. } = source;
    let annotations = of.annotations.clone().into_iter().take(MAX_ANNOTATIONS);
    let mut metadata = Metadata {
        namespace: namespace.clone(),
        labels: of.labels.clone(),
        annotations: annotations.collect(),
        owner_references: owner.into_iter().collect(),
        ..Metadata::new(name)
    };
    let mut left = Vec::new();
    if !config.propagates(Part::Labels) && !of.labels.is_empty() {
        left.push("metadata.labels".to_owned());
    }
    let marks: Vec<(&str, String)> = marks.into_iter().collect();
    if !config.propagates(Part::Annotations) {
        let is_mark = |key: &str| marks.iter().any(|(mark, _)| *mark == key);
        let others = metadata.annotations.keys().filter(|key| !is_mark(key));
        left.extend(others.map(|key| mark::annotation(key)));
    }
    if !config.propagates(Part::Payload) {
        let payload = fields.keys().filter(|field| !SPECIAL.contains(&field.as_str()));
        left.extend(payload.take(MAX_PAYLOAD).map(|field| top_level(field)));
    }
    mark::annotate(&mut metadata, marks);
    left.into_iter().fold(source.manifest(&metadata, &["status"]), Manifest::leave)
}

fn top_level(field: &str) -> String {
    let is_plain = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { field.to_owned() } else { mark::path("", field) }
}

/// An object of any kind.
#[derive(Debug)]
pub(crate) struct Content {
    kind: Kind,
    pub(crate) metadata: Metadata,
    fields: Map<String, Value>,
}

impl Content {
    /// Takes an object of this kind.
    pub(crate) fn new(kind: &Kind, fields: Map<String, Value>) -> Self {
        let metadata = fields.get("metadata").cloned().unwrap_or_default();
        let metadata = serde_json::from_value(metadata).unwrap_or_default();
        Self { kind: kind.clone(), metadata, fields }
    }

    /// Returns a top-level field.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// Returns the manifest of a part of this object: nothing but what `change` adds to its name.
    pub(crate) fn part(&self, change: impl FnOnce(&mut Metadata)) -> Manifest {
        let mut metadata = Metadata {
            namespace: self.metadata.namespace.clone(),
            uid: self.metadata.uid.clone(),
            ..Metadata::new(&self.metadata.name)
        };
        change(&mut metadata);
        Manifest::with_kind(&self.kind, &json!({"metadata": metadata}))
    }

    /// Returns the manifest of this object under other metadata, without some fields.
    fn manifest(&self, metadata: &Metadata, without: &[&str]) -> Manifest {
        let mut fields = self.fields.clone();
        for field in ["apiVersion", "kind"].iter().chain(without) {
            fields.remove(*field);
        }
        fields.insert("metadata".to_owned(), json!(metadata));
        Manifest::with_kind(&self.kind, &fields)
    }

    /// Returns the manifest of the copy of this shared object, whose content is the same. `former`
    /// is the copy that is there: what it has beside that content goes.
    pub(crate) fn copy<'a>(
        &self,
        namespace: &str,
        owner: &str,
        marks: impl IntoIterator<Item = (&'a str, String)>,
        former: Option<&Self>,
    ) -> Manifest {
        let copied = |map: &BTreeMap<String, String>| {
            map.clone().into_iter().filter(|(key, _)| is_copied(key)).collect()
        };
        let mut metadata = Metadata {
            labels: copied(&self.metadata.labels),
            annotations: copied(&self.metadata.annotations),
            ..Metadata::new(&self.metadata.name).namespace(namespace)
        };
        metadata.labels.insert(mark::OWNER.to_owned(), owner.to_owned());
        mark::annotate(&mut metadata, marks);
        // The token Secrets of an account are made where the account is.
        let manifest = self.manifest(&metadata, &["secrets"]);
        let keys = |of: &Self, field: &str| {
            let map = of.get(field).and_then(Value::as_object);
            map.into_iter().flat_map(Map::keys).cloned().collect::<BTreeSet<_>>()
        };
        let gone = former.into_iter().flat_map(|former| {
            ["data", "binaryData"].into_iter().flat_map(move |field| {
                let gone = &keys(former, field) - &keys(self, field);
                gone.into_iter().map(move |key| mark::path(field, &key))
            })
        });
        gone.take(MAX_ANNOTATIONS).fold(manifest, Manifest::absent)
    }
}

/// Returns whether a label or an annotation goes to the other side. Marks of the two sides and
/// labels of kcp are those of one side only.
fn is_copied(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    let is_own = domain == OWN_DOMAIN
        || domain.strip_suffix(OWN_DOMAIN).is_some_and(|rest| rest.ends_with('.'));
    let is_mark = domain == crate::api::GROUP;
    let is_kcp = key.contains("claimed.internal.apis.kcp.io") || key.contains("kcp.io/cluster");
    !is_own && !is_mark && !is_kcp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({
            "apiVersion": "golden.example.dev/v1", "kind": "Rocket",
            "metadata": {
                "name": "saturn", "namespace": "team", "uid": "u1", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"size": "big"},
                "annotations": {"note": "x", "kube-bind.io/cluster-namespace": "forged"},
                "finalizers": ["kubebind.io/syncer"], "ownerReferences": [{"uid": "o"}],
            },
            "spec": {"stages": 3}, "status": {"height": 1}, "extra": {"a": 1},
        })
    }

    fn content(object: &Value) -> Content {
        let field = |name: &str| object[name].as_str().unwrap_or_default();
        let (group, version) = field("apiVersion").split_once('/').unwrap_or(("", "v1"));
        let kind = Kind::new(group, version, field("kind"));
        Content::new(&kind, object.as_object().unwrap().clone())
    }

    fn config(propagate: &[Part]) -> Config {
        Config { propagate: propagate.to_vec(), ..Config::default() }
    }

    #[test]
    fn a_copy_keeps_the_content_and_none_of_the_bookkeeping() {
        let to = (Some("cn-team".to_owned()), "saturn".to_owned());
        let marks = [(mark::CLUSTER_NAMESPACE, "cn".to_owned())];
        let manifest = up(&content(&object()), &to, marks, None, &config(&[]));
        let copy: Value = serde_json::from_str(&manifest.object).unwrap();
        let expected = json!({
            "apiVersion": "golden.example.dev/v1", "kind": "Rocket",
            "metadata": {
                "name": "saturn", "namespace": "cn-team", "labels": {"size": "big"},
                "annotations": {"note": "x", "kube-bind.io/cluster-namespace": "cn"},
            },
            "spec": {"stages": 3}, "extra": {"a": 1},
        });
        assert_eq!(copy, expected);
    }

    #[test]
    fn parts_besides_the_spec_go_up_once_or_always() {
        let to = (None, "saturn".to_owned());
        let cases: [(&[Part], &[&str]); 3] = [
            (&[], &["metadata.labels", r#"metadata.annotations["note"]"#, "extra"]),
            (&[Part::Labels, Part::Payload], &[r#"metadata.annotations["note"]"#]),
            (&[Part::Labels, Part::Annotations, Part::Payload], &[]),
        ];
        for (propagate, expected) in cases {
            let marks = [(mark::CLUSTER_NAMESPACE, "cn".to_owned())];
            let manifest = up(&content(&object()), &to, marks, None, &config(propagate));
            assert_eq!(manifest.leave, expected, "{propagate:?}");
        }
    }

    #[test]
    fn a_shared_copy_has_the_content_of_its_source_and_nothing_else() {
        let source = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "MQ=="},
            "metadata": {
                "name": "key", "namespace": "team", "uid": "u1", "labels": {"app": "rocket", "kube-bind.io/owner": "x"},
                "annotations": {"note": "x", "mortise.dev/consent": "yes", "a.mortise.dev/b": "c", "kcp.io/cluster": "d"},
            },
        });
        let former = json!({"data": {"k": "Mg==", "other": "Mw=="}});
        let marks = [(mark::CONSUMER_UID, "u1".to_owned())];
        let former = content(&former);
        let manifest = content(&source).copy("cn-team", mark::CONSUMER, marks, Some(&former));
        let copy: Value = serde_json::from_str(&manifest.object).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "MQ=="},
            "metadata": {
                "name": "key", "namespace": "cn-team", "labels": {"app": "rocket", "kube-bind.io/owner": "consumer"},
                "annotations": {"note": "x", "kube-bind.io/consumer-uid": "u1"},
            },
        });
        assert_eq!(copy, expected);
        assert_eq!(manifest.absent, [r#"data["other"]"#]);
    }
}

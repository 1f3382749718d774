//! Copies of objects for the other side.

use std::collections::BTreeMap;

use mortise_sdk::{
    Kind, Manifest,
    object::{Metadata, OwnerReference},
};
use serde_json::{Map, Value, json};

use crate::{
    config::{Config, Part},
    isolation::Name,
    mark, secrets,
    valid::is_label_key,
};

/// The most annotations of an object that are copied: each is a path of the manifest.
pub(crate) const MAX_ANNOTATIONS: usize = 100;
/// The most paths that are taken out of a copy at once, by the contract. The others go with the
/// next change.
const MAX_GONE: usize = 128;
/// Top-level fields that no copy takes over.
const NOT_SHARED: [&str; 4] = ["apiVersion", "kind", "metadata", SECRETS];
/// The token Secrets of an account, which are made where the account is.
const SECRETS: &str = "secrets";
/// The domain of labels and annotations that are never copied: some give consent to the host.
const OWN_DOMAIN: &str = "mortise.dev";
/// Top-level fields that have no part in the payload.
const SPECIAL: [&str; 5] = ["apiVersion", "kind", "metadata", "status", "spec"];
/// The most top-level fields besides these that stay as they were at creation.
const MAX_PAYLOAD: usize = 20;

/// Returns the manifest of an object of a bound kind at the provider.
///
/// Labels, annotations and fields besides `spec` go up at creation only, unless the configuration
/// names them. `former` is the object that is there: what it has stays when it is taken out of the
/// source.
pub(crate) fn up<'a>(
    source: &Content,
    (namespace, name): &Name,
    marks: impl IntoIterator<Item = (&'a str, String)>,
    owner: Option<OwnerReference>,
    former: Option<&Content>,
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
    if !metadata.owner_references.is_empty() {
        // One that was there already is not made to go with the cluster namespace.
        left.push("metadata.ownerReferences".to_owned());
    }
    let has_labels = |of: &Content| !of.metadata.labels.is_empty();
    if !config.propagates(Part::Labels) && (has_labels(source) || former.is_some_and(has_labels)) {
        left.push("metadata.labels".to_owned());
    }
    let marks: Vec<(&str, String)> = marks.into_iter().collect();
    if !config.propagates(Part::Annotations) {
        let is_mark = |key: &str| marks.iter().any(|(mark, _)| *mark == key);
        let former = former.map(|former| former.metadata.annotations.keys());
        let all = with_former(metadata.annotations.keys(), former).filter(|key| !is_mark(key));
        left.extend(all.take(MAX_ANNOTATIONS).map(|key| mark::annotation(key)));
    }
    if !config.propagates(Part::Payload) {
        let former = former.map(|former| former.fields.keys());
        let all = with_former(fields.keys(), former);
        let payload = all.filter(|field| !SPECIAL.contains(&field.as_str()));
        left.extend(payload.take(MAX_PAYLOAD).map(|field| top_level(field)));
    }
    mark::annotate(&mut metadata, marks);
    left.into_iter().fold(source.manifest(&metadata, &["status"]), Manifest::leave)
}

/// Returns keys of a source, and after them those that only the object at the provider has. These
/// may be anything.
fn with_former<'a>(
    source: impl Iterator<Item = &'a String>,
    former: Option<impl Iterator<Item = &'a String>>,
) -> impl Iterator<Item = &'a String> {
    let mut keys: Vec<&String> = source.collect();
    let is_new = |key: &&String| is_label_key(key) && !keys.contains(key);
    let more: Vec<&String> = former.into_iter().flatten().filter(is_new).collect();
    keys.extend(more);
    keys.into_iter()
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

    /// Returns this object without the maps that are empty in it and not in `former`, the object
    /// that is there. An API server that takes the last field out of an applied map makes null of
    /// it, which a custom resource refuses.
    pub(crate) fn without_emptied(&self, former: &Self) -> Self {
        let mut fields = self.fields.clone();
        drop_emptied(&mut fields, &former.fields);
        Self { kind: self.kind.clone(), metadata: self.metadata.clone(), fields }
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
    /// is the object that is there: what it has beside that content goes.
    pub(crate) fn copy<'a>(
        &self,
        namespace: &str,
        owner: &str,
        marks: impl IntoIterator<Item = (&'a str, String)>,
        former: Option<&Self>,
    ) -> Manifest {
        let copied = |map: &BTreeMap<String, String>, is_also: fn(&str) -> bool| {
            let copied = |key: &str| is_copied(key) && is_also(key);
            map.clone().into_iter().filter(|(key, _)| copied(key)).collect()
        };
        let mut metadata = Metadata {
            // These labels make somebody act on the object: each side sets its own.
            labels: copied(&self.metadata.labels, |key| {
                ![mark::OWNER, secrets::LABEL].contains(&key)
            }),
            annotations: copied(&self.metadata.annotations, |_| true),
            ..Metadata::new(&self.metadata.name).namespace(namespace)
        };
        metadata.labels.insert(mark::OWNER.to_owned(), owner.to_owned());
        mark::annotate(&mut metadata, marks);
        let foreign = former.map(|former| foreign(former, &metadata)).unwrap_or_default();
        let manifest = self.manifest(&metadata, &[SECRETS]);
        let gone = former.into_iter().flat_map(|former| self.lacks(former));
        foreign.into_iter().chain(gone).take(MAX_GONE).fold(manifest, Manifest::absent)
    }

    /// Returns the paths of the fields of a copy, and of the keys of its maps, that this object does
    /// not have.
    fn lacks(&self, former: &Self) -> Vec<String> {
        let fields = former.fields.iter();
        let fields = fields.filter(|(field, _)| !NOT_SHARED.contains(&field.as_str()));
        fields
            .flat_map(|(field, held)| match (self.get(field), held) {
                (None, _) => vec![top_level(field)],
                (Some(Value::Object(own)), Value::Object(held)) => {
                    let gone = held.keys().filter(|key| !own.contains_key(*key));
                    gone.map(|key| mark::path(field, key)).collect()
                }
                _ => Vec::new(),
            })
            .collect()
    }
}

fn drop_emptied(fields: &mut Map<String, Value>, former: &Map<String, Value>) {
    fields.retain(|key, value| {
        let (Some(fields), Some(Value::Object(former))) = (value.as_object_mut(), former.get(key))
        else {
            return true;
        };
        drop_emptied(fields, former);
        !fields.is_empty() || former.is_empty()
    });
}

/// Returns the paths of the labels and annotations that a copy has, and should not have. What is
/// never copied is left alone there.
fn foreign(former: &Content, wanted: &Metadata) -> Vec<String> {
    let of = |map: &str, held: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        let gone = held.keys().filter(|key| is_copied(key) && !wanted.contains_key(*key));
        gone.map(|key| mark::path(map, key)).collect::<Vec<_>>()
    };
    let labels = of("metadata.labels", &former.metadata.labels, &wanted.labels);
    let held = &former.metadata.annotations;
    labels.into_iter().chain(of("metadata.annotations", held, &wanted.annotations)).collect()
}

fn domain(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

/// Returns whether a label or an annotation goes to the other side: not what gives consent to the
/// host, nor what kcp has set for one side.
fn is_copied(key: &str) -> bool {
    let domain = domain(key);
    let is_own = domain == OWN_DOMAIN
        || domain.strip_suffix(OWN_DOMAIN).is_some_and(|rest| rest.ends_with('.'));
    let is_kcp = key.contains("claimed.internal.apis.kcp.io") || key.contains("kcp.io/cluster");
    !is_own && !is_kcp
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
        let manifest = up(&content(&object()), &to, marks, None, None, &config(&[]));
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

    /// The parts that always go up, an object, the one at the provider, and the fields to leave.
    type Parts<'a> = (&'a [Part], &'a Value, Option<&'a Value>, &'a [&'a str]);

    #[test]
    fn parts_besides_the_spec_go_up_once_or_always() {
        let to = (None, "saturn".to_owned());
        let mut bare = object();
        bare["metadata"] = json!({"name": "saturn", "annotations": {"other": "y"}});
        bare.as_object_mut().unwrap().remove("extra");
        let whole = object();
        let note = r#"metadata.annotations["note"]"#;
        let other = r#"metadata.annotations["other"]"#;
        let all = [Part::Labels, Part::Annotations, Part::Payload];
        let cases: [Parts; 6] = [
            (&[], &whole, None, &["metadata.labels", note, "extra"]),
            (&[Part::Labels, Part::Payload], &whole, None, &[note]),
            (&all, &whole, None, &[]),
            (&[], &bare, None, &[other]),
            (&[], &bare, Some(&whole), &["metadata.labels", other, note, "extra"]),
            (&all, &bare, Some(&whole), &[]),
        ];
        for (propagate, source, former, expected) in cases {
            let marks = [(mark::CLUSTER_NAMESPACE, "cn".to_owned())];
            let (source, former) = (content(source), former.map(content));
            let manifest = up(&source, &to, marks, None, former.as_ref(), &config(propagate));
            assert_eq!(manifest.leave, expected, "{propagate:?} {former:?}");
        }
    }

    #[test]
    fn an_emptied_map_goes_and_an_empty_one_stays() {
        let cases = [
            (json!({}), json!({"a": 1}), None),
            (json!({}), json!({}), Some(json!({}))),
            (json!({}), Value::Null, Some(json!({}))),
            (json!({"a": {"b": {}}}), json!({"a": {"b": {"c": 1}}}), None),
            (json!({"a": {}, "d": 1}), json!({"a": {"c": 1}}), Some(json!({"d": 1}))),
            (json!({"a": [], "b": {}}), json!({"a": [1], "b": 2}), Some(json!({"a": [], "b": {}}))),
        ];
        for (spec, former, expected) in cases {
            let of = |spec: &Value| content(&json!({"metadata": {"name": "saturn"}, "spec": spec}));
            let left = of(&spec).without_emptied(&of(&former));
            assert_eq!(left.get("spec"), expected.as_ref(), "{spec} {former}");
        }
    }

    #[test]
    fn a_shared_copy_has_the_content_of_its_source_and_nothing_else() {
        let source = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "MQ=="},
            "metadata": {
                "name": "key", "namespace": "team", "uid": "u1",
                "labels": {
                    "app": "rocket", "kube-bind.io/owner": "x", "kube-bind.io/provider-kubeconfig": "true",
                    "kube-bind.io/tier": "gold", "mortise.dev/consent": "yes",
                },
                "annotations": {
                    "note": "x", "mortise.dev/consent": "yes", "a.mortise.dev/b": "c", "kcp.io/cluster": "d",
                    "kube-bind.io/provider-uid": "u0",
                },
            },
        });
        let former = json!({
            "metadata": {
                "labels": {"app": "moon", "x": "y", "mortise.dev/pin": "z"},
                "annotations": {"theirs": "z", "mortise.dev/consent": "no"},
            },
            "data": {"k": "Mg==", "other": "Mw=="},
            "binaryData": {"a": "MQ=="}, "immutable": true, "secrets": [{"name": "token"}],
        });
        let marks = [(mark::CONSUMER_UID, "u1".to_owned())];
        let former = content(&former);
        let manifest = content(&source).copy("cn-team", mark::CONSUMER, marks, Some(&former));
        let copy: Value = serde_json::from_str(&manifest.object).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "MQ=="},
            "metadata": {
                "name": "key", "namespace": "cn-team",
                "labels": {"app": "rocket", "kube-bind.io/owner": "consumer", "kube-bind.io/tier": "gold"},
                "annotations": {
                    "note": "x", "kube-bind.io/consumer-uid": "u1", "kube-bind.io/provider-uid": "u0",
                },
            },
        });
        assert_eq!(copy, expected);
        let labels = [r#"metadata.labels["x"]"#, r#"metadata.annotations["theirs"]"#];
        let fields = ["binaryData", r#"data["other"]"#, "immutable"];
        assert_eq!(manifest.absent, [&labels[..], &fields].concat());
    }
}

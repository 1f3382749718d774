//! The watches that the host needs for itself: only what it uses of each object is parsed.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use futures::stream::BoxStream;
use kube::{
    Api, Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
    runtime::watcher::{self, Event},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Cluster, Guarded};

/// The only label, annotation and finalizer that the host reads.
pub(crate) const MARK: &str = "mortise.dev/processor";
/// The longest value of [`MARK`]: it names a Processor.
const MAX_MARK_BYTES: usize = 253;

/// An object with its spec and status as text, or its metadata only. Tenants decide how large the
/// rest of it is, so the rest is skipped while the object is parsed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lean<const WHOLE: bool> {
    /// The object's identity, and [`MARK`] if the object has it.
    #[serde(deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) status: Option<Box<RawValue>>,
}

/// The metadata of an object.
pub(crate) type LeanMetadata = Lean<false>;
/// An object with its spec and status.
pub(crate) type LeanObject = Lean<true>;

/// The value of [`MARK`] in a map, empty in a list, if it is there.
#[derive(Default)]
struct Mark(Option<String>);

struct MarkVisitor;

/// Watches all objects of a kind, or those of one namespace, with the host's own rights.
pub(crate) fn all<const WHOLE: bool>(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> BoxStream<'static, watcher::Result<Event<Lean<WHOLE>>>> {
    let guarded = Guarded::new(cluster.client(), Lean::<WHOLE>::PARSED_DEPTH);
    let api = |client| match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    guarded.watch(api, watcher::Config::default())
}

// === impl Lean ===

impl<const WHOLE: bool> Lean<WHOLE> {
    /// The depth to which an object is parsed: that of the fields of its metadata.
    const PARSED_DEPTH: usize = 2;
}

impl<const WHOLE: bool> Resource for Lean<WHOLE> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        !WHOLE
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        deletion_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
        labels: Mark,
        annotations: Mark,
        finalizers: Mark,
    }
    let of = Metadata::deserialize(deserializer)?;
    let map = |Mark(value): Mark| value.map(|value| BTreeMap::from([(MARK.to_owned(), value)]));
    Ok(ObjectMeta {
        name: of.name,
        namespace: of.namespace,
        uid: of.uid,
        resource_version: of.resource_version,
        generation: of.generation,
        deletion_timestamp: of.deletion_timestamp,
        labels: map(of.labels),
        annotations: map(of.annotations),
        finalizers: of.finalizers.0.map(|_| vec![MARK.to_owned()]),
        ..ObjectMeta::default()
    })
}

// === impl Mark ===

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MarkVisitor)
    }
}

impl<'de> Visitor<'de> for MarkVisitor {
    type Value = Mark;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a map or a list of texts")
    }

    fn visit_unit<E>(self) -> Result<Mark, E> {
        Ok(Mark(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == MARK {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Mark(found.filter(|value: &String| value.len() <= MAX_MARK_BYTES)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Mark, A::Error> {
        let mut found = None;
        while let Some(text) = list.next_element::<String>()? {
            if text == MARK {
                found = Some(String::new());
            }
        }
        Ok(Mark(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_used_fields_of_an_object_are_kept() {
        let long = "x".repeat(MAX_MARK_BYTES + 1);
        let read = |labels: &str, annotation: &str| {
            let text = format!(
                r#"{{"kind": "K", "data": [1], "spec": {{"a": [0, 0]}}, "metadata": {{
                    "name": "n", "namespace": "s", "resourceVersion": "7", "labels": {labels},
                    "annotations": {{"{MARK}": "{annotation}", "b": "{long}"}},
                    "finalizers": ["a", "{MARK}", "b"], "managedFields": [{{"manager": "m"}}]}}}}"#
            );
            serde_json::from_str::<LeanObject>(&text).unwrap()
        };
        let mark = |value: &str| Some(BTreeMap::from([(MARK.to_owned(), value.to_owned())]));
        let lean = read(r#"{"a": "b"}"#, "rules");
        let kept = ObjectMeta {
            name: Some("n".into()),
            namespace: Some("s".into()),
            resource_version: Some("7".into()),
            annotations: mark("rules"),
            finalizers: Some(vec![MARK.to_owned()]),
            ..ObjectMeta::default()
        };
        assert_eq!(lean.metadata, kept);
        assert_eq!(lean.spec.unwrap().get(), r#"{"a": [0, 0]}"#);
        let named = read(&format!(r#"{{"{MARK}": "rules"}}"#), &long).metadata;
        assert_eq!((named.labels, named.annotations), (mark("rules"), None), "no name is so long");
        assert_eq!(read("null", "*").metadata.labels, None);
    }
}

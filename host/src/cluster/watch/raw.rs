//! An object as a watch delivers it.

use std::{borrow::Cow, fmt};

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
    core::DynamicResourceScope,
};
use mortise_core::contract::{
    Kind,
    bounds::text::{is_label, is_name, is_unsafe, quoted},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object as it was received, or only its metadata: the store needs its JSON, kube's watcher its
/// `resourceVersion`. kube's own types refuse times that the API server accepts.
/// Boxed, since kube's streams pass an event on by value many times.
#[derive(Clone)]
pub(super) struct Raw<const WHOLE: bool>(Box<Came>);

#[derive(Clone)]
struct Came {
    metadata: ObjectMeta,
    object: Value,
    /// The `apiVersion` and the kind, if they are not kept in the object.
    types: Option<[Value; 2]>,
}

// === impl Raw ===

impl<const WHOLE: bool> Raw<WHOLE> {
    fn new(mut object: Value) -> Self {
        let metadata = object.get("metadata");
        let text = |field: &str| metadata?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        let mut types = None;
        if !WHOLE {
            let mut take = |field: &str| object.get_mut(field).map(Value::take).unwrap_or_default();
            let named = ["apiVersion", "kind"].map(&mut take);
            object = serde_json::json!({ "metadata": take("metadata") });
            // A watch of metadata delivers objects of the kind `PartialObjectMetadata`, whatever
            // their own kind is.
            types = Some(named).filter(|[_, kind]| kind != "PartialObjectMetadata");
        }
        Self(Box::new(Came { metadata, object, types }))
    }

    /// Returns the error of an object that names another kind. An object of a list may name no kind.
    pub(super) fn foreign(&self, kind: &Kind) -> Option<String> {
        let own = ["apiVersion", "kind"].map(|field| self.object().get(field));
        let types = self.0.types.as_ref().map_or(own, |types| types.each_ref().map(Some));
        let [version, named] = types.map(|text| text.and_then(Value::as_str));
        let group = version.map(|of| of.rsplit_once('/').map_or("", |(group, _)| group));
        let is_it =
            group.is_none_or(|of| of == kind.group) && named.is_none_or(|name| name == kind.kind);
        (!is_it).then(|| {
            let of = quoted(named.unwrap_or_default());
            format!("the API server sent an object of kind {of} in its place")
        })
    }

    /// Returns the name of an object of another cluster, for a message, if the name or the namespace
    /// is invalid. The API server at home is trusted to check names.
    pub(super) fn misnamed(&self, kind: &Kind) -> Option<String> {
        let ObjectMeta { name, namespace, .. } = &self.0.metadata;
        let is_valid = |name: &String| is_name(name) && !name.contains(is_unsafe);
        let is_named = name.as_ref().is_some_and(is_valid)
            && namespace.as_ref().is_none_or(|namespace| is_label(namespace));
        let is_home = kind.cluster.is_empty();
        (!is_home && !is_named).then(|| quoted(name.as_deref().unwrap_or_default()))
    }

    pub(super) fn object(&self) -> &Value {
        &self.0.object
    }
}

/// Prints the object's identity only: the object may be a Secret.
impl<const WHOLE: bool> fmt::Debug for Raw<WHOLE> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectMeta { namespace, name, resource_version, .. } = self.meta();
        write!(to, "{namespace:?} {name:?} {resource_version:?}")
    }
}

impl<'de, const WHOLE: bool> Deserialize<'de> for Raw<WHOLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

impl<const WHOLE: bool> Resource for Raw<WHOLE> {
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
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests;

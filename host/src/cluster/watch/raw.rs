//! An object as a watch delivers it.

use std::{borrow::Cow, fmt};

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta, PartialObjectMeta, TypeMeta},
    core::DynamicResourceScope,
};
use mortise_core::contract::{
    Kind,
    bounds::text::{is_label, is_name, is_unsafe, quoted},
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object as it was received: the store needs its JSON, kube's watcher its `resourceVersion`.
/// Boxed, since kube's streams pass an event on by value many times.
#[derive(Clone)]
pub(super) struct Raw(Box<Came>);

#[derive(Clone)]
struct Came {
    metadata: ObjectMeta,
    object: Value,
    /// The type named by an object that holds only metadata, if any.
    types: Option<TypeMeta>,
}

// === impl Raw ===

impl Raw {
    fn new(object: Value) -> Self {
        let metadata = object.get("metadata");
        let text = |field: &str| metadata?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self(Box::new(Came { metadata, object, types: None }))
    }

    pub(super) fn from_metadata(partial: &PartialObjectMeta<Self>) -> Self {
        // `ObjectMeta` consists of texts, numbers and maps of texts, which JSON can represent.
        let metadata = serde_json::to_value(&partial.metadata).unwrap_or_default();
        let mut raw = Self::new(serde_json::json!({ "metadata": metadata }));
        // A watch of metadata delivers objects of the kind `PartialObjectMetadata`, whatever their
        // own kind is.
        raw.0.types = partial.types.clone().filter(|types| types.kind != "PartialObjectMetadata");
        raw
    }

    /// Returns the error of an object that names another kind, or no object. An object of a list may
    /// name no kind. The API server at home is trusted to check names.
    pub(super) fn foreign(&self, kind: &Kind) -> Option<String> {
        let ObjectMeta { name, namespace, .. } = &self.0.metadata;
        let is_valid = |name: &String| is_name(name) && !name.contains(is_unsafe);
        let is_named = name.as_ref().is_some_and(is_valid)
            && namespace.as_ref().is_none_or(|namespace| is_label(namespace));
        if !kind.cluster.is_empty() && !is_named {
            let shown = quoted(name.as_deref().unwrap_or_default());
            return Some(format!("the cluster sent an object with an invalid name: {shown}"));
        }
        let types = self.0.types.as_ref();
        let text = |field: &str| self.object().get(field).and_then(Value::as_str);
        let version = types.map(|types| types.api_version.as_str()).or(text("apiVersion"));
        let named = types.map(|types| types.kind.as_str()).or(text("kind"));
        let group = version.map(|of| of.rsplit_once('/').map_or("", |(group, _)| group));
        let is_it =
            group.is_none_or(|of| of == kind.group) && named.is_none_or(|name| name == kind.kind);
        (!is_it).then(|| {
            let of = quoted(named.unwrap_or_default());
            format!("the API server sent an object of kind {of} in its place")
        })
    }

    pub(super) fn object(&self) -> &Value {
        &self.0.object
    }
}

/// Prints the object's identity only: the object may be a Secret.
impl fmt::Debug for Raw {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectMeta { namespace, name, resource_version, .. } = self.meta();
        write!(to, "{namespace:?} {name:?} {resource_version:?}")
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

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

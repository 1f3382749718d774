//! Loading of objects as if they had been stored before.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Failure,
    chance::Chance,
    kind::Resource,
    state::{EXTENSIONS, State},
    status::Named,
    storage::metadata_mut,
};

// === impl State ===

impl State {
    /// Loads an object; see `EmbeddedApi::load`.
    pub(crate) fn load(
        &mut self,
        mut object: Value,
        validate: bool,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let resource = self.kind_of(&object)?;
        let name = place_in_namespace(&resource, &mut object)?;
        let is_crd = (resource.group.as_str(), resource.plural.as_str())
            == (EXTENSIONS, "customresourcedefinitions");
        let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
        if validate || is_crd || is_namespace {
            // CRDs and namespaces do not work without the fields that the server sets.
            object = prepared(&resource, object, &self.chance)?;
        }
        if validate {
            let faults = resource.validate_create(&object);
            if !faults.is_empty() {
                return Err(Failure::invalid(
                    Named::new(&resource.group, &resource.kind, &name),
                    faults,
                ));
            }
        }
        let namespace =
            object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let place = Self::place_of(&resource, namespace, &name);
        if resource.is_converted() {
            object = resource.convert_to_stored(object)?;
        }
        self.insert(&resource, &place, object, now);
        if is_crd {
            self.serve_crd(&place, now);
        }
        Ok(())
    }

    pub(crate) fn kind_of(&self, object: &Value) -> Result<Arc<Resource>, Failure> {
        let part = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (part("apiVersion"), part("kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let found = self.registry.find_kind(group, version, kind).cloned();
        found.ok_or_else(|| {
            Failure::bad_request(format!("no matches for kind {kind:?} in version {api_version:?}"))
        })
    }
}

/// Sets the namespace `default` if the kind is namespaced and the object has none. Returns the
/// object's name.
fn place_in_namespace(resource: &Resource, object: &mut Value) -> Result<String, Failure> {
    let kind = &resource.kind;
    let fields = object
        .as_object_mut()
        .ok_or_else(|| Failure::bad_request("the object is no JSON object"))?;
    let metadata = metadata_mut(fields);
    metadata.remove("resourceVersion");
    let has_namespace =
        metadata.get("namespace").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !resource.namespaced {
        metadata.remove("namespace");
    } else if !has_namespace {
        metadata.insert("namespace".to_owned(), Value::from("default"));
    }
    let name = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| Failure::bad_request(format!("{kind} without a name")))
}

/// Returns the object with defaults, and with the fields that the server sets on create unless the
/// object sets them.
fn prepared(resource: &Resource, object: Value, chance: &Chance) -> Result<Value, Failure> {
    let has_status =
        object.get("status").is_some_and(|status| !status.is_null() && *status != json!({}));
    let mut given = resource.decode(object)?.object;
    resource.default(&mut given);
    if let Some(fields) = given.as_object_mut() {
        metadata_mut(fields).entry("uid").or_insert_with(|| Value::from(chance.uid()));
    }
    let mut object = given.clone();
    resource.prepare_create(&mut object, None)?;
    let (Some(fields), Some(given)) = (object.as_object_mut(), given.as_object_mut()) else {
        return Ok(object);
    };
    let metadata = metadata_mut(fields);
    for (key, value) in std::mem::take(metadata_mut(given)) {
        // Labels and annotations that the server adds stay; all else is as given.
        match (metadata.get_mut(&key).and_then(Value::as_object_mut), value) {
            (Some(present), Value::Object(value)) => present.extend(value),
            (_, value) => _ = metadata.insert(key, value),
        }
    }
    if has_status && let Some(status) = given.remove("status") {
        fields.insert("status".to_owned(), status);
    }
    Ok(object)
}

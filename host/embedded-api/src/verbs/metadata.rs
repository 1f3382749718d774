//! The metadata of written objects: the fields that must fit the path, those that only the server
//! sets, and those that never change.

use serde_json::{Map, Value};

use super::Call;
use crate::{
    Failure,
    field_error::{FieldError, FieldPath},
    name,
    storage::metadata_mut,
};

// === impl Call ===

impl Call<'_> {
    /// Fits an object to the path: sets or checks its namespace and, with `has_name`, checks its
    /// name.
    pub(super) fn fit(&mut self, object: &mut Value, has_name: bool) -> Result<(), Failure> {
        fit_namespace(object, &self.path.namespace)?;
        if has_name {
            check_name(object, &self.path.name)?;
        }
        self.dedup_owners(object);
        Ok(())
    }
}

/// Returns a text of the metadata, empty if absent.
pub(super) fn text(object: &Value, field: &str) -> String {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Removes the fields that a client may not set on a new object.
pub(super) fn wipe_system_fields(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        let metadata = metadata_mut(fields);
        for field in [
            "creationTimestamp",
            "uid",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(field);
        }
    }
}

/// Sets the namespace of an object to that of the request, or removes it from cluster-scoped
/// objects. Fails with 400 if the object has another namespace.
fn fit_namespace(object: &mut Value, namespace: &str) -> Result<(), Failure> {
    let Some(fields) = object.as_object_mut() else { return Ok(()) };
    let metadata = metadata_mut(fields);
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        found if found == namespace && !found.is_empty() => {}
        _ if namespace.is_empty() => {
            metadata.remove("namespace");
        }
        "" => {
            metadata.insert("namespace".to_owned(), Value::from(namespace));
        }
        _ => {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

/// Fails with 400 unless the name of an object is that of the URL.
fn check_name(object: &Value, name: &str) -> Result<(), Failure> {
    let found = text(object, "name");
    if found.is_empty() {
        let text = format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        );
        return Err(Failure::bad_request(text));
    }
    if found != name {
        let text =
            format!("the name of the object ({found}) does not match the name on the URL ({name})");
        return Err(Failure::bad_request(text));
    }
    Ok(())
}

/// Restores the fields that an update can never change.
pub(super) fn keep_system_fields(new: &mut Value, old: &Value) {
    let empty = Map::new();
    let old = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let Some(fields) = new.as_object_mut() else { return };
    let metadata = metadata_mut(fields);
    let set = |metadata: &mut Map<String, Value>, field: &str, value: Option<&Value>| match value {
        Some(value) => metadata.insert(field.to_owned(), value.clone()),
        None => metadata.remove(field),
    };
    if metadata.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty() {
        set(metadata, "uid", old.get("uid"));
    }
    set(metadata, "creationTimestamp", old.get("creationTimestamp"));
    if let Some(deletion) = old.get("deletionTimestamp") {
        set(metadata, "deletionTimestamp", Some(deletion));
    }
    let grace = "deletionGracePeriodSeconds";
    if metadata.get(grace).is_none_or(Value::is_null) {
        set(metadata, grace, old.get(grace));
    }
    metadata.remove("selfLink");
}

/// Validates the metadata of an update. The errors of its changes occur twice, as Kubernetes
/// validates once for all kinds and once for each.
pub(super) fn metadata_faults<'a>(new: &'a Value, old: &'a Value) -> Vec<FieldError> {
    let metadata = |object: &'a Value| object.get("metadata").unwrap_or(&Value::Null);
    let path = FieldPath::new("metadata");
    let faults = name::validate_metadata_update(metadata(new), metadata(old), &path);
    let whole = name::validate_any_metadata(metadata(new), &path);
    whole.into_iter().chain(faults.iter().cloned()).chain(faults.iter().cloned()).collect()
}

//! Validation of volume claims.

use super::{FieldError, FieldPath, Value, at, is_empty, items, text};
use crate::builtin::{
    edit::{child, copy, remove},
    quantity::nanos,
};

const ACCESS: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const SIZE: [&str; 4] = ["spec", "resources", "requests", "storage"];

pub(super) fn whole(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let here = path.child("accessModes");
    if is_empty(&spec["accessModes"]) {
        errors.push(FieldError::required(here, "at least 1 access mode is required"));
    }
    for mode in items(&spec["accessModes"]).iter().filter_map(Value::as_str) {
        if !ACCESS.contains(&mode) {
            errors.push(FieldError::not_supported(here, mode, ACCESS));
        }
    }
    let size = at(object, &SIZE);
    let path = path.child("resources");
    if size.is_null() {
        errors.push(FieldError::required(path.key("storage"), ""));
    } else if nanos(size) <= 0 {
        let size = size.as_str().unwrap_or_default();
        errors.push(FieldError::invalid(path.key("storage"), size, "must be greater than zero"));
    }
}

/// Validates the changes of a claim: only a bound one changes its size and its class of attributes,
/// and it does not shrink to the capacity that it has. The name of the volume and the storage class
/// can be set once. Kubernetes' message also shows the changes.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut changed = new["spec"].clone();
    let is_bound = text(&new["status"], "phase") == "Bound";
    if text(&old["spec"], "volumeName").is_empty() {
        copy(&mut changed, "volumeName", &old["spec"]);
    }
    if at(old, &["spec", "storageClassName"]).is_null() {
        remove(&mut changed, "storageClassName");
    }
    if is_bound {
        copy(&mut changed, "volumeAttributesClassName", &old["spec"]);
    }
    if is_bound && !at(new, &SIZE[..3]).is_null() {
        let requests =
            child(&mut changed, "resources").and_then(|resources| child(resources, "requests"));
        if let Some(requests) = requests {
            copy(requests, "storage", at(old, &SIZE[..3]));
        }
    }
    if changed != old["spec"] {
        let fault = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", fault));
    }
    let size = nanos(at(new, &SIZE));
    let capacity = at(old, &["status", "capacity", "storage"]);
    if size < nanos(at(old, &SIZE)) && size <= nanos(capacity) {
        let fault = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", fault));
    }
}

//! The cells of volumes, of volume claims, and of classes.

use serde_json::Value;

use super::cell::{NONE, UNSET, join, scalar};
use crate::builtin::edit::{at, items, text};

/// Returns the abbreviation of an access mode.
fn short(mode: &str) -> &'static str {
    match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        _ => "RWOP",
    }
}

fn modes(modes: &Value) -> String {
    join(items(modes).iter().filter_map(Value::as_str).map(short))
}

/// Returns the phase, or `Terminating` if the object is being deleted.
fn phase(object: &Value) -> &str {
    let is_deleting = !at(object, &["metadata", "deletionTimestamp"]).is_null();
    if is_deleting { "Terminating" } else { text(&object["status"], "phase") }
}

/// Returns the class of a volume or claim: the annotation that is older than the field has
/// precedence.
fn class(object: &Value) -> &str {
    let annotations = at(object, &["metadata", "annotations"]);
    match text(annotations, "volume.beta.kubernetes.io/storage-class") {
        "" => text(&object["spec"], "storageClassName"),
        class => class,
    }
}

pub(super) fn claim(name: Value, object: &Value, old: Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let volume = text(spec, "volumeName");
    let (modes, size) = if volume.is_empty() {
        (String::new(), "")
    } else {
        (modes(&status["accessModes"]), text(&status["capacity"], "storage"))
    };
    vec![
        name,
        phase(object).into(),
        volume.into(),
        size.into(),
        modes.into(),
        class(object).into(),
        scalar(&spec["volumeAttributesClassName"], UNSET),
        old,
        scalar(&spec["volumeMode"], UNSET),
    ]
}

pub(super) fn volume(name: Value, object: &Value, old: Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let claim = &spec["claimRef"];
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", text(claim, "namespace"), text(claim, "name"))
    };
    vec![
        name,
        text(&spec["capacity"], "storage").into(),
        modes(&spec["accessModes"]).into(),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase(object).into(),
        claim.into(),
        class(object).into(),
        scalar(&spec["volumeAttributesClassName"], UNSET),
        text(status, "reason").into(),
        old,
        scalar(&spec["volumeMode"], UNSET),
    ]
}

pub(super) fn storage_class(object: &Value, old: Value) -> Vec<Value> {
    let annotations = at(object, &["metadata", "annotations"]);
    let is_default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .iter()
    .any(|key| annotations[key] == "true");
    let name = text(&object["metadata"], "name");
    let name = if is_default { format!("{name} (default)") } else { name.to_owned() };
    vec![
        name.into(),
        text(object, "provisioner").into(),
        text(object, "reclaimPolicy").into(),
        text(object, "volumeBindingMode").into(),
        (object["allowVolumeExpansion"] == true).into(),
        old,
    ]
}

pub(super) fn ingress_class(name: Value, spec: &Value, old: Value) -> Vec<Value> {
    let parameters = &spec["parameters"];
    let kind = match (parameters.is_null(), text(parameters, "apiGroup")) {
        (true, _) => NONE.to_owned(),
        (_, "") => format!("{}/{}", text(parameters, "kind"), text(parameters, "name")),
        (_, group) => format!("{}.{group}/{}", text(parameters, "kind"), text(parameters, "name")),
    };
    vec![name, text(spec, "controller").into(), kind.into(), old]
}

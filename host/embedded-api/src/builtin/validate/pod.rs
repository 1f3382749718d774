//! Validation of pods and their specs.

use std::collections::HashSet;

use super::{
    FieldError, FieldPath, Value, add_invalid, at, items, one_of,
    pod_parts::{container, volume_mounts},
    text,
};
use crate::name;

const RESTART: [&str; 3] = ["Always", "Never", "OnFailure"];
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "PreferNoSchedule"];
const DNS: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
/// The sources of volumes, in the order in which Kubernetes checks them.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

pub(super) fn pod(object: &Value, errors: &mut Vec<FieldError>) {
    spec(&object["spec"], &FieldPath::new("spec"), errors);
}

/// Validates the template of a workload: its labels and its spec.
pub(super) fn template(template: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let metadata = path.child("metadata");
    if let Some(labels) = at(template, &["metadata", "labels"]).as_object() {
        errors.extend(name::validate_labels(labels, &metadata.child("labels")));
    }
    if let Some(annotations) = at(template, &["metadata", "annotations"]).as_object() {
        errors.extend(name::validate_annotations(annotations, &metadata.child("annotations")));
    }
    spec(&template["spec"], &path.child("spec"), errors);
}

fn spec(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let volumes = volumes(spec, path, errors);
    containers(spec, &volumes, path, errors);
    one_of(&spec["restartPolicy"], &RESTART, &path.child("restartPolicy"), errors);
    one_of(&spec["dnsPolicy"], &DNS, &path.child("dnsPolicy"), errors);
    super::number::not_negative(
        &spec["terminationGracePeriodSeconds"],
        &path.child("terminationGracePeriodSeconds"),
        errors,
    );
    if spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds < 1) {
        let fault = "must be between 1 and 2147483647, inclusive";
        let value = spec["activeDeadlineSeconds"].clone();
        errors.push(FieldError::invalid(path.child("activeDeadlineSeconds"), value, fault));
    }
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let value = text(spec, field);
        if !value.is_empty() {
            add_invalid(errors, &path.child(field), value, name::is_subdomain(value));
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, field);
        if !value.is_empty() {
            add_invalid(errors, &path.child(field), value, name::is_label(value));
        }
    }
    if let Some(labels) = spec["nodeSelector"].as_object() {
        errors.extend(name::validate_labels(labels, &path.child("nodeSelector")));
    }
    secrets(spec, path, errors);
    for (index, toleration) in items(&spec["tolerations"]).iter().enumerate() {
        tolerates(toleration, &path.child("tolerations").index(index), errors);
    }
}

fn tolerates(toleration: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let [key, operator, value, effect] =
        ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
    if !key.is_empty() {
        add_invalid(errors, &path.child("key"), key, name::is_qualified_name(key));
    }
    let here = path.child("operator");
    if key.is_empty() && operator != "Exists" {
        let fault = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(here, operator, fault));
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let fault = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(path.child("effect"), effect, fault));
    }
    match operator {
        "Equal" | "" => {
            let faults = name::is_label_value(value);
            if !faults.is_empty() {
                errors.push(FieldError::invalid(here, value, faults.join(";")));
            }
        }
        "Exists" if !value.is_empty() => {
            let fault = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(here, value, fault));
        }
        "Exists" => {}
        _ => errors.push(FieldError::not_supported(here, operator, ["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        one_of(&toleration["effect"], &EFFECTS, &path.child("effect"), errors);
    }
}

fn secrets(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("imagePullSecrets");
    for (index, secret) in items(&spec["imagePullSecrets"]).iter().enumerate() {
        if text(secret, "name").is_empty() {
            errors.push(FieldError::required(path.index(index).child("name"), ""));
        }
    }
}

/// Validates the volumes, and returns their names.
fn volumes<'a>(
    spec: &'a Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> HashSet<&'a str> {
    let path = path.child("volumes");
    let mut names = HashSet::new();
    for (index, volume) in items(&spec["volumes"]).iter().enumerate() {
        let path = path.index(index);
        let here = path.child("name");
        let name = text(volume, "name");
        for source in SOURCES.iter().filter(|source| !volume[**source].is_null()).skip(1) {
            let fault = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(path.child(source), fault));
        }
        if name.is_empty() {
            errors.push(FieldError::required(here, ""));
            continue;
        }
        let faults = name::is_label(name);
        if faults.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(here, name));
        }
        add_invalid(errors, &here, name, faults);
        source(volume, &path, errors);
    }
    names
}

fn source(volume: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let required = [
        ("configMap", "name"),
        ("secret", "secretName"),
        ("persistentVolumeClaim", "claimName"),
        ("hostPath", "path"),
    ];
    for (source, field) in required {
        if volume[source].is_object() && text(&volume[source], field).is_empty() {
            errors.push(FieldError::required(path.child(source).child(field), ""));
        }
    }
}

fn containers(
    spec: &Value,
    volumes: &HashSet<&str>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let here = path.child("containers");
    let all = items(&spec["containers"]);
    if all.is_empty() {
        errors.push(FieldError::required(here, ""));
    }
    let mut names = HashSet::new();
    for (list, all) in [("containers", all), ("initContainers", items(&spec["initContainers"]))] {
        let path = path.child(list);
        for (index, value) in all.iter().enumerate() {
            let path = path.index(index);
            let name = text(value, "name");
            container(value, &path, errors);
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
            volume_mounts(value, volumes, &path, errors);
        }
    }
}

/// Validates that only images, a deadline, tolerations and a few more fields of an existing pod
/// change.
pub(super) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (before, after) = (comparable(&old["spec"]), comparable(&new["spec"]));
    let mut errors = Vec::new();
    if before != after {
        let fault = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", fault));
    }
    for list in ["containers", "initContainers"] {
        let path = FieldPath::new("spec");
        let path = path.child(list);
        for (index, container) in items(at(new, &["spec", list])).iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.push(FieldError::required(path.index(index).child("image"), ""));
            }
        }
    }
    errors
}

/// Returns a spec without the fields that may change.
fn comparable(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in crate::builtin::edit::items_mut(&mut spec, list) {
            crate::builtin::edit::remove(container, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        crate::builtin::edit::remove(&mut spec, field);
    }
    spec
}

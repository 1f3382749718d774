//! Validation of pods and their specs.

use std::collections::HashSet;

use super::{
    FieldError, FieldPath, Value, add_invalid, at, items, one_of, pod_field,
    pod_parts::{container, volume_mounts},
    text,
};
use crate::{
    builtin::edit::{is_empty, items_mut, members, remove},
    name,
};

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
    pod_field::spec(spec, path, errors);
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
    }
    names
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

/// Validates that only images, a deadline, tolerations and gates of an existing pod change; of one
/// that is held by a gate also its node selector.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("spec");
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        if items(&new[list]).len() != items(&old[list]).len() {
            let fault = "pod updates may not add or remove containers";
            return errors.push(FieldError::forbidden(path, fault));
        }
        for (index, container) in items(&new[list]).iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.push(FieldError::required(path.index(index).child("image"), ""));
            }
        }
    }
    let without_seconds = |tolerations: &Value| {
        let mut tolerations = items(tolerations).to_vec();
        for toleration in &mut tolerations {
            remove(toleration, "tolerationSeconds");
        }
        tolerations
    };
    let kept = without_seconds(&new["tolerations"]);
    if without_seconds(&old["tolerations"]).iter().any(|old| !kept.contains(old)) {
        let fault = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path.child("tolerations"), fault));
    }
    let gates = path.child("schedulingGates");
    for (index, gate) in items(&new["schedulingGates"]).iter().enumerate() {
        let name = text(gate, "name");
        if !items(&old["schedulingGates"]).iter().any(|old| text(old, "name") == name) {
            let fault = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(gates.index(index).child("name"), fault));
        }
    }
    if let Some(seconds) = old["activeDeadlineSeconds"].as_i64() {
        let here = path.child("activeDeadlineSeconds");
        let value = &new["activeDeadlineSeconds"];
        if value.is_null() {
            let fault = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(here, Value::Null, fault));
        } else if value.as_i64().is_some_and(|value| value > seconds) {
            let fault = "must be less than or equal to previous value";
            return errors.push(FieldError::invalid(here, value.clone(), fault));
        }
    }
    let is_gated = !is_empty(&old["schedulingGates"]);
    let selector = &new["nodeSelector"];
    if is_gated && members(&old["nodeSelector"]).any(|(key, value)| selector[key] != *value) {
        let fault = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(path.child("nodeSelector"), super::shown(selector), fault));
    }
    if comparable(new, is_gated) != comparable(old, is_gated) {
        let fault = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden(path, fault));
    }
}

/// Returns a spec without the fields that may change.
fn comparable(spec: &Value, is_gated: bool) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in items_mut(&mut spec, list) {
            remove(container, "image");
        }
    }
    let gated: &[&str] = if is_gated { &["nodeSelector"] } else { &[] };
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"].iter().chain(gated) {
        remove(&mut spec, field);
    }
    spec
}

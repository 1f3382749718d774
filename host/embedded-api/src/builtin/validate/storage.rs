//! Validation of volumes, storage classes and ingress classes.

use super::{FieldError, FieldPath, Value, add_invalid, at, is_empty, items, one_of, text};
use crate::{builtin::edit::members, name};

/// The fields that every volume may have; all others are volume sources.
const COMMON: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

const POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn volume(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    if is_empty(&spec["accessModes"]) {
        errors.push(FieldError::required(path.child("accessModes"), ""));
    }
    let here = path.child("accessModes");
    for (index, mode) in items(&spec["accessModes"]).iter().enumerate() {
        one_of(mode, &MODES, &here.index(index), errors);
    }
    if is_empty(&spec["capacity"]) {
        errors.push(FieldError::required(path.child("capacity"), ""));
    } else if at(spec, &["capacity", "storage"]).is_null() {
        let found = spec["capacity"].clone();
        errors.push(FieldError::not_supported(path.child("capacity"), found, ["storage"]));
    }
    let mut sources = members(spec).filter(|(key, _)| !COMMON.contains(&key.as_str()));
    let first = sources.next();
    if first.is_none() {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    for (key, _) in sources {
        errors.push(FieldError::forbidden(
            path.child(key),
            "may not specify more than 1 volume type",
        ));
    }
    let here = path.child("persistentVolumeReclaimPolicy");
    one_of(&spec["persistentVolumeReclaimPolicy"], &POLICIES, &here, errors);
}

pub(super) fn class(object: &Value, errors: &mut Vec<FieldError>) {
    let provisioner = text(object, "provisioner");
    let path = FieldPath::new("provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        add_invalid(
            errors,
            &path,
            provisioner,
            name::is_qualified_name(&provisioner.to_lowercase()),
        );
    }
    one_of(
        &object["reclaimPolicy"],
        &["Delete", "Retain"],
        &FieldPath::new("reclaimPolicy"),
        errors,
    );
    let path = FieldPath::new("volumeBindingMode");
    one_of(&object["volumeBindingMode"], &["Immediate", "WaitForFirstConsumer"], &path, errors);
}

pub(super) fn class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for field in ["parameters", "provisioner", "reclaimPolicy"] {
        if new[field] != old[field] {
            let why = format!("updates to {field} are forbidden.");
            errors.push(FieldError::forbidden(FieldPath::new(field), &why));
        }
    }
    if new["volumeBindingMode"] != old["volumeBindingMode"] {
        let found = new["volumeBindingMode"].clone();
        errors.push(FieldError::invalid("volumeBindingMode", found, "field is immutable"));
    }
}

pub(super) fn ingress_class(object: &Value, errors: &mut Vec<FieldError>) {
    let controller = text(&object["spec"], "controller");
    let path = FieldPath::new("spec");
    let path = path.child("controller");
    match controller.split_once('/') {
        Some((domain, rest)) if !rest.is_empty() => {
            add_invalid(errors, &path, domain, name::is_subdomain(domain));
        }
        _ if controller.is_empty() => errors.push(FieldError::required(path, "")),
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, controller, why));
        }
    }
}

pub(super) fn ingress_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let controller = |object| at(object, &["spec", "controller"]).clone();
    if controller(new) != controller(old) {
        errors.push(FieldError::invalid("spec.controller", controller(new), "field is immutable"));
    }
}

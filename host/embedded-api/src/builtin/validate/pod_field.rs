//! Validation of the fields of pods that are deep in them: users, files, variables, DNS.

use super::{
    FieldError, FieldPath, Value, add_invalid, at, items,
    place::{self, Rule},
    text,
};
use crate::name;

const ID: Rule = Rule::Range(0, i32::MAX as i64, "must be between 0 and 2147483647, inclusive");
const SECONDS: Rule =
    Rule::Range(1, i32::MAX as i64, "must be between 1 and 2147483647, inclusive");
const MODE: Rule =
    Rule::Range(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive");
const SECCOMP: Rule = Rule::OneOf(&["Localhost", "RuntimeDefault", "Unconfined"]);
const RULES: [(&str, Rule); 22] = [
    ("volumes[].configMap", Rule::Has("name")),
    ("volumes[].configMap.defaultMode", MODE),
    ("volumes[].configMap.items[]", Rule::Has("key")),
    ("volumes[].configMap.items[]", Rule::Has("path")),
    ("volumes[].configMap.items[].mode", MODE),
    ("volumes[].secret", Rule::Has("secretName")),
    ("volumes[].secret.defaultMode", MODE),
    ("volumes[].secret.items[]", Rule::Has("key")),
    ("volumes[].secret.items[]", Rule::Has("path")),
    ("volumes[].secret.items[].mode", MODE),
    ("volumes[].persistentVolumeClaim", Rule::Has("claimName")),
    ("volumes[].hostPath", Rule::Has("path")),
    ("volumes[].downwardAPI.defaultMode", MODE),
    ("volumes[].downwardAPI.items[].mode", MODE),
    ("volumes[].projected.defaultMode", MODE),
    ("securityContext.fsGroup", ID),
    ("securityContext.runAsUser", ID),
    ("securityContext.runAsGroup", ID),
    ("securityContext.supplementalGroups[]", ID),
    ("securityContext.seccompProfile.type", SECCOMP),
    ("imagePullSecrets[]", Rule::Has("name")),
    ("activeDeadlineSeconds", SECONDS),
];
const CONTAINER: [(&str, Rule); 7] = [
    ("terminationMessagePolicy", Rule::OneOf(&["FallbackToLogsOnError", "File"])),
    ("env[].valueFrom.configMapKeyRef", Rule::Has("key")),
    ("env[].valueFrom.secretKeyRef", Rule::Has("key")),
    ("imagePullPolicy", Rule::OneOf(&["Always", "IfNotPresent", "Never"])),
    ("securityContext.runAsUser", ID),
    ("securityContext.runAsGroup", ID),
    ("securityContext.seccompProfile.type", SECCOMP),
];
const VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const FILES: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// The fields that can be named, but that nothing shows.
const OTHERS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];

/// Validates the spec of a pod.
pub(super) fn spec(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    place::check(&RULES, spec, path, errors);
    for place in
        ["downwardAPI.items[].fieldRef", "projected.sources[].downwardAPI.items[].fieldRef"]
    {
        let place = format!("volumes[].{place}");
        place::each(spec, &place, path, &mut |value, path| field(value, &FILES, path, errors));
    }
    let servers = items(at(spec, &["dnsConfig", "nameservers"]));
    if text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let path = path.child("dnsConfig");
        errors.push(if spec["dnsConfig"].is_null() {
            FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        } else {
            let fault = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            FieldError::required(path.child("nameservers"), fault)
        });
    }
    place::each(spec, "schedulingGates[]", path, &mut |gate, path| {
        let name = text(gate, "name");
        add_invalid(errors, path, name, name::is_qualified_name(name));
    });
}

/// Validates a container.
pub(super) fn container(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    place::check(&CONTAINER, value, path, errors);
    place::each(value, "env[].valueFrom.fieldRef", path, &mut |value, path| {
        field(value, &VARIABLES, path, errors);
    });
}

/// Validates a reference to a field of the pod; `known` are the fields that may be shown.
fn field(value: &Value, known: &[&str], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("fieldPath");
    let found = text(value, "fieldPath");
    if found.is_empty() {
        return errors.push(FieldError::required(here, ""));
    }
    let subscript = found.strip_suffix("']").and_then(|found| found.split_once("['"));
    let place = subscript.map_or(found, |(place, _)| place);
    let is_map = matches!(place, "metadata.annotations" | "metadata.labels");
    let fault = match subscript {
        Some(_) if is_map => return,
        Some(_) => "field label does not support subscript",
        None if known.contains(&place) || place == "spec.host" => return,
        None if [&VARIABLES[..], &FILES, &OTHERS].iter().any(|some| some.contains(&place)) => {
            return errors.push(FieldError::not_supported(here, place, known));
        }
        None => "field label not supported",
    };
    let fault = format!("error converting fieldPath: {fault}: {found}");
    errors.push(FieldError::invalid(here, found, fault));
}

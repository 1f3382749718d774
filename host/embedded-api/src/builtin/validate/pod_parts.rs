//! Validation of containers and their parts.

use std::collections::HashSet;

use super::{
    FieldError, FieldPath, Value, add_invalid, at, items, members,
    number::{not_negative, port_name, port_or_name, positive},
    one_of, pod_field, text,
};
use crate::{builtin::quantity::Quantity, name};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) fn container(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("name");
    match text(value, "name") {
        "" => errors.push(FieldError::required(here, "")),
        name => add_invalid(errors, &here, name, name::is_label(name)),
    }
    let image = text(value, "image");
    if image.is_empty() {
        errors.push(FieldError::required(path.child("image"), ""));
    } else if image.trim() != image {
        let fault = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(path.child("image"), image, fault));
    }
    for (name, liveness) in
        [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)]
    {
        if value[name].is_object() {
            probe(&value[name], liveness, &path.child(name), errors);
        }
    }
    for hook in ["postStart", "preStop"] {
        if at(value, &["lifecycle", hook]).is_object() {
            handler(at(value, &["lifecycle", hook]), &path.child("lifecycle").child(hook), errors);
        }
    }
    ports(value, path, errors);
    environment(value, path, errors);
    pod_field::container(value, path, errors);
    resources(&value["resources"], &path.child("resources"), errors);
}

fn probe(value: &Value, single_success: bool, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    handler(value, path, errors);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&value[field], &path.child(field), errors);
    }
    positive(
        &value["terminationGracePeriodSeconds"],
        &path.child("terminationGracePeriodSeconds"),
        errors,
    );
    if single_success && value["successThreshold"].as_i64().is_some_and(|threshold| threshold != 1)
    {
        let threshold = value["successThreshold"].clone();
        errors.push(FieldError::invalid(path.child("successThreshold"), threshold, "must be 1"));
    }
}

fn handler(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        if value[kind].is_null() {
            continue;
        }
        found += 1;
        if found > 1 {
            errors.push(FieldError::forbidden(
                path.child(kind),
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        let here = path.child(kind);
        match kind {
            "exec" if items(at(value, &["exec", "command"])).is_empty() => {
                errors.push(FieldError::required(here.child("command"), ""));
            }
            "httpGet" => {
                port_or_name(at(value, &["httpGet", "port"]), &here.child("port"), errors);
                one_of(
                    at(value, &["httpGet", "scheme"]),
                    &["HTTP", "HTTPS"],
                    &here.child("scheme"),
                    errors,
                );
            }
            "tcpSocket" => {
                port_or_name(at(value, &["tcpSocket", "port"]), &here.child("port"), errors);
            }
            "grpc" => {
                super::number::port(at(value, &["grpc", "port"]), &here.child("port"), errors);
            }
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn ports(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("ports");
    let mut names = HashSet::new();
    for (index, port) in items(&value["ports"]).iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let faults = port_name(name);
            if faults.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
            add_invalid(errors, &path.child("name"), name, faults);
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.push(FieldError::required(path.child("containerPort"), "")),
            _ => super::number::port(&port["containerPort"], &path.child("containerPort"), errors),
        }
        if !port["hostPort"].is_null() {
            super::number::port(&port["hostPort"], &path.child("hostPort"), errors);
        }
        one_of(&port["protocol"], &PROTOCOLS, &path.child("protocol"), errors);
    }
}

fn environment(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.child("env");
    for (index, variable) in items(&value["env"]).iter().enumerate() {
        let path = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else if name.contains('=') || name.chars().any(|letter| !(' '..='~').contains(&letter)) {
            let fault = "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(path.child("name"), name, fault));
        }
        if !variable["valueFrom"].is_null() && !text(variable, "value").is_empty() {
            let fault = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(path.child("valueFrom"), "", fault));
        }
    }
}

fn resources(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let amount = |value: &Value| Quantity::parse(value.as_str().unwrap_or("")).map(Quantity::nanos);
    for list in ["limits", "requests"] {
        let path = path.child(list);
        for (name, value) in members(&value[list]) {
            if amount(value).is_some_and(|nanos| nanos < 0) {
                let fault = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(path.key(name), value.clone(), fault));
            }
        }
    }
    for (name, request) in members(&value["requests"]) {
        let limit = at(value, &["limits", name]);
        if let (Some(asked), Some(allowed)) = (amount(request), amount(limit))
            && asked > allowed
        {
            let limit = limit.as_str().unwrap_or("");
            let fault = format!("must be less than or equal to {name} limit of {limit}");
            errors.push(FieldError::invalid(path.child("requests"), request.clone(), fault));
        }
    }
}

/// Validates that each mount names a volume and has a path of its own.
pub(super) fn volume_mounts(
    value: &Value,
    volumes: &HashSet<&str>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let path = path.child("volumeMounts");
    let mut places = HashSet::new();
    for (index, mount) in items(&value["volumeMounts"]).iter().enumerate() {
        let path = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(path.child("name"), name));
        }
        let place = text(mount, "mountPath");
        if place.is_empty() {
            errors.push(FieldError::required(path.child("mountPath"), ""));
        } else if !places.insert(place) {
            errors.push(FieldError::invalid(path.child("mountPath"), place, "must be unique"));
        }
    }
}

//! Validation of the other kinds.

use std::net::IpAddr;

use super::{
    super::{admission::system_priority, warn::INGRESS_CLASS},
    FieldError, FieldPath, Shown, Value, add_invalid, at, items,
    number::{number_or_percent, port, positive},
    one_of, selector, shown, text,
};
use crate::{field_error::go_json, name};

pub(super) fn disruption_budget(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let fault = "minAvailable and maxUnavailable cannot be both set";
        // The server's internal type has other field names.
        let raw = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            go_json(&spec["minAvailable"]),
            go_json(&spec["selector"]),
            go_json(&spec["maxUnavailable"]),
            go_json(&spec["unhealthyPodEvictionPolicy"]),
        );
        errors.push(FieldError::invalid(path, Shown::Raw(raw), fault));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if !spec[field].is_null() {
            number_or_percent(&spec[field], &path.child(field), errors);
            super::number::at_most_all(&spec[field], &path.child(field), errors);
        }
    }
    selector::validate(&spec["selector"], &path.child("selector"), errors);
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str()
        && !known.contains(&policy)
    {
        let path = path.child("unhealthyPodEvictionPolicy");
        errors.push(FieldError::not_supported(path, policy, known));
    }
}

pub(super) fn autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let least = spec["minReplicas"].as_i64().unwrap_or(1);
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if least < 1 {
        let fault = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(path.child("minReplicas"), least, fault));
    }
    if most < 1 {
        errors.push(FieldError::invalid(path.child("maxReplicas"), most, "must be greater than 0"));
    }
    if most < least {
        let fault = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(path.child("maxReplicas"), most, fault));
    }
    let here = path.child("scaleTargetRef");
    for field in ["kind", "name"] {
        match text(&spec["scaleTargetRef"], field) {
            "" => errors.push(FieldError::required(here.child(field), "")),
            value => add_invalid(errors, &here.child(field), value, name::is_path_segment(value)),
        }
    }
}

pub(super) fn lease(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    positive(&spec["leaseDurationSeconds"], &path.child("leaseDurationSeconds"), errors);
    if let Some(transitions) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        let fault = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.child("leaseTransitions"), transitions, fault));
    }
}

pub(super) fn ingress(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let rules = items(&spec["rules"]);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        let fault = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(path, shown(&spec["rules"]), fault));
    }
    if !spec["defaultBackend"].is_null() {
        backend(&spec["defaultBackend"], &path.child("defaultBackend"), errors);
    }
    let path = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let named = text(rule, "host");
        if !named.is_empty() {
            if is_address(named) {
                let fault = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(path.child("host"), named, fault));
            }
            host(named, &path.child("host"), errors);
        }
        if rule["http"].is_null() {
            continue;
        }
        let path = path.child("http");
        let path = path.child("paths");
        let paths = items(at(rule, &["http", "paths"]));
        if paths.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        for (index, value) in paths.iter().enumerate() {
            ingress_path(value, &path.index(index), errors);
        }
    }
    for (index, tls) in items(&spec["tls"]).iter().enumerate() {
        ingress_tls(tls, &FieldPath::new("spec.tls").index(index), errors);
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        let path = FieldPath::new("spec.ingressClassName");
        add_invalid(errors, &path, class, name::is_subdomain(class));
    }
}

/// Validates the class that the annotation of a new Ingress names beside the field.
pub(super) fn ingress_class_annotation(object: &Value, errors: &mut Vec<FieldError>) {
    let class = at(object, &["spec", "ingressClassName"]);
    let annotation = at(object, &["metadata", "annotations", INGRESS_CLASS]);
    if let (false, Some(named)) = (class.is_null() || class == annotation, annotation.as_str()) {
        let fault = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(format!("annotations.{INGRESS_CLASS}"), named, fault));
    }
}

/// Returns whether a text is an IP address; its decimal numbers may begin with 0.
fn is_address(text: &str) -> bool {
    let number = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        number => number.to_owned(),
    };
    let numbers: Vec<String> = text.split('.').map(number).collect();
    numbers.join(".").parse::<IpAddr>().is_ok()
}

fn host(named: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let is_wildcard = named.contains('*');
    let check = if is_wildcard { name::is_wildcard_subdomain } else { name::is_subdomain };
    add_invalid(errors, path, named, check(named));
}

fn ingress_tls(tls: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let hosts = path.child("hosts");
    for (index, named) in items(&tls["hosts"]).iter().enumerate() {
        host(named.as_str().unwrap_or_default(), &hosts.index(index), errors);
    }
    let secret = text(tls, "secretName");
    if !secret.is_empty() {
        add_invalid(errors, &path.child("secretName"), secret, name::is_subdomain(secret));
    }
}

fn ingress_path(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let place = text(value, "path");
    match value["pathType"].as_str() {
        None => {
            let fault = "pathType must be specified";
            return errors.push(FieldError::required(path.child("pathType"), fault));
        }
        Some("Exact" | "Prefix") => {
            if !place.starts_with('/') {
                let fault = "must be an absolute path";
                errors.push(FieldError::invalid(path.child("path"), place, fault));
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if place.contains(bad) {
                    let fault = format!("must not contain '{bad}'");
                    errors.push(FieldError::invalid(path.child("path"), place, fault));
                }
            }
            for bad in ["/..", "/."] {
                if place.ends_with(bad) {
                    let fault = format!("cannot end with '{bad}'");
                    errors.push(FieldError::invalid(path.child("path"), place, fault));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !place.is_empty() && !place.starts_with('/') {
                let fault = "must be an absolute path";
                errors.push(FieldError::invalid(path.child("path"), place, fault));
            }
        }
        Some(other) => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(path.child("pathType"), other, known));
        }
    }
    backend(&value["backend"], &path.child("backend"), errors);
}

fn backend(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let service = &value["service"];
    match (service.is_null(), value["resource"].is_null()) {
        (false, false) => {
            let fault = "cannot set both resource and service backends";
            errors.push(FieldError::invalid(path, "", fault));
        }
        (true, true) => {
            let fault = "resource or service backend is required";
            errors.push(FieldError::invalid(path, "", fault));
        }
        (true, false) => {}
        (false, true) => {
            let whole = path;
            let path = path.child("service");
            match text(service, "name") {
                "" => errors.push(FieldError::required(path.child("name"), "")),
                name => add_invalid(errors, &path.child("name"), name, name::is_label_1035(name)),
            }
            let path = path.child("port");
            let (name, number) =
                (text(&service["port"], "name"), at(service, &["port", "number"]).as_i64());
            match (name.is_empty(), number.unwrap_or(0)) {
                (true, 0) => {
                    errors.push(FieldError::required(whole, "port name or number is required"));
                }
                (true, _) => port(at(service, &["port", "number"]), &path.child("number"), errors),
                (false, 0) => {
                    add_invalid(errors, &path.child("name"), name, super::number::port_name(name));
                }
                (false, _) => {
                    let fault = "cannot set both port name & port number";
                    errors.push(FieldError::invalid(whole, "", fault));
                }
            }
        }
    }
}

const MAX_PRIORITY: i64 = 1_000_000_000;

pub(super) fn priority_class(object: &Value, errors: &mut Vec<FieldError>) {
    let name = text(&object["metadata"], "name");
    let value = object["value"].as_i64().unwrap_or(0);
    if name.starts_with("system-") {
        let fault = match system_priority(name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some(wanted) if value != wanted => {
                Some(format!("value of {name} PriorityClass must be {wanted}"))
            }
            Some(_) => None,
        };
        errors.extend(fault.map(|fault| {
            let fault = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {fault}"
            );
            FieldError::forbidden("metadata.name", fault)
        }));
    } else if value > MAX_PRIORITY {
        let fault = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(FieldError::forbidden("value", fault));
    }
    let known = ["PreemptLowerPriority", "Never"];
    one_of(&object["preemptionPolicy"], &known, &FieldPath::new("preemptionPolicy"), errors);
}

pub(super) fn priority_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if new["value"] != old["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    if new["preemptionPolicy"] != old["preemptionPolicy"] {
        let value = shown(&new["preemptionPolicy"]);
        errors.push(FieldError::invalid("preemptionPolicy", value, "field is immutable"));
    }
}

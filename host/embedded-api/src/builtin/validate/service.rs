//! Validation of Services.

mod address;
mod traffic;

pub(crate) use address::related as addresses;
pub(super) use address::update as address_update;
pub(super) use traffic::update as traffic_update;

use std::{collections::HashSet, net::IpAddr};

use self::traffic::ONLY;
use super::{
    FieldError, FieldPath, Shown, Value, add_invalid, at, is_empty, items,
    number::{port, port_or_name},
    one_of, text,
};
use crate::name;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// The longest session affinity, in seconds: a day.
const MAX_AFFINITY_SECONDS: i64 = 86_400;
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Validates a Service; `old` is the Service that it replaces.
pub(super) fn service(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let old = old.map(|old| &old["spec"]);
    let path = FieldPath::new("spec");
    topology(object, errors);
    let ports = items(&spec["ports"]);
    let is_external = text(spec, "type") == "ExternalName";
    if ports.is_empty() && !address::is_headless(spec) && !is_external {
        errors.push(FieldError::required(path.child("ports"), ""));
    }
    by_type(spec, &path, errors);
    let here = path.child("ports");
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        port_of(port, ports.len() > 1, &mut names, &here.index(index), errors);
    }
    if let Some(labels) = spec["selector"].as_object() {
        errors.extend(name::validate_labels(labels, &path.child("selector")));
    }
    affinity(spec, &path, errors);
    errors.extend(addresses(spec, old));
    external_addresses(spec, old, &path, errors);
    one_of(&spec["type"], &TYPES, &path.child("type"), errors);
    node_ports(spec, &here, errors);
    duplicate_ports(ports, &here, errors);
    source_ranges(object, old, errors);
    traffic::balancer(spec, &path, errors);
    traffic::policies(spec, &path, errors);
}

/// Validates that an older annotation and its successor have the same value.
fn topology(object: &Value, errors: &mut Vec<FieldError>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let annotations = at(object, &["metadata", "annotations"]);
    if let (Some(hints), Some(mode)) = (annotations.get(HINTS), annotations.get(MODE))
        && hints != mode
    {
        let path = FieldPath::new("metadata.annotations");
        let fault = format!("must match annotations[{HINTS}] when both are specified");
        errors.push(FieldError::invalid(path.key(MODE), mode.clone(), fault));
    }
}

fn by_type(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match text(spec, "type") {
        kind @ ("LoadBalancer" | "NodePort") if address::is_headless(spec) => {
            let fault = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(path.child("clusterIPs[0]"), "None", fault));
        }
        "ExternalName" => {
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !is_empty(&spec[key]) {
                    let fault = "may not be set for ExternalName services";
                    errors.push(FieldError::forbidden(path.child(key), fault));
                }
            }
            let here = path.child("externalName");
            let name = text(spec, "externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.push(FieldError::required(here, "")),
                name => add_invalid(errors, &here, name, name::is_subdomain(name)),
            }
        }
        _ => {}
    }
}

fn port_of<'a>(
    value: &'a Value,
    needs_name: bool,
    names: &mut HashSet<&'a str>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(value, "name");
    let here = path.child("name");
    if name.is_empty() {
        if needs_name {
            errors.push(FieldError::required(here, ""));
        }
    } else {
        add_invalid(errors, &here, name, name::is_label(name));
        if !names.insert(name) {
            errors.push(FieldError::duplicate(here, name));
        }
    }
    port(&value["port"], &path.child("port"), errors);
    one_of(&value["protocol"], &PROTOCOLS, &path.child("protocol"), errors);
    port_or_name(&value["targetPort"], &path.child("targetPort"), errors);
    if let Some(protocol) = value["appProtocol"].as_str() {
        let here = path.child("appProtocol");
        add_invalid(errors, &here, protocol, name::is_qualified_name(protocol));
    }
}

/// Validates the session affinity.
fn affinity(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    one_of(&spec["sessionAffinity"], &["ClientIP", "None"], &path.child("sessionAffinity"), errors);
    let here = path.child("sessionAffinityConfig");
    let config = &spec["sessionAffinityConfig"];
    match text(spec, "sessionAffinity") {
        "None" if !config.is_null() => {
            let fault = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden(here, fault));
        }
        "ClientIP" => {
            let missing = "when session affinity type is ClientIP";
            let client = here.child("clientIP");
            let seconds = client.child("timeoutSeconds");
            match at(config, &["clientIP", "timeoutSeconds"]).as_i64() {
                _ if config.is_null() => errors.push(FieldError::required(here, missing)),
                _ if config["clientIP"].is_null() => {
                    errors.push(FieldError::required(client, missing));
                }
                None => errors.push(FieldError::required(seconds, missing)),
                Some(1..=MAX_AFFINITY_SECONDS) => {}
                Some(number) => {
                    let fault =
                        format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.push(FieldError::invalid(seconds, number, fault));
                }
            }
        }
        _ => {}
    }
}

/// Validates the addresses that others route to the cluster; those that were there before are not
/// validated again.
fn external_addresses(
    spec: &Value,
    old: Option<&Value>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let path = path.child("externalIPs");
    for (index, value) in items(&spec["externalIPs"]).iter().enumerate() {
        let here = path.index(index);
        let value = value.as_str().unwrap_or_default();
        if let Some(fault) = address::fault(value, old.map(|old| &old["externalIPs"])) {
            errors.push(FieldError::invalid(here, value, fault));
            continue;
        }
        let fault = match value.parse::<IpAddr>() {
            Err(_) => "must be a valid IP address".to_owned(),
            Ok(address) if address.is_unspecified() => {
                format!("may not be unspecified ({value})")
            }
            Ok(address) if address.is_loopback() => {
                "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
            }
            Ok(address) if address::is_link_local(address) => {
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
            }
            Ok(address) if address::is_link_local_multicast(address) => {
                "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
            }
            Ok(_) => continue,
        };
        errors.push(FieldError::invalid(here, value, fault));
    }
}

/// Validates that Services inside of the cluster have no node ports, and that each node port occurs
/// once for a protocol.
fn node_ports(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let number = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    let ports = items(&spec["ports"]);
    let used = || ports.iter().enumerate().filter_map(|(at, port)| Some((at, port, number(port)?)));
    if text(spec, "type") == "ClusterIP" {
        for (index, ..) in used() {
            let fault = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(path.index(index).child("nodePort"), fault));
        }
    }
    let mut seen = HashSet::new();
    for (index, port, number) in used() {
        if !seen.insert((text(port, "protocol"), number)) {
            errors.push(FieldError::duplicate(path.index(index).child("nodePort"), number));
        }
    }
}

fn duplicate_ports(ports: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let protocol = text(port, "protocol");
        let number = port["port"].as_i64().unwrap_or(0);
        if !seen.insert((protocol, number)) {
            let raw = format!(
                r#"{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(FieldError::duplicate(path.index(index), Shown::Raw(raw)));
        }
    }
}

/// Validates the source ranges of the load balancer: the field, or the older annotation.
fn source_ranges(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let is_balanced = text(spec, "type") == "LoadBalancer";
    let ranges = items(&spec["loadBalancerSourceRanges"]);
    if !ranges.is_empty() {
        // Messages name the field in this way, with a capital letter.
        let path = FieldPath::new("spec.LoadBalancerSourceRanges");
        if !is_balanced {
            errors.push(FieldError::forbidden(path, ONLY));
        }
        let before = old.map_or(&[][..], |old| items(&old["loadBalancerSourceRanges"]));
        for (index, range) in ranges.iter().enumerate().filter(|(_, range)| !before.contains(range))
        {
            address::range(range.as_str().unwrap_or_default(), &path.index(index), errors);
        }
        return;
    }
    let annotation = at(object, &["metadata", "annotations"])[RANGES_ANNOTATION].as_str();
    let Some(annotation) = annotation else { return };
    let path = FieldPath::new("metadata.annotations");
    let path = path.key(RANGES_ANNOTATION);
    if !is_balanced {
        errors.push(FieldError::forbidden(path, ONLY));
    }
    for range in annotation.split(',').filter(|_| !annotation.trim().is_empty()) {
        address::range(range, &path, errors);
    }
}

/// Validates that only the status of a load balancer has addresses outside of the cluster.
pub(super) fn status_update(new: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::new("status.loadBalancer.ingress");
    let ingress = items(at(new, &["status", "loadBalancer", "ingress"]));
    if !ingress.is_empty() && text(&new["spec"], "type") != "LoadBalancer" {
        let fault = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(path, fault));
        return;
    }
    for (index, point) in ingress.iter().enumerate() {
        address::balanced(point, &path.index(index), errors);
    }
}

//! Services.

use std::collections::HashSet;
use std::net::IpAddr;

use super::number::{port, port_or_name};
use super::{
    Addresses, FieldError, FieldPath, Shown, Value, add_invalid, at, is_empty, items, one_of,
    shown, text,
};
use crate::builtin::address;
use crate::name;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn service(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    let path = FieldPath::new("spec");
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let wants_both = spec["ipFamilyPolicy"] == "RequireDualStack" && kind != "ExternalName";
    if wants_both && !(text(spec, "clusterIP") == "None" && is_empty(&spec["selector"])) {
        let fault = "this cluster is not configured for dual-stack services";
        let here = path.child("ipFamilyPolicy");
        errors.push(FieldError::invalid(here, "RequireDualStack", fault));
        let here = path.child("ipFamilies");
        for (index, family) in items(&spec["ipFamilies"]).iter().enumerate() {
            if family != "IPv4" {
                let fault = "not configured on this cluster";
                errors.push(FieldError::invalid(here.index(index), family.clone(), fault));
            }
        }
        return;
    }
    let ports = items(&spec["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required(path.child("ports"), ""));
    }
    by_type(spec, kind, headless, &path, errors);
    let here = path.child("ports");
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        port_of(port, ports.len() > 1, &mut names, &here.index(index), errors);
    }
    if let Some(labels) = spec["selector"].as_object() {
        errors.extend(name::validate_labels(labels, &path.child("selector")));
    }
    one_of(&spec["sessionAffinity"], &["ClientIP", "None"], &path.child("sessionAffinity"), errors);
    addresses_of(spec, &path, errors);
    let external = path.child("externalIPs");
    for (index, address) in items(&spec["externalIPs"]).iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address.parse::<IpAddr>().is_err() {
            let fault = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(external.index(index), address, fault));
        }
    }
    one_of(&spec["type"], &TYPES, &path.child("type"), errors);
    if kind == "ClusterIP" {
        for (index, port) in
            ports.iter().enumerate().filter(|(_, port)| !port["nodePort"].is_null())
        {
            let _ = port;
            let here = here.index(index);
            let fault = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(here.child("nodePort"), fault));
        }
    }
    duplicate_ports(ports, &here, errors);
}

fn by_type(
    spec: &Value,
    kind: &str,
    headless: bool,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let fault = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(path.child("clusterIPs[0]"), "None", fault));
        }
        "ExternalName" => {
            if !is_empty(&spec["clusterIPs"]) {
                let fault = "may not be set for ExternalName services";
                errors.push(FieldError::forbidden(path.child("clusterIPs"), fault));
            }
            let here = path.child("externalName");
            match text(spec, "externalName").trim_end_matches('.') {
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
        let faults = name::is_label(name);
        if faults.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(here, name));
        }
        add_invalid(errors, &here, name, faults);
    }
    port(&value["port"], &path.child("port"), errors);
    one_of(&value["protocol"], &PROTOCOLS, &path.child("protocol"), errors);
    port_or_name(&value["targetPort"], &path.child("targetPort"), errors);
}

fn addresses_of(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let path = path.child("clusterIPs");
    let all = items(&spec["clusterIPs"]);
    let first = all.first().and_then(Value::as_str).unwrap_or("");
    if first != text(spec, "clusterIP") {
        let fault = "first value must match `clusterIP`";
        errors.push(FieldError::invalid(path, shown(&spec["clusterIPs"]), fault));
    }
    for (index, address) in all.iter().enumerate() {
        let text = address.as_str().unwrap_or("");
        if !(text == "None" && index == 0) && text.parse::<IpAddr>().is_err() {
            let fault = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(path.index(index), text, fault));
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

/// An address stays while the Service needs one.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    let headless =
        |spec: &Value| text(spec, "type") == "ClusterIP" && text(spec, "clusterIP") == "None";
    if external(new) || external(old) || (headless(new) && headless(old)) {
        return;
    }
    let first = |spec: &Value| items(&spec["clusterIPs"]).first().cloned();
    let fault = match (first(new), first(old)) {
        (None, Some(_)) => "primary clusterIP can not be unset",
        (Some(new), Some(old)) if new != old => "may not change once set",
        _ => return,
    };
    errors.push(FieldError::invalid("spec.clusterIPs[0]", shown(&new["clusterIPs"]), fault));
}

/// Only a load balancer has addresses outside of the cluster.
pub(super) fn status_update(new: &Value, errors: &mut Vec<FieldError>) {
    let ingress = at(new, &["status", "loadBalancer", "ingress"]);
    if !is_empty(ingress) && text(&new["spec"], "type") != "LoadBalancer" {
        let fault = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", fault));
    }
}

/// What was asked for must be in range, and free unless the Service has it already.
pub(super) fn allotted(
    new: &Value,
    old: Option<&Value>,
    addresses: &Addresses,
    errors: &mut Vec<FieldError>,
) {
    let spec = &new["spec"];
    let all = &spec["clusterIPs"];
    let kept = |pointer: &str| old.is_some_and(|old| old.pointer(pointer) == new.pointer(pointer));
    if !kept("/spec/clusterIPs") {
        for address in
            items(all).iter().filter_map(Value::as_str).filter(|address| *address != "None")
        {
            let fault = if !address::is_in_range(address) {
                format!(
                    "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is 10.0.0.0/16"
                )
            } else if addresses.is_address_used(address) {
                format!("failed to allocate IP {address}: provided IP is already allocated")
            } else {
                continue;
            };
            errors.push(FieldError::invalid("spec.clusterIPs", shown(all), fault));
        }
    }
    let before: Vec<_> =
        old.map_or(&[][..], |old| items(at(old, &["spec", "ports"]))).iter().collect();
    let path = FieldPath::new("spec.ports");
    for (index, port) in items(&spec["ports"]).iter().enumerate() {
        let Some(number) = port["nodePort"].as_u64() else { continue };
        let fault = if !address::is_node_port(number) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if addresses.is_port_used(number)
            && before.iter().all(|other| other["nodePort"] != number)
        {
            "provided port is already allocated"
        } else {
            continue;
        };
        errors.push(FieldError::invalid(path.index(index).child("nodePort"), number, fault));
    }
}

//! Addresses and node ports: given on creation, kept on update.

use super::{Addresses, Value, child, copy, default, is_empty, items, json, remove, set, text};
use crate::builtin::edit::items_mut;

pub(super) fn create(object: &mut Value, addresses: &Addresses) {
    let Some(spec) = child(object, "spec") else { return };
    one_address(spec, None);
    allot(spec, addresses);
}

pub(super) fn update(new: &mut Value, old: &Value, addresses: &Addresses) {
    let old = &old["spec"];
    let Some(spec) = child(new, "spec") else { return };
    one_address(spec, Some(old));
    if text(spec, "type") == "ExternalName" {
        forget(spec, old);
    } else if text(old, "type") != "ExternalName" {
        keep(spec, old);
    }
    let external = |spec: &Value| {
        let kind = text(spec, "type");
        matches!(kind, "NodePort" | "LoadBalancer")
            || (kind == "ClusterIP" && !is_empty(&spec["externalIPs"]))
    };
    let unneeded = [
        ("externalTrafficPolicy", external(old) && !external(spec)),
        ("allocateLoadBalancerNodePorts", is_balanced(old) && !is_balanced(spec)),
        ("loadBalancerClass", is_balanced(old) && !is_balanced(spec)),
    ];
    for (key, gone) in unneeded {
        if gone && spec[key] == old[key] {
            remove(spec, key);
        }
    }
    allot(spec, addresses);
}

/// Whether a load balancer serves the Service.
pub(super) fn is_balanced(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer"
}

/// `clusterIP` is the first of `clusterIPs`; who writes the one means both.
fn one_address(spec: &mut Value, old: Option<&Value>) {
    let address = text(spec, "clusterIP").to_owned();
    let all = items(&spec["clusterIPs"]);
    match old {
        None if !address.is_empty() && all.is_empty() => set(spec, "clusterIPs", json!([address])),
        None => {}
        Some(old) => {
            let changed = address != text(old, "clusterIP");
            if changed && spec["clusterIPs"] == old["clusterIPs"] {
                match address.as_str() {
                    "" => _ = remove(spec, "clusterIPs"),
                    _ => set(spec, "clusterIPs", json!([address])),
                }
            } else if !changed && is_empty(&spec["clusterIPs"]) && !is_empty(&old["clusterIPs"]) {
                remove(spec, "clusterIP");
            }
        }
    }
}

/// What was given stays when the update says nothing of it.
fn keep(spec: &mut Value, old: &Value) {
    if text(spec, "clusterIP").is_empty() && is_empty(&spec["clusterIPs"]) {
        copy(spec, "clusterIP", old);
        copy(spec, "clusterIPs", old);
    }
    if needs_node_ports(spec) && needs_node_ports(old) {
        let before = items(&old["ports"]);
        for port in items_mut(spec, "ports").filter(|port| port["nodePort"].is_null()) {
            let same = |other: &&Value| {
                other["port"] == port["port"] && other["protocol"] == port["protocol"]
            };
            if let Some(number) = before.iter().find(same).map(|other| other["nodePort"].clone())
                && !number.is_null()
            {
                set(port, "nodePort", number);
            }
        }
    } else if needs_node_ports(old) {
        items_mut(spec, "ports").for_each(|port| _ = remove(port, "nodePort"));
    }
    default(spec, "ipFamilies", old["ipFamilies"].clone());
    default(spec, "ipFamilyPolicy", old["ipFamilyPolicy"].clone());
}

/// An `ExternalName` has neither addresses nor families; those it had are given back.
fn forget(spec: &mut Value, old: &Value) {
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec[key] == old[key] {
            remove(spec, key);
        }
    }
}

fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

fn allot(spec: &mut Value, addresses: &Addresses) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    families(spec);
    if text(spec, "clusterIP").is_empty() && is_empty(&spec["clusterIPs"]) {
        // Validation says so when there is none left.
        if let Some(address) = addresses.free_address() {
            set(spec, "clusterIPs", json!([address.to_string()]));
        }
    }
    if let Some(first) = items(&spec["clusterIPs"]).first().cloned() {
        default(spec, "clusterIP", first);
    }
    if needs_node_ports(spec) {
        let mut taken: Vec<u64> =
            items(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_u64()).collect();
        for port in items_mut(spec, "ports").filter(|port| port["nodePort"].is_null()) {
            if let Some(number) = addresses.free_port(&taken) {
                taken.push(u64::from(number));
                set(port, "nodePort", number);
            }
        }
    }
}

/// One family, that of the cluster; a Service that selects nothing and has no address may have both.
fn families(spec: &mut Value) {
    let headless = text(spec, "clusterIP") == "None";
    if headless && is_empty(&spec["selector"]) {
        let single = spec["ipFamilyPolicy"] == "SingleStack";
        let all = if single { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) };
        default(spec, "ipFamilies", all);
        default(spec, "ipFamilyPolicy", "RequireDualStack");
    } else {
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", "SingleStack");
    }
}

//! Addresses and node ports: given on creation, kept on update.

use std::collections::BTreeSet;

use super::{Addresses, Value, child, copy, default, is_empty, items, json, remove, set, text};
use crate::builtin::edit::items_mut;

pub(super) fn create(object: &mut Value, addresses: &Addresses) {
    let Some(spec) = child(object, "spec") else { return };
    one_address(spec, None);
    allot(spec, true, addresses);
}

/// As Kubernetes does it: what was given before is put back, what is still needed is given, then what is needed no more is dropped.
pub(super) fn update(new: &mut Value, old: &Value, addresses: &Addresses) {
    let old = &old["spec"];
    let Some(spec) = child(new, "spec") else { return };
    keep(spec, old);
    one_address(spec, Some(old));
    if needs_address(spec) {
        default(spec, "ipFamilyPolicy", old["ipFamilyPolicy"].clone());
    }
    allot(spec, !needs_address(old), addresses);
    forget(spec, old);
}

/// The field of a spec that Kubernetes stores, since it once was a default of all Services, and does not show.
pub(super) fn concealed(object: &Value) -> Option<&'static str> {
    const POLICY: &str = "internalTrafficPolicy";
    let spec = object.get("spec")?;
    (text(spec, "type") == "ExternalName" && spec.get(POLICY).is_some()).then_some(POLICY)
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
            let before = &old["clusterIPs"];
            let changed = address != text(old, "clusterIP");
            if !changed && is_empty(&spec["clusterIPs"]) && !is_empty(before) {
                set(spec, "clusterIPs", before.clone());
            } else if changed && spec["clusterIPs"] == *before {
                match address.as_str() {
                    "" => _ = remove(spec, "clusterIPs"),
                    _ => set(spec, "clusterIPs", json!([address])),
                }
            }
        }
    }
}

/// What was given stays when the update says nothing of it.
fn keep(spec: &mut Value, old: &Value) {
    if needs_address(spec) && needs_address(old) {
        for key in ["clusterIP", "clusterIPs"] {
            if is_empty(&spec[key]) && !is_empty(&old[key]) {
                copy(spec, key, old);
            }
        }
    }
    if needs_node_ports(spec) && needs_node_ports(old) {
        keep_node_ports(spec, old);
    }
}

/// The port of the same name has the same node port, unless another one has it now.
fn keep_node_ports(spec: &mut Value, old: &Value) {
    let before = items(&old["ports"]);
    let now = node_ports(spec);
    for port in items_mut(spec, "ports").filter(|port| port["nodePort"].is_null()) {
        let same = before.iter().rfind(|other| other["name"] == port["name"]);
        let Some(number) = same.and_then(|other| other["nodePort"].as_u64()) else { continue };
        if !now.contains(&number) {
            set(port, "nodePort", number);
        }
    }
}

fn node_ports(spec: &Value) -> BTreeSet<u64> {
    items(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_u64()).collect()
}

/// What the former type needed and this one does not goes, if the update says nothing else of it.
fn forget(spec: &mut Value, old: &Value) {
    if needs_address(old) && !needs_address(spec) {
        if spec["clusterIPs"] == old["clusterIPs"] {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if spec[key] == old[key] {
                remove(spec, key);
            }
        }
    }
    if needs_node_ports(old)
        && !needs_node_ports(spec)
        && node_ports(spec).is_subset(&node_ports(old))
    {
        items_mut(spec, "ports").for_each(|port| _ = remove(port, "nodePort"));
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
}

/// Whether a Service of this type has an address in the cluster.
fn needs_address(spec: &Value) -> bool {
    matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// An address is given to what had no need of one before; ports are to all that lack them.
fn allot(spec: &mut Value, is_first: bool, addresses: &Addresses) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    families(spec);
    if is_first && text(spec, "clusterIP").is_empty() && is_empty(&spec["clusterIPs"]) {
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
        default(spec, "ipFamilyPolicy", "RequireDualStack");
        default(spec, "ipFamilies", json!(["IPv4"]));
        if spec["ipFamilyPolicy"] != "SingleStack" && items(&spec["ipFamilies"]).len() == 1 {
            let all = if spec["ipFamilies"] == json!(["IPv6"]) {
                ["IPv6", "IPv4"]
            } else {
                ["IPv4", "IPv6"]
            };
            set(spec, "ipFamilies", json!(all));
        }
    } else {
        default(spec, "ipFamilies", json!(["IPv4"]));
        default(spec, "ipFamilyPolicy", "SingleStack");
    }
}

//! Strategy of Services: allotted values are kept, missing ones are allotted, and those not needed
//! any more are dropped.

mod allot;
mod port;

use super::{Addresses, Value, child, copy, is_empty, items, json, remove, set, text};
use crate::{Failure, builtin::edit::items_mut};

/// A field that Kubernetes stores in Services of all types, as it once was a default of all, but
/// does not show in all.
const POLICY: &str = "internalTrafficPolicy";

/// Prepares a Service for creation.
///
/// # Errors
/// Fails if a requested value cannot be allotted; Kubernetes checks this before anything else.
pub(super) fn create(object: &mut Value, addresses: &Addresses) -> Result<(), Failure> {
    let name = text(&object["metadata"], "name").to_owned();
    let Some(spec) = child(object, "spec") else { return Ok(()) };
    one_address(spec, None);
    allot::addresses(spec, None, &name, addresses)?;
    port::allot(spec, None, &name, addresses)
}

/// Prepares the replacement of a Service as Kubernetes does: values allotted before are restored,
/// missing ones are allotted, then those not needed any more are dropped.
///
/// # Errors
/// Fails as [`create`] does.
pub(super) fn update(new: &mut Value, old: &Value, addresses: &Addresses) -> Result<(), Failure> {
    let name = text(&new["metadata"], "name").to_owned();
    let mut old = old["spec"].clone();
    complete(&mut old);
    let Some(spec) = child(new, "spec") else { return Ok(()) };
    keep(spec, &old);
    one_address(spec, Some(&old));
    allot::addresses(spec, Some(&old), &name, addresses)?;
    port::allot(spec, Some(&old), &name, addresses)?;
    forget(spec, &old);
    if !is_balanced(spec)
        && let Some(status) = child(new, "status")
    {
        set(status, "loadBalancer", json!({}));
    }
    Ok(())
}

/// Completes the stored spec of a Service as it is read. A Service that was created through its
/// status has no values allotted; those that follow from its addresses are added.
pub(super) fn complete(spec: &mut Value) {
    if !text(spec, "clusterIP").is_empty() && is_empty(&spec["clusterIPs"]) {
        let address = spec["clusterIP"].clone();
        set(spec, "clusterIPs", json!([address]));
    }
    if is_external(spec) {
        remove(spec, POLICY);
    } else {
        allot::complete_families(spec);
    }
}

/// Returns whether a load balancer serves the Service.
fn is_balanced(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer"
}

/// Returns whether the Service is only a name for a host outside of the cluster, and so needs no
/// address.
fn is_external(spec: &Value) -> bool {
    text(spec, "type") == "ExternalName"
}

/// Aligns `clusterIP`, the first of `clusterIPs`, and `clusterIPs`: a client that writes only one
/// of them means both.
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
            } else if changed && items(&spec["clusterIPs"]) == items(before) {
                match address.as_str() {
                    "" => _ = remove(spec, "clusterIPs"),
                    _ => set(spec, "clusterIPs", json!([address])),
                }
            }
        }
    }
}

/// Restores allotted values that the update omits.
fn keep(spec: &mut Value, old: &Value) {
    if !is_external(spec) && !is_external(old) {
        for key in ["clusterIP", "clusterIPs"] {
            if is_empty(&spec[key]) && !is_empty(&old[key]) {
                copy(spec, key, old);
            }
        }
    }
    port::keep(spec, old);
}

/// Removes values that only the former type needs, unless the update changes them.
fn forget(spec: &mut Value, old: &Value) {
    let same = |spec: &Value, key: &str| spec[key] == old[key];
    if !is_external(old) && is_external(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        for key in ["ipFamilies", "ipFamilyPolicy"] {
            if same(spec, key) {
                remove(spec, key);
            }
        }
    }
    let has_node_ports = |spec: &Value| matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    if has_node_ports(old)
        && !has_node_ports(spec)
        && port::numbers(spec).is_subset(&port::numbers(old))
    {
        items_mut(spec, "ports").for_each(|port| _ = remove(port, "nodePort"));
    }
    let unneeded = [
        ("healthCheckNodePort", port::is_checked(old) && !port::is_checked(spec)),
        ("allocateLoadBalancerNodePorts", is_balanced(old) && !is_balanced(spec)),
        ("loadBalancerClass", is_balanced(old) && !is_balanced(spec)),
        ("externalTrafficPolicy", is_reached(old) && !is_reached(spec)),
    ];
    for (key, gone) in unneeded {
        if gone && same(spec, key) {
            remove(spec, key);
        }
    }
}

/// Returns whether the Service is reached from outside of the cluster.
fn is_reached(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !is_empty(&spec["externalIPs"]),
        _ => false,
    }
}

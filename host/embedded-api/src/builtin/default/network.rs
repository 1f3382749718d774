//! Defaults of Services, endpoints and network policies.

use super::{Value, child, default, is_empty, items, items_mut, json, set, text};

pub(super) fn service(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            super::remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" => {
            if let Some(client) =
                child(spec, "sessionAffinityConfig").and_then(|config| child(config, "clientIP"))
            {
                default(client, "timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    default(spec, "type", "ClusterIP");
    for port in items_mut(spec, "ports") {
        default(port, "protocol", "TCP");
        if port["targetPort"] == 0 || port["targetPort"] == "" {
            let number = port["port"].clone();
            set(port, "targetPort", number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    if external || (kind == "ClusterIP" && !is_empty(&spec["externalIPs"])) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if external || kind == "ClusterIP" {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(status) = object.pointer_mut("/status/loadBalancer") {
            let addresses =
                items_mut(status, "ingress").filter(|ingress| !text(ingress, "ip").is_empty());
            addresses.for_each(|ingress| default(ingress, "ipMode", "VIP"));
        }
    }
}

pub(super) fn endpoints(object: &mut Value) {
    for subset in items_mut(object, "subsets") {
        for port in items_mut(subset, "ports") {
            default(port, "protocol", "TCP");
        }
    }
}

pub(super) fn endpoint_slice(object: &mut Value) {
    for port in items_mut(object, "ports") {
        default(port, "name", "");
        default(port, "protocol", "TCP");
    }
}

pub(super) fn policy(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    for list in ["ingress", "egress"] {
        for rule in items_mut(spec, list) {
            for port in items_mut(rule, "ports") {
                default(port, "protocol", "TCP");
            }
        }
    }
    let types = if items(&spec["egress"]).is_empty() {
        json!(["Ingress"])
    } else {
        json!(["Ingress", "Egress"])
    };
    default(spec, "policyTypes", types);
}

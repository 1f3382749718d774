//! Validation of traffic policies and load balancers.

use super::{super::number::port, FieldError, FieldPath, Value, add_invalid, is_empty, text};
use crate::name;

pub(super) const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Validates the fields that only a load balancer has.
pub(super) fn balancer(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let is_balanced = text(spec, "type") == "LoadBalancer";
    match &spec["allocateLoadBalancerNodePorts"] {
        Value::Null if is_balanced => {
            errors.push(FieldError::required("allocateLoadBalancerNodePorts", ""));
        }
        Value::Bool(_) if !is_balanced => {
            let here = path.child("allocateLoadBalancerNodePorts");
            errors.push(FieldError::forbidden(here, ONLY));
        }
        _ => {}
    }
    class(spec, path, errors);
}

fn class(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("loadBalancerClass");
    match spec["loadBalancerClass"].as_str() {
        Some(class) if text(spec, "type") == "LoadBalancer" => {
            add_invalid(errors, &here, class, name::is_qualified_name(class));
        }
        Some(_) => errors.push(FieldError::forbidden(here, ONLY)),
        None => {}
    }
}

/// Validates the policies for traffic from outside of the cluster, and from inside of it.
pub(super) fn policies(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    external(spec, path, errors);
    let here = path.child("internalTrafficPolicy");
    match spec["internalTrafficPolicy"].as_str() {
        None if ["ClusterIP", "LoadBalancer", "NodePort"].contains(&text(spec, "type")) => {
            errors.push(FieldError::required(here, ""));
        }
        Some(policy) if !POLICIES.contains(&policy) => {
            errors.push(FieldError::not_supported(here, policy, POLICIES));
        }
        _ => {}
    }
    if let Some(wanted) = spec["trafficDistribution"].as_str()
        && !DISTRIBUTIONS.contains(&wanted)
    {
        let here = path.child("trafficDistribution");
        errors.push(FieldError::not_supported(here, wanted, DISTRIBUTIONS));
    }
}

fn external(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let here = path.child("externalTrafficPolicy");
    let policy = text(spec, "externalTrafficPolicy");
    if !is_reached(spec) {
        if !policy.is_empty() {
            let fault = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid(here, policy, fault));
        }
    } else if policy.is_empty() {
        errors.push(FieldError::required(here, ""));
    } else if !POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(here, policy, POLICIES));
    }
    let here = path.child("healthCheckNodePort");
    match spec["healthCheckNodePort"].as_i64().unwrap_or(0) {
        0 if is_checked(spec) => errors.push(FieldError::required(here, "")),
        _ if is_checked(spec) => port(&spec["healthCheckNodePort"], &here, errors),
        0 => {}
        number => {
            let fault = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(here, number, fault));
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

fn is_checked(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Validates the fields of a load balancer that an update may not change.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let is_balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let changes = |key: &str| new[key] != old[key];
    if is_balanced(new) && is_balanced(old) && changes("loadBalancerClass") {
        let class = super::super::shown(&new["loadBalancerClass"]);
        let fault = "may not change once set";
        errors.push(FieldError::invalid("spec.loadBalancerClass", class, fault));
    }
    // The class of a load balancer is validated here and with the rest: its errors are reported
    // twice.
    let path = FieldPath::new("spec");
    class(new, &path, errors);
    if is_checked(new) && is_checked(old) && changes("healthCheckNodePort") {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
}

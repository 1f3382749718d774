//! The warnings of Kubernetes when pods, templates of pods, or Services are written: about allowed
//! values that are hardly intended.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    edit::{at, items, text},
    quantity::Quantity,
};
use crate::{field_error::FieldPath, name};

/// The lists of containers.
/// The annotation that named the class of an Ingress before the field.
pub(crate) const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Returns the warnings about an object; those about a pod or a template only if it is new.
pub(crate) fn warnings(definition: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    let places: &[&str] = match definition {
        "api.core.v1.Service" => return about_service(&new["spec"]),
        "api.core.v1.Secret" => return about_secret(new),
        "api.networking.v1.Ingress" if old.is_none() => return about_ingress(new),
        "api.core.v1.Pod" => &[],
        "api.apps.v1.Deployment"
        | "api.apps.v1.ReplicaSet"
        | "api.apps.v1.StatefulSet"
        | "api.apps.v1.DaemonSet"
        | "api.batch.v1.Job" => &["spec", "template"],
        "api.batch.v1.CronJob" => &["spec", "jobTemplate", "spec", "template"],
        _ => return Vec::new(),
    };
    let mut warnings = Vec::new();
    if old.is_none() {
        warnings.extend(about_name(definition, text(&new["metadata"], "name")));
    }
    if old.is_none_or(|old| is_new(definition, new, old)) {
        let prefix: Vec<_> = places.iter().copied().chain(["spec"]).collect();
        let spec = &at(new, places)["spec"];
        about_pod(spec, &FieldPath::new(&prefix.join(".")), &mut warnings);
    }
    warnings
}

/// Returns whether an update is warned about again: for a workload if its generation, or that of
/// its template, has grown; for a pod never.
fn is_new(definition: &str, new: &Value, old: &Value) -> bool {
    let generation: &[&str] = match definition {
        "api.core.v1.Pod" => return false,
        "api.apps.v1.DaemonSet" => {
            &["metadata", "annotations", super::strategy::TEMPLATE_GENERATION]
        }
        _ => &["metadata", "generation"],
    };
    at(new, generation) != at(old, generation)
}

/// Returns warnings about fields of a Service that are ignored.
fn about_service(spec: &Value) -> Vec<String> {
    let is_external = text(spec, "type") == "ExternalName";
    let is_headless = text(spec, "type") == "ClusterIP" && text(spec, "clusterIP") == "None";
    let has_external_ips = !items(&spec["externalIPs"]).is_empty();
    let headless = [
        ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
        ("externalIPs", has_external_ips),
        ("SessionAffinity", text(spec, "sessionAffinity") != "None"),
    ];
    let ignored = headless.iter().filter(|(_, is_set)| is_headless && *is_set);
    let mut warnings: Vec<String> = ignored
        .map(|(field, _)| format!("spec.{field} is ignored for headless services"))
        .collect();
    if is_external && has_external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && !text(spec, "externalName").is_empty() {
        warnings
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    warnings
}

/// Returns a warning about a Secret with a certificate or a key that is no PEM.
fn about_secret(secret: &Value) -> Vec<String> {
    let has_pem = |key: &str| {
        let data = STANDARD.decode(text(&secret["data"], key)).unwrap_or_default();
        String::from_utf8_lossy(&data).contains("-----BEGIN ")
    };
    let mut parts = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter();
    let wrong = parts.find(|(key, _)| !has_pem(key));
    let wrong = wrong.filter(|_| text(secret, "type") == "kubernetes.io/tls");
    let warn = |(_, part)| format!("tls: failed to find any PEM data in {part} input");
    wrong.map(warn).into_iter().collect()
}

/// Returns a warning about the annotation that named the class of an Ingress before the field.
fn about_ingress(ingress: &Value) -> Vec<String> {
    let is_set = !at(ingress, &["metadata", "annotations", INGRESS_CLASS]).is_null();
    let warning = format!(
        "annotation \"{INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
    );
    let is_useful = at(ingress, &["spec", "ingressClassName"]).is_null();
    (is_set && is_useful).then_some(warning).into_iter().collect()
}

/// Returns a warning about a name that is no DNS label: pods are named after their workload, and
/// hosts after pods.
fn about_name(definition: &str, name: &str) -> Option<String> {
    let user = match definition {
        "api.core.v1.Pod" => "the Pod's hostname",
        "api.apps.v1.StatefulSet" | "api.apps.v1.DaemonSet" => return None,
        _ => "Pod names and hostnames",
    };
    let faults = name::is_label(name);
    (!faults.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in {user}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        )
    })
}

fn about_pod(spec: &Value, path: &FieldPath<'_>, warnings: &mut Vec<String>) {
    let here = path.child("imagePullSecrets");
    let secrets = items(&spec["imagePullSecrets"]);
    for (index, secret) in secrets.iter().enumerate() {
        let name = text(secret, "name");
        if secrets.iter().take(index).any(|other| text(other, "name") == name) {
            warnings.push(format!("{}.name: duplicate name \"{name}\"", here.index(index)));
        }
    }
    for list in CONTAINERS {
        let path = path.child(list);
        for (index, container) in items(&spec[list]).iter().enumerate() {
            about_container(container, &path.index(index), warnings);
        }
    }
    about_ports(spec, path, warnings);
}

fn about_container(container: &Value, path: &FieldPath<'_>, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            let amount = at(container, &["resources", list, resource]).as_str().unwrap_or("");
            let fraction =
                Quantity::parse(amount).is_some_and(|amount| amount.nanos() % 1_000_000_000 != 0);
            if fraction {
                warnings.push(format!(
                    "{path}.resources.{list}[{resource}]: fractional byte value \"{amount}\" is invalid, must be an integer"
                ));
            }
        }
    }
    let here = path.child("env");
    let variables = items(&container["env"]);
    for (index, variable) in variables.iter().enumerate() {
        let name = text(variable, "name");
        let reference = format!("$({name})");
        let value = text(variable, "value");
        let refers =
            value.contains(&reference) && value != reference && variable["valueFrom"].is_null();
        if !refers && variables.iter().take(index).any(|other| text(other, "name") == name) {
            warnings.push(format!(
                "{}: hides previous definition of \"{name}\", which may be dropped when using apply",
                here.index(index)
            ));
        }
    }
}

/// Warns about ports and names of ports that occur twice, in any containers.
fn about_ports(spec: &Value, path: &FieldPath<'_>, warnings: &mut Vec<String>) {
    let mut ports: Vec<(String, &Value)> = Vec::new();
    for list in CONTAINERS {
        let path = path.child(list);
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let path = path.index(index);
            let path = path.child("ports");
            let of_container = items(&container["ports"]).iter().enumerate();
            ports.extend(of_container.map(|(index, port)| (path.index(index).to_string(), port)));
        }
    }
    for (index, (place, port)) in ports.iter().enumerate() {
        for (first, other) in ports.iter().take(index) {
            if let Some(how) = overlap(port, other) {
                warnings.push(format!("{place}: {how} port definition with {first}"));
            }
        }
    }
    for (index, (place, port)) in ports.iter().enumerate() {
        let name = text(port, "name");
        let first = ports.iter().take(index).find(|(_, other)| text(other, "name") == name);
        if let Some((first, _)) = first.filter(|_| !name.is_empty()) {
            warnings.push(format!(
                "{place}: duplicate port name \"{name}\" with {first}, services and probes that select ports by name will use {first}"
            ));
        }
    }
}

/// Returns how two ports of a pod conflict, if they do.
fn overlap(port: &Value, other: &Value) -> Option<&'static str> {
    if ["containerPort", "protocol"].iter().any(|key| port[key] != other[key]) {
        return None;
    }
    let [host, other_host] = [port, other].map(|port| port["hostPort"].as_u64().unwrap_or(0));
    let [ip, other_ip] = [port, other].map(|port| text(port, "hostIP"));
    match host == other_host {
        true if ip == other_ip => Some("duplicate"),
        _ if host == 0 || other_host == 0 => Some("overlapping"),
        true if ip.is_empty() != other_ip.is_empty() => Some("dangerously ambiguous"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn deployment(container: &Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [container]}}}})
    }

    #[test]
    fn templates_are_doubted_when_they_are_new() {
        let container = json!({
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"memory": "100m"}},
        });
        let object = deployment(&container);
        let expected = [
            "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.template.spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.template.spec.containers[0].ports[1]: duplicate port definition with spec.template.spec.containers[0].ports[0]",
        ];
        assert_eq!(super::warnings("api.apps.v1.Deployment", &object, None), expected);
        assert!(super::warnings("api.apps.v1.Deployment", &object, Some(&object)).is_empty());
        let mut scaled = object.clone();
        scaled["metadata"]["generation"] = json!(2);
        assert_eq!(super::warnings("api.apps.v1.Deployment", &scaled, Some(&object)), expected);
    }

    #[test]
    fn ports_are_compared_across_containers() {
        let port = |more: Value| {
            let mut port = json!({"containerPort": 80, "protocol": "TCP"});
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            port
        };
        let cases = [
            (json!({}), json!({}), Some("duplicate port definition with")),
            (json!({"hostPort": 80}), json!({}), Some("overlapping port definition with")),
            (
                json!({"hostPort": 80, "hostIP": "192.0.2.1"}),
                json!({"hostPort": 80}),
                Some("dangerously ambiguous port definition with"),
            ),
            (json!({"hostPort": 80}), json!({"hostPort": 81}), None),
            (json!({}), json!({"protocol": "UDP"}), None),
        ];
        for (first, second, expected) in cases {
            let containers = json!([{"ports": [port(first)]}, {"ports": [port(second.clone())]}]);
            let object = json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": containers}}}});
            let place = "spec.template.spec.containers";
            let expected: Vec<String> = expected
                .map(|how| format!("{place}[1].ports[0]: {how} {place}[0].ports[0]"))
                .into_iter()
                .collect();
            assert_eq!(
                super::warnings("api.apps.v1.Deployment", &object, None),
                expected,
                "{second}"
            );
        }
    }

    #[test]
    fn names_of_ports_are_told_when_they_are_there_twice() {
        let container = json!({"ports": [
            {"name": "x", "containerPort": 80, "protocol": "TCP"},
            {"name": "x", "containerPort": 81, "protocol": "TCP"},
        ]});
        let warnings = super::warnings("api.apps.v1.Deployment", &deployment(&container), None);
        let place = "spec.template.spec.containers[0].ports";
        let expected = format!(
            "{place}[1]: duplicate port name \"x\" with {place}[0], services and probes that select ports by name will use {place}[0]"
        );
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn names_with_dots_are_doubted() {
        let mut object = deployment(&json!({}));
        object["metadata"]["name"] = json!("a.b");
        let warnings = super::warnings("api.apps.v1.Deployment", &object, None);
        let begin = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [a lowercase RFC 1123 label";
        assert!(warnings.len() == 1 && warnings[0].starts_with(begin), "{warnings:?}");
    }
}

//! What Kubernetes warns about when pods, templates of pods, or services are written: it is allowed, but hardly meant.

use serde_json::Value;

use super::edit::{at, items, text};
use super::quantity::Quantity;
use crate::field_error::FieldPath;
use crate::name;

/// The doubts about an object; on an update only if what is doubtful is new.
pub(crate) fn warnings(definition: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    let places: &[&str] = match definition {
        "api.core.v1.Service" => return about_service(&new["spec"]),
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
    let template = at(new, places);
    if old.is_none_or(|old| at(old, places)["spec"] != template["spec"]) {
        let prefix: Vec<_> = places.iter().copied().chain(["spec"]).collect();
        about_pod(&template["spec"], &FieldPath::new(&prefix.join(".")), &mut warnings);
    }
    warnings
}

/// Fields of a Service that count for nothing.
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

/// Pods are named after what makes them, and hosts after pods.
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
    for list in ["initContainers", "containers"] {
        let path = path.child(list);
        for (index, container) in items(&spec[list]).iter().enumerate() {
            about_container(container, &path.index(index), warnings);
        }
    }
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
        let refers = text(variable, "value").contains(&format!("$({name})"));
        if !refers && variables.iter().take(index).any(|other| text(other, "name") == name) {
            warnings.push(format!(
                "{}: hides previous definition of \"{name}\", which may be dropped when using apply",
                here.index(index)
            ));
        }
    }
    let here = path.child("ports");
    let ports = items(&container["ports"]);
    for (index, port) in ports.iter().enumerate() {
        let same = |other: &&Value| {
            ["containerPort", "protocol", "hostPort", "hostIP"]
                .iter()
                .all(|key| other[key] == port[key])
        };
        if let Some(first) = ports.iter().take(index).position(|other| same(&other)) {
            warnings.push(format!(
                "{}: duplicate port definition with {}",
                here.index(index),
                here.index(first)
            ));
        }
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

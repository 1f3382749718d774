//! The defaults that Kubernetes fills in when it reads an object of a built-in kind.

mod network;
mod pod;
#[cfg(test)]
mod tests;
mod workload;

pub(crate) use workload::job_labels;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::edit::{at, child, default, is_empty, items, items_mut, members, remove, set, text};

/// Fills in the defaults of a kind; `definition` is its name in the definitions.
pub(crate) fn fill(definition: &str, object: &mut Value) {
    match definition {
        "api.core.v1.Pod" => pod::pod(object),
        "api.core.v1.Service" => network::service(object),
        "api.core.v1.Secret" => secret(object),
        "api.core.v1.Namespace" => namespace(object),
        "api.core.v1.PersistentVolumeClaim" => claim(object),
        "api.core.v1.Endpoints" => network::endpoints(object),
        "api.core.v1.LimitRange" => limit_range(object),
        "api.apps.v1.Deployment" => workload::deployment(object),
        "api.apps.v1.ReplicaSet" => workload::replica_set(object),
        "api.core.v1.ReplicationController" => workload::replication_controller(object),
        "api.apps.v1.StatefulSet" => workload::stateful_set(object),
        "api.apps.v1.DaemonSet" => workload::daemon_set(object),
        "api.batch.v1.Job" => workload::job(object),
        "api.batch.v1.CronJob" => workload::cron_job(object),
        "api.core.v1.PersistentVolume" => volume(object),
        "api.storage.v1.StorageClass" => {
            default(object, "reclaimPolicy", "Delete");
            default(object, "volumeBindingMode", "Immediate");
        }
        "api.networking.v1.IngressClass" => {
            if let Some(parameters) = object.pointer_mut("/spec/parameters") {
                default(parameters, "scope", "Cluster");
            }
        }
        "api.autoscaling.v1.HorizontalPodAutoscaler" => {
            if let Some(spec) = child(object, "spec") {
                default(spec, "minReplicas", 1);
            }
        }
        "api.autoscaling.v2.HorizontalPodAutoscaler" => workload::autoscaler(object),
        "api.networking.v1.NetworkPolicy" => network::policy(object),
        "api.discovery.v1.EndpointSlice" => network::endpoint_slice(object),
        "api.rbac.v1.RoleBinding" | "api.rbac.v1.ClusterRoleBinding" => role_binding(object),
        "api.scheduling.v1.PriorityClass" => {
            default(object, "preemptionPolicy", "PreemptLowerPriority");
        }
        "api.admissionregistration.v1.MutatingWebhookConfiguration" => webhooks(object, true),
        "api.admissionregistration.v1.ValidatingWebhookConfiguration" => webhooks(object, false),
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" => crd(object),
        _ => {}
    }
}

/// Fills in the type, and moves the texts of `stringData` to `data`.
fn secret(object: &mut Value) {
    if let Some(Value::Object(texts)) = remove(object, "stringData")
        && let Some(data) = child(object, "data")
    {
        for (key, value) in texts {
            set(data, &key, STANDARD.encode(value.as_str().unwrap_or("")));
        }
    }
    default(object, "type", "Opaque");
}

fn namespace(object: &mut Value) {
    let name = text(&object["metadata"], "name").to_owned();
    if !name.is_empty()
        && let Some(labels) =
            child(object, "metadata").and_then(|metadata| child(metadata, "labels"))
    {
        set(labels, "kubernetes.io/metadata.name", name);
    }
}

/// Fills in the defaults of a volume claim, also as a template in a `StatefulSet`.
fn claim(object: &mut Value) {
    if let Some(spec) = child(object, "spec") {
        default(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = child(object, "status") {
        default(status, "phase", "Pending");
    }
}

fn volume(object: &mut Value) {
    if let Some(spec) = child(object, "spec") {
        pod::sources(spec);
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        default(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = child(object, "status") {
        default(status, "phase", "Pending");
    }
}

/// Fills in the limits of containers: limits default to the largest allowed, requests to limits,
/// else to the smallest allowed.
fn limit_range(object: &mut Value) {
    let Some(spec) = object.get_mut("spec") else { return };
    for limit in items_mut(spec, "limits") {
        if text(limit, "type") != "Container" {
            continue;
        }
        for (key, from) in
            [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")]
        {
            for (resource, value) in members(&limit[from].clone()) {
                if let Some(filled) = child(limit, key) {
                    default(filled, resource, value.clone());
                }
            }
        }
    }
}

fn role_binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(reference) = child(object, "roleRef")
        && text(reference, "apiGroup").is_empty()
    {
        set(reference, "apiGroup", GROUP);
    }
    for subject in items_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") && text(subject, "apiGroup").is_empty()
        {
            set(subject, "apiGroup", GROUP);
        }
    }
}

fn webhooks(object: &mut Value, mutating: bool) {
    for webhook in items_mut(object, "webhooks") {
        default(webhook, "failurePolicy", "Fail");
        default(webhook, "matchPolicy", "Equivalent");
        default(webhook, "namespaceSelector", json!({}));
        default(webhook, "objectSelector", json!({}));
        default(webhook, "timeoutSeconds", 10);
        if mutating {
            default(webhook, "reinvocationPolicy", "Never");
        }
        for rule in items_mut(webhook, "rules") {
            default(rule, "scope", "*");
        }
        if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
            default(service, "port", 443);
        }
    }
}

fn crd(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    let kind = text(&spec["names"], "kind").to_owned();
    if let Some(names) = child(spec, "names")
        && !kind.is_empty()
    {
        default(names, "singular", kind.to_lowercase());
        default(names, "listKind", format!("{kind}List"));
    }
    default(spec, "conversion", json!({"strategy": "None"}));
    if let Some(service) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        default(service, "port", 443);
    }
}

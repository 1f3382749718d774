//! Defaults of pods, and of templates of pods.

use std::sync::LazyLock;

use regex::Regex;

use super::{Value, at, child, default, items_mut, json, members, set, text};

/// Fills in the defaults of a pod.
pub(super) fn pod(object: &mut Value) {
    let Some(spec) = child(object, "spec") else { return };
    for list in ["containers", "initContainers"] {
        items_mut(spec, list).for_each(requests_from_limits);
    }
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            items_mut(spec, list).for_each(host_ports);
        }
    }
    default(spec, "enableServiceLinks", true);
    pod_spec(spec);
}

/// Fills in the defaults of the template of a workload: `spec.template`.
pub(super) fn template(spec: &mut Value) {
    if let Some(spec) = child(spec, "template").and_then(|template| child(template, "spec")) {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut Value) {
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    service_account(spec);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items_mut(spec, list).for_each(fill_container);
    }
    items_mut(spec, "volumes").for_each(volume);
}

/// Sets both names of the account: the current field and the deprecated one.
fn service_account(spec: &mut Value) {
    let names = [text(spec, "serviceAccountName"), text(spec, "serviceAccount")];
    let Some(name) = names.into_iter().find(|name| !name.is_empty()).map(str::to_owned) else {
        return;
    };
    set(spec, "serviceAccountName", name.clone());
    set(spec, "serviceAccount", name);
}

fn fill_container(container: &mut Value) {
    let policy = if has_moving_tag(text(container, "image")) { "Always" } else { "IfNotPresent" };
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        default(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            default(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            fill_probe(probe);
        }
    }
    for pointer in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(get) = container.pointer_mut(pointer) {
            http_get(get);
        }
    }
}

/// Returns whether an image is a reference with neither a tag nor a digest, or with the tag
/// `latest`.
fn has_moving_tag(image: &str) -> bool {
    let Some(parts) = REFERENCE.captures(image) else { return false };
    match (parts.name("tag"), parts.name("digest")) {
        (Some(tag), _) => tag.as_str() == "latest",
        (None, digest) => digest.is_none(),
    }
}

/// The references to images, as in the `reference` package of `distribution`.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let part = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*";
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let domain = format!(r"(?:{label}(?:[.]{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let tag = "[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}";
    let digest = "sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}";
    let all =
        format!("^(?:{domain}/)?{part}(?:/{part})*(?::(?<tag>{tag}))?(?:@(?<digest>{digest}))?$");
    Regex::new(&all).expect("the expression is a constant")
});

fn fill_probe(probe: &mut Value) {
    let numbers = [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ];
    for (key, number) in numbers {
        default(probe, key, number);
    }
    if let Some(get) = probe.get_mut("httpGet") {
        http_get(get);
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        default(grpc, "service", "");
    }
}

fn http_get(get: &mut Value) {
    default(get, "path", "/");
    default(get, "scheme", "HTTP");
}

fn host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        let number = port["containerPort"].clone();
        default(port, "hostPort", number);
    }
}

/// Sets missing requests to the limits of the same resources.
fn requests_from_limits(container: &mut Value) {
    let limits = at(container, &["resources", "limits"]).clone();
    for (resource, limit) in members(&limits) {
        if let Some(requests) =
            child(container, "resources").and_then(|resources| child(resources, "requests"))
        {
            default(requests, resource, limit.clone());
        }
    }
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|volume| volume.len() == 1 && volume.contains_key("name")) {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, "defaultMode", 0o644);
        }
    }
    sources(volume);
    if let Some(items) = volume.get_mut("downwardAPI") {
        downward(items);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
            if let Some(items) = source.get_mut("downwardAPI") {
                downward(items);
            }
        }
    }
    if let Some(spec) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        default(spec, "volumeMode", "Filesystem");
    }
}

/// Fills in the sources that pods and persistent volumes have in common.
pub(super) fn sources(volume: &mut Value) {
    if let Some(path) = volume.get_mut("hostPath") {
        default(path, "type", "");
    }
}

fn downward(source: &mut Value) {
    for item in items_mut(source, "items") {
        if let Some(reference) = item.get_mut("fieldRef") {
            default(reference, "apiVersion", "v1");
        }
    }
}

//! The part of the merge that concerns single components.

use serde_json::{Value, json};

use super::{at, make_object, set};
use crate::{
    api::{Cni, Components, IntOrString, Proxy, Resources, Workload},
    features::Features,
    quantity::Quantity,
};

/// Merges the settings of components and the features.
pub(super) fn merge(
    operator: &mut Value,
    components: Option<&Components>,
    features: Features,
) -> Result<(), String> {
    // The original replaces the template's CNI component whole.
    set(operator, &["spec", "components", "cni"], json!({"enabled": !features.disable_cni}));
    let pilot = ["spec", "components", "pilot"];
    if features.enable_control_plane_vpa {
        drop_memory_metric(at(operator, &pilot));
        for gateways in ["ingressGateways", "egressGateways"] {
            first(operator, gateways).map(drop_memory_metric);
        }
    }
    let Some(components) = components else { return Ok(()) };
    if let Some(workload) = components.pilot.as_ref().and_then(|pilot| pilot.k8s.as_ref()) {
        merge_workload(at(operator, &pilot), workload)?;
    }
    let ingress = components.ingress_gateway.as_ref();
    if let Some(gateway) = first(operator, "ingressGateways")
        && let Some(workload) = ingress.and_then(|ingress| ingress.k8s.as_ref())
    {
        merge_workload(gateway, workload)?;
    }
    if let Some(gateway) = first(operator, "egressGateways")
        && let Some(egress) = &components.egress_gateway
    {
        if let Some(enabled) = egress.enabled {
            set(gateway, &["enabled"], enabled);
        }
        if let Some(workload) = &egress.k8s {
            merge_workload(gateway, workload)?;
        }
    }
    if let Some(cni) = &components.cni {
        merge_cni(at(operator, &["spec", "components", "cni"]), cni)?;
    }
    if let Some(proxy) = &components.proxy {
        merge_proxy(at(operator, &["spec", "values", "global", "proxy"]), proxy);
    }
    Ok(())
}

/// Returns the first gateway of a list of components.
pub(super) fn first<'a>(operator: &'a mut Value, gateways: &str) -> Option<&'a mut Value> {
    at(operator, &["spec", "components", gateways]).get_mut(0)
}

fn drop_memory_metric(component: &mut Value) {
    let metrics = component.pointer_mut("/k8s/hpaSpec/metrics").and_then(Value::as_array_mut);
    if let Some(metrics) = metrics {
        metrics.retain(|metric| {
            let name = metric.pointer("/resource/name").and_then(Value::as_str);
            metric.get("type").and_then(Value::as_str) != Some("Resource") || name != Some("memory")
        });
    }
}

fn merge_workload(component: &mut Value, workload: &Workload) -> Result<(), String> {
    let k8s = at(component, &["k8s"]);
    if let Some(hpa) = &workload.hpa_spec {
        for (key, number) in [("maxReplicas", hpa.max_replicas), ("minReplicas", hpa.min_replicas)]
        {
            if let Some(number) = number {
                set(k8s, &["hpaSpec", key], number);
            }
        }
    }
    let strategy = workload.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    if let Some(update) = strategy {
        make_object(k8s, &["strategy", "rollingUpdate"]);
        for (key, value) in
            [("maxSurge", &update.max_surge), ("maxUnavailable", &update.max_unavailable)]
        {
            let path = ["strategy", "rollingUpdate", key];
            match value {
                None => {}
                Some(IntOrString::Int(number)) => set(k8s, &path, *number),
                Some(IntOrString::Text(text)) => set(k8s, &path, text.as_str()),
            }
        }
    }
    merge_resources(k8s, workload.resources.as_ref())
}

fn merge_cni(component: &mut Value, cni: &Cni) -> Result<(), String> {
    let Some(cni) = &cni.k8s else { return Ok(()) };
    let affinity = cni.affinity.clone().unwrap_or_default();
    set(component, &["k8s", "affinity"], json!(affinity));
    merge_resources(at(component, &["k8s"]), cni.resources.as_ref())
}

/// Replaces the single amounts that are given, in canonical form.
fn merge_resources(k8s: &mut Value, resources: Option<&Resources>) -> Result<(), String> {
    if resources.is_some() {
        make_object(k8s, &["resources"]);
    }
    for (bound, resource, text) in amounts(resources) {
        let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
        set(k8s, &["resources", bound, resource], quantity.to_string());
    }
    Ok(())
}

/// Replaces the single amounts that are given, as they are written.
fn merge_proxy(values: &mut Value, proxy: &Proxy) {
    let resources = proxy.k8s.as_ref().and_then(|proxy| proxy.resources.as_ref());
    for (bound, resource, text) in amounts(resources) {
        set(values, &["resources", bound, resource], text);
    }
}

fn amounts(
    resources: Option<&Resources>,
) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
    let bounds = resources.into_iter().flat_map(|resources| {
        [("limits", resources.limits.as_ref()), ("requests", resources.requests.as_ref())]
    });
    bounds.flat_map(|(bound, claims)| {
        claims.into_iter().flat_map(move |claims| {
            [("cpu", &claims.cpu), ("memory", &claims.memory)]
                .into_iter()
                .filter_map(move |(resource, text)| Some((bound, resource, text.as_deref()?)))
        })
    })
}

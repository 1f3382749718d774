//! Merges the Istio resource into the default `IstioOperator`.

mod components;
mod mesh;

use serde_json::{Map, Value, json};

use crate::{
    api::IstioSpec,
    cluster::{Cluster, Flavour, INGRESS_GATEWAY},
    features::Features,
    images::Images,
    template,
};

/// The input of the merge.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The spec of the Istio resource.
    pub spec: &'a IstioSpec,
    /// The facts about the cluster.
    pub cluster: &'a Cluster,
    /// The flavour of the module.
    pub flavour: Flavour,
    /// The features that are on.
    pub features: Features,
    /// The images to install.
    pub images: &'a Images,
    /// The Secret with which images are pulled.
    pub pull_secret: Option<&'a str>,
}

/// Returns the `IstioOperator` to install.
///
/// # Errors
///
/// Fails if a quantity or a duration of the resource is none.
pub fn merge(input: &Input) -> Result<Value, String> {
    let Input { spec, cluster, features, .. } = input;
    let mut operator = template::of(cluster.size);
    if input.flavour == Flavour::Experimental {
        experimental_env(&mut operator, spec);
    }
    mesh::merge(at(&mut operator, &["spec", "meshConfig"]), &spec.config)?;
    traffic_policy(&mut operator, spec);
    if cluster.dual_stack {
        dual_stack(&mut operator);
    }
    let experimental = spec.experimental.as_ref();
    if experimental.and_then(|features| features.enable_ambient) == Some(true) {
        ambient(&mut operator);
    }
    components::merge(&mut operator, spec.components.as_ref(), *features)?;
    if spec.compatibility_mode {
        pilot_env(&mut operator, "PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE", "false");
    }
    images(&mut operator, input.images);
    if let Some(name) = input.pull_secret {
        pull_secret(&mut operator, name);
    }
    overlay(&mut operator, &cluster.overrides);
    Ok(operator)
}

/// Returns the value at a path. Whatever is missing on the way is created.
fn at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(value, |value, key| {
        if !value.is_object() {
            *value = Map::new().into();
        }
        match value {
            Value::Object(map) => map.entry(*key).or_insert(Value::Null),
            other => other,
        }
    })
}

/// Makes the value at a path an object, unless it is one.
fn make_object(value: &mut Value, path: &[&str]) {
    let found = at(value, path);
    if !found.is_object() {
        *found = Map::new().into();
    }
}

fn set(value: &mut Value, path: &[&str], to: impl Into<Value>) {
    *at(value, path) = to.into();
}

fn push(value: &mut Value, path: &[&str], item: Value) {
    let list = at(value, path);
    match list {
        Value::Array(items) => items.push(item),
        other => *other = vec![item].into(),
    }
}

/// Merges one value over another: maps key by key, all else is replaced.
fn overlay(value: &mut Value, over: &Value) {
    match over {
        Value::Object(over) => {
            for (key, over) in over {
                overlay(at(value, &[key]), over);
            }
        }
        other => *value = other.clone(),
    }
}

fn experimental_env(operator: &mut Value, spec: &IstioSpec) {
    let Some(experimental) = &spec.experimental else { return };
    let pilot = &experimental.pilot;
    for (name, is_on) in [
        ("PILOT_ENABLE_ALPHA_GATEWAY_API", pilot.enable_alpha_gateway_api),
        (
            "PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API",
            pilot.enable_multi_network_discover_gateway_api,
        ),
    ] {
        if is_on {
            pilot_env(operator, name, "true");
        }
    }
}

fn pilot_env(operator: &mut Value, name: &str, value: &str) {
    let path = ["spec", "components", "pilot", "k8s", "env"];
    push(operator, &path, json!({"name": name, "value": value}));
}

fn traffic_policy(operator: &mut Value, spec: &IstioSpec) {
    let Some(policy) = &spec.config.gateway_external_traffic_policy else { return };
    let overlay = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "name": INGRESS_GATEWAY,
        "patches": [{"path": "spec.externalTrafficPolicy", "value": policy}],
    });
    if let Some(gateway) = components::first(operator, "ingressGateways") {
        push(gateway, &["k8s", "overlays"], overlay);
    }
}

fn dual_stack(operator: &mut Value) {
    let policy = "RequireDualStack";
    mesh::proxy_metadata(at(operator, &["spec", "meshConfig"]), "ISTIO_DUAL_STACK", "true");
    let values = at(operator, &["spec", "values"]);
    set(values, &["pilot", "env", "ISTIO_DUAL_STACK"], "true");
    set(values, &["pilot", "ipFamilyPolicy"], policy);
    for gateway in [INGRESS_GATEWAY, "istio-egressgateway"] {
        set(values, &["gateways", gateway, "ipFamilyPolicy"], policy);
    }
}

fn ambient(operator: &mut Value) {
    mesh::proxy_metadata(at(operator, &["spec", "meshConfig"]), "ISTIO_META_ENABLE_HBONE", "true");
    set(operator, &["spec", "components", "ztunnel", "enabled"], true);
    let values = at(operator, &["spec", "values"]);
    set(values, &["pilot", "env", "PILOT_ENABLE_AMBIENT"], "true");
    set(values, &["cni", "ambient", "enabled"], true);
}

fn images(operator: &mut Value, images: &Images) {
    let spec = at(operator, &["spec"]);
    set(spec, &["hub"], images.registry());
    set(spec, &["tag"], images.tag());
    let values = at(spec, &["values"]);
    set(values, &["pilot", "image"], images.pilot.to_string());
    set(values, &["cni", "image"], images.install_cni.to_string());
    for name in ["proxy", "proxy_init"] {
        set(values, &["global", name, "image"], images.proxy.to_string());
    }
}

fn pull_secret(operator: &mut Value, name: &str) {
    let path = ["spec", "values", "global", "imagePullSecrets"];
    let is_there = at(operator, &path).as_array().is_some_and(|list| list.contains(&name.into()));
    if !is_there {
        push(operator, &path, name.into());
    }
}

#[cfg(test)]
mod tests;

//! Each field of the Istio resource, changed once: its effect on objects in the cluster.

use serde_json::{Value, json};

use super::{GUESTS, Mesh};

const ROLLING: &str = "/spec/strategy/rollingUpdate";
const LIMITS: &str = "/spec/template/spec/containers/0/resources/limits";
const REQUESTS: &str = "/spec/template/spec/containers/0/resources/requests";
const AFFINITY: &str = "/spec/template/spec/affinity";
const ENV: &str = "/spec/template/spec/containers/0/env";
const RESTARTED: &str =
    "/spec/template/metadata/annotations/istio-operator.kyma-project.io~1restartedAt";

/// An effect on an object.
struct Effect {
    /// Kind and name of the object, in `istio-system`.
    of: (&'static str, &'static str),
    seen: Seen,
}

/// A part of an object.
enum Seen {
    /// A value at a pointer.
    At(&'static str, Value),
    /// A list at a pointer has this item.
    Item(&'static str, Value),
    /// The text at a pointer has this part.
    Text(&'static str, &'static str),
    /// The value at a pointer is another one than before.
    Changed(&'static str),
}

use Seen::{At, Changed, Item, Text};

const DEPLOYMENT: &str = "apps/v1/Deployment";
const DAEMON_SET: &str = "apps/v1/DaemonSet";
const SCALER: &str = "autoscaling/v2/HorizontalPodAutoscaler";
const GATEWAY: &str = "istio-ingressgateway";
const EGRESS: &str = "istio-egressgateway";
const CNI: &str = "istio-cni-node";

impl Effect {
    fn holds(&self, object: &Value, before: &Value) -> bool {
        match &self.seen {
            Changed(at) => object.pointer(at) != before.pointer(at),
            At(at, value) => object.pointer(at) == Some(value),
            Item(at, value) => {
                let items = object.pointer(at).and_then(Value::as_array);
                items.is_some_and(|items| items.contains(value))
            }
            Text(at, part) => {
                let text = object.pointer(at).and_then(Value::as_str);
                text.is_some_and(|text| text.contains(part))
            }
        }
    }
}

fn on(kind: &'static str, name: &'static str, seen: Seen) -> Effect {
    Effect { of: (kind, name), seen }
}

/// Returns the effect that the mesh's configuration has a part.
fn mesh(part: &'static str) -> Effect {
    on("v1/ConfigMap", "istio", Text("/data/mesh", part))
}

fn env(name: &str, value: &str) -> Effect {
    on(DEPLOYMENT, "istiod", Item(ENV, json!({"name": name, "value": value})))
}

fn restarted(name: &'static str) -> Effect {
    on(DEPLOYMENT, name, Changed(RESTARTED))
}

/// A spec with one setting, and the effects of it.
type Case = (Value, Vec<Effect>);

fn of_config() -> Vec<Case> {
    let headers = json!({
        "inCheck": {"include": ["x-include"], "add": {"x-add": "1"}},
        "toUpstream": {"onAllow": ["x-upstream"]},
        "toDownstream": {"onAllow": ["x-allowed"], "onDeny": ["x-denied"]},
    });
    let authorizer = json!({
        "name": "ext", "service": "ext.shop.svc.cluster.local", "port": 8000,
        "pathPrefix": "/check", "timeout": "2s", "headers": headers,
    });
    let all = [
        (json!({"numTrustedProxies": 3}), mesh("numTrustedProxies: 3")),
        (json!({"numTrustedProxies": 4}), restarted(GATEWAY)),
        (
            json!({"forwardClientCertDetails": "SANITIZE"}),
            mesh("forwardClientCertDetails: SANITIZE"),
        ),
        (json!({"forwardClientCertDetails": "APPEND_FORWARD"}), restarted(GATEWAY)),
        (json!({"trustDomain": "example.org"}), mesh("trustDomain: example.org")),
        (json!({"trustDomain": "example.com"}), restarted(GATEWAY)),
        (json!({"enableDNSProxying": true}), mesh("ISTIO_META_DNS_CAPTURE: \"true\"")),
        (json!({"enableDNSProxying": false}), mesh("ISTIO_META_DNS_CAPTURE: \"false\"")),
        (
            json!({"telemetry": {"metrics": {"prometheusMerge": true}}}),
            mesh("enablePrometheusMerge: true"),
        ),
        (json!({"proxyStatsMatcher": {"inclusionRegexps": ["a.*b"]}}), mesh("a.*b")),
        (json!({"proxyStatsMatcher": {"inclusionRegexps": ["c.*d"]}}), restarted(GATEWAY)),
        (
            json!({"gatewayExternalTrafficPolicy": "Local"}),
            on("v1/Service", GATEWAY, At("/spec/externalTrafficPolicy", json!("Local"))),
        ),
    ];
    let parts = [
        "name: ext",
        "service: ext.shop.svc.cluster.local",
        "port: 8000",
        "pathPrefix: /check",
        "timeout: 2s",
        "x-include",
        "x-add: \"1\"",
        "x-upstream",
        "x-allowed",
        "x-denied",
    ];
    let mut all: Vec<Case> =
        all.map(|(config, effect)| (json!({"config": config}), vec![effect])).into();
    all.push((json!({"config": {"authorizers": [authorizer]}}), parts.map(mesh).into()));
    all
}

fn of_components() -> Vec<Case> {
    let k8s = |component: &str, k8s: Value| json!({"components": {component: {"k8s": k8s}}});
    let egress =
        |k8s: Value| json!({"components": {"egressGateway": {"enabled": true, "k8s": k8s}}});
    let workloads = [("pilot", "istiod"), ("ingressGateway", GATEWAY), ("egressGateway", EGRESS)];
    let mut all = Vec::new();
    for (component, name) in workloads {
        let mut add = |settings: Value, kind: &'static str, at: &'static str, value: Value| {
            let spec = if component == "egressGateway" {
                egress(settings)
            } else {
                k8s(component, settings)
            };
            all.push((spec, vec![on(kind, name, At(at, value))]));
        };
        add(json!({"hpaSpec": {"minReplicas": 2}}), SCALER, "/spec/minReplicas", json!(2));
        add(json!({"hpaSpec": {"maxReplicas": 7}}), SCALER, "/spec/maxReplicas", json!(7));
        let surge = json!({"maxSurge": "30%", "maxUnavailable": "25%"});
        let with = json!({"strategy": {"rollingUpdate": surge}});
        add(with, DEPLOYMENT, ROLLING, surge.clone());
        let resources = |of: &str, values: &Value| json!({"resources": {of: values}});
        let limits = json!({"cpu": "1500m", "memory": "1Gi"});
        add(resources("limits", &limits), DEPLOYMENT, LIMITS, limits.clone());
        let requests = json!({"cpu": "33m", "memory": "99Mi"});
        add(resources("requests", &requests), DEPLOYMENT, REQUESTS, requests.clone());
    }
    all
}

fn of_the_plugin_and_the_proxy() -> Vec<Case> {
    let k8s = |component: &str, k8s: Value| json!({"components": {component: {"k8s": k8s}}});
    let mut all = Vec::new();
    let limits = json!({"cpu": "300m", "memory": "300Mi"});
    let requests = json!({"cpu": "30m", "memory": "30Mi"});
    let term = json!({
        "labelSelector": {"matchLabels": {"none": "such"}}, "topologyKey": "kubernetes.io/hostname",
    });
    let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
    let preference = json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]});
    let preferred_nodes = json!([{"weight": 1, "preference": preference}]);
    let affinities = [
        ("podAffinity", &preferred),
        ("podAntiAffinity", &preferred),
        ("nodeAffinity", &preferred_nodes),
    ];
    for (of, preferred) in affinities {
        let affinity = json!({of: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        let effect = on(DAEMON_SET, CNI, At(AFFINITY, affinity.clone()));
        all.push((k8s("cni", json!({"affinity": affinity})), vec![effect]));
    }
    for (of, resource, amount) in [
        ("limits", "cpu", "777m"),
        ("limits", "memory", "777Mi"),
        ("requests", "cpu", "71m"),
        ("requests", "memory", "171Mi"),
    ] {
        let spec = k8s("proxy", json!({"resources": {of: {resource: amount}}}));
        let effect = on("v1/ConfigMap", "istio-sidecar-injector", Text("/data/values", amount));
        all.push((spec, vec![effect]));
    }
    let others = [
        (
            k8s("cni", json!({"resources": {"limits": limits.clone()}})),
            on(DAEMON_SET, CNI, At(LIMITS, limits)),
        ),
        (
            k8s("cni", json!({"resources": {"requests": requests.clone()}})),
            on(DAEMON_SET, CNI, At(REQUESTS, requests)),
        ),
        (
            json!({"compatibilityMode": true}),
            env("PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE", "false"),
        ),
    ];
    all.extend(others.map(|(spec, effect)| (spec, vec![effect])));
    let policy = on(
        "networking.k8s.io/v1/NetworkPolicy",
        "kyma-project.io--istio-pilot",
        At("/metadata/labels/kyma-project.io~1managed-by", json!("kyma")),
    );
    let cni = on(DAEMON_SET, CNI, Changed(RESTARTED));
    let effects = vec![policy, restarted(GATEWAY), restarted("istiod"), cni];
    all.push((json!({"networkPoliciesEnabled": true}), effects));
    // Behind a row without it.
    let is_there = At("/metadata/labels/kyma-project.io~1module", json!("istio"));
    let enabled = json!({"components": {"egressGateway": {"enabled": true}}});
    all.push((enabled, vec![on(DEPLOYMENT, EGRESS, is_there)]));
    all
}

fn of_experiments() -> Vec<Case> {
    let experimental = |settings: Value| json!({"experimental": settings});
    let all = [
        (
            experimental(json!({"pilot": {"enableAlphaGatewayAPI": true}})),
            env("PILOT_ENABLE_ALPHA_GATEWAY_API", "true"),
        ),
        (
            experimental(json!({"pilot": {"enableMultiNetworkDiscoverGatewayAPI": true}})),
            env("PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API", "true"),
        ),
        (
            experimental(json!({"enableAmbient": true})),
            on(
                DAEMON_SET,
                "ztunnel",
                At("/metadata/labels/kyma-project.io~1module", json!("istio")),
            ),
        ),
    ];
    all.map(|(spec, effect)| (spec, vec![effect])).into()
}

#[tokio::test]
#[ignore = "it takes minutes"]
async fn each_field_of_the_resource_has_its_effect_once() {
    let experimental = json!({"experimental": true});
    let configs = GUESTS.map(|guest| (guest, experimental.clone()));
    let Some(mut mesh) = Mesh::prepare(&configs).await else { return };
    mesh.start().await;
    mesh.processors().await;
    mesh.istio(json!({})).await;
    mesh.until_state("Ready").await;
    let components = of_components().into_iter().chain(of_the_plugin_and_the_proxy());
    let cases = of_config().into_iter().chain(components).chain(of_experiments());
    for (spec, effects) in cases {
        let mut before = Vec::new();
        for effect in &effects {
            let found = mesh.get(effect.of.0, "istio-system", effect.of.1).await;
            let found = found.unwrap_or_default();
            assert!(!effect.holds(&found, &found), "it holds before: {spec}");
            before.push(found);
        }
        mesh.edit(&spec).await;
        for (effect, before) in effects.iter().zip(before) {
            let (kind, name) = effect.of;
            let took = mesh
                .until(&format!("the effect of {spec} on {name}"), async || {
                    let object = mesh.get(kind, "istio-system", name).await;
                    object.is_some_and(|object| effect.holds(&object, &before))
                })
                .await;
            println!("{took:>10.1?}  {name}: {spec}");
        }
        mesh.until_state("Ready").await;
        mesh.until_idle().await;
    }
    let everything = json!({
        "components": {"egressGateway": {"enabled": true}},
        "experimental": {
            "enableAmbient": true,
            "pilot": {
                "enableAlphaGatewayAPI": true, "enableMultiNetworkDiscoverGatewayAPI": true,
            },
        },
    });
    mesh.edit(&everything).await;
    mesh.until_state("Ready").await;
    mesh.until_idle().await;
    let [printed, held] = mesh.grants().await;
    assert_eq!(printed, held, "the granted rights (left) are those of Istio's roles (right)");
    assert_eq!(mesh.forbidden().await, Vec::<String>::new());
}

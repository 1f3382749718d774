//! A double of the renderer for native tests: a small Istio of its own making.
//!
//! It has one object of each kind that matters to the processor, and follows the few settings of
//! the `IstioOperator` by which objects come and go.

use serde_json::{Value, json};

use crate::{Cluster, Component, IstioVersion, Rendered, RenderedManifest, Rendering, render::add};

/// The renderer of a small Istio, of the release that the recorded cases of the original have.
#[derive(Debug, Clone, Copy)]
pub struct Double;

/// The renderer of a small Istio of the next minor version, which has another object.
#[derive(Debug, Clone, Copy)]
pub struct Next;

/// The trust domain with which rendering fails.
pub const REFUSED: &str = "refused.example";

impl Rendering for Double {
    fn version() -> IstioVersion {
        version("1.30.2")
    }

    fn render(spec: &str, _: Option<&Cluster>) -> Result<Rendered, String> {
        rendered(spec, false)
    }
}

impl Rendering for Next {
    fn version() -> IstioVersion {
        version("1.31.0")
    }

    fn render(spec: &str, _: Option<&Cluster>) -> Result<Rendered, String> {
        rendered(spec, true)
    }
}

fn version(release: &str) -> IstioVersion {
    IstioVersion { release: release.to_owned(), module: "double".to_owned() }
}

fn rendered(spec: &str, is_next: bool) -> Result<Rendered, String> {
    let operator: Value = serde_json::from_str(spec).map_err(|error| error.to_string())?;
    let spec = operator.get("spec").unwrap_or(&Value::Null);
    let at = |path: &str| spec.pointer(path).unwrap_or(&Value::Null);
    if at("/meshConfig/trustDomain") == REFUSED {
        return Err("the trust domain is refused".to_owned());
    }
    let mut components =
        vec![component("Base", &base()), component("Pilot", &pilot(spec, is_next))];
    if at("/components/cni/enabled") == true {
        components.push(component("Cni", &cni(spec)));
    }
    components.push(component("IngressGateways", &gateway("istio-ingressgateway", spec)));
    if at("/components/egressGateways/0/enabled") == true {
        components.push(component("EgressGateways", &gateway("istio-egressgateway", spec)));
    }
    Ok(Rendered { components, merged: operator.to_string(), warnings: Vec::new() })
}

fn component(name: &str, objects: &[Value]) -> Component {
    let text = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let manifests = objects.iter().map(|object| RenderedManifest {
        kind: text(object, "/kind"),
        namespace: text(object, "/metadata/namespace"),
        name: text(object, "/metadata/name"),
        content: object.to_string(),
    });
    Component { name: name.to_owned(), manifests: manifests.collect() }
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "istio-system"},
    });
    add(&mut object, rest);
    object
}

fn cluster_wide(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    add(&mut object, rest);
    object
}

fn base() -> Vec<Value> {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    vec![
        cluster_wide(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "peerauthentications.security.istio.io",
            json!({"spec": {
                "group": "security.istio.io",
                "names": {
                    "kind": "PeerAuthentication", "listKind": "PeerAuthenticationList",
                    "plural": "peerauthentications", "singular": "peerauthentication",
                },
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            }}),
        ),
        object("v1", "ServiceAccount", "istio-reader-service-account", json!({})),
    ]
}

fn pilot(spec: &Value, is_next: bool) -> Vec<Value> {
    let image = spec.pointer("/values/pilot/image").unwrap_or(&Value::Null);
    let mesh = spec.get("meshConfig").unwrap_or(&Value::Null).to_string();
    let ports = json!([{"name": "https-dns", "port": 15012}]);
    let mut objects = vec![
        object("v1", "ServiceAccount", "istiod", json!({})),
        object("v1", "ConfigMap", "istio", json!({"data": {"mesh": mesh}})),
        deployment("istiod", ("istio", "pilot"), "discovery", image),
        scaler("istiod"),
        object(
            "v1",
            "Service",
            "istiod",
            json!({"spec": {"ports": ports, "selector": {"istio": "pilot"}}}),
        ),
    ];
    objects.extend(roles());
    objects.extend(webhooks());
    objects.push(if is_next {
        object("v1", "ConfigMap", "values", json!({"data": {"new": "yes"}}))
    } else {
        object("v1", "ConfigMap", "istio-old", json!({"data": {"old": "yes"}}))
    });
    objects
}

fn roles() -> [Value; 2] {
    const API: &str = "rbac.authorization.k8s.io/v1";
    let name = "istiod-clusterrole-istio-system";
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "istiod", "namespace": "istio-system"}],
    });
    [
        cluster_wide(API, "ClusterRole", name, json!({"rules": rules})),
        cluster_wide(API, "ClusterRoleBinding", name, binding),
    ]
}

fn webhooks() -> [Value; 2] {
    const API: &str = "admissionregistration.k8s.io/v1";
    let webhook = |name: &str, path: &str| {
        let service = json!({"name": "istiod", "namespace": "istio-system", "path": path});
        json!({
            "name": name, "clientConfig": {"service": service}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        })
    };
    let injector = webhook("namespace.sidecar-injector.istio.io", "/inject");
    let validator = webhook("rev.validation.istio.io", "/validate");
    let configuration = |kind: &str, name: &str, webhook: Value| {
        cluster_wide(API, kind, name, json!({"webhooks": [webhook]}))
    };
    [
        configuration("MutatingWebhookConfiguration", "istio-sidecar-injector", injector),
        configuration("ValidatingWebhookConfiguration", "istio-validator-istio-system", validator),
    ]
}

fn cni(spec: &Value) -> Vec<Value> {
    let image = spec.pointer("/values/cni/image").unwrap_or(&Value::Null);
    let spec = workload(("k8s-app", "istio-cni-node"), "install-cni", image);
    vec![object("apps/v1", "DaemonSet", "istio-cni-node", json!({"spec": spec}))]
}

fn gateway(name: &str, spec: &Value) -> Vec<Value> {
    let image = spec.pointer("/values/global/proxy/image").unwrap_or(&Value::Null);
    let selector = ("app", name);
    vec![
        deployment(name, selector, "istio-proxy", image),
        scaler(name),
        object(
            "v1",
            "Service",
            name,
            json!({"spec": {
                "type": "ClusterIP", "ports": [{"name": "http2", "port": 80}],
                "selector": {selector.0: selector.1},
            }}),
        ),
    ]
}

fn workload(selector: (&str, &str), container: &str, image: &Value) -> Value {
    let labels = json!({selector.0: selector.1});
    json!({
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": container, "image": image}]},
        },
    })
}

fn deployment(name: &str, selector: (&str, &str), container: &str, image: &Value) -> Value {
    let mut spec = workload(selector, container, image);
    add(&mut spec, json!({"replicas": 1}));
    object("apps/v1", "Deployment", name, json!({"spec": spec}))
}

fn scaler(name: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    object(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        name,
        json!({"spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5}}),
    )
}

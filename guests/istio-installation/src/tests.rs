//! Tests of the whole processor, with a double of the library.

use std::time::Duration;

use istio::{
    api::{FINALIZER, ISTIO_NAMESPACE, Istio},
    last_applied::ANNOTATION,
    resource::DISCLAIMER,
};
use mortise_sdk::{
    Kind, ObjectRef, Processor as _,
    testing::{Settled, Stub, check_grants},
};
use serde_json::{Value, json};

use crate::{
    Config, Installations, Rendering,
    double::{Double, Next, REFUSED},
};

mortise_sdk::testing::cases!(Installation, "cases");

const CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/operator.kyma-project.io");

type Installation = Installations<Double>;

fn istio() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {"name": "default", "namespace": "kyma-system"}, "spec": {},
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {
            "capacity": {"cpu": "12", "memory": "32Gi"},
            "nodeInfo": {"kubeletVersion": "v1.34.3", "osImage": "Linux"},
        },
    })
}

fn cluster(objects: impl IntoIterator<Item = Value>) -> Stub {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}});
    Stub::new().crds(CRDS).objects([namespace, node()]).objects(objects)
}

fn reference() -> ObjectRef {
    ObjectRef::of::<Istio>(Some("kyma-system"), "default")
}

fn get(stub: &Stub, api_version: &str, kind: &str, name: &str) -> Option<Value> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = Kind::new(group, version, kind);
    let namespace = (!matches!(
        kind.kind.as_str(),
        "Namespace" | "CustomResourceDefinition" | "MutatingWebhookConfiguration" | "ClusterRole"
    ))
    .then_some(ISTIO_NAMESPACE);
    stub.object(&ObjectRef::new(kind, namespace, name))
}

fn workload(stub: &Stub, kind: &str, name: &str) -> Option<Value> {
    get(stub, "apps/v1", kind, name)
}

/// Returns state, description, and the reason of the condition `Ready`.
fn said(stub: &Stub) -> (String, String, String) {
    let istio = stub.object(&reference()).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = istio["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
    let status = &istio["status"];
    (text(&status["state"]), text(&status["description"]), text(&ready["reason"]))
}

fn is_ready(stub: &Stub) {
    let expected = ("Ready".to_owned(), String::new(), "ReconcileSucceeded".to_owned());
    assert_eq!(said(stub), expected);
}

/// Plays the controllers of workloads: those that are there become ready, with a Pod each.
fn start(stub: &Stub) {
    for workload in roll_out(stub) {
        pod(stub, &workload);
    }
}

/// Makes the workloads ready that are there, without Pods.
fn roll_out(stub: &Stub) -> Vec<Value> {
    let mut found = Vec::new();
    for name in ["istiod", "istio-ingressgateway", "istio-egressgateway"] {
        let Some(deployment) = workload(stub, "Deployment", name) else { continue };
        let generation = &deployment["metadata"]["generation"];
        let replicas = &deployment["spec"]["replicas"];
        stub.patch(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": ISTIO_NAMESPACE},
            "status": {
                "observedGeneration": generation, "replicas": replicas,
                "updatedReplicas": replicas, "readyReplicas": replicas,
                "availableReplicas": replicas,
            },
        }));
        found.push(deployment);
    }
    if let Some(daemon_set) = workload(stub, "DaemonSet", "istio-cni-node") {
        stub.patch(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "istio-cni-node", "namespace": ISTIO_NAMESPACE},
            "status": {
                "observedGeneration": daemon_set["metadata"]["generation"],
                "currentNumberScheduled": 1, "numberMisscheduled": 0,
                "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberReady": 1,
            },
        }));
        found.push(daemon_set);
    }
    found
}

fn pod(stub: &Stub, of: &Value) {
    let template = &of["spec"]["template"];
    let name = format!("{}-1", of["metadata"]["name"].as_str().unwrap());
    if get(stub, "v1", "Pod", &name).is_some() {
        stub.delete(&format!("Pod/{ISTIO_NAMESPACE}/{name}"));
    }
    stub.apply(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": ISTIO_NAMESPACE, "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }));
}

/// Returns a cluster in which Istio is installed.
fn installed(spec: Value) -> Stub {
    let mut istio = istio();
    istio["spec"] = spec;
    let stub = cluster([istio]);
    for _ in 0..3 {
        settle(&stub);
        start(&stub);
    }
    settle(&stub);
    stub
}

/// Reconciles what is due at once, or a moment later.
fn settle(stub: &Stub) -> Settled {
    settle_with::<Double>(stub)
}

fn settle_with<R: Rendering>(stub: &Stub) -> Settled {
    stub.settle::<Installations<R>>("{}");
    stub.advance(Duration::from_millis(1));
    let settled = stub.settle::<Installations<R>>("{}");
    assert_eq!(settled.failures, [].into(), "{settled:?}");
    settled
}

#[test]
fn an_empty_resource_is_installed_in_phases() {
    let stub = cluster([istio()]);
    settle(&stub);
    assert_eq!(said(&stub).0, "Processing");
    assert!(workload(&stub, "Deployment", "istiod").is_some());
    assert!(workload(&stub, "DaemonSet", "istio-cni-node").is_some());
    assert_eq!(workload(&stub, "Deployment", "istio-ingressgateway"), None, "istiod is not ready");
    start(&stub);
    settle(&stub);
    assert!(workload(&stub, "Deployment", "istio-ingressgateway").is_some());
    assert_eq!(said(&stub).0, "Processing");
    start(&stub);
    settle(&stub);
    is_ready(&stub);
    let istio = stub.object(&reference()).unwrap();
    assert_eq!(istio["metadata"]["finalizers"], json!([FINALIZER]));
    let expected = r#"{"config":{"telemetry":{"metrics":{}}},"IstioTag":"1.30.2-distroless"}"#;
    assert_eq!(istio["metadata"]["annotations"][ANNOTATION], expected);
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
    })
}

fn annotation(stub: &Stub) -> String {
    let istio = stub.object(&reference()).unwrap();
    istio["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default().to_owned()
}

fn set_spec(stub: &Stub, spec: Value) {
    let mut patch = istio();
    patch["spec"] = spec;
    stub.patch(&patch);
}

fn describe_failure(stub: &Stub) -> String {
    let (state, description, reason) = said(stub);
    assert_eq!((state.as_str(), reason.as_str()), ("Error", "IstioInstallUninstallFailed"));
    let text = "Could not install Istio: Istio installation resulted in an error: ";
    description.strip_prefix(text).unwrap_or_else(|| panic!("{description}")).to_owned()
}

#[test]
fn an_installed_istio_is_left_in_peace() {
    let stub = installed(json!({}));
    let asked = stub.asked_clock();
    for _ in 0..2 {
        let run = stub.reconcile::<Installation>(&reference(), "{}");
        assert_eq!((run.changes, run.failure), (vec![], None));
        assert_eq!(run.again, Some(Duration::from_mins(5)));
    }
    assert_eq!(stub.asked_clock(), asked);
}

#[test]
fn an_autoscaler_that_asks_for_more_pods_leaves_istio_ready_for_a_while() {
    let stub = installed(json!({}));
    let condition = json!({"type": "Available", "status": "False", "lastTransitionTime": stub.host().now_text()});
    let mut scaled = object("apps/v1", "Deployment", ISTIO_NAMESPACE, "istiod");
    scaled["spec"] = json!({"replicas": 3});
    scaled["status"] = json!({"replicas": 3, "readyReplicas": 1, "conditions": [condition]});
    stub.patch(&scaled);
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    assert_eq!(run.again.map(|again| again.as_secs_f64().ceil()), Some(150.0));
    is_ready(&stub);
    stub.advance(Duration::from_secs(150));
    settle(&stub);
    let failure = describe_failure(&stub);
    assert_eq!(failure, "Deployment istio-system/istiod is not ready: 1 of 3 Pods are ready");
}

#[test]
fn objects_have_the_labels_of_the_installer_and_of_the_module() {
    let stub = installed(json!({}));
    let deployment = workload(&stub, "Deployment", "istiod").unwrap();
    let expected = json!({
        "operator.istio.io/managed": "Reconcile",
        "operator.istio.io/component": "Pilot",
        "operator.istio.io/version": "1.30.2",
        "install.operator.istio.io/owning-resource": "default-operator",
        "install.operator.istio.io/owning-resource-namespace": "istio-system",
        "istio.io/rev": "default",
        "kyma-project.io/module": "istio",
    });
    assert_eq!(deployment["metadata"]["labels"], expected);
    let template = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(template, &json!({"istio": "pilot", "kyma-project.io/module": "istio"}));
    let namespace = get(&stub, "v1", "Namespace", ISTIO_NAMESPACE).unwrap();
    let validate = &namespace["metadata"]["labels"]["namespaces.warden.kyma-project.io/validate"];
    assert_eq!(validate, "enabled");
}

#[test]
fn what_istio_makes_at_run_time_gets_the_label_of_the_module() {
    let stub = installed(json!({}));
    for (kind, name) in [("ConfigMap", "istio-leader"), ("Secret", "istio-ca-secret")] {
        stub.apply(&object("v1", kind, ISTIO_NAMESPACE, name));
    }
    stub.apply(&object("v1", "Secret", ISTIO_NAMESPACE, "other"));
    settle(&stub);
    let label = |kind, name| {
        let object = get(&stub, "v1", kind, name).unwrap();
        object["metadata"]["labels"]["kyma-project.io/module"].clone()
    };
    assert_eq!(label("ConfigMap", "istio-leader"), "istio");
    assert_eq!(label("Secret", "istio-ca-secret"), "istio");
    assert_eq!(label("Secret", "other"), json!(null));
    assert_eq!(get(&stub, "v1", "ConfigMap", "istio-ip-autoallocate"), None);
}

#[test]
fn what_others_change_in_what_is_installed_is_repaired() {
    let stub = installed(json!({}));
    let mut changed = object("v1", "ConfigMap", ISTIO_NAMESPACE, "istio");
    changed["data"] = json!({"mesh": "broken"});
    stub.patch(&changed);
    stub.delete("Service/istio-system/istiod");
    let metadata = || {
        let namespace = get(&stub, "v1", "Namespace", ISTIO_NAMESPACE).unwrap();
        ["labels", "annotations"].map(|key| namespace["metadata"][key].clone())
    };
    let before = metadata();
    stub.patch(&json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": ISTIO_NAMESPACE,
            "labels": {"namespaces.warden.kyma-project.io/validate": "disabled"},
            "annotations": {DISCLAIMER: "changed"},
        },
    }));
    settle(&stub);
    assert_eq!(metadata(), before);
    assert_ne!(get(&stub, "v1", "ConfigMap", "istio").unwrap()["data"]["mesh"], "broken");
    assert!(get(&stub, "v1", "Service", "istiod").is_some());
    is_ready(&stub);
}

#[test]
fn what_istiod_and_autoscalers_set_stays() {
    let stub = installed(json!({}));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "istio-sidecar-injector"},
    });
    let mut webhooks = get(
        &stub,
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "istio-sidecar-injector",
    )
    .unwrap()["webhooks"]
        .clone();
    webhooks[0]["clientConfig"]["caBundle"] = "Y2E=".into();
    webhooks[0]["failurePolicy"] = "Fail".into();
    let mut changed = configuration;
    changed["webhooks"] = webhooks;
    stub.patch(&changed);
    let mut scaled = object("apps/v1", "Deployment", ISTIO_NAMESPACE, "istiod");
    scaled["spec"] = json!({"replicas": 3});
    stub.patch(&scaled);
    set_spec(&stub, json!({"config": {"numTrustedProxies": 2}}));
    settle(&stub);
    start(&stub);
    settle(&stub);
    let injector = get(
        &stub,
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "istio-sidecar-injector",
    )
    .unwrap();
    assert_eq!(injector["webhooks"][0]["clientConfig"]["caBundle"], "Y2E=");
    assert_eq!(injector["webhooks"][0]["failurePolicy"], "Fail");
    assert_eq!(injector["webhooks"][0]["clientConfig"]["service"]["path"], "/inject");
    assert_eq!(workload(&stub, "Deployment", "istiod").unwrap()["spec"]["replicas"], 3);
    assert!(annotation(&stub).contains(r#""numTrustedProxies":2"#));
    is_ready(&stub);
}

#[test]
fn what_is_no_longer_wanted_goes_but_definitions_stay() {
    let stub = installed(json!({"components": {"egressGateway": {"enabled": true}}}));
    assert!(workload(&stub, "Deployment", "istio-egressgateway").is_some());
    let mut copy = object("v1", "Service", ISTIO_NAMESPACE, "my-gateway");
    let service = get(&stub, "v1", "Service", "istio-egressgateway").unwrap();
    copy["metadata"]["labels"] = service["metadata"]["labels"].clone();
    copy["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    stub.apply(&copy);
    set_spec(&stub, json!({"components": null}));
    let mut features = object("v1", "ConfigMap", "kyma-system", "istio-features");
    features["data"] = json!({"features": r#"{"disableCni": true}"#});
    stub.apply(&features);
    settle(&stub);
    assert_eq!(workload(&stub, "Deployment", "istio-egressgateway"), None);
    assert_eq!(workload(&stub, "DaemonSet", "istio-cni-node"), None);
    assert!(workload(&stub, "Deployment", "istio-ingressgateway").is_some());
    assert!(get(&stub, "v1", "Service", "my-gateway").is_some(), "it was not applied here");
    is_ready(&stub);
}

#[test]
fn another_library_updates_istio_in_phases() {
    let stub = installed(json!({}));
    let image = |name: &str| {
        let workload = workload(&stub, "Deployment", name).unwrap();
        let containers = &workload["spec"]["template"]["spec"]["containers"];
        containers[0]["image"].as_str().unwrap().rsplit(':').next().unwrap().to_owned()
    };
    let settle_next = || settle_with::<Next>(&stub);
    settle_next();
    assert_eq!(said(&stub).0, "Processing");
    assert_eq!(image("istiod"), "1.31.0-distroless");
    assert_eq!(image("istio-ingressgateway"), "1.30.2-distroless", "istiod is not ready");
    assert!(get(&stub, "v1", "ConfigMap", "values").is_some());
    assert_eq!(get(&stub, "v1", "ConfigMap", "istio-old"), None);
    assert!(annotation(&stub).contains("1.30.2"));
    start(&stub);
    settle_next();
    assert_eq!(image("istio-ingressgateway"), "1.31.0-distroless");
    start(&stub);
    settle_next();
    is_ready(&stub);
    assert!(annotation(&stub).contains("1.31.0-distroless"));
    // Back is not allowed, and changes nothing.
    settle(&stub);
    let (state, description, reason) = said(&stub);
    assert_eq!((state.as_str(), reason.as_str()), ("Warning", "IstioVersionUpdateNotAllowed"));
    assert_eq!(
        description,
        "Istio version update is not allowed: target Istio version (1.30.2-distroless) is lower than current version (1.31.0-distroless) - downgrade not supported"
    );
    assert_eq!(image("istiod"), "1.31.0-distroless");
}

#[test]
fn a_pod_that_cannot_start_is_the_cause_of_an_error() {
    let stub = cluster([istio()]);
    settle(&stub);
    let mut pod = object("v1", "Pod", ISTIO_NAMESPACE, "istiod-1");
    pod["metadata"]["labels"] = json!({"istio": "pilot", "kyma-project.io/module": "istio"});
    pod["spec"] = json!({"containers": [{"name": "discovery", "image": "r/pilot:1"}]});
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image"});
    pod["status"] = json!({"phase": "Pending", "containerStatuses": [{
        "name": "discovery", "image": "r/pilot:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": waiting},
    }]});
    stub.apply(&pod);
    let uid = get(&stub, "v1", "Pod", "istiod-1").unwrap()["metadata"]["uid"].clone();
    let mut event = object("v1", "Event", ISTIO_NAMESPACE, "istiod-1.1");
    event["type"] = "Warning".into();
    event["reason"] = "Failed".into();
    event["message"] = "not found".into();
    event["involvedObject"] =
        json!({"kind": "Pod", "namespace": ISTIO_NAMESPACE, "name": "istiod-1", "uid": uid});
    stub.apply(&event);
    settle(&stub);
    assert_eq!(
        describe_failure(&stub),
        "Deployment istio-system/istiod is not ready: Pod istiod-1: container discovery waits: ImagePullBackOff: Back-off pulling image; event Failed: not found"
    );
    start(&stub);
    settle(&stub);
    start(&stub);
    settle(&stub);
    is_ready(&stub);
}

#[test]
fn what_does_not_become_ready_is_an_error_after_a_while_and_until_it_is() {
    let stub = cluster([istio()]);
    assert_eq!(settle(&stub).requeues.len(), 1);
    stub.advance(Duration::from_secs(149));
    settle(&stub);
    assert_eq!(said(&stub).0, "Processing");
    stub.advance(Duration::from_secs(2));
    settle(&stub);
    let expected = "Deployment istio-system/istiod is not ready: 0 of 1 Pods are ready";
    assert_eq!(describe_failure(&stub), expected);
    stub.advance(Duration::from_mins(10));
    settle(&stub);
    assert_eq!(describe_failure(&stub), expected);
    start(&stub);
    settle(&stub);
    start(&stub);
    settle(&stub);
    is_ready(&stub);
}

#[test]
fn pods_of_another_version_are_an_error() {
    let stub = installed(json!({}));
    let mut pod = object("v1", "Pod", ISTIO_NAMESPACE, "z-old");
    pod["metadata"]["labels"] = json!({"kyma-project.io/module": "istio"});
    pod["spec"] = json!({"containers": [{"name": "istio-proxy", "image": "r/proxyv2:1.29.3"}]});
    stub.apply(&pod);
    settle(&stub);
    let (state, description, _) = said(&stub);
    assert_eq!(state, "Error");
    assert_eq!(
        description,
        "Verifying Pod versions in istio-system namespace failed: image version of Pod z-old 1.29.3 do not match other Pods version 1.30.2"
    );
    stub.delete("Pod/istio-system/z-old");
    settle(&stub);
    is_ready(&stub);
}

#[test]
fn an_istio_of_somebody_else_is_named_and_not_touched() {
    let component = json!({"operator.istio.io/component": "Pilot"});
    let labels = [
        json!({}),
        component,
        json!({
            "operator.istio.io/component": "Pilot",
            "install.operator.istio.io/owning-resource": "default-operator",
            "install.operator.istio.io/owning-resource-namespace": "elsewhere",
        }),
        json!({
            "operator.istio.io/component": "Pilot",
            "install.operator.istio.io/owning-resource": "unknown",
        }),
    ];
    for labels in labels {
        let mut istiod = object("apps/v1", "Deployment", ISTIO_NAMESPACE, "istiod");
        istiod["metadata"]["labels"] = labels.clone();
        let template = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "discovery", "image": "r/pilot:1.20.0"}]},
        });
        istiod["spec"] = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ISTIO_NAMESPACE}});
        let stub = cluster([istio(), namespace, istiod]);
        settle(&stub);
        let expected = "Deployment istio-system/istiod was installed by somebody else, remove that Istio first";
        assert_eq!(describe_failure(&stub), expected, "{labels}");
        assert_eq!(get(&stub, "v1", "ServiceAccount", "istiod"), None);
        assert_eq!(stub.object(&reference()).unwrap()["metadata"]["finalizers"], json!(null));
    }
}

#[test]
fn the_library_says_what_it_refuses() {
    let mut refused = istio();
    refused["spec"] = json!({"config": {"trustDomain": REFUSED}});
    let stub = cluster([refused]);
    settle(&stub);
    assert_eq!(describe_failure(&stub), "the trust domain is refused");
    assert_eq!(get(&stub, "v1", "Namespace", ISTIO_NAMESPACE), None);
    // The original has added its finalizer by then.
    assert_eq!(stub.object(&reference()).unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    stub.delete("Istio/kyma-system/default");
    settle(&stub);
    assert_eq!(stub.object(&reference()), None);
}

#[test]
fn a_resource_that_cannot_be_merged_is_held_as_by_the_original() {
    let stub = cluster([istio()]).declared(Installation::describe(&Config::default()).unwrap());
    let mut wrong = istio();
    // An API server that checks the definition would refuse it.
    let resources = json!({"limits": {"cpu": "much"}});
    wrong["spec"] = json!({"components": {"pilot": {"k8s": {"resources": resources}}}});
    let request = mortise_sdk::testing::request_for(&wrong);
    let outcome = Installation::reconcile(&request, &Config::default(), &stub.host()).unwrap();
    let status: Value = serde_json::from_str(&outcome.status.unwrap()).unwrap();
    let reason = &status["status"]["conditions"][0]["reason"];
    assert_eq!(reason, "IstioCustomResourceMisconfigured");
    assert_eq!(outcome.finalizers, Some(vec![FINALIZER.to_owned()]));
    assert!(outcome.apply.is_empty());
}

#[test]
fn other_processors_say_what_is_wrong_and_only_what_took_effect_is_recorded() {
    let stub = installed(json!({}));
    let condition = |condition_type: &str, status: &str, reason: &str, message: &str| {
        let time = "2026-01-01T00:00:00Z";
        json!({
            "type": condition_type, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": time,
        })
    };
    let mut patch = istio();
    let ready = stub.object(&reference()).unwrap()["status"]["conditions"][0].clone();
    patch["status"] = json!({"conditions": [
        ready,
        condition("ProxySidecarRestartSucceeded", "False", "ProxySidecarManualRestartRequired", "a"),
        condition("IngressGatewayRestarted", "True", "IngressGatewayRestartSucceeded", ""),
    ]});
    patch["spec"] = json!({"config": {"numTrustedProxies": 2}, "compatibilityMode": true});
    stub.patch(&patch);
    settle(&stub);
    start(&stub);
    settle(&stub);
    let (state, description, reason) = said(&stub);
    assert_eq!((state.as_str(), reason.as_str()), ("Warning", "IngressGatewayRestartSucceeded"));
    assert!(description.starts_with("Some Pods with Istio sidecar injection failed to restart."));
    let recorded = annotation(&stub);
    assert!(recorded.contains(r#""numTrustedProxies":2"#) && !recorded.contains("compatibility"));
}

#[test]
fn a_deletion_is_blocked_by_what_people_have_made() {
    let stub = installed(json!({}));
    for (name, namespace) in [("web", "kyma-system"), ("my-istio-healthz", ISTIO_NAMESPACE)] {
        stub.apply(&object("networking.istio.io/v1", "VirtualService", namespace, name));
    }
    stub.apply(&object(
        "networking.istio.io/v1",
        "VirtualService",
        ISTIO_NAMESPACE,
        "istio-healthz",
    ));
    stub.delete("Istio/kyma-system/default");
    settle(&stub);
    let (state, description, reason) = said(&stub);
    assert_eq!((state.as_str(), reason.as_str()), ("Warning", "IstioCustomResourcesDangling"));
    assert!(description.starts_with("There are Istio resources that block deletion."));
    assert!(workload(&stub, "Deployment", "istiod").is_some());
    let lines = stub.lines();
    let named: Vec<&str> =
        lines.iter().flat_map(|line| &line.fields).map(|(_, value)| value.as_str()).collect();
    assert!(named.contains(&"VirtualService kyma-system/web"), "{named:?}");
    stub.delete("VirtualService/kyma-system/web");
    stub.delete("VirtualService/istio-system/my-istio-healthz");
    settle(&stub);
    assert_eq!(stub.object(&reference()), None);
}

#[test]
fn everything_that_was_installed_goes_and_look_alikes_stay() {
    let stub = installed(json!({}));
    let service = get(&stub, "v1", "Service", "istio-ingressgateway").unwrap();
    let mut copy = object("v1", "Service", "kyma-system", "istio-ingressgateway");
    copy["metadata"]["labels"] = service["metadata"]["labels"].clone();
    copy["spec"] = json!({"ports": [{"name": "http", "port": 80}]});
    stub.apply(&copy);
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "istiod-mine", "labels": {"operator.istio.io/component": "Pilot"}},
        "rules": [],
    });
    role["metadata"]["labels"]["app"] = "istiod".into();
    stub.apply(&role);
    stub.delete("Istio/kyma-system/default");
    settle(&stub);
    assert_eq!(stub.object(&reference()), None);
    assert_eq!(get(&stub, "v1", "Namespace", ISTIO_NAMESPACE), None);
    let definition = "peerauthentications.security.istio.io";
    let api = "apiextensions.k8s.io/v1";
    assert_eq!(get(&stub, api, "CustomResourceDefinition", definition), None);
    let rbac = "rbac.authorization.k8s.io/v1";
    assert_eq!(get(&stub, rbac, "ClusterRole", "istiod-clusterrole-istio-system"), None);
    assert!(get(&stub, rbac, "ClusterRole", "istiod-mine").is_some());
    let copy =
        ObjectRef::new(Kind::new("", "v1", "Service"), Some("kyma-system"), "istio-ingressgateway");
    assert!(stub.object(&copy).is_some());
}

#[test]
fn without_the_namespace_and_the_rights_in_it_the_rest_is_uninstalled() {
    let applied = applied(&installed(json!({})));
    let is_left = |object: &Value| object["metadata"]["namespace"].is_null();
    let left = applied.into_iter().filter(|one| is_left(one) && one["kind"] != "Namespace");
    let mut istio = istio();
    istio["metadata"]["finalizers"] = json!([FINALIZER]);
    let mut rights = Installation::describe(&Config::default()).unwrap();
    rights.reads.retain(|read| read.namespace.as_deref() != Some(ISTIO_NAMESPACE));
    let left: Vec<Value> = left.collect();
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (left, finalizers) in [(left, None), (Vec::new(), Some(Vec::new()))] {
        let expected = (left.len(), finalizers);
        let stub = cluster(left).objects([istio.clone()]).declared(rights.clone());
        let mut deleted = istio.clone();
        crate::render::add(&mut deleted, gone.clone());
        let request = mortise_sdk::testing::request_for(&deleted);
        let outcome = Installation::reconcile(&request, &Config::default(), &stub.host()).unwrap();
        assert_eq!((outcome.delete.len(), outcome.finalizers), expected);
    }
}

#[test]
fn roles_hand_on_what_is_declared() {
    let description = Installation::describe(&Config::default()).unwrap();
    assert!(!description.grants.is_empty());
    let stub = installed(json!({"components": {"egressGateway": {"enabled": true}}}));
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    check_grants(&description, [&run.outcome.unwrap().unwrap()]);
}

/// Returns the objects that a run applies.
fn applied(stub: &Stub) -> Vec<Value> {
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    let outcome = run.outcome.unwrap().unwrap();
    outcome.apply.iter().map(|manifest| serde_json::from_str(&manifest.object).unwrap()).collect()
}

/// Returns what the original leaves: the objects under another manager, with a status of its own.
fn left_by_the_original() -> Stub {
    let stub = installed(json!({}));
    let mut objects = applied(&stub);
    for object in &mut objects {
        if object["kind"] == "Deployment" || object["kind"] == "DaemonSet" {
            let name = object["metadata"]["name"].as_str().unwrap();
            let live = workload(&stub, object["kind"].as_str().unwrap(), name).unwrap();
            object["status"] = live["status"].clone();
        }
        if object["metadata"]["labels"].get("operator.istio.io/version").is_some() {
            object["metadata"]["labels"]["operator.istio.io/version"] = "unknown".into();
        }
    }
    let pods = ["istiod-1", "istio-ingressgateway-1", "istio-cni-node-1"];
    objects.extend(pods.map(|name| get(&stub, "v1", "Pod", name).unwrap()));
    let mut istio = istio();
    istio["metadata"]["annotations"] = json!({ANNOTATION: annotation(&stub)});
    istio["metadata"]["finalizers"] = json!([FINALIZER]);
    istio["status"] = json!({"state": "Ready", "description": "", "conditions": [{
        "type": "Ready", "status": "True", "reason": "ReconcileSucceeded",
        "message": "Reconciliation succeeded", "lastTransitionTime": "2025-01-01T00:00:00Z",
    }]});
    cluster(objects.into_iter().chain([istio]))
}

#[test]
fn an_istio_of_the_original_is_taken_over_without_a_change_that_is_felt() {
    let stub = left_by_the_original();
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    assert_eq!(run.failure, None);
    for change in &run.changes {
        assert!(["update", "status"].contains(&change.action), "{change:?}");
    }
    is_ready(&stub);
    settle(&stub);
    is_ready(&stub);
    let ready = &stub.object(&reference()).unwrap()["status"]["conditions"][0];
    assert_eq!(ready["lastTransitionTime"], "2025-01-01T00:00:00Z");
    for name in ["istiod", "istio-ingressgateway"] {
        assert_eq!(workload(&stub, "Deployment", name).unwrap()["metadata"]["generation"], 1);
    }
}

#[test]
fn an_istio_of_the_original_can_be_deleted_at_once() {
    let stub = left_by_the_original();
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    assert_eq!(run.failure, None);
    stub.delete("Istio/kyma-system/default");
    settle(&stub);
    assert_eq!(stub.object(&reference()), None);
    assert_eq!(workload(&stub, "Deployment", "istiod"), None);
    assert_eq!(get(&stub, "v1", "Namespace", ISTIO_NAMESPACE), None);
}

#[test]
fn what_the_api_refuses_is_told() {
    let stub = cluster([istio()]);
    let run = stub.reconcile::<Installation>(&reference(), "{}");
    assert_eq!(run.failure, None);
    let refused = mortise_sdk::WriteFailure {
        action: mortise_sdk::Action::Apply,
        ref_: ObjectRef::new(
            Kind::new("apps", "v1", "Deployment"),
            Some(ISTIO_NAMESPACE),
            "istiod",
        ),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "a webhook says no".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let request = mortise_sdk::Request {
        failed_writes: vec![refused],
        ..mortise_sdk::testing::request_for(&istio())
    };
    let outcome = Installation::reconcile(&request, &Config::default(), &stub.host()).unwrap();
    let told: Value = serde_json::from_str(&outcome.status.unwrap()).unwrap();
    assert_eq!(told["status"]["state"], "Error");
    assert_eq!(
        told["status"]["description"],
        "Could not install Istio: Istio installation resulted in an error: cannot apply Deployment istio-system/istiod: a webhook says no"
    );
}

#[test]
fn a_tag_beside_an_active_injector_goes() {
    let stub = installed(json!({}));
    let mut tag = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "istio-revision-tag-default"},
    });
    tag["metadata"]["labels"] = json!({"istio.io/tag": "default", "istio.io/rev": "default"});
    stub.apply(&tag);
    settle(&stub);
    let kind = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");
    assert_eq!(get(&stub, kind.0, kind.1, "istio-revision-tag-default"), None);
    assert!(get(&stub, kind.0, kind.1, "istio-sidecar-injector").is_some());
}

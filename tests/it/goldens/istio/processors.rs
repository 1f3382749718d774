//! Recorded cases of the Kyma Istio operator, through the reconciles of the processors.
//!
//! The original does all in one pass. A case begins where that pass comes to the part of the
//! processor: after an installation the tag is in the annotation, and after the removal of Istio
//! only the processor's own finalizer is left.

use std::{path::Path, time::Duration};

use ingress_gateway_restart::IngressGatewayRestarts;
use istio::{
    action::{self, Action, Object, RESTARTED_AT, ReplicaSets, Warning},
    api::Istio,
    cluster::INGRESS_GATEWAY,
    condition,
    kubernetes::Pod,
    last_applied::{ANNOTATION, Effect, LastApplied},
    predicate::MODULE_LABEL,
    resource::AUTOSCALER_CRD,
};
use mortise::commands::simulate::{Input, simulate};
use mortise_sdk::{Kind, Object as _, ObjectRef, Processor as _, testing::Stub};
use mortise_tests::{
    definitions,
    goldens::{
        group::{self, GroupCase},
        sorted,
    },
    loaded,
};
use peer_authentication::PeerAuthentications;
use serde_json::{Map, Value, json};
use sidecar_restart::Sidecars;

use super::{
    context::{NOW, list, object, text},
    istio_of, run, run_with,
};

/// The tag of the installed Istio, as the cases were recorded.
const TAG: &str = "1.30.2-distroless";
const PEER_AUTHENTICATION: &str = "guests/peer-authentication";
/// The finalizer of peer-authentication.
const FINALIZER: &str = "istios.operator.kyma-project.io/peer-authentication";
/// The kinds of the module's own objects.
pub(super) const OWN: [&str; 4] =
    ["PeerAuthentication", "NetworkPolicy", "VerticalPodAutoscaler", "EnvoyFilter"];

/// A resource and the objects around it, in a cluster in memory.
struct Stage {
    stub: Stub,
    of: ObjectRef,
    objects: Vec<Value>,
}

impl Stage {
    fn new(case: &GroupCase, more: impl IntoIterator<Item = Value>) -> Self {
        let mut istio = case.document("istio-cr.yaml").clone();
        let resource = istio_of(case);
        if let Ok(annotation) = LastApplied::after(&resource, Effect::Installed(TAG)) {
            istio["metadata"]["annotations"][ANNOTATION] = annotation.into();
        }
        if resource.metadata.is_deleted() {
            istio["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        let of = reference(&istio);
        let objects: Vec<Value> = case
            .documents("cluster.yaml")
            .iter()
            .filter(|object| object["kind"] != "CustomResourceDefinition")
            .cloned()
            .chain(more)
            .chain([istio])
            .collect();
        let stub = Stub::new()
            .crds(mortise_tests::crds::folder().join(Istio::GROUP))
            .objects(objects.iter().cloned());
        Self { stub: serve_autoscalers(stub, case), of, objects }
    }

    /// Returns the message of a condition; "" if there is none.
    fn message(&self, condition_type: &str) -> String {
        let istio = self.stub.object(&self.of).unwrap_or_default();
        let conditions = istio.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions.into_iter().flatten().find(|one| one["type"] == condition_type);
        found.map(|condition| text(condition, "/message").to_owned()).unwrap_or_default()
    }

    /// Returns the module's own objects, without what an API server adds.
    fn own_objects(&self) -> Value {
        let description =
            PeerAuthentications::describe(&peer_authentication::Config::default()).unwrap();
        let written = description.writes.into_iter().map(|rule| {
            let of = rule.of;
            ObjectRef::new(of.kind, of.namespace.as_deref(), of.name.unwrap())
        });
        let there = self.objects.iter().filter(|one| OWN.contains(&text(one, "/kind")));
        let mut all: Vec<ObjectRef> = written.collect();
        for of in there.map(reference) {
            if !all.contains(&of) {
                all.push(of);
            }
        }
        let left = all.iter().filter_map(|of| self.stub.object(of));
        sorted(left.map(without_added).collect())
    }

    /// Returns what the component gets as the same cluster.
    fn input(&self, case: &GroupCase) -> Input {
        let missing = if has_autoscalers(case) { None } else { Some(AUTOSCALER_CRD.to_owned()) };
        Input {
            objects: self.objects.clone(),
            crds: definitions(PEER_AUTHENTICATION).unwrap(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            missing_kinds: missing.into_iter().collect(),
            validate: false,
            only: None,
            rounds: None,
        }
    }
}

/// Removes what an API server adds to an object.
fn without_added(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for added in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(added);
    }
    object
}

/// Returns whether the recorded cluster has the definition of vertical autoscalers.
fn has_autoscalers(case: &GroupCase) -> bool {
    let objects = case.documents("cluster.yaml");
    object(objects, "CustomResourceDefinition", "", AUTOSCALER_CRD).is_some()
}

/// Serves vertical autoscalers if the recorded cluster has their definition.
pub(super) fn serve_autoscalers(stub: Stub, case: &GroupCase) -> Stub {
    if has_autoscalers(case) {
        return stub;
    }
    stub.without_kind("autoscaling.k8s.io", "VerticalPodAutoscaler")
}

pub(super) fn reference(object: &Value) -> ObjectRef {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = Kind::new(group, version, text(object, "/kind"));
    let namespace = Some(text(object, "/metadata/namespace")).filter(|name| !name.is_empty());
    ObjectRef::new(kind, namespace, text(object, "/metadata/name"))
}

/// Returns the cluster of a case of the group `resources`.
fn of_resources(case: &GroupCase) -> Stage {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    Stage::new(case, [namespace])
}

#[tokio::test]
async fn istio_resources_are_reconciled_by_the_component_as_natively() {
    let component = loaded(PEER_AUTHENTICATION, "{}").await.unwrap();
    // Natively, all cases are compared with the original; here those in the repository are enough.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/istio/resources");
    for case in group::cases(&folder).unwrap() {
        let stage = of_resources(&case);
        let end = simulate(component.clone(), stage.input(&case)).await.unwrap();
        let settled = stage.stub.settle::<PeerAuthentications>("");
        assert_eq!(end.failures.len(), settled.failures.len(), "{}", case.name);
        let own = end.objects.into_iter().filter(|one| OWN.contains(&text(one, "/kind")));
        let own = sorted(own.map(without_added).collect());
        assert_eq!(own, stage.own_objects(), "{}", case.name);
    }
}

#[test]
fn istio_resources_are_reconciled_as_by_the_original() {
    run("resources", |case| {
        let stage = of_resources(case);
        let settled = stage.stub.settle::<PeerAuthentications>("");
        let errors: Map<String, Value> =
            settled.failures.into_iter().map(|(key, why)| (key, why.into())).collect();
        let original = sorted(case.documents("expected.yaml").to_vec());
        vec![
            ("objects", original, stage.own_objects()),
            ("errors", case.document("expected.json").clone(), errors.into()),
        ]
    });
}

#[test]
fn istio_gateways_are_rolled_out_as_by_the_original() {
    run("gateway", |case| {
        let gateway = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
                "name": INGRESS_GATEWAY, "namespace": "istio-system",
                "creationTimestamp": "2025-01-01T00:00:00Z",
            },
            "spec": {
                "selector": {"matchLabels": {"app": INGRESS_GATEWAY}},
                "template": {
                    "metadata": {"labels": {"app": INGRESS_GATEWAY}},
                    "spec": {"containers": [{"name": "istio-proxy", "image": "example.com/a:1"}]},
                },
            },
        });
        let stage = Stage::new(case, [gateway.clone()]);
        let at = || -> Option<String> {
            let gateway = stage.stub.object(&reference(&gateway))?;
            let annotations = gateway.pointer("/spec/template/metadata/annotations")?;
            annotations.get(RESTARTED_AT)?.as_str().map(str::to_owned)
        };
        let settle = |by| {
            stage.stub.settle::<IngressGatewayRestarts>("");
            stage.stub.advance(by);
        };
        // A restart takes three runs, the first of which records it.
        settle(Duration::from_secs(1));
        settle(Duration::from_secs(1));
        let restarted_at = at();
        settle(Duration::from_mins(10));
        settle(Duration::from_mins(10));
        assert_eq!(at(), restarted_at, "{}: restarted twice", case.name);
        let message = stage.message("IngressGatewayRestarted");
        let prefix = format!(
            "Could not create Ingress Gateway restart evaluator: annotation {ANNOTATION}: "
        );
        let error = message.strip_prefix(&prefix).unwrap_or_default();
        let ours = json!({"requiresRestart": restarted_at.is_some(), "error": error});
        vec![("gateway", case.document("expected.json").clone(), ours)]
    });
}

/// Returns the cluster of a case of the group `actions`, with an Istio and its resource. All Pods
/// are due, since another image is wanted; they are of Kyma's modules if an error ends the
/// original's phase.
fn cluster_of_actions(case: &GroupCase) -> (Stub, ObjectRef, Vec<Value>) {
    let is_of_kyma = case.document("context.yaml")["failOnError"] == true;
    let mut pods = case.documents("pods.yaml").to_vec();
    for pod in pods.iter_mut().filter(|_| is_of_kyma) {
        pod["metadata"]["labels"][MODULE_LABEL] = "a".into();
    }
    let annotation = json!({"IstioTag": TAG}).to_string();
    let istio = json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {
            "name": "default", "namespace": "kyma-system", "annotations": {ANNOTATION: annotation},
        },
        "spec": {},
    });
    let istiod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "istiod-1", "namespace": "istio-system", "labels": {MODULE_LABEL: "istio"},
        },
        "spec": {"containers": [
            {"name": "discovery", "image": format!("example.com/pilot:{TAG}")},
        ]},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"capacity": {"cpu": "12", "memory": "32Gi"}},
    });
    let of = reference(&istio);
    let given: Vec<Value> =
        pods.into_iter().chain(case.documents("objects.yaml").to_vec()).collect();
    let stub = Stub::new()
        .crds(mortise_tests::crds::folder().join(Istio::GROUP))
        .objects(given.iter().cloned().chain([istio, istiod, node]));
    (stub, of, given)
}

/// Returns what the original did with the Pods, in the form of [`restarted`].
fn recorded_actions(case: &GroupCase) -> Value {
    let mut recorded = case.document("expected.json").clone();
    let warnings = recorded["warnings"].take();
    let text = |warning: &Value, key: &str| warning[key].as_str().unwrap().to_owned();
    let mut warnings: Vec<Warning> = warnings
        .as_array()
        .into_iter()
        .flatten()
        .map(|warning| Warning {
            pod: Object {
                kind: text(warning, "Kind"),
                namespace: text(warning, "Namespace"),
                name: text(warning, "Name"),
            },
            message: "",
        })
        .collect();
    warnings.sort_by(|one, other| one.pod.cmp(&other.pod));
    recorded["warnings"] = action::message(&warnings).into();
    recorded
}

/// Returns what the processor did with the Pods: the rolled out workloads and their annotations,
/// the Pods that are gone, and the message about those that nobody would start again.
fn restarted(stub: &Stub, of: &ObjectRef, given: &[Value]) -> Value {
    let (mut rolled_out, mut templates, mut deleted) = (Vec::new(), json!({}), Vec::new());
    for before in given {
        let name =
            format!("{}/{}", text(before, "/metadata/namespace"), text(before, "/metadata/name"));
        let Some(after) = stub.object(&reference(before)) else {
            deleted.push(Value::from(name));
            continue;
        };
        let annotations = |object: &Value| {
            object.pointer("/spec/template/metadata/annotations").cloned().unwrap_or_default()
        };
        let (former, mut annotations) = (annotations(before), annotations(&after));
        if annotations[RESTARTED_AT] != former[RESTARTED_AT] {
            annotations[RESTARTED_AT] = NOW.into();
            let name = format!("{}/{name}", text(before, "/kind"));
            templates[&name] = annotations;
            rolled_out.push(Value::from(name));
        }
    }
    let istio = stub.object(of).unwrap_or_default();
    let conditions = istio.pointer("/status/conditions").and_then(Value::as_array);
    let condition =
        conditions.into_iter().flatten().find(|one| one["type"] == condition::SIDECARS).unwrap();
    let is_good = condition["reason"] == condition::SIDECARS_SUCCEEDED.name;
    let message = if is_good { "" } else { text(condition, "/message") };
    let failed = "Error occurred during reconciliation of Istio Sidecars: ";
    json!({
        "warnings": message.strip_prefix(failed).unwrap_or(message),
        "deletedPods": sorted(deleted),
        "rolledOut": sorted(rolled_out),
        "templateAnnotations": templates,
        "error": "",
    })
}

/// Adds the fact that an owner cannot be rolled out, as the file `facts`.
fn add_foreign_owners(case: &mut GroupCase) {
    let pods: Vec<Pod> = list(case.documents("pods.yaml"), "Pod");
    let replica_sets: Vec<_> = list(case.documents("objects.yaml"), "ReplicaSet");
    let replica_sets = ReplicaSets::new(&replica_sets);
    let is_foreign = |pod: &Pod| matches!(Action::of(pod, &replica_sets), Action::Unsupported(_));
    let has_foreign_owners = pods.iter().any(is_foreign);
    case.add("facts", vec![json!({"hasForeignOwners": has_foreign_owners})]);
}

#[test]
fn istio_sidecars_are_restarted_through_owners_as_by_the_original() {
    run_with("actions", add_foreign_owners, |case| {
        let (stub, of, given) = cluster_of_actions(case);
        let config = json!({
            "proxyImage": "example.com/proxyv2:another", "missingSidecars": false, "restarts": 1000,
        });
        stub.settle::<Sidecars>(&config.to_string());
        // Pods are evicted a moment after the change of the image.
        for _ in 0..3 {
            stub.advance(Duration::from_mins(1));
            stub.settle::<Sidecars>(&config.to_string());
        }
        vec![("processor", recorded_actions(case), restarted(&stub, &of, &given))]
    });
}

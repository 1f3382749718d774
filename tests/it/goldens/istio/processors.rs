//! Recorded cases of the Kyma Istio operator, through the reconciles of the processors.
//!
//! The original does all in one pass. A case begins where that pass comes to the part of the
//! processor: after an installation the tag is in the annotation, and after the removal of Istio
//! only the processor's own finalizer is left.
//!
//! The same clusters run with the components, which must do what the processors do natively.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

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
use mortise::commands::{
    simulate::{Input, simulate},
    test::run_case,
};
use mortise_sdk::{
    Kind, Object as _, ObjectRef, Processor,
    testing::{
        Stub,
        case::{self, Case, Document, Step},
    },
};
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
/// The time at the beginning of a case.
const START: &str = "2026-01-01T00:00:00Z";
const PEER_AUTHENTICATION: &str = "guests/peer-authentication";
/// The finalizer of peer-authentication.
const FINALIZER: &str = "istios.operator.kyma-project.io/peer-authentication";
/// The times after which the gateway is looked at again: a restart takes three runs.
const GATEWAY_LATER: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(1), Duration::from_mins(10)];
/// The times after which sidecars are looked at again: Pods are evicted a moment after the change
/// of the image.
const ACTIONS_LATER: [Duration; 3] = [Duration::from_mins(1); 3];
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
            clusters: Vec::new(),
            now: START.parse().unwrap(),
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

/// Returns the cases of a group that are in the repository. Natively, all cases are compared with
/// the original; as a component these are enough.
fn in_repository(group: &str) -> Vec<GroupCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/istio").join(group);
    group::cases(&folder).unwrap()
}

/// A group whose cases run natively and as a component.
struct Group {
    name: &'static str,
    guest: &'static str,
    config: String,
    /// The times after which everything that is due is reconciled again, one after the other.
    later: &'static [Duration],
}

impl Group {
    /// Runs the clusters of the cases, and checks that both do the same in each step. Returns the
    /// cases, each with the changes of its steps.
    async fn run<P: Processor>(
        &self,
        stage: impl Fn(&GroupCase) -> Stage,
    ) -> Vec<(GroupCase, Vec<Document>)> {
        let component = loaded(self.guest, &self.config).await.unwrap().processor;
        let crds = definitions(self.guest).unwrap();
        let mut all = Vec::new();
        for recorded in in_repository(self.name) {
            let case = self.case(&recorded.name, stage(&recorded).objects);
            let native = case::run::<P>(&case, &crds, &[]).unwrap().documents();
            let ours = run_case(component.clone(), case, &crds).await.unwrap().documents();
            assert_eq!(native, ours, "{}: natively and as a component", recorded.name);
            all.push((recorded, ours));
        }
        all
    }

    fn case(&self, name: &str, objects: Vec<Value>) -> Case {
        let later = self.later.iter().map(|after| Step { after: Some(*after), ..Step::default() });
        Case {
            name: name.to_owned(),
            folder: PathBuf::new(),
            calls: Vec::new(),
            clusters: Vec::new(),
            objects,
            config: self.config.clone(),
            now: START.parse().unwrap(),
            only: None,
            validate: true,
            steps: std::iter::once(Step::default()).chain(later).collect(),
            expected: None,
        }
    }
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
    for case in in_repository("resources") {
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

/// Returns the ingress gateway, which was installed long before a case.
fn gateway() -> Value {
    json!({
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
    })
}

#[tokio::test]
async fn istio_gateways_are_rolled_out_by_the_component_as_natively() {
    let group = Group {
        name: "gateway",
        guest: "guests/ingress-gateway-restart",
        config: "{}".to_owned(),
        later: &GATEWAY_LATER,
    };
    let all = group.run::<IngressGatewayRestarts>(|case| Stage::new(case, [gateway()])).await;
    for (case, steps) in all {
        let is_gateway = |object: &Value| object["kind"] == "Deployment";
        let restarts = steps.iter().any(|step| step.objects.iter().any(is_gateway));
        assert_eq!(case.document("expected.json")["requiresRestart"], restarts, "{}", case.name);
    }
}

#[test]
fn istio_gateways_are_rolled_out_as_by_the_original() {
    run("gateway", |case| {
        let gateway = gateway();
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
fn of_actions(case: &GroupCase) -> Stage {
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
    let given = pods.into_iter().chain(case.documents("objects.yaml").to_vec());
    let objects: Vec<Value> = given.chain([istio, istiod, node]).collect();
    let stub = Stub::new()
        .crds(mortise_tests::crds::folder().join(Istio::GROUP))
        .objects(objects.iter().cloned());
    Stage { stub, of, objects }
}

/// Returns the configuration of sidecar-restart in the cases of the group `actions`.
fn config_of_actions() -> String {
    let proxy_image = "example.com/proxyv2:another";
    json!({"proxyImage": proxy_image, "missingSidecars": false, "restarts": 1000}).to_string()
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
fn restarted(Stage { stub, of, objects }: &Stage) -> Value {
    let (mut rolled_out, mut templates, mut deleted) = (Vec::new(), json!({}), Vec::new());
    for before in objects {
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
        let (stage, config) = (of_actions(case), config_of_actions());
        stage.stub.settle::<Sidecars>(&config);
        for after in ACTIONS_LATER {
            stage.stub.advance(after);
            stage.stub.settle::<Sidecars>(&config);
        }
        vec![("processor", recorded_actions(case), restarted(&stage))]
    });
}

#[tokio::test]
async fn istio_sidecars_are_restarted_by_the_component_as_natively() {
    let group = Group {
        name: "actions",
        guest: "guests/sidecar-restart",
        config: config_of_actions(),
        later: &ACTIONS_LATER,
    };
    let all = group.run::<Sidecars>(of_actions).await;
    let steps = || all.iter().flat_map(|(_, steps)| steps);
    let is_workload = |object: &Value| object["kind"] == "Deployment";
    assert!(steps().any(|step| step.objects.iter().any(is_workload)), "a workload is rolled out");
    assert!(steps().any(|step| !step.gone.is_empty()), "a Pod is evicted");
}

//! A cluster for tests, with an Istio and controllers that roll out what was restarted.

use std::collections::BTreeMap;

use istio::{action::RESTARTED_AT, api::FINALIZER as INSTALLATION, last_applied};
use mortise_sdk::{
    Kind, Object, ObjectRef, Request, Selection,
    testing::{Run, Stub, request_for},
};
use serde_json::{Value, json};

use super::stub;
use crate::{
    Sidecars,
    record::ANNOTATION,
    workload::{KINDS, kind},
};

pub(super) const IMAGE: &str = "example.com/istio/proxyv2:1.30.2-distroless";
pub(super) const OLD: &str = "example.com/istio/proxyv2:1.29.0-distroless";

const CREATED: &str = "2025-01-01T00:00:00Z";

pub(super) struct Cluster {
    pub(super) stub: Stub,
}

/// Returns the Istio resource of a cluster in which 1.30.2 is installed.
pub(super) fn istio(spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {
            "name": "default", "namespace": "kyma-system", "creationTimestamp": CREATED,
            "annotations": {last_applied::ANNOTATION: last("1.30.2")},
            "finalizers": [INSTALLATION],
        },
        "spec": spec,
    })
}

fn last(version: &str) -> String {
    format!(r#"{{"config":{{"telemetry":{{"metrics":{{}}}}}},"IstioTag":"{version}-distroless"}}"#)
}

fn istiod(version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "istiod-1", "namespace": "istio-system",
            "labels": {"kyma-project.io/module": "istio"},
        },
        "spec": {"containers": [
            {"name": "discovery", "image": format!("example.com/istio/pilot:{version}-distroless")},
        ]},
        "status": {"phase": "Running"},
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"capacity": {"cpu": "12", "memory": "32Gi"}},
    })
}

pub(super) fn namespace(name: &str, labels: &Value) -> Value {
    let metadata = json!({"name": name, "labels": labels, "annotations": {}});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// Returns the webhooks that give Pods a sidecar in namespaces that ask for it.
pub(super) fn injector() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "istio-sidecar-injector", "labels": {"app": "sidecar-injector"}},
        "webhooks": [{
            "name": "namespace.sidecar-injector.istio.io",
            "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://localhost/inject"},
            "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}},
        }],
    })
}

/// Returns a Pod that runs well, with a sidecar of this image; `none`: without one.
pub(super) fn pod(namespace: &str, name: &str, image: &str) -> Value {
    let (annotations, containers) = match image {
        "none" => (json!({}), json!([{"name": "app", "image": "app:1"}])),
        image => (
            json!({"sidecar.istio.io/status": "{}"}),
            json!([{"name": "app", "image": "app:1"}, {"name": "istio-proxy", "image": image, "resources": {
                "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "10m", "memory": "192Mi"},
            }}]),
        ),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": CREATED,
            "labels": {}, "annotations": annotations,
        },
        "spec": {"containers": containers},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(super) fn outdated(namespace: &str, name: &str) -> Value {
    pod(namespace, name, OLD)
}

fn owned(mut pod: Value, api_version: &str, kind: &str, name: &str) -> Value {
    let uid = format!("u-{name}");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}]);
    pod
}

pub(super) fn job_pod(namespace: &str, name: &str) -> Value {
    owned(outdated(namespace, name), "batch/v1", "Job", "job")
}

pub(super) fn replication_controller_pod(namespace: &str, name: &str, image: &str) -> Value {
    let mut pod = pod(namespace, name, image);
    pod["metadata"]["labels"]["app"] = "rc".into();
    owned(pod, "v1", "ReplicationController", "rc")
}

/// Returns a Pod of [`replica_set`].
pub(super) fn replica_set_pod(namespace: &str, name: &str, image: &str) -> Value {
    owned(pod(namespace, name, image), "apps/v1", "ReplicaSet", "alone")
}

/// Returns a `ReplicaSet` without owner.
pub(super) fn replica_set(namespace: &str) -> Value {
    let mut set = workload("ReplicaSet", namespace, "alone");
    set["metadata"]["uid"] = "u-alone".into();
    set
}

/// Returns a budget that allows so many evictions of [`replication_controller_pod`]s.
pub(super) fn budget(namespace: &str, allowed: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "rc", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "rc"}}},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed,
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        },
    })
}

/// Returns the owner of [`replication_controller_pod`].
pub(super) fn replication_controller(namespace: &str) -> Value {
    let mut controller = workload("ReplicationController", namespace, "rc");
    controller["apiVersion"] = "v1".into();
    controller["metadata"]["uid"] = "u-rc".into();
    controller["spec"]["selector"] = json!({"app": "rc"});
    controller
}

fn workload(of: &str, namespace: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": of,
        "metadata": {"name": name, "namespace": namespace, "annotations": {}},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {}},
                "spec": {"containers": [{"name": "app", "image": "app:1"}]},
            },
        },
    });
    if of == "Deployment" {
        workload["metadata"]["uid"] = format!("u-{namespace}-{name}").into();
    }
    workload
}

/// Returns a Deployment with its `ReplicaSet` and Pods.
pub(super) fn deployment(namespace: &str, name: &str, replicas: usize, image: &str) -> Vec<Value> {
    let mut objects = vec![workload("Deployment", namespace, name)];
    objects.extend(members(namespace, name, replicas, 1, &json!({}), image));
    objects
}

/// Returns the `ReplicaSet` of one revision of a Deployment, and its Pods.
fn members(
    namespace: &str,
    name: &str,
    replicas: usize,
    revision: usize,
    annotations: &Value,
    image: &str,
) -> Vec<Value> {
    let set = format!("{name}-{revision}");
    let mut replica_set = workload("ReplicaSet", namespace, &set);
    replica_set["metadata"]["uid"] = format!("u-{set}").into();
    replica_set = owned(replica_set, "apps/v1", "Deployment", name);
    replica_set["metadata"]["ownerReferences"][0]["uid"] = format!("u-{namespace}-{name}").into();
    replica_set["status"] = json!({"replicas": replicas, "readyReplicas": replicas});
    let mut objects = vec![replica_set];
    for index in 0..replicas {
        let mut pod =
            owned(pod(namespace, &format!("{set}-{index}"), image), "apps/v1", "ReplicaSet", &set);
        for (key, value) in annotations.as_object().unwrap() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        objects.push(pod);
    }
    objects
}

/// Returns a `DaemonSet` with a Pod.
pub(super) fn daemon_set(namespace: &str, name: &str, image: &str) -> Vec<Value> {
    let pod = pod(namespace, &format!("{name}-0"), image);
    vec![workload("DaemonSet", namespace, name), owned(pod, "apps/v1", "DaemonSet", name)]
}

/// Returns reason and status of the processor's condition.
pub(super) fn condition(cluster: &Cluster) -> (&'static str, &'static str) {
    let istio = cluster.istio();
    let conditions = istio["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    let reasons = istio::condition::ALL.iter().map(|reason| reason.name);
    let [reason, status] = ["reason", "status"].map(|field| conditions[0][field].as_str().unwrap());
    let reason = reasons.into_iter().find(|known| *known == reason).unwrap();
    (reason, if status == "True" { "True" } else { "False" })
}

/// Returns the record of the processor.
pub(super) fn record(cluster: &Cluster) -> Option<Value> {
    let istio = cluster.istio();
    let text = istio["metadata"]["annotations"].get(ANNOTATION)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Returns the reference of the Istio resource.
pub(super) fn reference() -> ObjectRef {
    ObjectRef::of::<istio::api::Istio>(Some("kyma-system"), "default")
}

impl Cluster {
    pub(super) fn new(objects: Vec<Value>) -> Self {
        let base = vec![istio(&json!({})), istiod("1.30.2"), node()];
        Self { stub: stub([base, objects].concat()) }
    }

    pub(super) fn run(&self) -> Run {
        self.run_with("{}")
    }

    /// Runs the processor once; its images come from a registry of their own.
    pub(super) fn run_with(&self, config: &str) -> Run {
        let mut config: Value = serde_json::from_str(config).unwrap();
        config["proxyImage"] = "example.com/istio/proxyv2:{version}-distroless".into();
        self.stub.reconcile::<Sidecars>(&reference(), &config.to_string())
    }

    pub(super) fn istio(&self) -> Value {
        self.stub.object(&reference()).unwrap()
    }

    pub(super) fn request(&self) -> Request {
        request_for(&self.istio())
    }

    /// Adds an object or replaces it.
    pub(super) fn add(&self, mut object: Value) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("uid");
        let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
        if let Some(owner) = metadata.get_mut("ownerReferences") {
            let owner = &mut owner[0];
            let of = owner["kind"].as_str().unwrap();
            let of = if of == "ReplicationController" { Kind::new("", "v1", of) } else { kind(of) };
            let of = ObjectRef::new(of, Some(&namespace), owner["name"].as_str().unwrap());
            // Without its owner it would be collected as garbage.
            let found = self.stub.object(&of).unwrap_or_else(|| panic!("no owner {of:?}"));
            owner["uid"] = found["metadata"]["uid"].clone();
        }
        self.stub.apply(&object);
    }

    /// Adds a Pod that is not ready.
    pub(super) fn add_unready(&self, mut pod: Value) {
        pod["metadata"]["creationTimestamp"] = self.stub.host().now_text().into();
        pod["status"]["conditions"][0]["status"] = "False".into();
        self.add(pod);
    }

    pub(super) fn spec(&self, spec: &Value) {
        self.change(&json!({"spec": spec}));
    }

    fn change(&self, change: &Value) {
        let mut patch = json!({
            "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": istio::api::Istio::KIND,
            "metadata": {"name": "default", "namespace": "kyma-system"},
        });
        for (key, value) in change.as_object().unwrap() {
            match (key.as_str(), value.as_object()) {
                ("metadata", Some(fields)) => {
                    for (key, value) in fields {
                        patch["metadata"][key] = value.clone();
                    }
                }
                _ => patch[key] = value.clone(),
            }
        }
        self.stub.patch(&patch);
    }

    /// Installs another version of Istio.
    pub(super) fn install(&self, version: &str) {
        self.change(
            &json!({"metadata": {"annotations": {last_applied::ANNOTATION: last(version)}}}),
        );
        self.pods_of_istio(version);
    }

    pub(super) fn pods_of_istio(&self, version: &str) {
        self.stub.delete("Pod/istio-system/istiod-1");
        self.add(istiod(version));
    }

    /// Takes the finalizer of the installation away, if it is there.
    pub(super) fn uninstalled(&self) {
        let istio = self.istio();
        let held = istio["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let left: Vec<Value> = held.into_iter().filter(|held| held != INSTALLATION).collect();
        self.change(&json!({"metadata": {"finalizers": left}}));
    }

    /// Returns the annotation of a workload's template.
    pub(super) fn restarted(&self, of: &str, namespace: &str, name: &str) -> Option<String> {
        let workload = self.stub.object(&ObjectRef::new(kind(of), Some(namespace), name))?;
        let path =
            format!("/spec/template/metadata/annotations/{}", RESTARTED_AT.replace('/', "~1"));
        Some(workload.pointer(&path)?.as_str()?.to_owned())
    }

    /// Returns all workloads that were restarted, with the time.
    pub(super) fn all_restarted(&self) -> BTreeMap<String, String> {
        let mut restarted = BTreeMap::new();
        for workload in self.workloads() {
            let (of, namespace, name) = named(&workload);
            let annotations = &workload["spec"]["template"]["metadata"]["annotations"];
            if let Some(at) = annotations[RESTARTED_AT].as_str() {
                restarted.insert(format!("{of}/{namespace}/{name}"), at.to_owned());
            }
        }
        restarted
    }

    fn list(&self, kind: Kind) -> Vec<Value> {
        self.stub.host().list(&Selection::new(kind)).unwrap()
    }

    fn workloads(&self) -> Vec<Value> {
        KINDS.iter().flat_map(|of| self.list(kind(of))).collect()
    }

    /// Brings all roll-outs to their end, with sidecars of this image.
    pub(super) fn roll(&self, image: &str) {
        let pods = self.list(Kind::new("", "v1", "Pod"));
        for workload in self.workloads() {
            let (of, namespace, name) = named(&workload);
            let Some(at) = self.restarted(&of, &namespace, &name) else { continue };
            let mine = pods.iter().filter(|pod| {
                let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or("");
                let (_, of_pod, _) = named(pod);
                let is_owner = owner == name
                    || owner.rsplit_once('-').is_some_and(|(deployment, _)| deployment == name);
                of_pod == namespace && is_owner
            });
            let old: Vec<&Value> =
                mine.filter(|pod| pod["metadata"]["annotations"][RESTARTED_AT] != at).collect();
            if old.is_empty() {
                continue;
            }
            for pod in &old {
                let (_, namespace, name) = named(pod);
                self.stub.delete(&format!("Pod/{namespace}/{name}"));
            }
            let annotations = json!({RESTARTED_AT: at});
            let now = self.stub.host().now_text();
            let new = if of == "Deployment" {
                let owner = old[0]["metadata"]["ownerReferences"][0]["name"].as_str().unwrap();
                let revision: usize = owner.rsplit_once('-').unwrap().1.parse().unwrap();
                self.stub.delete(&format!("ReplicaSet/{namespace}/{owner}"));
                members(&namespace, &name, old.len(), revision + 1, &annotations, image)
            } else {
                let mut pod = daemon_set(&namespace, &name, image).pop().unwrap();
                pod["metadata"]["annotations"][RESTARTED_AT] = at.into();
                vec![pod]
            };
            for mut object in new {
                object["metadata"]["creationTimestamp"] = now.clone().into();
                self.add(object);
            }
        }
    }

    /// Brings all roll-outs to their end as [`Cluster::roll`] does, for many Pods: each keeps its
    /// name and becomes a Pod of the new template.
    pub(super) fn refresh(&self, image: &str) {
        let restarted = self.all_restarted();
        for pod in self.list(Kind::new("", "v1", "Pod")) {
            let (_, namespace, name) = named(&pod);
            let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or("");
            let Some((deployment, _)) = owner.rsplit_once('-') else { continue };
            let Some(at) = restarted.get(&format!("Deployment/{namespace}/{deployment}")) else {
                continue;
            };
            if pod["metadata"]["annotations"][RESTARTED_AT] == *at {
                continue;
            }
            let containers = self::pod(&namespace, &name, image)["spec"]["containers"].clone();
            self.stub.patch(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": namespace, "annotations": {RESTARTED_AT: at},
                },
                "spec": {"containers": containers},
            }));
        }
    }

    /// Adds the new Pod of a roll-out, which does not become ready, beside the old one.
    pub(super) fn surge(&self, namespace: &str, name: &str) {
        let at = self.restarted("Deployment", namespace, name).unwrap();
        for mut object in members(namespace, name, 1, 2, &json!({RESTARTED_AT: at}), IMAGE) {
            match object["kind"].as_str() {
                Some("Pod") => object["status"]["conditions"][0]["status"] = "False".into(),
                _ => object["status"]["readyReplicas"] = 0.into(),
            }
            object["metadata"]["creationTimestamp"] = self.stub.host().now_text().into();
            self.add(object);
        }
    }
}

fn named(object: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

//! The Pods of workloads: one for each replica, as created by their controllers. A Deployment has a
//! `ReplicaSet` for each of its templates.

use anyhow::{Context as _, anyhow};
use mortise_core::{
    api::{Method, Outgoing, Refusal},
    applied_fields,
    contract::Kind,
    resource::encoded,
};
use mortise_host::cluster::Cluster;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The label with the digest of the template, on the Pods of a Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// The same on the Pods of a `StatefulSet` and a `DaemonSet`.
const REVISION_HASH: &str = "controller-revision-hash";

/// The controllers of workloads.
pub(super) struct Pods<'a> {
    cluster: &'a Cluster,
    /// Held while the objects of a workload are counted and created: one workload at a time.
    turn: Mutex<()>,
}

/// The Pods that a workload should have.
struct Wanted {
    count: u64,
    /// True if Pods are numbered; otherwise their names are random.
    is_numbered: bool,
    /// The label of the Pods of the current template, if the workload's own labels do not tell.
    revision: Option<String>,
    template: Value,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, turn: Mutex::default() }
    }

    /// Creates the missing Pods of a workload, and deletes those of a former template and those in
    /// excess. A workload that is being deleted is skipped: its Pods are deleted with it.
    ///
    /// # Errors
    ///
    /// Fails if the API refuses a request.
    pub(super) async fn settle(&self, workload: &Value) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        self.settle_in_turn(workload).await
    }

    /// Settles the Pods of a Pod's controller, if the Pod has one that exists.
    ///
    /// # Errors
    ///
    /// Fails if the API refuses a request.
    pub(super) async fn settle_owner_of(&self, pod: &Value) -> anyhow::Result<()> {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let mut owners = owners.into_iter().flatten();
        let Some(owner) = owners.find(|owner| owner["controller"] == true) else { return Ok(()) };
        let kind = text(owner, "/kind");
        if text(owner, "/apiVersion") != "apps/v1" {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let path = self.path(kind, text(pod, "/metadata/namespace"), Some(text(owner, "/name")));
        match self.cluster.send(&Outgoing::get(path.await?)).await {
            Ok(answer) if answer.body.pointer("/metadata/uid") == owner.get("uid") => {
                self.settle_in_turn(&answer.body).await
            }
            Ok(_) => Ok(()),
            Err(refusal) => is_gone(&refusal),
        }
    }

    async fn settle_in_turn(&self, workload: &Value) -> anyhow::Result<()> {
        if workload.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(());
        }
        if workload["kind"] == "Deployment" {
            let sets = self.replica_sets(workload).await?;
            for set in &sets {
                self.settle_pods(set).await?;
            }
            return Ok(());
        }
        self.settle_pods(workload).await
    }

    /// Creates the `ReplicaSet` of a Deployment's template, and scales those of former templates to
    /// zero. Returns all of them.
    async fn replica_sets(&self, deployment: &Value) -> anyhow::Result<Vec<Value>> {
        let template = at(deployment, "/spec/template");
        let hash = hash(template);
        let replicas = super::replicas(deployment);
        let mut sets = self.owned("ReplicaSet", deployment).await?;
        let label = format!("/metadata/labels/{TEMPLATE_HASH}");
        let is_of = |set: &Value| text(set, &label) == hash;
        for set in &mut sets {
            let wanted = if is_of(set) { replicas } else { 0 };
            if super::replicas(set) != wanted {
                let patch = json!({"spec": {"replicas": wanted}});
                if let Some(changed) = self.change("ReplicaSet", set, patch).await? {
                    *set = changed;
                }
            }
        }
        if !sets.iter().any(is_of) {
            let name = format!("{}-{hash}", text(deployment, "/metadata/name"));
            let labelled = |mut of: Value, labels: &str| {
                let labels = of.pointer_mut(labels);
                if let Some(Value::Object(labels)) = labels {
                    labels.insert(TEMPLATE_HASH.to_owned(), hash.clone().into());
                }
                of
            };
            let selector = labelled(at(deployment, "/spec/selector").clone(), "/matchLabels");
            let template = labelled(template.clone(), "/metadata/labels");
            let set = json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {
                    "name": name, "namespace": at(deployment, "/metadata/namespace"),
                    "labels": at(&template, "/metadata/labels"), "ownerReferences": [owner(deployment)],
                },
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            });
            sets.extend(self.make("ReplicaSet", &set).await?);
        }
        Ok(sets)
    }

    async fn settle_pods(&self, workload: &Value) -> anyhow::Result<()> {
        let Some(wanted) = Wanted::of(workload) else { return Ok(()) };
        let (pods, others): (Vec<Value>, Vec<Value>) = self
            .owned("Pod", workload)
            .await?
            .into_iter()
            .filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none())
            .partition(|pod| wanted.is_present(pod));
        let start = format!("{}-", text(workload, "/metadata/name"));
        let names: Vec<String> = if wanted.is_numbered {
            (0..wanted.count).map(|number| format!("{start}{number}")).collect()
        } else {
            Vec::new()
        };
        let is_kept = |number: u64, pod: &Value| {
            if wanted.is_numbered {
                names.iter().any(|name| *name == text(pod, "/metadata/name"))
            } else {
                number < wanted.count
            }
        };
        let (mut kept, mut over) = (Vec::new(), others);
        for (number, pod) in (0..).zip(pods) {
            if is_kept(number, &pod) { kept.push(pod) } else { over.push(pod) }
        }
        for pod in &over {
            let path = self.path_of("Pod", pod).await?;
            let options = json!({"gracePeriodSeconds": 0});
            let deleted =
                self.cluster.send(&Outgoing::new(Method::Delete, path, Some(options))).await;
            deleted.map(|_| ()).or_else(|refusal| is_gone(&refusal))?;
        }
        if wanted.is_numbered {
            let is_there =
                |name: &&String| kept.iter().any(|pod| **name == text(pod, "/metadata/name"));
            for name in names.iter().filter(|name| !is_there(name)) {
                self.make("Pod", &wanted.pod(workload, &json!({"name": name}))).await?;
            }
        } else {
            let start = json!({"generateName": start});
            for _ in (0..wanted.count).skip(kept.len()) {
                self.make("Pod", &wanted.pod(workload, &start)).await?;
            }
        }
        Ok(())
    }

    /// Returns the objects of a kind that a workload controls.
    async fn owned(&self, kind: &str, by: &Value) -> anyhow::Result<Vec<Value>> {
        let path = self.path(kind, text(by, "/metadata/namespace"), None).await?;
        let list = self.cluster.send(&Outgoing::get(path)).await;
        let mut list = list.map_err(|refusal| anyhow!("{refusal}"))?.body;
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
        let uid = text(by, "/metadata/uid");
        let is_owned = |object: &Value| {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            owners.into_iter().flatten().any(|owner| text(owner, "/uid") == uid)
        };
        let of_kind = |mut object: Value| {
            // Items of a list lack `kind`.
            if let Some(object) = object.as_object_mut() {
                let version = if kind == "Pod" { "v1" } else { "apps/v1" };
                object.insert("kind".to_owned(), kind.into());
                object.insert("apiVersion".to_owned(), version.into());
            }
            object
        };
        Ok(items.unwrap_or_default().into_iter().filter(is_owned).map(of_kind).collect())
    }

    /// Creates an object; `None` if its name is taken, or its namespace is being deleted.
    async fn make(&self, kind: &str, object: &Value) -> anyhow::Result<Option<Value>> {
        let path = self.path(kind, text(object, "/metadata/namespace"), None).await?;
        let made =
            self.cluster.send(&Outgoing::new(Method::Post, path, Some(object.clone()))).await;
        match made {
            Ok(answer) => Ok(Some(answer.body)),
            Err(refusal) if refusal.code == 409 || refusal.has_cause("NamespaceTerminating") => {
                Ok(None)
            }
            Err(refusal) => Err(anyhow!("{kind} is not made: {refusal}")),
        }
    }

    async fn change(&self, kind: &str, of: &Value, change: Value) -> anyhow::Result<Option<Value>> {
        let path = self.path_of(kind, of).await?;
        match self.cluster.send(&Outgoing::new(Method::MergePatch, path, Some(change))).await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(refusal) => is_gone(&refusal).map(|()| None),
        }
    }

    async fn path_of(&self, kind: &str, of: &Value) -> anyhow::Result<String> {
        self.path(kind, text(of, "/metadata/namespace"), Some(text(of, "/metadata/name"))).await
    }

    async fn path(
        &self,
        kind: &str,
        namespace: &str,
        name: Option<&str>,
    ) -> anyhow::Result<String> {
        let group = if kind == "Pod" { "" } else { "apps" };
        let of = Kind::home(group, "v1", kind);
        let resource = self.cluster.resolve(&of).await?;
        let resource = resource.with_context(|| format!("the API does not serve {kind}"))?;
        let path = resource.path(Some(namespace));
        Ok(name.map_or(path.clone(), |name| format!("{path}/{}", encoded(name))))
    }
}

// === impl Wanted ===

impl Wanted {
    /// Returns the Pods of a workload; `None` for a kind without Pods of its own.
    fn of(workload: &Value) -> Option<Self> {
        let template = workload.pointer("/spec/template")?.clone();
        let (count, is_numbered) = match text(workload, "/kind") {
            "ReplicaSet" => (super::replicas(workload), false),
            "StatefulSet" => (super::replicas(workload), true),
            "DaemonSet" => (1, false),
            _ => return None,
        };
        let revision = (text(workload, "/kind") != "ReplicaSet").then(|| hash(&template));
        Some(Self { count, is_numbered, revision, template })
    }

    /// Returns whether a Pod is of the current template.
    fn is_present(&self, pod: &Value) -> bool {
        let label = || text(pod, &format!("/metadata/labels/{REVISION_HASH}"));
        self.revision.as_ref().is_none_or(|revision| *revision == label())
    }

    fn pod(&self, workload: &Value, name: &Value) -> Value {
        let mut metadata = self.template.get("metadata").cloned().unwrap_or_else(|| json!({}));
        if let (Some(metadata), Some(name)) = (metadata.as_object_mut(), name.as_object()) {
            metadata.extend(name.clone());
            metadata.insert("namespace".to_owned(), at(workload, "/metadata/namespace").clone());
            metadata.insert("ownerReferences".to_owned(), json!([owner(workload)]));
            if let Some(revision) = &self.revision {
                let labels = metadata.entry("labels").or_insert_with(|| json!({}));
                if let Some(labels) = labels.as_object_mut() {
                    labels.insert(REVISION_HASH.to_owned(), revision.clone().into());
                }
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": self.template.get("spec").cloned().unwrap_or_default(),
        })
    }
}

fn owner(of: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": at(of, "/kind"), "name": at(of, "/metadata/name"),
        "uid": at(of, "/metadata/uid"), "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns a digest of a template, as part of a name.
fn hash(template: &Value) -> String {
    let digest = format!("{:032x}", applied_fields::digest(template));
    digest.chars().take(10).collect()
}

/// Succeeds if an object was refused because it is deleted.
fn is_gone(refusal: &Refusal) -> anyhow::Result<()> {
    if refusal.code == 404 { Ok(()) } else { Err(anyhow!("{refusal}")) }
}

/// Returns a value by its JSON pointer, or null.
fn at<'a>(of: &'a Value, pointer: &str) -> &'a Value {
    of.pointer(pointer).unwrap_or(&Value::Null)
}

fn text<'a>(of: &'a Value, pointer: &str) -> &'a str {
    of.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

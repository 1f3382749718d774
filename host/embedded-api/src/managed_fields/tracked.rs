//! What is tracked of an object, and by which schemas.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::entries::{Entries, Entry};
use super::{Target, Writer};
use crate::fields::Set;
use crate::schema::Schema;
use crate::typed::{self, Comparison};

/// Fields that are nobody's: the object's identity and what the server gives it.
static UNTRACKED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

static NONE: LazyLock<Set> = LazyLock::new(Set::default);
static STATUS: LazyLock<Set> = LazyLock::new(|| Set::of_names(&[&["status"]]));
static SPEC: LazyLock<Set> = LazyLock::new(|| Set::of_names(&[&["spec"]]));
static DEPLOYMENT: LazyLock<Set> =
    LazyLock::new(|| Set::of_names(&[&["spec"], &["metadata", "labels"]]));
static POD: LazyLock<Set> = LazyLock::new(|| {
    Set::of_names(&[
        &["spec"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "ownerReferences"],
    ])
});
static DEFINITION: LazyLock<Set> = LazyLock::new(|| Set::of_names(&[&["spec"], &["metadata"]]));

/// Fields that no manager owns.
pub(super) fn untracked() -> &'static Set {
    &UNTRACKED
}

/// One write: of what and by whom.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) target: &'a Target<'a>,
    pub(super) writer: &'a Writer<'a>,
}

impl Scope<'_> {
    /// Fields which a write of this kind cannot change: the status by the object itself, all else by the status.
    pub(super) fn ignored(&self) -> &'static Set {
        match (self.writer.subresource, self.target.kind) {
            ("", _) if self.target.has_status => &STATUS,
            ("status", "Deployment") => &DEPLOYMENT,
            ("status", "Pod") => &POD,
            ("status", "CustomResourceDefinition") => &DEFINITION,
            ("status", _) => &SPEC,
            _ => &NONE,
        }
    }

    /// An object of this kind before anything is in it. Parts of built-in kinds that are never absent are there already.
    pub(super) fn empty_object(&self) -> Value {
        let mut object = empty_parts(self.target.kind, self.writer.api_version);
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion".to_owned(), self.writer.api_version.into());
            object.insert("kind".to_owned(), self.target.kind.into());
        }
        object
    }

    /// The schema of a version; `None` if the kind has no such version.
    pub(super) fn schema(&self, api_version: &str) -> Option<Schema> {
        if api_version == self.writer.api_version {
            Some(self.target.schema.clone())
        } else {
            (self.target.other_version)(api_version)
        }
    }

    /// Drops managers of versions that are no more and brings the others to their schemas.
    pub(super) fn reconcile(&self, entries: &mut Entries) {
        entries.retain(|entry| self.schema(&entry.api_version).is_some());
        for entry in entries.iter_mut() {
            let Some(schema) = self.schema(&entry.api_version) else { continue };
            if let Some(set) = typed::reconcile(&entry.set, schema.root()) {
                entry.set = set;
            }
        }
    }

    /// How `old` and `new` differ in the version of each manager, without what this write cannot change.
    pub(super) fn differences(
        &self,
        entries: &Entries,
        own: &Comparison,
        old: &Value,
        new: &Value,
    ) -> Differences {
        let writer = self.writer.api_version;
        let mut differences = vec![Difference::new(writer, own, self.ignored())];
        for entry in entries.iter() {
            if differences.iter().any(|known| known.version == entry.api_version) {
                continue;
            }
            let Some(schema) = self.schema(&entry.api_version) else { continue };
            let comparison = typed::compare(old, new, schema.root());
            // A quirk of Kubernetes: of a custom resource, only the version of the request knows what is ignored.
            let ignored = if self.target.is_custom { &NONE } else { self.ignored() };
            differences.push(Difference::new(&entry.api_version, &comparison, ignored));
        }
        Differences(differences)
    }
}

/// How two objects differ, by version.
pub(super) struct Differences(Vec<Difference>);

/// How two objects differ in one version.
struct Difference {
    version: String,
    /// What is new or has another value.
    written: Set,
    removed: Set,
}

impl Difference {
    fn new(version: &str, comparison: &Comparison, ignored: &Set) -> Self {
        let Comparison { removed, .. } = comparison;
        Self {
            version: version.to_owned(),
            written: comparison.written().recursive_difference(ignored),
            removed: removed.recursive_difference(ignored),
        }
    }
}

impl Differences {
    fn of(&self, entry: &Entry) -> Option<&Difference> {
        self.0.iter().find(|difference| difference.version == entry.api_version)
    }

    /// The fields of a manager that hold another value now.
    pub(super) fn disputed(&self, entry: &Entry) -> Set {
        let difference = self.of(entry);
        difference.map(|difference| entry.set.intersection(&difference.written)).unwrap_or_default()
    }

    /// Takes from the managers for which `whose` holds what changed or went.
    pub(super) fn disown(&self, entries: &mut Entries, whose: impl Fn(&Entry) -> bool) {
        for entry in entries.iter_mut().filter(|entry| whose(entry)) {
            let Some(Difference { written, removed, .. }) = self.of(entry) else { continue };
            for gone in [written, removed] {
                if !gone.is_empty() {
                    entry.set = entry.set.difference(gone);
                }
            }
        }
        entries.retain(|entry| !entry.set.is_empty());
    }
}

/// The parts of built-in kinds that Kubernetes never leaves out, as they are in an object of which nothing was set.
fn empty_parts(kind: &str, api_version: &str) -> Value {
    match (api_version, kind) {
        ("apps/v1" | "batch/v1", _) | ("v1", "ReplicationController") => empty_workload(kind),
        ("authorization.k8s.io/v1", _) => {
            json!({"metadata": {}, "spec": {}, "status": {"allowed": false}})
        }
        ("v1", "Pod") => json!({"metadata": {}, "status": {}, "spec": {"containers": null}}),
        ("v1", "Service") => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        ("networking.k8s.io/v1", "Ingress") => {
            json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}})
        }
        ("networking.k8s.io/v1", "NetworkPolicy") => {
            json!({"metadata": {}, "spec": {"podSelector": {}}})
        }
        ("v1", "PersistentVolumeClaim") => {
            json!({"metadata": {}, "spec": {"resources": {}}, "status": {}})
        }
        ("v1", "Event") => json!({
            "metadata": {}, "involvedObject": {}, "source": {}, "firstTimestamp": null,
            "lastTimestamp": null, "eventTime": null, "reportingComponent": "",
            "reportingInstance": "",
        }),
        ("events.k8s.io/v1", "Event") => json!({
            "metadata": {}, "eventTime": null, "regarding": {}, "deprecatedSource": {},
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        }),
        ("autoscaling/v1" | "autoscaling/v2", "HorizontalPodAutoscaler") => {
            json!({"metadata": {}, "spec": {"scaleTargetRef": {}}, "status": {}})
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => json!({
            "metadata": {}, "spec": {"names": {}, "versions": null},
            "status": {"acceptedNames": {}, "conditions": null, "storedVersions": null},
        }),
        ("v1", "Namespace" | "Node" | "PersistentVolume" | "ResourceQuota")
        | ("policy/v1", "PodDisruptionBudget") => {
            json!({"metadata": {}, "spec": {}, "status": {}})
        }
        ("v1", "LimitRange")
        | ("coordination.k8s.io/v1", "Lease")
        | ("networking.k8s.io/v1", "IngressClass") => {
            json!({"metadata": {}, "spec": {}})
        }
        ("scheduling.k8s.io/v1", "PriorityClass") => json!({"metadata": {}, "value": 0}),
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => {
            json!({"metadata": {}, "rules": null})
        }
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            json!({"metadata": {}, "roleRef": {}})
        }
        ("discovery.k8s.io/v1", "EndpointSlice") => {
            json!({"metadata": {}, "endpoints": null, "ports": null})
        }
        _ => json!({}),
    }
}

/// The same for the kinds that make pods.
fn empty_workload(kind: &str) -> Value {
    let pod_template = || json!({"metadata": {}, "spec": {"containers": null}});
    match kind {
        "Deployment" => json!({
            "metadata": {}, "status": {},
            "spec": {"selector": null, "strategy": {}, "template": pod_template()},
        }),
        "DaemonSet" => json!({
            "metadata": {}, "status": {},
            "spec": {"selector": null, "updateStrategy": {}, "template": pod_template()},
        }),
        "StatefulSet" => json!({
            "metadata": {}, "status": {"replicas": 0, "availableReplicas": 0},
            "spec": {
                "selector": null, "serviceName": "", "updateStrategy": {},
                "template": pod_template(),
            },
        }),
        "ReplicaSet" => json!({
            "metadata": {}, "status": {},
            "spec": {"selector": null, "template": pod_template()},
        }),
        "ReplicationController" => json!({"metadata": {}, "spec": {}, "status": {"replicas": 0}}),
        "Job" => {
            json!({"metadata": {}, "status": {}, "spec": {"template": pod_template()}})
        }
        "CronJob" => json!({
            "metadata": {}, "status": {},
            "spec": {"jobTemplate": {"metadata": {}, "spec": {"template": pod_template()}}},
        }),
        _ => json!({}),
    }
}

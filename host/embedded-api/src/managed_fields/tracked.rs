//! The tracked fields of an object, and the schemas by which they are tracked.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{
    Target, Writer,
    entries::{Entries, Entry},
};
use crate::{
    fields::Set,
    schema::Schema,
    typed::{self, Comparison},
};

/// The fields that no manager owns: the object's identity, and fields that the server sets.
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

/// Returns the fields that no manager owns.
pub(super) fn untracked() -> &'static Set {
    &UNTRACKED
}

/// A write: its target and its writer.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) target: &'a Target<'a>,
    pub(super) writer: &'a Writer<'a>,
}

impl Scope<'_> {
    /// Returns the fields that a write of this kind cannot change: the status in a write of the
    /// object itself, everything else in a write of the status.
    pub(super) fn ignored(&self) -> &'static Set {
        match (self.writer.subresource, self.target.kind) {
            ("", _) if self.target.has_status => &STATUS,
            ("status", "Deployment") => &DEPLOYMENT,
            ("status", "Pod") => &POD,
            ("status", "CustomResourceDefinition") => &DEFINITION,
            ("status", _) => &SPEC,
            ("finalize", _) => &STATUS,
            _ => &NONE,
        }
    }

    /// Returns an object of this kind with no field set. Parts of built-in kinds that are never
    /// absent are present.
    pub(super) fn empty_object(&self) -> Value {
        let mut object = empty_parts(self.target.kind, self.writer.api_version);
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion".to_owned(), self.writer.api_version.into());
            object.insert("kind".to_owned(), self.target.kind.into());
        }
        object
    }

    /// Returns the schema of a version; `None` if the kind has no such version, or if webhooks
    /// convert its objects.
    pub(super) fn schema(&self, api_version: &str) -> Option<Schema> {
        if api_version == self.writer.api_version {
            Some(self.target.schema.clone())
        } else if self.target.is_converted {
            None
        } else {
            (self.target.other_version)(api_version)
        }
    }

    /// Drops managers of versions that do not exist any more, and adapts the others to their
    /// schemas.
    pub(super) fn reconcile(&self, entries: &mut Entries) {
        let exists = |version: &str| {
            version == self.writer.api_version || (self.target.other_version)(version).is_some()
        };
        entries.retain(|entry| exists(&entry.api_version));
        for entry in entries.iter_mut() {
            let Some(schema) = self.schema(&entry.api_version) else { continue };
            if let Some(set) = typed::reconcile(&entry.set, schema.root()) {
                entry.set = set;
            }
        }
    }

    /// Returns how `old` and `new` differ in the version of each manager, without the fields that
    /// this write cannot change.
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
            // A quirk of Kubernetes: for a custom resource, fields are ignored only in the version
            // of the request.
            let ignored = if self.target.is_custom { &NONE } else { self.ignored() };
            differences.push(Difference::new(&entry.api_version, &comparison, ignored));
        }
        Differences(differences)
    }
}

/// The differences between two objects, by version.
pub(super) struct Differences(Vec<Difference>);

/// The differences between two objects in one version.
struct Difference {
    version: String,
    /// The fields that are new or have another value.
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

    /// Returns the fields of a manager that have another value now.
    pub(super) fn disputed(&self, entry: &Entry) -> Set {
        let difference = self.of(entry);
        difference.map(|difference| entry.set.intersection(&difference.written)).unwrap_or_default()
    }

    /// Removes changed and removed fields from the managers for which `whose` returns true.
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

/// Returns the parts of built-in kinds that Kubernetes never omits, as in an object with no field
/// set.
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

/// Returns these parts for workloads.
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

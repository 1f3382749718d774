//! The restart of Pods, through the workloads that own them.

use std::{collections::BTreeMap, fmt::Write as _};

use mortise_sdk::object::Metadata;
use serde_json::{Value, json};

use crate::kubernetes::{Pod, ReplicaSet};

/// The annotation of a Pod template that a restart changes.
pub const RESTARTED_AT: &str = "istio-operator.kyma-project.io/restartedAt";

/// The most workloads that a message names.
const MAX_LISTED_WORKLOADS: usize = 5;
const NO_OWNER: &str = "pod sidecar could not be updated because OwnerReferences was not found.";
const OF_A_JOB: &str = "pod sidecar could not be updated because it is owned by a Job.";

/// An object by its kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

/// A Pod that has to be restarted by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub pod: Object,
    /// The reason.
    pub message: &'static str,
}

/// The action that restarts a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nobody would start the Pod again.
    Warn(Warning),
    /// The Pod is removed; its owner starts another one. The original deletes it, regardless of
    /// budgets; evicting it leaves it its budget.
    Remove(Object),
    /// The workload is rolled out.
    RollOut(Object),
    /// A roll-out of the workload has not come to its end.
    Wait(Object),
    /// The owner is of a kind that cannot be rolled out.
    Unsupported(Object),
}

/// The `ReplicaSet`s between Pods and their workloads.
#[derive(Debug, Clone, Default)]
pub struct ReplicaSets<'a> {
    by_name: BTreeMap<(&'a str, &'a str), &'a ReplicaSet>,
    by_owner: BTreeMap<(&'a str, &'a str), Vec<&'a ReplicaSet>>,
}

// === impl Object ===

impl Object {
    fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the message with which an API server says that the object does not exist.
    pub fn not_found(&self) -> String {
        format!("{}s.apps {:?} not found", self.kind.to_lowercase(), self.name)
    }
}

// === impl ReplicaSets ===

impl<'a> ReplicaSets<'a> {
    /// Sorts all `ReplicaSet`s of the Pods' namespaces.
    pub fn new(replica_sets: impl IntoIterator<Item = &'a ReplicaSet>) -> Self {
        let mut sorted = Self::default();
        for set in replica_sets {
            let namespace = namespace(&set.metadata);
            sorted.by_name.insert((namespace, set.metadata.name.as_str()), set);
            if let Some(owner) = set.metadata.owner_references.first() {
                sorted.by_owner.entry((namespace, &owner.uid)).or_default().push(set);
            }
        }
        sorted
    }

    /// Returns whether a `ReplicaSet` of the same owner, other than this one, is not ready.
    fn another_is_not_ready(&self, namespace: &str, name: &str, owner: &str) -> bool {
        self.by_owner.get(&(namespace, owner)).into_iter().flatten().any(|set| {
            let status = &set.status;
            set.metadata.name != name
                && status.replicas != 0
                && status.ready_replicas != status.replicas
        })
    }
}

fn namespace(metadata: &Metadata) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

// === impl Action ===

impl Action {
    /// Returns the action that restarts a Pod. Its first owner decides.
    pub fn of(pod: &Pod, replica_sets: &ReplicaSets) -> Self {
        let namespace = pod.namespace();
        let this = || Object::new("Pod", namespace, &pod.metadata.name);
        let warn = |message| Self::Warn(Warning { pod: this(), message });
        let Some(owner) = pod.metadata.owner_references.first() else { return warn(NO_OWNER) };
        match owner.kind.as_str() {
            "Job" => warn(OF_A_JOB),
            "ReplicationController" => Self::Remove(this()),
            "ReplicaSet" => {
                let Some(set) = replica_sets.by_name.get(&(namespace, owner.name.as_str())) else {
                    return warn(NO_OWNER);
                };
                let Some(workload) = set.metadata.owner_references.first() else {
                    return Self::Remove(this());
                };
                let object = Object::new(&workload.kind, namespace, &workload.name);
                if replica_sets.another_is_not_ready(namespace, &owner.name, &workload.uid) {
                    return Self::Wait(object);
                }
                Self::roll_out(object)
            }
            kind => Self::roll_out(Object::new(kind, namespace, &owner.name)),
        }
    }

    fn roll_out(workload: Object) -> Self {
        match workload.kind.as_str() {
            "Deployment" | "DaemonSet" | "StatefulSet" => Self::RollOut(workload),
            _ => Self::Unsupported(workload),
        }
    }

    /// Returns the actions that restart Pods, each once.
    pub fn of_all<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        replica_sets: &ReplicaSets,
    ) -> Vec<Self> {
        let mut actions: Vec<Self> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for pod in pods {
            let action = Self::of(pod, replica_sets);
            if known.insert(action.object().clone()) {
                actions.push(action);
            }
        }
        actions
    }

    /// Returns the object that the action concerns.
    pub fn object(&self) -> &Object {
        match self {
            Self::Warn(warning) => &warning.pod,
            Self::Remove(object)
            | Self::RollOut(object)
            | Self::Wait(object)
            | Self::Unsupported(object) => object,
        }
    }
}

/// Returns the change of a workload that rolls it out.
pub fn roll_out_patch(now: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}})
}

/// Returns the message that names the workloads that could not be restarted; "" if there are none.
pub fn message(warnings: &[Warning]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let names: Vec<String> = warnings
        .iter()
        .take(MAX_LISTED_WORKLOADS)
        .map(|warning| format!("{}/{}", warning.pod.namespace, warning.pod.name))
        .collect();
    let mut message = format!(
        "The sidecars of the following workloads could not be restarted: {}",
        names.join(", ")
    );
    let more = warnings.len().saturating_sub(MAX_LISTED_WORKLOADS);
    if more > 0 {
        let _ = write!(message, " and {more} additional workload(s)");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": name, "namespace": "shop"}});
        pod["metadata"]["ownerReferences"] = owner;
        serde_json::from_value(pod).unwrap()
    }

    fn owner(kind: &str, name: &str) -> Value {
        json!([{"kind": kind, "name": name, "uid": format!("u-{name}")}])
    }

    fn replica_set(name: &str, owner: Value, status: Value) -> ReplicaSet {
        let mut set = json!({"metadata": {"name": name, "namespace": "shop"}});
        set["metadata"]["ownerReferences"] = owner;
        set["status"] = status;
        serde_json::from_value(set).unwrap()
    }

    fn object(kind: &str, name: &str) -> Object {
        Object::new(kind, "shop", name)
    }

    #[test]
    fn the_first_owner_decides() {
        let sets = [
            replica_set("alone", json!([]), json!({})),
            replica_set(
                "web-1",
                owner("Deployment", "web"),
                json!({"replicas": 1, "readyReplicas": 0}),
            ),
            replica_set("argo-1", owner("Rollout", "argo"), json!({})),
            replica_set(
                "old",
                owner("Deployment", "api"),
                json!({"replicas": 2, "readyReplicas": 1}),
            ),
            replica_set(
                "new",
                owner("Deployment", "api"),
                json!({"replicas": 1, "readyReplicas": 1}),
            ),
        ];
        let sets = ReplicaSets::new(&sets);
        let warn = |message| Action::Warn(Warning { pod: object("Pod", "p"), message });
        let two = json!([owner("DaemonSet", "log")[0], owner("Job", "job")[0]]);
        let cases = [
            ("no owner", json!([]), warn(NO_OWNER)),
            ("Job", owner("Job", "job"), warn(OF_A_JOB)),
            ("first of two", two, Action::RollOut(object("DaemonSet", "log"))),
            (
                "StatefulSet",
                owner("StatefulSet", "db"),
                Action::RollOut(object("StatefulSet", "db")),
            ),
            ("ReplicaSet, gone", owner("ReplicaSet", "gone"), warn(NO_OWNER)),
            ("ReplicaSet, alone", owner("ReplicaSet", "alone"), Action::Remove(object("Pod", "p"))),
            (
                "own ReplicaSet not ready",
                owner("ReplicaSet", "web-1"),
                Action::RollOut(object("Deployment", "web")),
            ),
            (
                "other ReplicaSet not ready",
                owner("ReplicaSet", "new"),
                Action::Wait(object("Deployment", "api")),
            ),
            (
                "other ReplicaSet ready",
                owner("ReplicaSet", "old"),
                Action::RollOut(object("Deployment", "api")),
            ),
            (
                "ReplicationController",
                owner("ReplicationController", "rc"),
                Action::Remove(object("Pod", "p")),
            ),
            ("other kind", owner("Rollout", "ro"), Action::Unsupported(object("Rollout", "ro"))),
            (
                "other kind behind a ReplicaSet",
                owner("ReplicaSet", "argo-1"),
                Action::Unsupported(object("Rollout", "argo")),
            ),
        ];
        for (case, owner, expected) in cases {
            assert_eq!(Action::of(&pod("p", owner), &sets), expected, "{case}");
        }
    }

    #[test]
    fn a_workload_is_rolled_out_once() {
        let pods = [
            pod("a", owner("DaemonSet", "log")),
            pod("b", owner("DaemonSet", "log")),
            pod("c", json!([])),
            pod("d", json!([])),
        ];
        let actions = Action::of_all(&pods, &ReplicaSets::default());
        let names: Vec<&str> = actions.iter().map(|action| action.object().name.as_str()).collect();
        assert_eq!(names, ["log", "c", "d"]);
    }
}

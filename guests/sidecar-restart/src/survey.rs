//! The Pods that are to be restarted, by their owners.

use std::collections::{BTreeMap, BTreeSet};

use istio::{
    action::RESTARTED_AT,
    kubernetes::Pod,
    predicate::{self, Phase},
};
use mortise_sdk::{Error, Failure, Host, Selection, kubernetes::Namespace, object::Metadata, time};

use crate::{
    injection::STATUS,
    mesh::Mesh,
    record::{Cause, Causes, Record},
};

/// The annotation that excludes a Pod, a workload or a namespace with the value `true`.
pub const EXCLUDE: &str = "istio-operator.kyma-project.io/exclude-from-restart";

/// The field of Pods that says that they are on the network of their node.
pub(crate) const HOST_NETWORK: &str = "spec.hostNetwork";

/// The annotations of Pods that are read.
const POD_ANNOTATIONS: [&str; 11] = [
    STATUS,
    crate::injection::INJECT,
    "sidecar.istio.io/proxyImage",
    "sidecar.istio.io/proxyCPU",
    "sidecar.istio.io/proxyMemory",
    "sidecar.istio.io/proxyCPULimit",
    "sidecar.istio.io/proxyMemoryLimit",
    "prometheus.io/path",
    "prometheus.io/port",
    RESTARTED_AT,
    EXCLUDE,
];

/// The other fields of Pods that are read.
const POD_FIELDS: [&str; 17] = [
    "metadata.creationTimestamp",
    "metadata.labels[\"kyma-project.io/module\"]",
    "metadata.ownerReferences[].kind",
    "metadata.ownerReferences[].name",
    "metadata.ownerReferences[].uid",
    "spec.containers[name=istio-proxy].name",
    "spec.containers[name=istio-proxy].image",
    "spec.containers[name=istio-proxy].resources.limits",
    "spec.containers[name=istio-proxy].resources.requests",
    "spec.initContainers[name=istio-proxy].name",
    "spec.initContainers[name=istio-proxy].image",
    "spec.initContainers[name=istio-proxy].resources.limits",
    "spec.initContainers[name=istio-proxy].resources.requests",
    "spec.initContainers[name=istio-init].name",
    "spec.initContainers[name=istio-validation].name",
    "status.conditions[].status",
    "status.phase",
];

/// The Pods that are to be restarted, and those of restarts under way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// The Pods to restart, by their owners, those of Kyma's modules first.
    pub groups: Vec<Group>,
    /// The owners of Pods that were made by a restart and are not ready yet, with the time of the
    /// restart.
    pub unready: BTreeMap<Owner, (Pod, u64)>,
    /// The owners that make another Pod only after one is gone, and have some that are being
    /// deleted: the times of the restarts that made those, as their annotations have them.
    pub going: BTreeMap<Owner, BTreeSet<Option<String>>>,
    /// The Pods that are not ready and may have taken the place of evicted ones.
    pub replacements: Replacements,
}

/// Pods that may have taken the place of evicted ones, by owner: one of them, reduced to its name
/// and its first owner, and the times of their creation in Unix time in milliseconds.
///
/// A Pod does not say so: all Pods count whose owner is of a kind whose Pods are evicted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replacements(pub(crate) BTreeMap<Owner, (Pod, Vec<u64>)>);

/// An owner of Pods: its namespace, kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub namespace: String,
    /// The kind; empty for a Pod without owner.
    pub kind: String,
    /// The name; that of the Pod if it has no owner.
    pub name: String,
}

/// The Pods of one owner and phase that are to be restarted.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The phase in which they are restarted.
    pub phase: Phase,
    pub owner: Owner,
    /// The first Pod, reduced to its name and its first owner.
    pub first: Pod,
    /// All of them.
    pub pods: Vec<Affected>,
}

/// A Pod that is to be restarted.
#[derive(Debug, Clone, PartialEq)]
pub struct Affected {
    pub name: String,
    pub uid: Option<String>,
    /// The time of its creation, in Unix time in milliseconds.
    pub created: Option<u64>,
    /// The reasons.
    pub causes: Causes,
    /// The time of the restart that made it, as its annotation has it.
    pub restarted_at: Option<String>,
}

/// Returns the fields of Pods that are read of all of them.
pub fn fields() -> Vec<String> {
    let annotations = POD_ANNOTATIONS.iter().map(|key| format!("metadata.annotations[\"{key}\"]"));
    let labels =
        crate::injection::POD_LABELS.iter().map(|key| format!("metadata.labels[\"{key}\"]"));
    let others = POD_FIELDS.iter().map(|field| (*field).to_owned());
    others.chain(annotations).chain(labels).collect()
}

/// Returns the causes for which the original restarts a Pod: none if it is no candidate.
pub fn causes(pod: &Pod, mesh: &Mesh, record: &Record) -> Causes {
    let mut causes = Causes::default();
    if !predicate::is_candidate(pod) {
        return causes;
    }
    let Mesh { expected, .. } = mesh;
    // The time of 10,000 Pods is not parsed without need.
    let changed = |cause| {
        let is_older = |since| created(&pod.metadata).unwrap_or_default() < since;
        record.since(cause).is_some_and(is_older)
    };
    for (cause, holds) in [
        (Cause::Sidecar, expected.image_or_resources_differ(pod)),
        (Cause::PrometheusMerge, expected.prometheus_merge_differs(pod)),
        (Cause::Cni, expected.cni_differs(pod)),
        (Cause::DnsProxying, changed(Cause::DnsProxying)),
        (Cause::StatsMatcher, changed(Cause::StatsMatcher)),
    ] {
        if holds {
            causes.add(cause);
        }
    }
    causes
}

/// Returns the time of an object's creation, in Unix time in milliseconds.
fn created(metadata: &Metadata) -> Option<u64> {
    time::parse(metadata.creation_timestamp.as_deref()?)
}

// === impl Survey ===

impl Survey {
    /// Reads all Pods, in pages, and keeps those for which `causes` names a cause.
    ///
    /// # Errors
    ///
    /// Fails if Pods cannot be read.
    pub fn read(
        host: &Host,
        causes: impl Fn(&Pod) -> Result<Causes, Error>,
    ) -> Result<Self, Error> {
        let of = Selection::of::<Pod>().fields(fields());
        let mut groups: BTreeMap<(bool, Owner), Group> = BTreeMap::new();
        let mut survey = Self::default();
        for pod in host.objects::<Pod>(&of, 0) {
            let pod = pod?;
            survey.add(&pod);
            let causes = causes(&pod)?;
            if causes.is_empty() || is_excluded(&pod.metadata) {
                continue;
            }
            let (phase, owner) = (Phase::of(&pod), Owner::of(&pod));
            let affected = Affected {
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
                created: created(&pod.metadata),
                causes,
                restarted_at: pod.metadata.annotations.get(RESTARTED_AT).cloned(),
            };
            let key = (phase == Phase::Customer, owner);
            let group = groups.entry(key).or_insert_with_key(|(_, owner)| Group {
                phase,
                owner: owner.clone(),
                first: reduced(&pod),
                pods: Vec::new(),
            });
            group.pods.push(affected);
        }
        survey.groups = groups.into_values().collect();
        Ok(survey)
    }

    /// Adds what a Pod tells of the restarts under way.
    fn add(&mut self, pod: &Pod) {
        if is_unready(pod) {
            self.replacements.add(pod);
            if let Some(at) = restart_of(pod) {
                let first = || (reduced(pod), at);
                let seen = self.unready.entry(Owner::of(pod)).or_insert_with(first);
                seen.1 = seen.1.max(at);
            }
        }
        if pod.metadata.is_deleted() && goes_first(pod) {
            let restarted_at = pod.metadata.annotations.get(RESTARTED_AT).cloned();
            self.going.entry(Owner::of(pod)).or_default().insert(restarted_at);
        }
    }
}

/// Returns the fields of namespaces that are read.
pub(crate) fn namespace_fields() -> [String; 2] {
    ["metadata.labels".to_owned(), format!("metadata.annotations[\"{EXCLUDE}\"]")]
}

/// Returns whether an object asks not to be restarted.
pub(crate) fn is_excluded(metadata: &Metadata) -> bool {
    metadata.annotations.get(EXCLUDE).is_some_and(|value| value == "true")
}

/// Returns whether a Pod runs without any trouble.
pub(crate) fn is_running(pod: &Pod) -> bool {
    pod.status.phase == "Running"
        && !pod.metadata.is_deleted()
        && pod.status.conditions.iter().all(|condition| condition.status == "True")
}

/// Returns whether a Pod is to become ready and is not.
fn is_unready(pod: &Pod) -> bool {
    let is_over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    !is_over && !pod.metadata.is_deleted() && !is_running(pod)
}

/// Returns whether the owner of a Pod makes another one only after it is gone.
fn goes_first(pod: &Pod) -> bool {
    let owner = pod.metadata.owner_references.first();
    owner.is_some_and(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "StatefulSet"))
}

/// Returns the time of the restart that made a Pod with a sidecar.
fn restart_of(pod: &Pod) -> Option<u64> {
    let annotations = &pod.metadata.annotations;
    annotations.get(STATUS)?;
    time::parse(annotations.get(RESTARTED_AT)?)
}

/// Returns a Pod with nothing but its name and its first owner.
fn reduced(pod: &Pod) -> Pod {
    let owner = pod.metadata.owner_references.first().cloned();
    let metadata = Metadata {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        owner_references: owner.into_iter().collect(),
        ..Metadata::default()
    };
    Pod { metadata, ..Pod::default() }
}

// === impl Replacements ===

impl Replacements {
    /// Adds a Pod, unless the kind of its owner says that it is never evicted.
    pub(crate) fn add(&mut self, pod: &Pod) {
        let owner = pod.metadata.owner_references.first().map(|owner| owner.kind.as_str());
        if matches!(owner, Some("ReplicationController" | "ReplicaSet"))
            && let Some(created) = created(&pod.metadata)
        {
            let none = || (reduced(pod), Vec::new());
            self.0.entry(Owner::of(pod)).or_insert_with(none).1.push(created);
        }
    }
}

// === impl Owner ===

impl Owner {
    pub(crate) fn of(pod: &Pod) -> Self {
        let namespace = pod.namespace().to_owned();
        match pod.metadata.owner_references.first() {
            Some(owner) => Self { namespace, kind: owner.kind.clone(), name: owner.name.clone() },
            None => Self { namespace, kind: String::new(), name: pod.metadata.name.clone() },
        }
    }
}

/// The namespaces whose Pods are restarted.
pub(crate) struct Namespaces(BTreeMap<String, Namespace>);

impl Namespaces {
    pub(crate) fn read(host: &Host) -> Result<Self, Failure> {
        let of = Selection::of::<Namespace>().fields(namespace_fields());
        let all: Vec<Namespace> = host.list(&of)?;
        let included = all.into_iter().filter(|one| !is_excluded(&one.metadata));
        Ok(Self(included.map(|one| (one.metadata.name.clone(), one)).collect()))
    }

    pub(crate) fn get(&self, pod: &Pod) -> Option<&Namespace> {
        self.0.get(pod.namespace())
    }
}

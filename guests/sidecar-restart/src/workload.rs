//! The workloads behind Pods: `ReplicaSet`s and the templates of what can be rolled out.

use std::collections::{BTreeMap, BTreeSet};

use istio::{
    action::{Action, Object, RESTARTED_AT, ReplicaSets},
    kubernetes::{Pod, ReplicaSet},
};
use mortise_sdk::{Error, Host, Kind, ObjectRef, Selection, object::Metadata};
use serde::Deserialize;

use crate::survey::{EXCLUDE, Replacements, is_excluded};

/// The kinds of workloads that can be rolled out.
pub(crate) const KINDS: [&str; 3] = ["Deployment", "DaemonSet", "StatefulSet"];
/// The path by which owners are found.
pub(crate) const OWNER_UID: &str = "metadata.ownerReferences[].uid";
pub(crate) const REPLICA_SET_FIELDS: [&str; 5] = [
    "metadata.ownerReferences[].kind",
    "metadata.ownerReferences[].name",
    OWNER_UID,
    "status.replicas",
    "status.readyReplicas",
];

/// A workload that can be rolled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) uid: Option<String>,
    /// The annotation of its template that a restart changes.
    pub(crate) restarted_at: Option<String>,
    pub(crate) is_excluded: bool,
}

/// The workloads of a cluster, each of which is read once.
pub(crate) struct Workloads<'a> {
    host: &'a Host,
    replica_sets: BTreeMap<(String, String), Option<ReplicaSet>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Read {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    template: Template,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Metadata,
}

/// Returns the kind of workloads with this name.
pub(crate) fn kind(name: &str) -> Kind {
    Kind::new("apps", "v1", name)
}

/// Returns the path of the annotation that a restart changes.
pub(crate) fn restarted_at() -> String {
    format!("spec.template.metadata.annotations[\"{RESTARTED_AT}\"]")
}

/// Returns the path of the annotation that excludes a workload.
pub(crate) fn exclude() -> String {
    format!("metadata.annotations[\"{EXCLUDE}\"]")
}

// === impl Workloads ===

impl<'a> Workloads<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self { host, replica_sets: BTreeMap::new() }
    }

    /// Returns the action that restarts a Pod, as far as its own owners tell.
    pub(crate) fn action(&mut self, pod: &Pod) -> Result<Action, Error> {
        let set = self.replica_set(pod)?;
        Ok(Action::of(pod, &ReplicaSets::new(set.as_ref())))
    }

    /// Returns the action that restarts a Pod, given all `ReplicaSet`s of its workload too.
    pub(crate) fn action_beside_siblings(&mut self, pod: &Pod) -> Result<Action, Error> {
        let Some(set) = self.replica_set(pod)? else { return self.action(pod) };
        let Some(owner) = set.metadata.owner_references.first() else { return self.action(pod) };
        let siblings = Selection::of::<ReplicaSet>()
            .namespace(pod.namespace())
            .matching(OWNER_UID, owner.uid.as_str())
            .fields(REPLICA_SET_FIELDS);
        let siblings: Vec<ReplicaSet> = self.host.list(&siblings)?;
        Ok(Action::of(pod, &ReplicaSets::new(siblings.iter().chain([&set]))))
    }

    /// Returns the number of Pods with such a time of creation whose owners' Pods are evicted.
    pub(crate) fn replacements(
        &mut self,
        of: &Replacements,
        is_counted: impl Fn(u64) -> bool,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for (pod, created) in of.0.values() {
            let counted = created.iter().filter(|created| is_counted(**created)).count();
            // The owner is read only where it matters.
            if counted > 0 && matches!(self.action(pod)?, Action::Remove(_)) {
                count += counted;
            }
        }
        Ok(count)
    }

    fn replica_set(&mut self, pod: &Pod) -> Result<Option<ReplicaSet>, Error> {
        let owner = pod.metadata.owner_references.first();
        let Some(owner) = owner.filter(|owner| owner.kind == "ReplicaSet") else { return Ok(None) };
        let (namespace, name) = (pod.namespace(), owner.name.as_str());
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(known) = self.replica_sets.get(&key) {
            return Ok(known.clone());
        }
        let read: Option<ReplicaSet> = self.host.get(Some(namespace), name, &REPLICA_SET_FIELDS)?;
        self.replica_sets.insert(key, read.clone());
        Ok(read)
    }

    /// Reads the uids of all workloads.
    pub(crate) fn uids(&self) -> Result<BTreeSet<String>, Error> {
        let mut uids = BTreeSet::new();
        for of in KINDS {
            let of = Selection::new(kind(of)).fields([restarted_at(), exclude()]);
            for read in self.host.objects::<Read>(&of, 0) {
                uids.extend(read?.metadata.uid);
            }
        }
        Ok(uids)
    }

    /// Reads a workload; `None` if it does not exist.
    pub(crate) fn get(&self, of: &Object) -> Result<Option<Workload>, Error> {
        let reference = ObjectRef::new(kind(&of.kind), Some(&of.namespace), of.name.as_str());
        let read = self.host.get_ref::<Read>(&reference, &[&restarted_at(), &exclude()])?;
        Ok(read.map(|Read { metadata, spec }| {
            let annotations = spec.template.metadata.annotations;
            Workload {
                is_excluded: is_excluded(&metadata),
                uid: metadata.uid,
                restarted_at: annotations.get(RESTARTED_AT).cloned(),
            }
        }))
    }
}

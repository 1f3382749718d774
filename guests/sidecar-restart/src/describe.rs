//! The declaration of the objects that the processor reconciles, reads and writes.

use std::time::Duration;

use istio::{
    api::{ISTIO_NAMESPACE, Istio, MODULE_NAMESPACE},
    features,
    kubernetes::{Node, Pod, ReplicaSet},
    last_applied,
};
use mortise_sdk::{
    Description, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Namespace},
};

use crate::{config::Config, injection, mesh, record, survey, workload};

/// The finalizer that keeps an Istio resource until the sidecars are removed.
pub(crate) const FINALIZER: &str = "istios.operator.kyma-project.io/sidecar-restart";

/// The shortest time between two runs: in a large cluster Pods change all the time.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn describe(config: &Config) -> Description {
    let istios = Reconciler::new("sidecars", istios())
        .finalizer(FINALIZER)
        .resync(config.resync())
        .min_interval(MIN_INTERVAL);
    let description = Description::new("sidecar-restart", env!("CARGO_PKG_VERSION"))
        .reconciles(istios)
        .reads(pods())
        .reads(Selection::of::<Pod>().namespace(ISTIO_NAMESPACE).fields(mesh::OWN_POD_FIELDS))
        .reads(Selection::of::<Node>().fields(mesh::NODE_FIELDS))
        .reads(Selection::of::<Namespace>().fields(survey::namespace_fields()))
        .reads(
            Selection::of::<ReplicaSet>()
                .matching(workload::OWNER_UID, "*")
                .fields(workload::REPLICA_SET_FIELDS),
        )
        .reads(Selection::new(injection::webhook_kind()).fields(injection::WEBHOOK_FIELDS));
    let description = config_maps().into_iter().fold(description, Description::reads);
    let description = workload::KINDS.into_iter().fold(description, |description, kind| {
        let kind = Selection::new(workload::kind(kind));
        let read = kind.clone().fields([workload::restarted_at(), workload::exclude()]);
        description.reads(read).writes_fields(kind, Verbs::UPDATE, [workload::restarted_at()])
    });
    description.writes(Selection::of::<Pod>(), Verbs::EVICT).writes_fields(
        Selection::of::<Istio>().namespace(MODULE_NAMESPACE),
        Verbs::UPDATE,
        [annotation(record::ANNOTATION)],
    )
}

fn pods() -> Selection {
    Selection::of::<Pod>().fields(survey::fields()).fields([survey::HOST_NETWORK])
}

/// Returns the Istio resources, with the fields that are read of them.
pub(crate) fn istios() -> Selection {
    Selection::of::<Istio>().namespace(MODULE_NAMESPACE).fields([
        "metadata.creationTimestamp".to_owned(),
        "metadata.finalizers".to_owned(),
        "metadata.generation".to_owned(),
        annotation(last_applied::ANNOTATION),
        annotation(record::ANNOTATION),
        "spec".to_owned(),
        "status.conditions".to_owned(),
    ])
}

fn annotation(key: &str) -> String {
    format!("metadata.annotations[\"{key}\"]")
}

fn config_maps() -> [Selection; 3] {
    [
        (MODULE_NAMESPACE, features::NAME, mesh::FEATURES_FIELD),
        (ISTIO_NAMESPACE, mesh::MESH, mesh::MESH_FIELD),
        (ISTIO_NAMESPACE, mesh::INJECTOR, mesh::INJECTOR_FIELD),
    ]
    .map(|(namespace, name, field)| {
        Selection::of::<ConfigMap>().namespace(namespace).name(name).fields([field])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_whole() {
        for read in describe(&Config::default()).reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
    }

    #[test]
    fn each_write_is_limited_to_one_path_or_to_evictions() {
        for rule in describe(&Config::default()).writes {
            let is_eviction = rule.verbs == Verbs::EVICT && rule.of.kind.kind == "Pod";
            assert!(
                is_eviction || (rule.verbs == Verbs::UPDATE && rule.fields.len() == 1),
                "{rule:?}"
            );
        }
    }

    #[test]
    fn the_resync_is_configured() {
        let resync = |minutes| {
            let config = Config { resync_minutes: minutes, ..Config::default() };
            describe(&config).reconcilers.first().map(|one| one.resync)
        };
        assert_eq!((resync(5), resync(600)), (Some(300_000), Some(36_000_000)));
    }
}

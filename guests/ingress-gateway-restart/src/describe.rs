//! The declaration of the objects that the processor reconciles, reads and writes.

use istio::api::{ISTIO_NAMESPACE, Istio, MODULE_NAMESPACE};
use mortise_sdk::{Description, Reconciler, Selection, Verbs, kubernetes::ConfigMap};

use crate::{
    Config, mesh,
    reconcile::{self, LAST_POLICY, POLICY_FIELDS, envoy_filters, network_policy},
    record::ANNOTATION,
    workload::{self, Workload},
};

pub(crate) fn describe(config: &Config) -> Description {
    let resources = Selection::of::<Istio>().namespace(MODULE_NAMESPACE);
    let watched = resources.clone().fields(reconcile::FIELDS);
    let reconciler = Reconciler::new("ingress-gateway-restart", watched).resync(config.resync());
    let policy = Selection::new(network_policy()).namespace(ISTIO_NAMESPACE).name(LAST_POLICY);
    let mesh = Selection::of::<ConfigMap>().namespace(ISTIO_NAMESPACE).name(mesh::NAME);
    let record = format!("metadata.annotations[\"{ANNOTATION}\"]");
    let description = Description::new("ingress-gateway-restart", env!("CARGO_PKG_VERSION"))
        .reconciles(reconciler)
        .reads(mesh.fields(mesh::FIELDS))
        .reads(policy.fields(POLICY_FIELDS))
        .reads(envoy_filters())
        .writes_fields(resources, Verbs::UPDATE, [record]);
    Workload::ALL.into_iter().fold(description, |description, workload| {
        description.reads(workload.selection().fields(workload::FIELDS)).writes_fields(
            workload.selection(),
            Verbs::UPDATE,
            workload::WRITTEN,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_reconciled_every_five_minutes_and_never_held() {
        let description = describe(&Config::default());
        let [resources] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((resources.resync, resources.triggered_by_status), (300_000, false));
        assert!(resources.finalizers.is_empty());
        let never = Config { resync_minutes: 0, ..Config::default() };
        assert_eq!(describe(&never).reconcilers[0].resync, 0);
    }

    #[test]
    fn nothing_is_read_whole_and_only_annotations_are_written() {
        let description = describe(&Config::default());
        for read in description.reads.iter().chain([&description.reconcilers[0].of]) {
            assert!(!read.fields.is_empty() && read.namespace.is_some(), "{read:?}");
        }
        assert_eq!(description.writes.len(), 4);
        for rule in &description.writes {
            assert_eq!(rule.verbs, Verbs::UPDATE, "{rule:?}");
            let [field] = rule.fields.as_slice() else { panic!("{rule:?}") };
            assert!(field.contains("metadata.annotations[\""), "{rule:?}");
        }
    }
}

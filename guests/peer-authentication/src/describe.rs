//! The declaration of the objects that the processor reconciles, reads and writes.

use istio::{
    api::{ISTIO_NAMESPACE, Istio, MODULE_NAMESPACE},
    cluster::{ELB_DEPRECATED, INGRESS_GATEWAY, PROVISIONING_INFO},
    features,
    kubernetes::{Node, Service},
    resource::DISCLAIMER,
};
use mortise_sdk::{
    Description, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Namespace},
};

use crate::{
    Config,
    object::{self, Own},
    reconcile::{self, FINALIZER},
    surroundings,
};

pub(crate) fn describe(config: &Config) -> Description {
    let resources = Selection::of::<Istio>().namespace(MODULE_NAMESPACE).fields(reconcile::FIELDS);
    let resources = Reconciler::new("peer-authentication", resources)
        .finalizer(FINALIZER)
        .resync(config.resync());
    let description =
        Description::new("peer-authentication", env!("CARGO_PKG_VERSION")).reconciles(resources);
    let description = reads(config).into_iter().fold(description, Description::reads);
    Own::all().iter().fold(description, |description, own| {
        description.reads(own.selection().fields(object::FIELDS)).writes_fields(
            own.selection(),
            verbs(own),
            fields(own),
        )
    })
}

fn reads(config: &Config) -> Vec<Selection> {
    let config_map =
        |namespace: &str, name: &str| Selection::of::<ConfigMap>().namespace(namespace).name(name);
    let service =
        |namespace: &str, name: &str| Selection::of::<Service>().namespace(namespace).name(name);
    let mut reads = vec![
        Selection::of::<Namespace>().name(ISTIO_NAMESPACE).fields(reconcile::NAMESPACE_FIELDS),
        Selection::of::<Node>().fields(surroundings::NODE_FIELDS),
        config_map(MODULE_NAMESPACE, features::NAME).fields(surroundings::FEATURES_FIELDS),
        config_map(ISTIO_NAMESPACE, ELB_DEPRECATED).fields(surroundings::ELB_FIELDS),
        service("default", "kubernetes").fields(surroundings::API_SERVER_FIELDS),
        service(ISTIO_NAMESPACE, INGRESS_GATEWAY).fields(surroundings::GATEWAY_FIELDS),
    ];
    if config.experimental {
        let info = config_map(MODULE_NAMESPACE, PROVISIONING_INFO);
        reads.push(info.fields(surroundings::PROVISIONING_FIELDS));
    }
    reads
}

/// Returns the verbs for an object. Nobody deletes the `PeerAuthentication`: it goes with Istio.
fn verbs(own: &Own) -> Verbs {
    let verbs = Verbs::CREATE | Verbs::UPDATE;
    if own.kind.kind == "PeerAuthentication" { verbs } else { verbs | Verbs::DELETE }
}

/// Returns the paths that are written in an object.
fn fields(own: &Own) -> Vec<String> {
    let mut fields = vec![
        "metadata.labels".to_owned(),
        format!("metadata.annotations[\"{DISCLAIMER}\"]"),
        "spec".to_owned(),
    ];
    if own.has_owner {
        fields.push("metadata.ownerReferences".to_owned());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_reconciled_every_five_minutes_and_held_by_a_finalizer() {
        let description = describe(&Config::default());
        let [resources] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((resources.resync, resources.triggered_by_status), (300_000, false));
        assert_eq!(resources.finalizers, [FINALIZER]);
        assert_eq!(resources.of.namespace.as_deref(), Some("kyma-system"));
        let never = Config { resync_minutes: 0, ..Config::default() };
        assert_eq!(describe(&never).reconcilers[0].resync, 0);
    }

    #[test]
    fn nothing_is_read_whole() {
        let description = describe(&Config::default());
        for read in description.reads.iter().chain([&description.reconcilers[0].of]) {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
    }

    #[test]
    fn each_object_is_written_by_its_name_and_within_its_paths() {
        let description = describe(&Config::default());
        assert_eq!(description.writes.len(), 14);
        for rule in &description.writes {
            assert!(rule.of.name.is_some() && rule.of.namespace.is_some(), "{rule:?}");
            assert!(!rule.fields.is_empty(), "{rule:?}");
            let is_deletable = rule.verbs & Verbs::DELETE == Verbs::DELETE;
            assert_eq!(is_deletable, rule.of.kind.kind != "PeerAuthentication", "{rule:?}");
        }
        let has_owner = |field: &String| field == "metadata.ownerReferences";
        let owned = description.writes.iter().filter(|rule| rule.fields.iter().any(has_owner));
        let names: Vec<_> = owned.map(|rule| rule.of.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["istio-operator-vpa"]);
    }

    #[test]
    fn only_the_experimental_flavour_reads_the_network() {
        let reads = |experimental| {
            let config = Config { experimental, ..Config::default() };
            let is_info = |read: &Selection| read.name.as_deref() == Some(PROVISIONING_INFO);
            describe(&config).reads.iter().any(is_info)
        };
        assert_eq!([reads(false), reads(true)], [false, true]);
    }
}

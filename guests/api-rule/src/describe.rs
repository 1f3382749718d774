//! The declaration of the objects that the processor reconciles, reads and writes.

use mortise_sdk::{
    Description, Kind, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Pod, Service},
};

use crate::{
    api::ApiRule,
    config::{CONFIG_MAP, CONFIG_MAP_FIELDS, Config},
    existing, gateway, istio,
    validation::{MESH, MESH_FIELDS},
    workload,
};

/// The finalizer that keeps an APIRule until the objects that were made for it are deleted.
pub(crate) const FINALIZER: &str = "gateway.kyma-project.io/subresources";

pub(crate) fn describe(config: &Config) -> Description {
    let rules = Reconciler::new("api-rules", Selection::of::<ApiRule>())
        .finalizer(FINALIZER)
        .resync(config.resync_interval());
    let description = Description::new("api-rule", env!("CARGO_PKG_VERSION")).reconciles(rules);
    let description = reads().into_iter().fold(description, Description::reads);
    produced()
        .into_iter()
        .fold(description, |description, kind| {
            description.writes(Selection::new(kind), Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE)
        })
        .writes(Selection::new(istio::ory_rule()), Verbs::DELETE)
}

fn produced() -> [Kind; 3] {
    [istio::virtual_service(), istio::authorization_policy(), istio::request_authentication()]
}

fn reads() -> Vec<Selection> {
    let named = |(namespace, name): (&str, &str)| {
        Selection::of::<ConfigMap>().namespace(namespace).name(name)
    };
    let mut reads = vec![
        named(CONFIG_MAP).fields(CONFIG_MAP_FIELDS),
        named(MESH).fields(MESH_FIELDS),
        Selection::new(istio::gateway()).fields(gateway::FIELDS),
        Selection::new(gateway::external_gateway()).fields(["metadata.name"]),
        Selection::of::<Service>().fields(workload::SERVICE_FIELDS),
        Selection::of::<Pod>().fields(workload::POD_FIELDS),
        Selection::new(istio::ory_rule()).fields(existing::NAME_ONLY),
    ];
    let owned = produced().map(|kind| Selection::new(kind).fields(existing::FIELDS));
    reads.extend(owned);
    // The index by which the `VirtualService`s with a host are found.
    reads.push(
        Selection::new(istio::virtual_service())
            .matching("spec.hosts[]", "*")
            .fields(existing::OWNERS),
    );
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_reconciled_every_half_hour_and_held_by_a_finalizer() {
        let description = describe(&Config::default());
        let [rules] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((rules.resync, rules.triggered_by_status), (1_800_000, false));
        assert_eq!(rules.finalizers, ["gateway.kyma-project.io/subresources"]);
        assert_eq!(rules.of.kind.api_version(), "gateway.kyma-project.io/v2alpha1");
        let config: Config = serde_json::from_str(r#"{"resyncIntervalSeconds": 5}"#).unwrap();
        assert_eq!(describe(&config).reconcilers[0].resync, 5000);
    }

    #[test]
    fn nothing_is_read_whole() {
        for read in describe(&Config::default()).reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
    }

    #[test]
    fn rules_of_ory_can_only_be_deleted() {
        let description = describe(&Config::default());
        let verbs = |kind: &str| {
            let mut of_kind = description.writes.iter().filter(|rule| rule.of.kind.kind == kind);
            of_kind.next().map(|rule| rule.verbs)
        };
        assert_eq!(verbs("Rule"), Some(Verbs::DELETE));
        assert_eq!(verbs("VirtualService"), Some(Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE));
        assert_eq!((verbs("Service"), description.writes.len()), (None, 4));
    }
}

//! The declaration of the objects that the processor reconciles, reads and writes.

use api_gateway_module::{ISTIO_NAMESPACE, domain, gardener as kinds, ingress, object};
use mortise_sdk::{
    Description, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Secret},
};

use crate::{Config, api::ExternalGateway, authority, gardener, object as built, region};

/// The finalizer that keeps an ExternalGateway until its objects are deleted.
pub(crate) const FINALIZER: &str = "externalgateways.gateway.kyma-project.io/finalizer";

pub(crate) fn describe(config: &Config) -> Description {
    let gateways =
        Selection::of::<ExternalGateway>().fields(["metadata.finalizers", "spec", "status"]);
    let gateways =
        Reconciler::new("external-gateways", gateways).finalizer(FINALIZER).resync(config.resync());
    let description =
        Description::new("external-gateway", env!("CARGO_PKG_VERSION")).reconciles(gateways);
    let description = reads().into_iter().fold(description, Description::reads);
    writes().into_iter().fold(description, |description, (of, fields)| {
        let verbs = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
        description.writes_fields(of, verbs, fields)
    })
}

fn reads() -> Vec<Selection> {
    vec![
        // The index by which the ExternalGateways with a domain are found.
        Selection::of::<ExternalGateway>()
            .matching("spec.externalDomain", "*")
            .fields(["spec.externalDomain"]),
        domain::selection(),
        ingress::selection(),
        Selection::of::<Secret>().fields(authority::FIELDS),
        Selection::of::<ConfigMap>().fields(region::FIELDS),
        gardener::selection(kinds::dns_entry()),
        gardener::selection(kinds::certificate()),
        Selection::new(built::envoy_filter()).namespace(ISTIO_NAMESPACE).fields(object::FIELDS),
        Selection::new(built::gateway_kind()).fields(object::FIELDS),
    ]
}

fn writes() -> Vec<(Selection, Vec<&'static str>)> {
    let of_istio = |of: Selection| of.namespace(ISTIO_NAMESPACE);
    vec![
        (of_istio(Selection::of::<Secret>()), vec!["data", "metadata.labels", "type"]),
        (
            of_istio(Selection::new(kinds::dns_entry())),
            vec!["metadata.annotations[\"dns.gardener.cloud/class\"]", "metadata.labels", "spec"],
        ),
        (of_istio(Selection::new(kinds::certificate())), vec!["metadata.labels", "spec"]),
        (of_istio(Selection::new(built::envoy_filter())), vec!["metadata.labels", "spec"]),
        (
            Selection::new(built::gateway_kind()),
            vec!["metadata.labels", "metadata.ownerReferences", "spec"],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_reconciled_every_hour_and_held_by_a_finalizer() {
        let description = describe(&Config::default());
        let [gateways] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((gateways.resync, gateways.triggered_by_status), (3_600_000, false));
        assert_eq!(gateways.finalizers, [FINALIZER]);
    }

    #[test]
    fn nothing_is_read_whole_and_only_gateways_are_written_elsewhere() {
        let description = describe(&Config::default());
        for read in &description.reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
        for rule in &description.writes {
            assert!(!rule.fields.is_empty(), "{rule:?}");
            let is_of_istio = rule.of.namespace.as_deref() == Some("istio-system");
            assert_eq!(is_of_istio, rule.of.kind.kind != "Gateway", "{rule:?}");
        }
    }
}

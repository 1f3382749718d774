//! What the processor reconciles, reads and writes.

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

/// Keeps an APIRule until what was made for it is gone.
pub(crate) const FINALIZER: &str = "gateway.kyma-project.io/subresources";

/// The description.
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
    // By which host a `VirtualService` is found.
    reads.push(
        Selection::new(istio::virtual_service())
            .matching("spec.hosts[]", "*")
            .fields(existing::OWNERS),
    );
    reads
}

//! The declaration of the objects that the processor reconciles, reads and writes.

use api_gateway_module::{api::ApiGateway, object};
use mortise_sdk::{Description, Reconciler, Selection, Verbs, kubernetes::Pod};

use crate::{Config, api::RateLimit, envoy_filter, reconcile, validation, workload};

pub(crate) fn describe(config: &Config) -> Description {
    let limits = Selection::of::<RateLimit>().fields(["spec", "status"]);
    let limits = Reconciler::new("rate-limits", limits).resync(config.resync());
    Description::new("rate-limit", env!("CARGO_PKG_VERSION"))
        .reconciles(limits)
        .reads(Selection::of::<ApiGateway>().fields(reconcile::MODULE_FIELDS))
        .reads(Selection::of::<Pod>().fields(workload::FIELDS))
        .reads(Selection::of::<RateLimit>().fields(validation::OTHERS))
        .reads(Selection::new(envoy_filter::kind()).fields(object::FIELDS))
        .writes_fields(
            Selection::new(envoy_filter::kind()),
            Verbs::CREATE | Verbs::UPDATE,
            ["metadata.ownerReferences", "spec"],
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reconciled_every_half_hour() {
        let description = describe(&Config::default());
        let [limits] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((limits.resync, limits.triggered_by_status), (1_800_000, false));
        let config: Config = serde_json::from_str(r#"{"resyncMinutes": 3}"#).unwrap();
        assert_eq!(describe(&config).reconcilers[0].resync, 180_000);
    }

    #[test]
    fn nothing_is_read_whole_and_filters_are_never_deleted() {
        let description = describe(&Config::default());
        for read in &description.reads {
            assert!(!read.fields.is_empty(), "{read:?}");
        }
        let [filters] = description.writes.as_slice() else { panic!("{description:?}") };
        assert_eq!(filters.verbs, Verbs::CREATE | Verbs::UPDATE);
    }
}

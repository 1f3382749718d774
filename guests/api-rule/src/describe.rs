//! The declaration of the objects that the processor reconciles, reads and writes.

use mortise_sdk::{
    Description, Kind, Reconciler, Selection, Verbs,
    kubernetes::{ConfigMap, Pod, Service},
};

use crate::{
    annotation::MIGRATION_STEP,
    api::{ApiRule, FINALIZER},
    config::{CONFIG_MAP, CONFIG_MAP_FIELDS, Config},
    existing, gateway, istio, ory,
    v1beta1::{DOMAIN_FIELDS, KYMA_GATEWAY},
    validation::{MESH, MESH_FIELDS},
    workload,
};

/// Describes the processor. What only v1beta1 needs is declared only if access to it is possible.
pub(crate) fn describe(config: &Config) -> Result<Description, String> {
    let grant = config.grant()?;
    let rules = Reconciler::new("api-rules", Selection::of::<ApiRule>())
        .finalizer(FINALIZER)
        .resync(config.resync_interval());
    let description = Description::new("api-rule", env!("CARGO_PKG_VERSION")).reconciles(rules);
    let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
    let description = reads().into_iter().fold(description, Description::reads);
    let description = produced()
        .into_iter()
        .fold(description, |description, kind| description.writes(Selection::new(kind), all));
    let ory_rules = Selection::new(ory::kind());
    if !grant.is_possible() {
        return Ok(description
            .reads(ory_rules.clone().fields(existing::NAME_ONLY))
            .writes(ory_rules, Verbs::DELETE));
    }
    let step = format!("metadata.annotations[\"{MIGRATION_STEP}\"]");
    let (namespace, name) = KYMA_GATEWAY;
    let domain = Selection::new(istio::gateway()).namespace(namespace).name(name);
    let description = description
        .reads(ory_rules.clone().fields(existing::FIELDS))
        .writes(ory_rules, all)
        .writes_fields(Selection::of::<ApiRule>(), Verbs::UPDATE, [step])
        .reads(domain.fields(DOMAIN_FIELDS));
    Ok(grant.reads().into_iter().fold(description, Description::reads))
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
    ];
    let owned = produced().map(|kind| Selection::new(kind).fields(existing::FIELDS));
    reads.extend(owned);
    // The indexes by which the objects are found whose labels somebody changed: `VirtualService`s
    // by a host, policies by the prefix of their generated name.
    reads.push(
        Selection::new(istio::authorization_policy())
            .matching(existing::GENERATE_NAME, "*")
            .fields(existing::FIELDS),
    );
    reads.push(
        Selection::new(istio::virtual_service())
            .matching("spec.hosts[]", "*")
            .fields(existing::OWNERS),
    );
    reads
}

#[cfg(test)]
mod tests {
    use access_grant::Access;

    use super::*;

    const KEY: &str = include_str!("../../access-grant/src/openpgp/fixtures/vendor.asc");

    fn configs() -> [Config; 3] {
        [
            Config::default(),
            Config { v1beta1: Some(Access::Allowed), ..Config::default() },
            Config { v1beta1_key: Some(KEY.to_owned()), ..Config::default() },
        ]
    }

    #[test]
    fn a_rule_is_reconciled_every_half_hour_and_held_by_a_finalizer() {
        let description = describe(&Config::default()).unwrap();
        let [rules] = description.reconcilers.as_slice() else { panic!("{description:?}") };
        assert_eq!((rules.resync, rules.triggered_by_status), (1_800_000, false));
        assert_eq!(rules.finalizers, ["gateway.kyma-project.io/subresources"]);
        assert_eq!(rules.of.kind.api_version(), "gateway.kyma-project.io/v2alpha1");
        let config: Config = serde_json::from_str(r#"{"resyncIntervalSeconds": 5}"#).unwrap();
        assert_eq!(describe(&config).unwrap().reconcilers[0].resync, 5000);
    }

    #[test]
    fn nothing_is_read_whole() {
        for config in configs() {
            for read in describe(&config).unwrap().reads {
                assert!(!read.fields.is_empty(), "{read:?}");
            }
        }
    }

    #[test]
    fn what_v1beta1_needs_is_declared_only_where_it_may_be_served() {
        let all = Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE;
        let verbs = |description: &Description, kind: &str| {
            let mut of_kind = description.writes.iter().filter(|rule| rule.of.kind.kind == kind);
            of_kind.next().map(|rule| (rule.verbs, rule.fields.clone()))
        };
        let names = |description: &Description| -> Vec<String> {
            description.reads.iter().filter_map(|read| read.name.clone()).collect()
        };
        let step = "metadata.annotations[\"gateway.kyma-project.io/migration-step\"]".to_owned();
        let [denied, allowed, signed] = configs().map(|config| describe(&config).unwrap());
        assert_eq!(verbs(&denied, "Rule"), Some((Verbs::DELETE, vec![])));
        assert_eq!(verbs(&denied, "APIRule"), None);
        assert_eq!(names(&denied), ["api-gateway-config", "istio"]);
        for description in [&allowed, &signed] {
            assert_eq!(verbs(description, "Rule"), Some((all, vec![])));
            assert_eq!(verbs(description, "APIRule"), Some((Verbs::UPDATE, vec![step.clone()])));
            assert_eq!(verbs(description, "VirtualService"), Some((all, vec![])));
            assert_eq!(verbs(description, "Service"), None);
        }
        assert_eq!(names(&allowed), ["api-gateway-config", "istio", "kyma-gateway"]);
        assert_eq!(
            names(&signed),
            ["api-gateway-config", "istio", "kyma-gateway", "apirule-access", "shoot-info"]
        );
    }

    #[test]
    fn a_configuration_that_decides_twice_is_refused() {
        let config = Config {
            v1beta1: Some(Access::Denied),
            v1beta1_key: Some(KEY.to_owned()),
            ..Config::default()
        };
        assert!(describe(&config).unwrap_err().starts_with("`v1beta1` and `v1beta1Key` exclude"));
    }
}

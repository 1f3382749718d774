//! Checks of an Istio resource before anything is done for it.

use std::collections::BTreeSet;

use crate::{
    api::{Istio, MODULE_NAMESPACE, State},
    cluster::Flavour,
    condition::{self, Reason},
    regexp,
};

/// The reason why no more is done for a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The state of the resource.
    pub state: State,
    /// The description of the state.
    pub description: String,
    /// The reason of the condition; `None`: the condition stays unknown.
    pub reason: Option<Reason>,
}

impl Refusal {
    pub(crate) fn new(state: State, reason: Reason, description: String) -> Self {
        Self { state, description, reason: Some(reason) }
    }
}

/// Checks a resource by itself.
///
/// A resource that is being deleted is checked only for its place: whatever is wrong with its spec
/// must not keep it. The original checks the spec too, and then the resource stays.
///
/// # Errors
///
/// Fails with the first thing that is wrong.
pub fn check(istio: &Istio, flavour: Flavour) -> Result<(), Refusal> {
    if !istio.metadata.is_deleted() {
        has_supported_features(istio, flavour)?;
        has_unique_authorizers(istio)?;
        has_valid_regexps(istio)?;
    }
    if istio.metadata.namespace.as_deref() != Some(MODULE_NAMESPACE) {
        let description = format!(
            "Stopped Istio CR reconciliation: istio CR is not in {MODULE_NAMESPACE} namespace"
        );
        return Err(Refusal::new(State::Error, condition::RECONCILE_FAILED, description));
    }
    Ok(())
}

fn has_supported_features(istio: &Istio, flavour: Flavour) -> Result<(), Refusal> {
    if flavour == Flavour::Experimental || istio.spec.experimental.is_none() {
        return Ok(());
    }
    let description = "Experimental features are not supported in this image flavour: \
                       istio CR contains experimental feature"
        .to_owned();
    Err(Refusal { state: State::Error, description, reason: None })
}

fn has_unique_authorizers(istio: &Istio) -> Result<(), Refusal> {
    let mut names = BTreeSet::new();
    let twice = istio.spec.config.authorizers().find(|one| !names.insert(one.name.as_str()));
    let Some(authorizer) = twice else { return Ok(()) };
    let description =
        format!("Authorizer name needs to be unique: {} is duplicated", authorizer.name);
    Err(Refusal::new(State::Warning, condition::VALIDATION_FAILED, description))
}

fn has_valid_regexps(istio: &Istio) -> Result<(), Refusal> {
    let matcher = istio.spec.config.proxy_stats_matcher.iter();
    for expression in matcher.flat_map(|matcher| &matcher.inclusion_regexps) {
        if let Err(error) = regexp::check(expression) {
            let description = format!(
                "ProxyStatsMatcher inclusionRegexps contains an invalid regular expression: \
                 \"{expression}\" is not a valid regexp: {error}"
            );
            return Err(Refusal::new(State::Error, condition::VALIDATION_FAILED, description));
        }
    }
    Ok(())
}

/// Checks that a resource is the oldest of its namespace. Of resources of the same age, the last
/// one counts as the oldest.
///
/// # Errors
///
/// Fails if another one is.
pub fn is_oldest(istio: &Istio, all: &[Istio]) -> Result<(), Refusal> {
    let age = |one: &&Istio| one.metadata.creation_timestamp.clone().unwrap_or_default();
    // `min_by_key` takes the first of equal ones.
    let Some(oldest) = all.iter().rev().min_by_key(age) else { return Ok(()) };
    if all.len() < 2 || oldest.metadata.uid == istio.metadata.uid {
        return Ok(());
    }
    let description = format!(
        "Stopped Istio CR reconciliation: only Istio CR {} in {} reconciles the module",
        oldest.metadata.name,
        oldest.metadata.namespace.as_deref().unwrap_or_default(),
    );
    Err(Refusal::new(State::Warning, condition::OLDER_EXISTS, description))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn istio(name: &str, age: &str, spec: Value) -> Istio {
        let mut istio = json!({"metadata": {
            "name": name, "namespace": MODULE_NAMESPACE, "uid": format!("u-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{age}Z"),
        }});
        istio["spec"] = spec;
        serde_json::from_value(istio).unwrap()
    }

    fn refusal(istio: &Istio) -> String {
        check(istio, Flavour::Regular).err().map(|refusal| refusal.description).unwrap_or_default()
    }

    #[test]
    fn a_spec_that_cannot_be_carried_out_is_refused() {
        let twice = json!([{"name": "a"}, null, {"name": "b"}, {"name": "a"}]);
        let cases = [
            (json!({}), ""),
            (json!({"config": {"authorizers": [{"name": "a"}, {"name": "A"}]}}), ""),
            (
                json!({"config": {"authorizers": twice}}),
                "Authorizer name needs to be unique: a is duplicated",
            ),
            (
                json!({"config": {"proxyStatsMatcher": {"inclusionRegexps": ["a.*", "a("]}}}),
                "ProxyStatsMatcher inclusionRegexps contains an invalid regular expression: \"a(\" is not a valid regexp: error parsing regexp: missing closing ): `a(`",
            ),
            (
                json!({"experimental": {}}),
                "Experimental features are not supported in this image flavour: istio CR contains experimental feature",
            ),
        ];
        for (spec, expected) in cases {
            let mut istio = istio("default", "00", spec);
            assert_eq!(refusal(&istio), expected);
            istio.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
            assert_eq!(refusal(&istio), "", "deleted");
        }
        let experimental = istio("default", "00", json!({"experimental": {}}));
        assert_eq!(check(&experimental, Flavour::Experimental), Ok(()));
    }

    #[test]
    fn a_resource_elsewhere_is_refused_even_if_it_is_deleted() {
        let mut istio = istio("default", "00", json!({}));
        istio.metadata.namespace = Some("default".to_owned());
        istio.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".to_owned());
        assert_eq!(
            refusal(&istio),
            "Stopped Istio CR reconciliation: istio CR is not in kyma-system namespace"
        );
    }

    #[test]
    fn the_oldest_resource_counts_and_of_the_same_age_the_last() {
        let cases = [
            (vec![("a", "01")], "a"),
            (vec![("a", "02"), ("b", "01"), ("c", "03")], "b"),
            (vec![("a", "01"), ("b", "01"), ("c", "02")], "b"),
        ];
        for (resources, oldest) in cases {
            let all: Vec<Istio> =
                resources.iter().map(|(name, age)| istio(name, age, json!({}))).collect();
            for one in &all {
                let is_oldest = is_oldest(one, &all).is_ok();
                assert_eq!(is_oldest, one.metadata.name == oldest, "{resources:?}");
            }
        }
    }
}

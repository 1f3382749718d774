//! The processor's configuration.

use mortise_sdk::Selection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{api, claim::Claimable};

/// The wildcard for every API group that may be bound at all.
pub(crate) const ANY: &str = "*";
/// The most groups: each has two of the 64 reconcilers that a processor may have.
const MAX_GROUPS: usize = 24;

/// The configuration of this processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The API groups that may be bound. Empty: none. `*`: all groups but those of Kubernetes and
    /// of this processor's own kinds. The declaration, and so the printed roles, name only these.
    pub groups: Vec<String>,
    /// Parts of objects that go to the provider with each change, and not only at creation.
    pub propagate: Vec<Part>,
    /// The objects of built-in kinds that providers may claim. Empty: none.
    pub claims: Vec<ClaimRule>,
}

/// A part of an object besides its spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The labels.
    Labels,
    /// The annotations.
    Annotations,
    /// Top-level fields besides `spec` and `status`, such as `data`.
    Payload,
}

/// Objects that providers may claim. Those of namespaces that begin with `kube-` never are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClaimRule {
    /// The resources.
    #[schemars(extend("minItems" = 1))]
    pub resources: Vec<Claimable>,
    /// The namespaces. Empty: all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The labels that the objects must have. Empty: any.
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
}

impl Config {
    /// Checks what the schema cannot say.
    ///
    /// # Errors
    ///
    /// Fails if a group is named that is never bound, or too many are.
    pub fn check(&self) -> Result<(), String> {
        if self.groups.len() > MAX_GROUPS {
            return Err(format!("`groups` has more than {MAX_GROUPS} entries: write `[\"*\"]`"));
        }
        let refused = self.groups.iter().find(|group| *group != ANY && is_protected(group));
        match refused {
            Some(group) => Err(format!(
                "`groups`: `{group}` is never bound: a group has a dot, and is not of Kubernetes, \
                 `{}` or `mortise.dev`",
                api::GROUP
            )),
            None => Ok(()),
        }
    }

    /// Returns whether resources of an API group may be bound.
    pub fn allows(&self, group: &str) -> bool {
        !is_protected(group) && self.groups.iter().any(|allowed| allowed == ANY || allowed == group)
    }

    /// Returns the groups that are declared: `*`, or single ones.
    pub(crate) fn declared_groups(&self) -> impl Iterator<Item = &str> {
        let any = self.groups.iter().any(|group| group == ANY);
        let single = self.groups.iter().map(String::as_str).filter(move |_| !any);
        any.then_some(ANY).into_iter().chain(single)
    }

    /// Returns the declared group in which a group that may be bound is.
    pub(crate) fn declared_group<'a>(&self, group: &'a str) -> &'a str {
        if self.groups.iter().any(|group| group == ANY) { ANY } else { group }
    }

    /// Returns whether a part goes to the provider with each change.
    pub fn propagates(&self, part: Part) -> bool {
        self.propagate.contains(&part)
    }

    /// Returns the rules for a resource.
    pub(crate) fn rules_of(&self, resource: Claimable) -> impl Iterator<Item = &ClaimRule> {
        self.claims.iter().filter(move |rule| rule.resources.contains(&resource))
    }

    /// Returns the resources that may be claimed.
    pub(crate) fn claimable(&self) -> impl Iterator<Item = Claimable> {
        Claimable::ALL.into_iter().filter(|resource| self.rules_of(*resource).next().is_some())
    }
}

impl ClaimRule {
    /// Returns the parts of a selection, one for each namespace, that the rule allows.
    pub(crate) fn narrow(&self, of: &Selection) -> Vec<Selection> {
        match (&of.namespace, self.namespaces.is_empty()) {
            (_, true) => vec![of.clone()],
            (Some(namespace), false) if self.namespaces.contains(namespace) => vec![of.clone()],
            (Some(_), false) => Vec::new(),
            (None, false) => {
                self.namespaces.iter().map(|namespace| of.clone().namespace(namespace)).collect()
            }
        }
    }
}

/// Returns whether resources of an API group are never bound.
fn is_protected(group: &str) -> bool {
    let within = |suffix: &str| {
        group.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !group.contains('.')
        || [api::GROUP, "mortise.dev", "k8s.io", "kubernetes.io"].into_iter().any(within)
}

/// Returns whether objects of a namespace are never claimed.
pub(crate) fn is_system(namespace: &str) -> bool {
    namespace.starts_with("kube-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_kubernetes_and_our_own_are_never_bound() {
        let any = Config { groups: vec!["*".into()], ..Config::default() };
        let one = Config { groups: vec!["golden.example.dev".into()], ..Config::default() };
        let cases = [
            ("golden.example.dev", true, true),
            ("example.dev", true, false),
            ("", false, false),
            ("apps", false, false),
            ("kube-bind.io", false, false),
            ("mortise.dev", false, false),
            ("copy.mortise.dev", false, false),
            ("notmortise.dev", true, false),
            ("rbac.authorization.k8s.io", false, false),
        ];
        for (group, by_any, by_one) in cases {
            assert_eq!((any.allows(group), one.allows(group)), (by_any, by_one), "{group}");
        }
    }

    /// The namespaces of a rule, the one of a claim, and those that are claimed.
    type Narrowed<'a> = (&'a [&'a str], Option<&'a str>, &'a [Option<&'a str>]);

    #[test]
    fn a_rule_with_namespaces_allows_claims_there_only() {
        let rule = |namespaces: &[&str]| ClaimRule {
            resources: vec![Claimable::Secrets],
            namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
            labels: std::collections::BTreeMap::new(),
        };
        let cases: [Narrowed<'_>; 5] = [
            (&[], None, &[None]),
            (&[], Some("a"), &[Some("a")]),
            (&["a", "b"], None, &[Some("a"), Some("b")]),
            (&["a", "b"], Some("b"), &[Some("b")]),
            (&["a", "b"], Some("c"), &[]),
        ];
        for (namespaces, claimed, expected) in cases {
            let of = Selection::new(Claimable::Secrets.kind()).labels("app=x");
            let of = claimed.map_or(of.clone(), |namespace| of.namespace(namespace));
            let parts = rule(namespaces).narrow(&of);
            let found: Vec<Option<&str>> =
                parts.iter().map(|part| part.namespace.as_deref()).collect();
            assert_eq!(found, expected, "{namespaces:?} {claimed:?}");
            assert!(parts.iter().all(|part| part.labels == of.labels));
        }
    }

    #[test]
    fn a_configuration_with_a_protected_group_is_refused() {
        let cases = [
            (vec!["a.example".to_owned(); 25], "`groups` has more than 24 entries"),
            (vec!["apps".to_owned()], "`apps` is never bound"),
            (vec!["kube-bind.io".to_owned()], "`kube-bind.io` is never bound"),
        ];
        for (groups, expected) in cases {
            let error = Config { groups, ..Config::default() }.check().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        Config { groups: vec!["*".into(), "example.com".into()], ..Config::default() }
            .check()
            .unwrap();
    }
}

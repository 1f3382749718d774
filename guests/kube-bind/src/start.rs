//! The on-demand reconcilers that a binding or a Secret starts, and on what.

use mortise_sdk::{Kind, Outcome, Selection};

use crate::{
    api::{
        BoundSchema, ClusterBinding, Export, ExportSpec, PermissionClaim, Selector,
        ServiceNamespace,
    },
    claim::{Claimable, labels_text},
    config::{ClaimRule, Config, is_system},
    definition::Definition,
    isolation::Isolation,
    mark::OWNER,
    place::{CLUSTER_BINDING, Place},
};

/// The names of the reconcilers.
pub(crate) mod name {
    pub(crate) const BINDINGS: &str = "bindings";
    pub(crate) const BUNDLES: &str = "bundles";
    pub(crate) const SECRETS: &str = "secrets";
    pub(crate) const EXPORTS: &str = "exports";
    pub(crate) const SCHEMAS: &str = "schemas";
    pub(crate) const CLUSTER_BINDING: &str = "cluster-binding";
    pub(crate) const NAMESPACES: &str = "namespaces";
    pub(crate) const OBJECTS: &str = "objects";
    pub(crate) const ORPHANS: &str = "orphans";
    /// The beginning of the names for shared objects at home; the resource follows.
    pub(crate) const CLAIMED: &str = "claimed-";
    /// The beginning of the names for shared objects at the provider; the resource follows.
    pub(crate) const CLAIMED_BACK: &str = "claimed-back-";

    /// The longest name, a DNS label.
    const MAX_BYTES: usize = 63;

    /// Returns the name of a reconciler for one API group, or for all (`*`). Groups keep their
    /// reconcilers, whatever other groups are configured.
    pub(crate) fn of_group(name: &str, group: &str) -> String {
        if group == crate::config::ANY {
            return name.to_owned();
        }
        let of = format!("{name}-{}", group.replace('-', "--").replace('.', "-"));
        if of.len() > MAX_BYTES { mortise_sdk::derived_name(&of, &[group]) } else { of }
    }

    /// Returns whether a name is that of a reconciler for API groups.
    pub(crate) fn is_of_group(found: &str, name: &str) -> bool {
        found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// The most selections of namespaces that one outcome starts; the contract allows 1,024 in all.
const MAX_SELECTIONS: usize = 800;
/// The most names of a claim.
const MAX_NAMES: usize = 100;

/// Starts what every connected consumer runs at the provider.
pub(crate) fn place(outcome: Outcome, place: &Place) -> Outcome {
    outcome
        .start(name::EXPORTS, place.all::<Export>())
        .start(name::SCHEMAS, place.all::<BoundSchema>())
        .start(name::CLUSTER_BINDING, place.all::<ClusterBinding>().name(CLUSTER_BINDING))
        .start(name::NAMESPACES, place.all::<ServiceNamespace>())
}

/// Starts the objects of bound kinds at home.
pub(crate) fn objects(outcome: Outcome, definitions: &[Definition], config: &Config) -> Outcome {
    kinds(definitions).fold(outcome, |outcome, (_, kind)| {
        let reconciler = name::of_group(name::OBJECTS, config.declared_group(&kind.group));
        outcome.start(reconciler, Selection::new(kind))
    })
}

/// The provider's namespaces of a consumer, and its export.
pub(crate) struct Shared<'a> {
    pub(crate) place: &'a Place,
    pub(crate) export: &'a ExportSpec,
    /// The names of the provider's namespaces for those of the consumer.
    pub(crate) namespaces: &'a [String],
}

impl Shared<'_> {
    /// Starts the search for objects of bound kinds that have no counterpart at home.
    pub(crate) fn orphans(
        &self,
        outcome: Outcome,
        definitions: &[Definition],
        config: &Config,
    ) -> Outcome {
        let is_too_much = self.namespaces.len() * definitions.len() > MAX_SELECTIONS / 2;
        kinds(definitions).fold(outcome, |outcome, (definition, kind)| {
            let reconciler = name::of_group(name::ORPHANS, config.declared_group(&kind.group));
            let all = Selection::new(kind).in_cluster(&self.place.cluster);
            let parts = match Isolation::of(definition.is_namespaced(), self.export) {
                Isolation::Namespaced => vec![all.namespace(&self.place.namespace)],
                Isolation::ServiceNamespaced if !is_too_much => self.parts(&all),
                _ => vec![all],
            };
            parts.into_iter().fold(outcome, |outcome, of| outcome.start(reconciler.as_str(), of))
        })
    }

    /// Starts the objects of a claim, on both sides.
    pub(crate) fn claim(
        &self,
        outcome: Outcome,
        claim: &PermissionClaim,
        resource: Claimable,
        config: &Config,
    ) -> Outcome {
        let all = Selection::new(resource.kind());
        let mut home = Vec::new();
        for rule in config.rules_of(resource) {
            let claimed = selections(&claim.selector, &all).into_iter();
            let claimed = claimed.map(|of| with_labels(of, rule));
            let parts = claimed.chain([all.clone().labels(OWNER)]).flat_map(|of| rule.narrow(&of));
            home.extend(parts.filter(|of| !of.namespace.as_deref().is_some_and(is_system)));
        }
        let reconciler = format!("{}{}", name::CLAIMED, resource.resource());
        let outcome = distinct(home)
            .into_iter()
            .take(MAX_NAMES)
            .fold(outcome, |outcome, of| outcome.start(reconciler.as_str(), of));
        let reconciler = format!("{}{}", name::CLAIMED_BACK, resource.resource());
        let all = all.in_cluster(&self.place.cluster);
        let limit = MAX_SELECTIONS / 2 / self.export.permission_claims.len().max(1);
        let parts = self.parts(&all).into_iter().take(limit);
        parts.fold(outcome, |outcome, of| outcome.start(reconciler.as_str(), of))
    }

    /// Returns the parts of a selection that the consumer may watch at the provider.
    fn parts(&self, all: &Selection) -> Vec<Selection> {
        if self.export.informer_scope == "Cluster" {
            return vec![all.clone()];
        }
        self.namespaces.iter().map(|namespace| all.clone().namespace(namespace)).collect()
    }
}

fn kinds(definitions: &[Definition]) -> impl Iterator<Item = (&Definition, Kind)> {
    let established = definitions.iter().filter(|definition| definition.is_established());
    established.filter_map(|definition| Some((definition, definition.served_kind()?)))
}

/// Returns the objects at home that a selector may take.
fn selections(selector: &Selector, all: &Selection) -> Vec<Selection> {
    if !selector.references.is_empty() {
        return vec![all.clone()];
    }
    let labels = selector.label_selector.as_ref().and_then(labels_text);
    let named = selector.named_resources.iter().take(MAX_NAMES).map(|named| {
        let of = all.clone().name(&named.name);
        if named.namespace.is_empty() { of } else { of.namespace(&named.namespace) }
    });
    labels.map(|labels| all.clone().labels(labels)).into_iter().chain(named).collect()
}

fn with_labels(of: Selection, rule: &ClaimRule) -> Selection {
    let required = rule.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let parts = Some(of.labels.clone()).filter(|labels| !labels.is_empty()).into_iter();
    let labels = parts.chain(required).collect::<Vec<_>>().join(",");
    of.labels(labels)
}

fn distinct(selections: Vec<Selection>) -> Vec<Selection> {
    let mut distinct: Vec<Selection> = Vec::new();
    for selection in selections {
        if !distinct.contains(&selection) {
            distinct.push(selection);
        }
    }
    distinct
}

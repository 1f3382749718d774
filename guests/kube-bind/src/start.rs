//! The on-demand reconcilers that a binding or a Secret starts, and on what.
//!
//! A processor may start so many selections, and no more. Each provider has the same part of them,
//! and each of its bindings the same part of that: what a provider exports and claims takes nothing
//! from another one's bindings. The binding names the selections that do not fit in.

use std::collections::BTreeSet;

use mortise_sdk::{Error, Host, Kind, Outcome, Selection};

use crate::{
    api::{
        Binding, BoundSchema, ClusterBinding, Export, ExportSpec, PermissionClaim, Selector,
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

/// The reason of conditions and events that name what a bound leaves out.
pub(crate) const BOUND_EXCEEDED: &str = "BoundExceeded";
/// The most selections that all outcomes start together, by the contract.
const MAX_STARTED: usize = 4_096;
/// The most selections that one outcome starts, by the contract.
const MAX_OF_OUTCOME: usize = 1_024;
/// The selections of [`place`], which the bindings of one provider have in common.
const OF_PLACE: usize = 4;
/// The selections without which a kind is not synchronised: its objects, and its orphans.
const OF_KIND: usize = 2;
/// The most labelled Secrets whose places are started without a binding.
pub(crate) const MAX_LABELLED: usize = 128;
/// The most names of all claims on a resource that are selected one by one.
const MAX_NAMES: usize = 100;

/// Reads how many selections a binding may start besides those of its place.
pub(crate) fn share(host: &Host, binding: &Binding) -> Result<usize, Error> {
    let all: Vec<Binding> = host.list(&Selection::of::<Binding>().fields(["spec"]))?;
    let provider = |of: &Binding| of.spec.kubeconfig_secret_ref.clone();
    let providers: BTreeSet<_> = all.iter().map(provider).collect();
    let own = all.iter().filter(|of| of.spec == binding.spec);
    let is_before = |of: &&Binding| of.metadata.name < binding.metadata.name;
    Ok(part(providers.len(), own.clone().count(), own.filter(is_before).count()))
}

/// Returns the selections of one of a provider's bindings. If there are too many of them, only the
/// first ones, by name, have any.
fn part(providers: usize, bindings: usize, before: usize) -> usize {
    let all = MAX_STARTED - MAX_LABELLED * OF_PLACE;
    let of_provider = (all / providers.max(1)).saturating_sub(OF_PLACE);
    let part = of_provider / bindings.max(1);
    if part >= OF_KIND {
        part.min(MAX_OF_OUTCOME - OF_PLACE)
    } else if (before + 1) * OF_KIND <= of_provider {
        OF_KIND
    } else {
        0
    }
}

/// Starts what every connected consumer runs at the provider.
pub(crate) fn place(outcome: Outcome, place: &Place) -> Outcome {
    outcome
        .start(name::EXPORTS, place.all::<Export>())
        .start(name::SCHEMAS, place.all::<BoundSchema>())
        .start(name::CLUSTER_BINDING, place.all::<ClusterBinding>().name(CLUSTER_BINDING))
        .start(name::NAMESPACES, place.all::<ServiceNamespace>())
}

/// The provider's namespaces of a consumer, and its export.
pub(crate) struct Shared<'a> {
    pub(crate) place: &'a Place,
    pub(crate) export: &'a ExportSpec,
    /// The names of the provider's namespaces for those of the consumer.
    pub(crate) namespaces: &'a [String],
}

/// The selections that a binding starts, within its share.
pub(crate) struct Starts<'a> {
    config: &'a Config,
    kinds: Vec<(&'a Definition, Kind)>,
    started: Vec<(String, Selection)>,
    /// The selections that are left of the share.
    left: usize,
    /// Messages about selections that do not fit into the share.
    cut: Vec<String>,
}

// === impl Starts ===

impl<'a> Starts<'a> {
    /// Starts the objects of the kinds at home that are established, as many as fit into a share.
    pub(crate) fn new(definitions: &'a [Definition], config: &'a Config, share: usize) -> Self {
        let established = definitions.iter().filter(|definition| definition.is_established());
        let kinds: Vec<_> = established.filter_map(|of| Some((of, of.served_kind()?))).collect();
        let (started, cut) = (Vec::new(), Vec::new());
        let mut starts = Self { config, kinds, started, left: share, cut };
        let fitting = share / OF_KIND;
        if let Some((first, _)) = starts.kinds.get(fitting) {
            starts.cut.push(format!(
                "{fitting} of {} kinds are synchronised, not {} and those after it",
                starts.kinds.len(),
                first.metadata.name
            ));
        }
        starts.kinds.truncate(fitting);
        for (_, kind) in &starts.kinds {
            let reconciler = name::of_group(name::OBJECTS, config.declared_group(&kind.group));
            starts.started.push((reconciler, Selection::new(kind.clone())));
        }
        starts.left -= starts.kinds.len();
        starts
    }

    /// Starts the objects at home of kinds without a schema, so that deleted ones are let go.
    pub(crate) fn leaving(&mut self, definitions: &[Definition]) {
        let established = definitions.iter().filter(|definition| definition.is_established());
        for kind in established.filter_map(Definition::served_kind).take(self.left) {
            let reconciler = name::of_group(name::OBJECTS, self.config.declared_group(&kind.group));
            self.started.push((reconciler, Selection::new(kind)));
            self.left -= 1;
        }
    }

    /// Adds what was started to an outcome. Returns what does not fit into the share, too.
    pub(crate) fn end(self, outcome: Outcome) -> (Outcome, Vec<String>) {
        let started = self.started.into_iter();
        (started.fold(outcome, |outcome, (by, of)| outcome.start(by, of)), self.cut)
    }

    /// Starts the first of some selections, and notes whether that is not all of them.
    fn start(&mut self, reconciler: &str, of: Vec<Selection>, limit: usize) {
        if let Some(first) = of.get(limit) {
            let namespace = first.namespace.as_deref().unwrap_or("all namespaces");
            self.cut.push(format!(
                "`{reconciler}` runs for {limit} of {} selections, not for {namespace} and those \
                 after it",
                of.len()
            ));
        }
        self.left -= of.len().min(limit);
        self.started.extend(of.into_iter().take(limit).map(|of| (reconciler.to_owned(), of)));
    }

    /// Starts the search for objects of bound kinds that have no counterpart at home.
    pub(crate) fn orphans(&mut self, shared: &Shared) {
        let Shared { place, export, namespaces } = shared;
        let is_too_much = namespaces.len() * self.kinds.len() > self.left / 2;
        for (definition, kind) in std::mem::take(&mut self.kinds) {
            let group = self.config.declared_group(&kind.group).to_owned();
            let all = Selection::new(kind).in_cluster(&place.cluster);
            let parts = match Isolation::of(definition.is_namespaced(), export) {
                Isolation::Namespaced => vec![all.namespace(&place.namespace)],
                Isolation::ServiceNamespaced if !is_too_much => shared.parts(&all),
                _ => vec![all],
            };
            self.start(&name::of_group(name::ORPHANS, &group), parts, self.left);
        }
    }

    /// Starts the objects of claims, on both sides.
    pub(crate) fn claims(&mut self, shared: &Shared, claims: &[(Claimable, &PermissionClaim)]) {
        let resources: BTreeSet<Claimable> = claims.iter().map(|(resource, _)| *resource).collect();
        for (index, resource) in resources.iter().enumerate() {
            let of = claims.iter().filter(|(claimed, _)| claimed == resource);
            let limit = self.left / (2 * (resources.len() - index));
            let home = self.home(*resource, of.map(|(_, claim)| *claim), limit);
            self.start(&format!("{}{}", name::CLAIMED, resource.resource()), home, limit);
        }
        for (index, resource) in resources.iter().enumerate() {
            let all = Selection::new(resource.kind()).in_cluster(&shared.place.cluster);
            let limit = self.left / (resources.len() - index);
            let reconciler = format!("{}{}", name::CLAIMED_BACK, resource.resource());
            self.start(&reconciler, shared.parts(&all), limit);
        }
    }

    /// Returns the objects at home that claims may take: all that the configuration allows if
    /// there are too many names.
    fn home<'b>(
        &self,
        resource: Claimable,
        claims: impl Iterator<Item = &'b PermissionClaim>,
        limit: usize,
    ) -> Vec<Selection> {
        let all = Selection::new(resource.kind());
        let within = |claimed: &[Selection]| {
            let mut home = Vec::new();
            for rule in self.config.rules_of(resource) {
                let claimed = claimed.iter().map(|of| with_labels(of.clone(), rule));
                let parts =
                    claimed.chain([all.clone().labels(OWNER)]).flat_map(|of| rule.narrow(&of));
                home.extend(parts.filter(|of| !of.namespace.as_deref().is_some_and(is_system)));
            }
            distinct(home)
        };
        let claimed: Vec<Selection> =
            claims.flat_map(|claim| selections(&claim.selector, &all)).collect();
        let few = (claimed.len() <= MAX_NAMES).then(|| within(&claimed));
        few.filter(|home| home.len() <= limit).unwrap_or_else(|| within(std::slice::from_ref(&all)))
    }
}

// === impl Shared ===

impl Shared<'_> {
    /// Returns the parts of a selection that the consumer may watch at the provider.
    fn parts(&self, all: &Selection) -> Vec<Selection> {
        if self.export.informer_scope == "Cluster" {
            return vec![all.clone()];
        }
        self.namespaces.iter().map(|namespace| all.clone().namespace(namespace)).collect()
    }
}

/// Returns the objects at home that a selector may take.
fn selections(selector: &Selector, all: &Selection) -> Vec<Selection> {
    if !selector.references.is_empty() {
        return vec![all.clone()];
    }
    let labels = selector.label_selector.as_ref().and_then(labels_text);
    let named = selector.named_resources.iter().map(|named| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_and_their_bindings_have_equal_parts_that_are_never_too_much_together() {
        // Providers, the bindings of one of them, the part of the first and of the last.
        let cases = [
            (1, 1, 1_020, 1_020),
            (1, 20, 179, 179),
            (20, 20, 8, 8),
            (2, 1_000, 2, 0),
            (1, 5_000, 2, 0),
            (600, 1, 0, 0),
        ];
        for (providers, bindings, first, last) in cases {
            let parts: Vec<usize> =
                (0..bindings).map(|before| part(providers, bindings, before)).collect();
            let found = (parts.first().copied(), parts.last().copied());
            assert_eq!(found, (Some(first), Some(last)), "{providers} {bindings}");
            let of_provider = parts.iter().sum::<usize>() + OF_PLACE;
            let all = providers * of_provider + MAX_LABELLED * OF_PLACE;
            assert!(all <= MAX_STARTED || first == 0, "{providers} {bindings}: {all}");
        }
    }
}

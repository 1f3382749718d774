//! Checks `evict`, `delete` and `prune` of an outcome.

use std::collections::HashMap;

use super::{Check, Deletion, Fault, Invalid, Prune};
use crate::{
    contract::{self, SameObject, Selection, Verbs, bounds::FIELDS},
    labels::LabelSelector,
    path::Path,
};

impl Check<'_> {
    pub(super) fn evictions(
        &self,
        evictions: &[contract::Deletion],
    ) -> Result<Vec<Deletion>, Invalid> {
        if let Some((index, other)) =
            evictions.iter().enumerate().find(|(_, eviction)| !is_pod(&eviction.ref_))
        {
            return Err(Fault::malformed("kind", "pods can be evicted, nothing else")
                .on(format!("evict[{index}].ref"), &other.ref_));
        }
        self.removals("evict", evictions, Verbs::EVICT)
    }

    pub(super) fn deletions(
        &self,
        deletions: &[contract::Deletion],
    ) -> Result<Vec<Deletion>, Invalid> {
        self.removals("delete", deletions, Verbs::DELETE)
    }

    fn removals(
        &self,
        list: &str,
        removals: &[contract::Deletion],
        verb: Verbs,
    ) -> Result<Vec<Deletion>, Invalid> {
        let mut checked: Vec<Deletion> = Vec::with_capacity(removals.len());
        let mut seen = HashMap::with_capacity(removals.len());
        for (index, removal) in removals.iter().enumerate() {
            let place = format!("{list}[{index}].ref");
            let of = removal.ref_.clone();
            self.check_reference(&of, &place)?;
            let writable = self
                .against
                .grant
                .may_write(verb, &of)
                .map_err(|denied| Fault::from(denied).on(place.clone(), &of))?;
            if removal.uid.as_ref().is_some_and(String::is_empty) {
                return Err(
                    Fault::malformed("uid", "a text that is not empty, or none").on(place, &of)
                );
            }
            if let Some(other) = seen.insert(SameObject(&removal.ref_), index) {
                return Err(Fault::Duplicate { other: format!("{list}[{other}]") }.on(place, &of));
            }
            let within = (!writable.unconditional(verb)).then_some(writable);
            checked.push(Deletion {
                of,
                uid: removal.uid.clone(),
                propagation: removal.propagation,
                grace_period: removal.grace_period,
                within,
            });
        }
        Ok(checked)
    }

    pub(super) fn prunes(&self, prunes: &[Selection]) -> Result<Vec<Prune>, Invalid> {
        prunes
            .iter()
            .enumerate()
            .map(|(index, of)| self.prune(of).map_err(|fault| fault.at(format!("prune[{index}]"))))
            .collect()
    }

    fn prune(&self, of: &Selection) -> Result<Prune, Fault> {
        self.check_cluster(&of.kind.cluster)?;
        if of.kind.kind == "*" || of.kind.group == "*" {
            return Err(Fault::malformed("kind", "one kind, not any"));
        }
        if let Some(namespace) =
            of.namespace.as_ref().filter(|namespace| !super::is_name(namespace))
        {
            return Err(Fault::malformed("namespace", format!("`{namespace}` is no name")));
        }
        if of.namespace.is_some()
            && self.kinds.get(&of.kind).is_some_and(|resource| !resource.namespaced)
        {
            return Err(Fault::malformed("namespace", "objects of this kind have no namespace"));
        }
        let name = of.name.as_ref().filter(|name| !super::is_name(name));
        if name.is_some() || !super::is_kind(&of.kind) {
            let (field, accepted) = if name.is_some() {
                ("name", super::NAME_FORM)
            } else {
                ("kind", super::KIND_FORM)
            };
            return Err(Fault::malformed(field, accepted));
        }
        for (field, count) in [("fields", of.fields.len()), ("matching", of.matching.len())] {
            if count > FIELDS {
                return Err(Fault::malformed(
                    field,
                    format!("at most {FIELDS} entries, it has {count}"),
                ));
            }
        }
        let labels = LabelSelector::parse(&of.labels)
            .map_err(|error| Fault::malformed("labels", error.to_string()))?;
        if labels.is_empty() && of.matching.is_empty() {
            return Err(Fault::malformed(
                "labels",
                "`labels` or `matching` must say which objects are meant",
            ));
        }
        let path = |text: &String| {
            text.parse::<Path>().map_err(|error| Fault::malformed("matching", error.to_string()))
        };
        let matching = of
            .matching
            .iter()
            .map(|(key, value)| Ok((path(key)?, value.clone())))
            .collect::<Result<Vec<(Path, String)>, Fault>>()?;
        for (path, _) in &matching {
            if let Some(hidden) = self.against.grant.selected_credential(&of.kind, path) {
                return Err(Fault::compares(path, hidden));
            }
        }
        self.against.grant.may_prune(of)?;
        Ok(Prune { of: of.clone(), labels, matching })
    }
}

fn is_pod(of: &contract::ObjectRef) -> bool {
    of.kind.group.is_empty() && of.kind.version == "v1" && of.kind.kind == "Pod"
}

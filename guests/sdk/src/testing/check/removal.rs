//! `evict`, `delete` and `prune`.

use super::{Check, Fault, has, shown};
use crate::{
    Deletion, Kind, Selection, Verbs, WriteRule,
    testing::{
        identity::Identity,
        known::{Query, covers, is_of, without_any},
    },
};

impl Check<'_> {
    pub(super) fn removals(
        &self,
        list: &str,
        of: &[Deletion],
        verb: Verbs,
    ) -> Result<Vec<Deletion>, Fault> {
        let mut seen: Vec<Identity> = Vec::new();
        for (index, removal) in of.iter().enumerate() {
            let to = &removal.ref_;
            let refuse = |fault: String| (format!("{list}[{index}].ref"), Some(shown(to)), fault);
            if verb == Verbs::EVICT && to.kind != Kind::new("", "v1", "Pod") {
                return Err(refuse("`kind`: pods can be evicted, nothing else".to_owned()));
            }
            self.check_reference(to, &[]).map_err(refuse)?;
            self.rules(verb, to).map_err(refuse)?;
            if removal.uid.as_ref().is_some_and(String::is_empty) {
                return Err(refuse("`uid`: a text that is not empty, or none".to_owned()));
            }
            let identity = Identity::of_ref(to);
            if let Some(other) = seen.iter().position(|other| *other == identity) {
                return Err(refuse(format!("the object stands in `{list}[{other}]` already")));
            }
            seen.push(identity);
        }
        Ok(of.to_vec())
    }

    pub(super) fn prunes(&self, prunes: &[Selection]) -> Result<Vec<Selection>, Fault> {
        for (index, of) in prunes.iter().enumerate() {
            let refuse = |fault: String| (format!("prune[{index}]"), None, fault);
            self.prune(of).map_err(refuse)?;
        }
        Ok(prunes.to_vec())
    }

    fn prune(&self, of: &Selection) -> Result<(), String> {
        if !of.cluster.is_empty() {
            let what = "clusters other than the home cluster";
            return Err(format!("{what} are not supported by this version of the host"));
        }
        if of.kind.kind == "*" || of.kind.group == "*" {
            return Err("`kind`: one kind, not any".to_owned());
        }
        let is_cluster_wide =
            self.cluster.resource(&of.kind).is_some_and(|resource| !resource.namespaced);
        if of.namespace.is_some() && is_cluster_wide {
            return Err("`namespace`: objects of this kind have no namespace".to_owned());
        }
        Query::new(of).map_err(|error| format!("`labels`: {error}"))?;
        if of.labels.trim().is_empty() && of.matching.is_empty() {
            return Err(
                "`labels`: `labels` or `matching` must say which objects are meant".to_owned()
            );
        }
        let may = |rule: &&WriteRule| {
            has(rule.verbs, Verbs::DELETE)
                && is_of(&rule.of.kind, &of.kind)
                && covers(&without_any(&rule.of), of)
        };
        if self.description.writes.iter().any(|rule| may(&rule)) {
            return Ok(());
        }
        let group =
            if of.kind.group.is_empty() { String::new() } else { format!("{}/", of.kind.group) };
        Err(format!("`delete` of {} {group}{} is not declared", of.kind.kind, of.kind.version))
    }
}

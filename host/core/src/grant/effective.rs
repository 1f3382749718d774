//! The declarations that are in effect: those of on-demand reconcilers, and of any kind, are so for
//! the selections that are started.

use std::sync::Arc;

use super::{
    Selected,
    declared::{ANY, matches_kind},
};
use crate::contract::{Description, Kind, Reconciler, Selection, WriteRule};

/// Returns a description without on-demand reconcilers, and without reads and writes of any kind.
pub fn always(of: &Description) -> Description {
    let mut description = of.clone();
    description.reconcilers.retain(|reconciler| !reconciler.on_demand);
    description.reads.retain(|read| !is_any(&read.kind));
    description.writes.retain(|rule| !is_any(&rule.of.kind));
    description
}

/// Returns a description with what is in effect for started selections of the home cluster only: a
/// reconciler for each of them, and the reads and writes of any kind, for their kinds.
pub fn while_started(of: &Description, started: &[Arc<Selected>]) -> Description {
    let (mut reconcilers, mut kinds) = (Vec::new(), Vec::<&Arc<Kind>>::new());
    for one in started.iter().filter(|one| one.of.kind.cluster.is_empty()) {
        let declared = of.reconcilers.iter().find(|declared| declared.name == one.by.name());
        let of = one.of.clone();
        reconcilers.extend(declared.map(|declared| Reconciler { of, ..declared.clone() }));
        if !kinds.contains(&&one.of.kind) {
            kinds.push(&one.of.kind);
        }
    }
    let of_kinds = |declared: &Selection| {
        let is_it =
            |kind: &&&Arc<Kind>| is_any(&declared.kind) && matches_kind(&declared.kind, kind);
        let of_kind = |kind: &&Arc<Kind>| Selection { kind: Arc::clone(kind), ..declared.clone() };
        kinds.iter().filter(is_it).map(of_kind).collect::<Vec<_>>()
    };
    let of_rule = |rule: &WriteRule| {
        let of_kinds = of_kinds(&rule.of).into_iter();
        of_kinds.map(|of| WriteRule { of, ..rule.clone() }).collect::<Vec<_>>()
    };
    Description {
        reads: of.reads.iter().flat_map(of_kinds).collect(),
        writes: of.writes.iter().flat_map(of_rule).collect(),
        reconcilers,
        // In effect without any start.
        outbound: Vec::new(),
        ..of.clone()
    }
}

fn is_any(kind: &Kind) -> bool {
    [&kind.kind, &kind.group, &kind.version].into_iter().any(|part| part == ANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contract::Verbs,
        fixture::{all, description, elsewhere, kind, reconciler, v1, whole, write_rule},
        key::ReconcilerId,
        store::Query,
    };

    fn started(of: Selection) -> Arc<Selected> {
        let by = ReconcilerId::on_demand("objects", &of.kind);
        let query = Query::new(&of).unwrap();
        Arc::new(Selected::new(by, of, query))
    }

    #[test]
    fn what_is_declared_of_any_kind_is_in_effect_for_started_kinds_only() {
        let any = || whole(v1("g", "*"));
        let objects = Reconciler { name: "objects".into(), on_demand: true, ..reconciler(any()) };
        let mut of = description(all("Rule"), vec![any(), all("Read")]);
        of.reconcilers.push(objects);
        of.writes =
            vec![write_rule(any(), Verbs::CREATE, &[]), write_rule(all("Made"), Verbs::all(), &[])];
        let kinds = |of: &Description| {
            let (reconcilers, reads, writes) = of.declared();
            let reconciled = reconcilers.iter().map(|one| one.of.kind.kind.clone());
            let read = reads.iter().map(|one| one.kind.kind.clone());
            let written = writes.iter().map(|one| one.of.kind.kind.clone());
            [reconciled.collect::<Vec<_>>(), read.collect(), written.collect()]
        };
        assert_eq!(kinds(&always(&of)), [["Rule"], ["Read"], ["Made"]]);
        let in_a = Selection { namespace: Some("a".into()), ..all("Thing") };
        let remote = whole(elsewhere(kind("Remote"), "a/b/c"));
        let all = [started(in_a.clone()), started(all("Thing")), started(remote)];
        let effective = while_started(&of, &all);
        assert_eq!(kinds(&effective), [&["Thing", "Thing"][..], &["Thing"], &["Thing"]]);
        assert_eq!(effective.reconcilers[0].of, in_a);
        assert_eq!(kinds(&while_started(&of, &[])), [[""; 0]; 3]);
    }
}

//! The declaration of the objects that the processor reconciles, reads and writes.

use mortise_sdk::{
    ClusterName, Description, Kind, Object, Reconciler, Selection, Verbs,
    kubernetes::{Namespace, Secret},
};

use crate::{
    api::{Binding, BoundSchema, Bundle, ClusterBinding, Export, ExportRequest, ServiceNamespace},
    bindings,
    config::Config,
    definition::{self, Definition},
    mark,
    secrets::LABELS,
    start::name,
};

pub(crate) fn describe(config: &Config) -> Result<Description, String> {
    config.check()?;
    let description = Description::new("kube-bind", env!("CARGO_PKG_VERSION"));
    let description = home(description);
    let description = provider(description);
    let description = bound(description, config);
    Ok(claimed(description, config))
}

/// The verbs on copies.
fn all() -> Verbs {
    Verbs::CREATE | Verbs::UPDATE | Verbs::DELETE
}

/// Selects objects of every cluster.
fn anywhere<T: Object>() -> Selection {
    Selection::of::<T>().in_cluster(ClusterName::any())
}

fn home(description: Description) -> Description {
    let bindings = Reconciler::new(name::BINDINGS, Selection::of::<Binding>())
        .finalizer(bindings::FINALIZER)
        .triggered_by_status();
    let secrets = Selection::of::<Secret>().labels(LABELS).fields(["data"]);
    let definitions = || Selection::of::<Definition>().fields(definition::FIELDS);
    description
        .reconciles(bindings)
        .reconciles(Reconciler::new(name::BUNDLES, Selection::of::<Bundle>()).triggered_by_status())
        .reconciles(Reconciler::new(name::SECRETS, secrets))
        .reads(Selection::of::<Secret>().fields(["data", "type"]))
        .reads(Selection::of::<Namespace>().fields(["metadata.name"]))
        .reads(definitions())
        .reads(definitions().matching("spec.group", "*").matching("spec.names.kind", "*"))
        .reads(definitions().matching("metadata.ownerReferences[].uid", "*"))
        .writes(Selection::of::<Binding>(), all())
        .writes(Selection::of::<Definition>(), all())
        .writes(Selection::of::<Namespace>(), Verbs::CREATE)
        .writes_fields(Selection::of::<Secret>(), Verbs::UPDATE, ["data"])
}

fn provider(description: Description) -> Description {
    let on_demand = |name: &str, of: Selection| Reconciler::on_demand(name, of);
    description
        .reconciles(on_demand(name::EXPORTS, anywhere::<Export>()).triggered_by_status())
        .reconciles(on_demand(name::SCHEMAS, anywhere::<BoundSchema>()).triggered_by_status())
        .reconciles(
            on_demand(name::CLUSTER_BINDING, anywhere::<ClusterBinding>()).triggered_by_status(),
        )
        .reconciles(on_demand(name::NAMESPACES, anywhere::<ServiceNamespace>()))
        .reads(anywhere::<ExportRequest>().fields(["status"]))
        .reads(anywhere::<ServiceNamespace>().matching("status.namespace", "*"))
        .reads(anywhere::<Secret>().fields(["data", "type"]))
        .reads(anywhere::<Namespace>().fields(["metadata.name"]))
        .writes(anywhere::<ServiceNamespace>(), Verbs::CREATE | Verbs::DELETE)
}

/// Declares the objects of bound kinds.
fn bound(description: Description, config: &Config) -> Description {
    config.declared_groups().fold(description, |description, group| {
        let home = Selection::new(Kind::new(group, "*", "*"));
        let there = home.clone().in_cluster(ClusterName::any());
        let objects = Reconciler::on_demand(name::of_group(name::OBJECTS, group), home)
            .finalizer(mark::FINALIZER)
            .whole_status();
        let orphans = there.clone().fields(["metadata"]);
        let orphans = Reconciler::on_demand(name::of_group(name::ORPHANS, group), orphans);
        let description = description.reconciles(objects).reconciles(orphans);
        description.reads(there.clone()).writes(there, all())
    })
}

/// Declares the objects that providers may claim.
fn claimed(description: Description, config: &Config) -> Description {
    config.claimable().fold(description, |description, resource| {
        let home = Selection::new(resource.kind());
        let there = home.clone().in_cluster(ClusterName::any());
        let reconciler = |name: &str, of: &Selection| {
            Reconciler::on_demand(format!("{name}{}", resource.resource()), of.clone())
        };
        description
            .reconciles(reconciler(name::CLAIMED, &home))
            .reconciles(reconciler(name::CLAIMED_BACK, &there))
            .reads(there.clone())
            .writes(there, all())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the clusters and groups of which all kinds are declared: to be reconciled, read and
    /// written.
    fn whole_groups(groups: &[&str]) -> [Vec<(String, String)>; 3] {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let all = describe(&Config { groups, ..Config::default() }).unwrap();
        let reconciled = all.reconcilers.into_iter().map(|of| of.of).collect();
        let written = all.writes.into_iter().map(|rule| rule.of).collect();
        [reconciled, all.reads, written].map(|selections: Vec<Selection>| {
            let whole = selections.into_iter().filter(|of| of.kind.kind == "*");
            whole.map(|of| (of.cluster, of.kind.group)).collect()
        })
    }

    #[test]
    fn bound_objects_are_declared_in_the_configured_groups_only() {
        let cases: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["a.example"], &["a.example"]),
            (&["a.example", "b.example"], &["a.example", "b.example"]),
            (&["*"], &["*"]),
            (&["a.example", "*"], &["*"]),
        ];
        for (groups, expected) in cases {
            let of = |clusters: &[&str]| {
                let of = |group: &&str| {
                    let in_group = |cluster: &&str| ((*cluster).to_owned(), (*group).to_owned());
                    clusters.iter().map(in_group).collect::<Vec<_>>()
                };
                expected.iter().flat_map(of).collect::<Vec<_>>()
            };
            assert_eq!(
                whole_groups(groups),
                [of(&["", "*"]), of(&["*"]), of(&["*"])],
                "{groups:?}"
            );
        }
    }
}

use proptest::prelude::*;
use serde_json::json;

use super::{within::outside, *};
use crate::{
    contract::{Reconciler, Selection, Verbs, WriteRule},
    fixture::{elsewhere, fields, object_ref, v1, whole, write_rule},
    path::Path,
    store::Query,
};

fn description(writes: Vec<WriteRule>) -> Description {
    Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![],
        reads: vec![],
        writes,
        grants: Vec::new(),
        outbound: Vec::new(),
        config_schema: None,
    }
}

fn description_of_reads(of: &Selection) -> Description {
    Description { reads: vec![of.clone()], ..description(Vec::new()) }
}

fn grant(writes: Vec<WriteRule>) -> Grant {
    Grant::new(&description(writes)).unwrap()
}

fn config_maps() -> Selection {
    whole(v1("", "ConfigMap"))
}

#[test]
fn a_verb_is_held_only_for_the_objects_that_the_rule_names() {
    let of = Selection { namespace: Some("a".into()), name: Some("n".into()), ..config_maps() };
    let grant = grant(vec![write_rule(of, Verbs::UPDATE, &[])]);
    let config_map = || v1("", "ConfigMap");
    let cases = [
        ("all as declared", Verbs::UPDATE, object_ref(config_map(), Some("a"), "n"), true),
        ("other verb", Verbs::DELETE, object_ref(config_map(), Some("a"), "n"), false),
        (
            "one verb of two",
            Verbs::CREATE | Verbs::UPDATE,
            object_ref(config_map(), Some("a"), "n"),
            false,
        ),
        ("other kind", Verbs::UPDATE, object_ref(v1("", "Secret"), Some("a"), "n"), false),
        ("other group", Verbs::UPDATE, object_ref(v1("x.dev", "ConfigMap"), Some("a"), "n"), false),
        (
            "other version",
            Verbs::UPDATE,
            object_ref(Kind { version: "v2".into(), ..config_map() }, Some("a"), "n"),
            false,
        ),
        ("other namespace", Verbs::UPDATE, object_ref(config_map(), Some("b"), "n"), false),
        ("other name", Verbs::UPDATE, object_ref(config_map(), Some("a"), "m"), false),
        (
            "other cluster",
            Verbs::UPDATE,
            object_ref(elsewhere(config_map(), "x/y/z"), Some("a"), "n"),
            false,
        ),
    ];
    for (case, verbs, to, allowed) in cases {
        assert_eq!(grant.may_write(verbs, &to).is_ok(), allowed, "{case}");
    }
}

#[test]
fn each_verb_has_a_name_and_a_right_of_its_own() {
    for verb in Verbs::all().iter() {
        assert_eq!(verb_names(verb).count(), 1, "{verb:?}");
        let description = description(vec![write_rule(config_maps(), verb, &[])]);
        let served = |_: &Kind| role::Served {
            plural: "configmaps".to_owned(),
            namespaced: true,
            status: false,
        };
        let role = role::Roles::needed(&description, served);
        let read = role::Roles::needed(&description_of_reads(&config_maps()), served);
        assert!(!role.beyond(&read).is_empty(), "{verb:?} needs more than a read");
        assert!(read.beyond(&role).is_empty(), "{verb:?} needs a read, too");
    }
}

#[test]
fn a_bounded_number_of_declared_paths_is_indexed_and_the_others_are_kept() {
    let path = |at: usize| format!("data.p{at:02}");
    let read = |at| {
        let of = Selection { matching: vec![(path(at), "*".into())], ..config_maps() };
        fields(of, &["data.kept"])
    };
    let reads = (0..40).map(read).collect();
    let grant = Grant::new(&Description { reads, ..description(Vec::new()) }).unwrap();
    let demand = grant.demand(&v1("", "ConfigMap"), &Query::within(None, None)).unwrap();
    let of_kind = grant.wanted().iter().filter(|(kind, ..)| kind.kind == "ConfigMap");
    let wanted: Vec<&Wanted> = of_kind.map(|(.., wanted)| wanted).collect();
    let all = Wanted::union_of(wanted).unwrap();
    for wanted in [all, demand.wanted] {
        let indexed: Vec<String> = wanted.matching.iter().map(ToString::to_string).collect();
        assert_eq!(indexed, (0..32).map(path).collect::<Vec<_>>());
        assert!((32..40).all(|at| wanted.fields.covers(&path(at).parse().unwrap())));
        assert!(!wanted.fields.covers(&path(0).parse().unwrap()));
    }
}

#[test]
fn the_verbs_of_one_write_may_come_from_two_rules() {
    let grant = grant(vec![
        write_rule(config_maps(), Verbs::UPDATE, &["data.a"]),
        write_rule(config_maps(), Verbs::CREATE, &[]),
    ]);
    let writable = grant
        .may_write(Verbs::CREATE | Verbs::UPDATE, &object_ref(v1("", "ConfigMap"), Some("a"), "n"))
        .unwrap();
    let sent = json!({"data": {"a": "1", "b": "2"}});
    assert_eq!(
        writable.first_undeclared(Verbs::UPDATE, &sent),
        Some(Undeclared::Field("data.b".into()))
    );
    assert_eq!(writable.first_undeclared(Verbs::CREATE, &sent), None);
}

#[test]
fn a_denial_names_the_declared_writes_of_the_kind() {
    let grant = grant(vec![write_rule(
        Selection { labels: "app=x".into(), ..config_maps() },
        Verbs::UPDATE | Verbs::CREATE,
        &[],
    )]);
    let denied = grant
        .may_write(Verbs::UPDATE | Verbs::DELETE, &object_ref(v1("", "ConfigMap"), Some("a"), "n"))
        .unwrap_err();
    assert_eq!(
        denied.to_string(),
        "`delete` of ConfigMap v1 `a/n` is not declared; declared writes of that kind: `create`, `update` of ConfigMap v1 with labels `app=x`"
    );
    let denied = grant
        .may_write(Verbs::CREATE, &object_ref(v1("apps", "Deployment"), Some("a"), "n"))
        .unwrap_err();
    assert_eq!(
        denied.to_string(),
        "`create` of Deployment apps/v1 `a/n` is not declared; no writes of that kind are declared"
    );
}

#[test]
fn any_kind_of_a_group_or_of_every_group_can_be_declared() {
    let any = |group: &str, version: &str| whole(Kind::home(group, version, "*"));
    let role = object_ref(v1("rbac.authorization.k8s.io", "Role"), Some("a"), "n");
    let cases = [
        ("its group", any("rbac.authorization.k8s.io", "v1"), true),
        ("its group, any version", any("rbac.authorization.k8s.io", "*"), true),
        ("its group, other version", any("rbac.authorization.k8s.io", "v2"), false),
        ("other group", any("apps", "v1"), false),
        ("every group", any("*", "*"), true),
    ];
    for (case, of, allowed) in cases {
        assert_eq!(
            grant(vec![write_rule(of, Verbs::DELETE, &[])]).may_write(Verbs::DELETE, &role).is_ok(),
            allowed,
            "{case}"
        );
    }
}

#[test]
fn only_a_selection_within_a_declared_one_can_be_pruned() {
    let declared = Selection {
        namespace: Some("a".into()),
        labels: "app in (x,y)".into(),
        matching: vec![("spec.host".into(), "h".into())],
        ..config_maps()
    };
    let grant = grant(vec![write_rule(declared.clone(), Verbs::DELETE, &[])]);
    let cases = [
        ("the same", declared.clone(), true),
        ("fewer labels", Selection { labels: "app=x,tier=web".into(), ..declared.clone() }, true),
        ("other labels", Selection { labels: "app=z".into(), ..declared.clone() }, false),
        ("no labels", Selection { labels: String::new(), ..declared.clone() }, false),
        ("all namespaces", Selection { namespace: None, ..declared.clone() }, false),
        ("no matching", Selection { matching: vec![], ..declared.clone() }, false),
        (
            "other matching",
            Selection { matching: vec![("spec.host".into(), "g".into())], ..declared },
            false,
        ),
    ];
    for (case, of, allowed) in cases {
        assert_eq!(grant.may_prune(&of).is_ok(), allowed, "{case}");
    }
}

#[test]
fn a_rule_with_labels_or_matching_holds_for_objects_that_have_them() {
    let of = Selection {
        labels: "app=x".into(),
        matching: vec![("data.k".into(), "v".into())],
        ..config_maps()
    };
    let grant = grant(vec![write_rule(of, Verbs::UPDATE, &[])]);
    let writable =
        grant.may_write(Verbs::UPDATE, &object_ref(v1("", "ConfigMap"), None, "n")).unwrap();
    assert!(!writable.unconditional(Verbs::UPDATE));
    assert!(
        writable.holds(
            Verbs::UPDATE,
            &json!({"metadata": {"labels": {"app": "x"}}, "data": {"k": "v"}})
        )
    );
    assert!(!writable.holds(Verbs::UPDATE, &json!({"metadata": {"labels": {"app": "x"}}})));
    assert!(
        !writable.holds(
            Verbs::UPDATE,
            &json!({"metadata": {"labels": {"app": "y"}}, "data": {"k": "v"}})
        )
    );
    assert!(
        !writable.holds(
            Verbs::DELETE,
            &json!({"metadata": {"labels": {"app": "x"}}, "data": {"k": "v"}})
        )
    );
}

#[test]
fn a_field_outside_of_the_declared_paths_is_found() {
    let paths = [
        "metadata.annotations[\"a.b/c\"]",
        "spec.containers[name=app].image",
        "spec.hosts[]",
        "data",
    ];
    let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
    let cases = [
        ("nothing", json!({}), Some("")),
        ("quoted key", json!({"metadata": {"annotations": {"a.b/c": "1"}}}), None),
        (
            "other key",
            json!({"metadata": {"annotations": {"a.b/c": "1", "x.y": "2"}}}),
            Some("metadata.annotations[\"x.y\"]"),
        ),
        ("element by key", json!({"spec": {"containers": [{"name": "app", "image": "i"}]}}), None),
        ("element alone", json!({"spec": {"containers": [{"name": "app"}]}}), None),
        (
            "other field of it",
            json!({"spec": {"containers": [{"name": "app", "args": []}]}}),
            Some("spec.containers[0].args"),
        ),
        (
            "other element",
            json!({"spec": {"containers": [{"name": "b", "image": "i"}]}}),
            Some("spec.containers[0]"),
        ),
        ("every element", json!({"spec": {"hosts": ["a", "b"]}}), None),
        ("below", json!({"data": {"a": {"b": 1}}}), None),
        ("above", json!({"spec": "x"}), Some("spec")),
        ("map without fields", json!({"spec": {}}), Some("spec")),
        ("list without elements", json!({"spec": {"hosts": []}}), Some("spec.hosts")),
        ("null", json!({"metadata": null}), Some("metadata")),
    ];
    for (case, fields, expected) in cases {
        let expected = expected.map(|place: &str| Undeclared::Field(place.to_owned()));
        assert_eq!(outside(&fields, &paths), expected, "{case}");
    }
}

#[test]
fn a_description_that_cannot_be_read_names_the_place() {
    let with_read =
        |of: Selection| Description { reads: vec![config_maps(), of], ..description(vec![]) };
    let reconciler = |name: &str, of: Selection, finalizers: &[&str]| Reconciler {
        name: name.into(),
        of,
        finalizers: finalizers.iter().map(|&name| name.into()).collect(),
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    };
    let of = |reconcilers: Vec<Reconciler>| Description { reconcilers, ..description(vec![]) };
    let cases = [
        (with_read(Selection { labels: "a in b".into(), ..config_maps() }), "`reads[1].labels`"),
        (
            with_read(Selection {
                matching: vec![("a..b".into(), String::new())],
                ..config_maps()
            }),
            "`reads[1].matching`",
        ),
        (
            with_read(whole(elsewhere(v1("", "ConfigMap"), "a/b/c"))),
            "`reads[1].cluster`: a read of Secret v1 `a/b`, by which a cluster is named, is not declared",
        ),
        (with_read(whole(v1("*", "Role"))), "`reads[1].kind`"),
        (with_read(whole(v1("", ""))), "`reads[1].kind`"),
        (
            description(vec![write_rule(config_maps(), Verbs::UPDATE, &["a["])]),
            "`writes[0].fields`",
        ),
        (of(vec![reconciler("a", config_maps(), &["plain"])]), "`reconcilers[0].finalizers`"),
        (of(vec![reconciler("a", whole(v1("", "*")), &[])]), "`reconcilers[0].of.kind`"),
        (
            of(vec![reconciler("a", config_maps(), &[]), reconciler("a", config_maps(), &[])]),
            "`reconcilers[1].name`",
        ),
    ];
    for (description, place) in cases {
        let message = Grant::new(&description).unwrap_err().to_string();
        assert!(message.starts_with(place), "{message} should name {place}");
    }
}

#[test]
fn a_cluster_is_used_only_if_a_declared_read_selects_its_secret() {
    let secrets = |namespace: &str, name: Option<&str>, labels: &str| Selection {
        namespace: Some(namespace.into()),
        name: name.map(Into::into),
        labels: labels.into(),
        ..fields(whole(v1("", "Secret")), &["metadata.labels"])
    };
    let everywhere = whole(elsewhere(v1("", "ConfigMap"), "*"));
    let grant = |secrets: Selection| {
        let reads = vec![everywhere.clone(), secrets];
        Grant::new(&Description { reads, ..description(vec![]) }).unwrap()
    };
    let in_shop = grant(secrets("shop", None, ""));
    let cases = [
        ("home", "", true),
        ("another namespace", "bank/provider/kubeconfig", false),
        ("a Secret of the namespace", "shop/provider/kubeconfig", true),
        ("another key of it", "shop/provider/other", true),
        ("no name of a cluster", "shop/provider", false),
    ];
    for (case, cluster, allowed) in cases {
        assert_eq!(in_shop.may_connect(cluster).is_ok(), allowed, "{case}");
        let of = object_ref(elsewhere(v1("", "ConfigMap"), cluster), Some("a"), "n");
        assert_eq!(in_shop.may_get(&of, &[]).is_ok(), allowed, "{case}");
    }
    let denied = in_shop.may_connect("bank/provider/kubeconfig").unwrap_err();
    assert_eq!(denied.verb(), "get");
    let message = denied.to_string();
    for part in ["a read of Secret v1 `bank/provider`", "Secret v1 in namespace `shop`"] {
        assert!(message.contains(part), "{message}");
    }
    let labelled = grant(secrets("shop", Some("provider"), "role=provider"));
    let name = "shop/provider/kubeconfig";
    labelled.may_connect(name).unwrap();
    let secret = |role: &str| json!({"metadata": {"labels": {"role": role}}});
    assert!(labelled.selects_secret(name, &secret("provider")));
    assert!(!labelled.selects_secret(name, &secret("other")));
    assert!(labelled.may_connect("shop/other/kubeconfig").is_err());
}

#[test]
fn a_declaration_of_every_cluster_is_of_the_home_cluster_too() {
    let reads = vec![whole(elsewhere(v1("", "ConfigMap"), "*")), whole(v1("", "Secret"))];
    let grant = Grant::new(&Description { reads, ..description(vec![]) }).unwrap();
    for cluster in ["", "shop/provider/kubeconfig"] {
        assert!(grant.names(&elsewhere(v1("", "ConfigMap"), cluster)), "{cluster}");
    }
    assert!(!grant.names(&elsewhere(v1("", "Secret"), "shop/provider/kubeconfig")));
    let watched: Vec<&str> = grant.wanted().iter().map(|(kind, ..)| &*kind.kind).collect();
    assert_eq!(watched, ["Secret"], "watches of every cluster are opened when they are read");
}

#[test]
fn only_objects_of_declared_kinds_may_be_mentioned() {
    let description = Description {
        reads: vec![config_maps()],
        ..description(vec![write_rule(whole(v1("apps", "Deployment")), Verbs::UPDATE, &[])])
    };
    let grant = Grant::new(&description).unwrap();
    assert!(grant.may_mention(&object_ref(v1("", "ConfigMap"), Some("a"), "n")).is_ok());
    assert!(grant.may_mention(&object_ref(v1("apps", "Deployment"), Some("a"), "n")).is_ok());
    assert!(grant.may_mention(&object_ref(v1("", "Secret"), Some("a"), "n")).is_err());
}

fn any_selection() -> impl Strategy<Value = Selection> {
    let name = |names: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(names))
            .prop_map(|name| name.map(str::to_owned))
    };
    let kinds = proptest::sample::select(&["ConfigMap", "Secret", "*"][..]);
    let labels = proptest::sample::select(&["", "app=x", "app in (x,y)"][..]);
    (kinds, name(&["a", "b"]), name(&["n", "m"]), labels).prop_map(
        |(of, namespace, name, labels)| Selection {
            namespace,
            name,
            labels: labels.into(),
            ..whole(v1("", of))
        },
    )
}

fn any_rule() -> impl Strategy<Value = WriteRule> {
    let verbs = proptest::collection::vec(
        proptest::sample::select(&[Verbs::CREATE, Verbs::UPDATE, Verbs::DELETE, Verbs::EVICT][..]),
        1..4,
    );
    let fields = proptest::collection::vec(
        proptest::sample::select(&["data", "data.k", "metadata.labels"][..]),
        0..3,
    );
    (any_selection(), verbs, fields).prop_map(|(of, verbs, fields)| {
        write_rule(of, verbs.into_iter().fold(Verbs::empty(), |all, verb| all | verb), &fields)
    })
}

proptest! {
    #[test]
    fn a_wider_grant_never_denies_more(
        rules in proptest::collection::vec(any_rule(), 0..4),
        more in any_rule(),
        wanted in any_selection(),
        labelled in any::<bool>(),
    ) {
        let narrow = grant(rules.clone());
        let wide = grant(rules.into_iter().chain([more]).collect());
        let sent = json!({"metadata": {"labels": if labelled { json!({"app": "x"}) } else { json!({}) }}, "data": {"k": "v"}});
        let to = object_ref(wanted.kind.clone(), wanted.namespace.as_deref(), wanted.name.as_deref().unwrap_or("n"));
        prop_assert!(narrow.may_prune(&wanted).is_err() || wide.may_prune(&wanted).is_ok());
        for verbs in [Verbs::CREATE, Verbs::CREATE | Verbs::UPDATE, Verbs::DELETE] {
            let Ok(held) = narrow.may_write(verbs, &to) else { continue };
            let more = wide.may_write(verbs, &to).unwrap();
            prop_assert!(held.first_undeclared(verbs, &sent).is_some() || more.first_undeclared(verbs, &sent).is_none());
            prop_assert!(!held.holds(verbs, &sent) || more.holds(verbs, &sent));
            prop_assert!(!held.unconditional(verbs) || more.unconditional(verbs));
        }
    }
}

#[test]
fn many_fields_are_compared_with_many_paths_for_a_bounded_time() {
    let items: Vec<_> = (0..100_000).map(|number| json!({"name": number.to_string()})).collect();
    let path = |number: usize| format!("items[name={number}]").parse::<Path>().unwrap();
    let paths: Vec<Path> = (0..4000).map(path).collect();
    let few = json!({ "items": [{"name": "1"}, {"name": "3999"}] });
    assert_eq!(within::outside(&few, &paths), None);
    let found = within::outside(&json!({ "items": items }), &paths);
    assert!(matches!(found, Some(Undeclared::NotCompared(_))), "{found:?}");
}

#[test]
fn the_fields_of_an_item_are_compared_with_the_keys_of_paths_for_a_bounded_time() {
    let path = |number: usize| format!("items[a{number}=1,b{number}=2].x").parse::<Path>().unwrap();
    let paths: Vec<Path> = (0..100).map(path).chain(["items[]".parse().unwrap()]).collect();
    let of = |fields: usize| {
        let item: serde_json::Map<_, _> =
            (0..fields).map(|at| (at.to_string(), json!(0))).collect();
        within::outside(&json!({ "items": [item] }), &paths)
    };
    assert_eq!(of(1_000), None);
    let found = of(30_000);
    assert!(matches!(found, Some(Undeclared::NotCompared(_))), "{found:?}");
}

#[test]
fn only_the_keys_of_the_selected_element_may_be_sent_along() {
    let paths = [r"rows[][k=v].x", "rows[][l=w][]"].map(|path| path.parse::<Path>().unwrap());
    let cases = [
        (json!([[{"k": "v", "x": 1}]]), None),
        (json!([[{"k": "v", "l": 2, "x": 1}]]), None),
        (json!([[{"k": "v", "m": 2, "x": 1}]]), Some("rows[0][0].m")),
        (json!([[{"k": "v", "x": 1}, [0]]]), Some("rows[0][1]")),
        (json!([[{"k": "w", "x": 1}]]), Some("rows[0][0]")),
        (json!([{"k": "v"}]), Some("rows[0].k")),
    ];
    for (rows, place) in cases {
        let found = within::outside(&json!({ "rows": rows }), &paths);
        assert_eq!(found, place.map(|place| Undeclared::Field(place.to_owned())), "{rows}");
    }
}

#[test]
fn an_on_demand_reconciler_may_be_of_any_kind_and_needs_no_watch_until_it_is_started() {
    let any = whole(Kind::home("*", "*", "*"));
    let any =
        fields(Selection { matching: vec![("spec.by".into(), "*".into())], ..any }, &["spec"]);
    let objects = Reconciler { name: "objects".into(), ..crate::fixture::reconciler(any) };
    let of = |objects: Reconciler| {
        Grant::new(&Description { reconcilers: vec![objects], ..description(Vec::new()) })
    };
    let refused = of(objects.clone()).unwrap_err().to_string();
    assert!(refused.contains("objects of one kind are reconciled"), "{refused}");
    let grant = of(Reconciler { on_demand: true, ..objects }).unwrap();
    assert!(grant.wanted().is_empty());
    let in_a = Selection { namespace: Some("a".into()), ..config_maps() };
    let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
    assert!(
        grant
            .may_get(&object_ref(v1("", "ConfigMap"), Some("a"), "n"), &paths(&["spec.x"]))
            .is_ok()
    );
    assert!(grant.may_list(&fields(in_a.clone(), &["data"]), &Query::new(&in_a).unwrap()).is_err());
    let id = crate::key::ReconcilerId::on_demand("objects", &in_a.kind);
    let selected = |of: &Selection| {
        std::sync::Arc::new(Selected::new(id.clone(), of.clone(), Query::new(of).unwrap()))
    };
    let labelled = Selection { labels: "a=b".into(), ..in_a.clone() };
    let both = [selected(&in_a), selected(&labelled)];
    let started = grant.started(&id, both.into(), Box::default()).unwrap();
    let watches = grant.watches(&started);
    assert_eq!(watches.len(), 1, "labels do not narrow a watch");
    let (kind, scope, wanted) = &watches[0];
    assert_eq!((kind, scope), (&*in_a.kind, &Scope::of(&in_a)));
    assert!(wanted.written && wanted.fields.covers(&"metadata.finalizers".parse().unwrap()));
    assert!(wanted.matching.contains(&"spec.by".parse().unwrap()));
}

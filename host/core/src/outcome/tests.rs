//! Tests that every field of an outcome is refused if its declaration is missing.

mod bounds;
mod start;

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    contract::{
        Deletion as Removal, Description, Event as Said, Manifest as Given, Methods, Mode,
        OutboundRule, Reconciler, Selection, Verbs,
    },
    fixture::{elsewhere, fields, given, matching, object_ref, outcome, v1, whole, write_rule},
};

const UID: &str = "11111111-0000-0000-0000-000000000000";
const READ_UID: &str = "22222222-0000-0000-0000-000000000000";

fn rule_kind() -> Kind {
    v1("x.dev", "Rule")
}

fn pod(name: &str) -> ObjectRef {
    object_ref(v1("", "Pod"), Some("a"), name)
}

fn pod_elsewhere() -> ObjectRef {
    object_ref(elsewhere(v1("", "Pod"), "a/b/c"), Some("a"), "p")
}

fn reconciler() -> Reconciler {
    Reconciler {
        name: "rule".into(),
        of: whole(rule_kind()),
        finalizers: vec!["x.dev/f".into(), "x.dev/g".into()],
        resync: 0,
        triggered_by_status: false,
        min_interval: 0,
        on_demand: false,
        whole_status: false,
    }
}

/// Returns a grant: `ConfigMap`s in namespace `a` may be written at `data` and `metadata`, and, if
/// `app=x`, deleted; deployments may be created only; pods may be evicted; namespaces may be
/// applied.
fn grant() -> Grant {
    let config_maps = || Selection { namespace: Some("a".into()), ..whole(v1("", "ConfigMap")) };
    let description = Description {
        name: "p".into(),
        version: "1".into(),
        reconcilers: vec![reconciler()],
        reads: vec![whole(v1("", "Secret"))],
        writes: vec![
            write_rule(config_maps(), Verbs::CREATE | Verbs::UPDATE, &["data", "metadata"]),
            write_rule(Selection { labels: "app=x".into(), ..config_maps() }, Verbs::DELETE, &[]),
            write_rule(whole(v1("apps", "Deployment")), Verbs::CREATE, &[]),
            write_rule(whole(v1("", "Pod")), Verbs::EVICT, &[]),
            write_rule(whole(v1("", "Namespace")), Verbs::CREATE | Verbs::UPDATE, &[]),
            write_rule(
                whole(v1("apiextensions.k8s.io", "CustomResourceDefinition")),
                Verbs::CREATE | Verbs::UPDATE,
                &[],
            ),
            write_rule(whole(v1("new.dev", "*")), Verbs::CREATE | Verbs::UPDATE, &[]),
        ],
        grants: Vec::new(),
        outbound: vec![OutboundRule {
            origin: "https://api.example.com".into(),
            methods: Methods::GET,
            credentials: vec![fields(config_maps(), &["data.token", "data.keys[].value"])],
            pause: 0,
        }],
        config_schema: None,
    };
    Grant::new(&description).unwrap()
}

fn known_kinds() -> Kinds {
    let mut kinds = Kinds::default();
    let all = [
        (v1("", "ConfigMap"), true),
        (v1("", "Pod"), true),
        (v1("", "Namespace"), false),
        (rule_kind(), true),
    ];
    for (kind, namespaced) in all {
        kinds.insert(Arc::new(Resource {
            plural: format!("{}s", kind.kind.to_lowercase()),
            status: kind.kind != "ConfigMap",
            kind,
            namespaced,
        }));
    }
    kinds
}

fn reconciled() -> Reconciled {
    let object_value = json!({"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "r", "namespace": "a", "uid": UID}});
    Reconciled { reference: object_ref(rule_kind(), Some("a"), "r"), object: Some(object_value) }
}

fn build_for(outcome: &Outcome, reconciled: &Reconciled) -> Result<Plan, Invalid> {
    let read = |of: &ObjectRef| {
        (of.kind.kind == "Secret" && of.name == "read" && of.namespace.as_deref() == Some("a"))
            .then(|| READ_UID.to_owned())
    };
    let limits = Limits { object: 2000, outcome: 5000, account: 50_000, entries: 20 };
    Plan::build(
        outcome,
        &Against {
            grant: &grant(),
            reconciler: &reconciler(),
            reconciled,
            kinds: &known_kinds(),
            read: &read,
            limits,
        },
    )
}

fn build(outcome: &Outcome) -> Result<Plan, Invalid> {
    build_for(outcome, &reconciled())
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "a"}, "data": {"k": "v"}})
}

fn with(pointer: &str, value: Value) -> Value {
    let mut object = config_map();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn apply(object: &Value) -> Outcome {
    Outcome { apply: vec![given(object)], ..outcome() }
}

fn patch(object: &Value) -> Outcome {
    Outcome { patch: vec![given(object)], ..outcome() }
}

fn applied(change: impl FnOnce(&mut Given)) -> Outcome {
    let mut manifest = given(&config_map());
    change(&mut manifest);
    Outcome { apply: vec![manifest], ..outcome() }
}

fn removal(of: ObjectRef) -> Removal {
    Removal { ref_: of, uid: None, propagation: Propagation::Background, grace_period: None }
}

fn delete(of: ObjectRef) -> Outcome {
    Outcome { delete: vec![removal(of)], ..outcome() }
}

fn evict<const N: usize>(of: [ObjectRef; N]) -> Outcome {
    Outcome { evict: of.map(removal).into(), ..outcome() }
}

fn prune(of: Selection) -> Outcome {
    Outcome { prune: vec![of], ..outcome() }
}

fn event(on: Option<ObjectRef>) -> Outcome {
    Outcome {
        events: vec![Said {
            on,
            event_type: EventType::Normal,
            reason: "Done".into(),
            message: String::new(),
        }],
        ..outcome()
    }
}

fn status(text: &str) -> Outcome {
    Outcome { status: Some(text.into()), ..outcome() }
}

fn finalizers(names: &[&str]) -> Outcome {
    Outcome { finalizers: Some(names.iter().map(|&name| name.into()).collect()), ..outcome() }
}

fn owned_by(owner: &Value) -> Value {
    with("/metadata/ownerReferences", json!([owner]))
}

fn owner(kind: &str, api_version: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

/// Returns refused outcomes, and the parts that each message must hold: the place, the object, the
/// field, or the declarations that would have been accepted.
fn refused() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    [refused_manifests(), refused_paths(), refused_owners(), refused_removals(), refused_reports()]
        .into_iter()
        .flatten()
        .collect()
}

#[expect(clippy::too_many_lines, reason = "one flat table")]
fn refused_manifests() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    vec![
        (
            "not JSON",
            applied(|manifest| manifest.object = "{".into()),
            &["`apply[0].object`", "not JSON", "line 1 column 1"],
        ),
        ("not an object", apply(&json!([])), &["`apply[0].object`", "JSON object"]),
        (
            "no name",
            apply(&with("/metadata/name", Value::Null)),
            &["`apply[0].object` (ConfigMap v1 `a/(no name)`)", "`metadata.name`: is required"],
        ),
        ("empty name", apply(&with("/metadata/name", json!(""))), &["`metadata.name`"]),
        (
            "name that leads elsewhere",
            apply(&with("/metadata/name", json!("../../x"))),
            &["`name`", "`a/../../x`"],
        ),
        (
            "namespace that leads elsewhere",
            apply(&with("/metadata/namespace", json!(".."))),
            &["`namespace`"],
        ),
        (
            "no kind",
            apply(&json!({"apiVersion": "v1", "metadata": {"name": "c"}})),
            &["`kind`: is required"],
        ),
        (
            "no apiVersion",
            apply(&json!({"kind": "X", "metadata": {"name": "c"}})),
            &["`apiVersion`: is required"],
        ),
        ("strange apiVersion", apply(&with("/apiVersion", json!("a/b/c"))), &["`apiVersion`"]),
        (
            "no namespace",
            apply(&with("/metadata/namespace", Value::Null)),
            &["`namespace`: objects of this kind live in namespaces"],
        ),
        (
            "a namespace for a cluster-scoped kind",
            apply(
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "namespace": "a"}}),
            ),
            &["`namespace`: objects of this kind have no namespace"],
        ),
        (
            "other cluster",
            applied(|manifest| manifest.cluster = "a/b/c".into()),
            &["cluster `a/b/c`", "is not declared"],
        ),
        (
            "no cluster",
            applied(|manifest| manifest.cluster = "a/../c".into()),
            &[
                "`cluster`: a cluster is \"\", the one that the host runs in, or `namespace/name/key`",
            ],
        ),
        (
            "kind",
            apply(
                &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}),
            ),
            &["Secret v1 `a/s` is not declared"],
        ),
        (
            "kind, patched",
            patch(
                &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}),
            ),
            &["`patch[0].object`", "`update` of Secret v1"],
        ),
        (
            "namespace",
            apply(&with("/metadata/namespace", json!("b"))),
            &["ConfigMap v1 `b/c` is not declared", "in namespace `a`"],
        ),
        (
            "verb",
            apply(
                &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "a"}}),
            ),
            &["`update` of Deployment apps/v1 `a/d` is not declared"],
        ),
        (
            "field",
            apply(&with("/binaryData", json!({"k": "dg=="}))),
            &["ConfigMap v1 `a/c`", "`binaryData` is not declared", "`data`"],
        ),
        (
            "field, patched",
            patch(&with("/immutable", json!(true))),
            &["`immutable` is not declared"],
        ),
        (
            "field, created",
            applied(|manifest| {
                (manifest.mode, manifest.object) =
                    (Mode::Create, with("/immutable", json!(true)).to_string());
            }),
            &["`immutable`"],
        ),
        ("status", apply(&with("/status", json!({}))), &["`status` is refused"]),
        (
            "status, patched",
            patch(&with("/status", json!({}))),
            &["`patch[0].object`", "`status` is refused"],
        ),
        (
            "finalizers",
            apply(&with("/metadata/finalizers", json!([]))),
            &["`metadata.finalizers` is refused"],
        ),
        (
            "finalizers, patched",
            patch(&with("/metadata/finalizers", json!([]))),
            &["`metadata.finalizers` is refused"],
        ),
        (
            "managedFields",
            apply(&with("/metadata/managedFields", json!([]))),
            &["`metadata.managedFields` is refused"],
        ),
        (
            "generateName",
            apply(&with("/metadata/generateName", json!("c-"))),
            &["`metadata.generateName` is refused"],
        ),
        ("uid that is no text", apply(&with("/metadata/uid", json!(1))), &["`metadata.uid`"]),
        (
            "too large",
            applied(|manifest| {
                manifest.object = with("/data", json!({"k": "v".repeat(3000)})).to_string();
            }),
            &["(ConfigMap v1 `a/c`)", "bytes are too large, at most 2000"],
        ),
        (
            "too large together",
            Outcome {
                apply: vec![given(&with("/data", json!({"k": "v".repeat(1500)}))); 4],
                ..outcome()
            },
            &["`outcome`", "at most 5000"],
        ),
        (
            "too many",
            Outcome { apply: vec![given(&config_map()); 21], ..outcome() },
            &["21 entries are too many, at most 20"],
        ),
        (
            "create by patch",
            Outcome {
                patch: vec![Given { mode: Mode::Create, ..given(&config_map()) }],
                ..outcome()
            },
            &["`patch[0]`", "a patch never makes"],
        ),
        (
            "twice",
            Outcome { apply: vec![given(&config_map()); 2], ..outcome() },
            &["`apply[1]` (ConfigMap v1 `a/c`)", "stands in `apply[0]`"],
        ),
        (
            "patched twice",
            Outcome { patch: vec![given(&config_map()); 2], ..outcome() },
            &["`patch[1]`", "`patch[0]`"],
        ),
        (
            "applied and patched",
            Outcome { patch: vec![given(&config_map())], ..apply(&config_map()) },
            &["`patch[0]`", "`apply[0]`"],
        ),
        (
            "applied and deleted",
            Outcome {
                delete: vec![removal(object_ref(v1("", "ConfigMap"), Some("a"), "c"))],
                ..apply(&config_map())
            },
            &["`delete[0]`", "`apply[0]`"],
        ),
    ]
}

fn refused_paths() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    let leave = |path: &str| applied(|manifest| manifest.leave = vec![path.into()]);
    let absent = |path: &str| applied(|manifest| manifest.absent = vec![path.into()]);
    vec![
        ("leave that does not parse", leave("data["), &["`apply[0].leave`", "`data[`"]),
        ("absent that does not parse", absent("data..k"), &["`apply[0].absent`"]),
        (
            "leave that compares a credential",
            leave("data.keys[value=guess].name"),
            &["`apply[0].leave`", "credential `data.keys[].value`"],
        ),
        (
            "absent that compares a credential",
            absent("data.keys[value=guess]"),
            &["`apply[0].absent`", "credential `data.keys[].value`"],
        ),
        (
            "leave that is not declared",
            leave("immutable"),
            &["`immutable` is not declared", "`data`"],
        ),
        ("absent that is not declared", absent("immutable"), &["`immutable` is not declared"]),
        ("absent status", absent("status.state"), &["`status.state` is refused"]),
        (
            "absent finalizers",
            absent("metadata.finalizers[]"),
            &["`metadata.finalizers[]` is refused"],
        ),
        ("leave of the name", leave("metadata.name"), &["`metadata.name` is refused"]),
        ("absent of all metadata", absent("metadata"), &["`metadata` is refused"]),
        ("absent that is sent", absent("data.k"), &["`data.k` is refused: the manifest holds it"]),
        (
            "absent when created",
            applied(|manifest| {
                (manifest.mode, manifest.absent) = (Mode::Create, vec!["data.old".into()]);
            }),
            &["`data.old` is refused"],
        ),
        (
            "leave in a patch",
            Outcome { patch: leave("data.k").apply, ..outcome() },
            &["`patch[0].leave`", "a patch never makes"],
        ),
        (
            "absent owners in a patch",
            Outcome { patch: absent("metadata.ownerReferences").apply, ..outcome() },
            &["`metadata.ownerReferences` is refused"],
        ),
    ]
}

fn refused_owners() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    let reconciled = |uid: &str| owner("Rule", "x.dev/v1", "r", uid);
    vec![
        (
            "owner in a patch",
            patch(&owned_by(&reconciled(UID))),
            &["`metadata.ownerReferences` is refused"],
        ),
        (
            "owner with another uid",
            apply(&owned_by(&reconciled(READ_UID))),
            &["Rule x.dev/v1 `a/r`", "another uid than the reconciled object"],
        ),
        (
            "owner without uid",
            apply(&owned_by(&json!({"apiVersion": "x.dev/v1", "kind": "Rule", "name": "r"}))),
            &["it has no uid"],
        ),
        (
            "owner that was not read",
            apply(&owned_by(&owner("Secret", "v1", "other", READ_UID))),
            &["Secret v1 `a/other`", "was not read in this run"],
        ),
        (
            "owner read with another uid",
            apply(&owned_by(&owner("Secret", "v1", "read", UID))),
            &["was not read in this run with this uid"],
        ),
        (
            "owner that is itself",
            apply(&owned_by(&owner("ConfigMap", "v1", "c", UID))),
            &["does not own itself"],
        ),
        (
            "owner in another namespace",
            apply(
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "ownerReferences": [owner("Rule", "x.dev/v1", "r", UID)]}}),
            ),
            &["lives in another namespace"],
        ),
        (
            "owner without a name",
            apply(&owned_by(&json!({"apiVersion": "v1", "kind": "Secret"}))),
            &["`metadata.ownerReferences[0].name`: is required"],
        ),
        (
            "owners that are no list",
            apply(&with("/metadata/ownerReferences", json!({}))),
            &["`metadata.ownerReferences`: a list"],
        ),
    ]
}

fn refused_removals() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    let config_maps = || Selection {
        namespace: Some("a".into()),
        labels: "app=x".into(),
        ..whole(v1("", "ConfigMap"))
    };
    vec![
        (
            "eviction of no pod",
            evict([object_ref(v1("", "ConfigMap"), Some("a"), "c")]),
            &["`evict[0].ref`", "pods can be evicted"],
        ),
        (
            "deletion",
            delete(pod("p")),
            &["`delete[0].ref`", "`delete` of Pod v1 `a/p` is not declared"],
        ),
        (
            "deletion elsewhere",
            delete(object_ref(v1("", "ConfigMap"), Some("b"), "c")),
            &["`delete` of ConfigMap v1 `b/c`"],
        ),
        ("deletion in another cluster", delete(pod_elsewhere()), &["in cluster `a/b/c`"]),
        ("deletion of a name that leads elsewhere", delete(pod("../x")), &["`name`"]),
        ("twice evicted", evict([pod("p"), pod("p")]), &["`evict[1].ref`", "`evict[0]`"]),
        (
            "prune of everything",
            prune(Selection { labels: String::new(), ..config_maps() }),
            &["`prune[0]`", "`labels` or `matching`"],
        ),
        (
            "prune by a credential",
            prune(matching(config_maps(), "data.token", "Z3Vlc3M=")),
            &["`prune[0]", "credential `data.token`"],
        ),
        (
            "prune of other labels",
            prune(Selection { labels: "app=y".into(), ..config_maps() }),
            &["labels `app=y` is not declared", "with labels `app=x`"],
        ),
        (
            "prune everywhere",
            prune(Selection { namespace: None, ..config_maps() }),
            &["is not declared"],
        ),
        (
            "prune of another kind",
            prune(Selection { kind: v1("", "Secret").into(), ..config_maps() }),
            &["Secret v1", "is not declared"],
        ),
        (
            "prune of any kind",
            prune(Selection { kind: v1("", "*").into(), ..config_maps() }),
            &["one kind, not any"],
        ),
        (
            "prune with labels that do not parse",
            prune(Selection { labels: "a in b".into(), ..config_maps() }),
            &["`labels`"],
        ),
        (
            "prune in another cluster",
            prune(Selection { kind: elsewhere(v1("", "ConfigMap"), "a/b/c"), ..config_maps() }),
            &["in cluster `a/b/c`", "is not declared"],
        ),
    ]
}

fn refused_reports() -> Vec<(&'static str, Outcome, &'static [&'static str])> {
    vec![
        (
            "finalizer",
            finalizers(&["x.dev/other"]),
            &["`finalizers` (Rule x.dev/v1 `a/r`)", "`x.dev/other` is not declared", "`x.dev/f`"],
        ),
        ("finalizer twice", finalizers(&["x.dev/f", "x.dev/f"]), &["stands in the list once"]),
        ("status that is not JSON", status("{"), &["`status` (Rule x.dev/v1 `a/r`)", "not JSON"]),
        ("status that is no object", status("\"Ready\""), &["a status is a JSON object"]),
        (
            "status of another object",
            status(
                r#"{"apiVersion":"x.dev/v1","kind":"Rule","metadata":{"name":"other","namespace":"a"},"status":{}}"#,
            ),
            &["the status of another object", "`a/other`"],
        ),
        (
            "status that is too large",
            status(&json!({"s": "s".repeat(3000)}).to_string()),
            &["`status`", "too large"],
        ),
        (
            "event on another object",
            event(Some(object_ref(v1("", "Service"), Some("a"), "s"))),
            &["`events[0].on`", "Service v1 `a/s` is not declared"],
        ),
        ("event in another cluster", event(Some(pod_elsewhere())), &["in cluster `a/b/c`"]),
        (
            "event without a reason",
            Outcome {
                events: vec![Said {
                    on: None,
                    event_type: EventType::Normal,
                    reason: String::new(),
                    message: "m".into(),
                }],
                ..outcome()
            },
            &["`events[0]`", "`reason`"],
        ),
    ]
}

#[test]
fn undeclared_and_invalid_outcomes_are_refused_with_the_reason() {
    for (case, outcome, says) in refused() {
        let message = build(&outcome).map(|plan| format!("{plan:?}")).expect_err(case).to_string();
        for part in says {
            assert!(message.contains(part), "{case}: `{message}` should say `{part}`");
        }
    }
}

#[test]
fn refused_outcomes_stay_refused_with_valid_parts_added() {
    for (case, refused, _) in refused() {
        let mut company = refused;
        company.events.push(Said {
            on: None,
            event_type: EventType::Normal,
            reason: "Done".into(),
            message: String::new(),
        });
        company.finalizers.get_or_insert_with(|| vec!["x.dev/f".into()]);
        assert!(build(&company).is_err(), "{case}");
    }
}

#[test]
fn a_declared_outcome_becomes_a_plan() {
    let owners =
        json!([owner("Rule", "x.dev/v1", "r", UID), owner("Secret", "v1", "read", READ_UID)]);
    let mut outcome = apply(&with("/metadata/ownerReferences", owners));
    outcome.apply.push(Given { mode: Mode::Create, ..given(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "a"}, "spec": {}})) });
    outcome.patch = vec![Given {
        absent: vec!["data.old".into()],
        ..given(&with("/metadata/name", json!("p")))
    }];
    outcome.evict = vec![removal(pod("p"))];
    outcome.delete = vec![removal(object_ref(v1("", "ConfigMap"), Some("a"), "d"))];
    outcome.prune = vec![Selection {
        namespace: Some("a".into()),
        labels: "app=x,b=c".into(),
        ..whole(v1("", "ConfigMap"))
    }];
    outcome.finalizers = Some(vec!["x.dev/g".into()]);
    outcome.events = event(Some(object_ref(v1("", "Secret"), Some("a"), "s"))).events;
    outcome.requeue = Requeue::After(5);
    let plan = build(&outcome).unwrap();
    assert_eq!(
        (
            plan.apply.len(),
            plan.patch.len(),
            plan.evict.len(),
            plan.delete.len(),
            plan.prune.len(),
            plan.events.len()
        ),
        (2, 1, 1, 1, 1, 1)
    );
    assert_eq!(
        plan.finalizers,
        Some(Finalizers { wanted: vec!["x.dev/g".into()], released: vec!["x.dev/f".into()] })
    );
    assert!(plan.delete[0].within.is_some(), "whether it has the declared labels is to be seen");
    assert!(
        plan.apply
            .iter()
            .all(|manifest| manifest.made_owners.is_empty() && manifest.within.is_none())
    );
    assert_eq!(plan.requeue.0, Requeue::After(5));
}

#[test]
fn a_status_comes_alone_or_in_an_object_that_names_the_reconciled_one() {
    let texts = [
        r#"{"state": "Ready"}"#,
        r#"{"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "r", "namespace": "a"}, "status": {"state": "Ready"}}"#,
        r#"{"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "r"}, "status": {"state": "Ready"}}"#,
    ];
    for text in texts {
        assert_eq!(build(&status(text)).unwrap().status, Some(json!({"state": "Ready"})), "{text}");
    }
}

#[test]
fn an_object_that_is_gone_holds_neither_status_nor_finalizers() {
    let gone = Reconciled { object: None, ..reconciled() };
    for (case, outcome) in [("status", status("{}")), ("finalizers", finalizers(&["x.dev/f"]))] {
        let message = build_for(&outcome, &gone).expect_err(case).to_string();
        assert!(message.contains("there is no object"), "{message}");
    }
    assert!(build_for(&finalizers(&[]), &gone).is_ok());
}

#[test]
fn a_status_is_that_of_the_reconciled_object_in_whichever_cluster_that_is() {
    let reference = object_ref(elsewhere(rule_kind(), "a/b/c"), Some("a"), "r");
    let there = Reconciled { reference, ..reconciled() };
    let text = |name: &str| {
        format!(
            r#"{{"apiVersion":"x.dev/v1","kind":"Rule","metadata":{{"name":"{name}","namespace":"a"}},"status":{{}}}}"#
        )
    };
    assert!(build_for(&status(&text("r")), &there).is_ok());
    let error = build_for(&status(&text("other")), &there).unwrap_err().to_string();
    assert!(error.contains("the status of another object"), "{error}");
}

#[test]
fn an_owner_of_the_same_outcome_may_come_without_uid() {
    let mut owner = config_map();
    owner["metadata"]["name"] = json!("owner");
    let dependent = owned_by(&json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}));
    let plan =
        build(&Outcome { apply: vec![given(&owner), given(&dependent)], ..outcome() }).unwrap();
    assert_eq!(plan.apply[1].made_owners, [(0, plan.apply[0].to.clone())]);
}

#[test]
fn kinds_that_the_same_outcome_defines_are_known() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.new.dev"},
        "spec": {"group": "new.dev", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"}, "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]},
    });
    let thing = |namespace: Value| json!({"apiVersion": "new.dev/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": namespace}});
    let with_definition = |object: &Value| {
        build(&Outcome { apply: vec![given(object), given(&definition)], ..outcome() })
    };
    let plan = with_definition(&thing(Value::Null)).unwrap();
    assert_eq!(plan.apply[0].to.kind.kind, "CustomResourceDefinition", "it is written first");
    assert!(
        with_definition(&thing(json!("a"))).unwrap_err().to_string().contains("have no namespace")
    );
    assert!(build(&apply(&thing(json!("a")))).is_ok(), "what is not known cannot be judged");
}

#[test]
fn within_apply_the_order_is_by_class_then_as_given() {
    let named = |kind: &str, name: &str| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        if kind != "Namespace" {
            object["metadata"]["namespace"] = json!("a");
        }
        given(&object)
    };
    let thing = given(
        &json!({"apiVersion": "new.dev/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "a"}}),
    );
    let apply =
        vec![thing, named("ConfigMap", "b"), named("ConfigMap", "a"), named("Namespace", "n")];
    let plan = build(&Outcome { apply, ..outcome() }).unwrap();
    assert_eq!(
        plan.apply.iter().map(|manifest| manifest.to.name.as_str()).collect::<Vec<_>>(),
        ["n", "b", "a", "t"]
    );
    let classes = [
        (v1("", "Namespace"), Class::Namespace),
        (v1("apiextensions.k8s.io", "CustomResourceDefinition"), Class::Definition),
        (v1("rbac.authorization.k8s.io", "Role"), Class::Access),
        (v1("", "ServiceAccount"), Class::Access),
        (v1("", "Secret"), Class::Configuration),
        (v1("apps", "Deployment"), Class::Workload),
        (v1("batch", "Job"), Class::Workload),
        (v1("", "Service"), Class::Other),
        (v1("x.dev", "ConfigMap"), Class::Other),
    ];
    assert!(classes.is_sorted_by_key(|(_, class)| *class));
    for (kind, class) in classes {
        assert_eq!(Class::of(&kind), class, "{kind:?}");
    }
}

#[test]
fn only_report_drops_writes_and_keeps_status_and_requeue() {
    let mut outcome =
        Outcome { status: Some("{\"state\":\"Error\"}".into()), ..apply(&config_map()) };
    outcome.finalizers = Some(vec![]);
    outcome.prune = vec![Selection {
        namespace: Some("a".into()),
        labels: "app=x".into(),
        ..whole(v1("", "ConfigMap"))
    }];
    outcome.requeue = Requeue::Never;
    let plan = build(&outcome).unwrap().only_report();
    assert!(plan.apply.is_empty() && plan.prune.is_empty() && plan.finalizers.is_none());
    assert_eq!((plan.status, plan.requeue.0), (Some(json!({"state": "Error"})), Requeue::Never));
}

#[test]
fn paths_cut_a_manifest_in_two() {
    let object = json!({"spec": {"replicas": 3, "template": {"containers": [{"name": "a", "image": "i", "args": ["x"]}, {"name": "b", "image": "j"}]}}, "data": {"k": "v"}});
    let paths: Vec<Path> =
        ["spec.replicas", "spec.template.containers[name=a].image", "data.k", "none.at.all"]
            .iter()
            .map(|path| path.parse().unwrap())
            .collect();
    assert_eq!(
        place::without(object.clone(), &paths),
        json!({"spec": {"template": {"containers": [{"name": "a", "args": ["x"]}, {"name": "b", "image": "j"}]}}})
    );
    assert_eq!(
        place::only(&object, &paths),
        json!({"spec": {"replicas": 3, "template": {"containers": [{"name": "a", "image": "i"}]}}, "data": {"k": "v"}})
    );
}

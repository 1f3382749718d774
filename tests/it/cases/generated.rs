//! Generated cases: the puppet carries out scripts in the objects, natively and as a component, and
//! both must end in the same state.
//!
//! The cases are always the same; `PROPTEST_CASES` sets their number.

use std::path::PathBuf;

use mortise::commands::test::run_case;
use mortise_sdk::testing::case::{self, Case, Step};
use proptest::{
    prelude::*,
    sample::subsequence,
    strategy::ValueTree as _,
    test_runner::{RngAlgorithm, TestError, TestRng, TestRunner},
};
use serde_json::{Value, json};
use test_guest_puppet::Puppet;

const FOLDER: &str = "tests/guests/puppet";
const FINALIZER: &str = "example.com/held";
/// Number of cases, unless `PROPTEST_CASES` is set.
const CASES: u32 = 48;
/// Number of cases that run natively and as a component, unless `PROPTEST_CASES` is set: both are
/// carried out by the same code, and only the border to WebAssembly lies between them.
const COMPARED: u32 = 12;

fn kind(group: &str, kind: &str) -> Value {
    json!({"group": group, "version": "v1", "kind": kind})
}

fn config_map() -> Value {
    kind("", "ConfigMap")
}

fn reference(name: &str) -> Value {
    json!({"cluster": "", "kind": config_map(), "namespace": "shop", "name": name})
}

fn selection(kind: &Value, labels: &str) -> Value {
    json!({
        "cluster": "", "kind": kind, "namespace": null, "name": null, "labels": labels, "matching": [], "fields": [],
    })
}

/// Returns the puppet's configuration: it reconciles Things, and reads and writes `ConfigMaps`,
/// Services and Parts.
fn config() -> Value {
    let rule = |kind: Value| json!({"of": selection(&kind, ""), "verbs": ["create", "update", "delete"], "fields": []});
    let evicts = json!({"of": selection(&kind("", "Pod"), ""), "verbs": ["evict"], "fields": []});
    json!({"description": {
        "name": "puppet", "version": "1", "grants": [], "config_schema": null,
        "reconcilers": [{
            "name": "things", "of": selection(&kind("example.com", "Thing"), ""), "finalizers": [FINALIZER],
            "resync": 0, "triggered_by_status": false, "min_interval": 0,
        }],
        "reads": [selection(&config_map(), "")],
        "writes": [rule(config_map()), rule(kind("", "Service")), rule(kind("example.com", "Part")), evicts],
    }})
}

/// Returns the definitions of Things, with a status, and of Parts, with lists of each type.
pub(crate) fn crds() -> Vec<Value> {
    let crd = |kind: &str, spec: Value| {
        let plural = format!("{}s", kind.to_lowercase());
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }}},
                }}],
            },
        })
    };
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let with = |key: &str, value: Value| {
        let mut list = texts.clone();
        list[key] = value;
        list
    };
    let parts = json!({"type": "object", "properties": {
        "atomic": texts, "set": with("x-kubernetes-list-type", json!("set")),
        "size": {"type": "integer", "default": 3, "maximum": 9},
        "items": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "value": {"type": "string"},
            }},
        },
    }});
    vec![crd("Thing", json!({"type": "object"})), crd("Part", parts)]
}

// === strategies ===

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

/// Generates an object with some of these keys, each with one of two values.
fn texts(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(keys, 0..=keys.len()).prop_flat_map(|keys| {
        let values = prop::collection::vec(word(&["v", "w"]), keys.len());
        (Just(keys), values).prop_map(|(keys, values)| {
            Value::Object(
                keys.into_iter()
                    .map(str::to_owned)
                    .zip(values.into_iter().map(Value::from))
                    .collect(),
            )
        })
    })
}

fn metadata(name: &str, labels: &Value) -> Value {
    json!({"name": name, "namespace": "shop", "labels": labels})
}

fn applied_config_map() -> impl Strategy<Value = Value> {
    (word(&["a", "b", "shared"]), texts(&["app", "tier"]), texts(&["k", "l", "m"])).prop_map(
        |(name, labels, data)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&name, &labels), "data": data})
        },
    )
}

fn applied_part() -> impl Strategy<Value = Value> {
    let names = || subsequence(&["x", "y", "z"][..], 0..=3);
    (word(&["p", "q"]), texts(&["app"]), names(), names(), names(), prop::option::of(1..12_u32)).prop_map(
        |(name, labels, atomic, set, items, size)| {
            let items: Vec<Value> =
                items.iter().map(|name| json!({"name": name, "value": atomic.len().to_string()})).collect();
            let mut spec = json!({"atomic": atomic, "set": set, "items": items});
            if let Some(size) = size {
                spec["size"] = size.into();
            }
            json!({"apiVersion": "example.com/v1", "kind": "Part", "metadata": metadata(&name, &labels), "spec": spec})
        },
    )
}

fn applied_service() -> impl Strategy<Value = Value> {
    (word(&["s"]), texts(&["app"]), subsequence(&[80, 81, 82][..], 0..=3)).prop_map(|(name, labels, ports)| {
        let ports: Vec<Value> =
            ports.iter().map(|port| json!({"port": port, "name": format!("port-{port}")})).collect();
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(&name, &labels), "spec": {"ports": ports}})
    })
}

/// Generates owners: created by the same outcome, of another incarnation, not read.
fn owners() -> impl Strategy<Value = Option<Value>> {
    let owner = |kind: &str, name: &str, uid: Option<&str>| {
        let version = if kind == "Thing" { "example.com/v1" } else { "v1" };
        let mut owner = json!({"apiVersion": version, "kind": kind, "name": name});
        if let Some(uid) = uid {
            owner["uid"] = json!(uid);
        }
        json!([owner])
    };
    prop_oneof![
        6 => Just(None),
        2 => Just(Some(owner("ConfigMap", "a", None))),
        1 => Just(Some(owner("ConfigMap", "shared", Some("")))),
        1 => Just(Some(owner("Thing", "one", Some("other")))),
        1 => Just(Some(json!([]))),
    ]
}

fn manifest() -> impl Strategy<Value = Value> {
    let object =
        prop_oneof![3 => applied_config_map(), 2 => applied_part(), 1 => applied_service()];
    let mode = prop_oneof![5 => Just("Apply"), 1 => Just("Create")];
    let leave = prop_oneof![
        3 => Just(json!([])), 1 => Just(json!(["data.k"])), 1 => Just(json!(["metadata.labels.app"])),
        1 => Just(json!(["spec.items[name=x].value"])),
    ];
    let absent = prop_oneof![4 => Just(json!([])), 1 => Just(json!(["data.n"])), 1 => Just(json!(["metadata.labels.old"]))];
    (object, mode, leave, absent, owners()).prop_map(|(mut object, mode, leave, absent, owners)| {
        if let Some(owners) = owners {
            object["metadata"]["ownerReferences"] = owners;
        }
        json!({"cluster": "", "object": object.to_string(), "mode": mode, "leave": leave, "absent": absent})
    })
}

fn patch() -> impl Strategy<Value = Value> {
    (prop_oneof![4 => Just("shared"), 1 => Just("nowhere")], texts(&["k", "n"])).prop_map(|(name, annotations)| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        });
        json!({"cluster": "", "object": object.to_string(), "mode": "Apply", "leave": [], "absent": []})
    })
}

fn deletion() -> impl Strategy<Value = Value> {
    (word(&["old", "nowhere"]), prop::option::of(Just("another"))).prop_map(|(name, uid)| {
        json!({"ref_": reference(&name), "uid": uid, "propagation": "Background", "grace_period": null})
    })
}

/// Generates the eviction of a pod that may go, of one that its budget keeps, or of a missing one.
fn eviction() -> impl Strategy<Value = Value> {
    word(&["free", "kept", "nowhere"]).prop_map(|name| {
        let pod =
            json!({"cluster": "", "kind": kind("", "Pod"), "namespace": "shop", "name": name});
        json!({"ref_": pod, "uid": null, "propagation": "Background", "grace_period": null})
    })
}

fn prune() -> impl Strategy<Value = Value> {
    let kinds = prop_oneof![Just(config_map()), Just(kind("example.com", "Part"))];
    (kinds, word(&["app=v", "tier", "!none"])).prop_map(|(kind, labels)| selection(&kind, &labels))
}

fn status() -> impl Strategy<Value = Option<String>> {
    prop::option::of(texts(&["state", "reason"]).prop_map(|status| status.to_string()))
}

fn event() -> impl Strategy<Value = Value> {
    (word(&["Made", "Lost"]), word(&["one", "two"])).prop_map(|(reason, message)| {
        json!({"on": null, "event_type": "Normal", "reason": reason, "message": message})
    })
}

fn few<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(of, 0..3)
}

fn outcome() -> impl Strategy<Value = Value> {
    let requeue =
        prop_oneof![Just(json!("ByDefault")), Just(json!("Never")), Just(json!({"After": 7000}))];
    let finalizers = prop_oneof![Just(json!(null)), Just(json!([])), Just(json!([FINALIZER]))];
    let evictions = prop_oneof![3 => Just(Vec::new()), 1 => few(eviction())];
    let writes = (few(manifest()), few(patch()), evictions, few(deletion()), few(prune()));
    (writes, status(), few(event()), requeue, finalizers).prop_map(
        |((apply, patch, evict, delete, prune), status, events, requeue, finalizers)| {
            json!({"outcome": {
                "apply": apply, "patch": patch, "evict": evict, "delete": delete, "prune": prune, "status": status,
                "events": events, "requeue": requeue, "finalizers": finalizers, "children": [],
            }})
        },
    )
}

fn failure() -> impl Strategy<Value = Value> {
    let retry =
        prop_oneof![Just(json!("BackOff")), Just(json!("OnChange")), Just(json!({"After": 9000}))];
    (status(), few(event()), retry).prop_map(|(status, events, retry)| {
        json!({"failure": {"message": "as it was told", "status": status, "events": events, "retry": retry}})
    })
}

/// Generates the puppet's script for one Thing.
fn script() -> impl Strategy<Value = String> {
    let reads = prop_oneof![
        Just(json!([])),
        Just(json!([{"get": {"ref": reference("shared")}}])),
        Just(json!([{"list": {"of": selection(&config_map(), "app")}}])),
    ];
    let returns = prop_oneof![6 => outcome(), 1 => failure()];
    // The script's reaction to refused writes.
    let refused = prop_oneof![3 => Just(json!(null)), 1 => outcome(), 1 => failure()];
    (reads, returns, refused).prop_map(|(reads, returns, refused)| {
        json!({"reads": reads, "returns": returns, "refused": refused}).to_string()
    })
}

fn thing(name: &str, script: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "shop", "annotations": {"script": script}});
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata})
}

/// Generates refusals of writes, until the next step or once.
fn refusals() -> impl Strategy<Value = Value> {
    let of = word(&[
        "ConfigMap/shop/*",
        "ConfigMap/shop/shared",
        "Thing/shop/one",
        "Part/shop/*",
        "*/*/*",
    ]);
    let verb = word(&["any", "create", "apply", "status", "delete", "evict"]);
    let code = prop_oneof![Just(403), Just(422)];
    (of, verb, code, prop::option::of(Just(1))).prop_map(|(write, verb, code, times)| {
        json!([{"write": write, "verb": verb, "code": code, "message": "no", "times": times}])
    })
}

/// Generates a step: users change a Thing or a produced object, time advances, writes are refused,
/// a kind is missing.
fn step() -> impl Strategy<Value = Value> {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": "shop"}});
    let (taken, edited) = (config_map.clone(), config_map);
    prop_oneof![
        3 => script().prop_map(|script| json!({"patch": [thing("one", &script)]})),
        2 => (script(), refusals()).prop_map(|(script, refuse)| json!({"patch": [thing("two", &script)], "refuse": refuse})),
        1 => prop_oneof![Just(json!([])), Just(json!(["parts.example.com"]))].prop_map(|kinds| json!({"missing": kinds})),
        1 => Just(json!({"delete": ["Thing/shop/one"]})),
        1 => texts(&["k", "l"]).prop_map(move |data| {
            let mut object = taken.clone();
            object["data"] = data;
            json!({"apply": [object]})
        }),
        1 => texts(&["app", "old"]).prop_map(move |labels| {
            let mut object = edited.clone();
            object["metadata"]["labels"] = labels;
            json!({"patch": [object]})
        }),
        1 => Just(json!({"after": "8s"})),
        1 => Just(json!({"delete": ["ConfigMap/shop/shared"], "apply": [{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": "shop"},
        }]})),
    ]
}

/// Returns a pod that may be evicted, and one that its budget keeps.
fn pods() -> Vec<Value> {
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"pod": name}},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept", "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"pod": "kept"}}},
    });
    vec![pod("free"), pod("kept"), budget]
}

/// Returns a runner whose cases are always the same.
fn runner(cases: u32) -> TestRunner {
    let default = ProptestConfig::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(cases, |_| default.cases);
    let config = ProptestConfig { cases, failure_persistence: None, ..default };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Returns the generated cases.
pub(crate) fn all() -> Vec<Case> {
    let mut runner = runner(CASES);
    let count = runner.config().cases;
    (0..count).map(|_| cases().new_tree(&mut runner).unwrap().current()).collect()
}

fn a_case(objects: Vec<Value>, steps: Vec<Step>) -> Case {
    Case {
        name: "generated".to_owned(),
        folder: PathBuf::new(),
        objects,
        config: config().to_string(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        only: None,
        validate: true,
        steps,
        expected: None,
    }
}

fn cases() -> impl Strategy<Value = Case> {
    (script(), script(), prop::collection::vec(step(), 0..4)).prop_map(|(one, two, steps)| {
        let shared = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "theirs", "n": "x"},
            "metadata": {"name": "shared", "namespace": "shop", "labels": {"app": "v", "old": "y"}},
        });
        let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "shop"}});
        let steps = std::iter::once(Step::default())
            .chain(steps.into_iter().map(|step| serde_json::from_value(step).unwrap()));
        let mut objects = vec![thing("one", &one), thing("two", &two), shared, old];
        objects.extend(pods());
        a_case(objects, steps.collect())
    })
}

/// Returns a case of two Things in a conflict without end: one applies a field that the other
/// removes.
pub(super) fn restless() -> Case {
    let object = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}, "data": data});
    let manifest = |object: Value, absent: Value| json!({"cluster": "", "object": object.to_string(), "mode": "Apply", "leave": [], "absent": absent});
    let script = |apply: Vec<Value>, patch: Vec<Value>| {
        let outcome = json!({
            "apply": apply, "patch": patch, "evict": [], "delete": [], "prune": [], "status": null, "events": [],
            "requeue": "ByDefault", "finalizers": null, "children": [],
        });
        let reads = json!([{"get": {"ref": reference("a")}}]);
        json!({"reads": reads, "returns": {"outcome": outcome}}).to_string()
    };
    let gives = script(vec![manifest(object(json!({"k": "v"})), json!([]))], Vec::new());
    let takes = script(Vec::new(), vec![manifest(object(json!({})), json!(["data.k"]))]);
    a_case(vec![thing("one", &gives), thing("two", &takes)], vec![Step::default()])
}

#[test]
fn generated_outcomes_end_the_same_natively_and_as_a_component() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let component = runtime.block_on(super::component(FOLDER));
    let crds = crds();
    let result = runner(COMPARED).run(&cases(), |case| {
        let native = case::run::<Puppet>(&case, &crds, &[]).map(|stage| super::text(&stage));
        let real = runtime.block_on(run_case(component.clone(), case, &crds));
        let real = real.map(|stage| super::text(&stage)).map_err(|error| format!("{error:#}"));
        prop_assert_eq!(native, real, "natively (left) and as a component (right)");
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => panic!("{reason}\nof {}", shown(&case)),
        Err(error) => panic!("{error}"),
    }
}

/// Shows the parts in which generated cases differ.
fn shown(case: &Case) -> String {
    let script = |object: &Value| {
        let script = object.pointer("/metadata/annotations/script")?.as_str()?.to_owned();
        Some(format!("{}: {script}", object["metadata"]["name"]))
    };
    let steps = case.steps.iter().map(|step| format!("{step:?}"));
    let lines: Vec<String> = case.objects.iter().filter_map(script).chain(steps).collect();
    lines.join("\n")
}

/// Checks that the generated cases are worth comparing: most outcomes are valid and have an effect.
#[test]
fn most_generated_cases_write_something() {
    let mut runner = TestRunner::deterministic();
    let crds = crds();
    let wrote = (0..24).filter(|_| {
        let case = cases().new_tree(&mut runner).unwrap().current();
        let wrote = |stage: case::Stage| {
            stage.documents().iter().any(|document| !document.objects.is_empty())
        };
        case::run::<Puppet>(&case, &crds, &[]).is_ok_and(wrote)
    });
    assert!(wrote.count() > 12);
}

//! Generated cases: the puppet does what the objects say, on both hosts, and both must end in the same state.
//!
//! Empty maps and lists are not generated: to apply one twice leads to another object than once, and the stub applies more often.
//! The cases are always the same; `PROPTEST_CASES` says how many.

use std::path::PathBuf;

use mortise_host::test::run_case;
use mortise_sdk::testing::case::{self, Case, Step};
use proptest::{
    prelude::*,
    sample::subsequence,
    strategy::ValueTree as _,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use test_guest_puppet::Puppet;

const FOLDER: &str = "tests/guests/puppet";
const FINALIZER: &str = "example.com/held";
/// How many cases are run, unless the environment says otherwise.
const CASES: u32 = 48;

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

/// What the puppet declares: it reconciles Things, and reads and writes `ConfigMaps`, Services and Parts.
fn config() -> Value {
    let rule = |kind: Value| json!({"of": selection(&kind, ""), "verbs": ["create", "update", "delete"], "fields": []});
    json!({"description": {
        "name": "puppet", "version": "1", "config_schema": null,
        "reconcilers": [{
            "name": "things", "of": selection(&kind("example.com", "Thing"), ""), "finalizers": [FINALIZER],
            "resync": 0, "triggered_by_status": false, "min_interval": 0,
        }],
        "reads": [selection(&config_map(), "")],
        "writes": [rule(config_map()), rule(kind("", "Service")), rule(kind("example.com", "Part"))],
    }})
}

/// Things, with a status; Parts, with lists of each type.
fn crds() -> Vec<Value> {
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

// === what is generated ===

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

/// Some of these keys with one of two values.
fn texts(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    subsequence(keys, 1..=keys.len()).prop_flat_map(|keys| {
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
    let names = || subsequence(&["x", "y", "z"][..], 1..=3);
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
    (word(&["s"]), texts(&["app"]), subsequence(&[80, 81, 82][..], 1..=3)).prop_map(|(name, labels, ports)| {
        let ports: Vec<Value> =
            ports.iter().map(|port| json!({"port": port, "name": format!("port-{port}")})).collect();
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(&name, &labels), "spec": {"ports": ports}})
    })
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
    (object, mode, leave, absent).prop_map(|(object, mode, leave, absent)| {
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
    let writes = (few(manifest()), few(patch()), few(deletion()), few(prune()));
    (writes, status(), few(event()), requeue, finalizers).prop_map(
        |((apply, patch, delete, prune), status, events, requeue, finalizers)| {
            json!({"outcome": {
                "apply": apply, "patch": patch, "evict": [], "delete": delete, "prune": prune, "status": status,
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

/// What one Thing has the puppet do.
fn script() -> impl Strategy<Value = String> {
    let reads = prop_oneof![
        Just(json!([])),
        Just(json!([{"get": {"ref": reference("shared")}}])),
        Just(json!([{"list": {"of": selection(&config_map(), "app")}}])),
    ];
    let returns = prop_oneof![6 => outcome(), 1 => failure()];
    (reads, returns)
        .prop_map(|(reads, returns)| json!({"reads": reads, "returns": returns}).to_string())
}

fn thing(name: &str, script: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "shop", "annotations": {"script": script}});
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata})
}

/// Something that happens: people change a Thing or what was made, time moves on, writes are refused.
fn step() -> impl Strategy<Value = Value> {
    let refuse =
        json!([{"write": "ConfigMap/shop/*", "verb": "apply", "code": 403, "message": "no"}]);
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": "shop"}});
    let (taken, edited) = (config_map.clone(), config_map);
    prop_oneof![
        3 => script().prop_map(|script| json!({"patch": [thing("one", &script)]})),
        1 => script().prop_map(move |script| json!({"patch": [thing("two", &script)], "refuse": refuse})),
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
        a_case(vec![thing("one", &one), thing("two", &two), shared, old], steps.collect())
    })
}

/// Two Things that never agree: one applies a field that the other takes away wherever it sees it.
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

/// What is told of an outcome that is not valid is in the words of each host.
fn told(text: &str) -> String {
    const INVALID: &str = "the outcome is not valid";
    let line = |line: &str| match line.split_once(INVALID) {
        Some((before, _)) => format!("{before}{INVALID}"),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What is compared: what it led to, or that it comes to no rest.
fn end(end: Result<String, String>) -> String {
    match end {
        Ok(text) => told(&text),
        Err(error) if error.starts_with("no rest: ") => "no rest".to_owned(),
        Err(error) => error,
    }
}

#[test]
fn generated_outcomes_end_the_same_natively_and_as_a_component() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let component = runtime.block_on(super::component(FOLDER));
    let crds = crds();
    let default = ProptestConfig::default();
    let cases_asked = std::env::var_os("PROPTEST_CASES").map_or(CASES, |_| default.cases);
    let config = ProptestConfig { cases: cases_asked, failure_persistence: None, ..default };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&cases(), |case| {
        let native = case::run::<Puppet>(&case, &crds).map(|stage| super::text(&stage));
        let real = runtime.block_on(run_case(component.clone(), case, &crds));
        let real = real.map(|stage| super::text(&stage)).map_err(|error| format!("{error:#}"));
        let (native, real) = (end(native), end(real));
        prop_assert_eq!(native, real, "the stub (left) and the host (right)");
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// That what is generated is worth comparing: most outcomes are valid, and lead to something.
#[test]
fn most_generated_cases_write_something() {
    let mut runner = TestRunner::deterministic();
    let crds = crds();
    let wrote = (0..24).filter(|_| {
        let case = cases().new_tree(&mut runner).unwrap().current();
        let wrote = |stage: case::Stage| {
            stage.documents().iter().any(|document| !document.objects.is_empty())
        };
        case::run::<Puppet>(&case, &crds).is_ok_and(wrote)
    });
    assert!(wrote.count() > 12);
}

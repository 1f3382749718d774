//! Bad input: what the user of each object is told, with type, reason and message.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{Action, Request, WriteFailure, testing::request_for};
use serde_json::{Value, json};

use super::fixture::{
    PROVIDER, World, bind, binding, core, definition, export, kubeconfig, rocket, schema, with,
};
use crate::{Config, objects};

/// The condition of an object: where it is, its type, and what it says.
type Told = (Side, Value, &'static str, &'static str, &'static str);

#[derive(Clone, Copy)]
enum Side {
    Home,
    Provider,
}

/// Fields of the bound world that are wrong from the beginning.
#[derive(Default)]
struct Wrong {
    home: Vec<Value>,
    there: Vec<Value>,
}

fn world(wrong: Wrong) -> World {
    let world = World::unsettled(wrong.home, wrong.there);
    // Writes that the API server refuses fail their run.
    world.failures();
    world
}

fn check(title: &str, world: &World, (side, of, condition, expected, message): Told) {
    let found = match side {
        Side::Home => world.at_home(&of),
        Side::Provider => world.at_provider(&of),
    };
    let found = found.unwrap_or_default();
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let told = conditions.iter().find(|one| one["type"] == condition);
    let told = told.unwrap_or_else(|| panic!("{title}: no {condition} in {conditions:?}"));
    let text = |field: &str| told[field].as_str().unwrap_or_default();
    let shown = format!("{}/{}/{}", text("status"), text("severity"), text("reason"));
    assert_eq!(shown, expected, "{title}: {told}");
    assert!(text("message").starts_with(message), "{title}: {told}");
}

fn secret(text: &str) -> Value {
    with(kubeconfig("cn"), json!({"data": {"kubeconfig": BASE64_STANDARD.encode(text)}}))
}

#[test]
fn what_is_wrong_with_a_kubeconfig_is_told_on_the_binding() {
    const INVALID: &str = "False/Error/KubeconfigSecretInvalid";
    let text = |context: &str| {
        format!(
            "current-context: here\ncontexts: [{{name: here, context: {context}}}]\nclusters: []\n"
        )
    };
    let cases = [
        (
            "missing key",
            json!({"data": {"kubeconfig": null, "other": ""}}),
            "is missing \"kubeconfig\" string key.",
        ),
        ("no kubeconfig", secret("none"), "has an invalid kubeconfig: "),
        ("empty", secret(""), "has an invalid kubeconfig: current context \"\" not found"),
        (
            "no context",
            secret("current-context: x\n"),
            "has an invalid kubeconfig: current context \"x\" not found",
        ),
        (
            "no namespace",
            secret(&text("{cluster: p}")),
            "has an invalid kubeconfig: current context \"here\" has no namespace set",
        ),
        (
            "no cluster",
            secret(&text("{cluster: p, namespace: cn}")),
            "has an invalid kubeconfig: cluster \"p\" of the current context not found",
        ),
    ];
    for (title, change, message) in cases {
        let world = World::bound();
        let change =
            with(core("Secret", "kube-bind", "kubeconfig-a"), json!({"data": change["data"]}));
        world.home().patch(&change);
        world.settle();
        let message = format!("Kubeconfig secret kube-bind/kubeconfig-a {message}");
        for condition in ["SecretValid", "Ready"] {
            let message = String::leak(message.clone());
            check(title, &world, (Side::Home, binding(), condition, INVALID, message));
        }
        // What runs for it has stopped, and all is well when the kubeconfig is back.
        world.home().apply(&rocket("team"));
        world.settle();
        assert_eq!(world.at_provider(&rocket("cn-team")), None, "{title}");
        world.home().apply(&kubeconfig("cn"));
        world.settle();
        assert!(world.at_provider(&rocket("cn-team")).is_some(), "{title}");
    }
    let world = World::bound();
    world.home().delete("Secret/kube-bind/kubeconfig-a");
    world.settle();
    let told = "Kubeconfig secret kube-bind/kubeconfig-a not found. Rerun kubectl bind for repair.";
    let reason = "False/Error/KubeconfigSecretNotFound";
    check("no Secret", &world, (Side::Home, binding(), "SecretValid", reason, told));
}

/// Checks what a binding says between such clusters.
fn check_binding(title: &str, mut wrong: Wrong, (reason, message): (&'static str, &'static str)) {
    wrong.home.push(binding());
    let world = world(wrong);
    for condition in ["Connected", "Ready"] {
        check(title, &world, (Side::Home, binding(), condition, reason, message));
    }
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(!conditions.iter().any(|one| one.starts_with("SchemaInSync")), "{title}");
}

#[test]
fn what_is_wrong_with_exports_and_definitions_is_told_on_the_binding() {
    let failed = json!({"spec": {"resources": [{"resource": "rockets"}]}, "status": {"phase": "Failed", "terminalMessage": "not for you"}});
    let failed = with(bind("APIServiceExportRequest", "cn", "rockets"), failed);
    let there = |there: &[Value]| Wrong { there: there.to_vec(), ..Wrong::default() };
    let foreign = Wrong { home: vec![definition()], there: vec![export(), schema()] };
    for (title, wrong, reason, message) in [
        (
            "no export",
            there(&[]),
            "False/Error/APIServiceExportNotFound",
            "APIServiceExport rockets not found on the service provider cluster.",
        ),
        ("failed request", there(&[failed]), "False/Error/APIServiceExportFailed", "not for you"),
        (
            "no schema",
            there(&[export()]),
            "False/Error/BoundSchemaFetchFailed",
            "Failed to fetch BoundSchema objects: failed to get Schema rockets.golden.example.dev: boundschemas.kube-bind.io \"rockets.golden.example.dev\" not found",
        ),
        (
            "foreign",
            foreign,
            "False/Error/ForeignCustomResourceDefinition",
            "CustomResourceDefinition rockets.golden.example.dev is not owned by kube-bind.io.",
        ),
    ] {
        check_binding(title, wrong, (reason, message));
    }
}

#[test]
fn what_is_wrong_with_a_schema_is_told_on_the_binding() {
    let schema_with = |fields: Value| {
        let mut schema = schema();
        for (field, value) in fields.as_object().unwrap() {
            schema["spec"]["versions"][0][field] = value.clone();
        }
        schema
    };
    let thing = json!({"type": "object", "properties": {"spec": {"type": "thing"}}});
    let large = json!({"type": "object", "description": "x".repeat(1024 * 1024)});
    let moons = json!({"spec": {"names": {"plural": "moons"}}});
    for (title, schema) in [
        ("not served", schema_with(json!({"served": false}))),
        ("invalid", schema_with(json!({"schema": thing}))),
        ("wrapped and invalid", schema_with(json!({"schema": {"openAPIV3Schema": thing}}))),
        ("too large", schema_with(json!({"schema": large}))),
        ("another name", with(schema(), moons)),
    ] {
        let wrong = Wrong { home: Vec::new(), there: vec![export(), schema] };
        let reason = "False/Error/CustomResourceDefinitionCreateFailed";
        let message = "CustomResourceDefinition rockets.golden.example.dev cannot be created: ";
        check_binding(title, wrong, (reason, message));
    }
}

#[test]
fn what_is_wrong_is_told_on_the_objects_of_the_provider_and_on_bundles() {
    let world = World::bound();
    let cluster = || bind("ClusterBinding", "cn", "cluster");
    let warning = "False/Warning/ProviderSecretInvalid";
    let message = "Provider secret cn/kubeconfig is missing \"kubeconfig\" string key.";
    world.there().patch(&with(
        core("Secret", "cn", "kubeconfig"),
        json!({"data": {"kubeconfig": null, "x": ""}}),
    ));
    world.settle();
    check("no key", &world, (Side::Provider, cluster(), "SecretValid", warning, message));
    world.there().delete("Secret/cn/kubeconfig");
    world.settle();
    let (warning, message) =
        ("False/Warning/ProviderSecretNotFound", "Provider secret cn/kubeconfig not found");
    check("no Secret", &world, (Side::Provider, cluster(), "Ready", warning, message));

    let mut bundle = binding();
    bundle["kind"] = "APIServiceBindingBundle".into();
    let other = json!({"spec": {"kubeconfigSecretRef": {"name": "none"}}});
    let world = World::new([with(bundle.clone(), other)], []);
    let message = "Kubeconfig secret kube-bind/none not found.";
    check(
        "bundle",
        &world,
        (Side::Home, bundle, "SecretValid", "False/Error/KubeconfigSecretNotFound", message),
    );
}

#[test]
fn an_object_that_the_provider_forbids_is_told() {
    let world = World::synchronised();
    let failure = WriteFailure {
        action: Action::Apply,
        ref_: request_for(&rocket("cn-team")).ref_.in_cluster(PROVIDER),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "rockets is forbidden".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let home = world.at_home(&rocket("team")).unwrap();
    let request = Request { failed_writes: vec![failure], ..request_for(&home) };
    let outcome = objects::reconcile(&request, &Config::default(), &world.home().host()).unwrap();
    let event = &outcome.events[0];
    let message = "the provider refuses Rocket cn-team/saturn: rockets is forbidden";
    assert_eq!((event.reason.as_str(), event.message.as_str()), ("SyncRefused", message));
}

#[test]
fn a_namespace_that_is_not_there_yet_is_told_and_waited_for() {
    let world = World::bound();
    let status = json!({"status": {"namespace": "cn-later"}});
    world.there().patch(&with(bind("APIServiceNamespace", "cn", "team"), status));
    world.home().apply(&rocket("team"));
    assert_eq!(world.failures().len(), 1);
    assert!(World::events(world.home()).contains(&"SyncRefused".to_owned()));
    assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True");
    world.there().apply(&core("Namespace", "", "cn-later"));
    world.home().advance(std::time::Duration::from_mins(5));
    world.settle();
    assert!(world.at_provider(&rocket("cn-later")).is_some());
}

#[test]
fn what_the_provider_refuses_is_told_on_the_object_and_nothing_is_lost() {
    let world = World::bound();
    let strict = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object", "properties": {"stages": {"type": "integer", "maximum": 2}, "intent": {"type": "string"}},
        }}}},
    }]}});
    world.there().patch(&with(definition(), strict));
    world.home().apply(&rocket("team"));
    assert_eq!(world.failures().len(), 1);
    assert_eq!(world.at_provider(&rocket("cn-team")), None);
    assert!(World::events(world.home()).contains(&"SyncRefused".to_owned()));
    world.home().patch(&with(rocket("team"), json!({"spec": {"stages": 1}})));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["stages"], 1);
}

/// Returns the change of the provider's definition to a spec of these fields.
fn narrow(fields: &Value) -> Value {
    let open_api = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields},
        "status": {"type": "object", "properties": {"result": {"type": "string"}}},
    }});
    with(
        definition(),
        json!({"spec": {"versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": open_api},
        }]}}),
    )
}

/// Lets retries come due.
fn retry(world: &World) {
    for _ in 0..4 {
        world.home().advance(std::time::Duration::from_secs(1));
        world.failures();
    }
}

#[test]
fn a_field_that_the_provider_does_not_know_is_left_out_at_creation() {
    let world = World::bound();
    world.there().patch(&narrow(&json!({"intent": {"type": "string"}})));
    world.home().apply(&rocket("team"));
    retry(&world);
    let there = world.at_provider(&rocket("cn-team")).unwrap();
    assert_eq!(there["spec"], json!({"intent": "fly"}));
    world.there().patch(&with(rocket("cn-team"), json!({"status": {"result": "flown"}})));
    retry(&world);
    let home = world.at_home(&rocket("team")).unwrap();
    assert_eq!(home["metadata"]["finalizers"], json!(["kubebind.io/syncer"]));
    let uid = &home["metadata"]["annotations"]["kube-bind.io/provider-uid"];
    assert_eq!(*uid, there["metadata"]["uid"]);
    assert_eq!(home["status"]["result"], "flown");
    assert!(World::events(world.home()).contains(&"SyncRefused".to_owned()));
    // Once the provider knows the field, it gets it.
    world.there().patch(&definition());
    world.home().advance(std::time::Duration::from_mins(5));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"], home["spec"]);
}

#[test]
fn a_status_comes_home_while_the_spec_is_refused() {
    let world = World::synchronised();
    let stages = json!({"type": "integer", "maximum": 5});
    world.there().patch(&narrow(&json!({"stages": stages, "intent": {"type": "string"}})));
    world.home().patch(&with(rocket("team"), json!({"spec": {"stages": 9}})));
    world.failures();
    world.there().patch(&with(rocket("cn-team"), json!({"status": {"result": "flown"}})));
    retry(&world);
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["stages"], 3);
    assert_eq!(world.at_home(&rocket("team")).unwrap()["status"]["result"], "flown");
}

#[test]
fn an_object_of_a_kind_that_the_provider_does_not_know_is_held_and_can_go() {
    // The scopes of watches by the export and by the schema. That of the schema counts.
    for (of_export, of_schema, is_held) in [
        ("Namespaced", "Namespaced", true),
        ("Cluster", "Namespaced", true),
        ("Namespaced", "Cluster", false),
    ] {
        let scoped =
            |object: Value, scope: &str| with(object, json!({"spec": {"informerScope": scope}}));
        let there = [scoped(export(), of_export), scoped(schema(), of_schema)];
        let other = core("Namespace", "", "other");
        let world = World::new_with_definition([binding()], there, other);
        world.home().apply(&rocket("team"));
        world.failures();
        let home = world.at_home(&rocket("team")).unwrap();
        let finalizers = home["metadata"].get("finalizers");
        let held = json!(["kubebind.io/syncer"]);
        assert_eq!(finalizers, is_held.then_some(&held), "{of_export} {of_schema}");
        assert!(World::events(world.home()).contains(&"SyncRefused".to_owned()));
        world.home().delete("Rocket/team/saturn");
        world.failures();
        assert_eq!(world.at_home(&rocket("team")), None);
    }
}

//! The reconcilers of this module alone, against a cluster with the definitions of `crds/`.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mortise_sdk::{
    Failure, NoConfig, ObjectRef, Processor,
    testing::{Stub, request_for},
};
use serde_json::{Value, json};

use super::*;
use crate::kind::at;

struct Around;

impl Processor for Around {
    type Config = NoConfig;

    fn describe(_: &NoConfig) -> Result<Description, String> {
        Ok(super::describe(Description::new("around", "1.0.0")))
    }

    fn reconcile(request: &Request, _: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
        super::reconcile(request, &Config::default(), host)
    }
}

fn object(kind: &str, name: &str, fields: &Value) -> Value {
    let api_version =
        kind::find(kind).map_or_else(|| "v1".to_owned(), |entity| entity.of().api_version());
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ns"},
    });
    for (field, value) in fields.as_object().unwrap() {
        object[field] = value.clone();
    }
    object
}

/// An object in the control plane `cp` whose annotation names these plugins.
fn annotated(kind: &str, name: &str, plugins: &str, spec: &Value) -> Value {
    let mut object = object(kind, name, &json!({"spec": spec}));
    object["spec"]["controlPlaneRef"] =
        json!({"type": "konnectNamespacedRef", "konnectNamespacedRef": {"name": "cp"}});
    object["metadata"]["annotations"] = json!({"konghq.com/plugins": plugins});
    object
}

fn service(name: &str, plugins: &str) -> Value {
    annotated("KongService", name, plugins, &json!({"host": "h.example"}))
}

fn consumer(name: &str, plugins: &str) -> Value {
    let mut consumer = annotated("KongConsumer", name, plugins, &json!({}));
    consumer["username"] = name.into();
    consumer
}

fn group(name: &str, plugins: &str) -> Value {
    annotated("KongConsumerGroup", name, plugins, &json!({"name": name}))
}

/// A route of a service: without a control plane of its own.
fn route(name: &str, plugins: &str, service: &str) -> Value {
    let reference = json!({"type": "namespacedRef", "namespacedRef": {"name": service}});
    let spec = json!({"serviceRef": reference, "paths": ["/"]});
    let mut route = annotated("KongRoute", name, plugins, &spec);
    route["spec"].as_object_mut().unwrap().remove("controlPlaneRef");
    route
}

fn plugin(name: &str) -> Value {
    object("KongPlugin", name, &json!({"plugin": "rate-limiting"}))
}

fn secret(name: &str, label: &str, data: &[(&str, &str)]) -> Value {
    let data: BTreeMap<&str, String> =
        data.iter().map(|(key, value)| (*key, BASE64_STANDARD.encode(value))).collect();
    let mut secret = object("Secret", name, &json!({"data": data}));
    secret["metadata"]["labels"] =
        json!({"konghq.com/secret": "true", "konghq.com/credential": label});
    secret
}

struct World(Stub);

impl World {
    fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let stub = Stub::new()
            .crds(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/konnect.konghq.com"))
            .crds(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/configuration.konghq.com"))
            .objects(objects);
        let world = Self(stub);
        world.settle();
        world
    }

    fn settle(&self) {
        assert_eq!(self.0.settle::<Around>("").failures, BTreeMap::new());
    }

    fn apply(&self, object: &Value) {
        self.0.apply(object);
        self.settle();
    }

    fn patch(&self, of: &Value, mut patch: Value) {
        let (api_version, kind) = (&of["apiVersion"], &of["kind"]);
        patch["apiVersion"] = api_version.clone();
        patch["kind"] = kind.clone();
        patch["metadata"]["name"] = of["metadata"]["name"].clone();
        patch["metadata"]["namespace"] = of["metadata"]["namespace"].clone();
        self.0.patch(&patch);
        self.settle();
    }

    fn delete(&self, of: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.0.delete(&format!("{}/ns/{}", text(&of["kind"]), text(&of["metadata"]["name"])));
        self.settle();
    }

    fn get(&self, of: &Value) -> Option<Value> {
        let of: ObjectRef = request_for(of).ref_;
        self.0.object(&of)
    }

    fn finalizers(&self, of: &Value) -> Vec<String> {
        let found = self.get(of).unwrap_or_default();
        let all = at(&found, "metadata.finalizers").and_then(Value::as_array).cloned();
        all.unwrap_or_default().iter().map(|of| of.as_str().unwrap().to_owned()).collect()
    }

    fn all(&self, kind: &str) -> Vec<Value> {
        self.0.all().into_iter().filter(|object| object["kind"] == kind).collect()
    }

    /// Returns the targets of all bindings, as `plugin: serviceRef=name …`, sorted.
    fn bindings(&self) -> Vec<String> {
        let shown = |binding: &Value| {
            let targets = binding["spec"]["targets"].as_object().unwrap();
            let targets: Vec<String> = targets
                .iter()
                .map(|(field, target)| format!("{field}={}", target["name"].as_str().unwrap()))
                .collect();
            let plugin = binding["spec"]["pluginRef"]["name"].as_str().unwrap();
            format!("{plugin}: {}", targets.join(" "))
        };
        let mut all: Vec<String> = self.all("KongPluginBinding").iter().map(shown).collect();
        all.sort();
        all
    }
}

#[test]
fn bindings_follow_the_annotation_and_plugins_are_held_while_bound() {
    let (svc, plug, plug2) = (service("svc", "plug"), plugin("plug"), plugin("plug2"));
    let world = World::new([svc.clone(), plug.clone(), plug2.clone()]);
    let binding = world.all("KongPluginBinding").remove(0);
    let expected = json!({
        "controlPlaneRef": {"konnectNamespacedRef": {"name": "cp"}, "type": "konnectNamespacedRef"},
        "pluginRef": {"kind": "KongPlugin", "name": "plug"},
        "scope": "OnlyTargets",
        "targets": {"serviceRef": {"group": "configuration.konghq.com", "kind": "KongService", "name": "svc"}},
    });
    assert_eq!(binding["spec"], expected);
    assert_eq!(binding["metadata"]["ownerReferences"][0]["name"], "plug");
    assert!(binding["metadata"]["name"].as_str().unwrap().starts_with("plug-"));
    assert_eq!(world.finalizers(&svc), ["gateway.konghq.com/cleanup-plugin-binding"]);
    assert_eq!(world.finalizers(&plug), ["gateway.konghq.com/plugin-in-use"]);
    assert!(world.finalizers(&plug2).is_empty());

    world.patch(&svc, json!({"metadata": {"annotations": {"konghq.com/plugins": "plug2, other"}}}));
    assert_eq!(world.bindings(), ["plug2: serviceRef=svc"]);
    assert!(world.finalizers(&plug).is_empty());

    world.delete(&svc);
    assert_eq!((world.bindings(), world.get(&svc)), (vec![], None));
    assert!(world.finalizers(&plug2).is_empty());
}

#[test]
fn targets_are_combined_within_their_control_plane() {
    let mut elsewhere = service("far", "p");
    elsewhere["spec"]["controlPlaneRef"]["konnectNamespacedRef"] =
        json!({"name": "cp2", "namespace": "other"});
    let world = World::new([
        plugin("p"),
        service("s", "p"),
        service("plain", ""),
        route("r", "p", "plain"),
        elsewhere,
    ]);
    assert_eq!(world.bindings(), ["p: routeRef=r", "p: serviceRef=far", "p: serviceRef=s"]);
    let far = world.all("KongPluginBinding");
    let far = far.iter().find(|of| of["spec"]["targets"]["serviceRef"]["name"] == "far").unwrap();
    assert_eq!(
        far["spec"]["controlPlaneRef"]["konnectNamespacedRef"],
        json!({"name": "cp2", "namespace": "other"})
    );

    let groups = [group("g", "p")];
    world.apply(&groups[0]);
    let with_group = [
        "p: consumerGroupRef=g routeRef=r",
        "p: consumerGroupRef=g serviceRef=s",
        "p: serviceRef=far",
    ];
    assert_eq!(world.bindings(), with_group);

    world.apply(&consumer("a", "p"));
    world.apply(&consumer("b", "p"));
    let with_consumers = [
        "p: consumerRef=a routeRef=r",
        "p: consumerRef=a serviceRef=s",
        "p: consumerRef=b routeRef=r",
        "p: consumerRef=b serviceRef=s",
        "p: serviceRef=far",
    ];
    assert_eq!(world.bindings(), with_consumers);
}

#[test]
fn a_consumer_or_group_without_services_is_bound_alone() {
    let world = World::new([plugin("p"), group("g", "p")]);
    assert_eq!(world.bindings(), ["p: consumerGroupRef=g"]);
    world.apply(&consumer("a", "p"));
    assert_eq!(world.bindings(), ["p: consumerRef=a"]);
}

#[test]
fn a_binding_that_fits_keeps_its_name_and_others_of_the_plugin_go() {
    let world = World::new([plugin("p")]);
    let uid = world.get(&plugin("p")).unwrap()["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "configuration.konghq.com/v1", "kind": "KongPlugin", "name": "p", "uid": uid}]);
    let bound = |name: &str, service: &str| {
        let spec = json!({
            "pluginRef": {"name": "p"},
            "targets": {"serviceRef": {"group": "configuration.konghq.com", "kind": "KongService", "name": service}},
        });
        let mut binding = annotated("KongPluginBinding", name, "", &spec);
        binding["metadata"]["ownerReferences"] = owner.clone();
        binding
    };
    for binding in [bound("p-2", "s"), bound("p-1", "s"), bound("p-3", "gone")] {
        world.0.apply(&binding);
    }
    let of_user = {
        let mut binding = bound("mine", "gone");
        binding["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        binding
    };
    world.0.apply(&of_user);
    world.apply(&service("s", "p"));
    let mut names: Vec<String> = world
        .all("KongPluginBinding")
        .iter()
        .map(|of| of["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["mine", "p-1"]);
}

#[test]
fn a_deleted_plugin_goes_after_its_bindings() {
    let (svc, plug) = (service("svc", "p"), plugin("p"));
    let world = World::new([svc.clone(), plug.clone()]);
    let binding = world.all("KongPluginBinding").remove(0);
    world.patch(&binding, json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    world.delete(&plug);
    assert!(world.get(&plug).is_some(), "the plugin waits for its binding");
    let binding = world.get(&binding).unwrap();
    assert!(at(&binding, "metadata.deletionTimestamp").is_some());
    world.patch(&binding, json!({"metadata": {"finalizers": null}}));
    assert_eq!((world.get(&binding), world.get(&plug)), (None, None));
    assert!(world.finalizers(&svc).is_empty());
}

#[test]
fn a_target_that_only_a_users_binding_names_is_not_held() {
    let spec = json!({
        "pluginRef": {"name": "p"},
        "targets": {"serviceRef": {"group": "configuration.konghq.com", "kind": "KongService", "name": "svc"}},
    });
    let binding = annotated("KongPluginBinding", "mine", "", &spec);
    let (svc, plug) = (service("svc", ""), plugin("p"));
    let world = World::new([svc.clone(), plug.clone(), binding.clone()]);
    assert!(world.finalizers(&svc).is_empty());
    assert_eq!(world.finalizers(&plug), ["gateway.konghq.com/plugin-in-use"]);
    world.delete(&binding);
    assert!(world.finalizers(&plug).is_empty());
}

#[test]
fn nothing_is_made_beside_the_binding_of_a_user() {
    let spec = json!({
        "pluginRef": {"name": "p"},
        "targets": {"serviceRef": {"group": "configuration.konghq.com", "kind": "KongService", "name": "svc"}},
    });
    let binding = annotated("KongPluginBinding", "mine", "", &spec);
    let world = World::new([plugin("p"), binding.clone()]);
    world.apply(&service("svc", "p"));
    assert_eq!(world.all("KongPluginBinding").len(), 1);
    world.delete(&binding);
    assert_eq!(world.bindings(), ["p: serviceRef=svc"]);
}

#[test]
fn too_many_bindings_are_refused_whole() {
    let objects = (0..50).flat_map(|number| {
        [service(&format!("s{number}"), "p"), consumer(&format!("c{number}"), "p")]
    });
    let stub = Stub::new().objects(objects.chain([plugin("p")]));
    let failures = stub.settle::<Around>("").failures;
    let messages: Vec<String> = failures.into_values().collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("2500 bindings, at most 2000"), "{messages:?}");
    assert!(!stub.all().iter().any(|object| object["kind"] == "KongPluginBinding"));
}

fn with_credentials(name: &str, secrets: &[&str]) -> Value {
    let mut consumer = consumer(name, "");
    consumer["credentials"] = json!(secrets);
    consumer
}

/// Label, kind, and the data of a Secret.
type Form = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

#[test]
fn secrets_of_each_form_become_credentials() {
    let cases: [Form; 5] = [
        ("basic-auth", "KongCredentialBasicAuth", &[("username", "u"), ("password", "p")]),
        ("key-auth", "KongCredentialAPIKey", &[("key", "k")]),
        ("acl", "KongCredentialACL", &[("group", "g")]),
        ("jwt", "KongCredentialJWT", &[("key", "k"), ("algorithm", "HS384"), ("secret", "s")]),
        ("hmac", "KongCredentialHMAC", &[("username", "u"), ("secret", "s")]),
    ];
    let names = cases.map(|(label, ..)| label);
    let secrets = cases.map(|(label, _, data)| secret(label, label, data));
    let world = World::new(secrets.into_iter().chain([with_credentials("con", &names)]));
    for (label, kind, data) in cases {
        let found = world.all(kind);
        assert_eq!(found.len(), 1, "{kind}");
        let mut spec = json!({"consumerRef": {"name": "con"}});
        for (key, value) in data {
            spec[*key] = (*value).into();
        }
        assert_eq!(found[0]["spec"], spec, "{kind}");
        let owners = found[0]["metadata"]["ownerReferences"].as_array().unwrap();
        let owners: Vec<&Value> = owners.iter().map(|owner| &owner["name"]).collect();
        assert_eq!(owners, ["con", label], "{kind}");
    }
}

#[test]
fn a_credential_follows_its_secret_and_the_list() {
    let data = [("key", "k"), ("algorithm", "HS256"), ("secret", "s")];
    let (jwt, con) = (secret("s", "jwt", &data), with_credentials("con", &["s"]));
    let world = World::new([jwt.clone(), con.clone()]);
    let name = world.all("KongCredentialJWT")[0]["metadata"]["name"].clone();
    world.patch(&jwt, json!({"data": {"secret": BASE64_STANDARD.encode("changed")}}));
    let found = world.all("KongCredentialJWT").remove(0);
    assert_eq!((&found["spec"]["secret"], &found["metadata"]["name"]), (&json!("changed"), &name));
    world.patch(&jwt, json!({"data": {"secret": null}}));
    assert_eq!(world.all("KongCredentialJWT")[0]["spec"].get("secret"), None);
    world.delete(&jwt);
    assert_eq!(world.all("KongCredentialJWT").len(), 1);
    world.patch(&con, json!({"credentials": null}));
    assert!(world.all("KongCredentialJWT").is_empty());
}

#[test]
fn consumers_of_one_name_in_two_namespaces_keep_their_credentials() {
    let elsewhere = |mut object: Value| {
        object["metadata"]["namespace"] = "other".into();
        object
    };
    let (key, con) = (secret("s", "key-auth", &[("key", "k")]), with_credentials("con", &["s"]));
    let other = [elsewhere(key.clone()), elsewhere(with_credentials("con", &[]))];
    let world = World::new([key, con].into_iter().chain(other));
    let found = world.all("KongCredentialAPIKey");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["metadata"]["namespace"], "ns");
}

#[test]
fn a_secret_that_does_not_serve_makes_an_event_without_its_values() {
    let incomplete = [
        secret("s", "basic-auth", &[("username", "hunter2")]),
        secret("j", "jwt", &[("key", "k"), ("secret", "hunter2")]),
        secret("h", "hmac", &[("username", "hunter2")]),
    ];
    let mut unlabelled = secret("t", "key-auth", &[("key", "k")]);
    unlabelled["metadata"]["labels"] = json!({"konghq.com/secret": "true"});
    let consumer = with_credentials("con", &["s", "j", "h", "t"]);
    let world = World::new(incomplete.into_iter().chain([unlabelled.clone(), consumer]));
    let mut events: Vec<String> =
        world.all("Event").iter().map(|event| event["message"].to_string()).collect();
    events.sort_unstable();
    let expected = [
        "Secret h has no key secret",
        "Secret j has no key algorithm",
        "Secret s has no key password",
    ];
    assert_eq!(events, expected.map(|message| format!("{message:?}")));
    let made = crate::credential::kinds().flat_map(|entity| world.all(entity.kind)).count();
    assert_eq!(made, 0);
    world
        .patch(&unlabelled, json!({"metadata": {"labels": {"konghq.com/credential": "key-auth"}}}));
    assert_eq!(world.all("KongCredentialAPIKey").len(), 1);
}

#[test]
fn a_credential_of_another_name_keeps_it() {
    let (key, con) = (secret("s", "key-auth", &[("key", "k")]), with_credentials("con", &[]));
    let world = World::new([key.clone(), con.clone()]);
    let uid = |of: &Value| world.get(of).unwrap()["metadata"]["uid"].clone();
    let mut made = object(
        "KongCredentialAPIKey",
        "con-original",
        &json!({"spec": {"consumerRef": {"name": "con"}, "key": "k"}}),
    );
    made["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "configuration.konghq.com/v1", "kind": "KongConsumer", "name": "con", "uid": uid(&con)},
        {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": uid(&key)},
    ]);
    world.0.apply(&made);
    world.patch(&con, json!({"credentials": ["s"]}));
    let found = world.all("KongCredentialAPIKey");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["metadata"]["name"], "con-original");
}

#[test]
fn the_secret_of_a_token_is_held_while_it_is_named() {
    let token = secret("tok", "konnect", &[("token", "kpat_x")]);
    let auth = object(
        "KonnectAPIAuthConfiguration",
        "auth",
        &json!({"spec": {
            "type": "secretRef", "secretRef": {"name": "tok"}, "serverURL": "eu.api.konghq.com",
        }}),
    );
    let world = World::new([token.clone(), auth.clone()]);
    let in_use = ["gateway.konghq.com/secret-in-use-by-konnect-resource"];
    assert_eq!(world.finalizers(&token), in_use);
    world.delete(&token);
    assert_eq!(world.finalizers(&token), in_use);
    world.delete(&auth);
    assert_eq!(world.get(&token), None);
}

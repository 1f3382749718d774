//! Shared objects, by the claims of an export.

use serde_json::{Value, json};

use super::fixture::{World, binding, core, definition, export, rocket, schema, with};

fn world(claims: &Value) -> World {
    let export = with(export(), json!({"spec": {"permissionClaims": claims}}));
    World::new([binding()], [export, schema()])
}

fn secret(namespace: &str, name: &str, value: &str) -> Value {
    with(core("Secret", namespace, name), json!({"type": "Opaque", "data": {"k": value}}))
}

fn secrets(selector: &Value) -> Value {
    json!([{"group": "", "resource": "secrets", "selector": selector}])
}

#[test]
fn a_claimed_object_of_the_consumer_goes_to_the_provider_and_goes_with_its_claim() {
    let world = world(&secrets(&json!({"namedResources": [{"name": "key", "namespace": "team"}]})));
    world.home().apply(&secret("team", "key", "MQ=="));
    world.home().apply(&secret("team", "other", "Mg=="));
    world.settle();
    let copy = world.at_provider(&secret("cn-team", "key", "")).unwrap();
    let home = world.at_home(&secret("team", "key", "")).unwrap();
    assert_eq!((&copy["data"], &copy["type"]), (&json!({"k": "MQ=="}), &json!("Opaque")));
    assert_eq!(copy["metadata"]["labels"], json!({"kube-bind.io/owner": "consumer"}));
    let marks = json!({"kube-bind.io/consumer-namespace": "team", "kube-bind.io/consumer-uid": home["metadata"]["uid"]});
    assert_eq!(copy["metadata"]["annotations"], marks);
    assert_eq!(home["metadata"]["labels"], json!({"kube-bind.io/owner": "consumer"}));
    assert_eq!(world.at_provider(&secret("cn-team", "other", "")), None);
    world.home().delete("Secret/team/key");
    world.settle();
    assert_eq!(world.at_provider(&secret("cn-team", "key", "")), None);
}

#[test]
fn the_copy_of_an_object_that_is_held_stays_until_the_object_is_gone() {
    let world = world(&secrets(&json!({"namedResources": [{"name": "key"}]})));
    let held =
        |by: Value| with(core("Secret", "team", "key"), json!({"metadata": {"finalizers": by}}));
    world.home().apply(&secret("team", "key", "MQ=="));
    world.home().patch(&held(json!(["example.com/hold"])));
    world.settle();
    world.home().delete("Secret/team/key");
    world.settle();
    assert!(world.at_provider(&secret("cn-team", "key", "")).is_some());
    world.home().patch(&held(json!(null)));
    world.settle();
    assert_eq!(world.at_home(&secret("team", "key", "")), None);
    assert_eq!(world.at_provider(&secret("cn-team", "key", "")), None);
}

#[test]
fn a_copy_goes_with_the_binding() {
    let world = world(&secrets(&json!({"namedResources": [{"name": "key"}]})));
    world.home().apply(&secret("team", "key", "MQ=="));
    world.settle();
    assert!(world.at_provider(&secret("cn-team", "key", "")).is_some());
    world.home().delete("APIServiceBinding//rockets");
    world.settle();
    assert_eq!(world.at_home(&binding()), None);
    assert_eq!(world.at_provider(&secret("cn-team", "key", "")), None);
}

#[test]
fn an_object_to_which_another_refers_goes_up_and_goes_with_the_reference() {
    let reference = json!({"group": "golden.example.dev", "resource": "rockets", "jsonPath": {"name": "spec.secretName"}});
    let world = world(&secrets(&json!({"references": [reference]})));
    world.home().apply(&secret("team", "key", "MQ=="));
    world.home().apply(&with(rocket("team"), json!({"spec": {"secretName": "key"}})));
    world.settle();
    assert!(world.at_provider(&secret("cn-team", "key", "")).is_some());
    world.home().patch(&with(rocket("team"), json!({"spec": {"secretName": null}})));
    world.settle();
    assert_eq!(world.at_provider(&secret("cn-team", "key", "")), None);
    assert!(world.at_home(&secret("team", "key", "")).is_some());
}

#[test]
fn a_claim_holds_only_while_each_version_of_its_references_is_served() {
    let reference = |versions: Value| json!({"group": "golden.example.dev", "resource": "rockets", "versions": versions, "jsonPath": {"name": "spec.secretName"}});
    // The versions of the reference and of the export, and whether a claim by the reference and one
    // by the name, which has that reference, too, take the object.
    for (of_reference, of_export, by_reference, by_name) in [
        (json!(["v1"]), json!([]), true, true),
        (json!([]), json!(["v1"]), true, true),
        (json!([]), json!([]), false, true),
        (json!(["v2"]), json!(["v1"]), false, false),
        (json!([]), json!(["v1", "v2"]), false, false),
    ] {
        let references = [reference(of_reference.clone())];
        let names = json!([{"name": "named"}]);
        let claims = secrets(&json!({"references": references, "namedResources": names}));
        let mut export = with(export(), json!({"spec": {"permissionClaims": claims}}));
        export["spec"]["resources"][0]["versions"] = of_export.clone();
        let world = World::new([binding()], [export, schema()]);
        for name in ["referred", "named"] {
            world.home().apply(&secret("team", name, "MQ=="));
        }
        let referring = json!({"spec": {"secretName": "referred"}});
        world.home().apply(&with(rocket("team"), referring));
        world.settle();
        let is_there = |name: &str| world.at_provider(&secret("cn-team", name, "")).is_some();
        let found = (is_there("referred"), is_there("named"));
        assert_eq!(found, (by_reference, by_name), "{of_reference} {of_export}");
    }
}

#[test]
fn claims_run_without_a_definition_once_the_schemas_were_there() {
    let claims = secrets(&json!({"namedResources": [{"name": "key"}]}));
    let export = with(export(), json!({"spec": {"permissionClaims": claims}}));
    let world = World::new([binding(), definition()], [export]);
    let copied = || Some(world.at_provider(&secret("cn-team", "key", ""))?["data"]["k"].clone());
    world.home().apply(&secret("team", "key", "MQ=="));
    world.settle();
    assert_eq!(copied(), None);
    world.there().apply(&schema());
    world.settle();
    let foreign = "Connected=False/ForeignCustomResourceDefinition".to_owned();
    assert!(World::conditions(world.at_home(&binding())).contains(&foreign));
    assert_eq!(copied(), Some("MQ==".into()));
    world.there().delete("BoundSchema/cn/*");
    world.settle();
    world.home().patch(&secret("team", "key", "Mg=="));
    world.settle();
    assert_eq!(copied(), Some("Mg==".into()));
    world.home().delete("APIServiceBinding//rockets");
    world.settle();
    assert_eq!((world.at_home(&binding()), copied()), (None, None));
}

#[test]
fn whatever_somebody_adds_to_a_copy_goes() {
    let world = world(&secrets(&json!({"namedResources": [{"name": "key"}]})));
    world.home().apply(&secret("team", "key", "MQ=="));
    world.settle();
    let copy = secret("cn-team", "key", "MQ==");
    let more: serde_json::Map<String, Value> =
        (0..200).map(|number| (format!("k{number}"), "Mg==".into())).collect();
    world.there().patch(&with(copy.clone(), json!({"data": more})));
    world.settle();
    let data = || world.at_provider(&copy).unwrap()["data"].clone();
    assert_eq!(data().as_object().unwrap().len(), 1 + 200 - 128);
    world.home().patch(&secret("team", "key", "Mw=="));
    world.settle();
    assert_eq!(data(), json!({"k": "Mw=="}));
}

#[test]
fn an_object_of_the_provider_comes_home_and_is_repaired_there() {
    let world = world(&secrets(&json!({"labelSelector": {"matchLabels": {"app": "rocket"}}})));
    let theirs = with(
        secret("cn-team", "login", "MQ=="),
        json!({"metadata": {"labels": {"app": "rocket"}}}),
    );
    world.there().apply(&theirs);
    world.settle();
    let copy = world.at_home(&secret("team", "login", "")).unwrap();
    assert_eq!(
        copy["metadata"]["labels"],
        json!({"app": "rocket", "kube-bind.io/owner": "provider"})
    );
    let labels = &world.at_provider(&theirs).unwrap()["metadata"]["labels"];
    assert_eq!(labels, &json!({"app": "rocket", "kube-bind.io/owner": "provider"}));
    world.home().patch(&with(secret("team", "login", "Mg=="), json!({"data": {"own": "Mw=="}})));
    world.settle();
    assert_eq!(world.at_home(&secret("team", "login", "")).unwrap()["data"], json!({"k": "MQ=="}));
    world.there().delete("Secret/cn-team/login");
    world.settle();
    assert_eq!(world.at_home(&secret("team", "login", "")), None);
}

#[test]
fn an_object_on_both_sides_waits_for_a_label() {
    let selector = json!({"labelSelector": {"matchLabels": {"app": "rocket"}}});
    let world = world(&json!([{"group": "", "resource": "configmaps", "selector": selector}]));
    let plan = |namespace: &str, by: &str| {
        let labels = json!({"metadata": {"labels": {"app": "rocket"}}, "data": {"a": by}});
        with(core("ConfigMap", namespace, "plan"), labels)
    };
    world.there().apply(&plan("cn-team", "provider"));
    // The provider's object comes home as soon as it is alone.
    world.home().apply(&plan("team", "consumer"));
    world.settle();
    assert_eq!(world.at_provider(&plan("cn-team", "")).unwrap()["data"]["a"], "provider");
    world.home().patch(&with(
        plan("team", "consumer"),
        json!({"metadata": {"labels": {"kube-bind.io/owner": "consumer"}}}),
    ));
    world.settle();
    assert_eq!(world.at_provider(&plan("cn-team", "")).unwrap()["data"]["a"], "consumer");
}

#[test]
fn an_object_of_home_without_the_configured_labels_is_not_replaced() {
    let config = r#"{"groups": ["golden.example.dev"], "claims": [{"resources": ["secrets"], "labels": {"share": "yes"}}]}"#;
    let world = world(&secrets(&json!({"namedResources": [{"name": "key", "namespace": "team"}]})));
    let labels = json!({"share": "yes", "kube-bind.io/owner": "provider"});
    let theirs = with(secret("cn-team", "key", "Mg=="), json!({"metadata": {"labels": labels}}));
    let home = secret("team", "key", "MQ==");
    let settle = || assert_eq!(world.failures_under(config), Vec::<String>::new());
    settle();
    world.home().apply(&home);
    world.there().apply(&theirs);
    settle();
    assert_eq!(world.at_home(&home).unwrap()["data"], json!({"k": "MQ=="}));
    assert!(World::events(world.home()).contains(&"PermissionClaimRefused".to_owned()));
    world.home().patch(&with(
        core("Secret", "team", "key"),
        json!({"metadata": {"labels": {"share": "yes"}}}),
    ));
    settle();
    assert_eq!(world.at_home(&home).unwrap()["data"], json!({"k": "Mg=="}));
}

#[test]
fn a_shared_object_changes_its_owner_and_back() {
    let selector = json!({"labelSelector": {"matchLabels": {"app": "rocket"}}});
    let world = world(&json!([{"group": "", "resource": "configmaps", "selector": selector}]));
    let plan = |namespace: &str, change: Value| with(core("ConfigMap", namespace, "plan"), change);
    let (home, there) = (plan("team", json!({})), plan("cn-team", json!({})));
    let labelled = |owner: &str| {
        plan("cn-team", json!({"metadata": {"labels": {"kube-bind.io/owner": owner}}}))
    };
    let held = |object: Option<Value>| {
        let object = object.unwrap();
        let owner = object["metadata"]["labels"]["kube-bind.io/owner"].as_str().unwrap().to_owned();
        (owner, object["data"]["k"].as_str().unwrap().to_owned())
    };
    let labels = json!({"metadata": {"labels": {"app": "rocket"}}, "data": {"k": "1"}});
    world.home().apply(&plan("team", labels));
    world.settle();
    for (owner, change, value) in [
        ("provider", plan("cn-team", json!({"data": {"k": "2"}})), "2"),
        ("consumer", plan("team", json!({"data": {"k": "3"}})), "3"),
        ("provider", plan("cn-team", json!({"data": {"k": "4"}})), "4"),
    ] {
        world.there().patch(&labelled(owner));
        world.settle();
        if owner == "provider" {
            world.there().patch(&change);
        } else {
            world.home().patch(&change);
        }
        world.settle();
        let expected = (owner.to_owned(), value.to_owned());
        assert_eq!(held(world.at_home(&home)), expected);
        assert_eq!(held(world.at_provider(&there)), expected);
    }
}

#[test]
fn secrets_of_token_types_are_never_copied() {
    for secret_type in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
        let world = world(&secrets(&json!({"labelSelector": {}})));
        let token = |namespace: &str, fields: Value| {
            let account = json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "x"}}, "type": secret_type});
            with(with(core("Secret", namespace, "token"), account), fields)
        };
        let filled = || json!({"data": {"token": "MQ=="}});
        let owned = |owner: &str| json!({"metadata": {"labels": {"kube-bind.io/owner": owner}}});
        world.there().apply(&token("cn-team", owned("provider")));
        world.settle();
        assert_eq!(world.at_home(&token("team", json!({}))), None, "{secret_type}");
        // Nor does one that home has filled go up, whoever the provider says owns it.
        world.home().apply(&token("team", filled()));
        for owner in ["provider", "consumer"] {
            world.there().apply(&token("cn-team", owned(owner)));
            world.settle();
            let there = world.at_provider(&token("cn-team", json!({}))).unwrap();
            assert_eq!(there.get("data"), None, "{secret_type} of {owner}");
        }
        world.there().delete("Secret/cn-team/token");
        world.settle();
        assert_eq!(world.at_provider(&token("cn-team", json!({}))), None, "{secret_type}");
        let home = world.at_home(&token("team", json!({}))).unwrap();
        assert_eq!(home["data"], filled()["data"], "{secret_type}");
    }
}

#[test]
fn a_shared_object_with_control_characters_in_its_labels_is_told_and_the_others_come() {
    let export = with(
        export(),
        json!({"spec": {"permissionClaims": secrets(&json!({"labelSelector": {}}))}}),
    );
    let labels = json!({"metadata": {"labels": {"app": "a\u{1b}[2J\n", "b\u{202e}": "c"}}});
    let bad = with(secret("cn-team", "bad", "MQ=="), labels);
    let good = secret("cn-team", "good", "MQ==");
    let world = World::unsettled([binding()], [export, schema(), bad, good]).unchecked();
    world.failures();
    assert_eq!(world.at_home(&secret("team", "bad", "")), None);
    assert!(world.at_home(&secret("team", "good", "")).is_some());
    let events = world.home().all().into_iter().chain(world.there().all());
    let refused: Vec<Value> = events.filter(|of| of["reason"] == "SyncRefused").collect();
    assert!(!refused.is_empty());
    let message = |event: &Value| event["message"].as_str().unwrap().to_owned();
    assert!(!refused.iter().any(|event| message(event).contains(char::is_control)), "{refused:?}");
}

#[test]
fn a_kubeconfig_is_neither_given_to_another_provider_nor_replaced_by_it() {
    let used = |kind: &str, name: &str| {
        let mut of = with(binding(), json!({"metadata": {"name": name}}));
        of["kind"] = kind.into();
        of["spec"]["kubeconfigSecretRef"] =
            json!({"namespace": "team", "name": format!("of-{name}"), "key": "kubeconfig"});
        of
    };
    let world = world(&secrets(&json!({"labelSelector": {}})));
    let labels = json!({"metadata": {"labels": {"kube-bind.io/provider-kubeconfig": "true"}}});
    for object in [
        used("APIServiceBinding", "other"),
        used("APIServiceBindingBundle", "all"),
        used("APIServiceBinding", "later"),
        secret("team", "of-other", "MQ=="),
        secret("team", "of-all", "MQ=="),
        with(secret("team", "labelled", "MQ=="), labels),
        secret("team", "plain", "MQ=="),
    ] {
        world.home().apply(&object);
    }
    world.failures();
    let is_there = |name: &str| world.at_provider(&secret("cn-team", name, "")).is_some();
    let names = ["plain", "of-other", "of-all", "labelled"];
    assert_eq!(names.map(is_there), [true, false, false, false]);
    // Nor does one of the provider take the place of it.
    let owned = json!({"metadata": {"labels": {"kube-bind.io/owner": "provider"}}});
    for name in ["of-other", "of-later"] {
        world.there().apply(&with(secret("cn-team", name, "Mg=="), owned.clone()));
    }
    world.failures();
    let at_home = |name: &str| world.at_home(&secret("team", name, ""));
    assert_eq!(at_home("of-other").unwrap()["data"], json!({"k": "MQ=="}));
    assert_eq!(at_home("of-later"), None);
    // A copy of a Secret that becomes a kubeconfig goes.
    let plain = json!({"spec": {"kubeconfigSecretRef": {"name": "plain"}}});
    world.home().apply(&with(used("APIServiceBinding", "late"), plain));
    world.failures();
    assert!(!is_there("plain"));
}

#[test]
fn a_claim_that_the_configuration_does_not_allow_is_told() {
    let world = world(
        &json!([{"group": "", "resource": "serviceaccounts", "selector": {"namedResources": [{"name": "x"}]}}]),
    );
    assert!(World::events(world.home()).contains(&"PermissionClaimRefused".to_owned()));
}

//! Providers that are away, and objects of theirs besides exports.

use serde_json::json;

use super::fixture::{
    PROVIDER, World, bind, binding, core, definition, export, kubeconfig, rocket, schema, with,
};

#[test]
fn a_provider_that_is_away_is_told_and_taken_up_again() {
    let world = World::synchronised();
    world.home().unreachable(PROVIDER);
    world.home().patch(&with(rocket("team"), json!({"spec": {"intent": "wait"}})));
    world.failures();
    for _ in 0..4 {
        world.home().advance(std::time::Duration::from_secs(1));
        world.failures();
        let conditions = World::conditions(world.at_home(&binding()));
        assert_eq!(conditions[0], "Ready=True", "as at a start, before the first lists arrive");
    }
    for _ in 0..10 {
        world.home().advance(std::time::Duration::from_secs(1));
        world.failures();
    }
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(
        conditions.contains(&"InformersSynced=False/InformerSyncTimeout".to_owned()),
        "{conditions:?}"
    );
    assert!(conditions.contains(&"Ready=False/InformerSyncTimeout".to_owned()), "{conditions:?}");
    world.home().reachable(PROVIDER);
    world.home().advance(std::time::Duration::from_mins(1));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")).unwrap()["spec"]["intent"], "wait");
    assert_eq!(World::conditions(world.at_home(&binding()))[0], "Ready=True");
}

#[test]
fn a_new_binding_and_a_new_bundle_say_at_once_that_their_provider_is_away() {
    let bundle = with(binding(), json!({"kind": "APIServiceBindingBundle"}));
    let world = World::unsettled([binding(), bundle.clone()], [export(), schema()]);
    world.home().unreachable(PROVIDER);
    world.failures();
    let told = |of: &serde_json::Value| World::conditions(world.at_home(of));
    assert_eq!(
        told(&binding()),
        [
            "Ready=False/InformerSyncTimeout",
            "InformersSynced=False/InformerSyncTimeout",
            "SecretValid=True"
        ]
    );
    assert_eq!(
        told(&bundle),
        ["Ready=False/ListExportsFailed", "SecretValid=True", "Synced=False/ListExportsFailed"]
    );
    world.home().reachable(PROVIDER);
    world.home().advance(std::time::Duration::from_mins(1));
    world.settle();
    assert_eq!((&*told(&binding())[0], &*told(&bundle)[0]), ("Ready=True", "Ready=True"));
}

#[test]
fn the_heartbeat_is_sent_twice_in_its_interval() {
    let world = World::bound();
    let last = || {
        let found = world.at_provider(&bind("ClusterBinding", "cn", "cluster")).unwrap();
        found["status"]["lastHeartbeatTime"].as_str().unwrap().to_owned()
    };
    assert_eq!(last(), "2026-01-01T00:00:00Z");
    world.home().advance(std::time::Duration::from_secs(149));
    world.settle();
    assert_eq!(last(), "2026-01-01T00:00:00Z");
    world.home().advance(std::time::Duration::from_secs(1));
    world.settle();
    assert_eq!(last(), "2026-01-01T00:02:30Z");
}

#[test]
fn a_cluster_binding_of_another_consumer_is_told_and_not_fought_for() {
    let of = bind("ClusterBinding", "cn", "cluster");
    let status = json!({
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "heartbeatInterval": "5m0s",
        "konnectorVersion": "v0.0.1", "consumerSecretRef": {"namespace": "theirs", "name": "kubeconfig"},
    });
    // As the same processor of another home has applied it.
    let fields = status.as_object().unwrap().keys().map(|field| (format!("f:{field}"), json!({})));
    let applied = json!({
        "manager": "mortise/default/kube-bind/s00000000000000000000000000000000",
        "operation": "Apply", "subresource": "status", "apiVersion": "kube-bind.io/v1alpha2",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": fields.collect::<serde_json::Map<_, _>>()},
    });
    let spec = json!({
        "kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"}, "providerPrettyName": "Golden",
    });
    let metadata = json!({"managedFields": [applied]});
    let theirs = with(of.clone(), json!({"metadata": metadata, "spec": spec, "status": status}));
    let world = World::unsettled([binding()], [export(), schema(), theirs]);
    world.failures();
    world.home().apply(&rocket("team"));
    world.failures();
    let conditions = World::conditions(world.at_home(&binding()));
    let told = "Heartbeating=False/ClusterBindingInUse".to_owned();
    assert!(conditions.contains(&told), "{conditions:?}");
    let theirs = world.at_provider(&of).unwrap();
    assert_eq!(theirs["status"]["konnectorVersion"], "v0.0.1");
    for minute in 0..10 {
        world.home().patch(&with(rocket("team"), json!({"spec": {"stages": minute}})));
        world.home().advance(std::time::Duration::from_mins(1));
        world.failures();
        let there = world.at_provider(&rocket("cn-team")).unwrap();
        assert_eq!(there["spec"]["stages"], minute, "objects go on");
    }
    assert_eq!(world.at_provider(&of), Some(theirs), "nothing is written");
    let events = world.home().all().into_iter().filter(|of| of["reason"] == "ClusterBindingInUse");
    let events: Vec<_> = events.collect();
    assert!(events.iter().all(|event| event["involvedObject"]["name"] == "rockets"), "{events:?}");
    let tries: u64 = events.iter().map(|event| event["count"].as_u64().unwrap_or(1)).sum();
    // The failed write is tried again, with a back-off.
    assert!((1..=12).contains(&tries), "{tries} tries in ten minutes: {events:?}");
}

#[test]
fn a_kubeconfig_that_the_provider_hands_out_comes_home() {
    let world = World::bound();
    let mut handed_out = with(kubeconfig("cn"), json!({"data": {"extra": "eA=="}}));
    handed_out["metadata"] = json!({"name": "kubeconfig", "namespace": "cn"});
    world.there().apply(&handed_out);
    world.settle();
    let home = world.at_home(&kubeconfig("cn")).unwrap();
    assert_eq!(home["data"], handed_out["data"]);
    world.there().delete("Secret/cn/kubeconfig");
    world.settle();
    let conditions = World::conditions(world.at_provider(&bind("ClusterBinding", "cn", "cluster")));
    assert_eq!(conditions[1], "SecretValid=False/ProviderSecretNotFound");
}

#[test]
fn namespaces_follow_their_owner() {
    let world = World::bound();
    let given = with(
        bind("APIServiceNamespace", "cn", "given"),
        json!({"metadata": {"labels": {"kube-bind.io/owner": "provider"}}, "spec": {}}),
    );
    let lost = with(bind("APIServiceNamespace", "cn", "lost"), json!({"spec": {}}));
    world.there().apply(&given);
    world.there().apply(&lost);
    world.settle();
    let namespace = world.at_home(&core("Namespace", "", "given")).unwrap();
    assert_eq!(namespace["metadata"]["labels"]["kube-bind.io/owner"], "provider");
    assert!(world.at_provider(&given).is_some());
    assert_eq!(world.at_provider(&lost), None);
}

#[test]
fn parts_besides_the_spec_go_up_with_each_change_where_they_are_to() {
    let payload = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let (mut schema, mut definition) = (schema(), definition());
    schema["spec"]["versions"][0]["schema"]["properties"]["payload"] = payload.clone();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["payload"] =
        payload;
    let parts = |by: &str| {
        json!({
            "metadata": {"labels": {"l": by}, "annotations": {"a": by}}, "payload": {"p": by},
        })
    };
    for (propagate, expected) in [
        ("[]", ["1", "1", "1"]),
        (r#"["labels"]"#, ["2", "1", "1"]),
        (r#"["annotations"]"#, ["1", "2", "1"]),
        (r#"["payload"]"#, ["1", "1", "2"]),
    ] {
        let config = format!(r#"{{"groups": ["golden.example.dev"], "propagate": {propagate}}}"#);
        let there = [export(), schema.clone()];
        let world = World::with_definition([binding()], there, definition.clone());
        let settle = || assert_eq!(world.failures_under(&config), Vec::<String>::new());
        settle();
        for by in ["1", "2"] {
            world.home().apply(&with(rocket("team"), parts(by)));
            settle();
        }
        let there = world.at_provider(&rocket("cn-team")).unwrap();
        let found = ["/metadata/labels/l", "/metadata/annotations/a", "/payload/p"];
        let found = found.map(|part| there.pointer(part).unwrap().as_str().unwrap());
        assert_eq!(found, expected, "{propagate}");
    }
}

#[test]
fn a_definition_of_somebody_else_is_left_alone() {
    let world = World::new([definition(), binding()], [export(), schema()]);
    let conditions = World::conditions(world.at_home(&binding()));
    assert!(
        conditions.contains(&"Connected=False/ForeignCustomResourceDefinition".to_owned()),
        "{conditions:?}"
    );
    world.home().apply(&rocket("team"));
    world.settle();
    assert_eq!(world.at_provider(&rocket("cn-team")), None);
}

#[test]
fn a_definition_that_the_api_server_refuses_is_told() {
    // The name in the message is that of the binding.
    let named = |object| with(object, json!({"metadata": {"name": "fleet"}}));
    let world = World::new([named(binding())], [named(export()), schema()]);
    let invalid = json!({"type": "object", "properties": {"spec": {"type": "thing"}}});
    let mut other = schema();
    other["spec"]["versions"][0]["schema"] = invalid;
    world.there().apply(&other);
    assert_eq!(world.failures().len(), 1);
    let binding = world.at_home(&named(binding())).unwrap();
    let connected = &binding["status"]["conditions"][1];
    assert_eq!(connected["reason"], "CustomResourceDefinitionUpdateFailed");
    let message = connected["message"].as_str().unwrap();
    assert!(message.starts_with("CustomResourceDefinition fleet cannot be updated: "), "{message}");
}

#[test]
fn the_status_of_a_cluster_binding_is_repaired_and_summarized() {
    let world = World::bound();
    let of = bind("ClusterBinding", "cn", "cluster");
    let other = json!([{"type": "Healthy", "status": "False", "severity": "Error", "reason": "Late", "message": "late", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world.there().patch(&with(
        of.clone(),
        json!({"status": {"conditions": other, "konnectorVersion": null}}),
    ));
    world.settle();
    let found = world.at_provider(&of).unwrap();
    assert!(found["status"]["konnectorVersion"].is_string(), "{found}");
    assert_eq!(
        World::conditions(Some(found)),
        ["Ready=False/Late", "Healthy=False/Late", "SecretValid=True", "ValidVersion=True"]
    );
}

#[test]
fn a_group_that_is_not_configured_is_refused() {
    let other = |mut object: serde_json::Value| {
        object["spec"]["group"] = "mortise.dev".into();
        object["metadata"]["name"] = "rockets.mortise.dev".into();
        object
    };
    let mut export = export();
    export["spec"]["resources"][0]["group"] = "mortise.dev".into();
    let world = World::new([binding()], [export, other(schema())]);
    let binding = world.at_home(&binding()).unwrap();
    let message = binding["status"]["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains(r#"the API group "mortise.dev" may not be bound"#), "{message}");
}

#[test]
fn a_bundle_has_a_binding_for_each_export() {
    let mut bundle = binding();
    bundle["kind"] = "APIServiceBindingBundle".into();
    bundle["metadata"]["name"] = "all".into();
    let world = World::new([bundle.clone()], [export(), schema()]);
    let found = world.at_home(&binding()).unwrap();
    assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "all");
    assert_eq!(
        World::conditions(world.at_home(&bundle)),
        ["Ready=True", "SecretValid=True", "Synced=True"]
    );
    assert_eq!(World::conditions(Some(found))[0], "Ready=True");
    world.there().delete("APIServiceExport/cn/rockets");
    world.settle();
    assert_eq!(world.at_home(&binding()), None);
}

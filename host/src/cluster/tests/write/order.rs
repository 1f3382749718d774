use super::*;

#[tokio::test]
async fn the_order_is_finalizers_apply_patch_evict_delete_prune_status_events_finalizers() {
    let bed = Bed::new().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    bed.make(&pod).await;
    for name in ["theirs", "unwanted"] {
        bed.make(&config_map(name, json!({}))).await;
    }
    fine(
        &bed.run(Outcome {
            finalizers: finalizers(&["x.dev/g"]).finalizers,
            ..apply([&labelled("old")])
        })
        .await,
    );
    let all = Outcome {
        apply: vec![given(&labelled("new"))],
        patch: vec![given(&config_map("theirs", json!({"ours": "1"})))],
        evict: vec![deletion(object_ref(v1("", "Pod"), Some("a"), "p"))],
        delete: vec![deletion(config_map_ref("unwanted"))],
        prune: pruning("app=x").prune,
        status: Some(json!({"state": "Ready"}).to_string()),
        events: vec![said("Done", "all is done")],
        finalizers: finalizers(&["x.dev/f"]).finalizers,
        ..outcome()
    };
    let written = bed.run(all).await;
    fine(&written);
    let expected = [
        "finalizers Rule r",
        "create ConfigMap new",
        "update ConfigMap theirs",
        "evict Pod p",
        "delete ConfigMap unwanted",
        "delete ConfigMap old",
        "status Rule r",
        "event Event",
        "finalizers Rule r",
    ];
    assert_eq!(actions(&written), expected);
    assert_eq!(bed.object(&rule_ref("r")).await["metadata"]["finalizers"], json!(["x.dev/f"]));
}

#[tokio::test]
async fn within_apply_the_order_is_by_class_and_within_a_class_as_given() {
    let bed = Bed::new().await;
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "e", "namespace": "n"}, "spec": {"ports": [{"port": 80}]}}),
        deployment(None),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c2", "namespace": "n"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1", "namespace": "n"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "b", "namespace": "n"}, "rules": []}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
    ];
    objects[1]["metadata"]["namespace"] = json!("n");
    let written = bed.run(apply(&objects)).await;
    fine(&written);
    let expected = [
        "create Namespace n",
        "create Role b",
        "create ConfigMap c2",
        "create ConfigMap c1",
        "create Deployment d",
        "create Service e",
    ];
    assert_eq!(actions(&written), expected);
}

#[tokio::test]
async fn an_object_is_created_once_its_definition_is_established() {
    let bed = Bed::new().await;
    let thing = json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "a"}, "spec": {"n": 1}});
    let outcome = || apply([&thing, &definition("Thing", "things")]);
    let written = bed.run(outcome()).await;
    fine(&written);
    assert_eq!(
        actions(&written),
        ["create CustomResourceDefinition things.x.dev", "create Thing t"]
    );
    assert_eq!(bed.object(&object_ref(v1("x.dev", "Thing"), Some("a"), "t")).await["spec"]["n"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_whose_names_are_taken_is_a_failure_that_says_so() {
    let bed = Bed::new().await;
    let mut taken = definition("Rule", "others");
    taken["spec"]["names"]["shortNames"] = json!(["rules"]);
    let thing = json!({"apiVersion": "x.dev/v1", "kind": "Rule", "metadata": {"name": "t", "namespace": "a"}});
    let mut other = taken.clone();
    other["spec"]["versions"][0]["name"] = json!("v9");
    other["metadata"]["name"] = json!("others.x.dev");
    let written = bed.run(apply([&other, &thing])).await;
    assert_eq!(codes(&written), [(contract::Action::Apply, 409)]);
    assert!(
        written.failures[0].message.contains("names are not accepted"),
        "{}",
        written.failures[0].message
    );
    assert_eq!(actions(&written), ["create CustomResourceDefinition others.x.dev"]);
}

#[tokio::test]
async fn an_owner_of_the_same_outcome_gets_its_uid_from_the_answer() {
    let bed = Bed::new().await;
    let mut dependent = config_map("dependent", json!({}));
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}]);
    let written = bed.run(apply([&config_map("owner", json!({})), &dependent])).await;
    fine(&written);
    let owner = bed.object(&config_map_ref("owner")).await;
    let dependent_now = bed.object(&config_map_ref("dependent")).await;
    assert_eq!(dependent_now["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    bed.writes();
    fine(&bed.run(apply([&config_map("owner", json!({})), &dependent])).await);
    assert_eq!(bed.writes(), 0, "it is so already");
    let written = bed.run(apply([&dependent, &config_map("owner", json!({}))])).await;
    assert!(written.failures[0].message.contains("written later"), "{:?}", written.failures);
}

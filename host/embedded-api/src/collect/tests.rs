use serde_json::{Value, json};

use crate::testing::{api, config_map, delete, get, send, widgets};

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

#[tokio::test]
async fn dependents_go_after_their_owner() {
    let api = api().await;
    let owner = config_map(&api, "owner", &[], &[]).await;
    let middle = config_map(&api, "middle", &[("owner", &owner, false)], &[]).await;
    config_map(&api, "leaf", &[("middle", &middle, true)], &[]).await;
    assert_eq!(delete(&api, &format!("{MAPS}/owner")).await.1["status"], "Success");
    for name in ["owner", "middle", "leaf"] {
        assert_eq!(get(&api, &format!("{MAPS}/{name}")).await.0, 404, "{name}");
    }
}

#[tokio::test]
async fn an_owner_that_never_was_takes_its_dependent_along() {
    let api = api().await;
    config_map(&api, "dep", &[("none", "9", false)], &[]).await;
    assert_eq!(get(&api, &format!("{MAPS}/dep")).await.0, 404);
}

#[tokio::test]
async fn a_dependent_of_two_stays_while_one_of_them_is_there() {
    let api = api().await;
    let one = config_map(&api, "one", &[], &[]).await;
    let two = config_map(&api, "two", &[], &[]).await;
    config_map(&api, "dep", &[("one", &one, false), ("two", &two, false)], &[]).await;
    delete(&api, &format!("{MAPS}/one")).await;
    let (_, dep) = get(&api, &format!("{MAPS}/dep")).await;
    assert_eq!(dep["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(1), "{dep}");
    delete(&api, &format!("{MAPS}/two")).await;
    assert_eq!(get(&api, &format!("{MAPS}/dep")).await.0, 404);
}

#[tokio::test]
async fn foreground_deletion_waits_for_dependents_that_block() {
    let api = api().await;
    let owner = config_map(&api, "owner", &[], &[]).await;
    config_map(&api, "blocks", &[("owner", &owner, true)], &["example.dev/hold"]).await;
    config_map(&api, "free", &[("owner", &owner, false)], &[]).await;
    let (status, answer) =
        delete(&api, &format!("{MAPS}/owner?propagationPolicy=Foreground")).await;
    assert_eq!((status, &answer["metadata"]["finalizers"]), (200, &json!(["foregroundDeletion"])));
    assert_eq!(get(&api, &format!("{MAPS}/free")).await.0, 404);
    let (_, blocks) = get(&api, &format!("{MAPS}/blocks")).await;
    assert!(blocks["metadata"]["deletionTimestamp"].is_string(), "{blocks}");
    assert_eq!(get(&api, &format!("{MAPS}/owner")).await.0, 200);

    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&api, "PATCH", &format!("{MAPS}/blocks"), &release).await.0, 200);
    for name in ["owner", "blocks"] {
        assert_eq!(get(&api, &format!("{MAPS}/{name}")).await.0, 404, "{name}");
    }
}

#[tokio::test]
async fn an_owner_goes_when_nothing_blocks_its_deletion_any_more() {
    let reference = |name: &str, uid: &str, blocks: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": blocks});
    // The dependent has another owner, it gives up the owner, or it blocks no more.
    for case in ["other", "gone", "free"] {
        let api = api().await;
        let one = config_map(&api, "one", &[], &[]).await;
        let two = config_map(&api, "two", &[], &[]).await;
        let owners = [("one", one.as_str(), true), ("two", two.as_str(), true)];
        let count = if case == "other" { 2 } else { 1 };
        config_map(&api, "dep", &owners[..count], &["example.dev/hold"]).await;
        delete(&api, &format!("{MAPS}/one?propagationPolicy=Foreground")).await;
        let owners = match case {
            "other" => vec![reference("two", &two, true)],
            "gone" => vec![],
            _ => vec![reference("one", &one, false)],
        };
        if case != "other" {
            assert_eq!(get(&api, &format!("{MAPS}/one")).await.0, 200, "{case}");
            let change = json!({"metadata": {"ownerReferences": owners}});
            assert_eq!(send(&api, "PATCH", &format!("{MAPS}/dep"), &change).await.0, 200);
        }
        assert_eq!(get(&api, &format!("{MAPS}/one")).await.0, 404, "{case}");
        let (_, dep) = get(&api, &format!("{MAPS}/dep")).await;
        let kept = dep["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        assert_eq!(kept, owners, "{case}");
    }
}

#[tokio::test]
async fn orphans_stay_and_lose_their_owner() {
    let api = api().await;
    let owner = config_map(&api, "owner", &[], &[]).await;
    config_map(&api, "dep", &[("owner", &owner, false)], &[]).await;
    let (_, answer) = delete(&api, &format!("{MAPS}/owner?propagationPolicy=Orphan")).await;
    assert_eq!(answer["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(get(&api, &format!("{MAPS}/owner")).await.0, 404);
    assert_eq!(get(&api, &format!("{MAPS}/dep")).await.1["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn a_namespace_ends_with_the_last_object_in_it() {
    let api = api().await;
    config_map(&api, "free", &[], &[]).await;
    config_map(&api, "held", &[], &["example.dev/hold"]).await;
    let (_, namespace) = delete(&api, "/api/v1/namespaces/n").await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(get(&api, &format!("{MAPS}/free")).await.0, 404);
    let new = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    assert_eq!(send(&api, "POST", MAPS, &new).await.0, 403);
    assert_eq!(get(&api, "/api/v1/namespaces/n").await.0, 200);
    send(&api, "PATCH", &format!("{MAPS}/held"), &json!({"metadata": {"finalizers": []}})).await;
    assert_eq!(get(&api, "/api/v1/namespaces/n").await.0, 404);
}

#[tokio::test]
async fn a_crd_goes_after_its_objects() {
    let api = api().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let all = "/apis/example.dev/v1/widgets";
    assert_eq!(send(&api, "POST", crds, &widgets("Cluster")).await.0, 201);
    let metadata = json!({"name": "a", "finalizers": ["example.dev/hold"]});
    let widget = json!({"apiVersion": "example.dev/v1", "kind": "Widget", "metadata": metadata});
    assert_eq!(send(&api, "POST", all, &widget).await.0, 201);
    let (status, crd) = delete(&api, &format!("{crds}/widgets.example.dev")).await;
    assert_eq!((status, crd["kind"].as_str()), (200, Some("CustomResourceDefinition")), "{crd}");
    let (_, held) = get(&api, &format!("{all}/a")).await;
    assert_eq!(held["metadata"]["generation"], 2, "{held}");
    assert_eq!(send(&api, "POST", all, &widget).await.0, 403);
    send(&api, "PATCH", &format!("{all}/a"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(get(&api, &format!("{crds}/widgets.example.dev")).await.0, 404);
    assert_eq!(get(&api, all).await.0, 404);
    assert_eq!(
        send(&api, "POST", crds, &widgets("Namespaced")).await.0,
        201,
        "the name is free again"
    );
    let (status, list) = get(&api, all).await;
    assert_eq!((status, &list["items"]), (200, &Value::Array(Vec::new())));
}

async fn running_pod(api: &crate::EmbeddedApi, name: &str) {
    let pods = "/api/v1/namespaces/n/pods";
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node", "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "x"}]},
    });
    assert_eq!(send(api, "POST", pods, &pod).await.0, 201);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(send(api, "PATCH", &format!("{pods}/{name}/status"), &status).await.0, 200);
}

#[tokio::test]
async fn a_budget_counts_ready_pods_and_refuses_the_eviction_that_is_too_much() {
    let api = api().await;
    let budget = json!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    let budgets = "/apis/policy/v1/namespaces/n/poddisruptionbudgets";
    assert_eq!(send(&api, "POST", budgets, &budget).await.0, 201);
    running_pod(&api, "p").await;
    running_pod(&api, "q").await;
    let (_, budget) = get(&api, &format!("{budgets}/b")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 1, "{budget}");
    let evict = |name: &'static str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (status, _) = send(&api, "POST", "/api/v1/namespaces/n/pods/p/eviction", &evict("p")).await;
    assert_eq!(status, 201);
    let (status, refusal) =
        send(&api, "POST", "/api/v1/namespaces/n/pods/q/eviction", &evict("q")).await;
    let cause = json!({"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"});
    assert_eq!((status, &refusal["details"]["causes"]), (429, &json!([cause])), "{refusal}");
}

#[tokio::test]
async fn a_status_that_is_written_is_honoured() {
    let api = api().await;
    running_pod(&api, "p").await;
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}});
    let budgets = "/apis/policy/v1/namespaces/n/poddisruptionbudgets";
    assert_eq!(send(&api, "POST", budgets, &budget).await.0, 201);
    let none = json!({"status": {"disruptionsAllowed": 0}});
    assert_eq!(send(&api, "PATCH", &format!("{budgets}/b/status"), &none).await.0, 200);
    let eviction = json!({"metadata": {"name": "p"}});
    assert_eq!(send(&api, "POST", "/api/v1/namespaces/n/pods/p/eviction", &eviction).await.0, 429);
}

#[tokio::test]
async fn aggregated_roles_have_the_rules_of_others() {
    let api = api().await;
    let all = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let aggregated = json!({
        "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]},
    });
    assert_eq!(send(&api, "POST", all, &aggregated).await.0, 201);
    let rule = |verb: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]});
    for (name, verb) in [("b", "get"), ("a", "list"), ("c", "get")] {
        let part =
            json!({"metadata": {"name": name, "labels": {"to": "all"}}, "rules": [rule(verb)]});
        assert_eq!(send(&api, "POST", all, &part).await.0, 201);
    }
    let (_, whole) = get(&api, &format!("{all}/all")).await;
    assert_eq!(whole["rules"], json!([rule("list"), rule("get")]), "{whole}");
    delete(&api, &format!("{all}/a")).await;
    assert_eq!(get(&api, &format!("{all}/all")).await.1["rules"], json!([rule("get")]));
}

#[tokio::test]
async fn a_claim_goes_when_no_pod_uses_it() {
    let api = api().await;
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let pods = "/api/v1/namespaces/n/pods";
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    for name in ["free", "used"] {
        let claim = json!({"metadata": {"name": name}, "spec": spec});
        assert_eq!(send(&api, "POST", claims, &claim).await.0, 201);
    }
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "used"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "node", "volumes": [volume], "containers": [{"name": "c", "image": "i"}],
    }});
    assert_eq!(send(&api, "POST", pods, &pod).await.0, 201);
    assert_eq!(delete(&api, &format!("{claims}/free")).await.0, 200);
    assert_eq!(get(&api, &format!("{claims}/free")).await.0, 404, "nobody uses it");
    assert_eq!(delete(&api, &format!("{claims}/used")).await.0, 200);
    let (code, used) = get(&api, &format!("{claims}/used")).await;
    assert_eq!(code, 200);
    assert!(used["metadata"]["deletionTimestamp"].is_string(), "{used:#}");
    assert_eq!(delete(&api, &format!("{pods}/p?gracePeriodSeconds=0")).await.0, 200);
    assert_eq!(get(&api, &format!("{claims}/used")).await.0, 404, "the pod is gone");
}

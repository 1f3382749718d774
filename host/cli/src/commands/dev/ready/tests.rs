use std::{sync::Arc, time::Duration};

use mortise_embedded_api::{EmbeddedApi, Fault, Filter, Options, Verb};

use super::*;

fn now() -> Timestamp {
    "2024-01-01T00:00:00Z".parse().unwrap()
}

/// Returns the object with the status of a ready one.
fn marked(mut object: Value) -> Value {
    if let Some(status) = ready(&object, now()) {
        object["status"] = status;
    }
    object
}

#[test]
fn workloads_are_ready_as_of_their_generation() {
    let object =
        |kind: &str| json!({"kind": kind, "metadata": {"generation": 4}, "spec": {"replicas": 3}});
    let cases = [
        ("Deployment", "availableReplicas", 3),
        ("StatefulSet", "readyReplicas", 3),
        ("DaemonSet", "numberReady", 1),
    ];
    for (kind, count, expected) in cases {
        let marked = marked(object(kind));
        assert_eq!(marked["status"][count], expected, "{kind}");
        assert_eq!(marked["status"]["observedGeneration"], 4, "{kind}");
        assert_eq!(ready(&marked, now()), None, "{kind} is not written again");
        let mut changed = marked;
        changed["metadata"]["generation"] = json!(5);
        assert!(ready(&changed, now()).is_some(), "{kind} was changed");
    }
    assert_eq!(ready(&object("Job"), now()), None);
}

#[test]
fn a_pod_runs_with_all_its_containers() {
    let pod = json!({"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let marked = marked(pod);
    assert_eq!(marked["status"]["phase"], "Running");
    assert_eq!(marked["status"]["containerStatuses"][0]["ready"], true);
    let later = now() + Duration::from_mins(1);
    assert_eq!(ready(&marked, later), None, "its times stay");
}

#[test]
fn conditions_of_others_and_the_times_of_ours_stay() {
    let other = json!({"type": "Mine", "status": "False"});
    let ours = json!({"type": "Available", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let object =
        json!({"kind": "Deployment", "metadata": {}, "status": {"conditions": [other, ours]}});
    let marked = marked(object);
    let conditions = marked["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[..2], [other, ours]);
    assert_eq!(conditions[2]["reason"], "NewReplicaSetAvailable");
}

/// A Deployment of two replicas.
fn deployment_of_two(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]},
        }},
    })
}

/// Waits until two replicas of a Deployment are available.
async fn two_are_available(api: &EmbeddedApi, name: &str) {
    let kind = kube::core::GroupVersionKind::gvk("apps", "v1", "Deployment");
    let kind = kube::api::ApiResource::from_gvk(&kind);
    let client = kube::Client::new(api.router(), "default");
    let all: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let is_available = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| object.data["status"]["availableReplicas"] == 2)
    };
    kube::runtime::wait::await_condition(all, name, is_available).await.unwrap();
}

/// Runs `story` to its end while objects are marked ready; fails if the marking ends.
async fn while_marked(api: &EmbeddedApi, messages: &Sender, story: impl Future<Output = ()>) {
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    let clock: Clock = Arc::new(now);
    tokio::select! {
        ended = run(&cluster, &clock, messages) => panic!("it does not end: {ended:?}"),
        ended = tokio::time::timeout(Duration::from_mins(1), story) => ended.unwrap(),
    }
}

#[tokio::test]
async fn a_loaded_deployment_is_marked_ready_through_the_api() {
    let api = EmbeddedApi::new(Options::default());
    let (messages, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let story = async {
        api.load(deployment_of_two("a"), false).unwrap();
        two_are_available(&api, "a").await;
    };
    while_marked(&api, &messages, story).await;
}

/// Returns the objects of a kind.
fn all(api: &EmbeddedApi, kind: &str) -> Vec<Value> {
    api.objects().into_iter().filter(|object| object["kind"] == kind).collect()
}

/// Waits until `holds` is true of the ready Pods.
async fn until_pods(api: &EmbeddedApi, what: &str, holds: impl Fn(&[Value]) -> bool) {
    let glance = Duration::from_millis(10);
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let pods = all(api, "Pod");
            let are_ready = pods.iter().all(|pod| pod["status"]["phase"] == "Running");
            if are_ready && holds(&pods) {
                break;
            }
            tokio::time::sleep(glance).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: {:#?}", all(api, "Pod"));
}

async fn send(api: &EmbeddedApi, method: Method, path: &str, body: Value) {
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    cluster.send(&Outgoing::new(method, path.to_owned(), Some(body))).await.unwrap();
}

#[tokio::test]
async fn each_replica_has_a_pod_and_a_new_template_new_ones() {
    let api = EmbeddedApi::new(Options::default());
    let (messages, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let path = "/apis/apps/v1/namespaces/default/deployments/a";
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].clone();
    let story = async {
        api.load(deployment_of_two("a"), false).unwrap();
        until_pods(&api, "two", |pods| pods.len() == 2).await;
        let pods = all(&api, "Pod");
        let sets = all(&api, "ReplicaSet");
        assert_eq!(sets.len(), 1);
        for pod in &pods {
            let owner = &pod["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], sets[0]["metadata"]["uid"]);
            assert_eq!(owner["controller"], true);
            assert_eq!((&pod["metadata"]["labels"]["a"], image(pod)), (&json!("b"), json!("b")));
            assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
        }
        let owner = &sets[0]["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("Deployment"), &json!("a")));

        // A deleted Pod is replaced.
        let name = pods[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let pod = format!("/api/v1/namespaces/default/pods/{name}");
        send(&api, Method::Delete, &pod, json!({"gracePeriodSeconds": 0})).await;
        let is_other = |pod: &Value| pod["metadata"]["name"] != *name;
        until_pods(&api, "another", |pods| pods.len() == 2 && pods.iter().all(is_other)).await;

        let template = json!({"metadata": {"annotations": {"restarted": "yes"}}, "spec": {"containers": [{"name": "a", "image": "c"}]}});
        let change = json!({"spec": {"replicas": 3, "template": template}});
        send(&api, Method::MergePatch, path, change).await;
        let is_new = |pod: &Value| image(pod) == "c";
        until_pods(&api, "new ones", |pods| pods.len() == 3 && pods.iter().all(is_new)).await;
        assert_eq!(all(&api, "ReplicaSet").len(), 2);

        send(&api, Method::MergePatch, path, json!({"spec": {"replicas": 1}})).await;
        until_pods(&api, "fewer", |pods| pods.len() == 1).await;
        send(&api, Method::Delete, path, json!({"propagationPolicy": "Background"})).await;
        until_pods(&api, "none", <[Value]>::is_empty).await;
    };
    while_marked(&api, &messages, story).await;
}

#[tokio::test]
async fn the_pods_of_a_stateful_set_are_numbered_and_a_daemon_set_has_one() {
    let api = EmbeddedApi::new(Options::default());
    let (messages, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let of_kind = |kind: &str, name: &str| {
        let mut object = deployment_of_two(name);
        object["kind"] = kind.into();
        object["spec"]["selector"]["matchLabels"]["a"] = name.into();
        object["spec"]["template"]["metadata"]["labels"]["a"] = name.into();
        object
    };
    let story = async {
        for (kind, resource, name) in
            [("StatefulSet", "statefulsets", "s"), ("DaemonSet", "daemonsets", "d")]
        {
            let mut object = of_kind(kind, name);
            if kind == "DaemonSet" {
                object["spec"].as_object_mut().unwrap().remove("replicas");
            }
            let path = format!("/apis/apps/v1/namespaces/default/{resource}");
            send(&api, Method::Post, &path, object).await;
        }
        let names = |pods: &[Value]| -> Vec<String> {
            let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
            names.collect()
        };
        let is_one = |name: &String| name.starts_with("d-");
        until_pods(&api, "three", |pods| {
            let names = names(pods);
            names.len() == 3
                && names.iter().any(is_one)
                && ["s-0", "s-1"].iter().all(|name| names.iter().any(|held| held == name))
        })
        .await;
        let template =
            json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "yes"}}}}});
        for (resource, name) in [("statefulsets", "s"), ("daemonsets", "d")] {
            let path = format!("/apis/apps/v1/namespaces/default/{resource}/{name}");
            send(&api, Method::MergePatch, &path, template.clone()).await;
        }
        until_pods(&api, "restarted", |pods| {
            pods.len() == 3
                && pods.iter().all(|pod| pod["metadata"]["annotations"]["restarted"] == "yes")
        })
        .await;
    };
    while_marked(&api, &messages, story).await;
}

#[tokio::test]
async fn a_failed_mark_is_reported_and_other_objects_are_still_marked() {
    let api = EmbeddedApi::new(Options::default());
    let refused = Fault::Refused { code: 403, message: "no marks here".to_owned() };
    api.faults().inject(refused, Filter::resource("deployments").verbs([Verb::Patch]), 1);
    let (messages, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    let story = async {
        api.load(deployment_of_two("a"), false).unwrap();
        let Message::Note(note) = inbox.recv().await.unwrap() else { panic!("no note") };
        assert_eq!(note, "--ready: Deployment apps/v1 default/a is not marked: 403: no marks here");
        api.load(deployment_of_two("b"), false).unwrap();
        two_are_available(&api, "b").await;
    };
    while_marked(&api, &messages, story).await;
}

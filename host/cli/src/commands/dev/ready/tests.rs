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

/// Runs `story` to its end while objects are marked ready; the marking itself must not end.
async fn while_marked(api: &EmbeddedApi, messages: &Sender, story: impl Future<Output = ()>) {
    let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
    let clock: Clock = Arc::new(now);
    tokio::select! {
        ended = run(&cluster, &clock, messages) => panic!("it does not end: {ended:?}"),
        ended = tokio::time::timeout(Duration::from_mins(1), story) => ended.unwrap(),
    }
}

#[tokio::test]
async fn what_is_made_is_marked_ready_through_the_api() {
    let api = EmbeddedApi::new(Options::default());
    let (messages, _inbox) = tokio::sync::mpsc::unbounded_channel();
    let story = async {
        api.load(deployment_of_two("a"), false).unwrap();
        two_are_available(&api, "a").await;
    };
    while_marked(&api, &messages, story).await;
}

#[tokio::test]
async fn what_cannot_be_marked_is_said_and_the_others_are_marked() {
    let api = EmbeddedApi::new(Options::default());
    let refused = Fault::Refused { code: 403, message: "no marks here".to_owned() };
    api.faults().inject(refused, Filter { verbs: vec![Verb::Patch], ..Filter::default() }, 1);
    let (messages, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    let story = async {
        api.load(deployment_of_two("a"), false).unwrap();
        let Message::Note(note) = inbox.recv().await.unwrap() else { panic!("no note") };
        assert_eq!(note, "--ready: apps/v1 Deployment default/a is not marked: 403: no marks here");
        api.load(deployment_of_two("b"), false).unwrap();
        two_are_available(&api, "b").await;
    };
    while_marked(&api, &messages, story).await;
}

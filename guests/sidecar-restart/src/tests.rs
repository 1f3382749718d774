mod fixture;

use std::{collections::BTreeMap, time::Duration};

use istio::{action::RESTARTED_AT, last_applied};
use mortise_sdk::{
    Action, ObjectRef, WriteFailure,
    testing::{Stub, request_for},
};
use serde_json::{Value, json};

use self::fixture::{
    Cluster, IMAGE, OLD, budget, condition, daemon_set, deployment, injector, istio, job_pod,
    namespace, outdated, pod, record, reference, replica_set, replica_set_pod,
    replication_controller, replication_controller_pod,
};
use super::*;
use crate::{describe::FINALIZER, survey::EXCLUDE};

const NOW: &str = "2026-01-01T00:00:00Z";
/// The time of the first restarts: the second after the first run.
const FIRST: &str = "2026-01-01T00:00:01Z";

#[test]
fn an_outdated_workload_is_rolled_out_once() {
    let cluster = Cluster::new([deployment("shop", "web", 2, OLD)].concat());
    let run = cluster.run();
    assert_eq!(cluster.restarted("Deployment", "shop", "web").as_deref(), Some(FIRST));
    assert_eq!(run.failure, None);
    assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
    let held = &cluster.istio()["metadata"]["finalizers"];
    assert!(held.as_array().unwrap().contains(&FINALIZER.into()), "{held}");
    cluster.stub.advance(Duration::from_mins(1));
    assert_eq!(cluster.run().changes, [], "its roll-out is under way");
    cluster.roll(IMAGE);
    assert_eq!(cluster.run().changes, []);
    let asked = cluster.stub.asked_clock();
    assert_eq!(cluster.run().changes, []);
    assert_eq!(cluster.stub.asked_clock(), asked, "nobody asks for the time when all is settled");
}

#[test]
fn a_workload_that_comes_up_with_another_sidecar_again_is_not_restarted_again() {
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD)].concat());
    cluster.run();
    cluster.stub.advance(Duration::from_mins(2));
    cluster.roll(OLD);
    for _ in 0..3 {
        cluster.stub.advance(Duration::from_hours(1));
        assert_eq!(cluster.run().changes, []);
    }
    // Another version of Istio is another reason.
    cluster.install("1.30.3");
    cluster.run();
    let at = cluster.restarted("Deployment", "shop", "web").unwrap();
    assert!(at.as_str() > FIRST, "{at}");
}

#[test]
fn a_controller_that_takes_the_annotation_away_makes_no_loop() {
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD)].concat());
    cluster.run();
    cluster.stub.advance(Duration::from_mins(2));
    cluster.roll(OLD);
    cluster.stub.patch(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: null}}}},
    }));
    assert_eq!(cluster.run().changes, []);
}

#[test]
fn a_port_of_its_own_for_metrics_restarts_a_workload_no_more_than_once() {
    // The original restarts it at every reconcile.
    let port = |annotations: Value| {
        let mut objects = deployment("shop", "web", 1, IMAGE);
        for object in &mut objects {
            match object["kind"].as_str() {
                Some("Pod") => {
                    object["metadata"]["annotations"]["prometheus.io/port"] = "15020".into();
                }
                Some("Deployment") => {
                    object["spec"]["template"]["metadata"]["annotations"] = annotations.clone();
                }
                _ => {}
            }
        }
        let cluster = Cluster::new(objects);
        cluster.run();
        cluster
    };
    let cluster = port(json!({}));
    assert_eq!(cluster.restarted("Deployment", "shop", "web").as_deref(), Some(FIRST));
    let former = "2025-06-01T00:00:00Z";
    let cluster = port(json!({RESTARTED_AT: former}));
    let now = cluster.restarted("Deployment", "shop", "web");
    assert_eq!(now.as_deref(), Some(former), "the original has restarted it for this");
}

#[test]
fn a_switch_of_dns_proxying_restarts_what_is_older() {
    let cluster = Cluster::new(
        [deployment("shop", "web", 1, IMAGE), daemon_set("shop", "log", IMAGE)].concat(),
    );
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    cluster.stub.advance(Duration::from_mins(10));
    cluster.spec(&json!({"config": {"enableDNSProxying": true}}));
    cluster.run();
    let both = ["DaemonSet/shop/log", "Deployment/shop/web"];
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), both);
    cluster.stub.advance(Duration::from_mins(2));
    cluster.roll(IMAGE);
    for object in deployment("shop", "new", 1, IMAGE) {
        cluster.add(object);
    }
    assert_eq!(cluster.run().changes, [], "what is younger has the setting");
}

#[test]
fn the_settings_that_the_original_applied_restart_nothing() {
    let spec = json!({"config": {"enableDNSProxying": true}});
    let last = r#"{"config":{"telemetry":{"metrics":{}},"enableDNSProxying":true},"IstioTag":"1.30.2-distroless"}"#;
    let mut istio = istio(&spec);
    istio["metadata"]["annotations"][last_applied::ANNOTATION] = last.into();
    let cluster = Cluster::new([deployment("shop", "web", 1, IMAGE), vec![istio]].concat());
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
}

#[test]
fn nothing_is_restarted_before_the_injector_makes_what_is_expected() {
    let values = |image: &str| injector_values(&json!({"global": {"proxy": {"image": image}}}));
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![values(OLD)]].concat());
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    assert!(record(&cluster).is_some(), "the last settings are recorded meanwhile");
    cluster.add(values(IMAGE));
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 1);
}

#[test]
fn nothing_is_restarted_before_the_injector_has_switched_the_cni_plugin_too() {
    let values = |enabled: bool| injector_values(&json!({"pilot": {"cni": {"enabled": enabled}}}));
    let mut objects = deployment("shop", "web", 1, IMAGE);
    for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        pod["spec"]["initContainers"] = json!([{"name": "istio-validation", "image": IMAGE}]);
    }
    let cluster = Cluster::new([objects, vec![values(true)]].concat());
    cluster.run();
    cluster.add(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio-features", "namespace": "kyma-system"},
        "data": {"features": r#"{"disableCni": true}"#},
    }));
    assert_eq!(cluster.run().changes, [], "the injector still relies on the plugin");
    cluster.add(values(false));
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 1);
}

#[test]
fn without_a_configured_image_that_of_the_injector_counts() {
    let image = "example.com/istio/istio-proxy-fips:1.30.2-1@sha256:0";
    let values = injector_values(&json!({"global": {"proxy": {"image": image}}}));
    let workloads =
        [deployment("shop", "old", 1, OLD), deployment("shop", "new", 1, image)].concat();
    let cluster = Cluster::new([workloads, vec![values]].concat());
    cluster.stub.reconcile::<Sidecars>(&reference(), "{}");
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), ["Deployment/shop/old"]);
}

#[test]
fn a_quantity_that_cannot_be_read_is_an_error() {
    let cluster = Cluster::new(deployment("shop", "web", 1, OLD));
    let mut istio = cluster.istio();
    // An API server that checks the definition would refuse it.
    let resources = json!({"limits": {"cpu": "much"}});
    istio["spec"] = json!({"components": {"proxy": {"k8s": {"resources": resources}}}});
    let request = request_for(&istio);
    let outcome = Sidecars::reconcile(&request, &Config::default(), &cluster.stub.host()).unwrap();
    let status: Value = serde_json::from_str(&outcome.status.unwrap()).unwrap();
    let condition = &status["status"]["conditions"][0];
    assert_eq!(condition["reason"], "ProxySidecarRestartFailed");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("quantities must match the regular expression"), "{message}");
}

#[test]
fn an_istio_that_is_not_there_yet_is_waited_for() {
    let mut fresh = istio(&json!({}));
    fresh["metadata"]["annotations"] = json!({});
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![fresh]].concat());
    let run = cluster.run();
    assert_eq!((run.failure, cluster.all_restarted()), (None, BTreeMap::new()));
    let held = &cluster.istio()["metadata"]["finalizers"];
    assert_eq!(held.as_array().map_or(0, Vec::len), 1, "nothing is held: {held}");

    let cluster = Cluster::new(deployment("shop", "web", 1, OLD));
    cluster.run();
    cluster.pods_of_istio("1.30.3");
    cluster.stub.advance(Duration::from_mins(1));
    let changes = cluster.run().changes;
    assert_eq!(changes, [], "a roll-out of Istio itself is no error of this processor");
}

#[test]
fn a_broken_map_of_features_is_an_error() {
    let features = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio-features", "namespace": "kyma-system"},
        "data": {"features": "{disableCni"},
    });
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![features]].concat());
    cluster.run();
    assert_eq!(condition(&cluster), ("ProxySidecarRestartFailed", "False"));
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
}

#[test]
fn pods_that_nobody_would_start_again_are_warned_of() {
    let rollout = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "argo", "uid": "u-argo"}]);
    let mut argo = outdated("shop", "argo-1");
    argo["metadata"]["ownerReferences"] = rollout;
    let cluster = Cluster::new(vec![
        outdated("shop", "bare"),
        job_pod("shop", "job-1"),
        argo,
        pod("shop", "fine", IMAGE),
    ]);
    let run = cluster.run();
    assert_eq!(condition(&cluster), ("ProxySidecarManualRestartRequired", "False"));
    let message = &cluster.istio()["status"]["conditions"][0]["message"];
    let expected = "The sidecars of the following workloads could not be restarted: shop/argo, shop/bare, shop/job-1";
    assert_eq!(message, expected);
    assert!(run.changes.iter().all(|change| change.object["kind"] == "Istio"), "{:?}", run.changes);
    assert_eq!(cluster.run().changes, []);
}

#[test]
fn customers_wait_while_a_module_has_to_be_restarted_by_hand() {
    let cluster = Cluster::new(
        [vec![outdated("kyma-system", "bare")], deployment("shop", "web", 1, OLD)].concat(),
    );
    cluster.run();
    assert_eq!(condition(&cluster), ("ProxySidecarRestartFailed", "False"));
    let message = &cluster.istio()["status"]["conditions"][0]["message"];
    let expected = "Error occurred during reconciliation of Istio Sidecars: The sidecars of the following workloads could not be restarted: kyma-system/bare";
    assert_eq!(message, expected);
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    cluster.stub.delete("Pod/kyma-system/bare");
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 1);
}

#[test]
fn modules_come_first() {
    let cluster = Cluster::new(
        [deployment("a", "web", 1, OLD), deployment("kyma-system", "module", 1, OLD)].concat(),
    );
    cluster.run_with(r#"{"restarts": 1}"#);
    let restarted: Vec<String> = cluster.all_restarted().into_keys().collect();
    assert_eq!(restarted, ["Deployment/kyma-system/module"]);
    assert_eq!(condition(&cluster), ("ProxySidecarRestartPartiallySucceeded", "False"));
    cluster.roll(IMAGE);
    cluster.run_with(r#"{"restarts": 1}"#);
    assert_eq!(cluster.all_restarted().len(), 2);
    assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
}

#[test]
fn pods_without_a_template_are_evicted_once_and_budgets_are_heard() {
    let cluster = Cluster::new(vec![
        replication_controller("shop"),
        replication_controller_pod("shop", "rc-1", OLD),
    ]);
    assert_eq!(cluster.run().again, Some(Duration::from_secs(30)));
    cluster.stub.advance(Duration::from_secs(1));
    let run = cluster.run();
    let outcome = run.outcome.unwrap().unwrap();
    let evicted: Vec<&str> = outcome.evict.iter().map(|pod| pod.ref_.name.as_str()).collect();
    assert_eq!((evicted, outcome.delete.len()), (vec!["rc-1"], 0));
    assert_eq!(run.again, Some(Duration::from_secs(30)), "a budget may refuse it");
    cluster.add(replication_controller_pod("shop", "rc-2", OLD));
    let outcome = cluster.run().outcome.unwrap().unwrap();
    assert_eq!(outcome.evict, [], "it came up the same and is not evicted again");
}

#[test]
fn evictions_wait_for_the_pods_that_take_the_place_of_evicted_ones() {
    type Member = fn(&str, &str, &str) -> Value;
    let cases: [(&str, Value, Member); 2] = [
        ("ReplicationController", replication_controller("shop"), replication_controller_pod),
        ("ReplicaSet without owner", replica_set("shop"), replica_set_pod),
    ];
    for (case, owner, member) in cases {
        let old = (1..=6).map(|number| member("shop", &format!("old-{number}"), OLD));
        let cluster = Cluster::new([vec![owner], old.collect()].concat());
        let evicted = || {
            let run = cluster.run_with(r#"{"restarts": 2}"#);
            assert_eq!((run.failure, run.again), (None, Some(Duration::from_secs(30))), "{case}");
            run.outcome.unwrap().unwrap().evict.len()
        };
        assert_eq!(evicted(), 0, "{case}: the settings are recorded first");
        cluster.stub.advance(Duration::from_secs(1));
        assert_eq!(evicted(), 2, "{case}");
        for name in ["new-1", "new-2"] {
            cluster.add_unready(member("shop", name, IMAGE));
        }
        for _ in 0..3 {
            cluster.stub.advance(Duration::from_secs(30));
            assert_eq!(evicted(), 0, "{case}: both are not ready");
        }
        cluster.stub.patch(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new-1", "namespace": "shop"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        assert_eq!(evicted(), 1, "{case}: one is not ready");
        cluster.add_unready(member("shop", "new-3", IMAGE));
        assert_eq!(evicted(), 0, "{case}: another one is not ready");
        cluster.stub.advance(Duration::from_mins(11));
        assert_eq!(evicted(), 2, "{case}: they are awaited no longer");
    }
}

#[test]
fn a_refusal_by_a_budget_is_no_warning_and_others_are_named() {
    let cluster = Cluster::new(vec![replication_controller_pod("shop", "rc-1", OLD)]);
    let refused = |action, kind: mortise_sdk::Kind, code| WriteFailure {
        action,
        ref_: ObjectRef::new(kind, Some("shop"), "x"),
        code,
        reason: String::new(),
        message: "no".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let pod = || mortise_sdk::Kind::new("", "v1", "Pod");
    let said = |failure| {
        let request = Request { failed_writes: vec![failure], ..cluster.request() };
        let outcome = Sidecars::reconcile(&request, &Config::default(), &cluster.stub.host());
        let status: Value = serde_json::from_str(&outcome.unwrap().status.unwrap()).unwrap();
        status["status"]["conditions"][0]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(refused(Action::Evict, pod(), 429)), "Proxy sidecar restart succeeded");
    let named =
        "Proxy sidecar restart partially succeeded: the API server refused Deployment shop/x: no";
    assert_eq!(said(refused(Action::Patch, workload::kind("Deployment"), 403)), named);
}

#[test]
fn a_workload_without_a_sidecar_is_restarted_once_if_it_should_have_one() {
    let mut objects = deployment("shop", "web", 1, "none");
    objects.extend(deployment("other", "web", 1, "none"));
    let mut host = deployment("shop", "host", 1, "none");
    for object in host.iter_mut().filter(|object| object["kind"] == "Pod") {
        object["spec"]["hostNetwork"] = true.into();
    }
    objects.extend(host);
    objects.push(outdated("shop", "bare"));
    let bare = objects.last_mut().unwrap();
    bare["spec"]["containers"] = json!([{"name": "app", "image": "app:1"}]);
    bare["metadata"]["annotations"] = json!({});
    objects.extend([injector(), namespace("shop", &json!({"istio-injection": "enabled"}))]);
    let off = Cluster::new(objects.clone());
    off.run_with(r#"{"missingSidecars": false}"#);
    assert_eq!(off.all_restarted(), BTreeMap::new());

    let cluster = Cluster::new(objects);
    cluster.run();
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), ["Deployment/shop/web"]);
    assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
    cluster.stub.advance(Duration::from_hours(1));
    cluster.roll("none");
    assert_eq!(cluster.run().changes, [], "once");
    // Istio was away when another one was started.
    for object in deployment("shop", "late", 1, "none") {
        cluster.add(object);
    }
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 2);
}

#[test]
fn a_controller_that_takes_the_annotation_away_makes_no_loop_for_missing_sidecars_either() {
    let mut objects = deployment("shop", "web", 1, "none");
    objects.extend([injector(), namespace("shop", &json!({"istio-injection": "enabled"}))]);
    let cluster = Cluster::new(objects);
    let strip = || {
        cluster.stub.patch(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: null}}}},
        }));
    };
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 1);
    // It comes up without a sidecar again, or its roll-out is taken back at once.
    for rolls in [true, false] {
        if rolls {
            cluster.roll("none");
        }
        strip();
        cluster.stub.advance(Duration::from_hours(1));
        assert_eq!(cluster.run().changes, [], "once");
    }
    // A workload of the same name is another one, and that which is gone is forgotten.
    let known = record(&cluster).unwrap()["missing"]["workloads"].clone();
    cluster.stub.delete("Deployment/shop/web");
    for object in deployment("shop", "web", 1, "none") {
        cluster.add(object);
    }
    cluster.run();
    assert_eq!(cluster.all_restarted().len(), 1);
    let now = record(&cluster).unwrap()["missing"]["workloads"].clone();
    assert_eq!((known.as_array().unwrap().len(), now.as_array().unwrap().len()), (1, 1));
    assert_ne!(known, now);
}

#[test]
fn a_restart_for_a_missing_sidecar_that_is_refused_is_tried_again() {
    let mut objects = deployment("shop", "web", 1, "none");
    objects.extend([injector(), namespace("shop", &json!({"istio-injection": "enabled"}))]);
    let cluster = Cluster::new(objects);
    cluster.run();
    cluster.stub.patch(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: null}}}},
    }));
    let refused = WriteFailure {
        action: Action::Patch,
        ref_: ObjectRef::new(workload::kind("Deployment"), Some("shop"), "web"),
        code: 500,
        reason: String::new(),
        message: "no".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let request = Request { failed_writes: vec![refused], ..cluster.request() };
    let outcome = Sidecars::reconcile(&request, &Config::default(), &cluster.stub.host()).unwrap();
    let of_web = |patch: &&mortise_sdk::Manifest| patch.object.contains(r#""name":"web""#);
    assert_eq!(outcome.patch.iter().filter(of_web).count(), 1, "{:?}", outcome.patch);
}

#[test]
fn an_annotation_excludes_a_pod_a_workload_and_a_namespace() {
    let mut objects = [
        deployment("shop", "workload", 1, OLD),
        deployment("shop", "pod", 1, OLD),
        deployment("quiet", "web", 1, OLD),
        vec![outdated("quiet", "bare"), namespace("quiet", &json!({}))],
    ]
    .concat();
    for object in &mut objects {
        let kind_and_name = (object["kind"].as_str(), object["metadata"]["name"].as_str());
        if matches!(
            kind_and_name,
            (Some("Deployment"), Some("workload"))
                | (Some("Pod"), Some("pod-1-0"))
                | (Some("Namespace"), Some("quiet"))
        ) {
            object["metadata"]["annotations"][EXCLUDE] = "true".into();
        }
    }
    let cluster = Cluster::new(objects);
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
    cluster.stub.patch(&json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "quiet", "annotations": {EXCLUDE: null}},
    }));
    cluster.run();
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), ["Deployment/quiet/web"]);
}

#[test]
fn a_daily_window_is_waited_for() {
    let config = r#"{"windows": [{"from": "02:00", "to": "03:00"}], "resyncMinutes": 0}"#;
    let cluster = Cluster::new(deployment("shop", "web", 1, OLD));
    let run = cluster.run_with(config);
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    assert_eq!(run.again, Some(Duration::from_hours(2)));
    assert_eq!(condition(&cluster), ("ProxySidecarRestartPartiallySucceeded", "False"));
    cluster.stub.advance(Duration::from_mins(121));
    cluster.run_with(config);
    assert_eq!(cluster.all_restarted().len(), 1);
}

#[test]
fn a_run_without_a_restart_needs_no_time_with_windows_either() {
    let config = r#"{"windows": [{"from": "02:00", "to": "03:00"}]}"#;
    let cluster = Cluster::new(deployment("shop", "web", 1, IMAGE));
    cluster.run_with(config);
    let asked = cluster.stub.asked_clock();
    cluster.run_with(config);
    assert_eq!(cluster.stub.asked_clock(), asked);
}

#[test]
fn only_the_oldest_resource_is_worked_for() {
    let mut older = istio(&json!({}));
    older["metadata"]["name"] = "older".into();
    older["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z".into();
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![older]].concat());
    assert_eq!(cluster.run().changes, []);
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
}

#[test]
fn a_resource_that_the_checks_refuse_is_not_worked_for() {
    let istio = istio(&json!({"experimental": {"enableAmbient": true}}));
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![istio]].concat());
    assert_eq!(cluster.run().changes, []);
    cluster.run_with(r#"{"experimental": true}"#);
    assert_eq!(cluster.all_restarted().len(), 1);
}

#[test]
fn so_many_workloads_at_a_time_until_all_have_been_restarted_once() {
    restart_all(32, 8);
}

#[test]
#[ignore = "takes a minute"]
fn of_300_workloads_with_2000_pods_30_at_a_time_until_all_have_been_restarted_once() {
    assert_eq!(restart_all(300, 30), 2000);
}

/// Restarts so many outdated workloads, and returns the number of their Pods.
fn restart_all(workloads: usize, limit: usize) -> usize {
    let mut objects = Vec::new();
    for number in 0..workloads {
        let replicas = 6 + usize::from(number % 3 != 0);
        let namespace = format!("team-{}", number % 20);
        objects.extend(deployment(&namespace, &format!("app-{number:03}"), replicas, OLD));
    }
    let pods = objects.iter().filter(|object| object["kind"] == "Pod").count();
    let (cluster, config) = (Cluster::new(objects), json!({"restarts": limit}).to_string());
    let mut times: BTreeMap<String, String> = BTreeMap::new();
    let mut rounds = 0;
    while condition_or_none(&cluster) != Some("ProxySidecarRestartSucceeded".to_owned()) {
        rounds += 1;
        assert!(rounds <= workloads, "no end: {} of {workloads}", times.len());
        cluster.run_with(&config);
        // A second run before the Pods are there begins nothing new.
        cluster.stub.advance(Duration::from_secs(5));
        cluster.run_with(&config);
        let now = cluster.all_restarted();
        let new = now.len() - times.len();
        assert!(new <= limit, "{new} at a time");
        for (workload, at) in &times {
            assert_eq!(now.get(workload), Some(at), "{workload} is restarted once");
        }
        times = now;
        cluster.stub.advance(Duration::from_secs(20));
        cluster.refresh(IMAGE);
    }
    assert_eq!((times.len(), rounds), (workloads, workloads / limit));
    cluster.stub.advance(Duration::from_hours(1));
    assert_eq!(cluster.run_with(&config).changes, []);
    pods
}

fn condition_or_none(cluster: &Cluster) -> Option<String> {
    let istio = cluster.istio();
    Some(istio.pointer("/status/conditions/0/reason")?.as_str()?.to_owned())
}

#[test]
fn a_workload_that_never_becomes_ready_gives_its_place_away_after_a_while() {
    let config = r#"{"restarts": 1}"#;
    let cluster =
        Cluster::new([deployment("a", "stuck", 1, OLD), deployment("b", "web", 1, OLD)].concat());
    cluster.run_with(config);
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), ["Deployment/a/stuck"]);
    cluster.surge("a", "stuck");
    for _ in 0..5 {
        cluster.stub.advance(Duration::from_secs(100));
        let run = cluster.run_with(config);
        assert_eq!(cluster.all_restarted().len(), 1);
        assert_eq!(run.again, Some(Duration::from_secs(30)));
    }
    cluster.stub.advance(Duration::from_secs(101));
    cluster.run_with(config);
    let restarted = cluster.all_restarted();
    assert_eq!(restarted.len(), 2);
    assert_eq!(restarted["Deployment/a/stuck"], FIRST, "it was restarted once");
}

#[test]
fn a_pod_that_goes_before_another_takes_its_place_is_waited_for() {
    let config = r#"{"restarts": 1}"#;
    let mut log = daemon_set("a", "log", OLD);
    // The kubelet stops its containers first.
    log[1]["metadata"]["finalizers"] = json!(["example.com/stopping"]);
    let cluster = Cluster::new([log, deployment("b", "web", 1, OLD)].concat());
    cluster.run_with(config);
    let restarted = || cluster.all_restarted().into_keys().collect::<Vec<_>>();
    assert_eq!(restarted(), ["DaemonSet/a/log"]);
    cluster.stub.delete("Pod/a/log-0");
    cluster.stub.advance(Duration::from_secs(30));
    let run = cluster.run_with(config);
    assert_eq!((restarted().len(), run.again), (1, Some(Duration::from_secs(30))));
    cluster.stub.patch(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "log-0", "namespace": "a", "finalizers": null},
    }));
    cluster.run_with(config);
    assert_eq!(restarted(), ["DaemonSet/a/log", "Deployment/b/web"]);
}

#[test]
fn a_workload_whose_pods_are_not_ready_is_left_alone() {
    let mut objects = deployment("shop", "web", 1, OLD);
    for object in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        object["status"]["conditions"][0]["status"] = "False".into();
    }
    let cluster = Cluster::new(objects);
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
}

#[test]
fn sidecars_are_removed_once_the_injector_is_gone() {
    let mut gateway = outdated("istio-system", "gateway");
    gateway["metadata"]["labels"]["istio"] = "ingressgateway".into();
    let cluster = Cluster::new(
        [
            deployment("shop", "web", 1, IMAGE),
            vec![injector(), outdated("shop", "bare"), gateway],
            vec![replication_controller("shop")],
            vec![replication_controller_pod("shop", "rc-1", IMAGE)],
        ]
        .concat(),
    );
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
    cluster.stub.delete("Istio/kyma-system/default");
    assert_eq!(cluster.run().changes, [], "the injector is still there");
    cluster.stub.delete("MutatingWebhookConfiguration//istio-sidecar-injector");
    cluster.stub.delete("Namespace//istio-system");
    cluster.uninstalled();
    cluster.run();
    assert_eq!(cluster.all_restarted().into_keys().collect::<Vec<_>>(), ["Deployment/shop/web"]);
    assert_eq!(cluster.istio()["metadata"]["finalizers"], json!([FINALIZER]));
    cluster.stub.advance(Duration::from_secs(30));
    let evicted = cluster.run().changes;
    assert!(evicted.iter().any(|change| change.action == "evict"), "{evicted:?}");
    let run = cluster.run();
    let events = run.changes.iter().filter(|change| change.action == "event");
    let messages: Vec<&str> = events.filter_map(|event| event.object["message"].as_str()).collect();
    assert_eq!(messages, ["still have sidecars: Pod shop/bare"], "{:?}", run.changes);
    assert!(cluster.stub.object(&reference()).is_none(), "nothing is held up");
}

#[test]
fn a_resource_that_was_never_installed_is_let_go() {
    let mut fresh = istio(&json!({}));
    fresh["metadata"]["annotations"] = json!({});
    fresh["metadata"]["finalizers"] = json!(["other/finalizer"]);
    let cluster = Cluster::new([deployment("shop", "web", 1, OLD), vec![fresh]].concat());
    cluster.run();
    cluster.stub.delete("Istio/kyma-system/default");
    cluster.run();
    assert_eq!(cluster.all_restarted(), BTreeMap::new());
}

#[test]
fn a_sidecar_that_cannot_be_removed_holds_nothing_up_for_ever() {
    let cluster = Cluster::new(vec![
        replication_controller("shop"),
        replication_controller_pod("shop", "rc-1", IMAGE),
        budget("shop", 0),
    ]);
    cluster.run();
    cluster.stub.delete("Istio/kyma-system/default");
    cluster.uninstalled();
    for _ in 0..5 {
        assert_eq!(cluster.run().again, Some(Duration::from_secs(30)));
        cluster.stub.advance(Duration::from_secs(121));
    }
    let run = cluster.run();
    let events = run.changes.iter().filter(|change| change.action == "event");
    let messages: Vec<&str> = events.filter_map(|event| event.object["message"].as_str()).collect();
    assert_eq!(messages, ["still have sidecars: Pod shop/rc-1"]);
    assert!(cluster.stub.object(&reference()).is_none());
}

#[test]
fn a_removal_in_turns_lasts_until_each_workload_had_its_turn() {
    let config = r#"{"restarts": 2, "patienceMinutes": 10}"#;
    // Roll-outs that come to their end, and such that take longer than they are awaited.
    for (minutes, are_slow) in [(4, false), (11, true)] {
        let workloads =
            (0..8).flat_map(|number| deployment("shop", &format!("w{number}"), 1, IMAGE));
        let cluster = Cluster::new(workloads.collect());
        cluster.run();
        cluster.stub.delete("Istio/kyma-system/default");
        cluster.uninstalled();
        for turn in 1..=4 {
            let run = cluster.run_with(config);
            assert_eq!(run.again, Some(Duration::from_secs(30)), "{minutes} minutes, {turn}");
            assert_eq!(cluster.all_restarted().len(), 2 * turn, "{minutes} minutes, {turn}");
            cluster.stub.advance(Duration::from_mins(minutes));
            if !are_slow {
                cluster.roll("none");
            }
        }
        let changes = cluster.run_with(config).changes;
        assert!(changes.iter().all(|change| change.action != "event"), "{changes:?}");
        assert!(cluster.stub.object(&reference()).is_none(), "nothing is held up");
    }
}

#[test]
fn a_removal_by_evictions_lasts_until_each_pod_had_its_turn() {
    let config = r#"{"restarts": 2, "patienceMinutes": 10}"#;
    let pods = (1..=4).map(|of| replication_controller_pod("shop", &format!("rc-{of}"), IMAGE));
    let cluster = Cluster::new([vec![replication_controller("shop")], pods.collect()].concat());
    cluster.run();
    cluster.stub.delete("Istio/kyma-system/default");
    cluster.uninstalled();
    cluster.run_with(config);
    cluster.stub.advance(Duration::from_secs(30));
    for turn in 1..=2 {
        let evicted = cluster.run_with(config).outcome.unwrap().unwrap().evict;
        assert_eq!(evicted.len(), 2, "{turn}");
        for pod in evicted {
            let name = format!("{}-new", pod.ref_.name);
            cluster.add_unready(replication_controller_pod("shop", &name, "none"));
        }
        if turn == 1 {
            cluster.stub.advance(Duration::from_mins(5));
            assert_eq!(cluster.run_with(config).outcome.unwrap().unwrap().evict, []);
            cluster.stub.advance(Duration::from_mins(5));
        }
    }
    let changes = cluster.run_with(config).changes;
    assert!(changes.iter().all(|change| change.action != "event"), "{changes:?}");
    assert!(cluster.stub.object(&reference()).is_none(), "nothing is held up");
}

#[test]
fn a_roll_out_that_is_under_way_is_waited_for_before_a_removal() {
    let mut objects = deployment("shop", "web", 1, IMAGE);
    let mut other = objects[1].clone();
    other["metadata"]["name"] = "web-2".into();
    other["metadata"]["uid"] = "u-web-2".into();
    other["status"]["readyReplicas"] = 0.into();
    objects.push(other);
    for gets_ready in [true, false] {
        let cluster = Cluster::new(objects.clone());
        cluster.run();
        cluster.stub.delete("Istio/kyma-system/default");
        cluster.uninstalled();
        assert_eq!(cluster.run().again, Some(Duration::from_secs(30)));
        assert_eq!(cluster.all_restarted(), BTreeMap::new());
        if gets_ready {
            cluster.stub.patch(&json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": "web-2", "namespace": "shop"},
                "status": {"readyReplicas": 1},
            }));
            cluster.run();
            assert_eq!(cluster.all_restarted().len(), 1);
            continue;
        }
        cluster.stub.advance(Duration::from_mins(11));
        let changes = cluster.run().changes;
        let events = changes.iter().filter(|change| change.action == "event");
        let messages: Vec<&str> =
            events.filter_map(|event| event.object["message"].as_str()).collect();
        assert_eq!(messages, ["still have sidecars: Deployment shop/web"]);
        assert!(cluster.stub.object(&reference()).is_none());
    }
}

#[test]
fn an_eviction_that_a_budget_refuses_is_tried_again() {
    let cluster = Cluster::new(vec![
        replication_controller("shop"),
        replication_controller_pod("shop", "rc-1", OLD),
        budget("shop", 0),
    ]);
    for _ in 0..3 {
        let run = cluster.run();
        assert_eq!((run.failure, run.again), (None, Some(Duration::from_secs(30))));
        assert_eq!(condition(&cluster), ("ProxySidecarRestartSucceeded", "True"));
        cluster.stub.advance(Duration::from_secs(30));
    }
    cluster.add(budget("shop", 1));
    let changes = cluster.run().changes;
    assert!(changes.iter().any(|change| change.action == "evict"), "{changes:?}");
    assert_eq!(cluster.run().changes, []);
}

/// Returns the `ConfigMap` with the values of the injector.
fn injector_values(values: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio-sidecar-injector", "namespace": "istio-system"},
        "data": {"values": values.to_string()},
    })
}

/// Returns a stub that holds these objects and answers in small pages.
fn stub(objects: Vec<Value>) -> Stub {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crds/operator.kyma-project.io");
    Stub::new().at(NOW).crds(crds).page(100).objects(objects)
}

use mortise_sdk::{
    Action, Processor as _,
    testing::{Stub, request_for},
};
use serde_json::Value;

use super::*;
use crate::IngressGatewayRestarts;

const NOW: &str = "2026-02-01T00:00:00Z";

fn istio(last_applied: &str, own: Option<&str>, spec: &Value) -> Value {
    let mut annotations = json!({last_applied::ANNOTATION: last_applied});
    if let Some(own) = own {
        annotations[record::ANNOTATION] = own.into();
    }
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha2", "kind": "Istio",
        "metadata": {
            "name": "default", "namespace": "kyma-system", "uid": "uid-1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
        },
        "spec": spec,
    })
}

/// Returns the last applied configuration after an installation with this `config`.
fn installed(config: &Value) -> String {
    json!({"config": config, "IstioTag": "1.30.2-distroless"}).to_string()
}

fn workload(kind: &str, name: &str, restarted_at: Option<&str>) -> Value {
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {
            "name": name, "namespace": "istio-system", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    });
    if let Some(at) = restarted_at {
        workload["spec"] = istio::action::roll_out_patch(at)["spec"].clone();
    }
    workload
}

/// A cluster with gateway and control plane, and without a CNI plugin.
fn cluster(istio: &Value) -> Stub {
    let description = IngressGatewayRestarts::describe(&Config::default()).unwrap();
    Stub::new().declared(description).at(NOW).objects([
        istio.clone(),
        workload("Deployment", "istio-ingressgateway", None),
        workload("Deployment", "istiod", None),
    ])
}

fn run(istio: &Value, cluster: &Stub) -> Result<Outcome, Failure> {
    reconcile(&request_for(istio), &Config::default(), &cluster.host())
}

fn parsed(manifests: &[Manifest]) -> Vec<Value> {
    manifests.iter().map(|manifest| serde_json::from_str(&manifest.object).unwrap()).collect()
}

/// Returns the names of the workloads that an outcome restarts.
fn restarted(outcome: &Outcome) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let patches = parsed(&outcome.patch);
    patches.iter().filter(|object| object["kind"] != "Istio").map(name).collect()
}

/// Returns the names of the workloads for which an outcome begins a restart. It restarts none.
fn begun(outcome: &Outcome) -> Vec<&'static str> {
    assert_eq!(restarted(outcome), [""; 0], "the record comes first");
    let restarting = recorded(outcome).and_then(|record| record.restarting);
    let workloads = restarting.into_iter().flat_map(|restart| restart.workloads);
    workloads.map(Workload::name).collect()
}

/// Returns the record that an outcome writes.
fn recorded(outcome: &Outcome) -> Option<Record> {
    let patches = parsed(&outcome.patch);
    let object = patches.iter().find(|object| object["kind"] == "Istio")?;
    let text = object["metadata"]["annotations"][record::ANNOTATION].as_str().unwrap();
    Some(serde_json::from_str(text).unwrap())
}

/// Returns the conditions of a status by type: reason and message.
fn said(status: Option<&String>) -> Vec<(String, String, String)> {
    let object: Value = serde_json::from_str(status.unwrap()).unwrap();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|one| (text(one, "type"), text(one, "reason"), text(one, "message")))
        .collect()
}

fn mesh(proxies: i64) -> Value {
    let mesh = format!("defaultConfig: {{gatewayTopology: {{numTrustedProxies: {proxies}}}}}\n");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"mesh": mesh},
        "metadata": {"name": "istio", "namespace": "istio-system"},
    })
}

#[test]
fn nothing_is_done_for_a_refused_or_deleted_resource() {
    let changed = json!({"config": {"numTrustedProxies": 2}});
    let twice =
        json!({"config": {"numTrustedProxies": 2, "authorizers": [{"name": "a"}, {"name": "a"}]}});
    let mut deleted = istio(&installed(&json!({})), None, &changed);
    deleted["metadata"]["deletionTimestamp"] = NOW.into();
    let cases = [("refused", istio(&installed(&json!({})), None, &twice)), ("deleted", deleted)];
    for (case, istio) in cases {
        assert_eq!(run(&istio, &cluster(&istio)), Ok(Outcome::new()), "{case}");
    }
}

#[test]
fn before_an_installation_the_restart_of_what_is_there_begins() {
    let changed = json!({"config": {"numTrustedProxies": 2}});
    let record = |proxies: i64, at: &str| {
        json!({
            "numTrustedProxies": proxies, "networkPoliciesEnabled": false,
            "restarting": {"at": at, "workloads": ["istio-ingressgateway"]},
        })
        .to_string()
    };
    let begun_before = record(2, "2026-01-15T00:00:00Z");
    let begins = |last: &str, own: Option<&str>, spec: &Value| {
        let istio = istio(last, own, spec);
        let outcome = run(&istio, &cluster(&istio)).unwrap();
        assert_eq!((&outcome.status, &outcome.requeue), (&None, &Outcome::new().requeue));
        (begun(&outcome), recorded(&outcome).map(|record| record.restarting.unwrap().at))
    };
    let (gateway, now) = (vec!["istio-ingressgateway"], Some(NOW.to_owned()));
    let nothing = (vec![], None);
    assert_eq!(begins("{}", None, &changed), (gateway.clone(), now.clone()));
    assert_eq!(begins("{}", None, &json!({})), nothing, "no settings");
    let applied = json!({"config": {"numTrustedProxies": 2}}).to_string();
    assert_eq!(begins(&applied, None, &changed), nothing, "applied, though without a tag");
    assert_eq!(begins("{}", Some(&begun_before), &changed), nothing, "it has begun");
    assert_eq!(begins("{}", Some(&record(1, NOW)), &changed), (gateway, now), "changed again");
    assert_eq!(begins("{}", Some("{"), &changed), nothing, "a broken record stays");

    // Once Istio is installed, what was made since then needs no restart.
    let installed = istio(&installed(&json!({})), Some(&begun_before), &changed);
    let mut young = workload("Deployment", "istio-ingressgateway", None);
    young["metadata"]["creationTimestamp"] = "2026-01-15T00:00:01Z".into();
    let outcome = run(&installed, &cluster(&installed)).unwrap();
    assert_eq!(restarted(&outcome), ["istio-ingressgateway"]);
    let outcome = run(&installed, &cluster(&installed).objects([young])).unwrap();
    assert_eq!(restarted(&outcome), [""; 0]);
}

#[test]
fn a_restart_is_recorded_then_done_then_forgotten() {
    let spec = json!({"config": {"numTrustedProxies": 2}});
    let last = installed(&json!({"numTrustedProxies": 1}));
    let with = |record: &Record| istio(&last, Some(&serde_json::to_string(record).unwrap()), &spec);
    let at_once = mortise_sdk::Requeue::After(0);
    let changed = istio(&last, None, &spec);
    let outcome = run(&changed, &cluster(&changed)).unwrap();
    assert_eq!((begun(&outcome), &outcome.requeue), (vec!["istio-ingressgateway"], &at_once));
    let record = recorded(&outcome).unwrap();
    assert_eq!(record.settings.num_trusted_proxies, Some(2));
    assert_eq!(record.restarting.as_ref().unwrap().at, NOW);

    let recorded_only = with(&record);
    let later = cluster(&recorded_only).at("2026-03-01T00:00:00Z");
    let outcome = run(&recorded_only, &later).unwrap();
    assert_eq!(
        (restarted(&outcome), &outcome.requeue),
        (vec!["istio-ingressgateway".to_owned()], &at_once)
    );
    let expected = istio::action::roll_out_patch(NOW)["spec"].clone();
    assert_eq!(parsed(&outcome.patch)[0]["spec"], expected, "the recorded time");
    assert_eq!((recorded(&outcome), later.asked_clock()), (None, 1), "for the condition alone");

    let gateway = workload("Deployment", "istio-ingressgateway", Some(NOW));
    let done = cluster(&recorded_only).objects([gateway]);
    let outcome = run(&recorded_only, &done).unwrap();
    let record = Record { restarting: None, ..record };
    assert_eq!((restarted(&outcome), recorded(&outcome)), (vec![], Some(record.clone())));
    assert_eq!(outcome.requeue, mortise_sdk::Requeue::ByDefault);

    // A template that loses the time afterwards is not restarted for the old change.
    let ended = with(&record);
    let outcome = run(&ended, &cluster(&ended)).unwrap();
    assert_eq!((restarted(&outcome), recorded(&outcome)), (vec![], None));
}

#[test]
fn a_workload_that_was_made_after_the_change_is_not_restarted() {
    let spec = json!({"config": {"numTrustedProxies": 2}});
    let own = json!({
        "numTrustedProxies": 2, "networkPoliciesEnabled": false,
        "restarting": {"at": NOW, "workloads": ["istio-ingressgateway"]},
    });
    let istio = istio(&installed(&json!({})), Some(&own.to_string()), &spec);
    let mut fresh = workload("Deployment", "istio-ingressgateway", None);
    fresh["metadata"]["creationTimestamp"] = NOW.into();
    let outcome = run(&istio, &cluster(&istio).objects([fresh])).unwrap();
    assert_eq!(restarted(&outcome), [""; 0]);
    assert_eq!(recorded(&outcome).unwrap().restarting, None);
}

#[test]
fn a_restart_waits_for_the_settings_of_the_mesh() {
    let spec = json!({"config": {"numTrustedProxies": 2}});
    let istio = istio(&installed(&json!({"numTrustedProxies": 1})), None, &spec);
    let outcome = run(&istio, &cluster(&istio).objects([mesh(1)])).unwrap();
    assert_eq!(begun(&outcome), [""; 0]);
    let former = recorded(&outcome).unwrap();
    assert_eq!(former.settings.num_trusted_proxies, Some(1), "kept until the restart");
    let types: Vec<_> = said(outcome.status.as_ref()).into_iter().map(|said| said.0).collect();
    assert_eq!(types, [USER_RESOURCE], "not restarted yet");
    let outcome = run(&istio, &cluster(&istio).objects([mesh(2)])).unwrap();
    assert_eq!(begun(&outcome), ["istio-ingressgateway"]);
    let mut broken = mesh(2);
    broken["data"]["mesh"] = "{".into();
    let cluster = cluster(&istio).objects([broken]);
    assert_eq!(begun(&run(&istio, &cluster).unwrap()), [""; 0]);
    assert_eq!(cluster.lines().len(), 1, "the reason is in the log");
}

#[test]
fn a_restart_for_network_policies_waits_for_them() {
    let istio = istio(&installed(&json!({})), None, &json!({"networkPoliciesEnabled": true}));
    assert_eq!(begun(&run(&istio, &cluster(&istio)).unwrap()), [""; 0]);
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": LAST_POLICY, "namespace": "istio-system"},
    });
    let outcome = run(&istio, &cluster(&istio).objects([policy])).unwrap();
    assert_eq!(begun(&outcome), ["istio-ingressgateway", "istiod", "istio-cni-node"]);
}

#[test]
fn a_workload_that_does_not_exist_needs_no_restart() {
    let own = json!({
        "networkPoliciesEnabled": true,
        "restarting": {"at": NOW, "workloads": ["istio-ingressgateway", "istiod", "istio-cni-node"]},
    });
    let spec = json!({"networkPoliciesEnabled": true});
    let istio = istio(&installed(&json!({})), Some(&own.to_string()), &spec);
    let outcome = run(&istio, &cluster(&istio)).unwrap();
    assert_eq!(restarted(&outcome), ["istio-ingressgateway", "istiod"]);
    let with_cni = cluster(&istio).objects([workload("DaemonSet", "istio-cni-node", None)]);
    let outcome = run(&istio, &with_cni).unwrap();
    assert_eq!(restarted(&outcome), ["istio-ingressgateway", "istiod", "istio-cni-node"]);
}

#[test]
fn a_take_over_restarts_nothing() {
    let config =
        json!({"numTrustedProxies": 2, "proxyStatsMatcher": {"inclusionRegexps": ["b", "a"]}});
    let istio = istio(&installed(&config), None, &json!({"config": config}));
    let cluster = cluster(&istio);
    let outcome = run(&istio, &cluster).unwrap();
    assert_eq!(restarted(&outcome), [""; 0]);
    let record = recorded(&outcome).unwrap();
    assert_eq!(record.settings.inclusion_regexps, ["a", "b"]);
    assert_eq!(record.restarting, None);
}

#[test]
fn a_second_run_asks_for_no_time_and_writes_nothing() {
    let mut istio =
        istio(&installed(&json!({})), Some(r#"{"networkPoliciesEnabled":false}"#), &json!({}));
    let first = run(&istio, &cluster(&istio)).unwrap();
    let status: Value = serde_json::from_str(first.status.as_ref().unwrap()).unwrap();
    istio["status"] = status["status"].clone();
    let cluster = cluster(&istio);
    let second = run(&istio, &cluster).unwrap();
    assert_eq!((&second, cluster.asked_clock()), (&first, 0));
    assert!(second.patch.is_empty());
}

#[test]
fn a_broken_annotation_is_named_and_nothing_is_touched() {
    let own = r#"{"networkPoliciesEnabled":"#;
    let cases = [
        (istio("{", None, &json!({})), last_applied::ANNOTATION),
        (istio(&installed(&json!({})), Some(own), &json!({})), record::ANNOTATION),
    ];
    for (istio, annotation) in cases {
        let failure = run(&istio, &cluster(&istio)).unwrap_err();
        let message = format!(
            "Could not create Ingress Gateway restart evaluator: annotation {annotation}: unexpected end of JSON input"
        );
        let said = said(failure.status.as_ref());
        assert_eq!(said[0].1, "IngressGatewayRestartFailed");
        assert_eq!((&said[0].2, &failure.message), (&message, &message));
        assert_eq!(said[1].1, "IngressTargetingUserResourceNotFound");
    }
}

#[test]
fn a_failed_restart_is_named_but_not_that_of_a_workload_that_is_gone() {
    let failure = |workload: Workload, code| WriteFailure {
        action: Action::Patch,
        ref_: workload_ref(workload),
        code,
        reason: String::new(),
        message: "no".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let istio = istio(&installed(&json!({})), None, &json!({}));
    let run = |failed_writes| {
        let request = Request { failed_writes, ..request_for(&istio) };
        reconcile(&request, &Config::default(), &cluster(&istio).host()).unwrap()
    };
    let outcome = run(vec![
        failure(Workload::IngressGateway, 403),
        failure(Workload::Istiod, 404),
        failure(Workload::Cni, 409),
    ]);
    let expected = "Failed to restart Ingress Gateway: no; Failed to restart CNI: no";
    assert_eq!(said(outcome.status.as_ref())[0].2, expected);
    let gone = run(vec![failure(Workload::Cni, 404)]);
    assert_eq!(said(gone.status.as_ref()).len(), 1);
}

fn workload_ref(workload: Workload) -> ObjectRef {
    let of = workload.selection();
    ObjectRef::new(of.kind, of.namespace.as_deref(), of.name.unwrap())
}

#[test]
fn a_filter_of_a_user_is_named_and_one_that_cannot_be_read_too() {
    let istio = istio(&installed(&json!({})), None, &json!({}));
    let filter = |name: &str, namespace: &str| {
        json!({
            "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"workloadSelector": {"labels": {"istio": "ingressgateway"}}},
        })
    };
    let elsewhere = cluster(&istio).objects([filter("mine", "default")]);
    let outcome = run(&istio, &elsewhere).unwrap();
    assert_eq!(said(outcome.status.as_ref())[1].1, "IngressTargetingUserResourceNotFound");
    let found = cluster(&istio).objects(["z", "a"].map(|name| filter(name, "istio-system")));
    let outcome = run(&istio, &found).unwrap();
    let message = "misconfigured EnvoyFilter can potentially break Istio Ingress Gateway: user-created EnvoyFilter istio-system/a targeting Ingress Gateway found";
    assert_eq!(said(outcome.status.as_ref())[1].2, message);
    let unknown = cluster(&istio).without_kind("networking.istio.io", "EnvoyFilter");
    let outcome = run(&istio, &unknown).unwrap();
    assert_eq!(said(outcome.status.as_ref())[1].1, "IngressTargetingUserResourceDetectionFailed");
    assert_eq!(run(&istio, &cluster(&istio).unavailable("EnvoyFilter")).unwrap_err().status, None);
}

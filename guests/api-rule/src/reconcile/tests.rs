use mortise_sdk::{
    Action, Deletion, Kind, Manifest, ObjectRef, Processor, Requeue, Retry, WriteFailure,
    testing::{Read, Stub, request_for},
};
use serde_json::{Value, json};

use super::*;
use crate::{ApiRules, existing::HASH};

const READY: &str = "Reconciled successfully";
const OWNED: [&str; 2] =
    ["apirule.gateway.kyma-project.io/name", "apirule.gateway.kyma-project.io/namespace"];

fn rule() -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
        "metadata": {"name": "web", "namespace": "shop", "finalizers": [FINALIZER]},
        "spec": {
            "hosts": ["web"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
            "rules": [
                {"path": "/a", "methods": ["GET"], "noAuth": true},
                {"path": "/{**}", "methods": ["GET"], "jwt": {"authentications": [{"issuer": "i", "jwksUri": "https://i"}]}},
            ],
        },
    })
}

fn cluster() -> Stub {
    let description = ApiRules::describe(&Config::default()).unwrap();
    Stub::new().declared(description).at("2026-05-01T12:00:00Z").objects([
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
            "spec": {"servers": [{"hosts": ["*.example.com"], "tls": {}}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }),
    ])
}

fn produced(kind: &str, name: &str) -> Value {
    let group = if kind == "Rule" { "oathkeeper.ory.sh/v1alpha1" } else { "security.istio.io/v1" };
    let group = if kind == "VirtualService" { "networking.istio.io/v1" } else { group };
    json!({
        "apiVersion": group, "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {OWNED[0]: "web", OWNED[1]: "shop"}},
    })
}

fn run(object: &Value, cluster: &Stub) -> Result<Outcome, Failure> {
    reconcile(&request_for(object), &Config::default(), &cluster.host())
}

fn status(status: Option<&String>) -> (String, String, String) {
    let object: Value = serde_json::from_str(status.unwrap()).unwrap();
    let text = |key: &str| object["status"][key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("description"), text("lastProcessedTime"))
}

fn object(manifest: &Manifest) -> Value {
    serde_json::from_str(&manifest.object).unwrap()
}

fn kinds(outcome: &Outcome) -> Vec<String> {
    outcome
        .apply
        .iter()
        .map(|manifest| object(manifest)["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_rule_becomes_its_objects_in_one_run() {
    let outcome = run(&rule(), &cluster()).unwrap();
    let expected =
        ["VirtualService", "AuthorizationPolicy", "AuthorizationPolicy", "RequestAuthentication"];
    assert_eq!(kinds(&outcome), expected);
    assert_eq!(object(&outcome.apply[0])["spec"]["hosts"], json!(["web.example.com"]));
    assert_eq!(outcome.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert_eq!(outcome.requeue, Requeue::ByDefault);
    assert_eq!(
        status(outcome.status.as_ref()),
        ("Ready".into(), READY.into(), "2026-05-01T12:00:00Z".into())
    );
    let names = |outcome: &Outcome| -> Vec<Value> {
        outcome.apply.iter().map(|manifest| object(manifest)["metadata"]["name"].clone()).collect()
    };
    assert_eq!(
        names(&outcome),
        names(&run(&rule(), &cluster()).unwrap()),
        "names are always the same"
    );
}

#[test]
fn a_second_run_asks_for_no_time_and_changes_nothing() {
    let cluster = cluster();
    let first = run(&rule(), &cluster).unwrap();
    let mut rule = rule();
    let written: Value = serde_json::from_str(first.status.as_ref().unwrap()).unwrap();
    rule["status"] = written["status"].clone();
    let cluster =
        self::cluster().at("2027-01-01T00:00:00Z").objects(first.apply.iter().map(object));
    let second = run(&rule, &cluster).unwrap();
    let mut applied = second.apply.clone();
    applied.sort_by_key(|manifest| first.apply.iter().position(|other| other == manifest));
    assert_eq!((applied, second.delete, second.status), (first.apply, vec![], first.status));
    assert_eq!(cluster.asked_clock(), 0);
}

#[test]
fn objects_of_the_original_are_taken_over_or_deleted() {
    let mut service = produced("VirtualService", "web-x1y2z");
    service["spec"] = json!({"hosts": ["old.com"], "exportTo": ["."]});
    let others = [
        produced("AuthorizationPolicy", "a"),
        produced("RequestAuthentication", "r"),
        produced("Rule", "o"),
    ];
    let outcome = run(&rule(), &cluster().objects(others).objects([service])).unwrap();
    let service = &outcome.apply[0];
    assert_eq!(
        (object(service)["metadata"]["name"].as_str(), &service.absent[..]),
        (Some("web-x1y2z"), &["spec.exportTo".to_owned()][..])
    );
    let deleted: Vec<(&str, Option<&str>)> = outcome
        .delete
        .iter()
        .map(|deletion| (deletion.ref_.name.as_str(), deletion.uid.as_deref()))
        .collect();
    assert_eq!(deleted, [("a", Some("a")), ("r", Some("r")), ("o", Some("o"))]);
}

#[test]
fn a_policy_of_former_times_keeps_its_name() {
    let mut outcome = run(&rule(), &cluster()).unwrap();
    let mut policy = object(&outcome.apply.remove(1));
    let hash = policy["metadata"]["labels"][HASH].as_str().unwrap();
    let (_, rest) = hash.split_once('.').unwrap();
    policy["metadata"]["labels"][HASH] = format!("shop.{rest}").into();
    policy["metadata"]["name"] = "web-old".into();
    policy["spec"]["action"] = "CUSTOM".into();
    let outcome = run(&rule(), &cluster().objects([policy])).unwrap();
    let update = outcome
        .apply
        .iter()
        .find(|manifest| object(manifest)["metadata"]["name"] == "web-old")
        .unwrap();
    assert_eq!((&update.absent[..], outcome.delete.len()), (&["spec.action".to_owned()][..], 0));
}

#[test]
fn what_is_wrong_is_in_the_status_and_tried_again_after_a_minute() {
    let mut wrong = rule();
    wrong["spec"]["gateway"] = "edge/none".into();
    let failure = run(&wrong, &cluster()).unwrap_err();
    let description =
        "Validation errors: Attribute 'spec.gateway': Could not get specified Gateway";
    assert_eq!(failure.retry, Retry::After(60_000));
    assert_eq!(
        status(failure.status.as_ref()),
        ("Error".into(), description.into(), "2026-05-01T12:00:00Z".into())
    );

    wrong["spec"]["gateway"] = "none".into();
    let failure = run(&wrong, &cluster()).unwrap_err();
    let message = "expected Gateway none to be in the namespace/name format";
    assert_eq!((failure.message.as_str(), failure.status), (message, None));

    let mut long = rule();
    long["metadata"]["name"] = "x".repeat(64).into();
    let failure = run(&long, &cluster()).unwrap_err();
    assert!(
        status(failure.status.as_ref()).1.starts_with("ApiRuleErrors: the name is longer"),
        "{failure:?}"
    );

    let mut shape = rule();
    shape["spec"]["rules"] = "none".into();
    let failure = run(&shape, &cluster()).unwrap_err();
    assert!(
        status(failure.status.as_ref())
            .1
            .contains("APIRule gateway.kyma-project.io/v2alpha1 `shop/web`: spec.rules must be an array, not a string"),
        "{failure:?}"
    );
}

#[test]
fn a_missing_crd_is_waited_for() {
    let cases = [
        ("networking.istio.io", "VirtualService", "virtualservices.networking.istio.io"),
        ("security.istio.io", "AuthorizationPolicy", "authorizationpolicies.security.istio.io"),
        ("security.istio.io", "RequestAuthentication", "requestauthentications.security.istio.io"),
    ];
    for (group, kind, crd) in cases {
        let outcome = run(&rule(), &cluster().without_kind(group, kind)).unwrap();
        let text = format!(
            "CRD {crd} is not present. Make sure to install required dependencies for the component"
        );
        assert_eq!(
            status(outcome.status.as_ref()),
            ("Warning".into(), text, "2026-05-01T12:00:00Z".into())
        );
        assert!(outcome.apply.is_empty() && outcome.requeue == Requeue::ByDefault, "{kind}");
    }
    let outcome = run(&rule(), &cluster().without_kind("oathkeeper.ory.sh", "Rule")).unwrap();
    assert_eq!(status(outcome.status.as_ref()).0, "Ready");
}

#[test]
fn what_cannot_be_told_now_says_nothing() {
    for kind in
        ["Gateway", "Service", "Pod", "VirtualService", "AuthorizationPolicy", "Rule", "ConfigMap"]
    {
        let failure = run(&rule(), &cluster().unavailable(kind)).unwrap_err();
        assert_eq!((failure.status, failure.retry), (None, Retry::BackOff), "{kind}");
    }
}

#[test]
fn the_jwt_handler_must_be_known() {
    let cases = [
        (json!({"api-gateway-config": "jwtHandler: istio"}), None),
        (json!({"api-gateway-config": "jwtHandler: \"ory\" # old"}), None),
        (json!({"api-gateway-config": "jwtHandler: foo"}), Some("foo")),
        (json!({"api-gateway-config": "a: b: c"}), Some("")),
        (json!({}), Some("")),
    ];
    for (data, handler) in cases {
        let cluster = cluster().objects([json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
        })]);
        let said = match run(&rule(), &cluster) {
            Ok(outcome) => status(outcome.status.as_ref()).1,
            Err(failure) => status(failure.status.as_ref()).1,
        };
        let expected = handler.map(|handler| {
            format!("Validation errors: Attribute '': Unsupported JWT Handler: {handler}")
        });
        assert_eq!(said, expected.unwrap_or_else(|| READY.to_owned()), "{data}");
    }
}

#[test]
fn a_deleted_rule_takes_everything_along() {
    let kinds = ["AuthorizationPolicy", "RequestAuthentication", "VirtualService", "Rule"];
    let mut deleted = rule();
    deleted["metadata"]["deletionTimestamp"] = "2026-05-01T11:00:00Z".into();
    deleted["spec"] = json!({});
    let mut legacy = produced("VirtualService", "legacy");
    legacy["metadata"]["labels"] = json!({"apirule.gateway.kyma-project.io/v1beta1": "web.shop"});
    let mut foreign = produced("VirtualService", "foreign");
    foreign["metadata"]["labels"][OWNED[1]] = "else".into();
    let objects = kinds.map(|kind| produced(kind, "x")).into_iter().chain([legacy, foreign]);
    let cluster = cluster().objects(objects);
    let outcome = run(&deleted, &cluster).unwrap();
    let gone = |outcome: &Outcome| -> Vec<String> {
        outcome
            .delete
            .iter()
            .map(|Deletion { ref_, .. }| format!("{}/{}", ref_.kind.kind, ref_.name))
            .collect()
    };
    let expected = [
        "AuthorizationPolicy/x",
        "RequestAuthentication/x",
        "VirtualService/legacy",
        "VirtualService/x",
        "Rule/x",
    ];
    assert_eq!(gone(&outcome), expected);
    assert_eq!((outcome.finalizers, outcome.status), (Some(vec![]), None));

    let missing = cluster
        .without_kind("oathkeeper.ory.sh", "Rule")
        .without_kind("networking.istio.io", "VirtualService");
    let outcome = run(&deleted, &missing).unwrap();
    assert_eq!(gone(&outcome), expected[..2]);

    deleted["metadata"]["finalizers"] = json!(["somebody.else"]);
    let outcome = run(&deleted, &missing).unwrap();
    assert!(outcome.delete.is_empty() && outcome.finalizers.is_none());
}

#[test]
fn failed_writes_are_told_by_class() {
    let failure = |action, kind: Kind, name: &str, message: &str| WriteFailure {
        action,
        ref_: ObjectRef::new(kind, Some("shop"), name),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: message.to_owned(),
        conflicting_managers: Vec::new(),
    };
    let request = Request {
        failed_writes: vec![
            failure(Action::Delete, ory::kind(), "o", "one"),
            failure(Action::Apply, istio::virtual_service(), "there", "two"),
            failure(Action::Apply, istio::virtual_service(), "new", "three"),
            failure(Action::Apply, istio::authorization_policy(), "p", "four"),
            failure(Action::Delete, istio::authorization_policy(), "q", "five"),
        ],
        ..request_for(&rule())
    };
    let cluster = cluster().objects([produced("VirtualService", "there")]);
    let outcome = reconcile(&request, &Config::default(), &cluster.host()).unwrap();
    let text = "ApiRuleErrors: three, four\nVirtualServiceErrors: two\nAuthorizationPolicyErrors: five\nAccessRuleErrors: one";
    assert_eq!(status(outcome.status.as_ref()).1, text);
    assert_eq!((outcome.requeue, outcome.apply.len()), (Requeue::After(60_000), 0));
}

#[test]
fn what_is_read_is_no_more_than_what_matters() {
    let first = run(&rule(), &cluster()).unwrap();
    let cluster = cluster().objects(first.apply.iter().map(object));
    run(&rule(), &cluster).unwrap();
    let mut reads = Vec::new();
    for read in cluster.reads() {
        reads.push(match read {
            Read::Get(reference, fields) => {
                format!("{} {} {fields:?}", reference.kind.kind, reference.name)
            }
            Read::List(of) => {
                format!("{} {} {:?} {:?}", of.kind.kind, of.labels, of.matching, of.fields)
            }
        });
    }
    let pods: Vec<&String> = reads.iter().filter(|read| read.starts_with("Pod")).collect();
    assert_eq!(
        pods,
        [r#"Pod app=web [] ["spec.containers[].name", "spec.initContainers[].name"]"#],
        "once for two rules"
    );
    let services: Vec<&String> = reads.iter().filter(|read| read.starts_with("Service")).collect();
    assert_eq!(services, [r#"Service web ["spec.selector"]"#]);
    let hosts = reads
        .iter()
        .filter(|read| read.contains(r#"[("spec.hosts[]", "web.example.com")]"#))
        .count();
    assert_eq!((hosts, reads.len()), (1, 13), "{reads:#?}");
}

#[test]
fn of_several_virtual_services_the_one_of_its_own_namespace_is_kept_up_to_date() {
    let of = |namespace: &str, name: &str| {
        let mut service = produced("VirtualService", name);
        service["metadata"]["namespace"] = namespace.into();
        service
    };
    let services = |outcome: &Outcome| -> Vec<String> {
        let of_kind =
            outcome.apply.iter().map(object).filter(|object| object["kind"] == "VirtualService");
        of_kind
            .map(|object| {
                format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"])
            })
            .collect()
    };
    let outcome =
        run(&rule(), &cluster().objects([of("else", "a"), of("shop", "b"), of("shop", "c")]))
            .unwrap();
    assert_eq!((services(&outcome), outcome.delete), (vec![r#""shop"/"b""#.to_owned()], vec![]));
    let outcome = run(&rule(), &cluster().objects([of("else", "a")])).unwrap();
    assert_eq!(services(&outcome), [r#""else"/"a""#]);
}

#[test]
fn an_object_that_is_gone_needs_nothing() {
    let request = Request { object: None, ..request_for(&rule()) };
    let outcome = reconcile(&request, &Config::default(), &cluster().host()).unwrap();
    assert_eq!(outcome, Outcome::new().requeue_never());
}

/// Changes that people may make to the owner labels of an object.
fn changes_of_labels() -> [(&'static str, Value); 5] {
    [
        ("owner removed", json!({OWNED[0]: null})),
        ("owner changed", json!({OWNED[0]: "else"})),
        ("namespace changed", json!({OWNED[1]: "else"})),
        ("both removed", json!({OWNED[0]: null, OWNED[1]: null})),
        (
            "one of former times added",
            json!({"apirule.gateway.kyma-project.io/v1beta1": "else.shop"}),
        ),
    ]
}

fn relabelled(mut object: Value, change: &Value) -> Value {
    for (label, value) in change.as_object().unwrap() {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove(label);
        if !value.is_null() {
            labels.insert(label.clone(), value.clone());
        }
    }
    object
}

#[test]
fn an_object_whose_owner_labels_were_changed_is_repaired() {
    let first = run(&rule(), &cluster()).unwrap();
    let sorted = |outcome: &Outcome| -> Vec<Value> {
        let mut objects: Vec<Value> = outcome.apply.iter().map(object).collect();
        objects.sort_by_key(ToString::to_string);
        objects
    };
    for (case, change) in changes_of_labels() {
        for at in 0..first.apply.len() {
            let mut objects: Vec<Value> = first.apply.iter().map(object).collect();
            objects[at] = relabelled(objects[at].take(), &change);
            let kind = objects[at]["kind"].clone();
            let outcome = run(&rule(), &cluster().objects(objects))
                .unwrap_or_else(|failure| panic!("{case}, {kind}: {failure:?}"));
            assert_eq!(sorted(&outcome), sorted(&first), "{case}, {kind}");
            assert_eq!(outcome.delete, [], "{case}, {kind}");
        }
    }
}

#[test]
fn an_object_of_the_original_whose_owner_labels_were_changed_is_repaired() {
    let first = run(&rule(), &cluster()).unwrap();
    for (case, change) in changes_of_labels() {
        for at in 0..2 {
            let mut objects: Vec<Value> = first.apply.iter().map(object).collect();
            let generated = "web-x2w2z";
            objects[at]["metadata"]["name"] = generated.into();
            objects[at]["metadata"]["generateName"] = "web-".into();
            objects[at] = relabelled(objects[at].take(), &change);
            let kind = objects[at]["kind"].clone();
            let outcome = run(&rule(), &cluster().objects(objects))
                .unwrap_or_else(|failure| panic!("{case}, {kind}: {failure:?}"));
            let of_name = |manifest: &&Manifest| object(manifest)["metadata"]["name"] == generated;
            assert_eq!(outcome.apply.iter().filter(of_name).count(), 1, "{case}, {kind}");
            assert_eq!((outcome.apply.len(), outcome.delete.len()), (4, 0), "{case}, {kind}");
        }
    }
}

#[test]
fn an_object_of_somebody_else_is_not_taken_over() {
    let service = |namespace: &str, name: &str, labels: Value| {
        let mut service = produced("VirtualService", name);
        service["metadata"]["namespace"] = namespace.into();
        service["metadata"]["labels"] = labels;
        service["spec"] = json!({"hosts": ["web.example.com"]});
        service
    };
    let owner = json!({OWNED[0]: "else", OWNED[1]: "shop"});
    let module = json!({"kyma-project.io/module": "api-gateway"});
    let cases = [
        ("of nobody", service("shop", "by-hand", json!({}))),
        ("of another rule", service("shop", "else-x2w2z", owner.clone())),
        ("a name that looks generated, and no label", service("shop", "web-https", json!({}))),
        ("a name that is not generated", service("shop", "web-proxy", owner.clone())),
        ("in another namespace", service("other", "web-x2w2z", owner)),
        ("with the longer name of another rule", service("shop", "web-b-x2w2z", module)),
    ];
    for (case, service) in cases {
        let failure = run(&rule(), &cluster().objects([service])).expect_err(case);
        let said = status(failure.status.as_ref()).1;
        assert!(said.contains("Host is occupied by another Virtual Service"), "{case}: {said}");
    }
}

#[test]
fn a_deleted_rule_takes_along_the_virtual_service_that_lost_its_labels() {
    let mut objects: Vec<Value> =
        run(&rule(), &cluster()).unwrap().apply.iter().map(object).collect();
    objects[0]["metadata"]["labels"] = json!({});
    let mut deleted = rule();
    deleted["metadata"]["deletionTimestamp"] = "2026-05-01T11:00:00Z".into();
    let outcome = run(&deleted, &cluster().objects(objects)).unwrap();
    let kinds: Vec<&str> =
        outcome.delete.iter().map(|deletion| deletion.ref_.kind.kind.as_str()).collect();
    let policy = "AuthorizationPolicy";
    assert_eq!(kinds, [policy, policy, "RequestAuthentication", "VirtualService"]);
}

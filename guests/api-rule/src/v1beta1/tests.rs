mod objects;

use access_grant::Access;
use mortise_sdk::{
    Action, Failure, Kind, ObjectRef, Outcome, Processor, Request, Requeue, Retry, WriteFailure,
    testing::{Read, Stub, request_for},
};
use serde_json::{Value, json};

use crate::{
    ApiRules, Config,
    annotation::{ORIGINAL_VERSION, V1BETA1_SPEC},
    istio, ory,
    reconcile::reconcile,
};

const FINALIZER: &str = "gateway.kyma-project.io/subresources";
const DEPRECATED: &str = "Version v1beta1 of APIRule is deprecated and will be removed in future releases. \
    Use version v2 instead.";

fn rule(path: &str, strategies: &Value) -> Value {
    json!({"path": path, "methods": ["GET"], "accessStrategies": strategies})
}

fn jwt() -> Value {
    json!({"handler": "jwt", "config": {"authentications": [{"issuer": "i", "jwksUri": "/j"}]}})
}

fn noop() -> Value {
    json!([{"handler": "noop"}])
}

fn spec(rules: &[Value]) -> Value {
    json!({
        "host": "web", "gateway": "gw.edge.svc.cluster.local",
        "service": {"name": "web", "port": 80}, "rules": rules,
    })
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
        "metadata": {
            "name": "web", "namespace": "shop",
            "annotations": {ORIGINAL_VERSION: "v1beta1", V1BETA1_SPEC: spec.to_string()},
        },
        "spec": {"hosts": ["web"]},
    })
}

fn allowed() -> Config {
    Config { v1beta1: Some(Access::Allowed), ..Config::default() }
}

fn cluster(handler: &str) -> Stub {
    let description = ApiRules::describe(&allowed()).unwrap();
    Stub::new().declared(description).at("2026-05-01T12:00:00Z").objects([
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
            "metadata": {"name": "kyma-gateway", "namespace": "kyma-system"},
            "spec": {"servers": [{"hosts": ["*.example.com"], "port": {"protocol": "HTTPS"}}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"app": "web"}},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "api-gateway-config", "namespace": "kyma-system"},
            "data": {"api-gateway-config": format!("jwtHandler: {handler}")},
        }),
    ])
}

fn run(object: &Value, cluster: &Stub) -> Result<Outcome, Failure> {
    reconcile(&request_for(object), &allowed(), &cluster.host())
}

fn applied(outcome: &Outcome) -> Vec<Value> {
    outcome.apply.iter().map(|manifest| serde_json::from_str(&manifest.object).unwrap()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn status(status: Option<&String>) -> (String, String) {
    let object: Value = serde_json::from_str(status.unwrap()).unwrap();
    let text = |key: &str| object["status"][key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("description"))
}

#[test]
fn each_handler_makes_its_own_objects() {
    let rules = [rule("/jwt", &json!([jwt()])), rule("/noop", &noop())];
    let istio = run(&object(&spec(&rules)), &cluster("istio")).unwrap();
    let kinds = |outcome: &Outcome| -> Vec<String> {
        let objects = applied(outcome);
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let expected = [
        "VirtualService",
        "AuthorizationPolicy",
        "AuthorizationPolicy",
        "RequestAuthentication",
        "Rule",
    ];
    assert_eq!(kinds(&istio), expected);
    assert_eq!(status(istio.status.as_ref()), ("Warning".into(), DEPRECATED.into()));
    assert_eq!(istio.finalizers.as_deref(), Some(&[FINALIZER.to_owned()][..]));
    assert_eq!(istio.requeue, Requeue::ByDefault);

    // The other handler takes the place of the first one.
    let other =
        rule("/jwt", &json!([{"handler": "jwt", "config": {"trusted_issuers": ["https://i"]}}]));
    let cluster = cluster("ory").objects(applied(&istio));
    let ory = run(&object(&spec(&[other, rule("/noop", &noop())])), &cluster).unwrap();
    assert_eq!(kinds(&ory), ["VirtualService", "Rule", "Rule"]);
    let deleted: Vec<&str> = ory.delete.iter().map(|it| it.ref_.kind.kind.as_str()).collect();
    assert_eq!(deleted, ["AuthorizationPolicy", "AuthorizationPolicy", "RequestAuthentication"]);
}

#[test]
fn a_second_run_changes_nothing() {
    for handler in ["istio", "ory"] {
        let object =
            object(&spec(&[rule("/a", &noop()), rule("/b", &json!([{"handler": "no_auth"}]))]));
        let first = run(&object, &cluster(handler)).unwrap();
        let mut again = object.clone();
        let written: Value = serde_json::from_str(first.status.as_ref().unwrap()).unwrap();
        again["status"] = written["status"].clone();
        let cluster = cluster(handler).at("2027-01-01T00:00:00Z").objects(applied(&first));
        let second = run(&again, &cluster).unwrap();
        let mut applied = second.apply.clone();
        applied.sort_by_key(|manifest| first.apply.iter().position(|other| other == manifest));
        assert_eq!((applied, second.delete, second.status), (first.apply, vec![], first.status));
        assert_eq!(cluster.asked_clock(), 0);
    }
}

#[test]
fn without_access_nothing_is_changed() {
    let cluster = cluster("istio");
    let denied = Config { v1beta1: Some(Access::Denied), ..Config::default() };
    let request = request_for(&object(&spec(&[rule("/a", &noop())])));
    let outcome = reconcile(&request, &denied, &cluster.host()).unwrap();
    let text = "Version v1beta1 of APIRule is no longer supported and this APIRule is not reconciled. \
        Make sure to migrate to version v2.";
    assert_eq!(status(outcome.status.as_ref()), ("Error".into(), text.into()));
    assert!(outcome.apply.is_empty() && outcome.delete.is_empty() && outcome.finalizers.is_none());
    assert_eq!((outcome.requeue, cluster.reads()), (Requeue::ByDefault, vec![]));
}

#[test]
fn what_is_missing_or_wrong_is_told_in_the_form_of_v1beta1() {
    let short = spec(&[rule("/a", &noop())]);
    let mut qualified = short.clone();
    qualified["host"] = "web.acme.org".into();
    let broken = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": {"name": "kyma-gateway", "namespace": "kyma-system"}, "spec": {"servers": []},
    });
    let crd = |name: &str| {
        format!(
            "CRD {name} is not present. Make sure to install required dependencies for the component"
        )
    };
    let domain = "gateway must have a single https server definition, num=0";
    let cases = [
        (
            "a broken gateway",
            &short,
            cluster("ory").objects([broken.clone()]),
            "Error",
            domain.to_owned(),
        ),
        (
            "a broken gateway that is not used",
            &qualified,
            cluster("ory").objects([broken]),
            "Warning",
            String::new(),
        ),
        (
            "no CRD of Istio",
            &short,
            cluster("ory").without_kind("networking.istio.io", "VirtualService"),
            "Warning",
            crd("virtualservices.networking.istio.io"),
        ),
        (
            "no CRD of Ory",
            &short,
            cluster("istio")
                .without_kind("oathkeeper.ory.sh", "Rule")
                .without_kind("security.istio.io", "AuthorizationPolicy"),
            "Warning",
            crd("rules.oathkeeper.ory.sh"),
        ),
        (
            "an unknown handler",
            &short,
            cluster("foo"),
            "Error",
            "Validation error: Attribute \"\": Unsupported JWT Handler: foo".to_owned(),
        ),
    ];
    for (case, spec, cluster, state, text) in cases {
        let (said, is_retried) = match run(&object(spec), &cluster) {
            Ok(outcome) => (status(outcome.status.as_ref()), false),
            Err(failure) => {
                assert_eq!(failure.retry, Retry::After(60_000), "{case}");
                (status(failure.status.as_ref()), true)
            }
        };
        let text =
            if text.is_empty() { DEPRECATED.to_owned() } else { format!("{DEPRECATED}\n\n{text}") };
        assert_eq!(said, (state.to_owned(), text), "{case}");
        assert_eq!(is_retried, state == "Error", "{case}");
    }
}

#[test]
fn a_missing_service_is_told_and_nothing_is_written() {
    let mut spec = spec(&[rule("/a", &json!([jwt()]))]);
    spec["service"]["name"] = "none".into();
    let failure = run(&object(&spec), &cluster("istio")).unwrap_err();
    let text = format!("{DEPRECATED}\n\nService \"none\" not found");
    assert_eq!(status(failure.status.as_ref()), ("Error".into(), text));
    // Oathkeeper needs no workloads.
    spec["rules"] = json!([rule("/a", &noop())]);
    assert!(run(&object(&spec), &cluster("ory")).is_ok());
}

#[test]
fn an_annotation_without_a_spec_is_told() {
    let cases = [
        (json!({ORIGINAL_VERSION: "v1beta1"}), "v1beta1-spec` is missing"),
        (
            json!({ORIGINAL_VERSION: "v1beta1", V1BETA1_SPEC: "["}),
            "v1beta1-spec` holds no spec: EOF",
        ),
    ];
    for (annotations, expected) in cases {
        let mut object = object(&json!({}));
        object["metadata"]["annotations"] = annotations;
        let failure = run(&object, &cluster("ory")).unwrap_err();
        let said = status(failure.status.as_ref()).1;
        assert!(said.contains(expected), "{said}");
    }
    let mut long = object(&spec(&[rule("/a", &noop())]));
    long["metadata"]["name"] = "x".repeat(64).into();
    let failure = run(&long, &cluster("ory")).unwrap_err();
    assert!(status(failure.status.as_ref()).1.contains("the name is longer than 63 characters"));
}

#[test]
fn what_cannot_be_told_now_says_nothing() {
    for kind in ["Gateway", "ConfigMap", "VirtualService", "Rule", "Service", "Pod"] {
        let object = object(&spec(&[rule("/a", &json!([jwt()]))]));
        let failure = run(&object, &cluster("istio").unavailable(kind)).unwrap_err();
        assert_eq!((failure.status, failure.retry), (None, Retry::BackOff), "{kind}");
    }
}

#[test]
fn failed_writes_are_told_by_kind() {
    let failure = |action, kind: Kind, name: &str, message: &str| WriteFailure {
        action,
        ref_: ObjectRef::new(kind, Some("shop"), name),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: message.to_owned(),
        conflicting_managers: Vec::new(),
    };
    let rule = object(&spec(&[rule("/a", &noop())]));
    let existing = |kind: &str, group: &str| json!({"apiVersion": group, "kind": kind, "metadata": {"name": "there", "namespace": "shop"}});
    let cluster = cluster("ory").objects([
        existing("VirtualService", "networking.istio.io/v1beta1"),
        existing("Rule", "oathkeeper.ory.sh/v1alpha1"),
    ]);
    let cases = [
        (vec![failure(Action::Apply, istio::virtual_service(), "new", "one")], "one"),
        (
            vec![
                failure(Action::Delete, ory::kind(), "gone", "one"),
                failure(Action::Apply, istio::virtual_service(), "there", "two"),
                failure(Action::Apply, ory::kind(), "there", "three"),
                failure(Action::Apply, ory::kind(), "new", "four"),
            ],
            "four\nError has happened on subresource VirtualService\nError has happened on subresource Rule",
        ),
        (
            vec![
                failure(Action::Delete, istio::authorization_policy(), "a", "one"),
                failure(Action::Delete, istio::request_authentication(), "r", "two"),
            ],
            "Error has happened on subresource AuthorizationPolicy\n\
             Error has happened on subresource RequestAuthentication",
        ),
    ];
    for (failed_writes, text) in cases {
        let request = Request { failed_writes, ..request_for(&rule) };
        let outcome = reconcile(&request, &allowed(), &cluster.host()).unwrap();
        let expected = ("Error".to_owned(), format!("{DEPRECATED}\n\n{text}"));
        assert_eq!(status(outcome.status.as_ref()), expected);
        assert_eq!((outcome.requeue, outcome.apply.len()), (Requeue::After(60_000), 0));
    }
}

#[test]
fn a_rule_of_ory_is_found_again_by_its_requests() {
    let existing = |name: &str, path: &str, method: &str| {
        json!({
            "apiVersion": "oathkeeper.ory.sh/v1alpha1", "kind": "Rule",
            "metadata": {
                "name": name, "namespace": "shop", "uid": name,
                "labels": {
                    "apirule.gateway.kyma-project.io/name": "web",
                    "apirule.gateway.kyma-project.io/namespace": "shop",
                },
            },
            "spec": {"match": {"url": format!("<http|https>://web.example.com<{path}>"), "methods": [method]}},
        })
    };
    let cluster = || {
        cluster("ory").objects([
            existing("a", "/a", "PUT"),
            existing("b", "/a", "GET"),
            existing("c", "/c", "GET"),
        ])
    };
    let names = |outcome: &Outcome| {
        let mut names: Vec<String> = of_kind(&applied(outcome), "Rule")
            .iter()
            .map(|rule| rule["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort_by_key(String::len);
        let deleted = outcome.delete.iter().map(|it| it.ref_.name.clone());
        (names, deleted.collect::<Vec<String>>())
    };
    // One rule of a path: the first object that has it, whatever its methods.
    let outcome = run(&object(&spec(&[rule("/a", &noop())])), &cluster()).unwrap();
    assert_eq!(names(&outcome), (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]));
    // Two rules of a path: by methods, too.
    let mut other = rule("/a", &noop());
    other["methods"] = json!(["POST"]);
    let outcome = run(&object(&spec(&[rule("/a", &noop()), other])), &cluster()).unwrap();
    let (kept, deleted) = names(&outcome);
    assert_eq!((kept[0].as_str(), kept.len()), ("b", 2));
    assert_eq!(deleted, ["a", "c"]);
}

#[test]
fn reads_of_v1beta1_do_not_burden_v2() {
    let cluster = cluster("istio").objects([json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "gw", "namespace": "edge"},
        "spec": {"servers": [{"hosts": ["*.example.com"]}]},
    })]);
    let v2 = json!({
        "apiVersion": "gateway.kyma-project.io/v2alpha1", "kind": "APIRule",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "hosts": ["web"], "gateway": "edge/gw", "service": {"name": "web", "port": 80},
            "rules": [{"path": "/a", "methods": ["GET"], "noAuth": true}],
        },
    });
    run(&v2, &cluster).unwrap();
    let names: Vec<String> = cluster
        .reads()
        .iter()
        .filter_map(|read| match read {
            Read::Get(reference, _) => Some(reference.name.clone()),
            Read::List(_) => None,
        })
        .collect();
    assert!(!names.contains(&"kyma-gateway".to_owned()), "{names:?}");
    assert!(!names.contains(&"apirule-access".to_owned()), "{names:?}");
}

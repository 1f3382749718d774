mod with_oathkeeper;

use std::time::Duration;

use mortise_sdk::{Kind, ObjectRef, testing::Stub};
use serde_json::{Value, json};

use super::*;
use crate::ApiGateways;

const ALLOWED: &str = r#"{"v1beta1": "allowed", "images": {"oathkeeper": "img/oathkeeper", "oathkeeperMaester": "img/maester", "busybox": "img/busybox"}}"#;
const API: &str = "gateways.operator.kyma-project.io/api-gateway";
const KYMA: &str = "gateways.operator.kyma-project.io/kyma-gateway";
const DISCLAIMED: &str = "apigateways.operator.kyma-project.io/managed-by-disclaimer";

fn gateway(spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "APIGateway",
        "metadata": {"name": "default"}, "spec": spec,
    })
}

fn object(
    api_version: &str,
    kind: &str,
    (namespace, name): (&str, &str),
    mut more: Value,
) -> Value {
    more["apiVersion"] = api_version.into();
    more["kind"] = kind.into();
    more["metadata"] = json!({"name": name, "namespace": namespace});
    more
}

fn node(cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"capacity": {"cpu": cpu, "memory": memory}},
    })
}

fn with_crds() -> Stub {
    Stub::new().crds("../../crds/operator.kyma-project.io")
}

/// A cluster without Gardener and without vertical autoscalers.
fn local(objects: impl IntoIterator<Item = Value>) -> Stub {
    let namespaces = ["istio-system", "kyma-system"]
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let stub = with_crds().objects(namespaces).objects([node("2", "4Gi")]).objects(objects);
    stub.without_kind("dns.gardener.cloud", "DNSEntry")
        .without_kind("autoscaling.k8s.io", "VerticalPodAutoscaler")
}

fn reference() -> ObjectRef {
    ObjectRef::of::<ApiGateway>(None, "default")
}

fn found(stub: &Stub) -> Value {
    stub.object(&reference()).unwrap()
}

/// Returns state, description, and reason and message of the condition.
fn said(stub: &Stub) -> [String; 4] {
    let status = found(stub)["status"].clone();
    let condition = &status["conditions"][0];
    [&status["state"], &status["description"], &condition["reason"], &condition["message"]]
        .map(|text| text.as_str().unwrap_or_default().to_owned())
}

fn settled(stub: &Stub, config: &str) -> [String; 4] {
    stub.settle::<ApiGateways>(config);
    said(stub)
}

fn finalizers(stub: &Stub) -> Value {
    found(stub)["metadata"]["finalizers"].clone()
}

fn part(stub: &Stub, kind: &str, name: &str) -> Option<Value> {
    let parts = oathkeeper::parts();
    let is_it = |part: &&ObjectRef| part.kind.kind == kind && part.name == name;
    stub.object(parts.iter().find(is_it).unwrap())
}

const READY: [&str; 4] =
    ["Ready", "Successfully reconciled", "ReconcileSucceeded", "Reconciliation succeeded"];

#[test]
fn without_anything_asked_for_the_module_is_ready() {
    let stub = local([gateway(&json!({}))]);
    assert_eq!(settled(&stub, ""), READY);
    assert_eq!(finalizers(&stub), json!([API]));
    let run = stub.reconcile::<ApiGateways>(&reference(), "");
    assert!(run.changes.is_empty(), "{:?}", run.changes);
    assert_eq!(stub.asked_clock(), 1, "only for the first status");
}

#[test]
fn kinds_of_istio_must_be_there() {
    let kinds = [("Gateway", "gateways"), ("VirtualService", "virtualservices")];
    for (kind, plural) in kinds {
        let stub = local([gateway(&json!({"networkPoliciesEnabled": true}))]);
        let stub = stub.without_kind("networking.istio.io", kind);
        let description = format!(
            "CRD {plural}.networking.istio.io is not present. Make sure to install required \
             dependencies for the component"
        );
        let expected =
            ["Error", &description, "DependenciesMissing", "Module dependencies missing"];
        assert_eq!(settled(&stub, ""), expected);
        // The network policy comes first, the finalizer later.
        assert!(stub.object(&network_policy::reference()).is_some());
        assert_eq!(finalizers(&stub), Value::Null);
    }
}

#[test]
fn the_oldest_counts() {
    let mut old = gateway(&json!({"enableKymaGateway": true}));
    old["metadata"] = json!({"name": "old", "creationTimestamp": "2024-01-01T00:00:00Z"});
    let mut young = gateway(&json!({"enableKymaGateway": true}));
    young["metadata"]["creationTimestamp"] = json!("2024-05-01T00:00:00Z");
    young["metadata"]["finalizers"] = json!([API]);
    let stub = local([old, young]);
    let description =
        "stopped APIGateway CR reconciliation: only APIGateway CR old reconciles the module";
    let message = "API Gateway CR is not the oldest one and does not represent the module state";
    assert_eq!(settled(&stub, ""), ["Warning", description, "OlderCRExists", message]);
    stub.delete("APIGateway//default");
    stub.settle::<ApiGateways>("");
    assert!(stub.object(&reference()).is_none());
}

#[test]
fn the_network_policy_comes_and_goes() {
    let stub = local([gateway(&json!({"networkPoliciesEnabled": true}))]);
    settled(&stub, "");
    let policy = || stub.object(&network_policy::reference());
    let labels = policy().unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"api-gateway.kyma-project.io/managed-by": "default"}));
    let ports = |of: &str| {
        let rules = policy().unwrap()["spec"][of].clone();
        rules.as_array().unwrap().iter().map(|rule| rule["ports"][0]["port"].clone()).collect()
    };
    let (egress, ingress): (Vec<Value>, Vec<Value>) = (ports("egress"), ports("ingress"));
    assert_eq!(
        (egress, ingress),
        (vec![443.into(), 53.into(), 8053.into(), 53.into()], vec![9443.into(), 8080.into()])
    );
    stub.patch(&gateway(&json!({"networkPoliciesEnabled": false})));
    settled(&stub, "");
    assert!(policy().is_none());
}

#[test]
fn a_local_gateway_has_a_pair_of_its_own() {
    let stub = local([gateway(&json!({"enableKymaGateway": true}))]);
    assert_eq!(settled(&stub, ""), READY);
    assert_eq!(finalizers(&stub), json!([API, KYMA]));
    let secret = || stub.object(&names::secret()).unwrap();
    let first = secret();
    assert_eq!(first["type"], "Opaque");
    assert!(first["metadata"]["annotations"][DISCLAIMED].is_string());
    stub.patch(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": first["metadata"],
        "data": {"tls.key": "eA=="},
    }));
    settled(&stub, "");
    assert_ne!(secret()["data"]["tls.crt"], first["data"]["tls.crt"]);
    let second = secret();
    stub.advance(Duration::from_hours(10));
    settled(&stub, "");
    assert_eq!(secret()["data"], second["data"]);
}

#[test]
fn gardener_needs_an_address() {
    let shoot = object(
        "v1",
        "ConfigMap",
        ("kube-system", "shoot-info"),
        json!({"data": {"domain": "a.example.com"}}),
    );
    let stub = with_crds()
        .objects(["istio-system", "kyma-system"].map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        ))
        .objects([shoot, gateway(&json!({"enableKymaGateway": true}))])
        .without_kind("autoscaling.k8s.io", "VerticalPodAutoscaler");
    let failed = [
        "Error",
        "Error during Kyma Gateway reconciliation",
        "KymaGatewayReconcileFailed",
        "Kyma Gateway reconciliation failed",
    ];
    assert_eq!(settled(&stub, ""), failed);
    let [dns, certificate, health, default] = names::replaced();
    assert!(stub.object(&certificate).is_none() && stub.object(&default).is_none());
    stub.apply(&object(
        "v1",
        "Service",
        ("istio-system", "istio-ingressgateway"),
        json!({
            "spec": {"ports": [{"port": 443}], "type": "LoadBalancer", "ipFamilies": ["IPv4"]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}},
        }),
    ));
    assert_eq!(settled(&stub, ""), READY);
    let entry = stub.object(&dns).unwrap();
    assert_eq!(entry["metadata"]["annotations"]["dns.gardener.cloud/class"], "garden");
    assert_eq!(entry["metadata"]["annotations"].get("dns.gardener.cloud/ip-stack"), None);
    assert_eq!(entry["spec"]["targets"], json!(["lb.example.com"]));
    for of in [&certificate, &health, &default] {
        assert!(stub.object(of).is_some(), "{of:?}");
    }
    assert!(stub.object(&names::secret()).is_none());
    stub.patch(&gateway(&json!({"enableKymaGateway": false})));
    assert_eq!(settled(&stub, ""), READY);
    assert_eq!(finalizers(&stub), json!([API]));
    for of in [&dns, &certificate, &health, &default] {
        assert!(stub.object(of).is_none(), "{of:?}");
    }
}

fn virtual_service(place: (&str, &str), gateway: &str) -> Value {
    let spec = json!({"spec": {"hosts": ["a.com"], "gateways": ["mesh", gateway]}});
    object("networking.istio.io/v1beta1", "VirtualService", place, spec)
}

fn api_rule(name: &str, version: &str) -> Value {
    let mut rule = object(
        "gateway.kyma-project.io/v2alpha1",
        "APIRule",
        ("shop", name),
        json!({"spec": {"gateway": "kyma-system/kyma-gateway"}}),
    );
    rule["metadata"]["annotations"] = json!({"gateway.kyma-project.io/original-version": version});
    rule
}

#[test]
fn a_gateway_in_use_is_not_deleted() {
    let used: Vec<Value> = (0..7)
        .map(|index| virtual_service(("shop", &format!("vs{index}")), "kyma-system/kyma-gateway"))
        .collect();
    let others = [
        virtual_service(("shop", "other"), "shop/gateway"),
        virtual_service(("shop", "istio-healthz"), "kyma-system/kyma-gateway"),
        api_rule("v1", "v1beta1"),
        api_rule("v2", "v2"),
    ];
    let stub = local([gateway(&json!({"enableKymaGateway": true}))]).objects(used).objects(others);
    assert_eq!(settled(&stub, ""), READY);
    stub.patch(&gateway(&json!({"enableKymaGateway": false})));
    let description = "There are custom resources that block the deletion of Kyma Gateway. Please take a look at \
        kyma-system/api-gateway-controller-manager logs to see more information about the warning";
    let message = "Kyma Gateway deletion blocked because of the existing custom resources: v1, istio-healthz, vs0, vs1, vs2";
    let blocked = ["Warning", description, "KymaGatewayDeletionBlocked", message];
    assert_eq!(settled(&stub, ""), blocked);
    assert_eq!(finalizers(&stub), json!([API, KYMA]));
    stub.delete("VirtualService/shop/*");
    stub.delete("APIRule/shop/v1");
    assert_eq!(settled(&stub, ""), READY);
    let [.., default] = names::replaced();
    assert!(stub.object(&default).is_none());
}

#[test]
fn the_module_is_not_deleted_while_it_is_needed() {
    let named =
        |version: &str, kind: &str, name: &str| object(version, kind, ("shop", name), json!({}));
    let tail = "Please take a look at kyma-system/api-gateway-controller-manager logs to see more information about the warning";
    let cases = [
        ("gateway.kyma-project.io/v2alpha1", "APIRule", "APIRule(s)", 5),
        ("oathkeeper.ory.sh/v1alpha1", "Rule", "ORY Oathkeeper Rule(s)", 5),
        ("gateway.kyma-project.io/v1alpha1", "RateLimit", "RateLimit(s)", 7),
    ];
    for (version, kind, what, listed) in cases {
        let blockers = (0..7).map(|index| named(version, kind, &format!("b{index}")));
        let stub = local([gateway(&json!({}))]).objects(blockers);
        settled(&stub, "");
        stub.delete("APIGateway//default");
        let expected: Vec<String> = (0..listed).map(|index| format!("shop/b{index}")).collect();
        let expected = [
            "Warning".to_owned(),
            format!("There are {what} that block the deletion of API-Gateway CR. {tail}"),
            "DeletionBlockedExistingResources".to_owned(),
            format!(
                "API Gateway deletion blocked because of the existing custom resources: {}",
                expected.join(", ")
            ),
        ];
        assert_eq!(settled(&stub, ""), expected);
        assert_eq!(finalizers(&stub), json!([API]));
        stub.delete(&format!("{kind}/shop/*"));
        stub.settle::<ApiGateways>("");
        assert!(stub.object(&reference()).is_none(), "{kind}");
    }
}

#[test]
fn a_deleted_module_stays_until_its_gateway_is_not_in_use() {
    let used = virtual_service(("shop", "vs"), "kyma-system/kyma-gateway");
    let stub = local([gateway(&json!({"enableKymaGateway": true})), used]);
    settled(&stub, "");
    stub.delete("APIGateway//default");
    assert_eq!(settled(&stub, "")[2], "KymaGatewayDeletionBlocked");
    assert_eq!(finalizers(&stub), json!([KYMA]));
    stub.delete("VirtualService/shop/vs");
    stub.settle::<ApiGateways>("");
    assert!(stub.object(&reference()).is_none());
    for of in names::replaced().iter().skip(2).chain([&names::secret()]) {
        assert!(stub.object(of).is_none(), "{of:?}");
    }
}

#[test]
fn the_autoscaler_is_for_clusters_that_know_them() {
    let kind = |kind: &str| Kind::new("autoscaling.k8s.io", "v1", kind);
    let checkpoint = ObjectRef::new(
        kind("VerticalPodAutoscalerCheckpoint"),
        Some("kyma-system"),
        "api-gateway-controller-manager-vpa-manager",
    );
    let stub = with_crds()
        .objects([
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}}),
        ])
        .objects([gateway(&json!({}))]);
    assert_eq!(settled(&stub, ""), READY);
    let of = autoscaler::reference();
    assert_eq!(
        stub.object(&of).unwrap()["spec"]["updatePolicy"]["updateMode"],
        "InPlaceOrRecreate"
    );
    assert!(stub.object(&checkpoint).is_none());
    stub.apply(&object(
        "autoscaling.k8s.io/v1",
        "VerticalPodAutoscalerCheckpoint",
        ("kyma-system", &checkpoint.name),
        json!({"spec": {}}),
    ));
    settled(&stub, "");
    let labels = stub.object(&checkpoint).unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 4);
    stub.delete("APIGateway//default");
    stub.settle::<ApiGateways>("");
    assert!(stub.object(&of).is_none());
}

#[test]
fn a_read_that_is_not_possible_now_leaves_the_status() {
    let stub = local([gateway(&json!({}))]).unavailable("Node");
    let run = stub.reconcile::<ApiGateways>(&reference(), ALLOWED);
    let failure = run.outcome.unwrap().unwrap_err();
    assert_eq!((failure.status, failure.retry), (None, mortise_sdk::Retry::BackOff));
}

#[test]
fn a_refused_write_is_told_by_its_step() {
    use mortise_sdk::Action;
    let failure = |of: &ObjectRef| WriteFailure {
        action: Action::Apply,
        ref_: of.clone(),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        conflicting_managers: Vec::new(),
    };
    let gateway = ApiGateway::default();
    let cases = [
        (oathkeeper::deployment(), "Oathkeeper did not reconcile successfully"),
        (network_policy::reference(), "no"),
        (autoscaler::reference(), "Error during VPA reconciliation"),
        (names::secret(), "Error during Kyma Gateway reconciliation"),
    ];
    for (of, expected) in cases {
        let report = failed_write(&failure(&of), &gateway);
        assert_eq!(report.description.as_deref(), Some(expected));
    }
}

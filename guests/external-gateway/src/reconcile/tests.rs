use mortise_sdk::{ObjectRef, testing::Stub};
use serde_json::{Value, json};

use super::*;
use crate::ExternalGateways;

const REGIONS: &str = "regions: [{name: EU10, subjects: [\"C=DE, CN=a\"]}]";

fn gateway() -> Value {
    json!({
        "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "ExternalGateway",
        "metadata": {"name": "ext", "namespace": "shop"},
        "spec": {
            "externalDomain": "api.acme.org", "internalDomain": {"kymaSubdomain": "external"},
            "region": "eu10", "regionsConfigMap": "regions", "caSecretRef": {"name": "ca"},
        },
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut gateway = gateway();
    *gateway.pointer_mut(pointer).unwrap() = value;
    gateway
}

fn data(kind: &str, namespace: &str, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind, "data": data,
        "metadata": {"name": name, "namespace": namespace},
    })
}

fn authorities() -> Value {
    data("Secret", "shop", "ca", &json!({"ca.crt": "Y2E="}))
}

fn regions() -> Value {
    data("ConfigMap", "shop", "regions", &json!({"regions.yaml": REGIONS}))
}

fn shoot(domain: &Value) -> Value {
    data("ConfigMap", "kube-system", "shoot-info", domain)
}

fn ingress() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "istio-ingressgateway", "namespace": "istio-system"},
        "spec": {"ports": [{"port": 443}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    })
}

fn local(objects: impl IntoIterator<Item = Value>) -> Stub {
    of_gardener(objects).without_kind("dns.gardener.cloud", "DNSEntry")
}

fn of_gardener(objects: impl IntoIterator<Item = Value>) -> Stub {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    Stub::new().objects([namespace]).objects(objects)
}

fn of(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::of::<ExternalGateway>(Some(namespace), name)
}

/// Reconciles until nothing is due, and then what is due a moment later.
fn settle(stub: &Stub) {
    for _ in 0..2 {
        stub.settle::<ExternalGateways>("");
        stub.advance(NEXT_RUN_DELAY);
    }
}

/// Returns state, description, and reason of each condition in the order of their types.
fn settled(stub: &Stub) -> (String, String, Vec<String>) {
    settle(stub);
    let status = stub.object(&of("shop", "ext")).unwrap()["status"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reasons = ["Ready", "DNSEntryReady", "CertificateReady", "GatewayConfigured"].map(|of| {
        let mut all = status["conditions"].as_array().unwrap().iter();
        text(&all.find(|condition| condition["type"] == of).unwrap()["reason"])
    });
    (text(&status["state"]), text(&status["description"]), reasons.to_vec())
}

fn object(stub: &Stub, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    let kind = match kind {
        "Gateway" => crate::object::gateway_kind(),
        "EnvoyFilter" => crate::object::envoy_filter(),
        "DNSEntry" => api_gateway_module::gardener::dns_entry(),
        "Certificate" => api_gateway_module::gardener::certificate(),
        kind => mortise_sdk::Kind::new("", "v1", kind),
    };
    stub.object(&ObjectRef::new(kind, Some(namespace), name))
}

#[test]
fn each_fault_is_told_by_its_reason() {
    let none = || data("Secret", "shop", "other", &json!({}));
    let cases = [
        (
            vec![gateway(), none()],
            "failed to reconcile CA Secret: CA secret shop/ca referenced by spec.caSecretRef not found",
            "CASecretNotFound",
        ),
        (
            vec![with("/spec/caSecretRef", json!({"name": "ca", "namespace": "x"})), authorities()],
            "failed to reconcile CA Secret: CA secret x/ca referenced by spec.caSecretRef not found",
            "CASecretNotFound",
        ),
        (
            vec![gateway(), authorities()],
            "failed to resolve certificate subjects: RegionsConfigMap shop/regions not found",
            "RegionsConfigMapNotFound",
        ),
        (
            vec![with("/spec/region", json!("us10")), authorities(), regions()],
            "failed to resolve certificate subjects: region \"us10\" not defined in ConfigMap shop/regions",
            "RegionNotFound",
        ),
    ];
    for (objects, description, reason) in cases {
        let stub = local(objects);
        let (state, found, reasons) = settled(&stub);
        assert_eq!((state.as_str(), found.as_str()), ("Error", description));
        let no_gardener = "GardenerCRDUnavailable";
        assert_eq!(reasons, [reason, no_gardener, no_gardener, reason]);
        assert!(object(&stub, "Gateway", "shop", "ext-gw").is_none());
    }
}

#[test]
fn faults_before_the_first_object_leave_the_conditions_unknown() {
    let long = "a".repeat(63);
    let too_long = format!(
        "failed to build internal domain: internal domain \"{long}.local.kyma.dev\" is 78 chars; \
         X.509 CommonName limit is 64. Shorten spec.internalDomain.kymaSubdomain by 14 chars."
    );
    let no_domain = "failed to build internal domain: failed to get Gardener cluster domain: \
        domain not found in shoot-info ConfigMap";
    let mut other = gateway();
    other["metadata"] = json!({"name": "a", "namespace": "zoo"});
    let conflict = r#"externalDomain "api.acme.org" is also used by ExternalGateway zoo/a"#;
    let cases = [
        (
            vec![with("/spec/internalDomain/kymaSubdomain", json!(long))],
            too_long.as_str(),
            "InternalDomainTooLong",
        ),
        (vec![gateway(), shoot(&json!({"other": "x"}))], no_domain, "ReconciliationFailed"),
        (vec![gateway(), other], conflict, "ExternalDomainConflict"),
    ];
    for (objects, description, reason) in cases {
        let (state, found, reasons) = settled(&local(objects));
        assert_eq!((state.as_str(), found.as_str()), ("Error", description));
        assert_eq!(reasons, [reason, "Reconciling", "Reconciling", "Reconciling"]);
    }
}

#[test]
fn a_domain_of_64_characters_is_short_enough() {
    let subdomain = "a".repeat(49);
    let objects =
        [with("/spec/internalDomain/kymaSubdomain", json!(subdomain)), authorities(), regions()];
    assert_eq!(settled(&local(objects)).0, "Ready");
}

#[test]
fn the_gateway_waits_for_its_filters_and_goes_before_them() {
    let stub = local([gateway(), authorities(), regions()]);
    let first = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    let kinds = |run: &mortise_sdk::testing::Run, action: &str| -> Vec<String> {
        let changes = run.changes.iter().filter(|change| change.action == action);
        changes.map(|change| change.object["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&first, "create"), ["Secret", "EnvoyFilter", "EnvoyFilter"]);
    assert_eq!((kinds(&first, "status"), first.again), (vec![], Some(NEXT_RUN_DELAY)));
    let second = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    assert_eq!(kinds(&second, "create"), ["Gateway"]);
    assert_eq!(kinds(&second, "status"), ["ExternalGateway"]);

    stub.delete("ExternalGateway/shop/ext");
    let first = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    assert_eq!(kinds(&first, "delete"), ["Gateway"]);
    let second = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    assert_eq!(kinds(&second, "delete"), ["EnvoyFilter", "EnvoyFilter", "Secret"]);
    assert!(stub.object(&of("shop", "ext")).is_none());
}

#[test]
fn a_refused_filter_keeps_the_gateway_away() {
    let stub = local([gateway(), authorities(), regions()]);
    stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    stub.patch(&json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "ext-cv", "namespace": "istio-system"},
        "spec": {"configPatches": []},
    }));
    let run = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    assert!(run.changes.iter().all(|change| change.object["kind"] != "Gateway"));
    assert_eq!(settled(&stub).0, "Ready");
}

#[test]
fn gardener_says_when_the_domain_is_ready() {
    let objects = || {
        [gateway(), authorities(), regions(), shoot(&json!({"domain": "a.example.com"})), ingress()]
    };
    let stub = of_gardener(objects());
    let pending = ["Reconciling", "DNSEntryPending", "CertificatePending", "Ready"];
    let (state, description, reasons) = settled(&stub);
    assert_eq!(
        (state.as_str(), description.as_str()),
        ("Processing", "Waiting for sub-resources to become ready")
    );
    assert_eq!(reasons, pending);
    let generation =
        || stub.object(&of("shop", "ext")).unwrap()["status"]["observedGeneration"].clone();
    assert_eq!(generation(), Value::Null);
    let set = |kind: &str, name: &str, state: &str| {
        let mut found = object(&stub, kind, "istio-system", name).unwrap();
        let patch = json!({
            "apiVersion": found["apiVersion"].take(), "kind": kind,
            "metadata": {"name": name, "namespace": "istio-system"},
            "status": {"state": state, "message": "because"},
        });
        stub.patch(&patch);
    };
    set("DNSEntry", "ext-dns", "Ready");
    assert_eq!(settled(&stub).2, ["Reconciling", "Ready", "CertificatePending", "Ready"]);
    set("Certificate", "ext-cert", "Ready");
    assert_eq!(settled(&stub).2, ["Ready"; 4]);
    assert_eq!(generation(), 1);
    let terminal = [
        (
            "DNSEntry",
            "ext-dns",
            "Stale",
            "DNSEntry is in a terminal error state \"Stale\": because",
        ),
        (
            "Certificate",
            "ext-cert",
            "Revoked",
            "certificate is in a terminal error state \"Revoked\": because",
        ),
    ];
    for (kind, name, state, expected) in terminal {
        set(kind, name, state);
        assert_eq!((settled(&stub).0.as_str(), settled(&stub).1.as_str()), ("Error", expected));
        set(kind, name, "Ready");
    }
    set("DNSEntry", "ext-dns", "Invalid");
    set("Certificate", "ext-cert", "Error");
    let both = "DNSEntry is in a terminal error state \"Invalid\": because\n\
        certificate is in a terminal error state \"Error\": because";
    let (_, description, reasons) = settled(&stub);
    assert_eq!(description, both);
    assert_eq!(
        reasons,
        ["ReconciliationFailed", "DNSEntryError", "CertificateError", "Reconciling"]
    );
}

#[test]
fn a_missing_address_does_not_keep_the_certificate_away() {
    let domain = shoot(&json!({"domain": "a.example.com"}));
    let stub = of_gardener([gateway(), authorities(), regions(), domain]);
    let expected = "failed to reconcile DNSEntry: failed to fetch Istio ingress gateway IP: failed to get \
        istio-ingressgateway service: services \"istio-ingressgateway\" not found";
    assert_eq!(settled(&stub).1, expected);
    assert!(object(&stub, "Certificate", "istio-system", "ext-cert").is_some());
    assert!(object(&stub, "Secret", "istio-system", "ext-tls-cacert").is_none());
}

#[test]
fn two_gateways_of_one_name_do_not_share_objects() {
    let mut second = gateway();
    second["metadata"]["namespace"] = json!("yard");
    second["spec"]["externalDomain"] = json!("other.org");
    let mut of_yard = authorities();
    of_yard["metadata"]["namespace"] = json!("yard");
    let mut regions_of_yard = regions();
    regions_of_yard["metadata"]["namespace"] = json!("yard");
    let stub = local([gateway(), authorities(), regions(), second, of_yard, regions_of_yard]);
    assert_eq!(settled(&stub).0, "Ready");
    let description = stub.object(&of("yard", "ext")).unwrap()["status"]["description"].clone();
    let expected =
        "failed to reconcile CA Secret: `ext-tls-cacert` belongs to ExternalGateway shop/ext";
    assert_eq!(description, expected);

    stub.delete("ExternalGateway/yard/ext");
    assert_eq!(settled(&stub).0, "Ready");
    assert!(object(&stub, "EnvoyFilter", "istio-system", "ext-cv").is_some());
}

#[test]
fn other_keys_of_the_bundle_are_removed() {
    let stub = local([gateway(), authorities(), regions()]);
    settled(&stub);
    stub.patch(&data(
        "Secret",
        "istio-system",
        "ext-tls-cacert",
        &json!({"cacert": "eA==", "ca.crt": "eA=="}),
    ));
    settled(&stub);
    let secret = object(&stub, "Secret", "istio-system", "ext-tls-cacert").unwrap();
    assert_eq!(secret["data"], json!({"ca.crt": "Y2E="}));
}

#[test]
fn a_settled_gateway_asks_no_clock_and_writes_nothing() {
    let stub = local([gateway(), authorities(), regions()]);
    settled(&stub);
    let asked = stub.asked_clock();
    let run = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    assert!(run.changes.is_empty(), "{:?}", run.changes);
    assert_eq!(stub.asked_clock(), asked);
}

#[test]
fn a_name_that_no_label_holds_is_refused() {
    let name = "a".repeat(64);
    let stub = local([with("/metadata/name", json!(name)), authorities(), regions()]);
    settle(&stub);
    let status = stub.object(&of("shop", &name)).unwrap()["status"].clone();
    assert_eq!(
        status["description"],
        "the name is longer than 63 characters, which is the most that a label holds"
    );
}

#[test]
fn a_read_that_is_not_possible_now_leaves_the_status() {
    let stub = local([gateway(), authorities(), regions()]).unavailable("EnvoyFilter");
    let run = stub.reconcile::<ExternalGateways>(&of("shop", "ext"), "");
    let failure = run.outcome.unwrap().unwrap_err();
    assert_eq!((failure.status, failure.retry), (None, mortise_sdk::Retry::BackOff));
}

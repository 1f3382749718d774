use base64::{Engine as _, engine::general_purpose::STANDARD};
use mortise_sdk::{Kind, ObjectRef, kubernetes::Secret, testing::Stub};
use serde_json::{Value, json};

use super::*;
use crate::{WebhookCertificate, client, store::holds};

const SERVICE: &str = "api-gateway-webhook-service";

fn client_config() -> Value {
    json!({"service": {"name": SERVICE, "namespace": "kyma-system", "path": "/x", "port": 443}})
}

fn definition_with(conversion: Value) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "apirules.gateway.kyma-project.io"},
        "spec": {
            "group": "gateway.kyma-project.io", "scope": "Namespaced",
            "names": {"kind": "APIRule", "plural": "apirules"},
            "versions": [
                {"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    });
    definition["spec"]["conversion"] = conversion;
    definition
}

fn definition() -> Value {
    definition_with(json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": client_config(), "conversionReviewVersions": ["v1"]},
    }))
}

fn configuration(kind: &str, name: &str) -> Value {
    let webhook = |name: &str, client: Value| {
        json!({
            "name": name, "clientConfig": client, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [
            webhook("a.kyma.local", client_config()),
            webhook("b.kyma.local", client_config()),
            webhook("c.example.com", json!({"url": "https://example.com"})),
        ],
    })
}

fn clients() -> [Value; 3] {
    let name = |of: &str| format!("api-gateway-{of}-webhook-configuration");
    [
        definition(),
        configuration("MutatingWebhookConfiguration", &name("mutating")),
        configuration("ValidatingWebhookConfiguration", &name("validating")),
    ]
}

fn of_original() -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": "api-gateway-webhook-certificate", "namespace": "kyma-system",
            "labels": {"kyma-project.io/module": "api-gateway"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "uid": "1",
                "name": "api-gateway-controller-manager",
            }],
        },
        "data": {
            "tls.crt": encode(include_str!("../../../certificate/src/chain/rsa.crt")),
            "tls.key": encode(include_str!("../../../certificate/src/chain/rsa.key")),
        },
    })
}

fn secret() -> ObjectRef {
    ObjectRef::of::<Secret>(Some("kyma-system"), "api-gateway-webhook-certificate")
}

fn stored(stub: &Stub) -> Stored {
    Stored::read(&stub.host(), &Config::default().secret).unwrap()
}

fn named(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef::new(kind, None, name)
}

fn of_definition() -> ObjectRef {
    named(client::definition(), "apirules.gateway.kyma-project.io")
}

fn of_mutating() -> ObjectRef {
    named(client::mutating(), "api-gateway-mutating-webhook-configuration")
}

/// Returns the bundles of all webhooks, the definition's first.
fn bundles(stub: &Stub) -> Vec<Option<String>> {
    let text = |client: &Value| {
        let bundle = STANDARD.decode(client["caBundle"].as_str()?).unwrap();
        Some(mark(&String::from_utf8(bundle).unwrap()))
    };
    let webhook = stub.object(&of_definition()).unwrap()["spec"]["conversion"]["webhook"].clone();
    let mut bundles = vec![text(&webhook["clientConfig"])];
    let validating = "api-gateway-validating-webhook-configuration";
    for of in [of_mutating(), named(client::validating(), validating)] {
        let configuration = stub.object(&of).unwrap();
        let webhooks = configuration["webhooks"].as_array().unwrap();
        bundles.extend(webhooks.iter().map(|webhook| text(&webhook["clientConfig"])));
    }
    bundles
}

/// Returns a short text that tells bundles apart: the last signs of each certificate.
fn mark(bundle: &str) -> String {
    let ends = bundle.split("\n-----END").map(|text| &text[text.len().saturating_sub(8)..]);
    ends.collect::<Vec<_>>().join(" ")
}

fn expected(bundle: &str) -> Vec<Option<String>> {
    let bundle = Some(mark(bundle));
    let of = [bundle.clone(), bundle.clone(), None];
    std::iter::once(bundle).chain(of.clone()).chain(of).collect()
}

fn settle(stub: &Stub) {
    let settled = stub.settle::<WebhookCertificate>("");
    assert_eq!(settled.failures, [].into());
}

fn settled(objects: impl IntoIterator<Item = Value>) -> Stub {
    let namespace = json!({"name": "kyma-system"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace});
    let stub = Stub::new().objects([namespace]).objects(objects);
    settle(&stub);
    stub
}

#[test]
fn a_secret_is_made_and_trusted() {
    let stub = settled(clients());
    let of = stub.object(&secret()).unwrap();
    assert_eq!(of["type"], "Opaque");
    assert_eq!(of["metadata"]["labels"], json!({"kyma-project.io/module": "api-gateway"}));
    let keys: Vec<&String> = of["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
    let stored = stored(&stub);
    assert_eq!(bundles(&stub), expected(&stored.authority().unwrap()));
    stub.advance(Duration::from_hours(24));
    settle(&stub);
    assert_eq!(self::stored(&stub), stored);
}

#[test]
fn only_bundles_of_webhooks_of_services_are_written() {
    let stub = settled(clients());
    let mut configuration = stub.object(&of_mutating()).unwrap();
    let webhooks = configuration["webhooks"].as_array_mut().unwrap();
    for webhook in webhooks {
        webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
    }
    let [_, untouched, _] = clients();
    let before = settled([untouched]).object(&of_mutating()).unwrap();
    assert_eq!(configuration["webhooks"], before["webhooks"]);
}

#[test]
fn a_secret_that_is_deleted_is_made_anew_at_once() {
    let stub = settled(clients());
    let former = stored(&stub);
    stub.delete("Secret/kyma-system/*");
    settle(&stub);
    assert_ne!(stored(&stub), former);
    assert_eq!(bundles(&stub), expected(&stored(&stub).authority().unwrap()));
}

#[test]
fn a_bundle_that_somebody_changes_is_repaired() {
    let stub = settled(clients());
    let trusted = expected(&stored(&stub).authority().unwrap());
    let mut configuration = stub.object(&of_mutating()).unwrap();
    configuration["webhooks"][1]["clientConfig"]["caBundle"] = json!("");
    stub.patch(&configuration);
    let mut definition = definition();
    definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = Value::Null;
    stub.patch(&definition);
    assert_ne!(bundles(&stub), trusted);
    settle(&stub);
    assert_eq!(bundles(&stub), trusted);
}

#[test]
fn a_secret_of_the_original_stays_and_is_let_go_by_its_deployment() {
    let stub = settled(clients().into_iter().chain([of_original()]));
    let of = stub.object(&secret()).unwrap();
    assert_eq!(of["data"], of_original()["data"]);
    assert_eq!(of["metadata"]["ownerReferences"], Value::Null);
    let chain = include_str!("../../../certificate/src/chain/rsa.crt");
    assert_eq!(bundles(&stub), expected(chain), "as the original has written them");
}

#[test]
fn a_renewal_is_announced_to_all_clients_first() {
    let stub = settled(clients().into_iter().chain([of_original()]));
    stub.advance(Duration::from_hours(24 * 50));
    settle(&stub);
    let announced = stored(&stub);
    let chain = include_str!("../../../certificate/src/chain/rsa.crt");
    assert_eq!(announced.current.as_ref().unwrap().chain, chain);
    let of_next = Stored { current: announced.next.clone(), ..Stored::default() };
    let authority = of_next.authority().unwrap();
    let both = announced.bundle.clone().unwrap();
    assert!(holds(&both, &authority) && holds(&both, &announced.authority().unwrap()));
    assert_eq!(bundles(&stub), expected(&both));

    stub.advance(Duration::from_mins(5));
    settle(&stub);
    assert_eq!(stored(&stub), Stored { bundle: Some(both.clone()), ..of_next });
    assert_eq!(bundles(&stub), expected(&both));
}

#[test]
fn a_definition_without_a_webhook_is_told() {
    let cases =
        [(Value::Null, "conversion webhook"), (json!({"strategy": "None"}), "conversion webhook")];
    for (conversion, what) in cases {
        let [_, mutating, validating] = clients();
        let stub = settled([definition_with(conversion), mutating, validating]);
        let message = format!(
            "failed to update certificate into CRD: can not add certificate into CRD: {what} not \
             found in APIRule CRD"
        );
        assert!(stub.lines().iter().any(|line| line.message == message), "{:?}", stub.lines());
        let authority = stored(&stub).authority().unwrap();
        assert_eq!(bundles(&stub)[1..], expected(&authority)[1..]);
        assert_eq!(bundles(&stub)[0], None);
    }
}

#[test]
fn each_part_of_a_conversion_may_be_missing() {
    let client = |spec: Value| {
        let of: Definition = serde_json::from_value(json!({"spec": spec})).unwrap();
        of.client().map(|_| ()).unwrap_err()
    };
    let names = json!({"kind": "APIRule"});
    let cases = [
        (json!({"names": names}), "conversion"),
        (json!({"names": names, "conversion": {"strategy": "None"}}), "conversion webhook"),
        (
            json!({"names": names, "conversion": {"strategy": "Webhook", "webhook": {}}}),
            "client config for conversion webhook",
        ),
    ];
    for (spec, what) in cases {
        let expected = format!(
            "failed to update certificate into CRD: can not add certificate into CRD: {what} not \
             found in APIRule CRD"
        );
        assert_eq!(client(spec), expected);
    }
}

#[test]
fn configurations_that_do_not_exist_are_not_made() {
    let stub = settled([definition()]);
    assert_eq!(stub.object(&of_mutating()), None);
    assert!(stored(&stub).current.is_some());
}

#[test]
fn without_a_definition_nothing_is_made() {
    let [_, mutating, validating] = clients();
    let stub = settled([mutating.clone(), validating]);
    assert_eq!(stub.object(&secret()), None);
    let of = stub.object(&of_mutating()).unwrap();
    assert_eq!(of["webhooks"][0]["clientConfig"].get("caBundle"), None);
}

#[test]
fn only_the_definition_asks_the_clock() {
    let stub = Stub::new().objects(clients()).objects([of_original()]);
    for (object, asked) in clients().iter().zip([1, 1, 1]) {
        let mut request = mortise_sdk::testing::request_for(object);
        if object["kind"] == "CustomResourceDefinition" {
            request.reconciler = DEFINITION.to_owned();
        }
        reconcile(&request, &Config::default(), &stub.host()).unwrap();
        assert_eq!(stub.asked_clock(), asked);
    }
}

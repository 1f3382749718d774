//! Errors that quote what is secret in a body: no status, and no failure, has it.

use serde_json::{Value, json};

use super::{
    fixture::{World, in_cp, object},
    inputs::secret,
    references::grant,
};

/// An object with something secret in its body.
struct Row {
    kind: &'static str,
    /// The objects beside it.
    others: Vec<Value>,
    /// The object that has the secret text: this one, or one that it refers to.
    holder: fn(&str) -> Value,
}

fn consumer() -> Value {
    let mut consumer = in_cp("KongConsumer", "con", json!({}));
    consumer["username"] = "con".into();
    consumer
}

fn of_consumer(kind: &str, mut spec: Value) -> Value {
    spec["consumerRef"] = json!({"name": "con"});
    object(kind, "x", json!({"spec": spec}))
}

fn credentials() -> Vec<Row> {
    let row = |kind, holder| Row { kind, others: vec![consumer()], holder };
    vec![
        row("KongCredentialBasicAuth", |text| {
            of_consumer("KongCredentialBasicAuth", json!({"username": "u", "password": text}))
        }),
        row("KongCredentialAPIKey", |text| {
            of_consumer("KongCredentialAPIKey", json!({"key": text}))
        }),
        row("KongCredentialHMAC", |text| {
            of_consumer("KongCredentialHMAC", json!({"username": "u", "secret": text}))
        }),
        row("KongCredentialJWT", |text| {
            of_consumer("KongCredentialJWT", json!({"key": "issuer", "secret": text}))
        }),
    ]
}

fn keys() -> Vec<Row> {
    let row = |kind, holder| Row { kind, others: Vec::new(), holder };
    vec![
        row("KongCertificate", |text| {
            in_cp("KongCertificate", "x", json!({"cert": "c", "key": text}))
        }),
        row("KongKey", |text| {
            let jwk = json!({"kty": "oct", "k": text}).to_string();
            in_cp("KongKey", "x", json!({"kid": "k", "name": "x", "jwk": jwk}))
        }),
        row("KongKey", |text| {
            let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----");
            let pem = json!({"private_key": pem, "public_key": "public"});
            in_cp("KongKey", "x", json!({"kid": "k", "name": "x", "pem": pem}))
        }),
    ]
}

fn referred_to() -> Vec<Row> {
    let bound = json!({"pluginRef": {"name": "limits"}, "scope": "GlobalInControlPlane"});
    let of_secret = json!({"type": "secretRef", "secretRef": {"name": "tls"}});
    vec![
        Row {
            kind: "KongPluginBinding",
            others: vec![in_cp("KongPluginBinding", "x", bound)],
            holder: |text| {
                object("KongPlugin", "limits", json!({"plugin": "key-auth", "config": {"k": text}}))
            },
        },
        Row {
            kind: "KongCertificate",
            others: vec![in_cp("KongCertificate", "x", of_secret)],
            holder: |text| {
                let labels = json!({"konghq.com/secret": "true"});
                secret("tls", &labels, &json!({"tls.crt": "c", "tls.key": text}))
            },
        },
    ]
}

/// Lets all requests of a method be refused with an answer that quotes a text.
fn quote(world: &World, method: &str, text: &str) {
    let body = json!({"message": format!("bad: {text}"), "details": [{"field": text}]});
    let status = if method == "DELETE" { 500 } else { 400 };
    let fault =
        json!({"method": method, "path": "^/v2/", "times": -1, "status": status, "body": body});
    world.faults(json!([fault]));
}

/// Each step quotes the text that is sent, and the deletion the one that was sent last.
fn check(rows: Vec<Row>) {
    let steps = [("POST", "marker-of-the-first"), ("PUT", "marker-of-the-second")];
    for Row { kind, others, holder } in rows {
        let world = World::with_control_plane();
        let check = |method: &str, text: &str| {
            let failures = world.settle().failures;
            let told = world.condition(kind, "x", "Programmed");
            assert!(told.starts_with("False/") && told.contains("***"), "{kind} {method}: {told}");
            let stored = world.get(kind, "x").unwrap()["status"].to_string();
            let said = format!("{stored}{failures:?}");
            assert!(!said.contains(text), "{kind} {method}: {said}");
            world.faults(json!([]));
        };
        for object in others.iter().filter(|of| of["kind"] != kind) {
            world.apply(object);
            world.settle();
        }
        for (method, text) in steps {
            quote(&world, method, text);
            world.apply(&holder(text));
            others.iter().filter(|of| of["kind"] == kind).for_each(|of| world.apply(of));
            check(method, text);
            world.advance(3_700);
            assert_eq!(world.condition(kind, "x", "Programmed"), "True/Programmed ", "{kind}");
        }
        let (_, last) = steps[1];
        quote(&world, "DELETE", last);
        world.delete(kind, "x");
        check("DELETE", last);
        world.settle_for(std::time::Duration::from_mins(5));
        assert_eq!(world.get(kind, "x"), None);
    }
}

#[test]
fn passwords_and_keys_of_consumers_are_not_told() {
    check(credentials());
}

#[test]
fn configurations_of_vaults_are_not_told() {
    let from = ("configuration.konghq.com", "KongVault", "");
    let to = ("konnect.konghq.com", "KonnectGatewayControlPlane");
    let holder = |text: &str| {
        let spec = json!({"backend": "hcv", "prefix": "p", "config": {"token": text}});
        let mut vault = in_cp("KongVault", "x", spec);
        vault["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["namespace"] = "ns".into();
        vault
    };
    check(vec![Row { kind: "KongVault", others: vec![grant("vaults", "ns", from, to)], holder }]);
}

#[test]
fn keys_and_parts_of_them_are_not_told() {
    check(keys());
}

#[test]
fn what_comes_from_plugins_and_secrets_is_not_told() {
    check(referred_to());
}

//! Objects of every kind that has entities.

use konnect::kind;
use serde_json::{Value, json};

/// The namespace of the objects.
pub(super) const NAMESPACE: &str = "a";
pub(super) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----";

/// Returns an object with these fields beside its metadata.
fn object(of: &str, name: &str, fields: &Value) -> Value {
    let entity = kind::find(of).unwrap();
    let mut metadata = json!({"name": name});
    if !entity.is_cluster_scoped {
        metadata["namespace"] = NAMESPACE.into();
    }
    let mut object =
        json!({"apiVersion": entity.of().api_version(), "kind": of, "metadata": metadata});
    crate::host::merge(&mut object, fields);
    object
}

/// Returns what all rounds need: the token, and what permits references of vaults, which have no
/// namespace.
pub(super) fn shared() -> Vec<Value> {
    let spec = json!({"type": "token", "token": "kpat_t", "serverURL": "eu.api.konghq.com"});
    let from = json!({"group": kind::CONFIGURATION, "kind": "KongVault", "namespace": ""});
    let to = ["KonnectGatewayControlPlane", "KonnectConfigStore"];
    let to = to.map(|kind| json!({"group": kind::KONNECT, "kind": kind}));
    vec![
        object("KonnectAPIAuthConfiguration", "auth", &json!({"spec": spec})),
        object("KongReferenceGrant", "vaults", &json!({"spec": {"from": [from], "to": to}})),
    ]
}

/// Returns the control plane of a round.
pub(super) fn control_plane(round: usize) -> Value {
    let name = format!("cp-{round}");
    let spec = json!({"createControlPlaneRequest": {"name": name}, "konnect": {"authRef": {"name": "auth"}}});
    object("KonnectGatewayControlPlane", &name, &json!({"spec": spec}))
}

/// Returns a config store of a round.
pub(super) fn config_store(round: usize) -> Value {
    let plane = json!({"name": format!("cp-{round}")});
    let plane = json!({"type": "namespacedRef", "namespacedRef": plane});
    let spec = json!({"controlPlaneRef": plane, "apiSpec": {"name": "store"}});
    object("KonnectConfigStore", &format!("store-{round}"), &json!({"spec": spec}))
}

/// Returns a consumer of a round.
pub(super) fn consumer(round: usize) -> Value {
    let fields = json!({"username": format!("con-{round}")});
    in_plane(round, "KongConsumer", "con", &json!({}), &fields)
}

/// Returns an object of a round in its control plane.
pub(super) fn in_plane(round: usize, of: &str, name: &str, spec: &Value, fields: &Value) -> Value {
    let namespace = if of == "KongVault" { json!({"namespace": NAMESPACE}) } else { json!({}) };
    let mut reference = json!({"name": format!("cp-{round}")});
    crate::host::merge(&mut reference, &namespace);
    let reference = json!({"type": "konnectNamespacedRef", "konnectNamespacedRef": reference});
    let mut made = object(of, &format!("{name}-{round}"), &json!({"spec": spec}));
    made["spec"]["controlPlaneRef"] = reference;
    crate::host::merge(&mut made, fields);
    made
}

/// Returns an object of each kind whose entities the API takes twice.
pub(super) fn without_unique_field(round: usize) -> Vec<Value> {
    let plain = |of, name, spec: Value| in_plane(round, of, name, &spec, &json!({}));
    let acl = json!({"consumerRef": {"name": format!("con-{round}")}, "group": "g"});
    vec![
        plain("KongCertificate", "cert", json!({"cert": CERTIFICATE, "key": "k"})),
        plain("KongCACertificate", "ca", json!({"cert": CERTIFICATE})),
        plain("KongDataPlaneClientCertificate", "dp", json!({"cert": CERTIFICATE})),
        object("KongCredentialACL", &format!("acl-{round}"), &json!({"spec": acl})),
    ]
}

/// Returns an object of each kind, children before their parents, in a control plane of their own.
pub(super) fn round(round: usize) -> Vec<Value> {
    let of = |name: &str| format!("{name}-{round}");
    let plain = |kind, name, spec: Value| in_plane(round, kind, name, &spec, &json!({}));
    let service = json!({"type": "namespacedRef", "namespacedRef": {"name": of("svc")}});
    let upstream = json!({"upstreamRef": {"name": of("up")}, "target": "example.com:80"});
    let store = json!({"name": of("store"), "namespace": NAMESPACE});
    let vault =
        json!({"backend": "konnect", "prefix": of("vault"), "config": {}, "configStoreRef": store});
    let key = json!({"kid": "kid", "name": "key", "jwk": "{}", "keySetRef": {"type": "namespacedRef", "namespacedRef": {"name": of("set")}}});
    let route = json!({"name": "rt", "paths": ["/x"], "serviceRef": service});
    let plain_object =
        |kind, name: &str, spec: Value| object(kind, &of(name), &json!({"spec": spec}));
    let mut consumer = consumer(round);
    consumer["consumerGroups"] = json!([of("group")]);
    let mut objects = credentials(round);
    objects.extend(bindings(round));
    objects.extend(without_unique_field(round));
    objects.extend([
        plain_object("KongRoute", "rt", route),
        plain_object("KongTarget", "target", upstream),
        plain_object(
            "KongSNI",
            "sni",
            json!({"certificateRef": {"name": of("cert")}, "name": "s.example.com"}),
        ),
        plain("KongKey", "key", key),
        plain("KongVault", "vault", vault),
        config_store(round),
        plain("KongService", "svc", json!({"name": "svc", "host": "a.example.com"})),
        plain("KongService", "unnamed", json!({"host": "b.example.com"})),
        consumer,
        plain("KongConsumerGroup", "group", json!({"name": "group"})),
        plain("KongUpstream", "up", json!({"name": "up"})),
        plain("KongKeySet", "set", json!({"name": "set"})),
        control_plane(round),
    ]);
    objects
}

/// Returns a service that shows a certificate to what it calls.
pub(super) fn with_certificate(round: usize) -> Value {
    let mut service = without_certificate(round);
    service["spec"]["clientCertificateRef"] = json!({"name": format!("cert-{round}")});
    service
}

/// Returns the same service without the certificate.
pub(super) fn without_certificate(round: usize) -> Value {
    let spec = json!({"name": "certified", "host": "c.example.com"});
    in_plane(round, "KongService", "certified", &spec, &json!({}))
}

fn credentials(round: usize) -> Vec<Value> {
    let kinds = [
        ("KongCredentialAPIKey", "apikey", json!({"key": "k"})),
        ("KongCredentialBasicAuth", "basic", json!({"username": "u", "password": "p"})),
        ("KongCredentialHMAC", "hmac", json!({"username": "u", "secret": "s"})),
        ("KongCredentialJWT", "jwt", json!({"key": "k", "secret": "s"})),
    ];
    let made = kinds.into_iter().map(|(kind, name, mut spec)| {
        spec["consumerRef"] = json!({"name": format!("con-{round}")});
        object(kind, &format!("{name}-{round}"), &json!({"spec": spec}))
    });
    made.collect()
}

/// Returns plugins that are bound to everything, and to a service.
fn bindings(round: usize) -> Vec<Value> {
    let plugin = format!("plug-{round}");
    let service = json!({"group": kind::CONFIGURATION, "kind": "KongService", "name": format!("svc-{round}")});
    let bound = |name, more: &Value| {
        let spec = json!({"pluginRef": {"name": plugin}});
        in_plane(round, "KongPluginBinding", name, &spec, &json!({"spec": more}))
    };
    vec![
        bound("global", &json!({"scope": "GlobalInControlPlane"})),
        bound("bound", &json!({"targets": {"serviceRef": service}})),
        object("KongPlugin", &plugin, &json!({"plugin": "rate-limiting", "config": {"minute": 5}})),
    ]
}

use super::*;
use crate::kind::{ALL, Matched, find};

fn sent(kind: &str, object: &Value, resolved: &Resolved) -> Value {
    let entity = find(kind).unwrap();
    let mut body = body(entity, entity.api.as_ref().unwrap(), object, resolved);
    body.as_object_mut().unwrap().remove("tags");
    body
}

fn spec(spec: &Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec})
}

#[test]
fn all_json_texts_of_the_table_parse() {
    for entity in ALL {
        for field in entity.root.iter().chain(entity.spec) {
            if let How::Or(json) | How::NonEmptyOr(json) = field.how {
                assert!(serde_json::from_str::<Value>(json).is_ok(), "{}: {json}", field.name);
            }
        }
        for (_, json) in entity.api.iter().flat_map(|api| api.constants) {
            assert!(serde_json::from_str::<Value>(json).is_ok(), "{json}");
        }
        for (field, how) in entity.api.iter().flat_map(|api| api.matched) {
            if let Matched::Or(json) = how {
                assert!(serde_json::from_str::<Value>(json).is_ok(), "{field}: {json}");
            }
        }
    }
}

#[test]
fn bodies_are_those_of_the_original() {
    let cases = [
        (
            "KongService",
            json!({"name": "svc", "host": "h", "port": 0, "retries": 7, "controlPlaneRef": {}, "tags": ["x"]}),
            json!({"connect_timeout": 60000, "enabled": true, "host": "h", "name": "svc", "port": 80, "protocol": "http", "read_timeout": 60000, "retries": 7, "write_timeout": 60000}),
        ),
        (
            "KongRoute",
            json!({"name": "rt", "paths": ["/x"], "strip_path": false, "serviceRef": {}}),
            json!({"https_redirect_status_code": 426, "name": "rt", "path_handling": "v0", "paths": ["/x"], "preserve_host": false, "regex_priority": 0, "request_buffering": true, "response_buffering": true, "service": {"id": "s"}, "strip_path": false}),
        ),
        (
            "KongUpstream",
            json!({"name": "up", "slots": 100, "clientCertificateRef": {"name": "c"}}),
            json!({"algorithm": "round-robin", "client_certificate": {"id": "c"}, "hash_fallback": "none", "hash_on": "none", "hash_on_cookie_path": "/", "name": "up", "slots": 100, "sticky_sessions_cookie_path": "/", "use_srv_name": false}),
        ),
        (
            "KongUpstream",
            json!({}),
            json!({"algorithm": "round-robin", "hash_fallback": "none", "hash_on": "none", "hash_on_cookie_path": "/", "name": "", "slots": 10000, "sticky_sessions_cookie_path": "/", "use_srv_name": false}),
        ),
        ("KongConsumerGroup", json!({}), json!({"name": ""})),
        (
            "KongTarget",
            json!({"target": "10.0.0.1:80", "weight": 50, "upstreamRef": {"name": "up"}}),
            json!({"failover": false, "target": "10.0.0.1:80", "weight": 50}),
        ),
        (
            "KongKey",
            json!({"kid": "k1", "name": "key", "jwk": "{}", "keySetRef": {"type": "namespacedRef"}}),
            json!({"jwk": "{}", "kid": "k1", "name": "key", "set": {"id": "k"}}),
        ),
        (
            "KongVault",
            json!({"backend": "konnect", "prefix": "p", "config": {"a": 1}, "configStoreRef": {"name": "st"}}),
            json!({"config": {"a": 1, "config_store_id": "st"}, "name": "konnect", "prefix": "p"}),
        ),
        (
            "KongDataPlaneClientCertificate",
            json!({"cert": "c", "controlPlaneRef": {}}),
            json!({"cert": "c"}),
        ),
    ];
    let ids =
        json!({"serviceID": "s", "certificateID": "c", "keySetID": "k", "configStoreID": "st"});
    let resolved = Resolved { ids: ids.as_object().unwrap().clone(), ..Resolved::default() };
    for (kind, object, expected) in cases {
        assert_eq!(sent(kind, &spec(&object), &resolved), expected, "{kind}");
    }
}

#[test]
fn a_reference_that_was_taken_out_is_not_sent() {
    let ids = json!({"certificateID": "c", "caCertificateIDs": ["ca"]});
    let resolved = Resolved { ids: ids.as_object().unwrap().clone(), ..Resolved::default() };
    let with = spec(
        &json!({"host": "h", "clientCertificateRef": {"name": "c"}, "caCertificateRefs": [{"name": "ca"}]}),
    );
    let body = sent("KongService", &with, &resolved);
    assert_eq!(
        (&body["client_certificate"], &body["ca_certificates"]),
        (&json!({"id": "c"}), &json!(["ca"]))
    );
    let body = sent("KongService", &spec(&json!({"host": "h"})), &resolved);
    assert_eq!((body.get("client_certificate"), body.get("ca_certificates")), (None, None));
}

#[test]
fn a_consumer_sends_the_fields_beside_its_spec() {
    let mut object = spec(&json!({}));
    object["username"] = "con".into();
    let expected = json!({"custom_id": "", "username": "con"});
    assert_eq!(sent("KongConsumer", &object, &Resolved::default()), expected);
}

#[test]
fn the_values_of_a_secret_are_those_of_the_certificate() {
    let values = [("cert", "c"), ("key", "k")].map(|(key, value)| (key.into(), value.into()));
    let resolved = Resolved { values: values.into(), ..Resolved::default() };
    let object = spec(&json!({"type": "secretRef", "secretRef": {"name": "s"}}));
    assert_eq!(sent("KongCertificate", &object, &resolved), json!({"cert": "c", "key": "k"}));
}

#[test]
fn a_binding_sends_its_plugin_and_the_tags_of_both() {
    let plugin = json!({
        "metadata": {"annotations": {"konghq.com/tags": "of-plugin"}},
        "plugin": "rate-limiting", "config": {"minute": 5}, "protocols": ["http"], "ordering": {"after": {}},
    });
    let ids = json!({"serviceID": "s", "consumerID": "c"}).as_object().unwrap().clone();
    let resolved = Resolved { ids, plugin: Some(plugin), ..Resolved::default() };
    let object = spec(
        &json!({"pluginRef": {"name": "p"}, "targets": {"serviceRef": {"name": "svc"}}, "tags": ["own"]}),
    );
    let entity = find("KongPluginBinding").unwrap();
    let body = body(entity, entity.api.as_ref().unwrap(), &object, &resolved);
    let tags = body["tags"].as_array().unwrap();
    assert!(tags.contains(&json!("own")) && tags.contains(&json!("of-plugin")), "{tags:?}");
    let expected = json!({"config": {"minute": 5}, "consumer": {"id": "c"}, "enabled": true, "name": "rate-limiting", "protocols": ["http"], "service": {"id": "s"}});
    assert_eq!(sent("KongPluginBinding", &object, &resolved), expected);
}

#[test]
fn a_control_plane_is_updated_in_the_fields_that_may_change() {
    let request = json!({"name": "cp", "cluster_type": "CLUSTER_TYPE_CONTROL_PLANE", "cloud_gateway": true, "labels": {"team": "y"}});
    let object = spec(&json!({"createControlPlaneRequest": request}));
    let entity = find("KonnectGatewayControlPlane").unwrap();
    let api = entity.api.as_ref().unwrap();
    let body = body(entity, api, &object, &Resolved::default());
    assert_eq!((&body["cloud_gateway"], &body["labels"]["team"]), (&json!(true), &json!("y")));
    let update = for_update(api, &body);
    let fields: Vec<&String> = update.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["labels", "name"]);
}

#[test]
fn an_entity_without_a_unique_value_is_looked_up_first() {
    let cases = [
        ("KongCredentialJWT", json!({"key": "k"}), true),
        ("KongCredentialJWT", json!({"secret": "s"}), false),
        ("KongConsumer", json!({"username": "", "custom_id": "c"}), true),
        ("KongCertificate", json!({"cert": "c"}), false),
        ("KongUpstream", json!({"algorithm": "round-robin"}), false),
    ];
    for (kind, body, expected) in cases {
        let api = find(kind).unwrap().api.as_ref().unwrap();
        assert_eq!(is_unique(api, &body), expected, "{kind} {body}");
    }
}

#[test]
fn a_path_holds_ids_and_nothing_else() {
    let path = "/v2/control-planes/{controlPlaneID}/core-entities/services";
    let of = |id: Option<&'static str>| collection(path, |_| id);
    assert_eq!(of(Some("a-1")).unwrap(), "/v2/control-planes/a-1/core-entities/services");
    let long = "a".repeat(257);
    for id in ["", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "ä", long.as_str()] {
        assert!(!is_segment(id), "{id}");
    }
    assert_eq!(of(None).unwrap_err(), "controlPlaneID");
    assert_eq!(of(Some("../x")).unwrap_err(), "controlPlaneID");
}

#[test]
fn a_hash_changes_with_the_body() {
    let hash_of = |value: &Value| hash(&json!({"a": value}));
    assert_eq!(hash_of(&json!(1)), hash_of(&json!(1)));
    assert_ne!(hash_of(&json!(1)), hash_of(&json!("1")));
    assert_eq!(hash_of(&json!(1)).len(), 16);
}

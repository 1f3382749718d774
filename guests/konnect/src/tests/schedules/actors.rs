//! The objects of random schedules, and the faults that they meet.

use serde_json::{Value, json};

use super::super::fixture::{
    NAMESPACE, auth, control_plane, in_cp, merge, mirror, object, service,
};
use crate::kind;

/// An object of the schedules.
pub(in crate::tests) struct Actor {
    pub(in crate::tests) object: Value,
    /// A change of the spec.
    pub(in crate::tests) change: fn(u64) -> Value,
}

impl Actor {
    pub(in crate::tests) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap()
    }

    pub(in crate::tests) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap()
    }

    pub(in crate::tests) fn collection(&self) -> &'static str {
        let api = kind::find(self.kind()).unwrap().api.as_ref();
        api.map_or("", |api| api.collection.rsplit('/').next().unwrap())
    }
}

fn reference(name: &str) -> Value {
    json!({"type": "namespacedRef", "namespacedRef": {"name": name}})
}

fn route(name: &str, service: &str) -> Value {
    let spec = json!({"name": name, "paths": ["/"], "serviceRef": reference(service)});
    object("KongRoute", name, json!({"spec": spec}))
}

fn in_other(mut object: Value) -> Value {
    object["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["name"] = "cp2".into();
    object
}

/// The ID of the control plane that a mirror shows, which somebody else made.
pub(in crate::tests) const MIRRORED: &str = "aaaaaaaa-1111-4111-8111-111111111111";

fn vault() -> Value {
    let mut vault = in_cp("KongVault", "vlt", json!({"backend": "env", "prefix": "env"}));
    vault["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["namespace"] = NAMESPACE.into();
    vault
}

/// The objects, parents before their children.
pub(in crate::tests) fn actors() -> Vec<Actor> {
    let actor = |object, change| Actor { object, change };
    let host = |to: u64| json!({"spec": {"host": format!("{to}.example")}});
    let paths = |to: u64| json!({"spec": {"paths": [format!("/{to}")]}});
    let tags = |to: u64| json!({"spec": {"tags": [to.to_string()]}});
    let label = |to: u64| json!({"metadata": {"labels": {"e": to.to_string()}}});
    let description =
        |to: u64| json!({"spec": {"createControlPlaneRequest": {"description": to.to_string()}}});
    let of_consumer = |kind, spec: Value| {
        let mut object = object(kind, "cred", json!({"spec": {"consumerRef": {"name": "con"}}}));
        merge(&mut object["spec"], spec);
        object
    };
    let mut second = control_plane();
    merge(
        &mut second,
        json!({"metadata": {"name": "cp2"}, "spec": {"createControlPlaneRequest": {"name": "cp2"}}}),
    );
    let mut consumer = in_cp("KongConsumer", "con", json!({}));
    merge(&mut consumer, json!({"username": "con", "consumerGroups": ["grp"]}));
    let basic = json!({"username": "b", "password": "p"});
    let key = json!({"kid": "k", "jwk": "{}", "keySetRef": reference("set")});
    let bound = json!({"pluginRef": {"name": "plug"}, "scope": "GlobalInControlPlane"});
    let store = json!({"apiSpec": {"name": "store"}, "controlPlaneRef": reference("cp")});
    let mut group = control_plane();
    let request = json!({"name": "group", "cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"});
    merge(
        &mut group,
        json!({"metadata": {"name": "group"}, "spec": {"createControlPlaneRequest": request, "members": [{"name": "cp"}]}}),
    );
    let sni = json!({"spec": {"name": "s.example", "certificateRef": {"name": "crt"}}});
    let target =
        json!({"spec": {"target": "t.example:80", "weight": 1, "upstreamRef": {"name": "up"}}});
    vec![
        actor(auth(), label),
        actor(control_plane(), description),
        actor(second, description),
        actor(service("svc"), host),
        actor(in_cp("KongService", "unnamed", json!({"host": "h"})), host),
        actor(in_other(service("other")), host),
        actor(route("rt", "svc"), paths),
        actor(route("rt2", "unnamed"), paths),
        actor(in_cp("KongRoute", "free", json!({"paths": ["/free"]})), paths),
        actor(in_cp("KongConsumerGroup", "grp", json!({"name": "grp"})), tags),
        actor(consumer, |to| json!({"custom_id": to.to_string()})),
        actor(of_consumer("KongCredentialACL", json!({"group": "a"})), tags),
        actor(of_consumer("KongCredentialBasicAuth", basic), tags),
        actor(of_consumer("KongCredentialHMAC", json!({"username": "h"})), tags),
        actor(of_consumer("KongCredentialJWT", json!({"key": "j"})), tags),
        actor(of_consumer("KongCredentialAPIKey", json!({"key": "k-e-y-1"})), tags),
        actor(in_cp("KongUpstream", "up", json!({"name": "up"})), tags),
        actor(object("KongTarget", "tgt", target), tags),
        actor(in_cp("KongCertificate", "crt", json!({"cert": "c", "key": "k"})), tags),
        actor(object("KongSNI", "sni", sni), tags),
        actor(in_cp("KongCACertificate", "ca", json!({"cert": "c"})), tags),
        actor(in_cp("KongDataPlaneClientCertificate", "dp", json!({"cert": "dp-1"})), label),
        actor(
            in_other(in_cp("KongDataPlaneClientCertificate", "dp2", json!({"cert": "dp-2"}))),
            label,
        ),
        actor(in_cp("KongKeySet", "set", json!({"name": "set"})), tags),
        actor(in_cp("KongKey", "key", key), tags),
        actor(object("KongPlugin", "plug", json!({"plugin": "key-auth"})), label),
        actor(in_cp("KongPluginBinding", "bind", bound), tags),
        actor(object("KonnectConfigStore", "store", json!({"spec": store})), label),
        actor(group, description),
        actor(vault(), tags),
        actor(mirror("mirror", MIRRORED), label),
    ]
}

/// Faults of the API. None tells a lie: an entity that is there is never told to be gone.
pub(in crate::tests) fn faults() -> Vec<Value> {
    let text = json!({"content-type": "text/plain"});
    vec![
        json!({"status": 429, "headers": {"Retry-After": "3"}}),
        json!({"status": 429}),
        json!({"status": 500}),
        json!({"status": 502, "act": true}),
        json!({"status": 503}),
        json!({"status": 400, "body": {"code": 3, "message": "validation error"}}),
        json!({"status": 403, "body": {"code": 7, "message": "usage constraint error"}}),
        json!({"status": 401}),
        json!({"status": 400, "act": true}),
        json!({"drop": true}),
        json!({"drop": true, "act": true}),
        json!({"reset": true, "act": true}),
        json!({"delaySeconds": 11.0}),
        json!({"status": 201, "act": true}),
        json!({"status": 201, "act": true, "body": "made", "headers": text}),
    ]
}

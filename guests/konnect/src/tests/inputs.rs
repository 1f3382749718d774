//! Bad input: each row is what is wrong, and the conditions that say so, in the words that scripts
//! may rely on.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{World, auth, control_plane, in_cp, merge, object, service};

/// Objects with something wrong, and the conditions of the last one.
struct Row {
    what: &'static str,
    objects: Vec<Value>,
    conditions: Vec<(&'static str, String)>,
}

pub(super) const FALSE_EXISTS: &str =
    "False/ConditionWithStatusFalseExists Some conditions have status set to False";

fn row(what: &'static str, objects: Vec<Value>, conditions: &[(&'static str, &str)]) -> Row {
    let conditions = conditions.iter().map(|&(of, told)| (of, told.to_owned())).collect();
    Row { what, objects, conditions }
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// A service with a reference to a control plane.
fn service_in(reference: &Value) -> Value {
    let of = json!({"type": "konnectNamespacedRef", "konnectNamespacedRef": reference});
    object("KongService", "x", json!({"spec": {"host": "h", "controlPlaneRef": of}}))
}

pub(super) fn with_spec(mut object: Value, spec: Value) -> Value {
    merge(&mut object["spec"], spec);
    object
}

/// A control plane beside that of the world.
fn another(name: &str, spec: Value) -> Value {
    let mut object = control_plane();
    object["metadata"]["name"] = name.into();
    object["spec"]["createControlPlaneRequest"]["name"] = name.into();
    merge(&mut object["spec"], spec);
    object
}

fn in_plane(control_plane: &str, mut object: Value) -> Value {
    object["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["name"] = control_plane.into();
    object
}

fn authority(name: &str, control_plane: &str) -> Value {
    in_plane(control_plane, in_cp("KongCACertificate", name, json!({"cert": "c"})))
}

fn trusting(name: &str) -> Value {
    with_spec(service("x"), json!({"caCertificateRefs": [{"name": name}]}))
}

pub(super) fn secret(name: &str, labels: &Value, data: &Value) -> Value {
    object("Secret", name, json!({"metadata": {"labels": labels}, "stringData": data}))
}

fn of_parent(kind: &str, spec: &Value) -> Value {
    object(kind, "x", json!({"spec": spec}))
}

/// An object alone, one condition of it, and `Programmed` False because of that.
fn one(what: &'static str, object: Value, of: &'static str, told: &str) -> Row {
    row(what, vec![object], &[(of, told), ("Programmed", FALSE_EXISTS)])
}

fn no(kind: &str) -> String {
    format!("False/Invalid {kind} \"none\" not found")
}

fn missing_parents() -> Vec<Row> {
    let plane = format!(
        "False/Invalid referenced Control Plane \"<konnectNamespacedRef:none>\" does not exist: {}",
        no("KonnectGatewayControlPlane.konnect.konghq.com").replace("False/Invalid ", "")
    );
    let to = json!({"type": "namespacedRef", "namespacedRef": {"name": "none"}});
    let route = of_parent("KongRoute", &json!({"paths": ["/"], "serviceRef": to}));
    let sni = json!({"name": "s.example", "certificateRef": {"name": "none"}});
    let token = another("x", json!({"konnect": {"authRef": {"name": "none"}}}));
    vec![
        one(
            "no control plane",
            service_in(&json!({"name": "none"})),
            "ControlPlaneRefValid",
            &plane,
        ),
        row(
            "no service",
            vec![route],
            &[
                ("KongServiceRefValid", &no("KongService.configuration.konghq.com")),
                ("Programmed", "Unknown/Pending Waiting for controller"),
            ],
        ),
        one(
            "no certificate of a name",
            of_parent("KongSNI", &sni),
            "KongCertificateRefValid",
            &no("KongCertificate.configuration.konghq.com"),
        ),
        one(
            "no token",
            token,
            "APIAuthResolvedRef",
            "False/RefNotFound Referenced KonnectAPIAuthConfiguration ns/none not found",
        ),
    ]
}

fn missing_entities() -> Vec<Row> {
    let to = json!({"type": "namespacedRef", "namespacedRef": {"name": "none"}});
    let key = json!({"kid": "k", "jwk": "{}", "name": "x", "keySetRef": to});
    let client = with_spec(service("x"), json!({"clientCertificateRef": {"name": "none"}}));
    let plugin = json!({"pluginRef": {"name": "none"}, "scope": "GlobalInControlPlane"});
    let target =
        json!({"group": "configuration.konghq.com", "kind": "KongService", "name": "none"});
    let bound = json!({"pluginRef": {"name": "p"}, "targets": {"serviceRef": target}});
    let of_core = json!({"group": "core", "kind": "Service", "name": "svc"});
    let of_core = json!({"pluginRef": {"name": "p"}, "targets": {"serviceRef": of_core}});
    let both = json!({"serviceRef": target, "consumerRef": {"name": "none"}});
    let mut both = json!({"pluginRef": {"name": "p"}, "targets": both});
    both["targets"]["serviceRef"]["name"] = "bad".into();
    let without_id =
        in_cp("KongService", "bad", json!({"host": "h", "clientCertificateRef": {"name": "none"}}));
    let plugin_p = || object("KongPlugin", "p", json!({"plugin": "rate-limiting"}));
    vec![
        row(
            "a target of another kind",
            vec![plugin_p(), service("svc"), in_cp("KongPluginBinding", "x", of_core)],
            &[("Programmed", "False/FailedToCreate unsupported service target kind \"Service\"")],
        ),
        row(
            "a target without an ID, and one that is not there",
            vec![plugin_p(), without_id, in_cp("KongPluginBinding", "x", both)],
            &[(
                "Programmed",
                "False/FailedToCreate KongConsumer.configuration.konghq.com \"none\" not found",
            )],
        ),
        row(
            "no target of a plugin",
            vec![
                object("KongPlugin", "p", json!({"plugin": "rate-limiting"})),
                in_cp("KongPluginBinding", "x", bound),
            ],
            &[(
                "Programmed",
                "False/FailedToCreate KongService.configuration.konghq.com \"none\" not found",
            )],
        ),
        one(
            "no certificate of an authority",
            trusting("none"),
            "KongCACertificateRefsValid",
            &no("KongCACertificate.configuration.konghq.com"),
        ),
        one(
            "no client certificate",
            client,
            "KongCertificateRefValid",
            &no("KongCertificate.configuration.konghq.com"),
        ),
        one(
            "no key set",
            in_cp("KongKey", "x", key),
            "KeySetRefValid",
            &no("KongKeySet.configuration.konghq.com"),
        ),
        one(
            "no plugin",
            in_cp("KongPluginBinding", "x", plugin),
            "PluginRefValid",
            "False/Invalid KongPlugin ns/none not found",
        ),
    ]
}

fn missing_secrets() -> Vec<Row> {
    let certificate = || {
        let reference = json!({"type": "secretRef", "secretRef": {"name": "none"}});
        in_cp("KongCertificate", "x", reference)
    };
    let told = |told| [("SecretRefValid", told), ("Programmed", FALSE_EXISTS)];
    let missing = no("Secret");
    let unlabelled = secret("none", &json!({}), &json!({"tls.crt": "c", "tls.key": "k"}));
    vec![
        row("no Secret", vec![certificate()], &told(&missing)),
        row("no label", vec![unlabelled, certificate()], &told(&missing)),
    ]
}

fn refused() -> Vec<Row> {
    let token = "False/RefNotPermitted cross-namespace reference to KonnectAPIAuthConfiguration auth in \
                 namespace b from KonnectGatewayControlPlane.konnect.konghq.com in namespace ns is not \
                 granted by any KongReferenceGrant";
    let from_secret = json!({"type": "secretRef", "secretRef": {"name": "tls", "namespace": "b"}});
    vec![
        row(
            "a token that is not granted",
            vec![
                in_namespace(auth(), "b"),
                another("x", json!({"konnect": {"authRef": {"name": "auth", "namespace": "b"}}})),
            ],
            &[("APIAuthResolvedRef", token), ("Programmed", FALSE_EXISTS)],
        ),
        row(
            "a Secret that is not granted",
            vec![in_cp("KongCertificate", "x", from_secret)],
            &[
                (
                    "ResolvedRefs",
                    "False/RefNotPermitted KongReferenceGrants do not allow access to Secret b/tls",
                ),
                ("Programmed", FALSE_EXISTS),
            ],
        ),
    ]
}

fn of_another_plane() -> Vec<Row> {
    let plane = || another("cp2", json!({}));
    let certificate = json!({"cert": "c", "key": "k"});
    let set = json!({"type": "namespacedRef", "namespacedRef": {"name": "set"}});
    let key = json!({"kid": "k", "jwk": "{}", "name": "x", "keySetRef": set});
    vec![
        row(
            "a client certificate in another control plane",
            vec![
                plane(),
                in_plane("cp2", in_cp("KongCertificate", "c", certificate)),
                with_spec(service("x"), json!({"clientCertificateRef": {"name": "c"}})),
            ],
            &[
                (
                    "KongCertificateRefValid",
                    "False/Invalid Referenced KongCertificate ns/c belongs to a different ControlPlane",
                ),
                ("Programmed", FALSE_EXISTS),
            ],
        ),
        row(
            "a key set in another control plane",
            vec![
                plane(),
                in_plane("cp2", in_cp("KongKeySet", "set", json!({"name": "set"}))),
                in_cp("KongKey", "x", key),
            ],
            &[
                (
                    "KeySetRefValid",
                    "False/Invalid Referenced KongKeySet ns/set belongs to a different ControlPlane",
                ),
                ("Programmed", FALSE_EXISTS),
            ],
        ),
    ]
}

fn unfit() -> Vec<Row> {
    let group =
        json!({"createControlPlaneRequest": {"cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"}});
    let mut leaving = authority("ca", "cp");
    leaving["metadata"]["finalizers"] = json!(["example.com/held"]);
    vec![
        row(
            "a certificate in another control plane",
            vec![another("cp2", json!({})), authority("ca", "cp2"), trusting("ca")],
            &[
                (
                    "KongCACertificateRefsValid",
                    "False/Invalid Referenced KongCACertificate ns/ca belongs to a different ControlPlane",
                ),
                ("Programmed", FALSE_EXISTS),
            ],
        ),
        row(
            "a certificate that is being deleted",
            vec![leaving.clone(), json!({"delete": "KongCACertificate/ns/ca"}), trusting("ca")],
            &[(
                "KongCACertificateRefsValid",
                "False/Invalid Referenced KongCACertificate ns/ca is being deleted",
            )],
        ),
        row(
            "a control plane that is a group",
            vec![another("grp", group), service_in(&json!({"name": "grp"}))],
            &[
                (
                    "ControlPlaneRefValid",
                    "False/Invalid Attaching to ControlPlane ns/grp with cluster type \
                     CLUSTER_TYPE_CONTROL_PLANE_GROUP is not supported",
                ),
                (
                    "Programmed",
                    "False/FailedToCreate can't create KongService ns/x without a Konnect ControlPlane ID",
                ),
            ],
        ),
    ]
}

/// Objects that are being deleted, and what refers to them.
fn leaving() -> Vec<Row> {
    let held = |kind: &str, spec: Value| {
        let mut of = in_cp(kind, "r", spec);
        of["metadata"]["finalizers"] = json!(["example.com/held"]);
        of
    };
    let leaving = |what, parent: Value, object, conditions: &[(&'static str, &str)]| {
        let of = json!({"delete": format!("{}/*/r", parent["kind"].as_str().unwrap())});
        row(what, vec![parent, of, object], conditions)
    };
    let waits: &[_] = &[("Programmed", "Unknown/Pending Waiting for controller")];
    let mut plane = another("r", json!({}));
    plane["metadata"]["finalizers"] = json!(["example.com/held"]);
    let mut consumer = held("KongConsumer", json!({}));
    consumer["username"] = "r".into();
    let to = json!({"type": "namespacedRef", "namespacedRef": {"name": "r"}});
    let certificate = || held("KongCertificate", json!({"cert": "c", "key": "k"}));
    vec![
        leaving("a control plane", plane, in_plane("r", service("x")), waits),
        leaving(
            "an upstream",
            held("KongUpstream", json!({"name": "r"})),
            of_parent(
                "KongTarget",
                &json!({"target": "t.example:80", "upstreamRef": {"name": "r"}}),
            ),
            waits,
        ),
        leaving(
            "a consumer",
            consumer,
            of_parent("KongCredentialACL", &json!({"group": "g", "consumerRef": {"name": "r"}})),
            waits,
        ),
        leaving(
            "the certificate of a name",
            certificate(),
            of_parent("KongSNI", &json!({"name": "s.example", "certificateRef": {"name": "r"}})),
            waits,
        ),
        leaving(
            "the certificate of a client",
            certificate(),
            with_spec(service("x"), json!({"clientCertificateRef": {"name": "r"}})),
            waits,
        ),
        leaving(
            "a key set",
            held("KongKeySet", json!({"name": "r"})),
            in_cp("KongKey", "x", json!({"kid": "k", "jwk": "{}", "name": "x", "keySetRef": to})),
            waits,
        ),
    ]
}

/// Returns the requests for an object named `x`.
fn check(rows: Vec<Row>) {
    for Row { what, objects, conditions } in rows {
        let world = World::with_control_plane();
        for object in &objects {
            match object["delete"].as_str() {
                Some(of) => world.stub.delete(of),
                None => world.apply(object),
            }
            world.settle();
            // Those before the last one may have entities.
            if Some(object) != objects.last() {
                world.requests();
            }
        }
        world.settle_for(Duration::from_mins(5));
        assert_eq!(world.requests(), [""; 0], "{what}");
        let last = objects.last().unwrap();
        let (kind, name) =
            (last["kind"].as_str().unwrap(), last["metadata"]["name"].as_str().unwrap());
        for (of, told) in conditions {
            assert_eq!(world.condition(kind, name, of), told, "{what}: {of}");
        }
    }
}

#[test]
fn references_to_nothing() {
    check(missing_parents());
    check(missing_entities());
    check(missing_secrets());
}

#[test]
fn references_that_are_not_granted() {
    check(refused());
}

#[test]
fn references_to_what_does_not_fit() {
    check(unfit());
    check(of_another_plane());
}

#[test]
fn references_to_what_is_being_deleted() {
    check(leaving());
}

/// Objects in use stay until nothing refers to them.
#[test]
fn a_plugin_and_a_token_that_are_being_deleted_serve_as_long_as_they_are_there() {
    let world = World::with_control_plane();
    let bound = |name| {
        let spec = json!({"pluginRef": {"name": "p"}, "scope": "GlobalInControlPlane"});
        in_plane(name, in_cp("KongPluginBinding", name, spec))
    };
    for object in [object("KongPlugin", "p", json!({"plugin": "key-auth"})), bound("cp")] {
        world.apply(&object);
        world.settle();
    }
    world.delete("KongPlugin", "p");
    world.delete("KonnectAPIAuthConfiguration", "auth");
    world.settle();
    for object in [another("second", json!({})), bound("second")] {
        world.apply(&object);
        world.settle();
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(world.condition(kind, "second", "Programmed"), "True/Programmed ", "{kind}");
    }
}

#[test]
fn control_planes_that_are_members_of_each_other() {
    let world = World::with_control_plane();
    let group = |name: &str, member: &str| {
        let request = json!({"cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"});
        another(name, json!({"createControlPlaneRequest": request, "members": [{"name": member}]}))
    };
    for object in [group("a", "b"), group("b", "a"), group("self", "self")] {
        world.apply(&object);
    }
    world.settle_for(Duration::from_mins(30));
    let requests = world.requests();
    let posts = requests.iter().filter(|request| request.starts_with("POST")).count();
    assert_eq!(posts, 3, "{requests:?}");
    // With growing pauses, not at once with each change of the other one.
    assert!(requests.len() < 150, "{}: {requests:?}", requests.len());
    let told =
        |name| world.condition("KonnectGatewayControlPlane", name, "MembersReferenceResolved");
    for name in ["a", "b"] {
        let answer = "False/SetGroupMemberFailed {\"status\":400,";
        assert!(told(name).starts_with(answer), "{name}: {}", told(name));
    }
    assert!(told("self").starts_with("False/"), "{}", told("self"));
}

#[test]
fn fields_that_do_not_change_are_refused_by_the_api_server() {
    let world = World::with_control_plane();
    let plugin = object("KongPlugin", "p", json!({"plugin": "rate-limiting"}));
    let data_plane = in_cp("KongDataPlaneClientCertificate", "dp", json!({"cert": "c"}));
    for object in [&service("svc"), &plugin, &data_plane] {
        world.apply(object);
        world.settle();
    }
    let reference = json!({"konnectNamespacedRef": {"name": "other"}});
    let cases = [
        (
            "KonnectAPIAuthConfiguration",
            "auth",
            json!({"spec": {"serverURL": "us.api.konghq.com"}}),
            "immutable",
        ),
        ("KonnectGatewayControlPlane", "cp", json!({"spec": {"source": "Mirror"}}), "immutable"),
        (
            "KonnectGatewayControlPlane",
            "cp",
            json!({"spec": {"konnect": {"authRef": {"name": "o"}}}}),
            "immutable",
        ),
        ("KongService", "svc", json!({"spec": {"controlPlaneRef": reference}}), "immutable"),
        ("KongPlugin", "p", json!({"plugin": "key-auth"}), "immutable"),
        ("KongDataPlaneClientCertificate", "dp", json!({"spec": {"cert": "d"}}), "immutable"),
    ];
    for (kind, name, patch, expected) in cases {
        let mut whole = object(kind, name, json!({}));
        merge(&mut whole, patch);
        let refused = world.cluster().clone().patch(&whole).unwrap_err();
        assert!(refused.contains(expected), "{kind}: {refused}");
    }
}

//! Deletion: what it needs, and in which order objects and entities go.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    fixture::{World, control_plane, in_cp, merge, object, service},
    inputs::secret,
    references::{KONG, KONNECT, grant},
    schedules::actors::actors,
    watch::collections,
};
use crate::kind::{self, AUTH, CONTROL_PLANE};

/// A reference that is gone, or the grant for it.
struct Row {
    what: &'static str,
    /// The object of the reference, named `o`, and the one that it refers to, if that is not its
    /// control plane.
    object: Value,
    parent: Option<Value>,
    /// The object that goes, as `Kind/namespace/name`.
    gone: &'static str,
    /// The entity is deleted all the same.
    is_deleted: bool,
}

fn moved(mut of: Value, namespace: &str) -> Value {
    of["metadata"]["namespace"] = namespace.into();
    of
}

/// An object of a control plane in another namespace.
fn of_plane(mut of: Value) -> Value {
    of["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["namespace"] = "p".into();
    of
}

/// Returns a world in which every reference leads into another namespace: that of the control plane
/// `p/cp` to the token `a/auth`, that of the token to its Secret `b/tok`.
fn world() -> World {
    let world = World::new(&json!({}));
    let labels = json!({"konghq.com/credential": "konnect", "konghq.com/secret": "true"});
    let spec = json!({"type": "secretRef", "secretRef": {"name": "tok", "namespace": "b"}, "serverURL": "eu.api.konghq.com"});
    let mut plane = moved(control_plane(), "p");
    plane["spec"]["konnect"]["authRef"]["namespace"] = "a".into();
    let to_plane = (KONNECT, CONTROL_PLANE.kind);
    let mut objects = vec![
        grant("token", "b", (KONNECT, AUTH.kind, "a"), ("core", "Secret")),
        grant("auth", "a", (KONNECT, CONTROL_PLANE.kind, "p"), (KONNECT, AUTH.kind)),
        moved(secret("tok", &labels, &json!({"token": "kpat_t"})), "b"),
        moved(object(AUTH.kind, "auth", json!({"spec": spec})), "a"),
        plane,
    ];
    for kind in ["KongService", "KongUpstream", "KongCertificate"] {
        for of in ["ns", "c"] {
            let name = format!("{}-{of}", kind.to_lowercase());
            objects.push(grant(&name, "p", (KONG, kind, of), to_plane));
        }
    }
    for (from, to) in [
        ("KongRoute", "KongService"),
        ("KongTarget", "KongUpstream"),
        ("KongSNI", "KongCertificate"),
    ] {
        objects.push(grant(&from.to_lowercase(), "c", (KONG, from, "ns"), (KONG, to)));
    }
    for object in objects {
        world.apply(&object);
    }
    world.settle();
    world
}

fn references() -> Vec<Row> {
    let there = json!({"name": "r", "namespace": "c"});
    let of = json!({"type": "namespacedRef", "namespacedRef": there});
    let route = json!({"spec": {"name": "o", "paths": ["/x"], "serviceRef": of}});
    let target = json!({"spec": {"target": "10.0.0.1:80", "upstreamRef": there}});
    let sni = json!({"spec": {"name": "h.example", "certificateRef": there}});
    let certificate = in_cp("KongCertificate", "r", json!({"cert": "c", "key": "k"}));
    let alone = |what, gone, is_deleted| {
        let object = of_plane(service("o"));
        Row { what, object, parent: None, gone, is_deleted }
    };
    let below = |what, gone, object, parent| {
        let parent = Some(moved(of_plane(parent), "c"));
        Row { what, object, parent, gone, is_deleted: true }
    };
    let upstream = in_cp("KongUpstream", "r", json!({"name": "r"}));
    vec![
        alone("the Secret of the token", "Secret/b/tok", false),
        alone("the grant for the Secret of the token", "KongReferenceGrant/b/token", false),
        alone("the grant for the token", "KongReferenceGrant/a/auth", true),
        alone("the grant for the control plane", "KongReferenceGrant/p/kongservice-ns", true),
        below(
            "the grant for the service",
            "KongReferenceGrant/c/kongroute",
            object("KongRoute", "o", route),
            service("r"),
        ),
        below(
            "the grant for the upstream",
            "KongReferenceGrant/c/kongtarget",
            object("KongTarget", "o", target),
            upstream,
        ),
        below(
            "the grant for the certificate",
            "KongReferenceGrant/c/kongsni",
            object("KongSNI", "o", sni),
            certificate,
        ),
    ]
}

/// Returns the requests since the last call that change something.
fn writes(world: &World) -> Vec<String> {
    world.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect()
}

#[test]
fn a_deletion_needs_the_token_and_no_grant_but_that_of_its_secret() {
    for Row { what, object, parent, gone, is_deleted } in references() {
        let world = world();
        for object in parent.iter().chain([&object]) {
            world.apply(object);
            world.settle();
        }
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(world.condition(kind, "o", "Programmed"), "True/Programmed ", "{what}");
        if gone.starts_with("Secret/") {
            let metadata = json!({"name": "tok", "namespace": "b", "finalizers": []});
            world.stub.patch(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
        }
        world.stub.delete(gone);
        world.settle();
        world.requests();
        world.delete(kind, "o");
        world.settle();
        if is_deleted {
            let writes = writes(&world);
            assert!(writes.len() == 1 && writes[0].starts_with("DELETE "), "{what}: {writes:?}");
            assert_eq!(world.get(kind, "o"), None, "{what}");
            continue;
        }
        assert_eq!(
            world.condition(kind, "o", "Programmed"),
            "False/KonnectAPIOpFailed the entity cannot be deleted without its token; the annotation \
             mortise.dev/konnect-abandon-entity: \"true\" gives it up",
            "{what}"
        );
        assert_eq!(
            world.condition(kind, "o", "APIAuthValid"),
            "False/Invalid referenced KonnectAPIAuthConfiguration a/auth is invalid",
            "{what}"
        );
        let annotation = json!({"metadata": {"annotations": {crate::ABANDON: "true"}}});
        world.patch(kind, "o", annotation);
        world.settle();
        assert_eq!((world.get(kind, "o"), writes(&world).len()), (None, 0), "{what}");
    }
}

/// A parent and its child, both named `o`.
fn families() -> Vec<(Value, Value)> {
    let upstream = in_cp("KongUpstream", "o", json!({"name": "o"}));
    let target = json!({"spec": {"target": "10.0.0.1:80", "upstreamRef": {"name": "o"}}});
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    consumer["username"] = "o".into();
    let key = json!({"spec": {"key": "k", "consumerRef": {"name": "o"}}});
    let certificate = in_cp("KongCertificate", "o", json!({"cert": "c", "key": "k"}));
    let sni = json!({"spec": {"name": "h.example", "certificateRef": {"name": "o"}}});
    let of = json!({"type": "namespacedRef", "namespacedRef": {"name": "o"}});
    let route = json!({"spec": {"name": "o", "paths": ["/x"], "serviceRef": of}});
    let mut plane = control_plane();
    merge(
        &mut plane,
        json!({"metadata": {"name": "o"}, "spec": {"createControlPlaneRequest": {"name": "o"}}}),
    );
    let mut inside = service("o");
    inside["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["name"] = "o".into();
    vec![
        (upstream, object("KongTarget", "o", target)),
        (consumer, object("KongCredentialAPIKey", "o", key)),
        (certificate, object("KongSNI", "o", sni)),
        (service("o"), object("KongRoute", "o", route)),
        (plane, inside),
    ]
}

#[test]
fn a_parent_and_its_child_that_go_at_once_leave_nothing() {
    for (parent, child) in families() {
        let kinds = [&parent, &child].map(|of| of["kind"].as_str().unwrap());
        for order in [kinds, [kinds[1], kinds[0]]] {
            let world = World::with_control_plane();
            for object in [&parent, &child] {
                world.apply(object);
                world.settle();
            }
            let since = world.fake.lock().requests();
            for kind in order {
                world.delete(kind, "o");
            }
            world.settle();
            for kind in kinds {
                assert_eq!(world.get(kind, "o"), None, "{order:?}");
            }
            let fake = world.fake.lock();
            for kind in kinds {
                let api = kind::find(kind).unwrap().api.as_ref().unwrap();
                let left = fake.entities(api.collection.rsplit('/').next().unwrap());
                assert!(left.iter().all(|of| of["name"] == "cp"), "{order:?}: {left:?}");
            }
            // Entities that went along with their parent are not there any more.
            for entry in fake.log(since).filter(|entry| entry.method == "DELETE") {
                let status = entry.answer.as_ref().unwrap().status;
                // A service waits for its routes.
                let is_waiting = status == 400 && kinds[0] == "KongService";
                assert!(matches!(status, 204 | 404) || is_waiting, "{order:?}: {entry:?}");
            }
        }
    }
}

/// Returns the entities that are left.
fn entities(world: &World) -> usize {
    let fake = world.fake.lock();
    collections().map(|collection| fake.entities(collection).len()).sum()
}

#[test]
fn what_is_deleted_while_konnect_is_away_leaves_nothing() {
    for is_reversed in [false, true] {
        let world = World::new(&json!({}));
        let mut actors = actors();
        // The vault has no grant here, and the mirror no control plane.
        actors.retain(|actor| !["vlt", "mirror"].contains(&actor.name()));
        for actor in &actors {
            world.apply(&actor.object);
            world.settle();
        }
        let count = entities(&world);
        let with_entity = actors.iter().filter(|actor| !actor.collection().is_empty()).count();
        assert_eq!(count, with_entity);
        world.set_down(true);
        if is_reversed {
            actors.reverse();
        }
        for actor in &actors {
            world.delete(actor.kind(), actor.name());
            world.pass();
        }
        world.settle_for(Duration::from_mins(1));
        assert_eq!(entities(&world), count);
        world.set_down(false);
        world.settle_for(Duration::from_mins(10));
        let all = actors.iter().filter(|actor| world.get(actor.kind(), actor.name()).is_some());
        assert_eq!((all.count(), entities(&world)), (0, 0), "reversed: {is_reversed}");
    }
}

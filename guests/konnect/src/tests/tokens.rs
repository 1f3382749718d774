//! Tokens that do not serve: what the object that holds one says, and those that need it.

use std::time::Duration;

use serde_json::json;

use super::{
    fixture::{World, auth, control_plane, object, service},
    inputs::{FALSE_EXISTS, secret, with_spec},
    references::grant,
};
use crate::kind::{AUTH, KONNECT};

/// A token: what is wrong with it, and what the object that holds it says.
#[test]
fn tokens_that_do_not_serve() {
    let labels = json!({"konghq.com/credential": "konnect", "konghq.com/secret": "true"});
    let refused = "False/Invalid {\"status\":401,\"title\":\"Unauthorized\",\"instance\":\"\",\"detail\":\"Invalid credentials\"}";
    let of_secret = json!({"type": "secretRef", "token": null, "secretRef": {"name": "tok"}});
    let cases = [
        ("refused", vec![], json!({"token": "kpat_t.bad"}), refused, 1),
        (
            "a region that is none",
            vec![],
            json!({"serverURL": "region1.api.konghq.com"}),
            "False/Invalid failed to parse region from hostname: invalid region region1",
            0,
        ),
        (
            "no Secret",
            vec![],
            of_secret.clone(),
            "False/Invalid failed to get Secret ns/tok: Secret \"tok\" not found",
            0,
        ),
        (
            "a refused token of a Secret",
            vec![secret("tok", &labels, &json!({"token": "kpat_t.bad"}))],
            of_secret,
            refused,
            1,
        ),
    ];
    for (what, objects, spec, told, calls) in cases {
        let world = World::new(&json!({}));
        let mut auth = with_spec(auth(), spec);
        auth["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        for object in objects.iter().chain([&auth, &control_plane()]) {
            world.apply(object);
        }
        world.pass();
        assert_eq!(
            world.condition("KonnectAPIAuthConfiguration", "auth", "APIAuthValid"),
            told,
            "{what}"
        );
        assert_eq!(
            world.condition("KonnectGatewayControlPlane", "cp", "APIAuthValid"),
            "False/Invalid referenced KonnectAPIAuthConfiguration ns/auth is invalid",
            "{what}"
        );
        assert_eq!(world.condition("KonnectGatewayControlPlane", "cp", "Programmed"), FALSE_EXISTS);
        assert_eq!(world.requests(), [""; 0], "{what}");
        let asked = world.fake.lock().requests();
        assert!(if calls == 0 { asked == 0 } else { asked > 0 }, "{what}: {asked}");
    }
}

#[test]
fn a_revoked_token_shows_at_the_entity_and_then_at_the_token() {
    let world = World::with_control_plane();
    world.change(json!({"revoke": "kpat_t"}));
    world.apply(&service("svc"));
    world.pass();
    assert_eq!(
        world.condition("KongService", "svc", "Programmed"),
        "False/FailedToCreate failed to create KongService ns/svc: {\"message\":\"Unauthorized\",\"status\":401}"
    );
    world.patch("KonnectAPIAuthConfiguration", "auth", json!({"metadata": {"labels": {"a": "b"}}}));
    world.settle();
    assert_eq!(
        world.condition("KongService", "svc", "APIAuthValid"),
        "False/Invalid referenced KonnectAPIAuthConfiguration ns/auth is invalid"
    );
    world.requests();
    world.settle_for(Duration::from_mins(1));
    assert_eq!(world.requests(), [""; 0], "no call with a token that is not valid");
    world.change(json!({"restore": "kpat_t"}));
    world.settle_for(Duration::from_secs(4));
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn what_a_token_was_refused_for_is_sent_with_another_token() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.change(json!({"revoke": "kpat_t"}));
    world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
    world.settle();
    assert!(
        world
            .condition("KongService", "svc", "Programmed")
            .starts_with("False/FailedToUpdate failed to update KongService ns/svc: ")
    );
    world.requests();
    world.patch("KonnectAPIAuthConfiguration", "auth", json!({"spec": {"token": "kpat_t.2"}}));
    world.settle();
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
    let requests = world.requests();
    assert_eq!(
        requests.iter().filter(|request| request.starts_with("PUT")).count(),
        1,
        "{requests:?}"
    );
}

/// As with the original, in which each event sends what was refused.
#[test]
fn what_was_refused_is_sent_again_when_a_reference_is_valid_again() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    let refused =
        json!([{"method": "PUT", "path": "/services/", "status": 400, "body": {"code": 3}}]);
    world.faults(refused);
    world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
    world.settle();
    world.change(json!({"revoke": "kpat_t"}));
    world.patch("KonnectAPIAuthConfiguration", "auth", json!({"metadata": {"labels": {"a": "b"}}}));
    world.settle();
    assert_eq!(world.condition("KongService", "svc", "Programmed"), FALSE_EXISTS);
    world.change(json!({"restore": "kpat_t"}));
    world.settle_for(Duration::from_secs(4));
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn a_token_of_another_namespace_is_used_while_it_is_granted() {
    let world = World::new(&json!({"syncPeriodSeconds": 60}));
    let labels = json!({"konghq.com/credential": "konnect", "konghq.com/secret": "true"});
    let mut token = secret("tok", &labels, &json!({"token": "kpat_t"}));
    token["metadata"]["namespace"] = "b".into();
    let spec = json!({
        "type": "secretRef", "secretRef": {"name": "tok", "namespace": "b"}, "serverURL": "eu.api.konghq.com",
    });
    let auth = object(AUTH.kind, "auth", json!({"spec": spec}));
    for object in [&token, &auth, &control_plane()] {
        world.apply(object);
    }
    world.settle();
    let told = |of| world.condition(AUTH.kind, "auth", of);
    let refused = "cross-namespace reference to Secret tok in namespace b from \
                   KonnectAPIAuthConfiguration.konnect.konghq.com in namespace ns is not granted by \
                   any KongReferenceGrant";
    assert_eq!(told("APIAuthValid"), format!("False/Invalid {refused}"));
    assert_eq!(told("ResolvedRefs"), format!("False/RefNotPermitted {refused}"));
    assert_eq!(world.fake.lock().requests(), 0);
    world.apply(&grant("g", "b", (KONNECT, AUTH.kind, "ns"), ("core", "Secret")));
    world.settle();
    assert_eq!(told("APIAuthValid"), "True/Valid Token from Secret b/tok is valid");
    let programmed = || world.condition("KonnectGatewayControlPlane", "cp", "Programmed");
    assert_eq!(programmed(), "True/Programmed ");
    world.stub.delete("KongReferenceGrant/b/g");
    world.settle();
    let asked = world.fake.lock().requests();
    assert_eq!(told("APIAuthValid"), format!("False/Invalid {refused}"));
    let change = json!({"spec": {"createControlPlaneRequest": {"description": "changed"}}});
    world.patch("KonnectGatewayControlPlane", "cp", change);
    world.settle_for(Duration::from_mins(3));
    assert_eq!(world.fake.lock().requests(), asked, "no call without the grant");
    assert_eq!(programmed(), FALSE_EXISTS);
}

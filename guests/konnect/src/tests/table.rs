//! Where this guest does better than the original: each row of the table in the README.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{World, auth, control_plane, in_cp, mirror, object, service};

const HOUR: Duration = Duration::from_hours(1);

fn count(world: &World, method: &str) -> usize {
    world.requests().iter().filter(|request| request.starts_with(method)).count()
}

fn plugin(minute: u32) -> Value {
    object("KongPlugin", "plug", json!({"plugin": "rate-limiting", "config": {"minute": minute}}))
}

fn binding() -> Value {
    in_cp(
        "KongPluginBinding",
        "bind",
        json!({
            "pluginRef": {"name": "plug"}, "scope": "GlobalInControlPlane",
        }),
    )
}

fn certificate_from_secret() -> [Value; 2] {
    let secret = object(
        "Secret",
        "tls",
        json!({
            "metadata": {"labels": {"konghq.com/secret": "true"}},
            "stringData": {"tls.crt": "one", "tls.key": "key"},
        }),
    );
    let reference = json!({"type": "secretRef", "secretRef": {"name": "tls"}});
    [secret, in_cp("KongCertificate", "cert", reference)]
}

#[test]
fn an_edited_plugin_is_sent_at_once() {
    let world = World::with_control_plane();
    for object in [plugin(5), binding()] {
        world.apply(&object);
        world.settle();
    }
    assert_eq!(count(&world, "POST"), 1);
    world.patch("KongPlugin", "plug", json!({"config": {"minute": 9}}));
    world.settle();
    assert_eq!(count(&world, "PUT"), 1);
    assert_eq!(world.fake.lock().entities("plugins")[0]["config"]["minute"], 9);
}

#[test]
fn an_edited_secret_of_a_certificate_is_sent_at_once() {
    let world = World::with_control_plane();
    for object in certificate_from_secret() {
        world.apply(&object);
        world.settle();
    }
    assert_eq!(count(&world, "POST"), 1);
    world.patch("Secret", "tls", json!({"stringData": {"tls.crt": "two"}}));
    world.settle();
    assert_eq!(count(&world, "PUT"), 1);
    assert_eq!(world.fake.lock().entities("certificates")[0]["cert"], "two");
}

/// As with the original: the reference is valid, and it is the creation that fails.
#[test]
fn a_certificate_whose_secret_lacks_a_key_is_created_when_the_key_comes() {
    let from_secret = json!({"type": "secretRef", "secretRef": {"name": "tls"}});
    let cases = [("KongCertificate", "tls.key", 1), ("KongCACertificate", "ca.crt", 0)];
    for (kind, key, lookups) in cases {
        let world = World::with_control_plane();
        let [mut secret, _] = certificate_from_secret();
        secret["stringData"] = json!({"tls.crt": "one"});
        world.apply(&secret);
        world.apply(&in_cp(kind, "cert", from_secret.clone()));
        world.settle();
        assert_eq!(
            world.condition(kind, "cert", "SecretRefValid"),
            "True/Valid Referenced Secret(s) exist and contain the required key(s)"
        );
        assert_eq!(
            world.condition(kind, "cert", "Programmed"),
            format!("False/FailedToCreate secret ns/tls is missing key '{key}'")
        );
        let requests = world.requests();
        assert!(requests.iter().all(|request| request.starts_with("GET")), "{requests:?}");
        assert_eq!(requests.len(), lookups, "{kind}");
        world.patch("Secret", "tls", json!({"stringData": {key: "two"}}));
        world.settle();
        assert_eq!(world.condition(kind, "cert", "Programmed"), "True/Programmed ");
        world.patch("Secret", "tls", json!({"data": {key: null}}));
        world.settle_for(2 * HOUR);
        assert_eq!(
            world.condition(kind, "cert", "Programmed"),
            format!("False/FailedToUpdate secret ns/tls is missing key '{key}'")
        );
    }
}

#[test]
fn a_refused_entity_is_sent_once_then_at_a_change_or_after_the_period() {
    for status in [400, 403] {
        let world = World::with_control_plane();
        world.faults(json!([{"method": "POST", "path": "/services$", "status": status, "times": -1, "body": {"code": 3, "message": "validation error"}}]));
        world.apply(&service("svc"));
        world.settle();
        world.settle_for(Duration::from_mins(1));
        assert_eq!(count(&world, "POST"), 1, "once");
        world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
        world.settle();
        assert_eq!(count(&world, "POST"), 1, "at a change");
        world.settle_for(HOUR + Duration::from_secs(1));
        assert_eq!(count(&world, "POST"), 1, "after the period");
    }
}

#[test]
fn without_the_id_of_a_parent_there_is_a_condition_and_no_call() {
    let world = World::new(&json!({}));
    world.apply(&auth());
    world
        .faults(json!([{"method": "POST", "path": "control-planes$", "status": 400, "times": -1}]));
    world.apply(&control_plane());
    world.settle();
    world.requests();
    world.apply(&service("svc"));
    world.settle();
    assert_eq!(world.requests(), [""; 0]);
    assert_eq!(
        world.condition("KongService", "svc", "ControlPlaneRefValid"),
        "False/NotProgrammed Referenced ControlPlane ns/cp is not programmed yet"
    );
    assert_eq!(
        world.condition("KongService", "svc", "Programmed"),
        "False/FailedToCreate can't create KongService ns/svc without a Konnect ControlPlane ID"
    );
    world.delete("KongService", "svc");
    world.settle();
    assert_eq!((world.requests().len(), world.get("KongService", "svc")), (0, None));
}

#[test]
fn a_deletion_needs_no_grant() {
    let world = World::new(&json!({}));
    let mut elsewhere = auth();
    elsewhere["metadata"]["namespace"] = "b".into();
    world.apply(&elsewhere);
    let mut grant = object(
        "KongReferenceGrant",
        "g",
        json!({"spec": {
            "from": [{"group": "konnect.konghq.com", "kind": "KonnectGatewayControlPlane", "namespace": "ns"}],
            "to": [{"group": "konnect.konghq.com", "kind": "KonnectAPIAuthConfiguration"}],
        }}),
    );
    grant["metadata"]["namespace"] = "b".into();
    world.apply(&grant);
    let mut cp = control_plane();
    cp["spec"]["konnect"]["authRef"]["namespace"] = "b".into();
    world.apply(&cp);
    world.settle();
    assert_eq!(count(&world, "POST"), 1);
    world.delete("KongReferenceGrant", "g");
    world.settle();
    assert!(
        world
            .condition("KonnectGatewayControlPlane", "cp", "APIAuthResolvedRef")
            .starts_with("False/RefNotPermitted")
    );
    world.delete("KonnectGatewayControlPlane", "cp");
    world.settle();
    assert_eq!((count(&world, "DELETE"), world.get("KonnectGatewayControlPlane", "cp")), (1, None));
}

#[test]
fn a_route_is_deleted_though_its_service_is_gone() {
    let world = World::with_control_plane();
    let route = json!({"spec": {"name": "rt", "paths": ["/x"], "serviceRef": {"type": "namespacedRef", "namespacedRef": {"name": "svc"}}}});
    for object in [service("svc"), object("KongRoute", "rt", route)] {
        world.apply(&object);
        world.settle();
    }
    world.patch(
        "KongRoute",
        "rt",
        json!({"spec": {"serviceRef": {"namespacedRef": {"name": "none"}}}}),
    );
    world.settle();
    world.requests();
    world.delete("KongRoute", "rt");
    world.settle();
    assert_eq!((count(&world, "DELETE"), world.get("KongRoute", "rt")), (1, None));
}

#[test]
fn without_a_token_a_deletion_says_so_and_an_annotation_lets_the_object_go() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.patch("KonnectAPIAuthConfiguration", "auth", json!({"metadata": {"finalizers": []}}));
    world.delete("KonnectAPIAuthConfiguration", "auth");
    world.settle();
    world.delete("KongService", "svc");
    world.settle();
    let service = world.get("KongService", "svc").unwrap();
    let conditions = service["status"]["conditions"].as_array().unwrap();
    let of = |kind: &str| conditions.iter().find(|held| held["type"] == kind).unwrap();
    let plane = of("ControlPlaneRefValid");
    assert_eq!((&plane["status"], &plane["observedGeneration"]), (&json!("False"), &json!(2)));
    assert_eq!(
        world.condition("KongService", "svc", "APIAuthResolvedRef"),
        "False/RefNotFound Referenced KonnectAPIAuthConfiguration ns/auth not found"
    );
    let told = world.condition("KongService", "svc", "Programmed");
    assert!(told.contains(crate::ABANDON), "{told}");
    world.patch(
        "KongService",
        "svc",
        json!({"metadata": {"annotations": {crate::ABANDON: "true"}}}),
    );
    world.settle();
    assert_eq!(world.get("KongService", "svc"), None);
}

#[test]
fn a_certificate_of_data_planes_comes_back_with_its_control_plane() {
    let world = World::with_control_plane();
    world.apply(&in_cp("KongDataPlaneClientCertificate", "dp", json!({"cert": "c"})));
    world.settle();
    world.change(json!({"removeControlPlane": "cp"}));
    assert_eq!(world.fake.lock().entities("dp-client-certificates").len(), 0);
    world.settle_for(2 * HOUR);
    let stored = world.fake.lock().entities("dp-client-certificates");
    let object = world.get("KongDataPlaneClientCertificate", "dp").unwrap();
    assert_eq!((stored.len(), &stored[0]["id"]), (1, &object["status"]["konnect"]["id"]));
}

#[test]
fn a_mirror_of_nothing_is_not_mirrored() {
    let world = World::new(&json!({}));
    world.apply(&auth());
    world.apply(&mirror("cp", "aaaaaaaa-1111-4111-8111-111111111111"));
    world.settle();
    let message = "failed listing controlPlanes by id: entity with ID aaaaaaaa-1111-4111-8111-111111111111 not found on Konnect";
    assert_eq!(
        world.condition("KonnectGatewayControlPlane", "cp", "Mirrored"),
        format!("False/Failed {message}")
    );
    assert_eq!(
        world.condition("KonnectGatewayControlPlane", "cp", "Programmed"),
        format!("False/FailedToCreate {message}")
    );
}

#[test]
fn a_mirror_that_cannot_be_read_says_so() {
    const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";
    let problem = r#"{"status":401,"title":"Unauthorized","instance":"","detail":"no"}"#;
    let cases = [
        (
            json!({"status": 401, "headers": {"content-type": "application/problem+json"}, "body": {
                "status": 401, "title": "Unauthorized", "instance": "kong:trace:1", "detail": "no"}}),
            format!("failed listing for controlPlane with id {ID}: {problem}"),
        ),
        (json!({"status": 502, "body": "away"}), "API error occurred: Status 502\naway".to_owned()),
    ];
    for (answer, message) in cases {
        let world = World::new(&json!({}));
        world.apply(&auth());
        let mut fault = answer.clone();
        fault["method"] = "GET".into();
        fault["path"] = "/control-planes".into();
        fault["times"] = (-1).into();
        world.faults(json!([fault]));
        world.apply(&mirror("cp", ID));
        world.pass();
        let told = |of| world.condition("KonnectGatewayControlPlane", "cp", of);
        assert_eq!(told("Mirrored"), format!("False/Failed {message}"), "{answer}");
        assert_eq!(told("Programmed"), format!("False/FailedToCreate {message}"), "{answer}");
    }
}

#[test]
fn a_mirror_shows_what_is_there_and_sends_nothing() {
    const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";
    let world = World::with_period(60);
    world.change(json!({"putControlPlane": {"id": ID, "name": "theirs"}}));
    let planes = || world.fake.lock().entities("control-planes");
    let theirs = planes().into_iter().find(|plane| plane["id"] == ID).unwrap();
    let kind = "KonnectGatewayControlPlane";
    world.apply(&mirror("mirror", ID));
    world.settle_for(Duration::from_mins(3));
    for (condition, told) in [("Mirrored", "True/Mirrored "), ("Programmed", "True/Programmed ")] {
        assert_eq!(world.condition(kind, "mirror", condition), told);
    }
    let status = world.get(kind, "mirror").unwrap()["status"].clone();
    assert_eq!(status["id"], ID);
    let config = &theirs["config"];
    assert_eq!(status["clusterType"], config["cluster_type"]);
    let endpoints = json!({"controlPlane": config["control_plane_endpoint"], "telemetry": config["telemetry_endpoint"]});
    assert_eq!(status["konnectEndpoints"], endpoints);
    // The other control plane is updated once a period.
    let is_write = |request: &&String| !request.starts_with("GET") && request.contains(ID);
    assert_eq!(world.requests().iter().filter(is_write).count(), 0);
    world.delete(kind, "mirror");
    world.settle();
    assert_eq!((count(&world, "DELETE"), world.get(kind, "mirror")), (0, None));
    assert!(planes().contains(&theirs));
}

#[test]
fn a_binding_is_sent_when_its_target_comes() {
    let world = World::with_control_plane();
    let targets = json!({"pluginRef": {"name": "plug"}, "targets": {"serviceRef": {"group": "configuration.konghq.com", "kind": "KongService", "name": "svc"}}});
    for object in [plugin(5), in_cp("KongPluginBinding", "bind", targets)] {
        world.apply(&object);
        world.settle();
    }
    assert_eq!(world.requests(), [""; 0]);
    assert_eq!(
        world.condition("KongPluginBinding", "bind", "Programmed"),
        "False/FailedToCreate KongService.configuration.konghq.com \"svc\" not found"
    );
    world.apply(&service("svc"));
    world.settle();
    assert_eq!(count(&world, "POST"), 2);
}

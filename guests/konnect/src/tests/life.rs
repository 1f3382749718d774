//! The life of one entity: the flow chart of the product page, an arrow a test.

use serde_json::json;

use super::fixture::{World, auth, control_plane, in_cp, object, service};

const CP: &str = "/v2/control-planes/";
const POST_PLANE: &str = "POST /v2/control-planes";
const GET_PLANE: &str = "GET /v2/control-planes";

/// Shortens a request: the collection and whether an ID follows.
fn short(requests: &[String]) -> Vec<String> {
    let shorten = |request: &String| {
        let (method, path) = request.split_once(' ').unwrap();
        let path = path.rsplit_once("core-entities/").map_or(path, |(_, path)| path);
        let path = path.strip_prefix(CP).map_or(path.to_owned(), |rest| format!("cp/{rest}"));
        let steps = path.split('/').map(|step| if step.len() == 36 { "ID" } else { step });
        format!("{method} {}", steps.collect::<Vec<_>>().join("/"))
    };
    requests.iter().map(shorten).collect()
}

#[test]
fn created_when_references_are_valid_and_no_id_is_known() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    assert_eq!(short(&world.requests()), ["POST services"]);
    let service = world.get("KongService", "svc").unwrap();
    assert_eq!(service["metadata"]["finalizers"], json!(["gateway.konghq.com/konnect-cleanup"]));
    let konnect = &service["status"]["konnect"];
    assert_eq!(konnect["serverURL"], "https://eu.api.konghq.com");
    for id in ["id", "controlPlaneID", "organizationID"] {
        assert!(konnect[id].as_str().is_some_and(|id| id.len() == 36), "{id}: {konnect}");
    }
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn invalid_references_give_a_condition_and_no_call() {
    let world = World::with_control_plane();
    let elsewhere = json!({"spec": {"controlPlaneRef": {"type": "konnectNamespacedRef", "konnectNamespacedRef": {"name": "none"}}, "host": "h"}});
    world.apply(&object("KongService", "svc", elsewhere));
    world.settle();
    assert_eq!(
        world.condition("KongService", "svc", "ControlPlaneRefValid"),
        "False/Invalid referenced Control Plane \"<konnectNamespacedRef:none>\" does not exist: \
         KonnectGatewayControlPlane.konnect.konghq.com \"none\" not found"
    );
    assert!(world.condition("KongService", "svc", "Programmed").starts_with("False/ConditionWith"));
    assert_eq!(world.requests(), [""; 0]);
    assert_eq!(world.get("KongService", "svc").unwrap()["metadata"].get("finalizers"), None);
}

#[test]
fn created_when_references_become_valid() {
    let world = World::new(&json!({}));
    for object in [service("svc"), control_plane(), auth()] {
        assert_eq!(world.requests(), [""; 0]);
        world.apply(&object);
        world.settle();
    }
    assert_eq!(short(&world.requests()), [POST_PLANE, GET_PLANE, "POST services"]);
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn an_object_of_another_control_plane_than_konnects_is_left_alone() {
    let world = World::with_control_plane();
    let mut consumer = json!({"spec": {"controlPlaneRef": {"type": "kic"}}});
    consumer["username"] = "con".into();
    world.apply(&object("KongConsumer", "con", consumer));
    let before = world.get("KongConsumer", "con");
    world.settle();
    assert_eq!((world.get("KongConsumer", "con"), world.requests().len()), (before, 0));
}

#[test]
fn a_failed_creation_gives_a_condition_and_is_tried_again() {
    let world = World::with_control_plane();
    world.faults(json!([{"method": "POST", "path": "services", "status": 500, "times": 1}]));
    world.apply(&service("svc"));
    world.settle();
    assert!(
        world
            .condition("KongService", "svc", "Programmed")
            .starts_with("False/FailedToCreate API error occurred: Status 500")
    );
    world.advance(1);
    assert_eq!(short(&world.requests()), ["POST services", "POST services"]);
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn a_created_entity_waits_for_the_period() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    let settled = world.settle();
    world.requests();
    let after = settled.requeues["KongService/ns/svc (kongservices)"];
    assert_eq!(after.as_secs(), 3_600);
    // The object runs again, as any event makes it: unchanged, it waits for the rest.
    world.stub.advance(std::time::Duration::from_mins(10));
    world.patch("KongService", "svc", json!({"metadata": {"labels": {"a": "b"}}}));
    let settled = world.settle();
    assert_eq!(world.requests(), [""; 0]);
    let rest = settled.requeues["KongService/ns/svc (kongservices)"].as_secs();
    assert!((2_998..=3_000).contains(&rest), "{rest}");
}

#[test]
fn a_failed_update_gives_a_condition_and_is_tried_again_after_the_period() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.requests();
    world.faults(json!([{"method": "PUT", "path": "services", "status": 500, "times": 1}]));
    world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
    world.settle();
    assert_eq!(
        world.condition("KongService", "svc", "Programmed"),
        "False/FailedToUpdate API error occurred: Status 500"
    );
    world.settle_for(std::time::Duration::from_secs(3_590));
    assert_eq!(short(&world.requests()), ["PUT services/ID"]);
    world.settle_for(std::time::Duration::from_secs(12));
    assert!(short(&world.requests()).contains(&"PUT services/ID".to_owned()));
    assert_eq!(world.condition("KongService", "svc", "Programmed"), "True/Programmed ");
}

#[test]
fn a_change_of_the_spec_is_sent_and_one_of_labels_is_not() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.requests();
    let labels =
        json!({"metadata": {"labels": {"a": "b"}, "annotations": {"konghq.com/tags": "t"}}});
    world.patch("KongService", "svc", labels);
    world.settle();
    assert_eq!(world.requests(), [""; 0]);
    world.patch("KongService", "svc", json!({"spec": {"host": "two.example"}}));
    world.settle();
    assert_eq!(short(&world.requests()), ["PUT services/ID"]);
    let stored = world.fake.lock().entities("services");
    assert_eq!(stored[0]["host"], "two.example");
    assert!(stored[0]["tags"].as_array().unwrap().contains(&json!("t")), "{stored:?}");
}

#[test]
fn a_change_of_labels_is_sent_at_once_if_so_configured() {
    let world = World::new(&json!({"syncPeriodSeconds": 3600, "labels": "AtOnce"}));
    for object in [auth(), control_plane(), service("svc")] {
        world.apply(&object);
        world.settle();
    }
    world.requests();
    world.patch("KongService", "svc", json!({"metadata": {"labels": {"a": "b"}}}));
    world.settle();
    world.patch("KongService", "svc", json!({"metadata": {"annotations": {"a": "b"}}}));
    world.settle();
    assert_eq!(short(&world.requests()), ["PUT services/ID", "PUT services/ID"]);
}

#[test]
fn each_period_one_put_whatever_events_come() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.requests();
    for (hours, expected) in [(1, 1), (1, 1)] {
        world.settle_for(std::time::Duration::from_secs(hours * 3_600));
        for label in ["1", "2"] {
            world.patch("KongService", "svc", json!({"metadata": {"labels": {"l": label}}}));
            world.settle();
        }
        let puts = world.requests();
        let puts = puts.iter().filter(|request| request.starts_with("PUT")).count();
        assert_eq!(puts, expected);
    }
}

#[test]
fn an_entity_that_is_listed_and_not_found_is_created_anew_once_in_a_run() {
    let world = World::with_control_plane();
    world.requests();
    let fault = json!({"method": "PATCH", "path": "control-planes/", "status": 404, "times": -1});
    world.faults(json!([fault]));
    let spec = json!({"createControlPlaneRequest": {"description": "x"}});
    world.patch("KonnectGatewayControlPlane", "cp", json!({"spec": spec}));
    world.settle();
    let requests = short(&world.requests());
    let count = |method: &str| requests.iter().filter(|of| of.starts_with(method)).count();
    assert_eq!((count("PATCH"), count("POST")), (2, 1), "{requests:?}");
    assert_eq!(
        world.condition("KonnectGatewayControlPlane", "cp", "Programmed"),
        "False/FailedToUpdate unknown content-type received: application/json: Status 404"
    );
}

#[test]
fn a_deleted_object_takes_its_entity_along() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.requests();
    world.delete("KongService", "svc");
    world.settle();
    assert_eq!(short(&world.requests()), ["DELETE services/ID"]);
    assert_eq!(world.get("KongService", "svc"), None);
    assert!(world.fake.lock().entities("services").is_empty());
}

#[test]
fn a_failed_deletion_keeps_the_finalizer_and_is_tried_again() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.faults(json!([{"method": "DELETE", "path": "services/", "drop": true, "times": -1}]));
    world.delete("KongService", "svc");
    world.advance(30);
    assert!(
        world
            .condition("KongService", "svc", "Programmed")
            .starts_with("False/KonnectAPIOpFailed failed to delete KongService on Konnect: ")
    );
    world.faults(json!([]));
    world.advance(60);
    assert_eq!(world.get("KongService", "svc"), None);
}

#[test]
fn an_entity_that_is_gone_is_deleted_already() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.change(json!({"remove": "services", "name": "svc"}));
    world.delete("KongService", "svc");
    world.settle();
    assert_eq!(world.get("KongService", "svc"), None);
}

#[test]
fn a_lost_answer_leaves_one_entity_of_every_kind_of_creation() {
    let certificate = in_cp("KongCertificate", "o", json!({"cert": "c", "key": "k"}));
    let authority = in_cp("KongCACertificate", "o", json!({"cert": "c"}));
    let data_plane = in_cp("KongDataPlaneClientCertificate", "o", json!({"cert": "c"}));
    let unnamed = in_cp("KongService", "o", json!({"host": "h"}));
    let cases = [
        ("services", service("o")),
        ("services", unnamed),
        ("certificates", certificate),
        ("ca_certificates", authority),
        ("dp-client-certificates", data_plane),
        ("key-sets", in_cp("KongKeySet", "o", json!({"name": "s"}))),
    ];
    for (collection, object) in cases {
        let world = World::with_control_plane();
        let path = format!("/{collection}(/[^/]+)?$");
        world.faults(json!([
            {"method": "POST", "path": path, "drop": true, "act": true, "times": 1},
            {"method": "PUT", "path": path, "drop": true, "act": true, "times": 1},
        ]));
        world.apply(&object);
        world.advance(5);
        let stored = world.fake.lock().entities(collection);
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(stored.len(), 1, "{collection}");
        assert_eq!(world.condition(kind, "o", "Programmed"), "True/Programmed ", "{collection}");
        let id = world.get(kind, "o").unwrap()["status"]["konnect"]["id"].clone();
        assert_eq!(stored[0]["id"], id, "{collection}");
    }
}

//! What is told of calls that belong to an entity and are not its own: reads, members and lookups.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{World, auth, control_plane, in_cp, merge, mirror, service};

const PLANE: &str = "KonnectGatewayControlPlane";
const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";

fn problem(status: u16) -> Value {
    json!({
        "status": status, "times": -1, "headers": {"Content-Type": "application/problem+json"},
        "body": {"status": status, "title": "T", "instance": "kong:trace:1", "detail": "d"},
    })
}

fn document(status: u16) -> String {
    format!(r#"{{"status":{status},"title":"T","instance":"","detail":"d"}}"#)
}

fn failing(world: &World, method: &str, path: &str, mut fault: Value) {
    merge(&mut fault, json!({"method": method, "path": path}));
    world.faults(json!([fault]));
}

#[test]
fn a_control_plane_that_cannot_be_read_stays_as_it_is_known() {
    let world = World::with_period(60);
    let before = world.get(PLANE, "cp").unwrap()["status"].clone();
    failing(&world, "GET", "control-planes$", problem(500));
    world.patch(PLANE, "cp", json!({"metadata": {"labels": {"a": "b"}}}));
    world.settle_for(Duration::from_mins(3));
    assert_eq!(world.get(PLANE, "cp").unwrap()["status"], before);
    let requests = world.requests();
    assert!(!requests.is_empty(), "it is asked for again and again");
    assert!(requests.iter().all(|request| request.starts_with("GET")), "{requests:?}");
}

#[test]
fn a_control_plane_is_programmed_although_it_cannot_be_read_yet() {
    let world = World::new(&json!({"syncPeriodSeconds": 3_600}));
    world.apply(&auth());
    failing(&world, "GET", "control-planes$", problem(503));
    world.apply(&control_plane());
    world.settle();
    assert_eq!(world.condition(PLANE, "cp", "Programmed"), "True/Programmed ");
    assert_eq!(world.get(PLANE, "cp").unwrap()["status"].get("konnectEndpoints"), None);
    world.faults(json!([]));
    world.settle_for(Duration::from_mins(2));
    assert!(world.get(PLANE, "cp").unwrap()["status"].get("konnectEndpoints").is_some());
    let writes = world.requests().into_iter().filter(|request| !request.starts_with("GET"));
    assert_eq!(writes.collect::<Vec<_>>(), ["POST /v2/control-planes"]);
}

#[test]
fn a_mirror_that_cannot_be_read_any_more_stays_one() {
    let world = World::with_period(60);
    world.change(json!({"putControlPlane": {"id": ID, "name": "theirs"}}));
    world.apply(&mirror("m", ID));
    world.settle();
    failing(&world, "GET", "control-planes$", problem(500));
    world.settle_for(Duration::from_mins(3));
    for (condition, told) in [("Mirrored", "True/Mirrored "), ("Programmed", "True/Programmed ")] {
        assert_eq!(world.condition(PLANE, "m", condition), told);
    }
    world.faults(json!([]));
    world.change(json!({"removeControlPlane": "theirs"}));
    world.settle_for(Duration::from_mins(3));
    let message =
        format!("failed listing controlPlanes by id: entity with ID {ID} not found on Konnect");
    assert_eq!(
        world.condition(PLANE, "m", "Programmed"),
        format!("False/FailedToCreate {message}")
    );
}

/// The answer to a change of members, and what `Programmed` tells of it, at first and then.
#[test]
fn members_that_are_not_set_are_told_by_how_the_answer_is_typed() {
    let text = |status: u16| {
        let body = problem(status)["body"].to_string().replace("kong:trace:1", "");
        format!("API error occurred: Status {status}\n{body}")
    };
    let failed = |of: &str| format!("failed to set members on control plane group ns/group: {of}");
    let related = |id: &str, of: &str| {
        let reason = "FailedToSetControlPlaneGroupMembers";
        format!("{reason} Konnect entity (ID: {id}) created but relations failed: {reason}: {of}")
    };
    let alone = document(404);
    let cases = [
        (500, format!("FailedToCreate {}", text(500)), format!("FailedToUpdate {}", text(500))),
        (409, format!("FailedToCreate {}", text(409)), format!("FailedToUpdate {}", text(409))),
        (
            403,
            format!("FailedToSetControlPlaneGroupMembers {}", failed(&document(403))),
            related("ID", &failed(&document(403))),
        ),
        (
            404,
            format!("FailedToSetControlPlaneGroupMembers {alone}"),
            format!("FailedToSetControlPlaneGroupMembers {alone}"),
        ),
    ];
    for (status, at_first, then) in cases {
        let world = World::with_control_plane();
        failing(&world, "PUT", "group-memberships$", problem(status));
        let mut group = control_plane();
        let request = json!({"name": "group", "cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"});
        let spec = json!({"createControlPlaneRequest": request, "members": [{"name": "cp"}]});
        merge(&mut group, json!({"metadata": {"name": "group"}, "spec": spec}));
        world.apply(&group);
        world.pass();
        let told = || world.condition(PLANE, "group", "Programmed");
        assert_eq!(told(), format!("False/{at_first}"));
        let resolved = world.condition(PLANE, "group", "MembersReferenceResolved");
        assert!(resolved.starts_with("False/SetGroupMemberFailed "), "{resolved}");
        world.settle_for(Duration::from_secs(20));
        let id = world.get(PLANE, "group").unwrap()["status"]["id"].as_str().unwrap().to_owned();
        assert_eq!(told(), format!("False/{}", then.replace("ID: ID", &format!("ID: {id}"))));
        world.faults(json!([]));
        world.settle_for(Duration::from_mins(2));
        assert_eq!(told(), "True/Programmed ");
    }
}

#[test]
fn a_control_plane_that_is_not_updated_is_told_as_the_original_tells_it() {
    let world = World::with_control_plane();
    failing(&world, "PATCH", "control-planes/", problem(403));
    let request = json!({"createControlPlaneRequest": {"description": "d"}});
    world.patch(PLANE, "cp", json!({"spec": request}));
    world.pass();
    let update = "failed to update KonnectGatewayControlPlane on Konnect";
    assert_eq!(
        world.condition(PLANE, "cp", "Programmed"),
        format!("False/FailedToUpdate {update}: {}", document(403))
    );
}

/// The API has such an entity, and the lookup of it fails.
#[test]
fn a_lookup_that_fails_after_a_clash_is_told_with_it() {
    let clash = json!({"status": 400, "times": -1, "body": {"code": 3, "message": "data constraint error"}});
    let set = in_cp("KongKeySet", "o", json!({"name": "o"}));
    let cases = [
        (service("o"), "services", "failed listing KongService"),
        (set, "key-sets", "failed to list KongKeySets"),
    ];
    for (object, collection, listed) in cases {
        let world = World::with_control_plane();
        let mut clash = clash.clone();
        merge(&mut clash, json!({"method": "POST", "path": format!("{collection}$")}));
        let list =
            json!({"method": "GET", "path": format!("{collection}$"), "status": 500, "times": -1});
        world.faults(json!([clash, list]));
        world.apply(&object);
        world.pass();
        let kind = object["kind"].as_str().unwrap();
        let body = clash["body"].to_string();
        assert_eq!(
            world.condition(kind, "o", "Programmed"),
            format!(
                "False/FailedToCreate trying to find a matching Konnect entity matching the ID failed: \
                 {listed}: API error occurred: Status 500, failed to create {kind} ns/o: API error \
                 occurred: Status 400\n{body}"
            )
        );
        world.faults(json!([]));
        world.settle_for(Duration::from_mins(2));
        assert_eq!(world.condition(kind, "o", "Programmed"), "True/Programmed ", "tried again");
    }
}

#[test]
fn a_certificate_that_cannot_be_looked_up_says_so() {
    let unauthorized = json!({"message": "Unauthorized", "status": 401});
    let cases = [
        (json!({"status": 401, "body": unauthorized}), format!("failed to list: {unauthorized}")),
        (json!({"status": 502}), "API error occurred: Status 502".to_owned()),
    ];
    for (mut fault, told) in cases {
        let world = World::with_control_plane();
        merge(&mut fault, json!({"times": -1}));
        failing(&world, "GET", "certificates$", fault);
        world.apply(&in_cp("KongCertificate", "o", json!({"cert": "c", "key": "k"})));
        world.pass();
        let expected = format!("False/FailedToCreate {told}");
        assert_eq!(world.condition("KongCertificate", "o", "Programmed"), expected);
    }
}

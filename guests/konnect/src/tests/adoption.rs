//! Objects that take over entities which are there already.

use serde_json::{Value, json};

use super::fixture::{World, in_cp};

const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";

fn adopting(mode: &str) -> Value {
    in_cp(
        "KongService",
        "svc",
        json!({"name": "svc", "host": "example.com", "adopt": {"from": "konnect", "mode": mode, "konnect": {"id": ID}}}),
    )
}

/// What Konnect has, and what becomes of it.
#[test]
fn an_entity_is_taken_over_if_it_is_nobody_elses_and_fits() {
    let fitting = json!({
        "id": ID, "name": "svc", "host": "example.com", "port": 80, "protocol": "http", "retries": 5,
        "connect_timeout": 60000, "read_timeout": 60000, "write_timeout": 60000, "enabled": true,
    });
    let mut other = fitting.clone();
    other["host"] = "other.example".into();
    let mut owned = fitting.clone();
    owned["tags"] = json!(["k8s-uid:somebody"]);
    let conflict = format!(
        "False/UIDConflict Konnect entity (ID: {ID}) is managed by another k8s object with UID somebody"
    );
    let mismatch = format!(
        "False/NotMatch Konnect entity (ID: {ID}) does not match the spec of the object when \
         adopting in match mode"
    );
    let mut sparse = fitting.clone();
    for field in ["port", "retries", "connect_timeout", "enabled"] {
        sparse.as_object_mut().unwrap().remove(field);
    }
    let cases = [
        ("match", &fitting, "True/Adopted ".to_owned(), 0),
        ("match", &sparse, "True/Adopted ".to_owned(), 0),
        ("match", &other, mismatch, 0),
        ("override", &other, "True/Adopted ".to_owned(), 1),
        ("override", &owned, conflict, 0),
    ];
    for (mode, entity, expected, puts) in cases {
        let world = World::with_control_plane();
        world.change(json!({"put": "services", "entity": entity}));
        world.apply(&adopting(mode));
        world.settle();
        assert_eq!(world.condition("KongService", "svc", "Adopted"), expected, "{mode}");
        let requests = world.requests();
        let is_put = |request: &&String| request.starts_with("PUT");
        assert_eq!(requests.iter().filter(is_put).count(), puts, "{mode}: {requests:?}");
        assert_eq!(world.fake.lock().entities("services").len(), 1);
        let programmed = world.condition("KongService", "svc", "Programmed");
        let is_adopted = expected.starts_with("True");
        assert_eq!(programmed == "True/Programmed ", is_adopted, "{programmed}");
    }
}

#[test]
fn an_id_that_is_no_segment_of_a_path_is_not_asked_for() {
    let world = World::with_control_plane();
    let mut service = adopting("override");
    service["spec"]["adopt"]["konnect"]["id"] = "../../organizations".into();
    world.apply(&service);
    world.settle();
    assert_eq!(world.requests(), [""; 0]);
    assert!(world.condition("KongService", "svc", "Adopted").starts_with("False/FetchFailed "));
}

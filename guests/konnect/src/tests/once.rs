//! One entity for one object: what was created twice, and what was not created for the object.

use std::time::Duration;

use konnect_fake::Change;
use serde_json::{Value, json};

use super::fixture::{World, in_cp, object};

const HOUR: Duration = Duration::from_hours(1);
const SECOND: &str = "aaaaaaaa-1111-4111-8111-111111111111";

/// Changes what Konnect has, at the present time.
fn change(world: &World, change: Value) {
    let change: Change = serde_json::from_value(change).unwrap();
    world.fake.lock().change(world.stub.host().now(), &change).unwrap();
}

fn data_plane(name: &str) -> Value {
    in_cp("KongDataPlaneClientCertificate", name, json!({"cert": "c"}))
}

fn store() -> Value {
    let plane = json!({"namespacedRef": {"name": "cp"}, "type": "namespacedRef"});
    let spec = json!({"controlPlaneRef": plane, "apiSpec": {"name": "s"}});
    object("KonnectConfigStore", "o", json!({"spec": spec}))
}

/// Returns the ID of an object's entity.
fn id(world: &World, kind: &str, name: &str) -> Value {
    let status = world.get(kind, name).unwrap()["status"].clone();
    status.pointer("/konnect/id").or(status.get("id")).cloned().unwrap_or_default()
}

fn programmed(world: &World, kind: &str) -> String {
    world.condition(kind, "o", "Programmed")
}

fn ids(world: &World, collection: &str) -> Vec<Value> {
    world.fake.lock().entities(collection).iter().map(|entity| entity["id"].clone()).collect()
}

/// Objects of the kinds of which the API takes equal ones twice, each with its collection.
fn without_unique_field() -> Vec<(&'static str, Value)> {
    let acl = json!({"spec": {"consumerRef": {"name": "con"}, "group": "g"}});
    vec![
        ("certificates", in_cp("KongCertificate", "o", json!({"cert": "c", "key": "k"}))),
        ("ca_certificates", in_cp("KongCACertificate", "o", json!({"cert": "c"}))),
        ("acls", object("KongCredentialACL", "o", acl)),
        ("dp-client-certificates", data_plane("o")),
    ]
}

fn with_consumer() -> World {
    let world = World::with_control_plane();
    let mut consumer = in_cp("KongConsumer", "con", json!({}));
    consumer["username"] = "con".into();
    world.apply(&consumer);
    world.settle();
    world
}

#[test]
fn a_second_entity_of_a_frozen_host_is_deleted_within_a_period() {
    for (collection, object) in without_unique_field() {
        let world = with_consumer();
        world.apply(&object);
        world.settle();
        let mut second = world.fake.lock().entities(collection)[0].clone();
        second["id"] = SECOND.into();
        change(&world, json!({"put": collection, "entity": second}));
        assert_eq!(ids(&world, collection).len(), 2, "{collection}");
        world.settle_for(2 * HOUR);
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(ids(&world, collection), [id(&world, kind, "o")], "{collection}");
        assert_ne!(id(&world, kind, "o"), SECOND, "{collection}");
    }
}

#[test]
fn of_two_entities_of_an_object_without_an_id_one_is_taken_and_the_other_deleted() {
    for (collection, object) in without_unique_field() {
        let world = with_consumer();
        world.faults(json!([{"method": "POST", "path": collection, "drop": true, "act": true}]));
        world.apply(&object);
        // The finalizer, then the creation.
        for _ in 0..2 {
            world.stub.settle::<crate::Konnect>(&world.config);
            world.stub.advance(Duration::from_millis(1));
        }
        let mut second = world.fake.lock().entities(collection)[0].clone();
        second["id"] = SECOND.into();
        change(&world, json!({"put": collection, "entity": second}));
        world.advance(5);
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(ids(&world, collection), [id(&world, kind, "o")], "{collection}");
    }
}

#[test]
fn an_equal_certificate_of_a_data_plane_that_is_not_the_objects_stays() {
    let world = World::with_control_plane();
    change(&world, json!({"put": "dp-client-certificates", "entity": {"id": SECOND, "cert": "c"}}));
    world.advance(60);
    for name in ["o", "other"] {
        world.apply(&data_plane(name));
        world.settle();
    }
    world.settle_for(2 * HOUR);
    let mut all = ids(&world, "dp-client-certificates");
    assert_eq!(all.remove(0), SECOND, "it is older than the object");
    let of = |name| id(&world, "KongDataPlaneClientCertificate", name);
    assert_eq!(all, [of("o"), of("other")], "each object has its own");
}

#[test]
fn a_config_store_that_is_older_than_the_object_is_not_taken_over() {
    let world = World::with_control_plane();
    change(&world, json!({"put": "config-stores", "entity": {"id": SECOND, "name": "s"}}));
    world.advance(60);
    let clash = json!({"code": 6, "message": "already exists"});
    world
        .faults(json!([{"method": "POST", "path": "config-stores", "status": 409, "body": clash}]));
    world.apply(&store());
    world.settle();
    let told = programmed(&world, "KonnectConfigStore");
    assert!(told.starts_with("False/FailedToCreate trying to find a matching"), "{told}");
    world.settle_for(HOUR + Duration::from_secs(1));
    assert_eq!(programmed(&world, "KonnectConfigStore"), "True/Programmed ");
    assert_ne!(id(&world, "KonnectConfigStore", "o"), SECOND, "another one, if the API takes it");
    world.delete("KonnectConfigStore", "o");
    world.settle();
    assert_eq!(ids(&world, "config-stores"), [SECOND], "the other one stays");
}

#[test]
fn a_config_store_whose_answer_was_lost_is_found_by_its_name() {
    let world = World::with_control_plane();
    world.faults(json!([{"method": "POST", "path": "config-stores", "drop": true, "act": true}]));
    world.apply(&store());
    world.advance(5);
    assert_eq!(programmed(&world, "KonnectConfigStore"), "True/Programmed ");
    assert_eq!(ids(&world, "config-stores"), [id(&world, "KonnectConfigStore", "o")]);
    let posts = world.requests().iter().filter(|request| request.starts_with("POST")).count();
    assert_eq!(posts, 1);
}

#[test]
fn a_config_store_is_found_beside_more_than_a_page_of_others() {
    let world = World::with_control_plane();
    for at in 0..100 {
        change(&world, json!({"put": "config-stores", "entity": {"name": format!("s{at}")}}));
    }
    world.faults(json!([{"method": "POST", "path": "config-stores", "drop": true, "act": true}]));
    world.apply(&store());
    world.advance(5);
    assert_eq!(programmed(&world, "KonnectConfigStore"), "True/Programmed ");
    let all = ids(&world, "config-stores");
    assert_eq!(all.len(), 101);
    assert_eq!(all[100], id(&world, "KonnectConfigStore", "o"));
}

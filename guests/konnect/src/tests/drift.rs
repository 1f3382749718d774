//! The period: each entity is sent once in it, whatever Konnect has; and what a start of the host
//! sends.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::fixture::{World, in_cp, object, service};
use crate::kind;

const PERIOD: u32 = 600;
const ENTITIES: usize = 60;

/// Returns a world with services that are all there, an hour before the next step.
fn with_services() -> World {
    let world = World::with_period(PERIOD);
    for at in 0..ENTITIES {
        world.apply(&service(&format!("s{at}")));
    }
    world.settle();
    assert_eq!(world.fake.lock().entities("services").len(), ENTITIES);
    world.requests();
    world
}

/// Returns the requests of a time, by their path, each with its seconds.
fn writes(world: &World, time: Duration) -> BTreeMap<String, Vec<u64>> {
    let (from, start) = (world.fake.lock().requests(), world.now());
    world.settle_for(time);
    let fake = world.fake.lock();
    let mut writes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for entry in fake.log(from).filter(|entry| entry.path.contains("services")) {
        let request = format!("{} {}", entry.method, entry.path);
        writes.entry(request).or_default().push((entry.at - start) / 1_000);
    }
    writes
}

/// Asserts a PUT for each entity (two for one that is sent at both ends of the time), and no more
/// than `most` in a tenth of the period.
fn assert_spread(writes: &BTreeMap<String, Vec<u64>>, most: usize) {
    assert_eq!(writes.len(), ENTITIES, "{writes:?}");
    let mut tenths = [0; 10];
    for (request, at) in writes {
        assert!(request.starts_with("PUT ") && at.len() <= 2, "{request} {at:?}");
        tenths[usize::try_from(at[0] * 10 / u64::from(PERIOD)).unwrap().min(9)] += 1;
    }
    assert!(tenths.iter().all(|count| *count <= most), "{tenths:?}");
}

#[test]
fn a_start_of_the_host_creates_nothing_and_spreads_the_first_updates() {
    let mut world = with_services();
    world.stub.advance(Duration::from_hours(1));
    world.start_host();
    // Entities that the uid puts at this moment are sent now: one in 300.
    let first = world.requests();
    assert!(first.len() < 10, "no burst: {first:?}");
    assert!(!first.iter().any(|request| request.starts_with("POST")), "{first:?}");
    assert_spread(&writes(&world, Duration::from_secs(u64::from(PERIOD) + 20)), ENTITIES / 3);
}

/// A change in Konnect, and whether the entity keeps its ID.
struct Drift {
    collection: &'static str,
    object: Value,
    keeps_id: bool,
}

fn drifts() -> Vec<Drift> {
    let of = |collection, object| Drift { collection, object, keeps_id: true };
    let route = json!({"name": "o", "paths": ["/"], "serviceRef": {"type": "namespacedRef", "namespacedRef": {"name": "parent"}}});
    let mut consumer = in_cp("KongConsumer", "o", json!({}));
    consumer["username"] = "o".into();
    let store = json!({"apiSpec": {"name": "o"}, "controlPlaneRef": {"type": "namespacedRef", "namespacedRef": {"name": "cp"}}});
    let of_native = |object| Drift { collection: "config-stores", object, keeps_id: false };
    vec![
        of("services", service("o")),
        of("services", in_cp("KongService", "o", json!({"host": "h"}))),
        of("routes", object("KongRoute", "o", json!({"spec": route}))),
        of("consumers", consumer),
        of("ca_certificates", in_cp("KongCACertificate", "o", json!({"cert": "c"}))),
        of("key-sets", in_cp("KongKeySet", "o", json!({"name": "o"}))),
        of_native(object("KonnectConfigStore", "o", json!({"spec": store}))),
    ]
}

fn id_of(world: &World, object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    let stored = world.get(kind, "o").unwrap();
    kind::find(kind).unwrap().id(&stored, "id").unwrap().to_owned()
}

fn entity(world: &World, collection: &str, id: &str) -> Option<Value> {
    world.fake.lock().entities(collection).into_iter().find(|entity| entity["id"] == id)
}

#[test]
fn an_edited_or_deleted_entity_is_put_right_within_a_period() {
    for Drift { collection, object, keeps_id } in drifts() {
        let world = World::with_period(PERIOD);
        for object in [&service("parent"), &object] {
            world.apply(object);
            world.settle();
        }
        let id = id_of(&world, &object);
        let made = entity(&world, collection, &id).unwrap();
        world.change(json!({"edit": collection, "name": id, "set": {"tags": ["edited"]}}));
        world.settle_for(Duration::from_secs(u64::from(PERIOD) + 1));
        let found = entity(&world, collection, &id).unwrap();
        assert_eq!(found.get("tags"), made.get("tags"), "{collection}");
        world.change(json!({"remove": collection, "name": id}));
        world.settle_for(Duration::from_secs(u64::from(PERIOD) + 1));
        let now = id_of(&world, &object);
        assert!(entity(&world, collection, &now).is_some(), "{collection}");
        assert_eq!(now == id, keeps_id, "{collection}: {now}");
    }
}

#[test]
fn a_deleted_control_plane_is_made_again_with_all_that_was_in_it() {
    let world = World::with_period(PERIOD);
    let data_plane = in_cp("KongDataPlaneClientCertificate", "o", json!({"cert": "c"}));
    let route = json!({"name": "o", "paths": ["/"], "serviceRef": {"type": "namespacedRef", "namespacedRef": {"name": "o"}}});
    let objects = [
        ("services", service("o"), true),
        ("routes", object("KongRoute", "o", json!({"spec": route})), true),
        ("ca_certificates", in_cp("KongCACertificate", "o", json!({"cert": "c"})), true),
        ("dp-client-certificates", data_plane, false),
    ];
    for (_, object, _) in &objects {
        world.apply(object);
        world.settle();
    }
    let before: Vec<String> = objects.iter().map(|(_, object, _)| id_of(&world, object)).collect();
    world.change(json!({"removeControlPlane": "cp"}));
    // An entity that comes before the one that it refers to is tried again with pauses of seconds.
    world.settle_for(Duration::from_secs(u64::from(PERIOD) + 20));
    let stored = world.get("KonnectGatewayControlPlane", "cp").unwrap();
    assert_eq!(world.fake.lock().entities("control-planes")[0]["id"], stored["status"]["id"]);
    for ((collection, object, keeps_id), id) in objects.iter().zip(before) {
        let now = id_of(&world, object);
        assert!(entity(&world, collection, &now).is_some(), "{collection}");
        assert_eq!(now == id, *keeps_id, "{collection}");
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(world.condition(kind, "o", "Programmed"), "True/Programmed ");
    }
}

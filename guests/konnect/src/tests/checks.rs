//! The twelve checks of behaviour 14.6. Those of the life of one entity are in `life`.

use serde_json::{Value, json};

use super::fixture::{World, auth, control_plane, in_cp, object, service};

fn route() -> Value {
    let service = json!({"type": "namespacedRef", "namespacedRef": {"name": "svc"}});
    object(
        "KongRoute",
        "rt",
        json!({"spec": {"name": "rt", "paths": ["/x"], "serviceRef": service}}),
    )
}

fn posts(world: &World) -> usize {
    world.requests().iter().filter(|request| request.starts_with("POST")).count()
}

#[test]
fn c1_service_and_route_converge_in_either_order_with_one_creation_each() {
    let cases = [[service("svc"), route()], [route(), service("svc")]];
    for objects in cases {
        let world = World::with_control_plane();
        for object in &objects {
            world.apply(object);
            world.settle();
        }
        assert_eq!(posts(&world), 2);
        assert_eq!(world.condition("KongRoute", "rt", "Programmed"), "True/Programmed ");
        let stored = world.fake.lock();
        assert_eq!(
            stored.entities("routes")[0]["service"]["id"],
            stored.entities("services")[0]["id"]
        );
    }
}

#[test]
fn c2_tags_name_the_object() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    let uid = world.get("KongService", "svc").unwrap()["metadata"]["uid"].clone();
    let tags = world.fake.lock().entities("services")[0]["tags"].clone();
    for tag in [
        format!("k8s-uid:{}", uid.as_str().unwrap()),
        "k8s-name:svc".to_owned(),
        "managed-by:kong-operator".to_owned(),
    ] {
        assert!(tags.as_array().unwrap().contains(&json!(tag)), "{tag}: {tags}");
    }
}

#[test]
fn c4_an_edit_in_konnect_is_overwritten_within_a_period() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.change(json!({"edit": "services", "name": "svc", "set": {"host": "edited.example"}}));
    world.settle_for(std::time::Duration::from_secs(3_602));
    assert_eq!(world.fake.lock().entities("services")[0]["host"], "example.com");
}

#[test]
fn c9_a_rotated_token_is_used_by_the_next_call() {
    let world = World::new(&json!({"syncPeriodSeconds": 3600}));
    let labels = json!({"konghq.com/credential": "konnect", "konghq.com/secret": "true"});
    world.apply(&object(
        "Secret",
        "tok",
        json!({"metadata": {"labels": labels}, "stringData": {"token": "kpat_t"}}),
    ));
    let spec = json!({"type": "secretRef", "secretRef": {"name": "tok"}, "serverURL": "eu.api.konghq.com"});
    world.apply(&object("KonnectAPIAuthConfiguration", "auth", json!({"spec": spec})));
    world.apply(&control_plane());
    world.settle();
    assert_eq!(
        world.condition("KonnectAPIAuthConfiguration", "auth", "APIAuthValid"),
        "True/Valid Token from Secret ns/tok is valid"
    );
    world.patch("Secret", "tok", json!({"stringData": {"token": "kpat_t.2"}}));
    world.settle();
    world.apply(&service("svc"));
    world.settle();
    let fake = world.fake.lock();
    let last = fake.log(0).last().unwrap();
    assert_eq!((last.method.as_str(), last.token.as_deref()), ("POST", Some("kpat_t.2")));
}

#[test]
fn c10_a_secret_that_does_not_serve_is_named() {
    let (secret, token) = (("konghq.com/secret", "true"), ("konghq.com/credential", "konnect"));
    let cases = [
        (
            vec![secret],
            json!({"token": "kpat_t"}),
            "secret ns/tok does not have label konghq.com/credential: konnect",
        ),
        (
            vec![token],
            json!({"token": "kpat_t"}),
            "failed to get Secret ns/tok: Secret \"tok\" not found",
        ),
        (vec![secret, token], json!({"tokn": "kpat_t"}), "secret ns/tok does not have key token"),
        (vec![secret, token], json!({"token": ""}), "secret ns/tok does not have key token"),
    ];
    for (labels, data, expected) in cases {
        let world = World::new(&json!({}));
        let labels: serde_json::Map<String, Value> =
            labels.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        world.apply(&object(
            "Secret",
            "tok",
            json!({"metadata": {"labels": labels}, "stringData": data}),
        ));
        let spec = json!({"type": "secretRef", "secretRef": {"name": "tok"}, "serverURL": "eu.api.konghq.com"});
        world.apply(&object("KonnectAPIAuthConfiguration", "auth", json!({"spec": spec})));
        world.settle();
        assert_eq!(
            world.condition("KonnectAPIAuthConfiguration", "auth", "APIAuthValid"),
            format!("False/Invalid {expected}")
        );
        assert_eq!(world.fake.lock().requests(), 0, "{expected}");
    }
}

#[test]
fn c11_equal_names_of_two_clusters_meet_in_a_condition() {
    let world = World::with_control_plane();
    let other = world.beside();
    for object in [auth(), control_plane()] {
        other.apply(&object);
        other.settle();
    }
    let told = other.condition("KonnectGatewayControlPlane", "cp", "Programmed");
    assert!(told.starts_with("False/FailedToCreate {\"status\":409,"), "{told}");
    other.delete("KonnectGatewayControlPlane", "cp");
    other.settle();
    assert_eq!(other.get("KonnectGatewayControlPlane", "cp"), None);
    assert_eq!(world.fake.lock().entities("control-planes").len(), 1, "of the first cluster");
}

#[test]
fn c11_the_name_of_somebody_elses_entity_fails() {
    let world = World::with_control_plane();
    world.change(json!({"put": "services", "entity": {"name": "svc", "host": "foreign.example", "tags": ["k8s-uid:other", "k8s-name:svc"]}}));
    world.apply(&service("svc"));
    world.settle();
    let told = world.condition("KongService", "svc", "Programmed");
    assert!(told.starts_with("False/FailedToCreate trying to find a matching Konnect entity matching the ID failed: KongService svc (matching UID "), "{told}");
    assert_eq!(world.fake.lock().entities("services").len(), 1);
}

#[test]
fn c12_the_groups_of_a_consumer_follow_its_list_both_ways() {
    let world = World::with_control_plane();
    for name in ["g1", "g2"] {
        world.apply(&in_cp("KongConsumerGroup", name, json!({"name": name})));
    }
    let mut consumer = in_cp("KongConsumer", "con", json!({}));
    consumer["username"] = "con".into();
    consumer["consumerGroups"] = json!(["g1", "none"]);
    world.apply(&consumer);
    world.settle();
    assert_eq!(
        world.condition("KongConsumer", "con", "KongConsumerGroupRefsValid"),
        "False/Invalid Invalid ConsumerGroup references: none: NotFound"
    );
    let groups = |world: &World| -> Vec<String> {
        let paths = world.requests();
        let changes = paths.iter().filter(|request| request.contains("/consumer_groups/"));
        changes.map(|request| request.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(groups(&world), ["POST"]);
    world.patch("KongConsumer", "con", json!({"consumerGroups": ["g2"]}));
    world.settle();
    assert_eq!(groups(&world), ["POST", "DELETE"]);
    world.apply(&in_cp("KongConsumerGroup", "none", json!({"name": "none"})));
    world.patch("KongConsumer", "con", json!({"consumerGroups": ["g2", "none"]}));
    world.settle();
    assert_eq!(world.condition("KongConsumer", "con", "KongConsumerGroupRefsValid"), "True/Valid ");
}

#[test]
fn a_token_of_another_organization_rewrites_the_status_without_a_call() {
    let world = World::with_control_plane();
    world.apply(&service("svc"));
    world.settle();
    world.requests();
    let mut other = auth();
    other["spec"]["token"] = "kpat_t.org2".into();
    world.apply(&other);
    world.settle();
    let organization = |kind, name, path| world.get(kind, name).unwrap().pointer(path).cloned();
    let of_auth = organization("KonnectAPIAuthConfiguration", "auth", "/status/organizationID");
    assert_eq!(organization("KongService", "svc", "/status/konnect/organizationID"), of_auth);
    assert_eq!(world.requests().iter().filter(|request| request.contains("services")).count(), 0);
}

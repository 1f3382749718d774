//! Objects that take over entities which are there already.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    fixture::{World, auth, control_plane, in_cp, merge, object, service},
    references::grant,
};

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

/// A kind, its spec beside the control plane, an entity in its collection, and whether they match.
type Pair = (&'static str, Value, &'static str, Value, bool);

fn pairs_of_the_gateway() -> Vec<Pair> {
    let service = |more: Value, is_matching| {
        let spec = json!({"name": "o", "host": "h"});
        let mut entity = spec.clone();
        merge(&mut entity, more);
        ("KongService", spec, "services", entity, is_matching)
    };
    let route = |more: Value, is_matching| {
        let spec = json!({"name": "o", "hosts": ["a", "b"], "headers": {"x": ["1", "2"]}});
        let mut entity = spec.clone();
        merge(&mut entity, more);
        ("KongRoute", spec, "routes", entity, is_matching)
    };
    vec![
        // Other fields, and defaults, do not count.
        service(json!({"retries": 7, "tls_verify": true, "path": "/", "port": 80}), true),
        service(json!({"path": "/x"}), false),
        service(json!({"protocol": "tcp"}), false),
        route(json!({"hosts": ["b", "a"], "headers": {"x": ["2", "1"]}, "strip_path": true}), true),
        route(json!({"hosts": ["a"]}), false),
        route(json!({"paths": ["/y"]}), false),
    ]
}

fn pairs_of_others() -> Vec<Pair> {
    let pem = || json!({"kid": "k", "pem": {"public_key": "p", "private_key": "q"}});
    let key = |held: Value, is_matching| {
        ("KongKey", pem(), "keys", json!({"kid": "k", "pem": held}), is_matching)
    };
    let upstream = |more: Value, is_matching| {
        let mut entity = json!({"name": "o"});
        merge(&mut entity, more);
        ("KongUpstream", json!({"name": "o"}), "upstreams", entity, is_matching)
    };
    let certificate = |more: Value, is_matching| {
        let mut entity = json!({"cert": "c", "key": "k"});
        merge(&mut entity, more);
        let spec = json!({"cert": "c", "key": "k"});
        ("KongCertificate", spec, "certificates", entity, is_matching)
    };
    let vault = |held: u8, is_matching| {
        let spec = json!({"backend": "env", "prefix": "e", "config": {"a": 1}});
        let entity = json!({"name": "env", "prefix": "e", "config": {"a": held}});
        ("KongVault", spec, "vaults", entity, is_matching)
    };
    vec![
        upstream(json!({"algorithm": "round-robin", "use_srv_name": true}), true),
        upstream(json!({"slots": 100}), false),
        certificate(json!({}), true),
        certificate(json!({"cert_alt": "d"}), false),
        key(json!({"public_key": "p"}), true),
        key(json!({"public_key": "p", "private_key": "other"}), false),
        key(json!({"public_key": "other"}), false),
        ("KongKeySet", json!({"name": "o"}), "key-sets", json!({"name": "o", "tags": ["t"]}), true),
        vault(1, true),
        vault(2, false),
    ]
}

#[test]
fn each_kind_has_the_fields_in_which_an_entity_must_match() {
    let pairs = pairs_of_the_gateway().into_iter().chain(pairs_of_others());
    for (kind, spec, collection, mut entity, is_matching) in pairs {
        let world = World::with_control_plane();
        let cp = ("konnect.konghq.com", "KonnectGatewayControlPlane");
        world.apply(&grant("g", "ns", ("configuration.konghq.com", "KongVault", ""), cp));
        entity["id"] = ID.into();
        world.change(json!({"put": collection, "entity": entity}));
        let mut object = with_adopt(in_cp(kind, "o", spec), "match");
        if kind == "KongVault" {
            object["spec"]["controlPlaneRef"]["konnectNamespacedRef"]["namespace"] = "ns".into();
        }
        world.requests();
        world.apply(&object);
        world.settle();
        let expected = if is_matching { "True/Adopted " } else { "False/NotMatch " };
        let told = world.condition(kind, "o", "Adopted");
        assert!(told.starts_with(expected), "{kind}: {entity}: {told}");
        let requests = world.requests();
        assert!(requests.iter().all(|request| request.starts_with("GET")), "{requests:?}");
    }
}

#[test]
fn a_consumer_matches_if_it_is_in_the_same_groups_and_joins_none() {
    let groups = |names: &[&str]| json!({"username": "o", "consumerGroups": names});
    for (names, is_matching) in [(&["g"] as &[&str], false), (&[], true), (&["none"], false)] {
        let world = World::with_control_plane();
        world.apply(&in_cp("KongConsumerGroup", "g", json!({"name": "g"})));
        world.change(json!({"put": "consumers", "entity": {"id": ID, "username": "o"}}));
        world.settle();
        world.requests();
        let mut consumer = with_adopt(in_cp("KongConsumer", "o", json!({})), "match");
        merge(&mut consumer, groups(names));
        world.apply(&consumer);
        world.settle();
        let expected = if is_matching { "True/Adopted " } else { "False/NotMatch " };
        let told = world.condition("KongConsumer", "o", "Adopted");
        assert!(told.starts_with(expected), "{names:?}: {told}");
        let requests = world.requests();
        assert!(requests.iter().all(|request| request.starts_with("GET")), "{requests:?}");
        let asked = requests.iter().any(|request| request.ends_with("/consumer_groups"));
        assert_eq!(asked, names != ["none"], "{requests:?}");
    }
}

#[test]
fn an_entity_that_is_put_right_in_konnect_is_taken_over() {
    let entity = json!({"id": ID, "name": "svc", "host": "other.example"});
    let world = World::with_control_plane();
    world.change(json!({"put": "services", "entity": entity}));
    world.apply(&adopting("match"));
    world.settle();
    let told = |world: &World| world.condition("KongService", "svc", "Adopted");
    assert!(told(&world).starts_with("False/NotMatch "), "{}", told(&world));
    world.change(json!({"edit": "services", "name": "svc", "set": {"host": "example.com"}}));
    world.settle_for(Duration::from_mins(2));
    assert_eq!(told(&world), "True/Adopted ");
}

/// An adoption: what Konnect and the cluster have, and what becomes of it.
struct Row {
    what: &'static str,
    /// The objects before the last one are programmed first; the last one, named `o`, adopts.
    objects: Vec<Value>,
    collection: &'static str,
    /// The entity of the ID. `@collection` stands for the ID of the oldest entity there.
    entity: Value,
    faults: Value,
    /// `Adopted`, and `Programmed` if that has other words; both without what comes after.
    told: [&'static str; 2],
    /// The requests, with `ID` for each other ID than the adopted one.
    requests: &'static [&'static str],
}

impl Row {
    fn new(
        what: &'static str,
        objects: Vec<Value>,
        (collection, entity): (&'static str, Value),
        requests: &'static [&'static str],
    ) -> Self {
        let told = ["True/Adopted ", "True/Programmed "];
        Self { what, objects, collection, entity, faults: json!([]), told, requests }
    }

    fn failing(self, told: [&'static str; 2]) -> Self {
        Self { told, ..self }
    }

    fn check(self) {
        let what = self.what;
        let world = World::with_control_plane();
        let (object, parents) = self.objects.split_last().unwrap();
        for parent in parents {
            world.apply(parent);
            world.settle();
        }
        let mut entity = self.entity;
        entity["id"] = ID.into();
        for (_, value) in entity.as_object_mut().unwrap().iter_mut() {
            let Some(of) = value["id"].as_str().and_then(|id| id.strip_prefix('@')) else {
                continue;
            };
            *value = json!({"id": world.fake.lock().entities(of)[0]["id"]});
        }
        world.change(json!({"put": self.collection, "entity": entity}));
        world.requests();
        world.faults(self.faults);
        world.apply(object);
        world.settle();
        let kind = object["kind"].as_str().unwrap();
        for (condition, told) in ["Adopted", "Programmed"].into_iter().zip(self.told) {
            let found = world.condition(kind, "o", condition);
            assert!(found.starts_with(told), "{what}: {condition} {found}");
        }
        let shorten = |request: &String| {
            let steps = request.split('/').skip(4);
            let steps = steps.map(|step| if step.len() == 36 && step != ID { "ID" } else { step });
            let path = steps.collect::<Vec<_>>().join("/").replace(ID, "ADOPTED");
            format!("{} {}", request.split(' ').next().unwrap(), path.replace("core-entities/", ""))
        };
        let mut requests: Vec<String> = world.requests().iter().map(shorten).collect();
        // One that fails is asked for again, with growing pauses.
        requests.dedup();
        assert_eq!(requests, self.requests, "{what}");
    }
}

fn with_adopt(mut object: Value, mode: &str) -> Value {
    object["spec"]["adopt"] = json!({"from": "konnect", "mode": mode, "konnect": {"id": ID}});
    object
}

fn child(kind: &str, spec: &Value) -> Value {
    with_adopt(object(kind, "o", json!({"spec": spec})), "override")
}

fn consumer() -> Value {
    let mut consumer = in_cp("KongConsumer", "r", json!({}));
    consumer["username"] = "r".into();
    consumer
}

fn upstream() -> Value {
    in_cp("KongUpstream", "r", json!({"name": "r"}))
}

fn target() -> Value {
    child("KongTarget", &json!({"target": "10.0.0.1:80", "upstreamRef": {"name": "r"}}))
}

/// Entities that are found through that of their parent.
fn below_parents() -> Vec<Row> {
    let entity = json!({"target": "10.0.0.2:80", "upstream": {"id": "@upstreams"}});
    let second = in_cp("KongUpstream", "second", json!({"name": "second"}));
    let sni = json!({"name": "h.example", "certificateRef": {"name": "r"}});
    let certificate = in_cp("KongCertificate", "r", json!({"cert": "c", "key": "k"}));
    let key = json!({"key": "k", "consumerRef": {"name": "r"}});
    vec![
        Row::new(
            "a target",
            vec![upstream(), target()],
            ("targets", entity.clone()),
            &["GET upstreams/ID/targets/ADOPTED", "PUT upstreams/ID/targets/ADOPTED"],
        ),
        Row::new(
            "a target of another upstream",
            vec![second, upstream(), target()],
            ("targets", entity),
            &["GET upstreams/ID/targets/ADOPTED"],
        )
        .failing(["False/FetchFailed ", "False/FailedToAdopt "]),
        Row::new(
            "an SNI",
            vec![certificate, child("KongSNI", &sni)],
            ("snis", json!({"name": "old.example", "certificate": {"id": "@certificates"}})),
            &["GET certificates/ID/snis/ADOPTED", "PUT certificates/ID/snis/ADOPTED"],
        ),
        Row::new(
            "a credential",
            vec![consumer(), child("KongCredentialAPIKey", &key)],
            ("key-auth", json!({"key": "old", "consumer": {"id": "@consumers"}})),
            &["GET consumers/ID/key-auth/ADOPTED", "PUT consumers/ID/key-auth/ADOPTED"],
        ),
    ]
}

/// Routes that have another service than the entity, or of which one has none. That is told even if
/// the entity has the mark of another object.
fn routes() -> Vec<Row> {
    let to = json!({"type": "namespacedRef", "namespacedRef": {"name": "svc"}});
    let spec = json!({"name": "o", "paths": ["/x"]});
    let alone = in_cp("KongRoute", "o", spec.clone());
    let mut bound = object("KongRoute", "o", json!({"spec": spec}));
    bound["spec"]["serviceRef"] = to;
    let of_other = json!({"id": "@services"});
    let cases = [
        (
            "of another service",
            &bound,
            &of_other,
            "False/FailedToAdopt failed to adopt: reference service ID does not match",
        ),
        (
            "with a service, in Konnect without",
            &bound,
            &Value::Null,
            "False/FailedToAdopt failed to adopt: existing route does not have service reference",
        ),
        (
            "without a service, in Konnect with one",
            &alone,
            &of_other,
            "False/FailedToAdopt failed to adopt: KongRoute has no service reference but existing route \
             has service reference",
        ),
    ];
    let row = |(what, route, of, told): (&'static str, &Value, &Value, &'static str)| {
        let entity =
            json!({"name": "o", "paths": ["/x"], "service": of, "tags": ["k8s-uid:somebody"]});
        let route = with_adopt(route.clone(), "override");
        let objects = vec![service("other"), service("svc"), route];
        Row::new(what, objects, ("routes", entity), &["GET routes/ADOPTED"]).failing([told; 2])
    };
    cases.map(row).into()
}

fn others() -> Vec<Row> {
    let data_plane = |cert: &str, mode: &str| {
        let object = in_cp("KongDataPlaneClientCertificate", "o", json!({"cert": cert}));
        (vec![with_adopt(object, mode)], ("dp-client-certificates", json!({"cert": "c"})))
    };
    let adopting =
        with_adopt(in_cp("KongService", "o", json!({"name": "o", "host": "h"})), "override");
    let refused =
        json!([{"method": "PUT", "path": "/services/", "status": 400, "body": {"code": 3}}]);
    let (fitting, certificate) = data_plane("c", "match");
    let (unfit, other) = data_plane("d", "match");
    vec![
        Row {
            faults: refused,
            ..Row::new(
                "an entity that is not taken as the object has it",
                vec![adopting],
                ("services", json!({"name": "old", "host": "h"})),
                &["GET services/ADOPTED", "PUT services/ADOPTED"],
            )
        }
        .failing([
            "False/FailedToAdopt API error occurred: Status 400",
            "False/FailedToAdopt API error occurred: Status 400",
        ]),
        Row::new(
            "a certificate of data planes",
            fitting,
            certificate,
            &["GET dp-client-certificates/ADOPTED"],
        ),
        Row::new(
            "a certificate of data planes that differs",
            unfit,
            other,
            &["GET dp-client-certificates/ADOPTED"],
        )
        .failing(["False/NotMatch ", "False/FailedToAdopt "]),
    ]
}

#[test]
fn entities_are_taken_over_where_they_belong() {
    below_parents().into_iter().chain(routes()).chain(others()).for_each(Row::check);
}

#[test]
fn an_adoption_that_is_not_answered_fails_as_one_that_is_refused() {
    for (method, adopted) in [("GET", "FetchFailed"), ("PUT", "FailedToAdopt")] {
        let world = World::with_control_plane();
        let entity = json!({"id": ID, "name": "old", "host": "h"});
        world.change(json!({"put": "services", "entity": entity}));
        world.faults(json!([{"method": method, "path": "/services/", "drop": true}]));
        world.apply(&adopting("override"));
        world.pass();
        for (of, reason) in [("Adopted", adopted), ("Programmed", "FailedToAdopt")] {
            let told = world.condition("KongService", "svc", of);
            assert!(told.starts_with(&format!("False/{reason} ")), "{method}: {of}: {told}");
        }
        world.settle();
        assert_eq!(world.condition("KongService", "svc", "Adopted"), "True/Adopted ");
    }
}

#[test]
fn without_the_id_of_a_parent_nothing_is_adopted_or_asked_for() {
    let of_upstream = "can't adopt KongTarget ns/o without a Konnect Upstream ID";
    let of_plane = "can't adopt KongService ns/o without a Konnect ControlPlane ID";
    let service = with_adopt(service("o"), "override");
    let cases = [
        ("/upstreams$", vec![upstream(), target()], of_upstream),
        ("control-planes$", vec![service], of_plane),
    ];
    for (path, objects, message) in cases {
        let world = World::new(&json!({}));
        world.faults(json!([{"method": "POST", "path": path, "status": 400, "times": -1}]));
        for object in [&auth(), &control_plane()].into_iter().chain(&objects) {
            world.requests();
            world.apply(object);
            world.settle();
        }
        let kind = objects.last().unwrap()["kind"].as_str().unwrap();
        for condition in ["Adopted", "Programmed"] {
            let told = world.condition(kind, "o", condition);
            assert_eq!(told, format!("False/FailedToAdopt {message}"), "{kind}: {condition}");
        }
        assert_eq!(world.requests(), [""; 0], "{kind}");
    }
}

//! Entities of a control plane.

use super::*;

const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";
const OTHER_ID: &str = "bbbbbbbb-1111-4111-8111-111111111111";

#[test]
fn an_entity_is_shown_with_its_defaults() {
    let mut caller = Caller::new();
    let (status, body) = caller.post(
        "/core-entities/services",
        &json!({"name": "s", "host": "h.example", "retries": 7, "path": null, "tags": ["t"]}),
    );
    assert_eq!(status, 201);
    let id = body["id"].as_str().unwrap().to_owned();
    assert_eq!(
        body,
        json!({"id": id, "name": "s", "host": "h.example", "retries": 7, "tags": ["t"],
            "port": 80, "protocol": "http", "connect_timeout": 60000, "read_timeout": 60000,
            "write_timeout": 60000, "enabled": true,
            "created_at": 1_700_000_000, "updated_at": 1_700_000_000})
    );
    assert_eq!(caller.get(&format!("/core-entities/services/{id}")), (200, body));
    let minted = caller.konnect.minted(&id).unwrap();
    assert_eq!((minted.collection.as_str(), minted.number), ("services", 1));
    assert!(uuid::Uuid::try_parse(&id).is_ok());
}

#[test]
fn a_put_creates_under_the_id_and_replaces_wholly() {
    let mut caller = Caller::new();
    let path = format!("/core-entities/services/{ID}");
    let (status, body) = caller.put(&path, &json!({"host": "one.example", "path": "/p"}));
    assert_eq!((status, &body["id"]), (200, &json!(ID)));
    let (_, body) = caller.put(&path, &json!({"host": "two.example"}));
    assert_eq!((&body["host"], &body["path"]), (&json!("two.example"), &Value::Null));
    assert_eq!(caller.ids("/core-entities/services"), [ID]);
    assert!(caller.konnect.minted(ID).is_none());
    let (status, _) = caller.put("/core-entities/services/x", &json!({"host": "h"}));
    assert_eq!(status, 400, "an id that is no UUID");
    let other = json!({"host": "h", "id": OTHER_ID});
    assert_eq!(caller.put(&path, &other).0, 400, "another id in the body");
}

#[test]
fn a_post_may_bring_an_id_once() {
    let mut caller = Caller::new();
    let body = json!({"host": "h.example", "id": ID});
    assert_eq!(caller.create("/core-entities/services", &body), ID);
    assert_eq!(caller.post("/core-entities/services", &body), clash("id"));
}

#[test]
fn unique_values_occur_once_in_a_control_plane() {
    let mut caller = Caller::new();
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "one"}));
    let second = caller.create("/core-entities/consumers", &json!({"username": "two"}));
    let upstream = caller.create("/core-entities/upstreams", &json!({"name": "up"}));
    let pair = json!({"cert": "c", "key": "k"});
    let certificate = caller.create("/core-entities/certificates", &pair);
    let set = caller.create("/core-entities/key-sets", &json!({"name": "set"}));
    let of = |consumer: &str, kind: &str| format!("consumers/{consumer}/{kind}");
    let set = json!({"id": set});
    let cases = [
        ("services".into(), json!({"name": "n", "host": "h"}), "name"),
        ("routes".into(), json!({"name": "n", "paths": ["/"]}), "name"),
        ("upstreams".into(), json!({"name": "n"}), "name"),
        ("consumers".into(), json!({"username": "n"}), "username"),
        ("consumers".into(), json!({"username": "", "custom_id": "n"}), "custom_id"),
        ("consumer_groups".into(), json!({"name": "n"}), "name"),
        ("keys".into(), json!({"name": "n", "kid": "k", "jwk": "{}"}), "name"),
        ("keys".into(), json!({"kid": "n", "jwk": "{}"}), "kid"),
        ("keys".into(), json!({"kid": "n", "jwk": "{}", "set": set}), "kid"),
        ("key-sets".into(), json!({"name": "n"}), "name"),
        (format!("certificates/{certificate}/snis"), json!({"name": "n"}), "name"),
        ("vaults".into(), json!({"name": "env", "prefix": "n"}), "prefix"),
        ("plugins".into(), json!({"name": "cors"}), ""),
        ("plugins".into(), json!({"name": "cors", "consumer": {"id": consumer}}), ""),
        (format!("upstreams/{upstream}/targets"), json!({"target": "h:1"}), "target"),
        (of(&consumer, "key-auth"), json!({"key": "n"}), "key"),
        (of(&consumer, "jwt"), json!({"key": "n"}), "key"),
        (of(&consumer, "basic-auth"), json!({"username": "n", "password": "p"}), "username"),
        (of(&consumer, "hmac-auth"), json!({"username": "n"}), "username"),
    ];
    for (path, body, field) in cases {
        let path = format!("/core-entities/{path}");
        let id = caller.create(&path, &body);
        assert_eq!(caller.post(&path, &body), clash(field), "{path}");
        assert_eq!(caller.put(&format!("{path}/{OTHER_ID}"), &body), clash(field), "{path}");
        assert_eq!(caller.put(&format!("{path}/{id}"), &body).0, 200, "{path}: its own value");
    }
    let key = json!({"key": "n"});
    let other = format!("/core-entities/{}", of(&second, "key-auth"));
    assert_eq!(caller.post(&other, &key), clash("key"), "of another consumer");
    let path = "/core-entities/consumers";
    caller.create(path, &json!({"username": "", "custom_id": "m"}));
}

#[test]
fn equal_values_are_free_elsewhere() {
    let mut caller = Caller::new();
    let upstreams = ["one", "two"]
        .map(|name| caller.create("/core-entities/upstreams", &json!({"name": name})));
    for upstream in upstreams {
        let path = format!("/core-entities/upstreams/{upstream}/targets");
        caller.create(&path, &json!({"target": "h:1"}));
    }
    let pair = json!({"cert": "c", "key": "k"});
    for _ in 0..2 {
        caller.create("/core-entities/certificates", &pair);
        caller.create("/dp-client-certificates", &json!({"cert": "c"}));
    }
    caller.create("/core-entities/services", &json!({"name": "n", "host": "h"}));
    caller.plane = caller.create("/v2/control-planes", &json!({"name": "other"}));
    caller.create("/core-entities/services", &json!({"name": "n", "host": "h"}));
}

#[test]
fn references_must_be_there() {
    let mut caller = Caller::new();
    let missing = json!({"id": ID});
    let cases = [
        ("routes", json!({"paths": ["/"], "service": missing}), "service.id", "service"),
        (
            "services",
            json!({"host": "h", "client_certificate": missing}),
            "client_certificate.id",
            "certificate",
        ),
        (
            "services",
            json!({"host": "h", "ca_certificates": [ID]}),
            "ca_certificates.id",
            "ca_certificate",
        ),
        ("plugins", json!({"name": "cors", "route": missing}), "route.id", "route"),
        ("keys", json!({"kid": "k", "jwk": "{}", "set": missing}), "set.id", "key-set"),
        (
            "vaults",
            json!({"name": "konnect", "prefix": "v", "config": {"config_store_id": ID}}),
            "config.config_store_id",
            "config-store",
        ),
    ];
    for (collection, body, field, singular) in cases {
        let detail = format!("no such {singular}");
        let expected = refused("validation error", "ERROR_TYPE_REFERENCE", field, &detail);
        let got = caller.post(&format!("/core-entities/{collection}"), &body);
        assert_eq!(got, (400, expected), "{collection}");
    }
}

#[test]
fn required_fields_must_be_there() {
    let mut caller = Caller::new();
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "c"}));
    let cases = [
        ("services".to_owned(), "host"),
        ("routes".to_owned(), "paths"),
        ("consumers".to_owned(), "username"),
        ("certificates".to_owned(), "cert"),
        ("keys".to_owned(), "kid"),
        ("vaults".to_owned(), "name"),
        (format!("consumers/{consumer}/acls"), "group"),
    ];
    for (collection, field) in cases {
        let detail = "required field missing";
        let expected = refused("validation error", "ERROR_TYPE_FIELD", field, detail);
        let got = caller.post(&format!("/core-entities/{collection}"), &json!({}));
        assert_eq!(got, (400, expected), "{collection}");
    }
    let tags = json!({"host": "h", "tags": "t"});
    assert_eq!(caller.post("/core-entities/services", &tags).0, 400);
    assert_eq!(caller.post("/core-entities/services", &json!([])).0, 400);
    assert_eq!(caller.post("/core-entities/services", &Value::Null).0, 400);
}

#[test]
fn a_service_that_a_route_names_is_not_deleted() {
    let mut caller = Caller::new();
    let service = caller.create("/core-entities/services", &json!({"host": "h"}));
    let body = json!({"paths": ["/"], "service": {"id": service}});
    let route = caller.create("/core-entities/routes", &body);
    let path = format!("/core-entities/services/{service}");
    let detail = "constraint failed (type: foreign) as route references this value";
    let expected = refused("data constraint error", "ERROR_TYPE_REFERENCE", "", detail);
    assert_eq!(caller.send("DELETE", &path, &Value::Null), (400, expected));
    assert_eq!(caller.delete(&format!("/core-entities/routes/{route}")), 204);
    assert_eq!(caller.delete(&path), 204);
}

#[test]
fn a_deletion_takes_along_what_hangs_on_the_entity() {
    let mut caller = Caller::new();
    let service = caller.create("/core-entities/services", &json!({"host": "h"}));
    let route = caller.create("/core-entities/routes", &json!({"paths": ["/"]}));
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "c"}));
    let group = caller.create("/core-entities/consumer_groups", &json!({"name": "g"}));
    let upstream = caller.create("/core-entities/upstreams", &json!({"name": "u"}));
    let pair = json!({"cert": "c", "key": "k"});
    let certificate = caller.create("/core-entities/certificates", &pair);
    let set = caller.create("/core-entities/key-sets", &json!({"name": "s"}));
    let plugin = |field: &str, id: &str| {
        ("plugins".to_owned(), json!({"name": format!("of-{field}"), field: {"id": id}}))
    };
    let cases = [
        ("services", &service, plugin("service", &service)),
        ("routes", &route, plugin("route", &route)),
        ("consumer_groups", &group, plugin("consumer_group", &group)),
        ("upstreams", &upstream, (format!("upstreams/{upstream}/targets"), json!({"target": "h"}))),
        (
            "certificates",
            &certificate,
            (format!("certificates/{certificate}/snis"), json!({"name": "h"})),
        ),
        (
            "key-sets",
            &set,
            ("keys".to_owned(), json!({"kid": "k", "jwk": "{}", "set": {"id": set}})),
        ),
        ("consumers", &consumer, (format!("consumers/{consumer}/acls"), json!({"group": "g"}))),
    ];
    for (collection, id, (path, body)) in cases {
        caller.create(&format!("/core-entities/{path}"), &body);
        let child = path.rsplit('/').next().unwrap();
        assert_eq!(caller.konnect.entities(child).len(), 1, "{child}");
        assert_eq!(caller.delete(&format!("/core-entities/{collection}/{id}")), 204);
        assert_eq!(caller.konnect.entities(child), Vec::<Value>::new(), "{child}");
    }
}

#[test]
fn unknown_entities_are_not_found() {
    let mut caller = Caller::new();
    let path = format!("/core-entities/services/{ID}");
    assert_eq!(caller.get(&path), not_found());
    assert_eq!(caller.send("DELETE", &path, &Value::Null), not_found());
    let of_none = format!("/core-entities/consumers/{ID}/key-auth");
    assert_eq!(caller.post(&of_none, &json!({"key": "k"})), not_found());
    assert_eq!(caller.get("/core-entities/nothing"), not_found());
    assert_eq!(caller.send("PATCH", &path, &json!({})).0, 405);

    let mut lenient = Caller::with(Config { delete_unknown: 204, ..Config::default() });
    assert_eq!(lenient.delete(&path), 204);
}

#[test]
fn an_entity_is_found_under_its_own_parent_only() {
    let mut caller = Caller::new();
    let [one, two] = ["one", "two"]
        .map(|name| caller.create("/core-entities/consumers", &json!({"username": name})));
    let path = |consumer: &str| format!("/core-entities/consumers/{consumer}/key-auth");
    let id = caller.create(&path(&one), &json!({"key": "k"}));
    let (_, body) = caller.get(&format!("{}/{id}", path(&one)));
    assert_eq!((&body["key"], &body["consumer"]), (&json!("k"), &json!({"id": one})));
    let elsewhere = format!("{}/{id}", path(&two));
    assert_eq!(caller.get(&elsewhere), not_found());
    assert_eq!(caller.put(&elsewhere, &json!({"key": "k"})), not_found());
    assert_eq!(caller.delete(&elsewhere), 404);
    assert_eq!(caller.ids(&path(&one)), [id.as_str()]);
    assert!(caller.ids(&path(&two)).is_empty());
    assert_eq!(caller.ids("/core-entities/key-auths"), [id]);
    assert_eq!(caller.post("/core-entities/key-auths", &json!({"key": "l"})).0, 405);
}

#[test]
fn a_key_that_is_left_out_is_chosen() {
    let mut caller = Caller::new();
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "c"}));
    for kind in ["key-auth", "jwt"] {
        let path = format!("/core-entities/consumers/{consumer}/{kind}");
        let (_, body) = caller.post(&path, &json!({}));
        assert_eq!(body["key"].as_str().map(str::len), Some(32), "{kind}: {body}");
    }
    assert_eq!(caller.konnect.entities("jwt")[0]["algorithm"], "HS256");
}

#[test]
fn consumers_join_and_leave_groups() {
    let mut caller = Caller::new();
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "c"}));
    let group = caller.create("/core-entities/consumer_groups", &json!({"name": "g"}));
    let consumers = format!("/core-entities/consumer_groups/{group}/consumers");
    let groups = format!("/core-entities/consumers/{consumer}/consumer_groups");
    assert_eq!(caller.get(&groups), (200, json!({"data": [], "next": null})));
    let (status, body) = caller.post(&consumers, &json!({"consumer": consumer}));
    assert_eq!(status, 201);
    assert_eq!(body["consumer_group"]["id"], json!(group));
    assert_eq!(body["consumers"][0]["id"], json!(consumer));
    assert_eq!(caller.ids(&groups), [group.as_str()]);
    assert_eq!(caller.ids(&consumers), [consumer.as_str()]);
    assert_eq!(caller.post(&consumers, &json!({"consumer": ID})), not_found());
    assert_eq!(caller.delete(&format!("{consumers}/{consumer}")), 204);
    assert_eq!(caller.delete(&format!("{consumers}/{consumer}")), 404);
    caller.post(&consumers, &json!({"consumer": "c"}));
    assert_eq!(caller.ids(&consumers), [consumer.as_str()], "by user name");
    assert_eq!(caller.delete(&format!("/core-entities/consumer_groups/{group}")), 204);
    assert!(caller.ids(&groups).is_empty(), "the group is gone");
}

#[test]
fn certificates_of_data_planes_have_a_shape_of_their_own() {
    let mut caller = Caller::new();
    let (status, body) = caller.post("/dp-client-certificates", &json!({"cert": "c"}));
    assert_eq!(status, 201);
    let item = &body["item"];
    let id = item["id"].as_str().unwrap();
    let at = 1_700_000_000;
    assert_eq!(*item, json!({"id": id, "cert": "c", "created_at": at, "updated_at": at}));
    let path = format!("/dp-client-certificates/{id}");
    assert_eq!(caller.get(&path), (200, body.clone()));
    let list = json!({"items": [item], "page": {"total_count": 1}});
    assert_eq!(caller.get("/dp-client-certificates"), (200, list));
    assert_eq!(caller.put(&path, &json!({"cert": "d"})).0, 405);
    assert_eq!(caller.delete(&path), 204);
    assert_eq!(caller.delete(&path), 404);
}

#[test]
fn config_stores_are_replaced_but_not_made_by_put() {
    let mut caller = Caller::new();
    let id = caller.create("/config-stores", &json!({"name": "one"}));
    let path = format!("/config-stores/{id}");
    let (status, body) = caller.put(&path, &json!({"name": "two"}));
    assert_eq!((status, &body["name"]), (200, &json!("two")));
    assert_eq!(body["created_at"], "2023-11-14T22:13:20.123Z");
    let (_, list) = caller.get("/config-stores");
    assert_eq!(list, json!({"data": [body], "meta": {"page": {"size": 100, "next": null}}}));
    assert_eq!(caller.delete(&format!("{path}?force=true")), 204);
    let expected = problem(404, "Not Found", "config-store not found");
    assert_eq!(caller.put(&path, &json!({"name": "two"})), expected);
}

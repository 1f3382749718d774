//! Changes behind the caller's back.

use super::*;
use crate::{Change, change::Invalid};

const ID: &str = "aaaaaaaa-1111-4111-8111-111111111111";

fn change(caller: &mut Caller, change: Value) -> Result<(), Invalid> {
    let change: Change = serde_json::from_value(change).unwrap();
    caller.konnect.change(1_700_000_001_000, &change)
}

#[test]
fn entities_are_put_edited_and_removed_by_name() {
    let mut caller = Caller::new();
    let entity = json!({"id": ID, "name": "s", "tags": ["mine"]});
    change(&mut caller, json!({"put": "services", "entity": entity})).unwrap();
    let path = format!("/core-entities/services/{ID}");
    let (_, stored) = caller.get(&path);
    let at = 1_700_000_001;
    let expected = json!({"id": ID, "name": "s", "tags": ["mine"], "created_at": at,
        "updated_at": at});
    assert_eq!(stored, expected, "as it was given");
    assert_eq!(caller.ids("/core-entities/services?tags=mine"), [ID]);
    let body = json!({"name": "s", "host": "h"});
    assert_eq!(caller.post("/core-entities/services", &body), clash("name"));

    let set = json!({"host": "edited.example"});
    change(&mut caller, json!({"edit": "services", "name": "s", "set": set})).unwrap();
    assert_eq!(caller.get(&path).1["host"], "edited.example");
    change(&mut caller, json!({"remove": "services", "name": "s"})).unwrap();
    assert_eq!(caller.get(&path), not_found());
    change(&mut caller, json!({"put": "routes", "entity": {"name": "r"}})).unwrap();
    let id = caller.ids("/core-entities/routes").remove(0);
    assert_eq!(caller.konnect.minted(&id).unwrap().collection, "routes");
}

#[test]
fn entities_of_a_parent_name_it() {
    let mut caller = Caller::new();
    let consumer = caller.create("/core-entities/consumers", &json!({"username": "c"}));
    let entity = json!({"key": "k", "consumer": {"id": consumer}});
    change(&mut caller, json!({"put": "key-auths", "entity": entity})).unwrap();
    let path = format!("/core-entities/consumers/{consumer}/key-auth");
    assert_eq!(caller.ids(&path).len(), 1);
    change(&mut caller, json!({"remove": "key-auth", "name": "k"})).unwrap();
    assert!(caller.ids(&path).is_empty());
}

#[test]
fn control_planes_are_put_and_removed() {
    let mut caller = Caller::new();
    let kic = "CLUSTER_TYPE_K8S_INGRESS_CONTROLLER";
    let plane = json!({"id": ID, "name": "other", "config": {"cluster_type": kic}});
    change(&mut caller, json!({"putControlPlane": plane})).unwrap();
    let (_, shown) = caller.get(&format!("/v2/control-planes/{ID}"));
    assert_eq!((&shown["name"], &shown["config"]["cluster_type"]), (&json!("other"), &json!(kic)));
    let put = json!({"put": "services", "controlPlane": "other", "entity": {"name": "s"}});
    change(&mut caller, put).unwrap();
    assert!(caller.ids("/core-entities/services").is_empty(), "of the first control plane");
    caller.plane = ID.to_owned();
    assert_eq!(caller.ids("/core-entities/services").len(), 1);
    change(&mut caller, json!({"removeControlPlane": "other"})).unwrap();
    assert_eq!(caller.get("/core-entities/services"), not_found());
}

#[test]
fn a_token_names_the_organization() {
    let mut caller = Caller::new();
    let put = json!({"putControlPlane": {"name": "cp"}, "token": "kpat_b"});
    change(&mut caller, put).unwrap();
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
    caller.token = "kpat_b";
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
    let put = json!({"putControlPlane": {"name": "us"}, "host": "us.api.konghq.com"});
    change(&mut caller, put).unwrap();
    (caller.token, caller.host) = ("kpat_a", "us.api.konghq.com");
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let mut caller = Caller::new();
    let not_found =
        |kind: &str, name: &str| Invalid::NotFound { kind: kind.to_owned(), name: name.to_owned() };
    let cases = [
        (json!({}), Invalid::Operation),
        (json!({"revoke": "t", "restore": "t"}), Invalid::Operation),
        (json!({"put": "services"}), Invalid::Missing("entity")),
        (json!({"remove": "services"}), Invalid::Missing("name")),
        (
            json!({"edit": "control-planes", "name": "s"}),
            Invalid::Collection("control-planes".into()),
        ),
        (json!({"put": "x", "entity": {}}), Invalid::Collection("x".to_owned())),
        (json!({"put": "services", "entity": {"id": "x"}}), Invalid::Id),
        (json!({"remove": "services", "name": "s"}), not_found("service", "s")),
        (json!({"removeControlPlane": "x"}), not_found("control plane", "x")),
        (json!({"putControlPlane": {}, "token": "x.bad"}), Invalid::Organization),
    ];
    for (of, expected) in cases {
        assert_eq!(change(&mut caller, of.clone()), Err(expected), "{of}");
    }
    caller.create("/core-entities/services", &json!({"name": "s", "host": "h"}));
    let edit = json!({"edit": "services", "name": "s"});
    assert_eq!(change(&mut caller, edit), Err(Invalid::Missing("set")));
    assert!(serde_json::from_value::<Change>(json!({"delete": "x"})).is_err());
}

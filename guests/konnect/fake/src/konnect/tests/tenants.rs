//! Tokens, organizations and bounds.

use std::collections::BTreeMap;

use super::*;
use crate::{Change, Tokens};

#[test]
fn unknown_tokens_are_refused_in_the_shape_of_the_path() {
    let mut caller = Caller::new();
    caller.token = "kpat_a.bad";
    let expected = problem(401, "Unauthorized", "Invalid credentials");
    assert_eq!(caller.get("/v3/organizations/me"), expected);
    assert_eq!(caller.get("/v2/control-planes"), expected);
    let reply = caller.reply("GET", "/v2/control-planes", &Value::Null);
    let answer = reply.answer().unwrap();
    assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
    let expected = (401, json!({"message": "Unauthorized", "status": 401}));
    assert_eq!(caller.get("/core-entities/services"), expected);
    assert_eq!(caller.get("/dp-client-certificates"), expected);
    caller.token = "";
    assert_eq!(caller.get("/core-entities/services"), expected);
}

#[test]
fn tokens_belong_to_organizations() {
    let mut caller = Caller::new();
    let (_, own) = caller.get("/v3/organizations/me");
    let fields: Vec<&String> = own.as_object().unwrap().keys().collect();
    let expected = ["created_at", "id", "login_path", "name", "owner_id", "state", "updated_at"];
    assert_eq!(fields, expected);
    let plane = format!("/v2/control-planes/{}", caller.plane);
    let cases = [("kpat_a.2", true, true), ("kpat_a.org2", false, true), ("kpat_b", false, false)];
    for (token, is_same, has_data) in cases {
        caller.token = token;
        let (_, organization) = caller.get("/v3/organizations/me");
        assert_eq!(organization["id"] == own["id"], is_same, "{token}");
        assert_eq!(caller.get(&plane).0 == 200, has_data, "{token}");
        assert!(!organization.to_string().contains("kpat"), "the token is in the organization");
    }
}

#[test]
fn known_tokens_are_the_only_ones() {
    let organizations = [("kpat_a", "o"), ("kpat_c.bad", "o")];
    let known: BTreeMap<String, String> =
        organizations.map(|(token, of)| (token.to_owned(), of.to_owned())).into();
    let mut caller = Caller::with(Config { tokens: Tokens::Known(known), ..Config::default() });
    caller.token = "kpat_c.bad";
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
    caller.token = "kpat_d";
    assert_eq!(caller.get("/v2/control-planes").0, 401);
}

#[test]
fn a_token_is_revoked_and_restored() {
    let mut caller = Caller::new();
    let token = || Some("kpat_a".to_owned());
    caller.konnect.change(0, &Change { revoke: token(), ..Change::default() }).unwrap();
    assert_eq!(caller.get("/v2/control-planes").0, 401);
    caller.konnect.change(0, &Change { restore: token(), ..Change::default() }).unwrap();
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
}

#[test]
fn bodies_entities_and_the_log_are_bounded() {
    let limits = Limits { body: 100, entities: 5, log: 3, faults: 1, ..Limits::default() };
    let mut caller = Caller::with(Config { limits, ..Config::default() });
    let large = json!({"host": "h".repeat(100)});
    assert_eq!(caller.post("/core-entities/services", &large).0, 413);
    // With the organization and the control plane, there are four.
    for name in ["a", "b"] {
        caller.create("/core-entities/services", &json!({"name": name, "host": "h"}));
    }
    let id = caller.create("/core-entities/upstreams", &json!({"name": "u"}));
    assert_eq!(caller.post("/core-entities/upstreams", &json!({"name": "v"})).0, 403);
    assert_eq!(caller.post("/v2/control-planes", &json!({"name": "v"})).0, 403);
    let path = format!("/core-entities/upstreams/{id}");
    assert_eq!(caller.put(&path, &json!({"name": "v"})).0, 200, "nothing is added");
    caller.token = "kpat_b";
    assert_eq!(caller.get("/v3/organizations/me").0, 403, "nothing is added");
    let numbers: Vec<u64> = caller.konnect.log(0).map(|entry| entry.number).collect();
    let count = caller.konnect.requests();
    assert_eq!(numbers, [count - 2, count - 1, count]);
    assert_eq!(caller.konnect.log(count - 1).count(), 1);
}

#[test]
fn bytes_are_bounded() {
    let limits = Limits { bytes: (16 << 10) + 2_000, ..Limits::default() };
    let mut caller = Caller::with(Config { limits, ..Config::default() });
    let body = json!({"host": "h".repeat(900)});
    let id = caller.create("/core-entities/services", &body);
    caller.create("/core-entities/services", &body);
    assert_eq!(caller.post("/core-entities/services", &body).0, 403);
    let path = format!("/core-entities/services/{id}");
    assert_eq!(caller.put(&path, &body).0, 403);
    assert_eq!(caller.delete(&path), 204);
    caller.create("/core-entities/services", &body);
    let large = json!({"name": "n", "description": "d".repeat(16 << 10)});
    assert_eq!(caller.post("/v2/control-planes", &large).0, 413);
}

#[test]
fn bytes_of_the_log_are_bounded() {
    let limits = Limits { bytes: 20_000, ..Limits::default() };
    let mut caller = Caller::with(Config { limits, ..Config::default() });
    let count = (0..20).map(|_| caller.get(&format!("/v2/control-planes?x={}", "y".repeat(9_000))));
    assert_eq!(count.filter(|(status, _)| *status == 200).count(), 20);
    let kept = caller.konnect.log(0).count();
    assert!(kept <= 2, "{kept} entries of 9,000 bytes are kept");
}

#[test]
fn the_log_has_requests_with_their_answers() {
    let mut caller = Caller::new();
    caller.post("/core-entities/services?a=b%20c", &json!({"name": "s"}));
    let entry = caller.konnect.log(1).next().unwrap();
    let answer = entry.answer.as_ref().unwrap();
    assert_eq!((entry.number, entry.at, entry.method.as_str()), (2, 1_700_000_000_123, "POST"));
    assert_eq!((entry.host.as_str(), entry.fault), ("eu.api.konghq.com", false));
    assert_eq!(entry.query, [("a".to_owned(), "b c".to_owned())]);
    assert_eq!(entry.token.as_deref(), Some("kpat_a"));
    assert_eq!(entry.body, Some(json!({"name": "s"})));
    assert_eq!((answer.status, &answer.body.as_ref().unwrap()["code"]), (400, &json!(3)));
}

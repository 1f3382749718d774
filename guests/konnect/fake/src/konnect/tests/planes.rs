//! Control planes.

use super::*;

#[test]
fn a_control_plane_is_shown_with_its_defaults() {
    let mut caller = Caller::new();
    let body = json!({"name": "n", "labels": {"k": "v"}, "auth_type": "pki_client_certs"});
    let (status, body) = caller.post("/v2/control-planes", &body);
    assert_eq!(status, 201);
    let id = body["id"].as_str().unwrap();
    let at = "2023-11-14T22:13:20.123Z";
    let config = json!({
        "control_plane_endpoint": format!("https://{}.eu.cp0.konghq.com", &id[..8]),
        "telemetry_endpoint": format!("https://{}.eu.tp0.konghq.com", &id[..8]),
        "cluster_type": "CLUSTER_TYPE_CONTROL_PLANE", "auth_type": "pki_client_certs",
        "cloud_gateway": false, "proxy_urls": [],
    });
    let expected = json!({"id": id, "name": "n", "description": "", "labels": {"k": "v"},
        "config": config, "created_at": at, "updated_at": at});
    assert_eq!(body, expected);
    assert_eq!(caller.get(&format!("/v2/control-planes/{id}")), (200, expected));
}

#[test]
fn a_patch_changes_what_it_names() {
    let mut caller = Caller::new();
    let path = format!("/v2/control-planes/{}", caller.plane);
    let urls = json!([{"host": "h", "port": 443, "protocol": "https"}]);
    let change = json!({"description": "d", "labels": {"k": "v"}, "proxy_urls": urls});
    let (status, body) = caller.send("PATCH", &path, &change);
    assert_eq!((status, &body["name"], &body["description"]), (200, &json!("cp"), &json!("d")));
    assert_eq!((&body["labels"], &body["config"]["proxy_urls"]), (&json!({"k": "v"}), &urls));
    let (_, body) = caller.send("PATCH", &path, &json!({"name": "renamed"}));
    assert_eq!((&body["name"], &body["labels"]), (&json!("renamed"), &json!({"k": "v"})));
}

#[test]
fn values_that_no_control_plane_has_are_refused() {
    let mut caller = Caller::new();
    let cases = [
        json!({}),
        json!({"name": ""}),
        json!({"name": 1}),
        json!({"name": "n", "cluster_type": "x"}),
        json!({"name": "n", "auth_type": "x"}),
        json!({"name": "n", "labels": {"k": 1}}),
    ];
    for body in cases {
        let (status, answer) = caller.post("/v2/control-planes", &body);
        assert_eq!((status, &answer["title"]), (400, &json!("Bad Request")), "{body}");
    }
}

#[test]
fn a_name_occurs_once_in_an_organization() {
    let mut caller = Caller::new();
    let other = caller.create("/v2/control-planes", &json!({"name": "other"}));
    let (_, organization) = caller.get("/v3/organizations/me");
    let id = organization["id"].as_str().unwrap();
    let detail = format!("Key (org_id, name)=({id}, cp) already exists.");
    let conflict = problem(409, "Conflict", &detail);
    assert_eq!(caller.post("/v2/control-planes", &json!({"name": "cp"})), conflict);
    let path = format!("/v2/control-planes/{other}");
    assert_eq!(caller.send("PATCH", &path, &json!({"name": "cp"})), conflict);
    assert_eq!(caller.send("PATCH", &path, &json!({"name": "other"})).0, 200, "its own");
    caller.token = "kpat_b";
    caller.create("/v2/control-planes", &json!({"name": "cp"}));
}

#[test]
fn a_deletion_takes_along_all_entities() {
    let mut caller = Caller::new();
    caller.create("/core-entities/services", &json!({"name": "s", "host": "h"}));
    caller.create("/dp-client-certificates", &json!({"cert": "c"}));
    let path = format!("/v2/control-planes/{}", caller.plane);
    assert_eq!(caller.delete(&path), 204);
    let missing = problem(404, "Not Found", "control plane not found");
    assert_eq!(caller.send("DELETE", &path, &Value::Null), missing);
    assert_eq!(caller.get("/core-entities/services"), not_found());
    let body = json!({"host": "h"});
    assert_eq!(caller.post("/core-entities/services", &body), not_found());
    assert_eq!(caller.konnect.entities("services"), Vec::<Value>::new());
}

#[test]
fn an_empty_id_is_no_path() {
    let mut caller = Caller::new();
    assert_eq!(caller.get("/v2/control-planes//core-entities/services"), not_found());
}

#[test]
fn some_types_are_read_only() {
    let mut caller = Caller::new();
    let cases = [
        ("CLUSTER_TYPE_K8S_INGRESS_CONTROLLER", "operation not permitted on KIC cluster"),
        ("CLUSTER_TYPE_CONTROL_PLANE_GROUP", "operation not permitted on control plane group"),
    ];
    for (cluster_type, message) in cases {
        let body = json!({"name": cluster_type, "cluster_type": cluster_type});
        caller.plane = caller.create("/v2/control-planes", &body);
        let expected = json!({"code": 7, "message": "usage constraint error", "details": [{
            "@type": "type.googleapis.com/kong.admin.model.v1.ErrorDetail",
            "messages": [message],
        }]});
        let item = "/core-entities/services/aaaaaaaa-1111-4111-8111-111111111111";
        let body = json!({"host": "h"});
        let expected = (403, expected);
        assert_eq!(caller.post("/core-entities/services", &body), expected);
        assert_eq!(caller.put(item, &body), expected);
        assert_eq!(caller.send("DELETE", item, &Value::Null), expected);
        assert_eq!(caller.get("/core-entities/services").0, 200, "reads are free");
        caller.create("/dp-client-certificates", &json!({"cert": "c"}));
    }
}

#[test]
fn a_group_has_members() {
    let mut caller = Caller::new();
    let one = caller.plane.clone();
    let two = caller.create("/v2/control-planes", &json!({"name": "two"}));
    let of = |ids: &[&str]| json!({"members": ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()});
    let members = "/group-memberships";
    assert_eq!(caller.put(members, &of(&[])).0, 400, "it is no group");
    let body = json!({"name": "g", "cluster_type": "CLUSTER_TYPE_CONTROL_PLANE_GROUP"});
    caller.plane = caller.create("/v2/control-planes", &body);
    assert_eq!(caller.put(members, &of(&[&one, &two])), (204, Value::Null));
    assert_eq!(caller.ids(members), [one.as_str(), two.as_str()]);
    assert_eq!(caller.put(members, &of(&[&two])).0, 204);
    assert_eq!(caller.ids(members), [two.as_str()]);
    assert_eq!(caller.put(members, &of(&[&one])).0, 204);
    let group = caller.plane.clone();
    for refused in [of(&["nothing"]), of(&[&group]), json!({}), json!({"members": [1]})] {
        assert_eq!(caller.put(members, &refused).0, 400, "{refused}");
    }
    assert_eq!(caller.delete(&format!("/v2/control-planes/{one}")), 204);
    assert!(caller.ids(members).is_empty(), "a member that is gone");
}

#[test]
fn regions_have_their_own_control_planes() {
    let mut caller = Caller::new();
    caller.host = "us.api.konghq.tech:443";
    assert_eq!(caller.get(&format!("/v2/control-planes/{}", caller.plane.clone())).0, 404);
    let (_, body) = caller.post("/v2/control-planes", &json!({"name": "cp"}));
    let endpoint = body["config"]["control_plane_endpoint"].as_str().unwrap();
    assert!(endpoint.ends_with(".us.cp0.konghq.tech"), "{endpoint}");
    assert_eq!(caller.ids("/v2/control-planes").len(), 1);
}

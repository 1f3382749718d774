use serde_json::{Value, json};

use super::super::definition;

fn read(definition: &str, value: Value) -> (Result<Value, String>, Vec<String>) {
    let mut unknown = Vec::new();
    let read = super::object(definition::find(definition).unwrap(), value, &mut unknown);
    (read.map_err(|wrong| wrong.to_string()), unknown)
}

#[test]
fn values_take_the_form_in_which_kubernetes_answers_them() {
    let cases = [
        (
            "empty maps go, the status shows",
            "api.apps.v1.Deployment",
            json!({"metadata": {"labels": {}}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "replicas": 0, "paused": false}}),
            json!({"metadata": {}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}}}, "status": {}}),
        ),
        (
            "a scale of none is empty",
            "api.autoscaling.v1.Scale",
            json!({"spec": {"replicas": 0}}),
            json!({"metadata": {}, "spec": {}, "status": {"replicas": 0}}),
        ),
        (
            "null is absence, but a value in a map of texts",
            "api.core.v1.ConfigMap",
            json!({"metadata": null, "data": {"a": null}}),
            json!({"metadata": {}, "data": {"a": ""}}),
        ),
        (
            "quantities and times",
            "api.core.v1.ResourceQuota",
            json!({"metadata": {"creationTimestamp": "2024-01-01T02:00:00+02:00"}, "spec": {"hard": {"cpu": "1000m", "pods": 5}}}),
            json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}, "spec": {"hard": {"cpu": "1", "pods": "5"}}, "status": {}}),
        ),
        (
            "rules of a role always show",
            "api.rbac.v1.Role",
            json!({}),
            json!({"metadata": {}, "rules": null}),
        ),
        (
            "rules of a role that are empty are tracked as they were sent",
            "api.rbac.v1.Role",
            json!({"rules": []}),
            json!({"metadata": {}, "rules": []}),
        ),
    ];
    for (case, definition, value, expected) in cases {
        assert_eq!(read(definition, value), (Ok(expected), vec![]), "{case}");
    }
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let value = json!({"metadata": {"name": "a", "bogus": 1}, "data": {"k": "v"}, "extra": {}});
    let (object, unknown) = read("api.core.v1.ConfigMap", value);
    assert_eq!(object, Ok(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})));
    assert_eq!(unknown, ["extra", "metadata.bogus"]);
    let (_, unknown) =
        read("api.core.v1.Pod", json!({"spec": {"containers": [{"name": "a"}, {"nme": "b"}]}}));
    assert_eq!(unknown, ["spec.containers[1].nme"]);
}

#[test]
fn a_value_of_another_type_is_refused() {
    let cases = [
        ("api.core.v1.ConfigMap", json!({"data": {"n": 5}})),
        ("api.core.v1.ConfigMap", json!({"metadata": "x"})),
        ("api.core.v1.ConfigMap", json!([])),
        ("api.core.v1.Secret", json!({"data": {"a": "not base64!"}})),
        ("api.apps.v1.Deployment", json!({"spec": {"replicas": 1.5}})),
        ("api.core.v1.Pod", json!({"metadata": {"creationTimestamp": "today"}})),
    ];
    for (definition, value) in cases {
        assert!(read(definition, value.clone()).0.is_err(), "{value}");
    }
}

#[test]
fn times_are_read_as_go_reads_them() {
    let accepted = [
        ("2019-01-31T09:45:40Z", "2019-01-31T09:45:40Z"),
        ("2019-01-31T09:45:40.123Z", "2019-01-31T09:45:40Z"),
        ("2019-01-31T09:45:40.5+01:00", "2019-01-31T08:45:40Z"),
    ];
    for (text, time) in accepted {
        assert_eq!(super::time(text, false).as_deref(), Some(time), "{text}");
    }
    let refused = [
        ("2019-01-31 09:45:40+00:00", " 09:45:40+00:00", "T"),
        ("2019-01-31t09:45:40Z", "t09:45:40Z", "T"),
        ("2019-01-31T09:45:40z", "z", "Z07:00"),
        ("2019-01-31T09:45Z", "Z", ":"),
        ("2019-01-31T09:45:40", "", "Z07:00"),
        ("2019-01-31T09:45:40+0000", "+0000", "Z07:00"),
        ("2019-01-31", "", "T"),
        ("19-01-31T09:45:40Z", "19-01-31T09:45:40Z", "2006"),
        ("today", "today", "2006"),
        ("", "", "2006"),
    ];
    for (text, rest, part) in refused {
        assert_eq!(super::time(text, false), None, "{text}");
        let value = json!({"metadata": {"creationTimestamp": text}});
        let wrong = read("api.core.v1.ConfigMap", value).0.unwrap_err();
        let reason = format!("cannot parse {rest:?} as {part:?}");
        assert!(wrong.ends_with(&reason), "{text}: {wrong}");
    }
    for text in ["2019-02-30T09:45:40Z", "2019-01-31T24:00:00Z", "2019-01-31T09:45:60Z"] {
        assert_eq!(super::time(text, false), None, "{text}");
    }
}

#[test]
fn stored_an_empty_list_is_none_where_null_stands_for_it() {
    let definition = definition::find("api.rbac.v1.Role").unwrap();
    let mut role = json!({"rules": [], "metadata": {"finalizers": []}});
    super::without_empty_lists(definition, &mut role);
    assert_eq!(role, json!({"rules": null, "metadata": {"finalizers": []}}));
}

#[test]
fn precise_times_have_six_digits() {
    let cases = [
        ("2020-01-01T00:00:00.123456Z", true),
        ("2020-01-01T01:00:00.000000+01:00", true),
        ("2020-01-01T00:00:00Z", false),
        ("2020-01-01T00:00:00.123Z", false),
        ("2020-01-01T00:00:00.1234567Z", false),
        ("x", false),
    ];
    for (text, valid) in cases {
        assert_eq!(super::time(text, true).is_some(), valid, "{text}");
    }
    assert!(super::time("2020-01-01T00:00:00.5Z", false).is_some());
}

#[test]
fn amounts_of_resources_are_rounded_up_to_thousandths() {
    let cases = [("0.1m", "1m"), ("1.0001", "1001m"), ("1n", "1m"), ("2", "2"), ("0.5Gi", "512Mi")];
    for (text, rounded) in cases {
        let object = json!({"spec": {"hard": {"cpu": text}}});
        let kind = definition::find("api.core.v1.ResourceQuota").unwrap();
        let read = super::object(kind, object, &mut Vec::new()).unwrap();
        assert_eq!(read["spec"]["hard"]["cpu"], rounded, "{text}");
    }
}

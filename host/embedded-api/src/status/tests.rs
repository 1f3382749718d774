use super::*;

fn cause(field: &str, message: &str) -> Cause {
    Cause { reason: "FieldValueInvalid".into(), message: message.into(), field: field.into() }
}

#[test]
fn a_failure_names_group_and_object() {
    let status = Failure::not_found(Named::new("example.dev", "widgets", "a")).to_status();
    assert_eq!(status["message"], "widgets.example.dev \"a\" not found");
    assert_eq!(status["details"], json!({"group": "example.dev", "kind": "widgets", "name": "a"}));
    assert_eq!(status["code"], 404);
}

#[test]
fn several_causes_are_listed_once_each() {
    let named = Named::new("", "ConfigMap", "a");
    let one = Failure::invalid(named, vec![cause("data.k", "bad")]);
    assert_eq!(one.message(), "ConfigMap \"a\" is invalid: data.k: bad");
    let two =
        Failure::invalid(named, vec![cause("x", "bad"), cause("x", "bad"), cause("y", "bad")]);
    assert_eq!(two.message(), "ConfigMap \"a\" is invalid: [x: bad, y: bad]");
    assert_eq!(two.to_status()["details"]["causes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn an_empty_reason_and_empty_details_are_left_out_of_a_status() {
    let status = Failure::unclassified("x").to_status();
    assert_eq!(status.get("reason"), None);
    assert_eq!(status.get("details"), None);
    assert_eq!(
        Failure::forbidden(Named::new("", "nodes", ""), "no").message(),
        "nodes is forbidden: no"
    );
}

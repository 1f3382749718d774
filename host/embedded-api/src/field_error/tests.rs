use serde_json::json;

use super::*;

#[test]
fn a_fault_reads_as_kubernetes_writes_it() {
    let cases = [
        (
            FieldError::invalid("spec.x", "ABC", "must be small"),
            "spec.x: Invalid value: \"ABC\": must be small",
        ),
        (FieldError::invalid("spec.x", 0, "too small"), "spec.x: Invalid value: 0: too small"),
        (FieldError::required("spec.a", ""), "spec.a: Required value"),
        (FieldError::required("spec.a", "why"), "spec.a: Required value: why"),
        (
            FieldError::duplicate("spec.m[2]", json!({"p": 1, "n": "<a>"})),
            "spec.m[2]: Duplicate value: {\"n\":\"\\u003ca\\u003e\",\"p\":1}",
        ),
        (
            FieldError::not_supported("s", "c", ["a", "b"]),
            "s: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (FieldError::too_long("spec.len", 4), "spec.len: Too long: may not be more than 4 bytes"),
        (
            FieldError::too_many("spec.items", 3, 2),
            "spec.items: Too many: 3: must have at most 2 items",
        ),
        (
            FieldError::too_many("spec.props", 2, 1),
            "spec.props: Too many: 2: must have at most 1 item",
        ),
        (FieldError::forbidden("a", "no"), "a: Forbidden: no"),
        (FieldError::invalid("a", Value::Null, "no"), "a: Invalid value: \"null\": no"),
        (FieldError::invalid("a", Shown::Raw("null".into()), "no"), "a: Invalid value: null: no"),
        (FieldError::type_invalid("a", "x", "no"), "a: Invalid value: \"x\": no"),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_fault_becomes_a_cause() {
    let cause = Cause::from(FieldError::too_many("spec.items", 3, 2));
    assert_eq!(cause.reason, "FieldValueTooMany");
    assert_eq!(cause.message, "Too many: 3: must have at most 2 items");
    assert_eq!(cause.field, "spec.items");
}

#[test]
fn a_path_shows_fields_items_and_keys() {
    let root = FieldPath::root();
    assert_eq!(root.to_string(), "<nil>");
    let spec = root.child("spec");
    let ports = spec.child("ports");
    let port = ports.index(2);
    let name = port.child("name");
    assert_eq!(name.key("k").to_string(), "spec.ports[2].name[k]");
}

#[test]
fn texts_and_numbers_are_written_as_go_does() {
    let cases =
        [("a\"b\\", r#""a\"b\\""#), ("ä\n\u{0}", r#""ä\n\x00""#), ("\u{a0}", r#""\u00a0""#)];
    for (text, quoted) in cases {
        assert_eq!(go_quote(text), quoted);
    }
    let cases = [
        (0.5, "0.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-07"),
        (0.0, "0"),
    ];
    for (number, text) in cases {
        assert_eq!(go_float(number), text);
    }
}

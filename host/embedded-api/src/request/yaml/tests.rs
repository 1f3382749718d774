use serde_json::json;

use super::*;

fn only(text: &str) -> Value {
    let mut documents = documents(text).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

#[test]
fn numbers_with_a_leading_0_are_octal() {
    let cases = [
        ("0644", json!(420)),
        ("012", json!(10)),
        ("-012", json!(-10)),
        ("+07", json!(7)),
        ("00", json!(0)),
        ("0", json!(0)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        // Digits that are not octal: a float, which is a whole number.
        ("08", json!(8)),
        ("-0899", json!(-899)),
        ("0.5", json!(0.5)),
        ("1e3", json!(1000)),
        ("\"0644\"", json!("0644")),
        ("'012'", json!("012")),
        ("!!str 0644", json!("0644")),
        ("0644a", json!("0644a")),
        ("10.0.0.1", json!("10.0.0.1")),
        ("2026-01-02", json!("2026-01-02")),
    ];
    for (text, value) in cases {
        assert_eq!(only(&format!("v: {text}")), json!({"v": value}), "{text}");
        assert_eq!(only(&format!("[{text}]")), json!([value]), "{text}");
        assert_eq!(first(&format!("v: {text}")).unwrap().0, json!({"v": value}), "{text}");
    }
}

#[test]
fn keys_without_quotes_are_resolved() {
    let cases = [
        ("no", "false"),
        ("y", "true"),
        ("On", "true"),
        ("OFF", "false"),
        ("TRUE", "true"),
        ("0644", "420"),
        ("080", "80"),
        ("1.10", "1.1"),
        ("-1", "-1"),
        ("\"no\"", "no"),
        ("'0644'", "0644"),
        ("yellow", "yellow"),
        ("<", "<"),
        ("\"\"", ""),
    ];
    for (text, key) in cases {
        assert_eq!(only(&format!("{text}: 1")), json!({key: 1}), "{text}");
        assert_eq!(only(&format!("{{{text}: 1}}")), json!({key: 1}), "{text}");
        assert_eq!(first(&format!("a: {{{text}: 1}}")).unwrap().0, json!({"a": {key: 1}}));
    }
    for text in ["~: 1", "null: 1", "? [a]\n: 1"] {
        assert!(documents(text).is_err(), "{text}");
    }
    let (value, duplicates) = first("a: {no: 1, off: 2}").unwrap();
    assert_eq!((value, duplicates), (json!({"a": {"false": 2}}), vec!["a.false".to_owned()]));
}

#[test]
fn anchors_and_merges_are_resolved() {
    let text = "a: &a {no: 010}\nb: *a\nc:\n  <<: *a\n  x: 1\n";
    let inner = json!({"false": 8});
    assert_eq!(only(text), json!({"a": inner, "b": inner, "c": {"false": 8, "x": 1}}));
}

#[test]
fn the_first_document_of_a_request_counts() {
    let cases = [
        "a: 1\n---\nb: 2\n",
        "# text\n---\na: 1\n---\n---\n",
        "a: 1\n...\n---\nb: [\n",
        "{\"a\": 1}\n---\n{\"a\": 2}",
        "--- {a: 1}\n--- text\n",
    ];
    for text in cases {
        assert_eq!(first(text).unwrap().0, json!({"a": 1}), "{text}");
    }
    for text in ["a: [\n---\nb: 1\n", "a: 1\n}\n"] {
        assert!(first(text).is_err(), "{text}");
    }
    assert_eq!(first("").unwrap().0, Value::Null);
}

#[test]
fn fields_of_a_typed_file_are_read_by_the_same_rules() {
    #[derive(Deserialize)]
    struct Step {
        #[serde(deserialize_with = "values")]
        apply: Vec<Value>,
        code: u16,
    }
    let text = "apply:\n- {mode: 0400, no: 1}\ncode: 403\n";
    let step: Step = serde_saphyr::from_str_with_options(text, options()).unwrap();
    assert_eq!((step.apply, step.code), (vec![json!({"mode": 256, "false": 1})], 403));
}

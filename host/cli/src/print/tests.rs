use serde_json::json;

use super::*;

fn state(objects: &[Value]) -> BTreeMap<String, Value> {
    objects.iter().map(|object| (title(object), object.clone())).collect()
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn values_of_secrets_are_masked_unless_asked_for() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations":
        {LAST_APPLIED: "hidden"}}, "data": {"k": "hidden"}, "stringData": {"l": "hidden"}});
    assert!(!printable(&secret, Secrets::Masked).to_string().contains("hidden"));
    assert_eq!(printable(&secret, Secrets::Shown), secret);
    let text = difference(&state(&[]), &state(&[secret]), Secrets::Masked);
    assert!(text.contains(MASK) && !text.contains("hidden"), "{text}");
}

#[test]
fn values_of_secrets_are_masked_in_any_form() {
    for hidden in [json!("hidden"), json!(["hidden"]), json!({"k": {"l": "hidden"}})] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations":
            {LAST_APPLIED: hidden}}, "data": hidden, "stringData": hidden});
        let masked = printable(&secret, Secrets::Masked);
        assert!(!masked.to_string().contains("hidden"), "{masked}");
        let text = difference(&state(&[]), &state(&[secret]), Secrets::Masked);
        assert!(text.contains(MASK) && !text.contains("hidden"), "{text}");
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": "hidden"}});
    assert!(!printable(&secret, Secrets::Masked).to_string().contains("hidden"));
}

#[test]
fn a_changed_value_of_a_secret_is_told_by_digests() {
    let secret = |value: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations":
            {LAST_APPLIED: value}}, "data": {"changed": value, "kept": "hidden"}})
    };
    let (old, new) = (secret(json!("hidden 1")), secret(json!("hidden 2")));
    let text = plain(&difference(&state(&[old]), &state(&[new]), Secrets::Masked));
    let digests = |sign: &str| -> Vec<&str> {
        let of_sign = text.lines().filter(|line| line.starts_with(sign));
        of_sign.filter_map(|line| line.split_once("(masked ").map(|(_, digest)| digest)).collect()
    };
    let (before, after) = (digests("  - "), digests("  + "));
    assert_eq!((before.len(), after.len()), (2, 2), "{text}");
    assert!(before.iter().all(|digest| !after.contains(digest)), "{text}");
    assert!(text.contains("    kept: (masked)") && !text.contains("hidden"), "{text}");
    let masked = printable(&secret(json!("hidden 1")), Secrets::Masked);
    assert_eq!(masked["data"]["changed"], MASK, "alone, it is printed the same at each start");
}

#[test]
fn declared_credentials_are_masked_with_their_copy() {
    use mortise_core::fixture::{all, fields};
    let declared = fields(all("Auth"), &["spec.token", "spec.keys[].value"]);
    let object = |kind: &str| {
        json!({
            "apiVersion": "g/v2", "kind": kind,
            "metadata": {"name": "a", "annotations": {LAST_APPLIED: "hidden", "b": "shown"}},
            "spec": {"token": "hidden", "server": "shown", "keys": [{"name": "shown", "value": "hidden"}]},
        })
    };
    let mut masked = object("Auth");
    mask_credentials(&mut masked, &[&declared]);
    let text = masked.to_string();
    assert!(!text.contains("hidden") && text.matches("shown").count() == 3, "{text}");
    let mut end = crate::commands::simulate::End {
        objects: vec![object("Auth")],
        before: vec![object("Auth")],
        clusters: [("c".to_owned(), vec![object("Auth")])].into(),
        ..Default::default()
    };
    end.mask_credentials(&[&declared]);
    assert!(!format!("{end:?}").contains("hidden"), "{end:?}");
    for (kind, declared) in [("Other", &[&declared][..]), ("Auth", &[][..])] {
        let mut whole = object(kind);
        mask_credentials(&mut whole, declared);
        assert_eq!(whole, object(kind));
    }
}

#[test]
fn an_object_that_is_no_secret_is_printed_unchanged() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(printable(&object, Secrets::Masked), object);
}

#[test]
fn a_difference_shows_changed_lines_and_names_the_object() {
    let object = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": value}, "data": {"k": value}})
    };
    let text = plain(&difference(&state(&[object("1")]), &state(&[object("2")]), Secrets::Masked));
    assert!(text.starts_with("~ ConfigMap v1 n/a\n"), "{text}");
    assert!(text.contains("-   k: \"1\"") && text.contains("+   k: \"2\""), "{text}");
    assert!(!text.contains("resourceVersion"), "{text}");
}

#[test]
fn an_object_that_did_not_change_is_left_out() {
    let objects = [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})];
    assert_eq!(difference(&state(&objects), &state(&objects), Secrets::Masked), "");
}

#[test]
fn further_lines_of_a_text_are_under_its_first() {
    let key = mortise_core::queue::Key::new(&"p".into(), &"r".into(), Some("n"), "a");
    let run = mortise_core::queue::Run { key, causes: Vec::new(), more_causes: 0, attempt: 0 };
    let mut report = Report::new(&run);
    report.failure = Some("it trapped\nin the guest:\n  0: main\n".to_owned());
    let text = plain(&super::report(&report));
    assert!(text.ends_with("\n  failed: it trapped\n    in the guest:\n      0: main"), "{text}");
}

use serde_json::json;

use mortise_core::fixture::{all, fields};

use super::*;

/// Masks the values of Secrets, and of the credentials of this kind.
fn meant() -> Secrets {
    let paths = ["spec.token", "spec.keys[].value", "spec.none"];
    Secrets::new(false, [fields(all("Auth"), &paths)])
}

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
    assert!(!printable(&secret, &meant()).to_string().contains("hidden"));
    assert_eq!(printable(&secret, &Secrets::Shown), secret);
    let text = difference(&state(&[]), &state(&[secret]), &meant());
    assert!(text.contains(MASK) && !text.contains("hidden"), "{text}");
}

#[test]
fn values_of_secrets_are_masked_in_any_form() {
    for hidden in [json!("hidden"), json!(["hidden"]), json!({"k": {"l": "hidden"}})] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations":
            {LAST_APPLIED: hidden}}, "data": hidden, "stringData": hidden});
        let masked = printable(&secret, &meant());
        assert!(!masked.to_string().contains("hidden"), "{masked}");
        let text = difference(&state(&[]), &state(&[secret]), &meant());
        assert!(text.contains(MASK) && !text.contains("hidden"), "{text}");
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": "hidden"}});
    assert!(!printable(&secret, &meant()).to_string().contains("hidden"));
}

/// Returns a Secret, and an object of a kind with declared credentials, that hold this value twice
/// beside one that stays the same.
fn holders(value: &str) -> [Value; 2] {
    let metadata = json!({"name": "a", "annotations": {LAST_APPLIED: value, "b": "shown"}});
    let keys = json!([{"name": "shown", "value": "hidden"}, {"value": "hidden"}]);
    [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "shown", "data":
            {"changed/~": value, "kept": "hidden"}}),
        json!({"apiVersion": "g/v2", "kind": "Auth", "metadata": metadata, "spec":
            {"token": value, "server": "shown", "keys": keys}}),
    ]
}

#[test]
fn a_changed_secret_value_is_told_by_digests() {
    for (old, new) in holders("hidden 1").iter().zip(&holders("hidden 2")) {
        let states = |of: &Value| state(std::slice::from_ref(of));
        let text = plain(&difference(&states(old), &states(new), &meant()));
        let digests = |sign: &str| -> Vec<&str> {
            let of_sign = text.lines().filter(|line| line.starts_with(sign));
            of_sign
                .filter_map(|line| line.split_once("(masked ").map(|(_, digest)| digest))
                .collect()
        };
        let (before, after) = (digests("  - "), digests("  + "));
        assert_eq!((before.len(), after.len()), (2, 2), "{text}");
        assert!(before.iter().all(|digest| !after.contains(digest)), "{text}");
        assert!(text.contains("(masked)\n") && !text.contains("hidden"), "{text}");
        let alone = printable(old, &meant()).to_string();
        assert!(
            !alone.contains("(masked "),
            "alone, it is printed the same at each start: {alone}"
        );
        assert!(!alone.contains("hidden") && alone.contains("shown"), "{alone}");
    }
}

#[test]
fn credentials_are_masked_in_their_kind_in_all_that_a_simulation_prints() {
    let [_, auth] = holders("hidden");
    let change = crate::commands::simulate::Change {
        action: "update",
        cluster: String::new(),
        object: auth.clone(),
    };
    let end = crate::commands::simulate::End {
        objects: vec![auth.clone()],
        clusters: [("c".to_owned(), vec![auth.clone()])].into(),
        changes: vec![change],
        ..Default::default()
    };
    let said = json(&end.printable(&meant())).unwrap() + &end.for_people(&meant());
    assert!(!said.contains("hidden") && said.contains("shown"), "{said}");
    let mut other = auth.clone();
    other["kind"] = json!("Other");
    for (object, declared) in [(&other, meant()), (&auth, Secrets::new(false, []))] {
        assert_eq!(printable(object, &declared), *object);
    }
}

#[test]
fn an_object_that_is_no_secret_is_printed_unchanged() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(printable(&object, &meant()), object);
}

#[test]
fn a_difference_shows_changed_lines_and_names_the_object() {
    let object = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": value}, "data": {"k": value}})
    };
    let text = plain(&difference(&state(&[object("1")]), &state(&[object("2")]), &meant()));
    assert!(text.starts_with("~ ConfigMap v1 n/a\n"), "{text}");
    assert!(text.contains("-   k: \"1\"") && text.contains("+   k: \"2\""), "{text}");
    assert!(!text.contains("resourceVersion"), "{text}");
}

#[test]
fn an_object_that_did_not_change_is_left_out() {
    let objects = [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})];
    assert_eq!(difference(&state(&objects), &state(&objects), &meant()), "");
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

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
fn what_holds_no_secret_is_printed_as_it_is() {
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
    assert!(text.starts_with("~ v1 ConfigMap n/a\n"), "{text}");
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
    let key = crate::queue::Key::new(&"p".into(), &"r".into(), Some("n"), "a");
    let run = crate::queue::Run { key, causes: Vec::new(), more_causes: 0, attempt: 0 };
    let mut report = Report::new(&run);
    report.failure = Some("it trapped\nin the guest:\n  0: main\n".to_owned());
    let text = plain(&super::report(&report));
    assert!(text.ends_with("\n  failed: it trapped\n    in the guest:\n      0: main"), "{text}");
}

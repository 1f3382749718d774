use serde_json::json;

use super::{Unreadable, read};

/// Returns a field whose value is bytes: a text, a message, an entry of a map.
fn bytes(number: u8, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 0x80, "short fields only");
    [&[(number << 3) | 2, length], value].concat()
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = [bytes(1, api_version), bytes(2, kind)].concat();
    [b"k8s\0".to_vec(), bytes(1, kind), bytes(2, raw)].concat()
}

#[test]
fn objects_are_read_by_the_numbers_of_their_fields() {
    let metadata =
        [bytes(1, "a"), bytes(8, []), bytes(11, [bytes(1, "k"), bytes(2, "v")].concat())].concat();
    let raw = [bytes(1, metadata), bytes(2, [bytes(1, "x"), bytes(2, "y")].concat())].concat();
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"},
        "metadata": {"name": "a", "creationTimestamp": null, "labels": {"k": "v"}},
    });
    assert_eq!(read(&body("v1", "ConfigMap", &raw)), Ok(object));
}

#[test]
fn numbers_amounts_ports_and_inlined_fields_are_read() {
    let port =
        [bytes(1, "h"), number(3, 80), bytes(4, [number(1, 1), bytes(3, "web")].concat())].concat();
    let raw = bytes(2, bytes(1, port));
    let service = read(&body("v1", "Service", &raw)).unwrap();
    assert_eq!(service["spec"]["ports"], json!([{"name": "h", "port": 80, "targetPort": "web"}]));

    let source = bytes(6, bytes(1, "secret"));
    let volume = [bytes(1, "v"), bytes(2, source)].concat();
    let limits = [bytes(1, "cpu"), bytes(2, bytes(1, "2"))].concat();
    let container = [bytes(1, "c"), bytes(8, bytes(1, limits))].concat();
    let spec = [bytes(1, volume), bytes(2, container)].concat();
    let pod = read(&body("v1", "Pod", &bytes(2, spec))).unwrap();
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "secret": {"secretName": "secret"}}]));
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "c", "resources": {"limits": {"cpu": "2"}}}])
    );
}

#[test]
fn options_of_deletions_are_a_kind_of_every_group() {
    let raw = [number(1, 5), bytes(2, bytes(1, "uid")), bytes(4, "Orphan")].concat();
    for api_version in ["v1", "apps/v1", "example.com/v1"] {
        let options = read(&body(api_version, "DeleteOptions", &raw)).unwrap();
        assert_eq!(options["gracePeriodSeconds"], 5);
        assert_eq!(options["preconditions"], json!({"uid": "uid"}));
        assert_eq!(options["propagationPolicy"], "Orphan");
    }
}

#[test]
fn malformed_bodies_and_unknown_kinds_give_distinct_errors() {
    assert_eq!(read(b"{}"), Err(Unreadable::Malformed));
    let cut = body("v1", "ConfigMap", &[0x0a, 0x7f]);
    assert_eq!(read(&cut), Err(Unreadable::Malformed));
    let unknown = read(&body("v1", "Widget", &[]));
    assert!(matches!(unknown, Err(Unreadable::UnknownKind { .. })), "{unknown:?}");
}

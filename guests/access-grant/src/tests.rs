use base64::prelude::BASE64_STANDARD;
use mortise_sdk::testing::Stub;
use serde_json::{Value, json};

use super::*;

const KEY: &str = include_str!("openpgp/fixtures/vendor.asc");
const GRANT: &[u8] = include_bytes!("openpgp/fixtures/vendor.sig");
const WILDCARD: &[u8] = include_bytes!("openpgp/fixtures/vendor-wildcard.asc");
const STRANGER: &[u8] = include_bytes!("openpgp/fixtures/stranger.sig");
const FIELDS: (&str, &str) = ("v1beta1", "v1beta1Key");

fn signed() -> Grant {
    Grant::new(None, Some(KEY), FIELDS).unwrap()
}

fn map(namespace: &str, name: &str, field: &str, value: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, field: value,
    })
}

fn domain(domain: &str) -> Value {
    map("kube-system", "shoot-info", "data", &json!({"domain": domain}))
}

fn access(message: &[u8]) -> Value {
    let value = json!({"access.sig": BASE64_STANDARD.encode(message)});
    map("kyma-system", "apirule-access", "binaryData", &value)
}

#[test]
fn a_configuration_decides_or_names_a_key() {
    let cases = [
        (None, None, Ok(Grant::Denied)),
        (Some(Access::Denied), None, Ok(Grant::Denied)),
        (Some(Access::Allowed), None, Ok(Grant::Allowed)),
        (None, Some("no key"), Err("`v1beta1Key`: ")),
        (Some(Access::Allowed), Some(KEY), Err("`v1beta1` and `v1beta1Key` exclude each other")),
    ];
    for (access, key, expected) in cases {
        match (Grant::new(access, key, FIELDS), expected) {
            (Err(message), Err(start)) => assert!(message.starts_with(start), "{message}"),
            (grant, expected) => assert_eq!(grant, expected.map_err(str::to_owned)),
        }
    }
    let reads = [(Grant::Denied, false, 0), (Grant::Allowed, true, 0), (signed(), true, 2)];
    for (grant, is_possible, reads) in reads {
        assert_eq!((grant.is_possible(), grant.reads().len()), (is_possible, reads));
    }
}

#[test]
fn access_needs_a_domain_and_its_signature() {
    let cases = [
        ("signed", vec![domain("shop.example.com"), access(GRANT)], true),
        ("another domain", vec![domain("other.example.com"), access(GRANT)], false),
        ("a domain below", vec![domain("other.example.com"), access(WILDCARD)], true),
        ("of somebody else", vec![domain("shop.example.com"), access(STRANGER)], false),
        ("no message", vec![domain("shop.example.com"), access(b"shop.example.com")], false),
        ("not signed", vec![domain("shop.example.com")], false),
        ("no domain", vec![access(GRANT)], false),
        ("nothing", vec![], false),
    ];
    for (case, objects, expected) in cases {
        let stub = Stub::new().objects(objects);
        assert_eq!(signed().is_granted(&stub.host()), Ok(expected), "{case}");
        assert_eq!(stub.asked_clock(), 0, "{case}");
    }
}

#[test]
fn a_fixed_decision_reads_nothing() {
    let stub = Stub::new();
    assert_eq!(Grant::Allowed.is_granted(&stub.host()), Ok(true));
    assert_eq!(Grant::Denied.is_granted(&stub.host()), Ok(false));
    assert_eq!(stub.reads(), []);
}

#[test]
fn a_read_without_an_answer_decides_nothing() {
    let stub = Stub::new().unavailable("ConfigMap");
    assert!(signed().is_granted(&stub.host()).is_err());
}

#[test]
fn a_wildcard_covers_what_is_below_it() {
    let cases = [
        ("a.com", "a.com", true),
        (" a.com\n", "a.com", true),
        ("a.com", "b.a.com", false),
        ("*.a.com", "b.a.com", true),
        ("*.a.com", "c.b.a.com", true),
        ("*.a.com", "a.com", true),
        // The original accepts this one.
        ("*.a.com", "ba.com", false),
        ("*.", "a.com", false),
        ("*.*.com", "a.b.com", false),
        ("*", "a.com", false),
        ("", "a.com", false),
        ("", "", false),
    ];
    for (text, domain, expected) in cases {
        assert_eq!(covers(text, domain), expected, "{text:?} {domain}");
    }
}

use serde_json::json;

use super::*;

fn path(text: &str) -> (String, String, String, String) {
    let path = ResourcePath::parse(text).unwrap();
    (path.resource, path.namespace, path.name, path.subresource)
}

fn texts(
    resource: &str,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> (String, String, String, String) {
    (resource.to_owned(), namespace.to_owned(), name.to_owned(), subresource.to_owned())
}

#[test]
fn paths_name_resources() {
    let cases = [
        ("/api/v1/namespaces", texts("namespaces", "", "", "")),
        ("/api/v1/namespaces/x", texts("namespaces", "", "x", "")),
        ("/api/v1/namespaces/x/status", texts("namespaces", "", "x", "status")),
        ("/api/v1/namespaces/x/finalize", texts("namespaces", "", "x", "finalize")),
        ("/api/v1/namespaces/x/configmaps", texts("configmaps", "x", "", "")),
        ("/api/v1/namespaces/x/pods/p/eviction", texts("pods", "x", "p", "eviction")),
        ("/apis/apps/v1/deployments", texts("deployments", "", "", "")),
        ("/apis/apps/v1/namespaces/x/deployments/d/scale", texts("deployments", "x", "d", "scale")),
        ("/api/v1/watch/namespaces/x/configmaps/a", texts("configmaps", "x", "a", "")),
    ];
    for (text, expected) in cases {
        assert_eq!(path(text), expected, "{text}");
    }
    for text in ["/api", "/api/v1", "/apis/apps/v1", "/version", "/"] {
        assert_eq!(ResourcePath::parse(text), None, "{text}");
    }
}

#[test]
fn queries_are_decoded() {
    let query = Query::parse("a=b%20c&flag&no=false&zero=0&maybe=x&l=app+in+(x)");
    assert_eq!(query.text("a"), "b c");
    assert_eq!(query.text("l"), "app in (x)");
    let flags = ["flag", "no", "zero", "maybe", "absent"].map(|name| query.flag(name));
    assert_eq!(flags, [true, false, false, true, false]);
    assert!(query.number("a").is_err());
}

#[test]
fn duplicate_keys_are_named_and_the_last_counts() {
    let body =
        Body::read(br#"{"a": 1, "l": [{"b": 1, "b": 2}], "a": 2, "a": 3.0}"#, Encoding::Json)
            .unwrap();
    assert_eq!(body.value, json!({"a": 3, "l": [{"b": 2}]}));
    assert_eq!(body.duplicates, ["l[0].b", "a"]);
    assert!(Body::read(b"{} x", Encoding::Json).is_err());
    assert!(Body::read(b"", Encoding::Json).is_err());
}

#[test]
fn yaml_is_read_and_may_be_json() {
    let body = Body::read(b"a: 1\nb: [x]\n", Encoding::Yaml).unwrap();
    assert_eq!(body.value, json!({"a": 1, "b": ["x"]}));
    assert_eq!(Body::read(b"{\"a\": 1.0}", Encoding::Yaml).unwrap().value, json!({"a": 1}));
    assert!(Body::read(b"a: 1\na: 2\n", Encoding::Yaml).is_err());
    assert!(Body::read(b"a: [b", Encoding::Yaml).is_err());
}

#[test]
fn deep_texts_are_refused_without_an_overflow() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for encoding in [Encoding::Json, Encoding::Yaml] {
        assert!(Body::read(deep(127).as_bytes(), encoding).is_ok(), "{encoding:?}");
        for levels in [1_000, 100_000] {
            assert!(Body::read(deep(levels).as_bytes(), encoding).is_err(), "{encoding:?}");
        }
    }
    let deep = format!("{}a: 1", "a: {".repeat(100_000));
    assert!(Body::read(deep.as_bytes(), Encoding::Yaml).is_err());
}

#[test]
fn options_of_deletion_are_checked() {
    let fault = DeleteOptions::from_value(
        &json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
    )
    .unwrap_err();
    assert_eq!(fault.code(), 422);
    assert!(fault.message().contains("cannot be both set"), "{fault}");
    let options =
        DeleteOptions::from_value(&json!({"propagationPolicy": "Foreground", "dryRun": ["All"]}))
            .unwrap();
    assert_eq!(options.propagation, Some(Propagation::Foreground));
    assert!(options.dry_run);
}

#[test]
fn fields_are_listed_in_the_order_of_the_text() {
    let order = Body::order(br#"{"z": {"b": 1}, "a": [{"c": null}], "z": 2}"#);
    assert_eq!(order, ["z", "z.b", "a", "a[0].c", "z"]);
}

#[test]
fn a_client_without_a_name_is_the_unknown_manager() {
    let long = "x".repeat(200);
    let cases = [
        ("", Some("kubectl/v1.34"), "kubectl"),
        ("?fieldManager=m", Some("kubectl/v1.34"), "m"),
        ("?fieldManager=", Some(long.as_str()), &long[..128]),
        ("", None, "unknown"),
        ("", Some(""), "unknown"),
        ("", Some("/1.0"), "unknown"),
    ];
    for (query, agent, expected) in cases {
        let mut request = http::Request::builder().uri(format!("/api/v1/namespaces{query}"));
        if let Some(agent) = agent {
            request = request.header("user-agent", agent);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let manager = Request::new(parts, Bytes::new()).manager();
        assert_eq!(manager, expected, "{query} {agent:?}");
    }
}

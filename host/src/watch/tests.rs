use serde_json::json;

use super::*;

fn kind(name: &str) -> Kind {
    Kind { group: String::new(), version: "v1".to_owned(), kind: name.to_owned() }
}

fn named(namespace: Option<&str>, name: Option<&str>) -> Scope {
    Scope {
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        labels: String::new(),
    }
}

#[test]
fn a_watch_sees_its_kind_in_any_version_within_its_scope() {
    let watch = Watch { kind: kind("Pod"), scope: named(Some("a"), None) };
    let pod = |version: &str, namespace: &str| json!({"apiVersion": version, "kind": "Pod", "metadata": {"name": "p", "namespace": namespace, "resourceVersion": "7"}});
    assert_eq!(
        watch.version_of(&pod("v1", "a")),
        Some((Some("a".to_owned()), "p".to_owned(), "7".to_owned()))
    );
    assert_eq!(watch.version_of(&pod("v2", "a")), watch.version_of(&pod("v1", "a")));
    assert_eq!(watch.version_of(&pod("v1", "b")), None);
    assert_eq!(watch.version_of(&pod("other/v1", "a")), None);
}

#[test]
fn only_lasting_failures_end_a_stream() {
    let failure = |code: u16, message: &str| {
        let status = kube::core::Status::failure(message, "Reason").with_code(code);
        watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
    };
    let cases = [
        ("not served", failure(404, "not found"), Some(End::NotServed)),
        (
            "no streaming lists",
            failure(422, "sendInitialEvents is forbidden"),
            Some(End::NoStreamingLists),
        ),
        ("forbidden", failure(403, "pods is forbidden"), None),
        ("down", failure(500, "sendInitialEvents"), None),
    ];
    for (case, error, expected) in cases {
        assert_eq!(end(&error), expected, "{case}");
    }
}

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::path::Fields;

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

fn wanted(fields: &[&str], written: bool) -> Wanted {
    let paths = fields.iter().map(|path| path.parse().unwrap());
    Wanted { fields: Fields::of(paths), matching: BTreeSet::new(), written }
}

#[test]
fn a_wide_scope_takes_in_what_it_covers_and_distinct_ones_stay_apart() {
    let asked = [
        (kind("ConfigMap"), named(Some("a"), Some("one")), wanted(&["data"], false)),
        (kind("ConfigMap"), named(Some("b"), Some("two")), wanted(&["data"], false)),
        (kind("Pod"), named(Some("a"), None), wanted(&["metadata.labels"], false)),
        (kind("Pod"), Scope::default(), wanted(&["spec.nodeName"], false)),
    ];
    let planned = plan(&asked);
    let scopes: Vec<_> =
        planned.iter().map(|(watch, _)| (watch.kind.kind.as_str(), watch.scope.clone())).collect();
    assert_eq!(
        scopes,
        [
            ("Pod", Scope::default()),
            ("ConfigMap", named(Some("a"), Some("one"))),
            ("ConfigMap", named(Some("b"), Some("two"))),
        ]
    );
    let (_, of_pods) = &planned[0];
    assert!(
        of_pods.fields.covers(&"metadata.labels".parse().unwrap()),
        "the narrower wish is fulfilled too"
    );
    assert!(of_pods.fields.covers(&"spec.nodeName".parse().unwrap()));
}

#[test]
fn metadata_alone_is_watched_where_nobody_asks_for_more_and_nothing_is_written() {
    let cases = [
        ("labels alone", wanted(&["metadata.labels"], false), true),
        ("labels, written", wanted(&["metadata.labels"], true), false),
        ("a field of the spec", wanted(&["metadata.labels", "spec.x"], false), false),
        ("whole objects", wanted(&[], false), false),
    ];
    for (case, wanted, metadata_only) in cases {
        let planned = plan(&[(kind("Pod"), Scope::default(), wanted)]);
        assert_eq!(planned[0].0.metadata_only, metadata_only, "{case}");
    }
}

#[test]
fn a_watch_sees_its_kind_in_any_version_within_its_scope() {
    let watch = Watch { kind: kind("Pod"), scope: named(Some("a"), None), metadata_only: false };
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

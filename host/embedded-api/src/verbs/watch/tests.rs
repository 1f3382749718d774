use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{
    EmbeddedApi,
    testing::{api, config_map, delete, send},
};

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

/// An open watch.
struct Open(Body);

impl Open {
    async fn new(api: &EmbeddedApi, query: &str) -> Self {
        let path = format!("{MAPS}?watch=true&{query}");
        let request = http::Request::builder().uri(path).body(Body::empty()).unwrap();
        Self(api.router().oneshot(request).await.unwrap().into_body())
    }

    /// Returns the next `count` events: type, name, version, and the label `app`.
    async fn next(&mut self, count: usize) -> Vec<[String; 4]> {
        let mut events = Vec::new();
        while events.len() < count {
            let frame = self.0.frame().await.unwrap().unwrap().into_data().unwrap();
            for line in frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let event: Value = serde_json::from_slice(line).unwrap();
                let metadata = &event["object"]["metadata"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                events.push([
                    text(&event["type"]),
                    text(&metadata["name"]),
                    text(&metadata["resourceVersion"]),
                    text(&metadata["labels"]["app"]),
                ]);
            }
        }
        events
    }
}

/// Sets the label `app`. Returns the new version.
async fn label(api: &EmbeddedApi, name: &str, app: &str) -> String {
    let patch = json!({"metadata": {"labels": {"app": app}}});
    let (code, answer) = send(api, "PATCH", &format!("{MAPS}/{name}"), &patch).await;
    assert_eq!(code, 200, "{answer:#}");
    answer["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn event<const N: usize>(parts: [&str; N]) -> [String; N] {
    parts.map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn watches_that_share_lines_each_apply_their_own_selector() {
    let api = api().await;
    config_map(&api, "m", &[], &[]).await;
    let one = label(&api, "m", "one").await;
    let since = format!("resourceVersion={one}");
    let mut all = Vec::new();
    for _ in 0..100 {
        all.push(Open::new(&api, &since).await);
    }
    let mut from_one = Open::new(&api, &format!("{since}&labelSelector=app%3Done")).await;
    let mut from_two = Open::new(&api, &format!("{since}&labelSelector=app%3Dtwo")).await;
    let two = label(&api, "m", "two").await;
    let back = label(&api, "m", "one").await;
    assert_eq!(delete(&api, &format!("{MAPS}/m")).await.0, 200);
    let gone = api.revision().to_string();
    let expected = [
        event(["MODIFIED", "m", &two, "two"]),
        event(["MODIFIED", "m", &back, "one"]),
        event(["DELETED", "m", &gone, "one"]),
    ];
    for watch in &mut all {
        assert_eq!(watch.next(3).await, expected);
    }
    let expected = [
        event(["DELETED", "m", &two, "one"]),
        event(["ADDED", "m", &back, "one"]),
        event(["DELETED", "m", &gone, "one"]),
    ];
    assert_eq!(from_one.next(3).await, expected);
    let expected = [event(["ADDED", "m", &two, "two"]), event(["DELETED", "m", &back, "two"])];
    assert_eq!(from_two.next(2).await, expected);
}

#[tokio::test(start_paused = true)]
async fn initial_events_show_the_objects_as_of_the_start_of_the_watch() {
    let api = api().await;
    let mut expected = Vec::new();
    for name in ["a", "b", "c"] {
        config_map(&api, name, &[], &[]).await;
        let version = label(&api, name, "old").await;
        expected.push(event(["ADDED", name, &version, "old"]));
    }
    let end = api.revision().to_string();
    let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = Open::new(&api, &format!("{query}&labelSelector=app")).await;
    let new = label(&api, "b", "new").await;
    expected.push(event(["BOOKMARK", "", &end, ""]));
    expected.push(event(["MODIFIED", "b", &new, "new"]));
    assert_eq!(watch.next(5).await, expected);
}

#[tokio::test(start_paused = true)]
async fn much_that_waits_is_sent_in_parts() {
    let api = api().await;
    let text = "x".repeat(super::CHUNK_BYTES / 4);
    for number in 0..12 {
        let map = json!({"metadata": {"name": format!("m{number:02}")}, "data": {"text": text}});
        assert_eq!(send(&api, "POST", MAPS, &map).await.0, 201);
    }
    let mut watch = Open::new(&api, "resourceVersion=0").await;
    let frame = watch.0.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.len() < 2 * super::CHUNK_BYTES, "{} bytes at once", frame.len());
    let first = frame.split(|byte| *byte == b'\n').count() - 1;
    assert!(first < 12, "{first} objects at once");
    let rest = watch.next(12 - first).await;
    assert_eq!(rest.last().unwrap()[1], "m11");
}

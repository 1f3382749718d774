use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    EmbeddedApi, Fault, Filter, RequestKind, Verb,
    testing::{api, config_map, get, send},
};

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

async fn open(api: &EmbeddedApi, path: &str) -> Body {
    let request = http::Request::builder().uri(path).body(Body::empty()).unwrap();
    api.router().oneshot(request).await.unwrap().into_body()
}

/// Returns the next lines of a watch, as type and name.
async fn events(body: &mut Body) -> Vec<(String, String)> {
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.map(|event| (text(&event["type"]), text(&event["object"]["metadata"]["name"]))).collect()
}

fn event(kind: &str, name: &str) -> Vec<(String, String)> {
    vec![(kind.to_owned(), name.to_owned())]
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_without_polling() {
    let api = api().await;
    config_map(&api, "a", &[], &[]).await;
    let selected = "?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt";
    let mut watch = open(&api, &format!("{MAPS}{selected}")).await;
    assert_eq!(events(&mut watch).await, event("ADDED", "a"));
    let waiting = tokio::time::timeout(Duration::from_secs(30), watch.frame()).await;
    assert!(waiting.is_err(), "nothing happens, nothing comes");
    config_map(&api, "b", &[], &[]).await;
    assert_eq!(events(&mut watch).await, event("ADDED", "b"));
    assert_eq!(api.faults().live_watches(), 1);
    drop(watch);
    assert_eq!(api.faults().live_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_with_the_newest_version() {
    let api = api().await;
    let mut watch = open(
        &api,
        &format!("{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={}", api.revision()),
    )
    .await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    send(&api, "POST", "/api/v1/namespaces", &namespace).await;
    let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let bookmark: Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], api.revision().to_string());
}

#[tokio::test(start_paused = true)]
async fn dropped_watches_break_and_ended_ones_end() {
    let api = api().await;
    let from_now = format!("{MAPS}?watch=true&resourceVersion={}", api.revision());
    let mut watch = open(&api, &from_now).await;
    assert_eq!(api.faults().drop_watches(&Filter::resource("configmaps")), 1);
    assert!(watch.frame().await.unwrap().is_err());
    let mut timed = open(&api, &format!("{from_now}&timeoutSeconds=5")).await;
    assert!(timed.frame().await.is_none());
    let mut stopped = open(&api, &from_now).await;
    api.stop();
    assert!(stopped.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_compacted_watch_ends_with_410() {
    let api = api().await;
    let old = api.revision();
    config_map(&api, "a", &[], &[]).await;
    api.compact();
    let mut watch = open(&api, &format!("{MAPS}?watch=true&resourceVersion={old}")).await;
    let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let error: Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(watch.frame().await.is_none());
    let (status, page) =
        get(&api, &format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
    assert_eq!((status, &page["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn faults_stand_between_client_and_server() {
    let api = api().await;
    api.faults().inject(Fault::LostAnswer, Filter::resource("configmaps").verbs([Verb::Create]), 1);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lost"}});
    let request = http::Request::builder()
        .method("POST")
        .uri(MAPS)
        .header("content-type", "application/json");
    let response =
        api.router().oneshot(request.body(Body::from(object.to_string())).unwrap()).await.unwrap();
    assert!(response.into_body().collect().await.is_err(), "the answer is lost");
    assert_eq!(get(&api, &format!("{MAPS}/lost")).await.0, 200, "but the write is done");

    api.faults().inject(Fault::TooManyRequests(Some(7)), Filter::all(), 1);
    let refused =
        api.router().oneshot(http::Request::get(MAPS).body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()),
        (429, "7")
    );

    api.faults().inject(Fault::Latency(Duration::from_secs(9)), Filter::all(), 1);
    let before = tokio::time::Instant::now();
    assert_eq!(get(&api, MAPS).await.0, 200);
    assert_eq!(before.elapsed(), Duration::from_secs(9));

    let kind = RequestKind {
        verb: Verb::List,
        group: String::new(),
        resource: "configmaps".into(),
        subresource: String::new(),
    };
    assert_eq!(api.requests().get(&kind), Some(&2));
}

#[tokio::test]
async fn connections_are_kept_and_shutdown_ends_watches() {
    let api = api().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let client = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        for _ in 0..2 {
            stream.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut text = vec![0; 4096];
            let read = stream.read(&mut text).await.unwrap();
            assert!(
                text[..read].starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(&text[..read])
            );
        }
        stream
            .write_all(b"GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        shutdown.cancel();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(b"0\r\n\r\n"), "the watch ends properly");
    };
    let (served, ()) = tokio::join!(api.serve(listener, shutdown.clone()), client);
    served.unwrap();
}

#[tokio::test]
async fn targets_may_have_characters_that_a_uri_may_not() {
    let api = api().await;
    for (name, size) in [("small", "1"), ("large", "5")] {
        let map = json!({"metadata": {"name": name, "labels": {"size": size}}});
        assert_eq!(send(&api, "POST", MAPS, &map).await.0, 201);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let client = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let cases = [
            ("size>3", "200", "\"large\"", "\"small\""),
            ("size<3", "200", "\"small\"", "\"large\""),
            ("size>x", "400", "the value must be an integer", "items"),
            ("{\"|\\^`}", "400", "unable to parse requirement", "items"),
        ];
        for (selector, code, has, has_not) in cases {
            let request =
                format!("GET {MAPS}?labelSelector={selector} HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut text = vec![0; 8192];
            let read = stream.read(&mut text).await.unwrap();
            let text = String::from_utf8_lossy(&text[..read]);
            assert!(text.starts_with(&format!("HTTP/1.1 {code}")), "{selector}: {text}");
            assert!(text.contains(has) && !text.contains(has_not), "{selector}: {text}");
        }
        let body = "{\"metadata\": {\"name\": \"kept\"},\n\"data\": {\"a\": \"<|>\"}}";
        let length = body.len();
        let head = format!(
            "POST {MAPS}?pretty=<false> HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
        );
        let request = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 201");
        shutdown.cancel();
    };
    let (served, ()) = tokio::join!(api.serve(listener, shutdown.clone()), client);
    served.unwrap();
    let (_, kept) = get(&api, &format!("{MAPS}/kept")).await;
    assert_eq!(kept["data"]["a"], "<|>", "a body is left as it is");
}

#[tokio::test]
async fn connections_send_at_once() {
    use axum::serve::Listener as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut listener = super::prompt(listener);
    let (client, (stream, _)) =
        tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
    client.unwrap();
    assert!(stream.nodelay().unwrap());
}

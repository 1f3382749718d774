use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use futures::stream;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
    runtime::watcher::{self, Event as Watched},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::cluster::Guarded;

fn object(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "namespace": "a", "resourceVersion": "7"},
    })
}

/// An object of this many bytes.
fn long(name: &str, bytes: usize) -> Value {
    object(name, &json!("x".repeat(bytes)))
}

/// An object of few bytes with too many entries.
fn wide(name: &str) -> Value {
    object(name, &json!(vec![0; MAX_ACCOUNT_BYTES / ENTRY]))
}

/// An object of few bytes that is nested too deep.
fn deep(name: &str) -> Value {
    object(name, &(0..MAX_LEVELS).fold(json!(0), |inner, _| json!({"a": inner})))
}

/// What the parser refuses although the API server may send it, with the texts by which it is
/// written in these tests.
const UNREADABLE: [(&str, &[u8]); 4] = [
    ("@number", b"-1e400"),
    ("@half", br#""\ud800.""#),
    ("@other-half", br#""\uDC00""#),
    ("@bytes", b"\"\xff\""),
];

/// Returns the objects that hold what the parser refuses.
fn unreadable() -> impl Iterator<Item = Value> {
    UNREADABLE.iter().map(|(text, _)| object(&format!("e-{}", &text[1..]), &json!(text)))
}

/// Writes JSON with what the parser refuses.
fn written(value: &Value) -> Vec<u8> {
    let mut text = value.to_string().into_bytes();
    if text.len() > 1 << 10 {
        return text;
    }
    for (name, refused) in UNREADABLE {
        let name = json!(name).to_string();
        let at = text.windows(name.len()).position(|part| part == name.as_bytes());
        if let Some(at) = at {
            text.splice(at..at + name.len(), refused.iter().copied());
        }
    }
    text
}

/// Returns a client of a server that has these objects and serves them in pages, and the sizes of
/// the pages that it is asked for.
fn server(objects: &[Value]) -> (Client, Arc<Mutex<Vec<u32>>>) {
    let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
    let sizes = Arc::clone(&asked);
    let objects: Vec<Vec<u8>> = objects.iter().map(written).collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = if let Some(size) = page_size(request.uri()) {
            sizes.lock().push(size);
            let query = request.uri().query().unwrap();
            let token = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
            let begin: usize = token.map_or(0, |token| token.parse().unwrap());
            let end = (begin + size as usize).min(objects.len());
            let next = if end < objects.len() { end.to_string() } else { String::new() };
            let head = format!(
                r#"{{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {{"resourceVersion": "9", "continue": "{next}"}}, "items": ["#
            );
            let items = objects[begin..end].join(&b","[..]);
            Answered::from([head.as_bytes(), &items[..], b"]}"].concat())
        } else {
            Answered::from_stream(stream::pending::<Result<Bytes, Infallible>>())
        };
        async move { Ok::<_, Infallible>(Response::new(answer)) }
    });
    (Client::new(service, "default"), asked)
}

/// Returns the names of the objects that a watch lists.
async fn listed(client: &Client, parsed_depth: usize) -> BTreeSet<String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = |client| Api::<DynamicObject>::all_with(client, &resource);
    let mut events = Guarded::new(client, parsed_depth).watch(api, watcher::Config::default());
    let mut names = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Watched::InitApply(object) => assert!(names.insert(object.name_any())),
            Watched::InitDone => break,
            _ => {}
        }
    }
    names
}

fn all() -> Vec<Value> {
    let mut all: Vec<Value> = (0..40).map(|at| long(&format!("c-{at:02}"), 1 << 20)).collect();
    all.extend((0..40).map(|at| long(&format!("f-{at:02}"), 10)));
    all.extend([long("d", 17 << 20), wide("e"), deep("e-deep")]);
    all.extend(unreadable());
    all.sort_by_key(|object| object["metadata"]["name"].to_string());
    all
}

#[tokio::test(start_paused = true)]
async fn pages_get_smaller_and_an_object_that_is_not_read_counts_as_absent() {
    let (client, asked) = server(&all());
    let before = OBJECTS_TOO_LARGE.get();
    let names = listed(&client, usize::MAX).await;
    assert_eq!(names.len(), 80, "all that are read: {names:?}");
    assert!(!names.iter().any(|name| name.starts_with(['d', 'e'])));
    assert!(OBJECTS_TOO_LARGE.get() >= before + 7);
    let asked = asked.lock().clone();
    assert_eq!(asked[..4], [500, 62, 7, 7], "{asked:?}");
    assert!(asked.contains(&1) && asked.last() > Some(&7), "pages grow again: {asked:?}");

    // Entries that are not parsed do not count.
    let mut all = all();
    all.retain(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        !name.starts_with("e-")
    });
    let (client, _) = server(&all);
    let names = listed(&client, 1).await;
    assert!(names.len() == 81 && names.contains("e"), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_its_server_sends_at_once_is_read_up_to_a_bound() {
    let of = |count: usize| {
        let items: Vec<Value> = (0..count).map(|at| long(&format!("a-{at}"), 4 << 20)).collect();
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::new(Answered::from(list.clone()));
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    };
    let page = async |client: Client| {
        let request = Request::get("/api/v1/configmaps?limit=500").body(Body::empty()).unwrap();
        page(&client, request, (500, &AtomicU32::new(500)), usize::MAX).await
    };
    let answer = page(of(5)).await.unwrap().into_body();
    assert!(answer.len() > MAX_ACCOUNT_BYTES && answer.len() < MAX_READ_BYTES);
    let error = page(of(9)).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the API server sends more than 32 MiB at once, where each entry counts 64 bytes more"
    );
}

#[test]
fn an_event_of_an_object_that_is_not_read_is_a_deletion_or_nothing() {
    let event = |what: &str, object: &Value| {
        let mut line = written(&json!({"type": what, "object": object}));
        line.push(b'\n');
        line
    };
    let small = |name: &str| event("MODIFIED", &long(name, 3));
    let mut text = [
        small("a"),
        event("MODIFIED", &wide("b")),
        small("c"),
        event("ADDED", &wide("d")),
        event("DELETED", &wide("e")),
        small("f"),
        event("MODIFIED", &deep("g")),
    ]
    .concat();
    for object in unreadable() {
        text.extend([event("ADDED", &object), event("MODIFIED", &object), small("h")].concat());
    }
    text.extend(b"{\"type\":");
    for cut in [311, 7_919, 1 << 20, text.len()] {
        let mut lines = Lines {
            resource: "configmaps".to_owned(),
            parsed_depth: usize::MAX,
            begun: Vec::new(),
            held: Held::default(),
        };
        let chunks = text.chunks(cut);
        let passed: Vec<u8> =
            chunks.flat_map(|chunk| lines.take(Bytes::copy_from_slice(chunk)).unwrap()).collect();
        let passed = String::from_utf8(passed).unwrap();
        let events: Vec<Value> =
            passed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<(&str, &str)> = events
            .iter()
            .map(|event| {
                let name = &event["object"]["metadata"]["name"];
                (event["type"].as_str().unwrap(), name.as_str().unwrap())
            })
            .collect();
        let mut expected = vec![
            ("MODIFIED", "a"),
            ("DELETED", "b"),
            ("MODIFIED", "c"),
            ("DELETED", "e"),
            ("MODIFIED", "f"),
            ("DELETED", "g"),
        ];
        for name in ["e-number", "e-half", "e-other-half", "e-bytes"] {
            expected.extend([("DELETED", name), ("MODIFIED", "h")]);
        }
        assert_eq!(told, expected, "{cut}");
        let mut gone = object("b", &Value::Null);
        gone.as_object_mut().unwrap().remove("data");
        assert_eq!(events[1]["object"], gone);
    }
}

#[test]
fn an_event_without_an_end_is_given_up() {
    let mut extensions = http::Extensions::new();
    let lines = |extensions: &http::Extensions| Lines {
        resource: String::new(),
        parsed_depth: usize::MAX,
        begun: Vec::new(),
        held: Held::of(extensions.get::<Part>().cloned()),
    };
    let chunk = Bytes::from(vec![b'x'; 8 << 20]);
    let take = |lines: &mut Lines| lines.take(chunk.clone()).is_ok();
    let mut alone = lines(&extensions);
    assert_eq!([(); 5].map(|()| take(&mut alone)), [true, true, true, true, false]);

    // Those of other clusters have one sum.
    extensions.insert(incoming().part_of("shop"));
    let mut first = lines(&extensions);
    assert_eq!([(); 3].map(|()| take(&mut first)), [true; 3]);
    let mut second = lines(&extensions);
    assert_eq!([(); 2].map(|()| take(&mut second)), [true, false]);
    drop(first);
    assert!(take(&mut lines(&extensions)));
}

#[test]
fn a_request_for_a_page_is_told_by_its_limit() {
    let cases = [
        (
            "/api/v1/pods?limit=500&continue=a%3D",
            Some("/api/v1/pods?limit=7&continue=a%3D"),
            "pods",
        ),
        ("/api/v1/namespaces/a/pods?&limit=500", Some("/api/v1/namespaces/a/pods?limit=7"), "pods"),
        ("/apis/apps/v1/deployments?watch=true", None, "deployments.apps"),
    ];
    for (uri, expected, resource) in cases {
        let uri: Uri = uri.parse().unwrap();
        let sized = page_size(&uri).map(|_| with_size(&uri, 7).unwrap().to_string());
        assert_eq!(sized.as_deref(), expected);
        assert_eq!(resource_of(&uri), resource);
    }
}

#[test]
fn a_text_is_doubtful_if_the_parser_may_refuse_it() {
    let digits = format!("[{}]", "9".repeat(400));
    let cases = [
        (r#"{"a": 1e400}"#, true),
        ("[0,-1E+999]", true),
        (digits.as_str(), true),
        (r#"["\ud800"]"#, true),
        (r#"["\uDfff"]"#, true),
        (r#"{"uid": "3e40-12e3", "image": "a@sha256:12e456", "n": [-1, 2.5], "b": true}"#, false),
        (r#"["\u003c", "1e400"]"#, false),
    ];
    for (text, expected) in cases {
        assert_eq!(is_doubtful(text), expected, "{text}");
        let is_read = serde_json::from_str::<Value>(text).is_ok();
        assert_eq!(is_readable(text.as_bytes(), true), is_read, "{text}");
    }
}

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use mortise_core::{
    contract::Kind,
    fixture::{all, description, kind, list, object},
    grant::Grant,
    store::{Scope, Wanted},
};
use tower::ServiceExt as _;

use super::*;

/// Returns a host that watches a kind of which no list has arrived.
fn admin() -> Admin {
    let grant = Grant::new(&description(all("Rule"), Vec::new())).unwrap();
    let stores = Stores::new();
    let open = |(kind, scope, wanted): &(Kind, Scope, Wanted)| {
        stores.open(kind, scope, wanted);
        Watch { kind: kind.clone(), scope: scope.clone() }
    };
    let watches: Vec<Watch> = grant.wanted().iter().map(open).collect();
    let watches: Source<Vec<Watch>> = Arc::new(move || watches.clone());
    let api = mortise_embedded_api::EmbeddedApi::new(mortise_embedded_api::Options::default());
    Admin {
        metrics: Metrics::new(),
        queue: Queue::new(),
        stores,
        watches,
        converted: Arc::new(Vec::new),
        waiting: Arc::new(Vec::new),
        clusters: Arc::new(Vec::new),
        lease: Guard::none(),
        reach: Reach::new(&kube::Client::new(api.router(), "default")),
        also: Arc::new(|| None),
    }
}

async fn get(admin: &Admin, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = admin.clone().router().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_host_is_ready_when_its_first_lists_are_complete() {
    let admin = admin();
    assert_eq!(get(&admin, "/livez").await, (200, "ok\n".into()));
    let waits = "the first list has not arrived: Rule g/v1\n";
    assert_eq!(get(&admin, "/readyz").await, (503, waits.into()));
    admin.stores.feed(&kind("Rule"), &(admin.watches)()[0].scope).unwrap().begin_list();
    assert_eq!(get(&admin, "/readyz").await.0, 503);
    list(&admin.stores, "Rule", &(admin.watches)()[0].scope, &[object("Rule", "r", 1)]);
    assert_eq!(get(&admin, "/readyz").await, (200, "ok\n".into()));
}

#[tokio::test]
async fn a_host_is_not_ready_while_the_api_server_is_not() {
    let mut admin = admin();
    admin.stores.set_unknown(&kind("Rule"), &Scope::default());
    let away = tower::service_fn(async |_: Request<kube::client::Body>| {
        Err::<http::Response<String>, _>(std::io::Error::other("connection refused"))
    });
    admin.reach = Reach::new(&kube::Client::new(away, "default"));
    let text = "the API server is not ready: connection refused\n";
    assert_eq!(get(&admin, "/readyz").await, (503, text.into()));
    assert_eq!(get(&admin, "/livez").await.0, 200, "to start it again would not help");
}

/// The API server may be unable to call this host before it is ready.
#[tokio::test]
async fn a_kind_that_is_converted_here_does_not_keep_a_host_from_being_ready() {
    let mut admin = admin();
    admin.converted = Arc::new(|| vec![("g".to_owned(), "Other".to_owned())]);
    assert_eq!(get(&admin, "/readyz").await.0, 503);
    admin.converted = Arc::new(|| vec![("g".to_owned(), "Rule".to_owned())]);
    assert_eq!(get(&admin, "/readyz").await.0, 200);
}

#[tokio::test]
async fn a_kind_that_is_not_served_does_not_keep_a_host_from_being_ready() {
    let admin = admin();
    admin.stores.set_unknown(&kind("Rule"), &Scope::default());
    assert_eq!(get(&admin, "/readyz").await.0, 200);
}

#[tokio::test]
async fn metrics_include_stored_objects_and_queued_keys() {
    let admin = admin();
    list(&admin.stores, "Rule", &(admin.watches)()[0].scope, &[object("Rule", "r", 1)]);
    admin.queue.add(
        &mortise_core::fixture::key("r"),
        mortise_core::queue::Cause::Start,
        mortise_core::queue::Priority::Change,
    );
    let (status, text) = get(&admin, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains(r#"mortise_store_objects{kind="Rule.g"} 1"#), "{text}");
    assert!(text.contains(r#"mortise_queue_keys{processor="p",state="ready"} 1"#), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

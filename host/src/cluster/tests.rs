mod write;

use kube::client::Body;
use mortise_core::api::{Cause, Method};
use mortise_embedded_api::{EmbeddedApi, Fault, Filter, Options};
use serde_json::json;

use super::*;

fn cluster() -> (EmbeddedApi, Cluster) {
    let api = EmbeddedApi::new(Options::default());
    let cluster = Cluster::new(Client::new(api.router(), "default"));
    (api, cluster)
}

fn kind(group: &str, kind: &str) -> Kind {
    Kind::home(group, "v1", kind)
}

async fn asked(api: &EmbeddedApi, cluster: &Cluster, of: &Kind) -> Option<Arc<Resource>> {
    api.reset_requests();
    cluster.resolve(of).await.unwrap()
}

#[tokio::test]
async fn a_kind_is_resolved_to_its_resource_and_an_unknown_one_to_none() {
    let (_api, cluster) = cluster();
    let config_map = cluster.resolve(&kind("", "ConfigMap")).await.unwrap().unwrap();
    assert_eq!(config_map.path_of(Some("a"), "b"), "/api/v1/namespaces/a/configmaps/b");
    assert_eq!(config_map.path(None), "/api/v1/configmaps");
    assert!(config_map.namespaced && !config_map.status);
    let deployment = cluster.resolve(&kind("apps", "Deployment")).await.unwrap().unwrap();
    assert!(deployment.status);
    assert_eq!(deployment.path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
    let namespace = cluster.resolve(&kind("", "Namespace")).await.unwrap().unwrap();
    assert_eq!(namespace.path_of(Some("ignored"), "a"), "/api/v1/namespaces/a");
    assert_eq!(api_resource(&deployment).api_version, "apps/v1");
    assert_eq!(
        cluster
            .resolve(&Kind { version: "v9".into(), ..kind("apps", "Deployment") })
            .await
            .unwrap(),
        None
    );
    assert_eq!(cluster.resolve(&kind("apps", "None")).await.unwrap(), None);
}

#[tokio::test]
async fn names_are_escaped_in_urls() {
    let (_api, cluster) = cluster();
    let role =
        cluster.resolve(&kind("rbac.authorization.k8s.io", "ClusterRole")).await.unwrap().unwrap();
    assert_eq!(
        role.path_of(None, "system:a b/../c?d"),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%2F..%2Fc%3Fd"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_is_found_when_its_group_is_forgotten_or_after_a_while() {
    let (api, cluster) = cluster();
    let thing = kind("x.dev", "Thing");
    assert_eq!(asked(&api, &cluster, &thing).await, None);
    api.serve_untyped("x.dev", "v1", "Thing", "things", true);
    assert_eq!(asked(&api, &cluster, &thing).await, None, "remembered");
    cluster.forget("other.dev");
    assert_eq!(asked(&api, &cluster, &thing).await, None, "another group");
    cluster.forget("x.dev");
    assert!(asked(&api, &cluster, &thing).await.is_some());
    let other = kind("x.dev", "Other");
    assert_eq!(asked(&api, &cluster, &other).await, None);
    api.serve_untyped("x.dev", "v1", "Other", "others", false);
    tokio::time::advance(UNKNOWN_KIND_TTL).await;
    assert!(!asked(&api, &cluster, &other).await.unwrap().namespaced);
}

/// Returns a cluster that counts the requests it gets.
fn counted() -> (EmbeddedApi, Cluster, Arc<std::sync::atomic::AtomicUsize>) {
    let api = EmbeddedApi::new(Options::default());
    let requests = Arc::<std::sync::atomic::AtomicUsize>::default();
    let (router, count) = (api.router(), Arc::clone(&requests));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut router = router.clone();
        async move { tower::Service::call(&mut router, request).await }
    });
    (api, Cluster::new(Client::new(service, "default")), requests)
}

/// Kinds whose names inject a path or a query, which the host would send with its own token.
#[tokio::test]
async fn a_name_that_no_kind_can_have_is_asked_for_by_no_request() {
    let (_api, cluster, requests) = counted();
    let watch = "rbac.authorization.k8s.io/v1/clusterroles?watch=true&x=";
    let cases = [
        ("a path", kind(watch, "ClusterRole")),
        ("a version", Kind { version: "v1/namespaces/../x".into(), ..kind("apps", "Deployment") }),
        ("a core version", Kind { version: "v1?watch=true".into(), ..kind("", "Pod") }),
        ("a kind", kind("apps", "Deploy/ment")),
        ("any kind", kind("apps", "*")),
        ("a long group", kind(&"x".repeat(1 << 20), "Deployment")),
    ];
    for (case, of) in cases {
        assert_eq!(cluster.resolve(&of).await.unwrap(), None, "{case}");
        assert_eq!(requests.load(std::sync::atomic::Ordering::Relaxed), 0, "{case}");
    }
}

/// 9,000 kinds that the server does not list cost a few lists of groups, and no cache entry.
#[tokio::test(start_paused = true)]
async fn kinds_that_the_server_does_not_list_cost_few_requests() {
    let (_api, cluster, requests) = counted();
    for number in 0..9000 {
        let of = kind(&format!("g{number}.example.com"), "Thing");
        assert_eq!(cluster.resolve(&of).await.unwrap(), None);
    }
    assert_eq!(requests.load(std::sync::atomic::Ordering::Relaxed), MAX_MISSING_LOOKUPS);
    assert_eq!(cluster.served.lock().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_is_no_cluster_without_the_kind() {
    let dead = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("connection refused"))
    });
    let cluster = Cluster::new(Client::new(dead, "default"));
    let message = cluster.resolve(&kind("apps", "Deployment")).await.unwrap_err().to_string();
    assert!(
        message.contains("Deployment apps/v1") && message.contains("connection refused"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_double_and_are_bounded_and_longer_ones_that_the_server_asks_for_are_left_to_others()
{
    let (api, cluster) = cluster();
    let get = Outgoing::get("/api/v1/namespaces/default".into());
    let begun = Instant::now();
    api.faults().inject(Fault::InternalError, Filter::all(), 3);
    cluster.send(&get).await.unwrap();
    assert_eq!(begun.elapsed().as_millis() / 100, 14, "200 + 400 + 800 ms: {:?}", begun.elapsed());
    let begun = Instant::now();
    let longest = Policy::default().longest_wait;
    api.faults().inject(Fault::TooManyRequests(Some(longest.as_secs())), Filter::all(), 1);
    cluster.send(&get).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), longest.as_secs());
    let begun = Instant::now();
    api.faults().inject(Fault::TooManyRequests(Some(3600)), Filter::all(), 1);
    let refusal = cluster.send(&get).await.unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_hours(1)));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let begun = Instant::now();
    api.faults().inject(Fault::Latency(Duration::from_hours(1)), Filter::all(), 10);
    assert_eq!(cluster.send(&get).await.unwrap_err().code, 0);
    assert!(
        begun.elapsed() >= 5 * Policy::default().answer,
        "an answer is not waited for for ever"
    );
}

#[test]
fn refusals_are_classified_as_transient_or_permanent() {
    let refusal = |code: u16, message: &str, cause: &str| Refusal {
        code,
        message: message.into(),
        causes: vec![Cause { reason: cause.into(), ..Cause::default() }],
        ..Refusal::default()
    };
    let cases = [
        ("no answer", refusal(0, "", ""), true),
        ("too many requests", refusal(429, "", ""), true),
        ("a disruption budget", refusal(429, "", "DisruptionBudget"), false),
        ("a fault of the server", refusal(500, "", ""), true),
        (
            "an apply that does not fit the schema",
            refusal(500, "failed to create typed patch object (a/b): x", ""),
            false,
        ),
        ("too large for etcd", refusal(500, "etcdserver: request is too large", ""), false),
        (
            "too large for a message to etcd",
            refusal(
                500,
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max (5 vs. 2)",
                "",
            ),
            false,
        ),
        ("not there for the moment", refusal(503, "", ""), true),
        ("timeout", refusal(504, "", ""), true),
        ("not implemented", refusal(501, "", ""), false),
        ("forbidden", refusal(403, "", ""), false),
        ("conflict", refusal(409, "", ""), false),
        ("not found", refusal(404, "", ""), false),
    ];
    for (case, refusal, passes) in cases {
        assert_eq!(refusal.is_passing(), passes, "{case}");
    }
}

#[test]
fn a_definition_lists_the_resources_of_its_served_versions() {
    let definition = json!({"spec": {
        "group": "x.dev", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
        "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}, {"name": "v2", "served": true}, {"name": "v3", "served": false}],
    }});
    let all = Resource::of_definition(&Arc::default(), &definition);
    let told: Vec<_> = all
        .iter()
        .map(|resource| {
            (
                resource.kind.version.as_str(),
                resource.namespaced,
                resource.status,
                resource.path(None),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("v1", false, true, "/apis/x.dev/v1/things".to_owned()),
            ("v2", false, false, "/apis/x.dev/v2/things".to_owned())
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_hold_its_lease_asks_but_does_not_write() {
    let (api, cluster) = cluster();
    let settings = crate::cluster::lease::Settings {
        namespace: "default".into(),
        name: "mortise".into(),
        identity: "me".into(),
        times: crate::cluster::lease::Times::default(),
        now: Arc::new(jiff::Timestamp::now),
    };
    let (lease, guard) = crate::cluster::lease::Lease::new(cluster.client().clone(), settings);
    let account = Account { namespace: "a".into(), name: "b".into() };
    let guarded = cluster.guarded(&guard);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let path = "/api/v1/namespaces/default/configmaps".to_owned();
    let write = Outgoing::new(Method::Post, path.clone(), Some(map));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned();
    let ask = Outgoing::new(Method::Post, reviews, Some(review));
    let began = Instant::now();
    for cluster in [&guarded, &guarded.acting_as(&account)] {
        let refusal = cluster.send(&write).await.unwrap_err();
        assert_eq!(refusal.to_string(), "this host does not hold the Lease");
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "it is not tried again");
    guarded.send(&Outgoing::get(path)).await.unwrap();
    guarded.send(&ask).await.unwrap();
    assert!(!api.objects().iter().any(|object| object["kind"] == "ConfigMap"));
    let stop = tokio_util::sync::CancellationToken::new();
    let write = async {
        guard.held().await;
        guarded.send(&write).await.unwrap();
        stop.cancel();
    };
    let (held, ()) = tokio::join!(lease.run(stop.clone()), write);
    held.unwrap();
    assert!(api.objects().iter().any(|object| object["kind"] == "ConfigMap"));
}

#[tokio::test]
async fn a_client_of_an_account_says_so_with_each_request_and_names_no_groups() {
    let seen: Arc<Mutex<Vec<http::HeaderMap>>> = Arc::default();
    let (api, told) = (EmbeddedApi::new(Options::default()), Arc::clone(&seen));
    let router = api.router();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        told.lock().push(request.headers().clone());
        tower::ServiceExt::oneshot(router.clone(), request)
    });
    let own = Cluster::new(Client::new(service, "default"));
    let acting = own.acting_as(&"shop/painter".parse().unwrap());
    let refusal = acting.send(&Outgoing::get("/api/v1/namespaces/default".into())).await;
    assert_eq!(refusal.unwrap_err().code, 403, "it may do nothing here");
    own.send(&Outgoing::get("/api/v1/namespaces/default".into())).await.unwrap();
    let user = |headers: &http::HeaderMap| {
        let names = headers.keys().filter(|name| name.as_str().starts_with("impersonate"));
        names.map(|name| format!("{name}: {}", headers[name].to_str().unwrap())).collect::<Vec<_>>()
    };
    let users: Vec<_> = seen.lock().drain(..).map(|headers| user(&headers)).collect();
    let painter = vec!["impersonate-user: system:serviceaccount:shop:painter".to_owned()];
    assert_eq!(users, [painter, vec![]]);
}

/// Returns a server with endless answers, and the number of bytes read from them.
fn endless(code: u16) -> (Cluster, Arc<std::sync::atomic::AtomicUsize>) {
    use std::sync::atomic::Ordering;

    let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let (counted, chunk) = (Arc::clone(&counted), bytes::Bytes::from(vec![b'x'; 1 << 16]));
        let chunks = futures::StreamExt::map(futures::stream::iter(0..1 << 14), move |_| {
            counted.fetch_add(chunk.len(), Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(chunk.clone())
        });
        let body = axum::body::Body::from_stream(chunks);
        let answer = http::Response::builder().status(code).body(body).unwrap();
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    let policy = Policy { attempts: 1, ..Policy::default() };
    (Cluster::with_policy(Client::new(service, "default"), policy), taken)
}

#[tokio::test]
async fn an_answer_is_taken_in_no_further_than_is_expected() {
    let cases = [
        (200, "/api/v1/namespaces/a/configmaps/b", 16, 17),
        // Three pages, each smaller than the one before, and one of a single object.
        (200, "/api/v1/configmaps?limit=500", 32, 3 * 17 + 33),
        (500, "/api/v1/configmaps?limit=500", 1, 2),
    ];
    for (code, path, mib, most) in cases {
        let (cluster, taken) = endless(code);
        let refusal = cluster.send(&Outgoing::get(path.into())).await.unwrap_err();
        let expected = format!("more than {mib} MiB at once");
        assert!(refusal.message.contains(&expected), "{path}: {refusal}");
        let taken = taken.load(std::sync::atomic::Ordering::Relaxed);
        assert!(taken <= most << 20, "{path}: {taken} bytes");
    }
}

#[tokio::test]
async fn a_cluster_that_serves_a_million_kinds_is_told_and_none_is_kept() {
    let kinds = |count: usize| {
        let of =
            |at: usize| json!({"name": format!("k{at}"), "kind": format!("K{at}"), "verbs": []});
        let all: Vec<Value> = (0..count).map(of).collect();
        json!({"kind": "APIResourceList", "resources": all}).to_string()
    };
    let groups = |count: usize| {
        let version = json!({"version": "v1"});
        let of = |at: usize| json!({"name": format!("g{at}"), "versions": [&version]});
        json!({"groups": (0..count).map(of).collect::<Vec<_>>()}).to_string()
    };
    let cases = [
        ("many kinds", kinds(3_000), "more than 2048 kinds"),
        ("very many kinds", kinds(100_000), "more than 16 MiB at once"),
        ("many groups", groups(3_000), "more than 2048 groups and versions"),
        ("very many groups", groups(100_000), "more than 16 MiB at once"),
    ];
    for (case, body, expected) in cases {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let body = body.clone();
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        let name = "shop/provider/kubeconfig".into();
        let client = Client::new(service, "default");
        let policy = Policy { attempts: 1, ..Policy::default() };
        let cluster = Cluster::with_policy(client, policy).named(&name);
        let group = if case.ends_with("groups") { "example.com" } else { "" };
        let of = Kind { cluster: name, version: "v1".into(), ..kind(group, "K7") };
        let error = cluster.resolve(&of).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{case}: {error}");
        assert!(cluster.known(&of).is_none(), "{case}");
    }
}

#[test]
fn a_list_of_kinds_is_read_once_whatever_its_entries_are() {
    let of = GroupVersion { group: "x.dev".into(), version: "v1".into() };
    let entry = |name: &str, kind: &str| json!({"name": name, "kind": kind, "verbs": [name]});
    let mut all: Vec<Value> = (0..100_000).map(|at| entry("a/b", &format!("K{at}"))).collect();
    all.extend([entry("rules", "Rule"), entry("rules/status", "Rule")]);
    all.extend([entry("things", "Thing"), entry("../x", "Path"), entry("long", &"K".repeat(64))]);
    let found = parse(&of, &Arc::default(), &json!({ "resources": all }));
    let mut found: Vec<_> = found.values().map(|of| (&*of.plural, of.status)).collect();
    found.sort_unstable();
    assert_eq!(found, [("rules", true), ("things", false)]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_gives_no_answer_is_asked_once_for_all_of_its_kinds() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    let (is_away, requests) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicUsize>::default());
    let (state, router) =
        ((is_away.clone(), requests.clone()), EmbeddedApi::new(Options::default()));
    let router = router.router();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        state.1.fetch_add(1, Relaxed);
        let fails = request.uri().path() == "/apis/apps/v1" && state.0.load(Relaxed);
        let mut router = router.clone();
        async move {
            if fails {
                return Ok(http::Response::builder().status(503).body("{}".into()).unwrap());
            }
            tower::Service::call(&mut router, request).await
        }
    });
    let cluster = Cluster::new(Client::new(service, "default"));
    let ask = async |of: &str| cluster.resolve(&kind("apps", of)).await;
    ask("Deployment").await.unwrap_err();
    let before = requests.load(Relaxed);
    for of in ["Deployment", "StatefulSet", "DaemonSet"] {
        let error = ask(of).await.unwrap_err().to_string();
        assert!(error.contains(of) && error.contains("503"), "{error}");
    }
    assert_eq!(requests.load(Relaxed), before);
    is_away.store(false, Relaxed);
    tokio::time::advance(UNKNOWN_KIND_TTL).await;
    ask("DaemonSet").await.unwrap().unwrap();
    is_away.store(true, Relaxed);
    ask("Deployment").await.unwrap().unwrap();
}

#[tokio::test]
async fn an_invalid_resource_list_is_an_error_and_not_an_empty_list() {
    for body in ["{}", r#"{"kind": "Status", "status": "Success"}"#, "[]"] {
        let service = tower::service_fn(move |_: http::Request<Body>| async move {
            Ok::<_, std::convert::Infallible>(http::Response::new(body.to_owned()))
        });
        let cluster = Cluster::new(Client::new(service, "default"));
        let error = cluster.resolve(&kind("", "ConfigMap")).await.unwrap_err().to_string();
        assert!(error.contains("not `APIResourceList`"), "{body}: {error}");
    }
}

#[tokio::test]
async fn a_request_to_another_cluster_is_refused_before_it_is_sent() {
    let (_api, cluster) = cluster();
    let there = Kind { cluster: "there".into(), ..kind("", "ConfigMap") };
    let outgoing = Outgoing::get("/api/v1/namespaces/default".into()).to(&there.cluster);
    let api: &dyn Api = &cluster;
    let refusal = api.send(&outgoing).await.unwrap_err();
    assert!(refusal.message.starts_with("cluster `there` is not known"), "{refusal}");
    let unavailable = api.resolve(&there).await.unwrap_err();
    assert!(unavailable.message.starts_with("cluster `there` is not known"), "{unavailable}");
    let of = ObjectRef { kind: there.clone().into(), namespace: None, name: "a.b".to_owned() };
    let not = api.established(&of).await.unwrap_err();
    let told = |message: &str| message.starts_with("cluster `there` is not known");
    assert!(matches!(&not, NotEstablished::Unwatched { message, .. } if told(message)), "{not:?}");
    // Without the trait, too.
    assert!(told(&cluster.send(&outgoing).await.unwrap_err().message));
    assert!(told(&cluster.resolve(&there).await.unwrap_err().message));
    cluster.resolve(&kind("", "ConfigMap")).await.unwrap();
    assert!(cluster.known(&there).is_none() && cluster.known(&kind("", "ConfigMap")).is_some());
}

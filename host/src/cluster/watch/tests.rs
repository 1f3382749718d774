use serde_json::json;

use super::*;

fn kind(name: &str) -> Kind {
    Kind::home("", "v1", name)
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

mod hostile {
    use std::{
        collections::BTreeSet,
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use http::{Request, Response};
    use mortise_core::{
        contract::ObjectRef,
        path::Fields,
        store::{self, Known, Wanted},
    };
    use parking_lot::Mutex;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::metrics::OBJECTS_TOO_LARGE;

    type Answer = Arc<dyn Fn() -> Response<Body> + Send + Sync>;

    const HOSTILE: usize = 20;

    /// Returns a server of config maps and nodes that answers lists and watches with these answers, in this
    /// order, and repeats the last one; and the queries that it receives.
    fn server(answers: Vec<Answer>) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let queries = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = if request.uri().path() == "/api/v1" {
                let served = json!([
                    {"name": "configmaps", "namespaced": true, "kind": "ConfigMap", "verbs": ["list", "watch"]},
                    {"name": "nodes", "namespaced": false, "kind": "Node", "verbs": ["list", "watch"]},
                ]);
                Response::new(Body::from(
                    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": served})
                        .to_string(),
                ))
            } else {
                let mut queries = queries.lock();
                queries.push(request.uri().query().unwrap_or_default().to_owned());
                answers[(queries.len() - 1).min(answers.len() - 1)]()
            };
            async move { Ok::<_, Infallible>(answer) }
        });
        (Cluster::new(kube::Client::new(service, "default")), asked)
    }

    fn object(kind: &str, name: &str, version: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "a", "resourceVersion": version});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    }

    fn event(what: &str, object: &Value) -> String {
        format!("{}\n", json!({"type": what, "object": object}))
    }

    /// A complete list, as events.
    fn listed(kind: &str, names: &[&str], version: &str) -> String {
        let objects = names.iter().map(|name| event("ADDED", &object(kind, name, version)));
        let mut end = object("ConfigMap", "", version);
        end["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        objects.chain([event("BOOKMARK", &end)]).collect()
    }

    /// An answer that ends after this text.
    fn text(text: String) -> Answer {
        Arc::new(move || Response::new(Body::from(text.clone())))
    }

    /// A watch that stays open after this text.
    fn lasting(text: String) -> Answer {
        Arc::new(move || {
            let begun = stream::iter([Ok::<_, Infallible>(Bytes::from(text.clone()))]);
            Response::new(Body::from_stream(begun.chain(stream::pending())))
        })
    }

    /// An answer of 1 GiB without a line end. Counts the bytes read from it.
    fn endless(taken: &Arc<AtomicUsize>) -> Answer {
        let taken = Arc::clone(taken);
        Arc::new(move || {
            let (taken, chunk) = (Arc::clone(&taken), Bytes::from(vec![b'x'; 1 << 16]));
            let chunks = stream::iter(0..1 << 14).map(move |_| {
                taken.fetch_add(chunk.len(), Ordering::Relaxed);
                Ok::<_, Infallible>(chunk.clone())
            });
            Response::new(Body::from_stream(chunks))
        })
    }

    fn refused(code: u16, message: &str) -> Answer {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "Hostile", "code": code});
        Arc::new(move || {
            let answer = Response::builder().status(code).header("Retry-After", "31536000");
            answer.body(Body::from(status.to_string())).unwrap()
        })
    }

    fn reference(name: &str) -> ObjectRef {
        reference_of(&kind("ConfigMap"), name)
    }

    fn reference_of(kind: &Kind, name: &str) -> ObjectRef {
        ObjectRef { kind: kind.clone().into(), namespace: Some("a".into()), name: name.into() }
    }

    /// Watches config maps until this one is known. Returns the stores and the time taken.
    async fn until_known(cluster: &Cluster, name: &str) -> (Stores, Duration) {
        until_known_of(&kind("ConfigMap"), cluster, name).await
    }

    async fn until_known_of(kind: &Kind, cluster: &Cluster, name: &str) -> (Stores, Duration) {
        let begun = Instant::now();
        let watch = Watch { kind: kind.clone(), scope: Scope::default() };
        let is_known =
            |stores: &Stores| matches!(stores.known(&reference_of(kind, name)), Known::Present(_));
        let stores = run_until(watch, cluster, is_known).await;
        (stores, begun.elapsed())
    }

    /// Runs a watch until its stores are as expected. Returns the stores.
    async fn run_until(watch: Watch, cluster: &Cluster, is_it: impl Fn(&Stores) -> bool) -> Stores {
        let stores = Stores::new();
        let wanted = Wanted { fields: Fields::whole(), matching: BTreeSet::new(), written: false };
        let feed = stores.open(&watch.kind, &watch.scope, &wanted).unwrap();
        let (_crds, changes) = latest::channel(0);
        let clusters = Clusters::new(
            cluster,
            &mortise_core::applied_fields::manager::Home::default(),
            &crate::cluster::lease::Guard::none(),
            &crate::cluster::clusters::Options::default(),
        );
        let context = Context {
            clusters,
            cluster: cluster.clone(),
            stores: stores.clone(),
            crds: changes,
            metrics: Metrics::new(),
            access: Access::new(cluster, None),
            health: None,
            grown: Arc::new(|_| ()),
        };
        let mut progress = stores.progress();
        let known = async {
            while !is_it(&stores) {
                progress.changed().await.unwrap();
            }
        };
        tokio::select! {
            () = watch.run(feed, context) => panic!("the watch ended"),
            () = known => {}
        }
        stores
    }

    #[tokio::test(start_paused = true)]
    async fn a_hostile_server_is_asked_ever_later_and_nothing_is_lost_or_taken_for_gone() {
        let taken = Arc::new(AtomicUsize::new(0));
        let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old", "reason": "Expired", "code": 410});
        let cases = [
            ("half a document", text(r#"{"type":"ADDED","object":{"metadata":{"na"#.into())),
            ("an end at once", text(String::new())),
            ("410", text(event("ERROR", &gone))),
            ("another kind", text(listed("Secret", &["a"], "7"))),
            ("older versions", text(listed("ConfigMap", &["a"], "1"))),
            ("429 with a year", refused(429, "wait for a year")),
            ("1 GiB", endless(&taken)),
            ("1 GiB of a refusal", {
                let endless = endless(&taken);
                Arc::new(move || {
                    let mut answer = endless();
                    *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
                    answer
                })
            }),
        ];
        for (case, hostile) in cases {
            // The server was healthy before, and is again afterwards.
            let mut answers = vec![text(listed("ConfigMap", &["a"], "5"))];
            answers.extend(std::iter::repeat_n(hostile, HOSTILE));
            answers.push(lasting(listed("ConfigMap", &["a", "b"], "9")));
            let (cluster, _) = server(answers);
            taken.store(0, Ordering::Relaxed);
            let (stores, took) = until_known(&cluster, "b").await;
            let (least, most) = (Duration::from_mins(1), Duration::from_mins(20));
            assert!((least..most).contains(&took), "{case}: {took:?}");
            let is_gone = |event: &store::Event| matches!(event, store::Event::Object(change) if change.new.is_none());
            assert!(!stores.take_events().iter().any(is_gone), "{case}");
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken <= HOSTILE * (33 << 20), "{case}: {taken} bytes");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_list_is_awaited_in_a_namespace_if_the_kind_has_none() {
        let (cluster, asked) = server(vec![refused(404, "the server could not find it")]);
        let watch = Watch { kind: kind("Node"), scope: named(Some("a"), None) };
        let (kind, scope) = (watch.kind.clone(), watch.scope.clone());
        let settled = run_until(watch, &cluster, |stores| stores.is_settled(&kind, &scope));
        timeout(Duration::from_mins(1), settled).await.unwrap();
        assert!(asked.lock().is_empty(), "no such path is asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_served_during_a_flood_of_events() {
        const EVENTS: usize = 20_000;
        let change =
            |version: usize| event("MODIFIED", &object("ConfigMap", "a", &version.to_string()));
        let flood: String = (6..EVENTS).map(change).collect();
        let last = event("ADDED", &object("ConfigMap", "b", &EVENTS.to_string()));
        let (cluster, _) = server(vec![lasting(listed("ConfigMap", &["a"], "5") + &flood + &last)]);
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            (stores, _) = until_known(&cluster, "b") => {
                assert!(matches!(stores.known(&reference("a")), Known::Present(_)));
            }
            () = others => {}
        }
        assert!(turns >= EVENTS, "{turns} turns of others beside {EVENTS} events");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
        let taken = Arc::new(AtomicUsize::new(0));
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": [{"metadata": object("", "a", "5")["metadata"]}]});
        let (cluster, asked) = server(vec![
            refused(422, "sendInitialEvents is forbidden"),
            endless(&taken),
            text(list.to_string()),
            lasting(String::new()),
        ]);
        until_known(&cluster, "a").await;
        let asked = asked.lock();
        assert!(asked[1].contains("limit=500") && asked[2].contains("limit=62"), "{asked:?}");
        assert!(taken.load(Ordering::Relaxed) <= 17 << 20);
    }

    #[test]
    fn an_object_of_another_kind_is_told() {
        let raw = |object: &Value| serde_json::from_value::<Raw<true>>(object.clone()).unwrap();
        let of = kind("ConfigMap");
        assert_eq!(raw(&object("ConfigMap", "a", "5")).foreign(&of), None);
        assert_eq!(raw(&json!({"metadata": {"name": "a"}})).foreign(&of), None, "of a list");
        assert!(raw(&object("Secret", "a", "5")).foreign(&of).unwrap().contains("`Secret`"));
        let mut grouped = object("ConfigMap", "a", "5");
        grouped["apiVersion"] = json!("apps/v1");
        assert!(raw(&grouped).foreign(&of).is_some());
        let other = raw(&object("\u{1b}[2J\n", "a", "5")).foreign(&of).unwrap();
        assert!(!other.contains(char::is_control), "{other:?}");
    }

    /// Another cluster in which a kind is served.
    fn elsewhere() -> Kind {
        Kind { cluster: "shop/provider/kubeconfig".into(), ..kind("ConfigMap") }
    }

    #[test]
    fn an_object_of_another_cluster_has_a_valid_name() {
        let misnamed = |of: &Kind, namespace: Value, name: Value| {
            let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": "5"});
            let object = json!({"metadata": metadata});
            serde_json::from_value::<Raw<true>>(object).unwrap().misnamed(of)
        };
        let told = |namespace, name| misnamed(&elsewhere(), namespace, name);
        assert_eq!(told(json!("a"), json!("b.c")), None);
        let names = ["", "..", ".", "a/b", "../b", "a%2Fb", "a\nb", "a\u{202e}b", "a\u{0}"];
        for name in names.map(|name| json!(name)).into_iter().chain([json!(null), json!(7)]) {
            let told = told(json!("a"), name.clone()).unwrap_or_else(|| panic!("{name} is taken"));
            assert!(!told.contains(char::is_control), "{told:?}");
        }
        for namespace in ["..", "a/b", "a.b", "a\nb", "A"] {
            assert!(told(json!(namespace), json!("a")).is_some(), "{namespace} is taken");
        }
        let long = told(json!("a"), json!("x".repeat(1 << 20))).unwrap();
        assert!(long.len() < 1024, "{} bytes", long.len());
        let at_home = misnamed(&kind("ConfigMap"), json!("a"), json!("a\u{202e}b"));
        assert_eq!(at_home, None, "its API server has checked it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_misnamed_object_of_another_cluster_counts_as_absent() {
        let of = elsewhere();
        let names = ["a", "..", "b\u{202e}", "c"];
        let added = event("ADDED", &object("ConfigMap", "d/", "10"));
        let last = event("ADDED", &object("ConfigMap", "e", "11"));
        let (cluster, asked) =
            server(vec![lasting(listed("ConfigMap", &names, "9") + &added + &last)]);
        let before = OBJECTS_TOO_LARGE.get();
        let (stores, _) = until_known_of(&of, &cluster.named(&of.cluster), "e").await;
        for name in ["a", "c"] {
            assert!(matches!(stores.known(&reference_of(&of, name)), Known::Present(_)), "{name}");
        }
        for name in ["..", "b\u{202e}", "d/"] {
            assert!(matches!(stores.known(&reference_of(&of, name)), Known::Absent), "{name}");
        }
        assert!(OBJECTS_TOO_LARGE.get() >= before + 3);
        assert_eq!(asked.lock().len(), 1, "the watch goes on");
    }
}

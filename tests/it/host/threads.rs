//! The threads on which the parts of a host run.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use kube::client::Body;
use mortise_embedded_api::EmbeddedApi;
use mortise_host::{
    cluster::Cluster,
    run::{Host, Options},
};
use serde_json::json;
use tokio::{runtime::Builder, time::timeout};
use tower::ServiceExt as _;

use super::{CONFIG_MAP, GUARD, Scene, applies, now, object, scripted};

/// The requests, with the names of the threads that made them.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

fn client(api: &EmbeddedApi, asked: &Asked) -> kube::Client {
    let (router, asked) = (api.router(), Arc::clone(asked));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (router, asked) = (router.clone(), Arc::clone(&asked));
        async move {
            let thread = thread::current().name().unwrap_or_default().to_owned();
            let what = format!("{} {}", request.method(), request.uri());
            asked.lock().unwrap().push((thread, what));
            router.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

#[test]
fn watches_have_their_runtime_and_their_client_and_writes_do_not() {
    let one = |name: &str| {
        Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()
    };
    let (hosting, watching) = (one("host").unwrap(), one("watches").unwrap());
    let (by_watches, by_others) = (Asked::default(), Asked::default());
    let host = async {
        let scene = Scene::of_puppet(CONFIG_MAP).await;
        let made = object(CONFIG_MAP, "made", &json!({"data": {"a": "b"}}));
        scene.load(&scripted("play", &applies(&[made])));
        let cluster = Cluster::new(client(&scene.api, &by_others));
        let cluster = cluster.watched_by(client(&scene.api, &by_watches));
        let watches_on = Some(watching.handle().clone());
        let options = Options { now: now(), watches_on, ..Options::default() };
        let host = Host::start(&cluster, scene.loaded, &options).unwrap();
        let report = timeout(GUARD, host.next_report()).await.unwrap().unwrap();
        assert_eq!((report.failure, report.changes.len()), (None, 1));
        host.stop().await.unwrap();
    };
    hosting.block_on(host);
    let (by_watches, by_others) = (by_watches.lock().unwrap(), by_others.lock().unwrap());
    let is_watch = |(_, what): &&(String, String)| what.contains("configmaps?&watch=");
    assert_eq!(by_watches.iter().filter(is_watch).count(), 1, "{by_watches:?}");
    assert!(by_watches.iter().all(|(thread, _)| thread == "watches"), "{by_watches:?}");
    assert!(by_others.iter().any(|(_, what)| what.starts_with("PATCH")), "{by_others:?}");
    assert_eq!(by_others.iter().filter(is_watch).count(), 0, "{by_others:?}");
    assert!(by_others.iter().all(|(thread, _)| thread != "watches"), "{by_others:?}");
}

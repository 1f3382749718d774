//! How much runs at once.

use std::{fs, time::Duration};

use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::operator::api::Processor;
use serde_json::{Value, json};

use super::{Api as Cluster, Run, TIMEOUT, compile::add, get};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_mins(10);
const COPIES: usize = 6;
/// Far more than there are threads for what waits for a disk.
const MODULES: usize = 64;
const THREADS: usize = 18;

async fn limit(cluster: &Cluster, concurrency: usize) {
    let client = Client::new(cluster.embedded.router(), "default");
    let processors: Api<Processor> = Api::namespaced(client, "platform");
    let limits = json!({"spec": {"limits": {"concurrency": concurrency}}});
    let merge = Patch::Merge(&limits);
    processors.patch("secret-copy", &PatchParams::default(), &merge).await.unwrap();
}

/// Waits until so many runs are on their way and so many wait for a place.
pub(super) async fn until(admin: &str, running: usize, ready: usize) {
    let counts = async || -> (Value, Value) {
        let (_, body) = get(admin, "/processors").await;
        let told: Value = serde_json::from_str(&body).unwrap();
        (told[0]["running"].clone(), told[0]["ready"].clone())
    };
    let reached = async {
        while counts().await != (json!(running), json!(ready)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, reached).await;
    assert!(waited.is_ok(), "not {running} running and {ready} ready, but {:?}", counts().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_follow_the_limit_of_the_processor_when_it_changes() {
    let cluster = Cluster::with_secret_copy().await;
    for number in 1..COPIES {
        let copy = json!({
            "apiVersion": "copy.mortise.dev/v1", "kind": "SecretCopy",
            "metadata": {"name": format!("copy-{number}"), "namespace": "platform"},
            "spec": {"secret": "registry", "namespaces": "team"},
        });
        cluster.embedded.load(copy, true).unwrap();
    }
    limit(&cluster, 2).await;
    let writes = Filter::default().verbs([Verb::Create, Verb::Patch]);
    let ends_never = |plural: &str| Filter { resource: Some(plural.into()), ..writes.clone() };
    for plural in ["secrets", "secretcopies"] {
        cluster.embedded.faults().inject(Fault::Latency(FOR_EVER), ends_never(plural), usize::MAX);
    }
    let run = Run::start(&cluster, &[]);
    let admin = run.event("listening")["admin"].as_str().unwrap().to_owned();
    until(&admin, 2, COPIES - 2).await;
    limit(&cluster, 4).await;
    until(&admin, 4, COPIES - 4).await;
    // Running calls go on; no new ones start.
    limit(&cluster, 1).await;
    until(&admin, 4, COPIES - 4).await;
    run.signal("-TERM");
    run.event("shutting down: no new runs start, running ones finish");
    run.signal("-TERM");
    assert_eq!(run.event("ended at once")["running"], 4);
    assert_eq!(run.wait().0.code(), Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_has_as_many_threads_as_it_is_given() {
    let cluster = Cluster::start().await;
    let workers = async |arguments: &[&str]| {
        let run = Run::start(&cluster, arguments);
        let admin = run.event("listening")["admin"].as_str().unwrap().to_owned();
        let told: Value = serde_json::from_str(&get(&admin, "/host").await.1).unwrap();
        assert_eq!(run.terminate().0.code(), Some(0));
        told["workers"].clone()
    };
    assert_eq!(workers(&["--workers=3"]).await, 3);
    assert_eq!(workers(&["--workers=1"]).await, 1);
    assert_eq!(workers(&[]).await, std::thread::available_parallelism().unwrap().get());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_do_not_follow_the_number_of_modules() {
    let cluster = Cluster::start().await;
    for number in 0..MODULES {
        add(&cluster, &format!("no-component-{number}"), &vec![0; 1 << 20]);
    }
    let run = Run::start(&cluster, &["--workers=2"]);
    let are_refused = async {
        let is_told = |of: &Value| of["status"]["conditions"].is_array();
        while !cluster.of_kind("Processor").iter().all(is_told) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, are_refused).await.expect("each has a condition");
    // One that has nothing left to do is there for some seconds more.
    let threads = fs::read_dir(format!("/proc/{}/task", run.child.id())).unwrap().count();
    assert!(threads <= THREADS, "{threads} threads for {MODULES} modules");
    let (end, said) = run.terminate();
    assert_eq!(end.code(), Some(0), "{said}");
}

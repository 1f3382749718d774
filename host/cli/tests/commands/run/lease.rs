//! Of several hosts one leads.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client,
    api::{Api, DeleteParams, Patch, PatchParams, PostParams},
};
use mortise_embedded_api::{Fault, Filter, Verb};
use mortise_host::operator::api::{FINALIZER, Processor};
use serde_json::{Value, json};

use super::{Api as Cluster, Run, TIMEOUT, get};

/// Short times: a test waits for them.
const LEASE: [&str; 8] = [
    "--leader-elect",
    "--lease-namespace=default",
    "--lease-name=l",
    "--lease-seconds=3",
    "--lease-renew-seconds=2",
    "--lease-retry-seconds=1",
    "--workers=1",
    "--drain-seconds=20",
];

fn leases(cluster: &Cluster) -> Api<Lease> {
    Api::namespaced(Client::new(cluster.embedded.router(), "default"), "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_leads_when_the_first_has_ended_or_was_killed() {
    let cluster = Cluster::start().await;
    let first = Run::start(&cluster, &LEASE);
    let identity = first.event("leading")["identity"].clone();
    let second = Run::start(&cluster, &LEASE);
    assert_eq!(second.event("another host leads")["holder"], identity);
    let waiting = Run::start(&cluster, &LEASE);
    waiting.event("another host leads");
    assert_eq!(waiting.terminate().0.code(), Some(0), "one that waits ends as well");
    let (status, said) = first.terminate();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("released the Lease"), "{said}");
    let identity = second.event("leading")["identity"].clone();
    let third = Run::start(&cluster, &LEASE);
    assert_eq!(third.event("another host leads")["holder"], identity);
    second.signal("-KILL");
    third.event("leading");
    let lease = leases(&cluster).get("l").await.unwrap().spec.unwrap();
    assert_eq!(lease.lease_transitions, Some(3));
    assert_eq!(third.terminate().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_has_lost_its_lease_ends_with_that_error() {
    let cluster = Cluster::start().await;
    let run = Run::start(&cluster, &LEASE);
    run.event("leading");
    let other = json!({"spec": {"holderIdentity": "somebody"}});
    leases(&cluster).patch("l", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    assert_eq!(run.event("the Lease `default/l` was taken by `somebody`")["level"], "ERROR");
    let (status, said) = run.wait();
    assert_eq!((status.code(), &*said), (Some(1), ""), "it is the last that is said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_fails_gives_the_lease_back() {
    let cluster = Cluster::start().await;
    let watches = Filter::resource("processors").verbs([Verb::List, Verb::Watch]);
    // Tried again, until it leads.
    cluster.embedded.faults().inject(Fault::InternalError, watches.clone(), usize::MAX);
    let run = Run::start(&cluster, &LEASE);
    run.event("leading");
    cluster.embedded.faults().clear();
    let no = Fault::Refused { code: 403, message: "not you".into() };
    cluster.embedded.faults().inject(no, watches, usize::MAX);
    run.event("a part of the host has failed: no new runs start, running ones finish");
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    let released = said.find("released the Lease").expect(&said);
    let why = said.find("this host may not get, list and watch processors: not you").expect(&said);
    assert!(released < why, "why it failed is said at the end: {said}");
    let lease = leases(&cluster).get("l").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_waits_is_ready_and_writes_nothing_until_it_leads() {
    let cluster = Cluster::with_secret_copy().await;
    let first = Run::start(&cluster, &LEASE);
    first.event("leading");
    let copied = async {
        while cluster.of_kind("Secret").len() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, copied).await.unwrap();

    let second = Run::start(&cluster, &LEASE);
    let ports = second.event("listening");
    let (public, admin) = (ports["listen"].as_str().unwrap(), ports["admin"].as_str().unwrap());
    let ready = async {
        while get(public, "/readyz").await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, ready).await.expect("a host that waits is ready, too");
    let processors: Value = serde_json::from_str(&get(admin, "/processors").await.1).unwrap();
    let of = &processors[0];
    assert_eq!((&of["name"], &of["runs"]), (&"platform/secret-copy".into(), &0.into()), "{of}");
    assert!(of["ready"].as_u64() > Some(0), "its keys wait: {of}");
    assert!(get(public, "/metrics").await.1.contains("mortise_leading 0"));
    let watches: Value = serde_json::from_str(&get(admin, "/watches").await.1).unwrap();
    assert!(watches.as_array().unwrap().iter().all(|of| of["listed"] == true), "{watches}");

    assert_eq!(first.terminate().0.code(), Some(0));
    let api: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(Client::new(cluster.embedded.router(), "default"), "shop");
    api.delete("registry", &kube::api::DeleteParams::default()).await.unwrap();
    let leading = second.event("leading");
    assert!(leading["identity"].is_string());
    let is_back = |of: Option<&k8s_openapi::api::core::v1::Secret>| of.is_some();
    let back = kube::runtime::wait::await_condition(api, "registry", is_back);
    tokio::time::timeout(TIMEOUT, back).await.unwrap().unwrap();
    assert_eq!(second.terminate().0.code(), Some(0));
}

/// A host that has loaded what it would run, and waits: somebody else holds the Lease.
async fn waiting(cluster: &Cluster) -> Run {
    let held: Lease = serde_json::from_value(json!({
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }))
    .unwrap();
    leases(cluster).create(&PostParams::default(), &held).await.unwrap();
    let run = Run::start(cluster, &LEASE);
    let public = run.event("listening")["listen"].as_str().unwrap().to_owned();
    assert_eq!(run.event("another host leads")["holder"], "somebody");
    until(async || get(&public, "/readyz").await.0 == 200).await;
    run
}

/// Somebody gives the Lease back; the host that waits leads.
async fn leads(cluster: &Cluster, run: &Run) {
    let given_back = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    leases(cluster).patch("l", &PatchParams::default(), &given_back).await.unwrap();
    run.event("leading");
}

async fn until(holds: impl AsyncFn() -> bool) {
    let until = async {
        while !holds().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, until).await.unwrap();
}

fn processors(cluster: &Cluster) -> Api<Processor> {
    Api::namespaced(Client::new(cluster.embedded.router(), "default"), "platform")
}

fn is_held(processor: &Processor) -> bool {
    processor.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_host_reports_processor_changes_made_while_it_waited() {
    let cluster = Cluster::with_secret_copy().await;
    let processors = processors(&cluster);
    let run = waiting(&cluster).await;
    let limits = Patch::Merge(json!({"spec": {"limits": {"concurrency": 2}}}));
    processors.patch("secret-copy", &PatchParams::default(), &limits).await.unwrap();
    let changed = processors.get("secret-copy").await.unwrap();
    assert!(!is_held(&changed) && changed.status.is_none(), "nothing is said before");
    leads(&cluster, &run).await;
    until(async || {
        let of = processors.get("secret-copy").await.unwrap();
        let seen = of.status.as_ref().and_then(|status| status.observed_generation);
        is_held(&of) && seen == changed.metadata.generation
    })
    .await;
    assert_eq!(run.terminate().0.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_that_was_deleted_while_a_host_waited_is_seen_to_when_it_leads() {
    let cluster = Cluster::with_secret_copy().await;
    let processors = processors(&cluster);
    let first = Run::start(&cluster, &["--once"]);
    assert_eq!(first.wait().0.code(), Some(0));
    assert_eq!(cluster.of_kind("Secret").len(), 3, "one that is copied, and two copies");
    let run = waiting(&cluster).await;
    processors.delete("secret-copy", &DeleteParams::default()).await.unwrap();
    assert!(is_held(&processors.get("secret-copy").await.unwrap()), "nobody has seen to it yet");
    leads(&cluster, &run).await;
    until(async || processors.get_opt("secret-copy").await.unwrap().is_none()).await;
    assert_eq!(cluster.of_kind("Secret").len(), 1, "what it held was seen to before");
    assert_eq!(run.terminate().0.code(), Some(0));
}

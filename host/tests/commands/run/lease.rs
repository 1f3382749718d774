//! Of several hosts one leads.

use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Api as Cluster, PATIENCE, Run, get};

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

fn leases(cluster: &Cluster) -> Api<k8s_openapi::api::coordination::v1::Lease> {
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
async fn a_host_that_waits_is_ready_and_writes_nothing_until_it_leads() {
    let cluster = Cluster::with_secret_copy().await;
    let first = Run::start(&cluster, &LEASE);
    first.event("leading");
    let copied = async {
        while cluster.of_kind("Secret").len() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, copied).await.unwrap();

    let second = Run::start(&cluster, &LEASE);
    let ports = second.event("listening");
    let (public, admin) = (ports["listen"].as_str().unwrap(), ports["admin"].as_str().unwrap());
    let ready = async {
        while get(public, "/readyz").await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("a host that waits is ready, too");
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
    tokio::time::timeout(PATIENCE, back).await.unwrap().unwrap();
    assert_eq!(second.terminate().0.code(), Some(0));
}

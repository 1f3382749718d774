//! Of several hosts one leads.

use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use serde_json::json;

use super::{Api as Cluster, Run};

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
    Api::namespaced(Client::new(cluster.api.router(), "default"), "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_leads_when_the_first_has_ended_or_was_killed() {
    let cluster = Cluster::start().await;
    let first = Run::start(&cluster, &LEASE);
    let identity = first.event("leading")["identity"].clone();
    let second = Run::start(&cluster, &LEASE);
    assert_eq!(second.event("another host leads")["holder"], identity);
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
    let (status, said) = run.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert_eq!(last, "error: the Lease `default/l` was taken by `somebody`");
}

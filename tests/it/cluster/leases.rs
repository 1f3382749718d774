//! Two hosts, one of which leads, on a real control plane: the leader is killed, or cannot renew
//! its Lease.
//!
//! resourceVersions give the order of writes: etcd counts all writes, those of Leases and of
//! objects.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{
    line::{Line, Way, Write},
    program::{Ports, Program},
    shop::{HOME, Load, Shop},
};

const DURATION: Duration = Duration::from_secs(10);
/// Long enough for a second attempt on a busy machine.
const LEASE: [&str; 7] = [
    "--leader-elect",
    "--lease-namespace",
    HOME,
    "--lease-seconds=10",
    "--lease-renew-seconds=6",
    "--lease-retry-seconds=1",
    "--workers=2",
];
const RULES: usize = 6;
/// Number of writes that show that a host works.
const MIN_WRITES: usize = 12;

/// A host, and the line to its API server.
struct Side {
    line: Line,
    host: Program,
    ports: Ports,
    identity: Value,
}

/// Two hosts, the first of which leads, and rules that change continuously.
struct Pair {
    shop: Shop,
    first: Side,
    second: Side,
    load: Load,
}

// === impl Pair ===

impl Pair {
    async fn open() -> Option<Self> {
        let shop = Shop::open().await?;
        shop.make(0..RULES).await;
        let mut first = Side::start(&shop).await;
        first.identity = first.host.event("leading").await["identity"].clone();
        let mut second = Side::start(&shop).await;
        assert_eq!(second.host.event("another host leads").await["holder"], first.identity);
        let load = shop.load(0..RULES);
        let pair = Self { shop, first, second, load };
        pair.first.writes_more().await;
        Some(pair)
    }
}

// === impl Side ===

impl Side {
    async fn start(shop: &Shop) -> Self {
        let line = Line::to(&shop.plane).await;
        let mut host = shop.host(&line, &shop.cache("shared"), &LEASE);
        let ports = host.ports().await;
        Self { line, host, ports, identity: Value::Null }
    }

    /// Waits until the host has written more objects.
    async fn writes_more(&self) {
        let enough = self.line.writes().len() + MIN_WRITES;
        self.line.until("more writes", |line| line.writes().len() >= enough).await;
    }
}

/// Returns the highest resourceVersion of some writes.
fn last_of(writes: &[Write]) -> u64 {
    writes.iter().filter_map(|write| write.version).max().unwrap()
}

/// Asserts that the first host wrote nothing after the second took the Lease, and that the second
/// wrote nothing before.
fn assert_one_after_the_other(first: &Line, second: &Line) {
    let former = last_of(&first.writes());
    let taken = &second.leases()[0];
    let version = taken.version.unwrap();
    assert!(former < version, "{former} is the first host's, the Lease was taken at {version}");
    let early: Vec<_> =
        second.writes().into_iter().filter(|write| write.sent < taken.sent).collect();
    assert!(early.is_empty(), "before the Lease was taken: {early:?}");
    let latter = last_of(&second.writes());
    println!(
        "  the first host wrote until {former}, the Lease was taken at {version}, the second wrote until {latter}"
    );
}

/// Asserts that the second host took the Lease no sooner than it had expired.
fn assert_run_out(first: &Line, second: &Line) {
    let (renewed, taken) = (first.leases().pop().unwrap().sent, second.leases()[0].sent);
    let after = taken.duration_since(renewed);
    assert!(after >= DURATION, "{after:?} after the last renewal");
    println!("  taken {after:.2?} after the last renewal, a Lease lasts {DURATION:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_host_leads_once_the_lease_of_a_killed_leader_expires() {
    let Some(Pair { shop, first, mut second, load }) = Pair::open().await else { return };
    let killed = Instant::now();
    first.host.kill();
    second.host.event("leading").await;
    println!("  the other leads {:.2?} after the kill", killed.elapsed());
    second.writes_more().await;
    println!("  {} changes, none of them lost", load.stop().await);
    shop.until_right(&second.ports).await;
    assert_run_out(&first.line, &second.line);
    assert_one_after_the_other(&first.line, &second.line);
    second.host.terminate();
    let (status, said) = second.host.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
}

/// Checks that a leader which cannot renew ends, and the other host continues its work.
async fn ends_without_renewals(way: Way) -> Option<()> {
    let Pair { shop, mut first, mut second, load } = Pair::open().await?;
    let last = last_of(&first.line.writes());
    let blocked = Instant::now();
    first.line.set(way);
    if way == Way::LeasesBlocked {
        first.line.until("it writes on", |line| last_of(&line.writes()) > last).await;
    }
    let (status, said) = first.host.ended().await;
    println!("{way:?}: the first host ends after {:.2?}", blocked.elapsed());
    assert_eq!(status.code(), Some(1), "{said}");
    let why = format!("the Lease `{HOME}/mortise` could not be renewed within 6s");
    assert!(said.lines().last().unwrap().contains(&why), "{said}");
    second.host.event("leading").await;
    println!("  the other leads after {:.2?}", blocked.elapsed());
    second.writes_more().await;
    // The requests that wait in the line belong to an ended host.
    first.line.set(Way::Open);
    second.writes_more().await;
    println!("  {} changes, none of them lost", load.stop().await);
    shop.until_right(&second.ports).await;
    assert_run_out(&first.line, &second.line);
    assert_one_after_the_other(&first.line, &second.line);
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hears_nothing_more_stops_writing_before_the_other_starts() {
    ends_without_renewals(Way::Blocked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_can_write_all_but_its_lease_stops_writing_before_the_other_starts() {
    ends_without_renewals(Way::LeasesBlocked).await;
}

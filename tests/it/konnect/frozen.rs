//! A leader that is frozen while it creates, and its successor.

use rustix::process::Signal;
use serde_json::json;

use super::{
    objects::{self, without_unique_field},
    rig::Rig,
    trap::{self, Point},
};
use crate::cluster::program::Program;

/// Short times: the test waits for them.
const LEASE: [&str; 6] = [
    "--leader-elect",
    "--lease-namespace=default",
    "--lease-name=l",
    "--lease-seconds=3",
    "--lease-renew-seconds=2",
    "--lease-retry-seconds=1",
];

/// The requests to create that are on the way when the first host is frozen, of the eight that one
/// processor sends at once.
const ON_THE_WAY: usize = 6;

/// Two hosts, the first of which leads.
struct Pair {
    rig: Rig,
    first: Program,
    second: Program,
}

// === impl Pair ===

impl Pair {
    async fn start() -> Self {
        let config = json!({"syncPeriodSeconds": 2});
        let rig = Rig::start().await.with_processor(&config, &json!({})).await;
        rig.apply(objects::shared()).await;
        let mut first = rig.host(&LEASE);
        first.event("leading").await;
        let mut second = rig.host(&LEASE);
        second.event("another host leads").await;
        Self { rig, first, second }
    }

    /// Waits until the first host is frozen, the second leads and all objects are programmed.
    async fn succeed(&mut self) {
        self.rig.trap.gone_off().await;
        self.second.event("leading").await;
        self.rig.until_programmed().await;
    }

    /// Lets the first host go on, which ends: its Lease is lost.
    async fn thaw(&mut self) {
        trap::signal(self.first.id(), Signal::CONT);
        let (status, said) = self.first.ended().await;
        assert_eq!(status.code(), Some(1), "{said}");
    }
}

/// The first host is frozen when an entity has been created and its answer is on the way, and others
/// are on the way as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_frozen_leader_has_created_is_found_by_its_successor() {
    let mut pair = Pair::start().await;
    pair.rig.trap.set(Point::Created, 9, pair.first.id(), Signal::STOP);
    pair.rig.apply(objects::round(1)).await;
    pair.succeed().await;
    pair.rig.assert_one_each();
    pair.thaw().await;
    pair.rig.assert_one_each();
}

/// The same while requests to create are on the way, of any kind but config stores: a second one of them
/// has no mark and stays (the guest's README), so theirs is there before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_each_kind_one_entity_is_left_when_a_frozen_leader_goes_on() {
    let mut pair = Pair::start().await;
    pair.rig.apply(vec![objects::control_plane(1), objects::config_store(1)]).await;
    pair.rig.until_programmed().await;
    pair.rig.trap.set(Point::Asked, ON_THE_WAY, pair.first.id(), Signal::STOP);
    pair.rig.apply(objects::round(1)).await;
    pair.succeed().await;
    pair.rig.assert_one_each();
    pair.rig.trap.release();
    pair.thaw().await;
    pair.rig.until(|| pair.rig.wrong()).await;
    pair.rig.assert_one_each();
}

/// The first host is frozen when its requests to create are on the way. They come to Konnect when
/// its successor has created the same entities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_frozen_leader_creates_after_its_successor_is_deleted() {
    let mut pair = Pair::start().await;
    pair.rig.apply(vec![objects::control_plane(1), objects::consumer(1)]).await;
    pair.rig.until_programmed().await;
    let before = pair.rig.entities();
    let objects = without_unique_field(1);
    let count = objects.len();
    pair.rig.trap.set(Point::Asked, count, pair.first.id(), Signal::STOP);
    pair.rig.apply(objects).await;
    pair.succeed().await;
    assert_eq!((pair.rig.wrong(), pair.rig.entities()), (None, before + count));
    pair.rig.trap.release();
    pair.thaw().await;
    pair.rig.until(|| pair.rig.wrong()).await;
    let deleted = pair.rig.requests("DELETE");
    assert_eq!(deleted.len(), count, "there were two of each for a while: {deleted:#?}");
}

//! The connection to a cluster: its client, its rights, and the Secret that it comes from.

use std::{sync::Arc, time::Duration};

use mortise_core::api::Outgoing;
use parking_lot::RwLock;
use ring::digest::Digest;
use serde_json::Value;
use tokio::{
    sync::{Notify, futures::Notified},
    time::sleep,
};
use tracing::debug;

use super::{Problem, elsewhere::Elsewhere};
use crate::{
    cluster::{
        Cluster, Policy,
        health::Watches,
        lease::Guard,
        remote::{Connected, Gate, gated, policy},
    },
    reason::Reason,
    share::Part,
};

/// The time without an answer after which the cluster is asked for its version, so that a cluster
/// which has gone is noticed although nobody asks it anything.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The time since the last answer of a failing cluster after which what is known of it counts as too
/// old. A cluster that hangs is told within 30 s: the heartbeat, its time limit, and this check.
const MAX_AGE: Duration = Duration::from_secs(20);

/// The time of slow answers after which the cluster is called slow.
const SLOW_PERIOD: Duration = Duration::from_secs(15);

/// A cluster that is connected to.
#[derive(Debug)]
pub(crate) struct Link {
    /// The cluster, with the rights of the kubeconfig's user.
    pub(crate) cluster: Cluster,
    pub(crate) rights: Elsewhere,
    /// The origin of the server.
    pub(super) server: String,
    /// The digest of the kubeconfig.
    pub(super) digest: Digest,
    /// The Secret, without its data.
    pub(super) secret: RwLock<Value>,
    gate: Arc<Gate>,
    /// The watches in the cluster.
    pub(crate) watches: Watches,
    /// Notified when the cluster answers again, after it had counted as unreachable.
    returned: Notify,
}

// === impl Link ===

impl Link {
    pub(super) fn new(
        name: &Arc<str>,
        connected: Connected,
        (digest, secret): (Digest, Value),
        (lease, part): (&Guard, Part),
    ) -> Self {
        let Connected { server, client } = connected;
        let (client, gate) = gated(&client, part);
        let cluster = Cluster::with_policy(client, policy()).named(name).guarded(lease);
        let rights = Elsewhere::new(&cluster);
        Self {
            cluster,
            rights,
            server,
            digest,
            secret: RwLock::new(secret),
            gate,
            watches: Watches::default(),
            returned: Notify::new(),
        }
    }

    /// Returns why what is known of the cluster is too old, if it is.
    pub(crate) fn unreachable(&self) -> Option<String> {
        self.gate.unreachable_for(MAX_AGE)
    }

    /// Returns what is wrong with a cluster that answers: a watch that fails, so that reads of its
    /// kind are unavailable, or slow answers.
    pub(super) fn problem(&self) -> Option<Problem> {
        let slow = || {
            let took = self.gate.slow_for(SLOW_PERIOD)?;
            let why = format!("`{}` takes {} s to answer", self.server, took.as_secs());
            Some(Problem::new(Reason::ClusterSlow, why))
        };
        let fails = self.watches.failure();
        fails.map(|why| Problem::new(Reason::ClusterUnreachable, why)).or_else(slow)
    }

    /// Waits until the cluster answers again, after it had counted as unreachable.
    pub(crate) fn returned(&self) -> Notified<'_> {
        self.returned.notified()
    }

    /// Asks for the version. The gate records whether there is an answer.
    async fn beat(&self) {
        // The server is not trusted: its answer is bounded in bytes and time, as any other.
        let once = Policy { attempts: 1, ..policy() };
        let cluster = Cluster { policy: once, ..self.cluster.clone() };
        let version = Outgoing::get("/version".to_owned()).to(&cluster.name);
        if let Err(refusal) = cluster.send(&version).await {
            debug!(cluster = %cluster.name, %refusal, "another cluster did not tell its version");
        }
    }

    /// Keeps the rights fresh and the connection checked. Calls `changed` when either changes.
    pub(super) async fn keep(&self, changed: impl Fn()) {
        let mut was_away = false;
        loop {
            sleep(HEARTBEAT / 4).await;
            if !self.gate.has_answered_within(HEARTBEAT) {
                self.beat().await;
            }
            let others_fail = self.watches.check(MAX_AGE);
            let is_away = self.unreachable().is_some();
            let has_changed = !is_away && self.rights.renew().await;
            if has_changed || others_fail || is_away != was_away {
                changed();
            }
            if was_away && !is_away {
                self.returned.notify_waiters();
            }
            was_away = is_away;
        }
    }
}

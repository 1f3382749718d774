//! The clusters of a host other than its home, which Secrets name: one connection for each Secret and
//! key that something uses.
//!
//! A cluster is opened when something names it, and closed when nothing has used it for a while. Its
//! Secret is watched as the account of a processor that uses it. When the kubeconfig changes, the
//! former connection is given up, with all that was read through it, before the new one is used.
//!
//! *Guarantees.* Only servers within the host's option and the grant of a using processor are
//! connected to, and never the home API server. The parts that others use here, such as the Lease,
//! are checked before each write.

mod elsewhere;
mod link;
mod remotes;
mod slot;
#[cfg(test)]
mod tests;

pub use self::remotes::Remotes;
pub(crate) use self::{link::Link, remotes::unusable};

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use mortise_core::{
    api::Outgoing, applied_fields::manager::Home, grant::Grant, reconcile::ClusterGrant,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
    time::{Instant, sleep},
};

use self::slot::Slot;
use super::{
    Cluster, bounded,
    lease::Guard,
    remote::{Connect, Inline, InvalidServer, Servers},
};
use crate::{
    reason::Reason,
    share::{self, Sum},
};

/// The number of clusters that one processor may use at once.
const MAX_OF_PROCESSOR: usize = 64;
/// The number of clusters of a host. The processors of one namespace leave some to the others.
const MAX_OF_HOST: u64 = 256;
/// The time after which a cluster that nothing has used is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// The interval between checks for clusters that nothing uses.
const IDLE_INTERVAL: Duration = Duration::from_mins(1);
/// The path of the namespace whose uid identifies a cluster.
const IDENTITY: &str = "/api/v1/namespaces/kube-system";

/// The other clusters of a host. Clones share their state.
#[derive(Clone)]
pub struct Clusters(Arc<State>);

/// The options for other clusters.
#[derive(Clone)]
pub struct Options {
    /// Makes the clients.
    pub connect: Arc<dyn Connect>,
    /// The servers that Processors may grant; none: no other cluster is used.
    pub servers: Arc<[Servers]>,
}

/// The reason why a cluster cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason of the condition.
    pub reason: Reason,
    /// The message, in one sentence, with what would be accepted.
    pub message: String,
}

/// A change of a cluster, after which runs may go otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The name stands for another cluster, or for none: all that was read there is void.
    Moved,
    /// Rights or the connection have changed.
    Circumstances,
}

type Changed = Box<dyn Fn(&Arc<str>, Change) + Send + Sync>;

struct State {
    /// The home cluster, with the host's own rights.
    home: Cluster,
    identity: Home,
    options: Options,
    lease: Guard,
    /// What has come in of answers.
    incoming: Sum,
    /// The grants of all versions, the newest last.
    all: Mutex<Vec<Weak<Remotes>>>,
    open: Mutex<BTreeMap<Arc<str>, Arc<Slot>>>,
    /// Counts the moves of all clusters.
    moves: AtomicU64,
    changed: OnceLock<Changed>,
    opened: mpsc::UnboundedSender<Arc<Slot>>,
    to_run: Mutex<Option<mpsc::UnboundedReceiver<Arc<Slot>>>>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { connect: Arc::new(Inline::default()), servers: Arc::default() }
    }
}

// === impl Problem ===

impl Problem {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

// === impl Clusters ===

impl fmt::Debug for Clusters {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Clusters").finish_non_exhaustive()
    }
}

impl Clusters {
    /// Creates the clusters of a host, none of which is open. `identity` is set before the first of
    /// them is used.
    pub(crate) fn new(home: &Cluster, identity: &Home, lease: &Guard, options: &Options) -> Self {
        let (opened, to_run) = mpsc::unbounded_channel();
        Self(Arc::new(State {
            home: home.clone(),
            identity: identity.clone(),
            options: options.clone(),
            lease: lease.clone(),
            incoming: bounded::incoming(),
            all: Mutex::default(),
            open: Mutex::default(),
            moves: AtomicU64::new(0),
            changed: OnceLock::new(),
            opened,
            to_run: Mutex::new(Some(to_run)),
        }))
    }

    /// Sets the function that is called with each change of a cluster. Only the first call has an
    /// effect.
    pub(crate) fn on_change(&self, changed: impl Fn(&Arc<str>, Change) + Send + Sync + 'static) {
        let _ = self.0.changed.set(Box::new(changed));
    }

    /// Returns the other clusters that a version of a processor may use. `account` is the home
    /// cluster with the rights of its account.
    ///
    /// # Errors
    ///
    /// Fails for servers that are none.
    pub(crate) fn of(
        &self,
        (processor, namespace): (&Arc<str>, &Arc<str>),
        granted: &[ClusterGrant],
        grant: &Arc<Grant>,
        account: &Cluster,
    ) -> Result<Arc<Remotes>, InvalidServer> {
        let granted = remotes::granted(granted)?;
        let names = (Arc::clone(processor), Arc::clone(namespace));
        let remotes = Arc::new(Remotes::new(self, names, granted, grant, account));
        let mut all = self.0.all.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&remotes));
        Ok(remotes)
    }

    /// Runs the open clusters. Fails if the task of one panics.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let opened = self.0.to_run.lock().take();
        let mut opened = opened.context("the other clusters of a host run once")?;
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                Some(slot) = opened.recv() => {
                    running.spawn(slot.run(self.clone()));
                }
                Some(ended) = running.join_next() => ended.context("a cluster failed")?,
                () = sleep(IDLE_INTERVAL) => self.close_unused(Instant::now()),
            }
        }
    }

    /// Returns the state of a cluster and its changes, for a watch with the rights of the host. Opens
    /// the cluster if need be; it stays open until this is dropped.
    ///
    /// # Errors
    ///
    /// Fails if no processor may use the cluster.
    pub(crate) fn changes(
        &self,
        cluster: &Arc<str>,
    ) -> Result<latest::Receiver<Result<Arc<Link>, Problem>>, String> {
        let all: Vec<Arc<Remotes>> = self.0.all.lock().iter().filter_map(Weak::upgrade).collect();
        let mut why = format!("cluster `{cluster}` is not used");
        for remotes in all.iter().rev() {
            match remotes.changes(cluster) {
                Ok(changes) => return Ok(changes),
                Err(problem) => why = unusable(cluster, &problem),
            }
        }
        Err(why)
    }

    /// Returns the names of the processors that use a cluster, each once.
    pub(crate) fn users_of(&self, cluster: &str) -> Vec<Arc<str>> {
        let slot = self.0.open.lock().get(cluster).cloned();
        let users = slot.map(|slot| slot.users()).unwrap_or_default();
        let mut names: Vec<Arc<str>> =
            users.iter().map(|user| Arc::clone(user.processor())).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the reasons why clusters that a processor uses cannot be used now, or are slow, with
    /// the number of those that it uses.
    pub(crate) fn state_of(&self, processor: &str) -> (usize, Vec<(Arc<str>, Problem)>) {
        let open: Vec<Arc<Slot>> = self.0.open.lock().values().cloned().collect();
        let mut count = 0;
        let mut problems = Vec::new();
        for slot in open {
            let users = slot.users();
            let Some(user) = users.iter().rev().find(|user| **user.processor() == *processor)
            else {
                continue;
            };
            count += 1;
            let problem = match slot.link_for(user) {
                Ok(link) => link.problem(),
                Err(problem) => Some(problem),
            };
            problems.extend(problem.map(|problem| (Arc::clone(slot.name()), problem)));
        }
        (count, problems)
    }

    /// Returns the open clusters, and whether each is connected and answers.
    pub(crate) fn connected(&self) -> Vec<(Arc<str>, bool)> {
        let open = self.0.open.lock();
        open.values().map(|slot| (Arc::clone(slot.name()), slot.is_connected())).collect()
    }

    /// Returns the slot of a cluster, which is opened if need be, with one more user.
    fn join(&self, cluster: &Arc<str>, user: &Arc<Remotes>) -> Result<Arc<Slot>, Problem> {
        let mut open = self.0.open.lock();
        if let Some(slot) = open.get(cluster).filter(|slot| slot.is_used_by(user)) {
            slot.touch();
            return Ok(Arc::clone(slot));
        }
        let is_new = !open.contains_key(cluster);
        check_places(&open, user, is_new)?;
        let slot = open.entry(Arc::clone(cluster)).or_insert_with(|| Slot::new(cluster));
        slot.add(user);
        if is_new {
            // Sending fails only when the host ends.
            let _ = self.0.opened.send(Arc::clone(slot));
        }
        Ok(Arc::clone(slot))
    }

    /// Closes the clusters that nothing has used for a while.
    fn close_unused(&self, now: Instant) {
        self.0.open.lock().retain(|_, slot| {
            let is_used = slot.is_used_since(now.checked_sub(IDLE_TIMEOUT));
            if !is_used {
                slot.close();
            }
            is_used
        });
    }

    /// Returns the count of moves, which only grows.
    fn moves(&self) -> u64 {
        self.0.moves.load(Ordering::Acquire)
    }

    /// Records that a cluster moves, and voids what was read there.
    fn moves_now(&self, slot: &Slot) {
        self.changed(slot.name(), Change::Moved);
        // A run that has read before the stores were closed began before this.
        let at = self.0.moves.fetch_add(1, Ordering::AcqRel) + 1;
        slot.moved(at);
    }

    /// Returns a cluster of a user that has moved since a count of moves.
    fn moved_since(&self, at: u64, user: &Arc<Remotes>) -> Option<Arc<str>> {
        if self.moves() <= at {
            return None;
        }
        let open = self.0.open.lock();
        let mut slots = open.values();
        let found = slots.find(|slot| slot.has_moved_since(at) && slot.is_used_by(user));
        found.map(|slot| Arc::clone(slot.name()))
    }

    fn changed(&self, cluster: &Arc<str>, change: Change) {
        if let Some(changed) = self.0.changed.get() {
            changed(cluster, change);
        }
    }

    /// Returns the uid by which the home cluster is known, after having asked for it once.
    async fn identity(&self) -> Result<String, Problem> {
        if let Some(known) = self.0.identity.get() {
            return Ok(known.to_owned());
        }
        match identity_of(&self.0.home, "").await {
            Ok(Some(uid)) => {
                self.0.identity.set(&uid);
                Ok(uid)
            }
            Ok(None) => Err(Problem::new(
                Reason::HomeUnknown,
                "the host may not get the namespace kube-system of its own cluster, by whose uid its fields in other clusters are known: grant it get on namespaces with resourceNames [kube-system]",
            )),
            Err(why) => Err(Problem::new(Reason::HomeUnknown, why)),
        }
    }
}

/// Fails if a processor uses as many clusters as it may, or those of its namespace do.
fn check_places(
    open: &BTreeMap<Arc<str>, Arc<Slot>>,
    user: &Remotes,
    is_new: bool,
) -> Result<(), Problem> {
    let users: Vec<Vec<Arc<Remotes>>> = open.values().map(|slot| slot.users()).collect();
    let of = |is_its: &dyn Fn(&Remotes) -> bool| {
        users.iter().filter(|users| users.iter().any(|user| is_its(user))).count()
    };
    let full = |message: String| Err(Problem::new(Reason::ClustersLimited, message));
    if of(&|other| other.processor() == user.processor()) >= MAX_OF_PROCESSOR {
        return full(format!("a processor uses at most {MAX_OF_PROCESSOR} clusters at once"));
    }
    let own = of(&|other| other.namespace() == user.namespace()) as u64 + 1;
    let all = users.len() as u64 + u64::from(is_new);
    if is_new && !share::is_within(own, all, MAX_OF_HOST) {
        let namespace = user.namespace();
        return full(format!(
            "the processors of namespace `{namespace}` use {} clusters, and leave the rest of {MAX_OF_HOST} to others",
            own - 1
        ));
    }
    Ok(())
}

/// Asks a cluster for its identity; `None` if it must not be known. Fails if there is no answer.
async fn identity_of(cluster: &Cluster, name: &str) -> Result<Option<String>, String> {
    match cluster.send(&Outgoing::get(IDENTITY.to_owned()).to(&name.into())).await {
        Ok(answer) => {
            let uid = answer.body.pointer("/metadata/uid").and_then(Value::as_str);
            Ok(uid.filter(|uid| !uid.is_empty()).map(str::to_owned))
        }
        Err(refusal) if (400..500).contains(&refusal.code) && refusal.code != 429 => Ok(None),
        Err(refusal) => Err(refusal.to_string()),
    }
}

//! The slot of a cluster: the watch of its Secret, and its connection while there is one.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, future, stream::BoxStream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt as _,
    runtime::watcher::{self, Event},
};
use mortise_core::{
    contract::{bounds::text::cluster_secret, display_ref},
    grant,
};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tokio::{
    sync::{Notify, watch as latest},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Change, Clusters, Link, Problem, Remotes, identity_of};
use crate::{
    cluster::{Guarded, guarded::refusal, remote::listed},
    reason::Reason,
};

/// The wait before a cluster that did not answer is asked again for its identity, doubled each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest such wait.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The wait after the Secret was forbidden to one version, before another watches it: what is known
/// of its rights may be older.
const FORBIDDEN_DELAY: Duration = Duration::from_secs(10);

/// The place of one cluster.
pub(super) struct Slot {
    name: Arc<str>,
    state: latest::Sender<Result<Arc<Link>, Problem>>,
    /// The versions that use the cluster, the newest last.
    users: Mutex<Vec<Weak<Remotes>>>,
    joined: Notify,
    used: Mutex<Instant>,
    /// The count of moves at the last move of this cluster.
    moved: AtomicU64,
    over: CancellationToken,
}

/// The kubeconfig as it was found, and its Secret without the data.
#[derive(Default)]
struct Found {
    /// Null if there is no Secret.
    secret: Value,
    kubeconfig: Option<Vec<u8>>,
}

/// The state of a Secret, as its watch has shown it.
#[derive(Default)]
struct Seen {
    listing: Found,
    /// `None` before the first list is complete.
    found: Option<Found>,
}

/// The work of a slot besides the watch of its Secret: connecting, and keeping the connection.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl Slot ===

impl Slot {
    pub(super) fn new(name: &Arc<str>) -> Arc<Self> {
        let waits = Problem::new(Reason::ClusterConnecting, "its Secret has not been read yet");
        Arc::new(Self {
            name: Arc::clone(name),
            state: latest::Sender::new(Err(waits)),
            users: Mutex::default(),
            joined: Notify::new(),
            used: Mutex::new(Instant::now()),
            moved: AtomicU64::new(0),
            over: CancellationToken::new(),
        })
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn users(&self) -> Vec<Arc<Remotes>> {
        self.users.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn is_used_by(&self, user: &Arc<Remotes>) -> bool {
        self.users.lock().iter().any(|one| Weak::as_ptr(one) == Arc::as_ptr(user))
    }

    pub(super) fn add(&self, user: &Arc<Remotes>) {
        let mut users = self.users.lock();
        users.retain(|one| one.strong_count() > 0);
        users.push(Arc::downgrade(user));
        drop(users);
        self.touch();
        self.joined.notify_one();
    }

    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns whether the cluster is used: by a watch, or since a time by a version that is left.
    pub(super) fn is_used_since(&self, time: Option<Instant>) -> bool {
        let is_watched = self.state.receiver_count() > 0;
        let is_recent = time.is_none_or(|time| *self.used.lock() > time);
        is_watched || is_recent && !self.users().is_empty()
    }

    pub(super) fn moved(&self, at: u64) {
        self.moved.store(at, Ordering::Release);
    }

    pub(super) fn has_moved_since(&self, at: u64) -> bool {
        self.moved.load(Ordering::Acquire) > at
    }

    pub(super) fn close(&self) {
        self.over.cancel();
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.borrow().as_ref().is_ok_and(|link| link.unreachable().is_none())
    }

    /// Returns the connection, if a user may use it.
    pub(super) fn link_for(&self, user: &Remotes) -> Result<Arc<Link>, Problem> {
        let link = self.state.borrow().clone()?;
        user.allows(&self.name, &link.server, &link.secret.read())?;
        match link.unreachable() {
            Some(why) => Err(Problem::new(Reason::ClusterUnreachable, why)),
            None => Ok(link),
        }
    }

    /// Returns the changes of the state. The cluster counts as used until this is dropped.
    pub(super) fn changes(&self) -> latest::Receiver<Result<Arc<Link>, Problem>> {
        self.state.subscribe()
    }

    /// Follows the Secret until the slot is closed.
    pub(super) async fn run(self: Arc<Self>, clusters: Clusters) {
        tokio::select! {
            () = self.over.cancelled() => {}
            () = self.follow(&clusters) => {}
        }
        self.disconnect(&clusters, Problem::new(Reason::ClusterConnecting, "it was closed"));
    }

    async fn follow(self: &Arc<Self>, clusters: &Clusters) {
        let mut task: Task = Box::pin(future::pending());
        loop {
            // The newest version has the account that the Processor names now.
            let Some(reader) = self.users().pop() else {
                self.joined.notified().await;
                continue;
            };
            let Some(mut events) = self.watch(&reader) else { return };
            let mut seen = Seen::default();
            let reader = Arc::downgrade(&reader);
            while reader.strong_count() > 0 {
                tokio::select! {
                    () = &mut task => task = Box::pin(future::pending()),
                    () = self.joined.notified() => {
                        if let Some(found) = &seen.found {
                            self.take(clusters, found, &mut task);
                        }
                    }
                    event = events.next() => match event {
                        Some(Ok(event)) => {
                            if let Some(found) = seen.take(&self.name, event) {
                                self.take(clusters, found, &mut task);
                            }
                        }
                        Some(Err(error)) => {
                            if self.failed(clusters, &reader, &error) {
                                sleep(FORBIDDEN_DELAY).await;
                                break;
                            }
                        }
                        None => break,
                    },
                }
            }
        }
    }

    /// Watches the Secret as the account of a version; `None` if the name is no cluster's.
    fn watch(
        &self,
        reader: &Remotes,
    ) -> Option<BoxStream<'static, watcher::Result<Event<Secret>>>> {
        let (namespace, name, _) = cluster_secret(&self.name)?;
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let api = |client| Api::<Secret>::namespaced(client, namespace);
        Some(Guarded::new(reader.account().client(), usize::MAX).watch(api, only))
    }

    /// Handles the error of the watch. Returns whether another version has to watch.
    fn failed(&self, clusters: &Clusters, reader: &Weak<Remotes>, error: &watcher::Error) -> bool {
        debug!(cluster = %self.name, %error, "watch of a kubeconfig failed, trying again");
        let is_forbidden = refusal(error).is_some_and(|status| status.code == 403);
        if is_forbidden {
            // It comes back when it reads again, after its rights were asked for.
            self.users.lock().retain(|one| !Weak::ptr_eq(one, reader));
        }
        // A connection stays while the API server is away, but not without the right.
        if is_forbidden && self.users().is_empty() || self.state.borrow().is_err() {
            let secret = grant::secret_of(&self.name).as_ref().map(display_ref);
            let why = format!("{} cannot be watched: {error}", secret.unwrap_or_default());
            self.disconnect(clusters, Problem::new(Reason::SecretUnreadable, why));
        }
        is_forbidden
    }

    /// Takes the kubeconfig as it is now.
    fn take(self: &Arc<Self>, clusters: &Clusters, found: &Found, task: &mut Task) {
        match self.next(clusters, found) {
            Ok(None) => {}
            Ok(Some(link)) => {
                let waits = Problem::new(
                    Reason::ClusterConnecting,
                    format!("`{}` has not answered yet", link.server),
                );
                self.disconnect(clusters, waits);
                *task = Box::pin(Arc::clone(self).connect(clusters.clone(), link));
            }
            Err(problem) => {
                *task = Box::pin(future::pending());
                self.disconnect(clusters, problem);
            }
        }
    }

    /// Returns the connection to be made; `None` if the present one stays.
    fn next(&self, clusters: &Clusters, found: &Found) -> Result<Option<Link>, Problem> {
        let missing = || {
            let (namespace, name, key) = cluster_secret(&self.name).unwrap_or_default();
            let why = if found.secret.is_null() {
                format!("there is no Secret `{namespace}/{name}`")
            } else {
                format!("the Secret `{namespace}/{name}` has no key `{key}`")
            };
            Problem::new(Reason::KubeconfigMissing, why)
        };
        let kubeconfig = found.kubeconfig.as_ref().ok_or_else(missing)?;
        let digest = digest(&SHA256, kubeconfig);
        let is_same = |link: &Arc<Link>| link.digest.as_ref() == digest.as_ref();
        let present = self.state.borrow().clone().ok().filter(is_same);
        if let Some(link) = present {
            self.check_grants(clusters, &link.server, &found.secret)?;
            *link.secret.write() = found.secret.clone();
            return Ok(None);
        }
        let connected = clusters.0.options.connect.connect(&self.name, kubeconfig);
        let connected = connected.map_err(|refused| {
            let why = format!("the kubeconfig is refused: {refused}");
            Problem::new(Reason::KubeconfigRefused, why)
        })?;
        self.check_grants(clusters, &connected.server, &found.secret)?;
        let from = (digest, found.secret.clone());
        let (namespace, ..) = cluster_secret(&self.name).unwrap_or_default();
        let part = clusters.0.incoming.part_of(namespace);
        Ok(Some(Link::new(&self.name, connected, from, (&clusters.0.lease, part))))
    }

    /// Fails unless the host and a user grant a server.
    fn check_grants(
        &self,
        clusters: &Clusters,
        server: &str,
        secret: &Value,
    ) -> Result<(), Problem> {
        let servers = &clusters.0.options.servers;
        if !servers.iter().any(|one| one.hold(server)) {
            let accepted = listed(servers);
            let why = format!("the host does not grant `{server}`; --clusters grants {accepted}");
            return Err(Problem::new(Reason::ServerNotGranted, why));
        }
        let mut refused = None;
        for user in self.users().iter().rev() {
            match user.allows(&self.name, server, secret) {
                Ok(()) => return Ok(()),
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        let nobody = || Problem::new(Reason::ServerNotGranted, "no processor uses it");
        Err(refused.unwrap_or_else(nobody))
    }

    /// Connects, and keeps the connection.
    async fn connect(self: Arc<Self>, clusters: Clusters, link: Link) {
        let mut wait = FIRST_RETRY_DELAY;
        while let Err((problem, is_final)) = self.verify(&clusters, &link).await {
            self.set(problem);
            if is_final {
                return future::pending().await;
            }
            sleep(wait).await;
            wait = wait.saturating_mul(2).min(MAX_RETRY_DELAY);
        }
        info!(cluster = %self.name, server = link.server, "connected to another cluster");
        let link = Arc::new(link);
        drop(self.state.send_replace(Ok(Arc::clone(&link))));
        let changed = || clusters.changed(&self.name, Change::Circumstances);
        changed();
        link.keep(changed).await;
    }

    /// Checks that a cluster answers and is not the home cluster. The error says whether another
    /// try is of no use.
    async fn verify(&self, clusters: &Clusters, link: &Link) -> Result<(), (Problem, bool)> {
        let home = clusters.identity().await.map_err(|problem| (problem, false))?;
        let identity = identity_of(&link.cluster, &self.name).await.map_err(|why| {
            let why = format!("`{}` does not answer: {why}", link.server);
            (Problem::new(Reason::ClusterUnreachable, why), false)
        })?;
        if identity.as_ref() == Some(&home) {
            let why = "it is the home cluster, which is written to under its own name `` only";
            return Err((Problem::new(Reason::KubeconfigRefused, why), true));
        }
        Ok(())
    }

    /// Gives the connection up, if there is one.
    fn disconnect(&self, clusters: &Clusters, problem: Problem) {
        let was_connected = self.state.borrow().is_ok();
        self.set(problem);
        if was_connected {
            clusters.moves_now(self);
        }
    }

    fn set(&self, problem: Problem) {
        let is_new = self.state.borrow().as_ref().err() != Some(&problem);
        if is_new && problem.reason != Reason::ClusterConnecting {
            warn!(cluster = %self.name, reason = %problem.reason, why = problem.message, "another cluster cannot be used");
        }
        drop(self.state.send_replace(Err(problem)));
    }
}

// === impl Seen ===

impl Seen {
    /// Takes an event of the watch. Returns the kubeconfig if it may have changed.
    fn take(&mut self, cluster: &str, event: Event<Secret>) -> Option<&Found> {
        match event {
            Event::Init => {
                self.listing = Found::default();
                return None;
            }
            Event::InitApply(secret) => {
                self.listing = Found::of(cluster, secret).unwrap_or_default();
                return None;
            }
            Event::InitDone => self.found = Some(std::mem::take(&mut self.listing)),
            Event::Apply(secret) => self.found = Some(Found::of(cluster, secret)?),
            Event::Delete(_) => self.found = Some(Found::default()),
        }
        self.found.as_ref()
    }
}

// === impl Found ===

impl Found {
    /// Reads the Secret of a cluster; `None` if it is another Secret.
    fn of(cluster: &str, mut secret: Secret) -> Option<Self> {
        let (_, name, key) = cluster_secret(cluster)?;
        if secret.name_any() != name {
            return None;
        }
        let mut data = secret.data.take().unwrap_or_default();
        let kubeconfig = data.remove(key).map(|ByteString(bytes)| bytes);
        secret.metadata.managed_fields = None;
        secret.string_data = None;
        // A Secret consists of texts and maps of texts, which JSON can represent.
        Some(Self { secret: serde_json::to_value(&secret).unwrap_or_default(), kubeconfig })
    }
}

//! Leader election: of several hosts, the one that holds a Lease writes.
//!
//! The protocol is that of client-go's leader election. The holder writes the time into the Lease
//! again and again; a host that sees no renewal for the Lease's duration takes the Lease. All
//! writes carry the `resourceVersion` that was read, so that of two hosts that take the Lease at
//! once, one is refused.
//!
//! *Guarantees*: of hosts that ask their [`Guard`] before each write, no two write at once,
//! whatever their clocks say. A waiting host measures the time without a renewal from when it saw
//! the last renewal; the holder measures the time that it holds the Lease from before it sent the
//! renewal. *Assumption*: the clocks of the hosts run equally fast, and a request is carried out
//! within [`Times::left`].
//!
//! A waiting host watches the Lease, which client-go does not do. So it sees a renewal when it
//! happens and not at its next attempt, and takes a Lease when the Lease expires, or at once when
//! it is released. A watch event only triggers a read of the Lease.

#[cfg(test)]
mod tests;

use std::{future::pending, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease as Object, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams, WatchEvent, WatchParams},
};
use mortise_core::write::Clock;
use tokio::{sync::watch as latest, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::cluster;

/// The name of a Lease, and how it is held.
#[derive(Clone)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The identity of this host in the Lease. No two hosts may have the same one.
    pub identity: String,
    /// The durations of the leader election.
    pub times: Times,
    /// The clock for the times in the Lease, which are informative only.
    pub now: Clock,
}

/// The durations of the leader election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The time without a renewal after which other hosts take the Lease. Whole seconds.
    pub duration: Duration,
    /// The time without a renewal after which the holder stops writing.
    pub renew: Duration,
    /// The time between two attempts to get or to renew the Lease.
    pub retry: Duration,
}

/// Tells whether this host may write. Cheap to clone and to query.
#[derive(Debug, Clone, Default)]
pub struct Guard(Option<latest::Receiver<Option<Instant>>>);

/// A Lease that this host holds, or tries to get.
pub struct Lease {
    api: Api<Object>,
    settings: Settings,
    /// The Lease of the last answer; `None` if it has to be read again.
    current: Option<Object>,
    seen: Option<Seen>,
    /// The time until which this host may write; `None` if it does not hold the Lease.
    until: latest::Sender<Option<Instant>>,
}

/// The Lease of another host, and the time when it expires if it is not renewed.
#[derive(Debug)]
struct Seen {
    spec: LeaseSpec,
    runs_out: Instant,
}

/// The watch for writes of a Lease.
struct Writes {
    api: Api<Object>,
    name: String,
    open: Option<BoxStream<'static, kube::Result<WatchEvent<Object>>>>,
}

/// The result of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// This host got or renewed the Lease.
    Held,
    /// The host of this identity holds the Lease.
    Taken(String),
    /// Another client wrote the Lease at the same time.
    Conflict,
}

/// The error of a host that has lost its Lease.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another host took the Lease.
    #[error("the Lease `{lease}` was taken by `{by}`")]
    Taken {
        /// The namespace and name of the Lease.
        lease: String,
        /// The identity of the other host.
        by: String,
    },

    /// The Lease could not be renewed in time.
    #[error("the Lease `{lease}` could not be renewed within {within:?}: {why}")]
    NotRenewed {
        /// The namespace and name of the Lease.
        lease: String,
        /// The time limit: [`Times::renew`].
        within: Duration,
        /// The error of the last attempt.
        why: String,
    },
}

// === impl Times ===

impl Default for Times {
    /// Returns the durations that Kubernetes' own components use.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Times {
    /// Returns how long after the last write of this host another host may begin to write.
    pub fn left(&self) -> Duration {
        self.duration.saturating_sub(self.renew)
    }
}

// === impl Guard ===

impl Guard {
    /// Returns the guard of a host that needs no Lease.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns whether this host may write now: it holds the Lease, with enough time left for a
    /// request.
    pub fn is_held(&self) -> bool {
        let held = |until: &latest::Receiver<Option<Instant>>| {
            until.borrow().is_some_and(|until| Instant::now() < until)
        };
        self.0.as_ref().is_none_or(held)
    }

    /// Returns the guard of a Lease that is not held, with the sender that changes this.
    #[cfg(test)]
    pub(crate) fn not_held() -> (latest::Sender<Option<Instant>>, Self) {
        let (until, guard) = latest::channel(None);
        (until, Self(Some(guard)))
    }

    /// Waits until this host may write for the first time. Returns at once if no Lease is needed.
    pub async fn held(&self) {
        let Some(until) = &self.0 else { return };
        if until.clone().wait_for(Option::is_some).await.is_err() {
            // The task that acquires the Lease has ended: the Lease never comes.
            pending::<()>().await;
        }
    }
}

// === impl Lease ===

impl Lease {
    /// Creates a Lease that is not requested yet, and its guard.
    pub fn new(client: Client, settings: Settings) -> (Self, Guard) {
        let (until, guard) = latest::channel(None);
        let api = Api::namespaced(client, &settings.namespace);
        (Self { api, settings, current: None, seen: None, until }, Guard(Some(guard)))
    }

    /// Acquires the Lease and holds it until `stop` is cancelled, then releases it.
    ///
    /// # Errors
    ///
    /// The Lease was held and is lost: this host must end, since it cannot know what other hosts
    /// have done since.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), Lost> {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.acquire() => {
                info!(lease = self.title(), identity = self.settings.identity, "leading");
                tokio::select! {
                    lost = self.keep() => {
                        self.until.send_replace(Some(Instant::now()));
                        return Err(lost);
                    }
                    () = stop.cancelled() => {}
                }
            }
        }
        self.release().await;
        Ok(())
    }

    /// Retries until this host holds the Lease.
    async fn acquire(&mut self) {
        info!(lease = self.title(), identity = self.settings.identity, "waiting for the Lease");
        let mut writes = Writes::new(self.api.clone(), &self.settings.name);
        let mut holder = None;
        loop {
            match self.attempt().await {
                Ok(Attempt::Held) => return,
                Ok(Attempt::Taken(by)) if holder.as_ref() != Some(&by) => {
                    info!(lease = self.title(), holder = by, "another host leads");
                    holder = Some(by);
                }
                Ok(Attempt::Taken(_) | Attempt::Conflict) => {}
                Err(error) => warn!(lease = self.title(), error, "cannot get the Lease"),
            }
            let now = Instant::now();
            let runs_out = self.seen.as_ref().map(|seen| seen.runs_out).filter(|at| now < *at);
            let again = now + self.settings.times.retry;
            tokio::select! {
                () = tokio::time::sleep_until(runs_out.map_or(again, |at| at.min(again))) => {}
                () = writes.next() => {}
            }
        }
    }

    /// Renews the Lease until it is lost.
    async fn keep(&mut self) -> Lost {
        let Times { renew, retry, .. } = self.settings.times;
        let mut why = "no attempt was answered".to_owned();
        loop {
            let until = self.until.borrow().unwrap_or_else(Instant::now);
            tokio::time::sleep_until(until.min(Instant::now() + retry)).await;
            if Instant::now() >= until {
                return Lost::NotRenewed { lease: self.title(), within: renew, why };
            }
            match self.attempt().await {
                Ok(Attempt::Held) => {}
                Ok(Attempt::Taken(by)) => return Lost::Taken { lease: self.title(), by },
                Ok(Attempt::Conflict) => "somebody else writes it".clone_into(&mut why),
                Err(error) => {
                    warn!(lease = self.title(), error, "cannot renew the Lease");
                    why = error;
                }
            }
        }
    }

    /// Makes an attempt to get or to renew the Lease, with a time limit that leaves room for
    /// another one.
    async fn attempt(&mut self) -> Result<Attempt, String> {
        let limit = self.settings.times.renew / 2;
        let attempted = tokio::time::timeout(limit, async {
            match self.attempt_once().await? {
                // Read again, the Lease shows who holds it.
                Attempt::Conflict => self.attempt_once().await,
                attempt => Ok(attempt),
            }
        });
        let attempted = attempted.await.map_err(|_| format!("no answer within {limit:?}"))?;
        attempted.map_err(|error| cluster::cause_of(&error))
    }

    async fn attempt_once(&mut self) -> kube::Result<Attempt> {
        let found = match self.current.take() {
            Some(current) => Some(current),
            None => self.api.get_opt(&self.settings.name).await?,
        };
        if let Some(found) = &found
            && let Some(holder) = self.other_holder(found)
        {
            return Ok(Attempt::Taken(holder));
        }
        let wanted = self.ours(found.as_ref());
        let sent = Instant::now();
        let written = match found {
            Some(_) => self.api.replace(&self.settings.name, &PostParams::default(), &wanted).await,
            None => self.api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(written) => {
                self.current = Some(written);
                self.until.send_replace(Some(sent + self.settings.times.renew));
                Ok(Attempt::Held)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Returns the holder of the Lease, if it is another host that has renewed it in time.
    fn other_holder(&mut self, found: &Object) -> Option<String> {
        let spec = found.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
        if holder == self.settings.identity {
            return None;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.settings.times.duration, Duration::from_secs);
        let runs_out = match &self.seen {
            Some(seen) if seen.spec == *spec => seen.runs_out,
            _ => Instant::now() + duration,
        };
        self.seen = Some(Seen { spec: spec.clone(), runs_out });
        (Instant::now() < runs_out).then(|| holder.to_owned())
    }

    /// Returns the Lease as this host writes it: held by this host from now on.
    fn ours(&self, found: Option<&Object>) -> Object {
        let now = MicroTime((self.settings.now)());
        let former = found.and_then(|found| found.spec.clone()).unwrap_or_default();
        let is_ours = former.holder_identity.as_deref() == Some(&self.settings.identity);
        let transitions = former.lease_transitions.unwrap_or_default();
        let spec = LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.times.duration.as_secs()).ok(),
            acquire_time: former.acquire_time.filter(|_| is_ours).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        };
        let metadata = match found {
            Some(found) => found.metadata.clone(),
            None => ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() },
        };
        Object { metadata, spec: Some(spec) }
    }

    /// Releases the Lease, so that another host need not wait until it expires.
    async fn release(&mut self) {
        // This host stops writing now, even if the release fails.
        self.until.send_replace(None);
        let limit = self.settings.times.renew / 2;
        match tokio::time::timeout(limit, self.give_back()).await {
            Ok(Ok(true)) => info!(lease = self.title(), "released the Lease"),
            Ok(Ok(false)) => debug!(lease = self.title(), "there is no Lease of ours to release"),
            Ok(Err(error)) => {
                let error = cluster::cause_of(&error);
                warn!(lease = self.title(), error, "cannot release the Lease: it will expire");
            }
            Err(_) => warn!(lease = self.title(), "cannot release the Lease: it will expire"),
        }
    }

    /// Releases the Lease if this host holds it. Returns whether it did.
    async fn give_back(&mut self) -> kube::Result<bool> {
        // Read again: an earlier attempt may have been cancelled before its answer came.
        let Some(mut found) = self.api.get_opt(&self.settings.name).await? else {
            return Ok(false);
        };
        let Some(spec) = &mut found.spec else { return Ok(false) };
        if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
            return Ok(false);
        }
        spec.holder_identity = None;
        spec.acquire_time = None;
        spec.renew_time = None;
        spec.lease_duration_seconds = None;
        self.api.replace(&self.settings.name, &PostParams::default(), &found).await?;
        Ok(true)
    }

    fn title(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }
}

// === impl Writes ===

impl Writes {
    fn new(api: Api<Object>, name: &str) -> Self {
        Self { api, name: name.to_owned(), open: None }
    }

    /// Waits until the Lease has been written, or may have been. Never returns if the Lease cannot
    /// be watched: the caller also waits for the time of its next attempt, and calls again.
    async fn next(&mut self) {
        if self.next_event().await.is_none() {
            self.open = None;
            pending::<()>().await;
        }
    }

    async fn next_event(&mut self) -> Option<()> {
        let open = match &mut self.open {
            Some(open) => open,
            closed @ None => {
                let of = WatchParams::default().disable_bookmarks();
                let of = of.fields(&format!("metadata.name={}", self.name));
                let opened = self.api.watch(&of, "0").await;
                let opened = opened.inspect_err(
                    |error| debug!(lease = self.name, %error, "cannot watch the Lease"),
                );
                closed.insert(opened.ok()?.boxed())
            }
        };
        match open.next().await? {
            Ok(WatchEvent::Error(_)) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }
}

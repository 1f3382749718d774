//! Which of several hosts writes: the one that holds a Lease.
//!
//! The protocol is that of client-go's leader election: the holder writes the time into the Lease again and again; who finds that nobody
//! has done so for the Lease's duration takes it. All writes carry the `resourceVersion` of what was read, so that of two that take it
//! at once one is refused.
//!
//! *Guarantees*: of hosts that ask their [`Guard`] before each write, no two write at once, whatever their clocks say: how long a Lease
//! has not been renewed is measured by who looks at it, from when it saw the last renewal; how long it is held, by its holder, from
//! before the renewal was sent. *Assumption*: their clocks run equally fast, and a request is carried out within [`Times::left`].
//!
//! Who waits for a Lease watches it, as client-go does not: it so sees a renewal when it happens and not at its next attempt, and
//! takes a Lease when that has run out, or at once when it is given back. The watch says when to look, and decides nothing.

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
use tokio::{sync::watch as latest, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{cluster, run::Clock};

#[cfg(test)]
mod tests;

/// Which Lease, and how it is held.
#[derive(Clone)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What this host calls itself in it; no two hosts may have the same.
    pub identity: String,
    /// How long what takes.
    pub times: Times,
    /// The time that is written into it, for people.
    pub now: Clock,
}

/// How long what takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// After this long without a renewal others take it. Whole seconds.
    pub duration: Duration,
    /// After this long without a renewal its holder writes nothing any more.
    pub renew: Duration,
    /// How long after one attempt to get or to renew it the next one comes.
    pub retry: Duration,
}

/// Says whether this host may write. Cheap to clone, cheap to ask.
#[derive(Debug, Clone, Default)]
pub struct Guard(Option<latest::Receiver<Option<Instant>>>);

/// A Lease that this host holds, or wants to.
pub struct Lease {
    api: Api<Object>,
    settings: Settings,
    /// As it was answered last; none where it has to be read again.
    current: Option<Object>,
    seen: Option<Seen>,
    /// Until when this host may write.
    until: latest::Sender<Option<Instant>>,
}

/// A Lease of another, and when it runs out if it stays as it is.
#[derive(Debug)]
struct Seen {
    spec: LeaseSpec,
    runs_out: Instant,
}

/// Tells when a Lease is written.
struct Writes {
    api: Api<Object>,
    name: String,
    open: Option<BoxStream<'static, kube::Result<WatchEvent<Object>>>>,
}

/// What came of one attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// It is ours, or ours for longer.
    Held,
    /// Another holds it.
    Taken(String),
    /// Somebody wrote it at the same time.
    Conflict,
}

/// The Lease is not ours any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another host took it.
    #[error("the Lease `{lease}` was taken by `{by}`")]
    Taken {
        /// Namespace and name.
        lease: String,
        /// What the other calls itself.
        by: String,
    },

    /// It could not be renewed in time.
    #[error("the Lease `{lease}` could not be renewed within {within:?}: {why}")]
    NotRenewed {
        /// Namespace and name.
        lease: String,
        /// [`Times::renew`].
        within: Duration,
        /// Of the last attempt.
        why: String,
    },
}

// === impl Times ===

impl Default for Times {
    /// Those of Kubernetes' own components.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Times {
    /// How long after the last write of this host another one may begin to write.
    pub fn left(&self) -> Duration {
        self.duration.saturating_sub(self.renew)
    }
}

// === impl Guard ===

impl Guard {
    /// Of a host that needs no Lease.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether this host may write now: it holds the Lease, and there is enough time left for a request.
    pub fn is_held(&self) -> bool {
        let held = |until: &latest::Receiver<Option<Instant>>| {
            until.borrow().is_some_and(|until| Instant::now() < until)
        };
        self.0.as_ref().is_none_or(held)
    }

    /// One of a Lease that is not held, as long as the sender says so.
    #[cfg(test)]
    pub(crate) fn not_held() -> (latest::Sender<Option<Instant>>, Self) {
        let (until, guard) = latest::channel(None);
        (until, Self(Some(guard)))
    }

    /// Waits until this host may write for the first time; at once where no Lease is needed.
    pub async fn held(&self) {
        let Some(until) = &self.0 else { return };
        if until.clone().wait_for(Option::is_some).await.is_err() {
            // Who strives for the Lease has ended: it never comes.
            pending::<()>().await;
        }
    }
}

// === impl Lease ===

impl Lease {
    /// A Lease that is not asked for yet, and what says whether it is held.
    pub fn new(client: Client, settings: Settings) -> (Self, Guard) {
        let (until, guard) = latest::channel(None);
        let api = Api::namespaced(client, &settings.namespace);
        (Self { api, settings, current: None, seen: None, until }, Guard(Some(guard)))
    }

    /// Strives for the Lease and holds it until it is told to stop; then gives it back.
    ///
    /// # Errors
    ///
    /// It was held and is not any more: this host must end, since it cannot know what others have done since.
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

    /// Tries until it is ours.
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

    /// Renews it until that does not succeed any more.
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

    /// One attempt to get it or to renew it, with a time limit that leaves room for another one.
    async fn attempt(&mut self) -> Result<Attempt, String> {
        let limit = self.settings.times.renew / 2;
        let attempted = tokio::time::timeout(limit, async {
            match self.attempt_once().await? {
                // Read anew, it tells who holds it.
                Attempt::Conflict => self.attempt_once().await,
                attempt => Ok(attempt),
            }
        });
        let attempted = attempted.await.map_err(|_| format!("no answer within {limit:?}"))?;
        attempted.map_err(|error| cluster::said(&error))
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

    /// Who holds it, if that is another, who has renewed it in time.
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

    /// The Lease as it is to be: ours, from now on.
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

    /// Gives it back, so that another one need not wait until it runs out.
    async fn release(&mut self) {
        // From now on, whatever the answer.
        self.until.send_replace(None);
        let limit = self.settings.times.renew / 2;
        match tokio::time::timeout(limit, self.give_back()).await {
            Ok(Ok(true)) => info!(lease = self.title(), "released the Lease"),
            Ok(Ok(false)) => debug!(lease = self.title(), "there is no Lease of ours to release"),
            Ok(Err(error)) => {
                let error = cluster::said(&error);
                warn!(lease = self.title(), error, "the Lease is not released, it runs out");
            }
            Err(_) => warn!(lease = self.title(), "the Lease is not released, it runs out"),
        }
    }

    /// Whether there was something to give back.
    async fn give_back(&mut self) -> kube::Result<bool> {
        // Read anew: an attempt may have been given up whose answer nobody has seen.
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

    /// Waits until the Lease has been written, or may have been. Where it cannot be watched, for ever: who waits has other reasons to
    /// look, and asks again.
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

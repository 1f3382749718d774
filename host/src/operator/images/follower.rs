//! Follows the artifacts that one Processor names.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use mortise_core::grant::rights::Account;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch as latest},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Images, Pulled, Use,
    pull::{Failed, Puller},
};
use crate::{
    cluster::Cluster,
    oci::{Digest, Reference, signature::Requirement},
    operator::{
        fault::Fault,
        retry::{FIRST_RETRY_DELAY, MAX_RETRY_DELAY, wait_after},
    },
};

/// The artifacts that a Processor wants, and its account and pull secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Wanted {
    /// The artifacts, each with its required signatures; `None` for modules from files.
    pub(in crate::operator) images: Vec<Option<(Reference, Requirement)>>,
    pub(in crate::operator) account: Account,
    /// The pull secrets, in the namespace of the account.
    pub(in crate::operator) secrets: Vec<String>,
}

/// The state of one artifact.
#[derive(Debug, Clone)]
pub(in crate::operator) enum Image {
    /// The artifact is being resolved or pulled.
    Coming,
    /// The artifact was pulled.
    Here {
        /// The artifact.
        pulled: Arc<Pulled>,
        /// Set while the registry does not resolve the tag.
        away: Option<Away>,
    },
    /// The artifact cannot be pulled.
    Failed(Fault),
}

/// A registry that does not resolve a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// The time of the first failure in a row.
    pub since: Timestamp,
    /// The error message.
    pub why: String,
}

/// Follows the artifacts of one Processor. Dropping it cancels the tasks.
pub(in crate::operator) struct Follower {
    images: Images,
    cluster: Cluster,
    name: Arc<str>,
    wanted: Option<Wanted>,
    /// In the order of `wanted`.
    slots: Slots,
    moved: latest::Sender<u64>,
    seen: latest::Receiver<u64>,
    again: Arc<Notify>,
    tasks: JoinSet<()>,
}

type Slots = Arc<Mutex<Vec<Slot>>>;

/// What is known of one artifact.
#[derive(Debug, Default)]
struct Slot {
    /// The state; `None` for a module from a file.
    state: Option<Image>,
    /// The artifact that was pulled last.
    held: Option<Arc<Pulled>>,
    /// The artifact that this host cannot load, which is not pulled again, and the reason.
    unusable: Option<(Digest, Fault)>,
}

/// The time of the next attempt, after failures. Pure: callers pass the time.
#[derive(Debug)]
struct Retry {
    /// The number of failed attempts in a row.
    attempts: u32,
    /// The earliest time of the next request to the registry.
    not_before: Instant,
}

/// An artifact that is followed.
struct Followed {
    puller: Puller,
    name: Arc<str>,
    at: usize,
    /// The digest to pull first, in place of the one that the tag names now.
    start: Option<Digest>,
    /// True once the registry has resolved the tag.
    is_resolved: bool,
    away_since: Option<Timestamp>,
    retry: Retry,
    slots: Slots,
    moved: latest::Sender<u64>,
    again: Arc<Notify>,
}

// === impl Follower ===

impl Follower {
    pub(in crate::operator) fn new(images: &Images, cluster: &Cluster, name: &Arc<str>) -> Self {
        let (moved, seen) = latest::channel(0);
        Self {
            images: images.clone(),
            cluster: cluster.clone(),
            name: Arc::clone(name),
            wanted: None,
            slots: Arc::default(),
            moved,
            seen,
            again: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Waits until the state of an artifact has changed since [`Follower::want`].
    pub(in crate::operator) async fn changed(&mut self) {
        self.seen.changed().await.expect("the sender is held here");
    }

    /// Follows these artifacts and no others, and returns the state of each. `start` returns the
    /// manifest to pull first, in place of the one that a tag names now.
    pub(in crate::operator) fn want(
        &mut self,
        wanted: Wanted,
        start: impl Fn(usize, &Reference) -> Option<Digest>,
    ) -> Vec<Option<Image>> {
        self.seen.mark_unchanged();
        if self.wanted.as_ref() == Some(&wanted) {
            let states = self.states();
            if states.iter().flatten().any(|state| matches!(state, Image::Failed(_))) {
                // The change that led to this call may have fixed the failure.
                self.again.notify_waiters();
            }
            return states;
        }
        self.follow(&wanted, start);
        self.wanted = Some(wanted);
        self.states()
    }

    fn states(&self) -> Vec<Option<Image>> {
        self.slots.lock().iter().map(|slot| slot.state.clone()).collect()
    }

    /// Gives up the artifacts of a reference, which this host cannot load: their bytes are removed,
    /// and pulled again only if the reference names others.
    pub(in crate::operator) async fn give_up(&self, reference: &str, fault: &Fault) {
        let mut manifests = BTreeSet::new();
        let wanted = self.wanted.iter().flat_map(|wanted| &wanted.images).enumerate();
        for (at, (named, _)) in wanted.filter_map(|(at, of)| Some((at, of.as_ref()?))) {
            let mut slots = self.slots.lock();
            let Some(slot) = slots.get_mut(at).filter(|_| named.to_string() == reference) else {
                continue;
            };
            let Some(Image::Here { pulled, .. }) = &slot.state else { continue };
            let unusable = Some((pulled.manifest, fault.clone()));
            manifests.insert(pulled.manifest);
            *slot = Slot { state: Some(Image::Failed(fault.clone())), held: None, unusable };
            self.images.keep(&self.name, Use::Named(at), BTreeSet::new());
        }
        self.images.release(&self.name, manifests).await;
    }

    /// Returns the state of an artifact, by its index in [`Wanted::images`].
    pub(in crate::operator) fn state(&self, at: usize) -> Option<Image> {
        self.slots.lock().get(at)?.state.clone()
    }

    /// Returns the references that registries do not resolve, and since when.
    pub(in crate::operator) fn away(&self) -> Vec<(Reference, Away)> {
        let slots = self.slots.lock();
        let away = slots.iter().filter_map(|slot| match &slot.state {
            Some(Image::Here { pulled, away: Some(away) }) => {
                Some((pulled.reference.by_tag()?, away.clone()))
            }
            _ => None,
        });
        away.collect()
    }

    fn follow(&mut self, wanted: &Wanted, start: impl Fn(usize, &Reference) -> Option<Digest>) {
        self.tasks = JoinSet::new();
        self.images.forget_use(&self.name, |of| of != Use::Runs);
        // The former tasks may still be ending: they write to the former slots.
        self.slots = Arc::default();
        let images = wanted.images.iter().enumerate();
        for (at, image) in images {
            let state = image.as_ref().map(|_| Image::Coming);
            self.slots.lock().push(Slot { state, ..Slot::default() });
            let Some((reference, requirement)) = image else { continue };
            let followed = Followed {
                puller: Puller {
                    images: self.images.clone(),
                    cluster: self.cluster.clone(),
                    wanted: wanted.clone(),
                    reference: reference.clone(),
                    requirement: requirement.clone(),
                },
                name: Arc::clone(&self.name),
                at,
                start: start(at, reference),
                is_resolved: false,
                away_since: None,
                retry: Retry::new(Instant::now()),
                slots: Arc::clone(&self.slots),
                moved: self.moved.clone(),
                again: Arc::clone(&self.again),
            };
            self.tasks.spawn(followed.run());
        }
    }
}

// === impl Retry ===

impl Retry {
    fn new(now: Instant) -> Self {
        Self { attempts: 0, not_before: now }
    }

    /// Records that an attempt begins.
    fn begins(&mut self, now: Instant) {
        self.not_before = now + FIRST_RETRY_DELAY;
    }

    /// Returns the wait after a failed attempt: twice the last one, and `most` at most, unless the
    /// registry asks for a longer one.
    fn wait(&mut self, now: Instant, asked_for: Duration, most: Duration) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.not_before = self.not_before.max(now + asked_for);
        wait_after(self.attempts).min(most).max(asked_for)
    }
}

// === impl Followed ===

impl Followed {
    async fn run(mut self) {
        loop {
            self.retry.begins(Instant::now());
            let (state, wait) = self.step().await;
            self.publish(state);
            let (again, not_before) = (Arc::clone(&self.again), self.retry.not_before);
            let asked = async {
                again.notified().await;
                // Limits the rate of requests to the registry, however often `again` is notified.
                sleep_until(not_before).await;
            };
            match wait {
                Some(wait) => tokio::select! {
                    () = sleep_until(Instant::now() + wait) => {}
                    () = asked => {}
                },
                None => asked.await,
            }
        }
    }

    /// Gets the artifact that the reference names now. Returns its state, and the wait before the
    /// next attempt; `None` after a pull by digest, which needs no other attempt.
    async fn step(&mut self) -> (Image, Option<Duration>) {
        let interval = self.puller.images.0.options.interval;
        let is_tag = self.puller.reference.digest().is_none();
        match self.attempt().await {
            Ok((pulled, None)) => {
                (self.away_since, self.retry.attempts) = (None, 0);
                // A tag is resolved soon if the artifact that ran last was used without asking the
                // registry.
                let wait =
                    if self.is_resolved { interval } else { interval.min(FIRST_RETRY_DELAY) };
                (Image::Here { pulled, away: None }, is_tag.then_some(wait))
            }
            Ok((pulled, Some(failed))) => {
                let now = &self.puller.images.0.now;
                let since = *self.away_since.get_or_insert_with(|| now());
                let wait = self.wait_after(&failed, interval.max(FIRST_RETRY_DELAY));
                let away = Some(Away { since, why: failed.words() });
                (Image::Here { pulled, away }, Some(wait))
            }
            // Only another artifact helps.
            Err(Failed::Unusable(fault)) => {
                self.retry.attempts = 0;
                (Image::Failed(fault), is_tag.then_some(interval))
            }
            Err(failed) => {
                let wait = self.wait_after(&failed, MAX_RETRY_DELAY);
                (Image::Failed(failed.fault(&self.puller.reference)), Some(wait))
            }
        }
    }

    /// Gets the artifact that the reference names now. If its tag cannot be resolved, returns the
    /// last known artifact, and the failure.
    async fn attempt(&mut self) -> Result<(Arc<Pulled>, Option<Failed>), Failed> {
        if let Some(digest) = self.puller.reference.digest() {
            return Ok((self.hold(digest).await?, None));
        }
        if let Some(start) = self.start {
            match self.hold(start).await {
                // Another error may pass: a new Pod must not run another version for it.
                Err(failed) if !failed.is_of_no_use() => return Err(failed),
                // Resolves the tag instead.
                Err(failed) => {
                    tracing::debug!(image = %self.puller.reference, why = failed.words(), "the artifact that ran last cannot be used");
                }
                Ok(pulled) => {
                    self.start = None;
                    return Ok((pulled, None));
                }
            }
            self.start = None;
        }
        let failed = match self.puller.resolve().await {
            Ok(digest) => {
                self.is_resolved = true;
                return Ok((self.hold(digest).await?, None));
            }
            Err(failed) => failed,
        };
        if let Some(held) = self.held() {
            return Ok((held, Some(failed)));
        }
        let last = self.puller.last_known().await.filter(|_| failed.is_away());
        let Some(last) = last else { return Err(failed) };
        match self.hold(last).await {
            Ok(pulled) => Ok((pulled, Some(failed))),
            Err(_) => Err(failed),
        }
    }

    /// Gets an artifact by its digest.
    async fn hold(&mut self, digest: Digest) -> Result<Arc<Pulled>, Failed> {
        let held = self.held();
        if let Some(held) = held.as_ref().filter(|held| held.manifest == digest) {
            return Ok(Arc::clone(held));
        }
        if let Some(fault) = self.unusable(digest) {
            return Err(Failed::Unusable(fault));
        }
        let images = &self.puller.images;
        let held = held.iter().map(|held| held.manifest);
        images.keep(&self.name, Use::Named(self.at), held.chain([digest]).collect());
        let pulled = Arc::new(self.puller.get(digest).await?);
        images.keep(&self.name, Use::Named(self.at), [digest].into());
        if let Some(slot) = self.slots.lock().get_mut(self.at) {
            (slot.held, slot.unusable) = (Some(Arc::clone(&pulled)), None);
        }
        Ok(pulled)
    }

    fn held(&self) -> Option<Arc<Pulled>> {
        self.slots.lock().get(self.at)?.held.clone()
    }

    fn unusable(&self, digest: Digest) -> Option<Fault> {
        let slots = self.slots.lock();
        let (manifest, fault) = slots.get(self.at)?.unusable.as_ref()?;
        (*manifest == digest).then(|| fault.clone())
    }

    /// Returns the wait before the next attempt: `most` at most, unless the registry asks for a
    /// longer one.
    fn wait_after(&mut self, failed: &Failed, most: Duration) -> Duration {
        let asked_for = match failed {
            Failed::Registry(error) => error.retry_after().unwrap_or_default(),
            Failed::Unsigned(_) | Failed::Unusable(_) | Failed::Fault(_) => Duration::ZERO,
        };
        self.retry.wait(Instant::now(), asked_for, most)
    }

    fn publish(&self, state: Image) {
        let mut slots = self.slots.lock();
        let Some(Slot { state: known, .. }) = slots.get_mut(self.at) else { return };
        let is_known = match (&known, &state) {
            (Some(Image::Here { pulled: one, away }), Image::Here { pulled: other, away: new }) => {
                one.manifest == other.manifest && away == new
            }
            (Some(Image::Failed(one)), Image::Failed(other)) => one == other,
            _ => false,
        };
        *known = Some(state);
        drop(slots);
        if !is_known {
            self.moved.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed attempt, and the wait that follows, in seconds.
    struct Case {
        /// The number of failed attempts before.
        attempts: u32,
        asked_for: u64,
        most: u64,
        expected: u64,
    }

    #[test]
    fn a_wait_doubles_up_to_a_bound_unless_the_registry_asks_for_a_longer_one() {
        let case =
            |attempts, asked_for, most, expected| Case { attempts, asked_for, most, expected };
        let cases = [
            case(0, 0, 300, 5),
            case(1, 0, 300, 10),
            case(5, 0, 300, 160),
            case(6, 0, 300, 300),
            case(40, 0, 300, 300),
            case(u32::MAX, 0, 300, 300),
            case(6, 0, 3600, 300),
            case(6, 0, 20, 20),
            case(0, 4, 300, 5),
            case(0, 7, 300, 7),
            case(2, 7, 300, 20),
            case(2, 3600, 300, 3600),
        ];
        let start = Instant::now();
        for Case { attempts, asked_for, most, expected } in cases {
            let mut retry = Retry { attempts, not_before: start };
            let [asked, most, wait] = [asked_for, most, expected].map(Duration::from_secs);
            assert_eq!(retry.wait(start, asked, most), wait, "{attempts}, {asked_for}, {most:?}");
        }
    }

    #[test]
    fn no_change_brings_a_request_forward_that_the_registry_has_put_off() {
        let start = Instant::now();
        // Seconds from the begin of the attempt to its end, what the registry asks for then, and
        // the earliest time of the next request.
        for (took, asked_for, expected) in [(0, 0, 5), (3, 0, 5), (3, 1, 5), (3, 60, 63)] {
            let [took, asked, expected] = [took, asked_for, expected].map(Duration::from_secs);
            let mut retry = Retry::new(start);
            retry.begins(start);
            retry.wait(start + took, asked, MAX_RETRY_DELAY);
            assert_eq!(retry.not_before, start + expected, "{took:?}, {asked_for}");
        }
    }
}

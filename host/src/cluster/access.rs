//! The access rights of processors' `ServiceAccount`s.
//!
//! The API server alone decides on rights: the host asks it with `SubjectAccessReview`s, sent with
//! its own account. A host with rights in one namespace asks with `SelfSubjectAccessReview`s, sent
//! as the account: these need no right of the host beyond acting as it. Answers are kept for each processor ([`Rights`]). They are renewed when an
//! object that grants rights changes, and after a minute in any case: authorizers other than RBAC
//! do not announce their changes. If the API server does not answer, its previous answer stays.
//!
//! The host does not ask about writes: they are sent as the account ([`Rights::cluster`]), and the
//! API server decides.
//!
//! The API server is first asked whether the host may act as the account at all ([`Acting`]).

mod acting;
mod change;
mod denial;
mod granted;
mod rights;
#[cfg(test)]
mod tests;

pub use acting::Acting;
pub use denial::Denials;
pub use rights::Rights;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::future::join_all;
use mortise_core::{
    contract::Description,
    grant::rights::{Account, Rights as _},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, sleep, sleep_until},
};

use self::{acting::AllActing, rights::All};
use crate::cluster::{
    Cluster,
    answers::{Fresh, Stale},
};

/// The debounce time of changes: applying a role and its binding makes two changes.
const DEBOUNCE: Duration = Duration::from_millis(250);
/// The longest wait for further changes. If changes never pause, a renewal waits four times as long
/// as the previous one took, so that renewals take at most a fifth of the time.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The delay until answers are renewed once more after a change: an API server may learn of the
/// change later than the host.
const SECOND_RENEWAL_DELAY: Duration = Duration::from_secs(2);
/// The time for which the questions of one namespace are asked in a renewal: the others are asked in
/// the next ones.
const MAX_RENEWAL_TIME: Duration = Duration::from_secs(5);
/// The maximum age of answers if no change is seen.
const MAX_ANSWER_AGE: Duration = Duration::from_mins(1);

/// The rights of all processors of a host. Clones share their state.
#[derive(Clone, Debug)]
pub struct Access(Arc<AccessState>);

#[derive(Debug)]
struct AccessState {
    /// The cluster, accessed with the host's own account.
    own: Cluster,
    /// The namespace to which the host's rights are limited, if any.
    namespace: Option<String>,
    rights: All,
    /// Limits the questions in flight: one permit each.
    asking: Arc<Semaphore>,
    acting: AllActing,
    /// The answers to ask for again; `change` wakes the task that asks.
    stale: Mutex<Stale>,
    change: Notify,
    /// True once an account is known and its rights have to be asked for.
    arrived: watch::Sender<bool>,
}

/// Renews answers when they are due or stale.
#[derive(Debug)]
pub struct Renewals {
    access: Access,
    /// The time at which all answers are renewed, even if no change is seen.
    due: Instant,
    /// The time of an earlier renewal, if any, and the answers to ask for again then.
    again: Option<(Instant, Stale)>,
    /// The duration of the last renewal.
    took: Duration,
}

// === impl Access ===

impl Access {
    /// Returns access that asks a cluster with the host's own account; with a `namespace`, as the
    /// accounts themselves.
    pub fn new(own: &Cluster, namespace: Option<String>) -> Self {
        Self(Arc::new(AccessState {
            own: own.clone(),
            namespace,
            rights: All::default(),
            asking: Arc::new(Semaphore::new(rights::MAX_IN_FLIGHT)),
            acting: AllActing::default(),
            stale: Mutex::default(),
            change: Notify::new(),
            arrived: watch::Sender::new(false),
        }))
    }

    /// Returns the rights of a processor's account, without any answer yet. The rights are renewed
    /// until they are dropped.
    pub fn of(&self, account: &Account, description: &Arc<Description>) -> Arc<Rights> {
        let rights = Arc::new(Rights::new(
            &self.0.own,
            self.acting(account),
            account,
            description,
            &self.0.rights,
            (&self.0.asking, self.0.namespace.is_some()),
        ));
        self.0.rights.lock().push(Arc::downgrade(&rights));
        rights
    }

    /// Requests a renewal of all answers: each of them may have changed.
    pub fn renew_soon(&self) {
        self.ask_again(Stale::ALL);
    }

    /// Requests a renewal of the needed questions that were never asked: the served kinds have
    /// changed.
    pub fn complete_soon(&self) {
        self.ask_again(Stale::default());
    }

    /// Requests a renewal of all answers older than now: the watch of rights starts here and has
    /// not seen earlier changes.
    fn watched_from_now(&self) {
        self.ask_again(Stale { before: Some(Instant::now()), ..Stale::default() });
    }

    fn ask_again(&self, stale: Stale) {
        let mut all = self.0.stale.lock();
        *all = all.or(stale);
        self.0.change.notify_one();
    }

    /// Waits until a processor has an account. Until then, the host asks and watches nothing.
    pub async fn needed(&self) {
        let mut arrived = self.0.arrived.subscribe();
        // `self` holds the sender, so this cannot fail.
        let _ = arrived.wait_for(|arrived| *arrived).await;
    }

    /// Returns the renewals that keep the answers fresh; see [`Renewals::next`].
    pub fn renewals(&self) -> Renewals {
        let due = Instant::now() + MAX_ANSWER_AGE;
        Renewals { access: self.clone(), due, again: None, took: Duration::ZERO }
    }

    /// Renews the stale answers, of each namespace for [`MAX_RENEWAL_TIME`]: its questions do not
    /// delay those of others. Returns the rights that have changed, and whether some answers are
    /// missing.
    async fn renew(&self, stale: Stale) -> (Vec<Arc<Rights>>, bool) {
        let acting = self.0.acting.renew().await;
        let mut namespaces: BTreeMap<String, Vec<Arc<Rights>>> = BTreeMap::new();
        for rights in self.all() {
            namespaces.entry(rights.account().namespace.clone()).or_default().push(rights);
        }
        let changed = &acting.changed;
        let renewals = namespaces.into_values().map(async |all| {
            let (mut differ, mut is_open) = (Vec::new(), false);
            let mut fresh = Fresh::until(Instant::now() + MAX_RENEWAL_TIME);
            for rights in all {
                let renewed = rights.renew(stale, &mut fresh).await;
                is_open |= renewed.unanswered;
                if renewed.changed || changed.contains(rights.account()) {
                    differ.push(rights);
                }
            }
            (differ, is_open)
        });
        let (differ, is_open): (Vec<_>, Vec<bool>) = join_all(renewals).await.into_iter().unzip();
        (differ.concat(), acting.unanswered || is_open.contains(&true))
    }

    fn all(&self) -> Vec<Arc<Rights>> {
        let mut rights = self.0.rights.lock();
        rights.retain(|rights| rights.strong_count() > 0);
        rights.iter().filter_map(Weak::upgrade).collect()
    }

    fn own(&self) -> &Cluster {
        &self.0.own
    }
}

// === impl Renewals ===

impl Renewals {
    /// Waits until the next renewal is due, makes the renewal, and returns the rights whose answers
    /// have changed. A renewal is due soon after a change of an object that grants rights, again a
    /// little later, and after a minute in any case.
    pub async fn next(&mut self) -> Vec<Arc<Rights>> {
        let again = self.again.map_or(self.due, |(at, _)| at.min(self.due));
        let is_change = tokio::select! {
            () = self.access.0.change.notified() => true,
            () = sleep_until(again) => false,
        };
        if is_change {
            sleep((self.took * 4).clamp(DEBOUNCE, MAX_PAUSE)).await;
        }
        let stale = self.take_stale(is_change);
        let begun = Instant::now();
        let (changed, is_open) = self.access.renew(stale.as_of(begun)).await;
        self.took = begun.elapsed();
        self.plan(stale, is_change, is_open.then(|| stale.as_of(begun)));
        changed
    }

    /// Takes the answers that are to be asked for again now.
    fn take_stale(&mut self, is_change: bool) -> Stale {
        let now = Instant::now();
        let mut stale = if is_change {
            std::mem::take(&mut *self.access.0.stale.lock())
        } else {
            Stale::default()
        };
        if let Some((_, again)) = self.again.take_if(|(at, _)| *at <= now) {
            stale = stale.or(again);
        }
        if self.due <= now {
            stale = stale.or(Stale::ALL);
        }
        stale
    }

    /// Sets the times of the renewals that follow the one just made; `open`: what it has left.
    fn plan(&mut self, stale: Stale, is_change: bool, open: Option<Stale>) {
        let now = Instant::now();
        if stale.all {
            self.due = now + MAX_ANSWER_AGE;
        }
        // After the first list, an API server may not know yet of rights that were granted just
        // before the list.
        let later = Stale { all: stale.all, denied: stale.before.is_some(), before: None };
        let mut again = if is_change { later } else { Stale::default() };
        again = again.or(open.unwrap_or_default());
        if again != Stale::default() || open.is_some() {
            let planned = self.again.map_or(again, |(_, planned)| planned.or(again));
            self.again = Some((now + SECOND_RENEWAL_DELAY, planned));
        }
    }
}

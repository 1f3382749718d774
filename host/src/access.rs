//! What the `ServiceAccount`s of processors may do.
//!
//! The API server is asked, by `SubjectAccessReview`s with the host's own account; there is no second opinion on rights in here.
//! Answers are kept for each processor ([`Rights`]) and renewed when something changes that rights are made of, and after a minute
//! in any case: other authorizers than RBAC tell nobody of their changes. Where the API server does not answer, what it said
//! before stands.
//!
//! Writes are not asked for: they are sent as the account ([`Rights::cluster`]), and the API server decides.
//!
//! Before all that, the API server is asked whether the host may act as the account at all ([`Acting`]).

mod acting;
mod answers;
mod denial;
mod news;
mod question;
mod rights;
#[cfg(test)]
mod tests;

pub use acting::Acting;
use acting::AllActing;
use answers::{Fresh, Stale};
pub(crate) use answers::{Permit, Place};
pub use denial::{Denial, Denials, Lack};
pub use question::Question;
use rights::All;
pub use rights::Rights;
pub(crate) use rights::Unanswered;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, sleep, sleep_until},
};

use crate::{
    cluster::{Account, Cluster},
    contract::Description,
};

/// Changes within this time are taken together: who applies a role and its binding makes two.
const TOGETHER: Duration = Duration::from_millis(250);
/// Where changes come without a pause, renewals take no more than a fifth of the time; but none waits longer than this.
const LONGEST: Duration = Duration::from_secs(2);
/// After a change the answers are renewed once more: an API server may hear of it later than we do.
const AGAIN: Duration = Duration::from_secs(2);
/// How long answers are believed without any change.
const BELIEVED: Duration = Duration::from_mins(1);

/// The rights of all processors of a host. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Access(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Acting as the host itself.
    own: Cluster,
    rights: All,
    /// A permit for each question that is on its way.
    asking: Arc<Semaphore>,
    acting: AllActing,
    /// Answers may be others now: which, and that somebody is to look.
    stale: Mutex<Stale>,
    news: Notify,
    /// Whether there were rights ever.
    arrived: watch::Sender<bool>,
}

/// Renews answers when it is time.
#[derive(Debug)]
pub struct Renewals {
    access: Access,
    /// When all answers are asked for again, whatever happens.
    due: Instant,
    /// When some are before that.
    again: Option<(Instant, Stale)>,
    /// How long the last one took.
    took: Duration,
}

// === impl Access ===

impl Access {
    /// Asks a cluster with the host's own account.
    pub fn new(own: &Cluster) -> Self {
        Self(Arc::new(Shared {
            own: own.clone(),
            rights: All::default(),
            asking: Arc::new(Semaphore::new(rights::AT_ONCE)),
            acting: AllActing::default(),
            stale: Mutex::default(),
            news: Notify::new(),
            arrived: watch::Sender::new(false),
        }))
    }

    /// The rights of a processor's account, of which nothing was asked yet. Renewed until they are dropped.
    pub fn of(&self, account: &Account, description: &Arc<Description>) -> Arc<Rights> {
        let rights = Arc::new(Rights::new(
            &self.0.own,
            self.acting(account),
            account,
            description,
            &self.0.rights,
            &self.0.asking,
        ));
        self.0.rights.lock().push(Arc::downgrade(&rights));
        rights
    }

    /// Asks for a renewal: any answer may be another by now.
    pub fn renew_soon(&self) {
        self.ask_again(Stale::ALL);
    }

    /// Asks for what is needed by now and was not asked for: other kinds are served.
    pub fn complete_soon(&self) {
        self.ask_again(Stale::default());
    }

    /// What rights are made of is watched from now on: what was asked for before may have changed unseen.
    fn watched_from_now(&self) {
        self.ask_again(Stale { before: Some(Instant::now()), ..Stale::default() });
    }

    fn ask_again(&self, stale: Stale) {
        let mut all = self.0.stale.lock();
        *all = all.or(stale);
        self.0.news.notify_one();
    }

    /// Waits until some processor has an account. Until then, nothing is asked and nothing watched.
    pub async fn needed(&self) {
        let mut arrived = self.0.arrived.subscribe();
        // The sender lives as long as this does.
        let _ = arrived.wait_for(|arrived| *arrived).await;
    }

    /// Keeps the answers fresh; see [`Renewals::next`].
    pub fn renewals(&self) -> Renewals {
        let due = Instant::now() + BELIEVED;
        Renewals { access: self.clone(), due, again: None, took: Duration::ZERO }
    }

    /// Renews the answers that are stale. Says which rights have changed, and whether some answers are missing.
    async fn renew(&self, stale: Stale) -> (Vec<Arc<Rights>>, bool) {
        let acting = self.0.acting.renew().await;
        let (mut differ, mut is_open) = (Vec::new(), acting.unanswered);
        let mut fresh = Fresh::new();
        for rights in self.all() {
            let renewed = rights.renew(stale, &mut fresh).await;
            is_open |= renewed.unanswered;
            if renewed.changed || acting.changed.contains(rights.account()) {
                differ.push(rights);
            }
        }
        (differ, is_open)
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
    /// Waits until it is time for the next renewal, and makes it: soon after a change of what rights are made of, again a little
    /// later, and after a minute. Says whose answers have changed.
    pub async fn next(&mut self) -> Vec<Arc<Rights>> {
        let again = self.again.map_or(self.due, |(at, _)| at.min(self.due));
        let is_news = tokio::select! {
            () = self.access.0.news.notified() => true,
            () = sleep_until(again) => false,
        };
        if is_news {
            sleep((self.took * 4).clamp(TOGETHER, LONGEST)).await;
        }
        let stale = self.take_stale(is_news);
        let begun = Instant::now();
        let (changed, is_open) = self.access.renew(stale).await;
        self.took = begun.elapsed();
        self.plan(stale, is_news, is_open);
        changed
    }

    /// What is asked again now.
    fn take_stale(&mut self, is_news: bool) -> Stale {
        let now = Instant::now();
        let mut stale = if is_news {
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

    /// When what is asked next, after this was.
    fn plan(&mut self, stale: Stale, is_news: bool, is_open: bool) {
        let now = Instant::now();
        if stale.all {
            self.due = now + BELIEVED;
        }
        // After the first list of what rights are made of, an API server may have yet to hear of what was granted just before.
        let later = Stale { all: stale.all, denied: stale.before.is_some(), before: None };
        let mut again = if is_news { later } else { Stale::default() };
        if is_open {
            again = again.or(stale);
        }
        if again != Stale::default() || is_open {
            let planned = self.again.map_or(again, |(_, planned)| planned.or(again));
            self.again = Some((now + AGAIN, planned));
        }
    }
}

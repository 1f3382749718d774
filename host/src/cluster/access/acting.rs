//! The host's right to act as an account: the verb `impersonate` on the `ServiceAccount`.
//!
//! Writes and watches are sent as the account, so the API server decides on them. Reads are
//! answered from stores that all processors share: without this check, the host would read for any
//! consenting account, even if the host was never granted the right to act as that account.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use futures::{StreamExt as _, stream};
use mortise_core::grant::rights::{Account, Question};
use parking_lot::Mutex;
use tokio::sync::watch as latest;

use super::{Access, rights::MAX_IN_FLIGHT};
use crate::cluster::{
    Cluster,
    answers::{SELF_REVIEWS, reviewed},
};

/// The host's right to act as one account, as the API server answered last. Renewed with the rights
/// of accounts, until it is dropped.
#[derive(Debug)]
pub struct Acting {
    account: Account,
    /// The cluster, accessed with the host's own account.
    own: Cluster,
    /// The last answer; `None` before the first one.
    granted: Mutex<Option<bool>>,
    /// Held while a question is in flight: one at a time.
    asking: tokio::sync::Mutex<()>,
}

/// The host's rights to act as all accounts that were asked for.
#[derive(Debug)]
pub(super) struct AllActing {
    by_account: Mutex<BTreeMap<Account, Weak<Acting>>>,
    changes: latest::Sender<u64>,
}

/// The result of a renewal.
#[derive(Debug, Default)]
pub(super) struct RenewedActing {
    /// The accounts whose answer has changed.
    pub(super) changed: Vec<Account>,
    /// True if the API server left a question unanswered.
    pub(super) unanswered: bool,
}

// === impl Acting ===

impl Acting {
    fn new(own: &Cluster, account: &Account) -> Self {
        let (account, own) = (account.clone(), own.clone());
        Self { account, own, granted: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Returns the last answer; `None` before the first one.
    pub fn is_granted(&self) -> Option<bool> {
        *self.granted.lock()
    }

    /// Returns the last answer; asks for it if there is none yet.
    pub async fn ask(&self) -> Option<bool> {
        let _turn = self.asking.lock().await;
        if self.is_granted().is_none()
            && let Some(answer) = self.answer().await
        {
            *self.granted.lock() = Some(answer);
        }
        self.is_granted()
    }

    /// Asks again. Without an answer, the previous one stays. Returns the previous and the new
    /// answer.
    async fn renew(&self) -> (Option<bool>, Option<bool>) {
        let _turn = self.asking.lock().await;
        let answer = self.answer().await;
        let mut granted = self.granted.lock();
        let before = *granted;
        *granted = answer.or(before);
        (before, answer)
    }

    async fn answer(&self) -> Option<bool> {
        let question = Question::impersonate(&self.account);
        match reviewed(&self.own, SELF_REVIEWS, question.self_review(), &question.cluster).await {
            Ok(allowed) => Some(allowed),
            Err(refusal) => {
                tracing::warn!(account = %self.account, %refusal, "could not ask whether this host may act as an account");
                None
            }
        }
    }

    /// Stores an answer without asking.
    #[cfg(test)]
    pub(crate) fn set_granted(&self, is_granted: bool) {
        *self.granted.lock() = Some(is_granted);
    }
}

// === impl AllActing ===

impl Default for AllActing {
    fn default() -> Self {
        Self { by_account: Mutex::default(), changes: latest::Sender::new(0) }
    }
}

impl AllActing {
    pub(super) fn of(&self, own: &Cluster, account: &Account) -> Arc<Acting> {
        let mut all = self.by_account.lock();
        if let Some(known) = all.get(account).and_then(Weak::upgrade) {
            return known;
        }
        let acting = Arc::new(Acting::new(own, account));
        all.insert(account.clone(), Arc::downgrade(&acting));
        acting
    }

    pub(super) async fn renew(&self) -> RenewedActing {
        let all: Vec<Arc<Acting>> = {
            let mut all = self.by_account.lock();
            all.retain(|_, acting| acting.strong_count() > 0);
            all.values().filter_map(Weak::upgrade).collect()
        };
        let mut renewed = RenewedActing::default();
        let renewals = all.into_iter().map(async |acting| (acting.renew().await, acting));
        let mut renewals = stream::iter(renewals).buffer_unordered(MAX_IN_FLIGHT);
        while let Some(((before, answer), acting)) = renewals.next().await {
            renewed.unanswered |= answer.is_none();
            if answer.is_some() && answer != before {
                renewed.changed.push(acting.account.clone());
            }
        }
        if !renewed.changed.is_empty() {
            self.changes.send_modify(|count| *count += 1);
        }
        renewed
    }
}

impl Access {
    /// Returns the host's right to act as an account. It is renewed until it is dropped.
    pub fn acting(&self, account: &Account) -> Arc<Acting> {
        self.0.arrived.send_replace(true);
        self.0.acting.of(&self.0.own, account)
    }

    /// Returns a counter that increases when the host's right to act as some account has changed.
    pub fn acting_changes(&self) -> latest::Receiver<u64> {
        self.0.acting.changes.subscribe()
    }
}

//! Whether the host may act as an account: the verb `impersonate` on the `ServiceAccount`.
//!
//! Writes and watches are sent as the account, so the API server judges them. Reads are answered from stores that all processors
//! share: without this question, an account that consents would be read for though nobody has let the host be it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch as latest;

use super::Access;
use crate::cluster::{Account, Cluster, Method, Outgoing};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Whether the host may act as one account, as the API server said last. Renewed with the rights of accounts, until it is dropped.
#[derive(Debug)]
pub struct Acting {
    account: Account,
    /// Acting as the host itself.
    own: Cluster,
    /// None: it was never answered.
    told: Mutex<Option<bool>>,
    /// Of one question at a time.
    asking: tokio::sync::Mutex<()>,
}

/// All accounts that were asked for.
#[derive(Debug)]
pub(super) struct AllActing {
    by_account: Mutex<BTreeMap<Account, Weak<Acting>>>,
    changes: latest::Sender<u64>,
}

/// What came of a renewal.
#[derive(Debug, Default)]
pub(super) struct RenewedActing {
    /// The accounts for which the answer is another.
    pub(super) changed: Vec<Account>,
    /// Whether the API server has left something open.
    pub(super) unanswered: bool,
}

// === impl Acting ===

impl Acting {
    fn new(own: &Cluster, account: &Account) -> Self {
        let (account, own) = (account.clone(), own.clone());
        Self { account, own, told: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The last answer; none where there was none yet.
    pub fn is_granted(&self) -> Option<bool> {
        *self.told.lock()
    }

    /// The last answer; asks where there was none yet.
    pub async fn ask(&self) -> Option<bool> {
        let _turn = self.asking.lock().await;
        if self.is_granted().is_none()
            && let Some(answer) = self.answer().await
        {
            *self.told.lock() = Some(answer);
        }
        self.is_granted()
    }

    /// Asks again. Without an answer, the former one stands. Returns the answers before and now.
    async fn renew(&self) -> (Option<bool>, Option<bool>) {
        let _turn = self.asking.lock().await;
        let answer = self.answer().await;
        let mut told = self.told.lock();
        let before = *told;
        *told = answer.or(before);
        (before, answer)
    }

    async fn answer(&self) -> Option<bool> {
        let Account { namespace, name } = &self.account;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {
                "group": "", "resource": "serviceaccounts", "verb": "impersonate",
                "namespace": namespace, "name": name,
            }},
        });
        let asked = Outgoing::new(Method::Post, REVIEWS.to_owned(), Some(review));
        match self.own.send(&asked).await {
            Ok(answer) => {
                let allowed = answer.body.pointer("/status/allowed").and_then(Value::as_bool);
                Some(allowed.unwrap_or_default())
            }
            Err(refusal) => {
                tracing::warn!(account = %self.account, %refusal, "could not ask whether this host may act as an account");
                None
            }
        }
    }

    /// Has an answer without asking.
    #[cfg(test)]
    pub(crate) fn tell(&self, is_granted: bool) {
        *self.told.lock() = Some(is_granted);
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
        for acting in all {
            let (before, answer) = acting.renew().await;
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
    /// Whether the host may act as an account. Renewed until it is dropped.
    pub fn acting(&self, account: &Account) -> Arc<Acting> {
        self.0.arrived.send_replace(true);
        self.0.acting.of(&self.0.own, account)
    }

    /// A number that moves when the host may act as other accounts than before.
    pub fn acting_changes(&self) -> latest::Receiver<u64> {
        self.0.acting.changes.subscribe()
    }
}

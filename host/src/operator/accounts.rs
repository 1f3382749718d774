//! The known `ServiceAccount`s, and the Processors that each consents to.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{ResourceExt as _, api::ApiResource, runtime::watcher::Event};
use mortise_core::{
    api::{Method, Outgoing},
    grant::rights::Account,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch as latest;

use super::fault::Fault;
use crate::{
    cluster::{
        Cluster,
        lean::{self, LeanMetadata},
    },
    operator::api::CONSENT,
    reason::Reason,
};

/// The consent to every Processor of the namespace.
const EVERY_PROCESSOR: &str = "*";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The known accounts, and the changes of their consent.
#[derive(Debug)]
pub(super) struct Accounts {
    /// The user name of the host at the API server.
    me: String,
    known: Mutex<Known>,
    changes: latest::Sender<u64>,
}

/// The Processors that each account names, in a label and in an annotation.
#[derive(Debug, Default)]
struct Known {
    listed: bool,
    accounts: BTreeMap<Account, Vec<String>>,
    /// The accounts of the list that the watch is delivering.
    coming: BTreeMap<Account, Vec<String>>,
}

// === impl Accounts ===

impl Accounts {
    /// Asks the API server for the user name of the host. No account is known yet.
    pub(super) async fn build(cluster: &Cluster) -> anyhow::Result<Self> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let asked = Outgoing::new(Method::Post, SELF.to_owned(), Some(review));
        let answer = cluster.send(&asked).await.map_err(|refusal| {
            anyhow::anyhow!("cannot ask the API server who this host is (create of selfsubjectreviews): {refusal}")
        })?;
        let me = answer.body.pointer("/status/userInfo/username").and_then(|name| name.as_str());
        let me = me.unwrap_or_default().to_owned();
        Ok(Self { me, known: Mutex::default(), changes: latest::Sender::new(0) })
    }

    /// Returns a number that changes when an account is added or removed, or changes its consent.
    pub(super) fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until the first list of accounts is complete.
    pub(super) async fn listed(&self) {
        let mut changes = self.changes();
        while !self.known.lock().listed {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Fails if a Processor may not act as an account: the account is the host's own, does not
    /// exist, or does not consent.
    pub(super) fn check(&self, account: &Account, processor: &str) -> Result<(), Fault> {
        let Account { namespace, name } = account;
        if account.user() == self.me {
            let message = format!(
                "the ServiceAccount `{name}` is the host's own: name one that has the processor's rights and no others"
            );
            return Err(Fault::new(Reason::AccountIsHosts, message));
        }
        let known = self.known.lock();
        let Some(consents) = known.accounts.get(account) else {
            let message = format!(
                "there is no ServiceAccount `{name}` in the namespace `{namespace}`: make it, with the label {CONSENT}: {processor}"
            );
            return Err(Fault::new(Reason::AccountNotFound, message));
        };
        if consents.iter().any(|named| named == EVERY_PROCESSOR || named == processor) {
            return Ok(());
        }
        let message = format!(
            "the ServiceAccount `{name}` does not consent: give it the label {CONSENT}: {processor}, or that annotation with this name or \"{EVERY_PROCESSOR}\""
        );
        Err(Fault::new(Reason::AccountDoesNotConsent, message))
    }

    /// Watches accounts. Ends only with an error: the host may not watch them, or the watch ended.
    pub(super) async fn watch(
        &self,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> anyhow::Result<()> {
        let resource = ApiResource::erase::<ServiceAccount>(&());
        let mut events = lean::all::<false>(cluster, &resource, namespace);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.take(event),
                Err(error) => super::failed("serviceaccounts", &error, self.known.lock().listed)?,
            }
        }
        anyhow::bail!("the watch of ServiceAccounts ended")
    }

    fn take(&self, event: Event<LeanMetadata>) {
        let mut known = self.known.lock();
        let moved = match event {
            Event::Init => {
                known.coming.clear();
                false
            }
            Event::InitApply(object) => {
                if let Some((account, consents)) = read(&object) {
                    known.coming.insert(account, consents);
                }
                false
            }
            Event::InitDone => {
                let listed = std::mem::replace(&mut known.listed, true);
                let coming = std::mem::take(&mut known.coming);
                let before = std::mem::replace(&mut known.accounts, coming);
                !listed || before != known.accounts
            }
            Event::Apply(object) => read(&object).is_some_and(|(account, consents)| {
                known.accounts.insert(account, consents.clone()) != Some(consents)
            }),
            Event::Delete(object) => {
                read(&object).is_some_and(|(account, _)| known.accounts.remove(&account).is_some())
            }
        };
        drop(known);
        if moved {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Returns an account and the Processors that it names.
fn read(object: &LeanMetadata) -> Option<(Account, Vec<String>)> {
    let account = Account { namespace: object.namespace()?, name: object.name_any() };
    let named = [object.labels().get(CONSENT), object.annotations().get(CONSENT)];
    Some((account, named.into_iter().flatten().cloned().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> Account {
        Account { namespace: "a".into(), name: name.into() }
    }

    fn object(name: &str, metadata: &serde_json::Value) -> LeanMetadata {
        let mut object = json!({"metadata": {"name": name, "namespace": "a"}});
        let fields = metadata.as_object().unwrap().clone();
        object["metadata"].as_object_mut().unwrap().extend(fields);
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn accounts() -> Accounts {
        let me = "system:serviceaccount:a:host".to_owned();
        let accounts = Accounts { me, known: Mutex::default(), changes: latest::Sender::new(0) };
        accounts.take(Event::Init);
        let named = |value: &str| json!({CONSENT: value});
        let objects = [
            object("by-label", &json!({"labels": named("rules")})),
            object("by-annotation", &json!({"annotations": named("rules")})),
            object("any", &json!({"annotations": named("*")})),
            object("other", &json!({"labels": named("others")})),
            object("none", &json!({})),
            object("host", &json!({"annotations": named("*")})),
        ];
        for object in objects {
            accounts.take(Event::InitApply(object));
        }
        accounts.take(Event::InitDone);
        accounts
    }

    #[test]
    fn an_account_consents_by_name_or_to_all_and_never_the_host_s_own() {
        let accounts = accounts();
        let cases = [
            ("by-label", None),
            ("by-annotation", None),
            ("any", None),
            ("other", Some(Reason::AccountDoesNotConsent)),
            ("none", Some(Reason::AccountDoesNotConsent)),
            ("gone", Some(Reason::AccountNotFound)),
            ("host", Some(Reason::AccountIsHosts)),
        ];
        for (name, reason) in cases {
            let fault = accounts.check(&account(name), "rules").err();
            assert_eq!(fault.as_ref().map(|fault| fault.reason), reason, "{name}");
            if let Some(fault) = fault {
                assert!(fault.message.contains(&format!("`{name}`")), "{}", fault.message);
            }
        }
    }

    #[test]
    fn an_update_notifies_only_if_it_changes_the_consent() {
        let accounts = accounts();
        let changes = accounts.changes();
        let named = json!({"labels": {CONSENT: "rules"}, "resourceVersion": "2"});
        accounts.take(Event::Apply(object("by-label", &named)));
        assert!(!changes.has_changed().unwrap());
        accounts.take(Event::Apply(object("by-label", &json!({}))));
        assert!(changes.has_changed().unwrap());
        assert_eq!(
            accounts.check(&account("by-label"), "rules").unwrap_err().reason,
            Reason::AccountDoesNotConsent
        );
        accounts.take(Event::Delete(object("any", &json!({}))));
        assert_eq!(
            accounts.check(&account("any"), "rules").unwrap_err().reason,
            Reason::AccountNotFound
        );
    }
}

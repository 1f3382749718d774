//! The Processors behind field managers: fields of a Processor that is gone have no owner.
//!
//! *Guarantee.* A manager counts as gone only if that is certain: this host would run its
//! Processor, but the API server has no such Processor, or the Processor runs here without that key
//! (decision 0043).

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use futures::{FutureExt as _, future::BoxFuture};
use mortise_core::{
    api::Outgoing,
    applied_fields::manager::{self, Parts},
    resource::{Pages, encoded},
    write::FieldOwners,
};
use serde_json::Value;

use crate::{cluster::Cluster, host::Host};

const PROCESSORS: &str = "/apis/mortise.dev/v1alpha1";

/// The Processors of this host, as owners of fields.
pub(super) struct Owners {
    /// The cluster, accessed with the host's own account.
    cluster: Cluster,
    host: Weak<Host>,
    /// The namespace whose Processors this host runs; `None`: all namespaces.
    namespace: Option<String>,
}

impl FieldOwners for Owners {
    fn is_gone<'a>(&'a self, manager: &'a str) -> BoxFuture<'a, bool> {
        self.is_alive(manager).map(|is_alive| is_alive == Some(false)).boxed()
    }
}

impl Owners {
    pub(super) fn new(cluster: &Cluster, host: &Arc<Host>, namespace: Option<&str>) -> Self {
        let namespace = namespace.map(str::to_owned);
        Self { cluster: cluster.clone(), host: Arc::downgrade(host), namespace }
    }

    /// Returns whether the key behind a manager is alive; `None` if that is not known.
    async fn is_alive(&self, manager: &str) -> Option<bool> {
        let parts = manager::parts(manager)?;
        let host = self.host.upgrade()?;
        let mut names = self.processors(&parts).await?;
        // The last runs of a Processor that is gone may be about to write.
        names.extend(host.processors_of(parts.owner()));
        for name in names {
            if host.may_own(&name, &parts).await {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Returns the names of the Processors that a manager may belong to, from the API server;
    /// `None` if it does not answer, or if another host may run them.
    async fn processors(&self, of: &Parts<'_>) -> Option<BTreeSet<Arc<str>>> {
        let is_ours =
            |own: &String| of.owner().strip_prefix(own).is_some_and(|rest| rest.starts_with('/'));
        if !self.namespace.as_ref().is_none_or(is_ours) {
            return None;
        }
        match of.processor() {
            Some((namespace, name)) => self.processor(namespace, name).await,
            None => self.all_of(of.owner()).await,
        }
    }

    async fn processor(&self, namespace: &str, name: &str) -> Option<BTreeSet<Arc<str>>> {
        // Names of managers are untrusted text: no object has a name with other characters.
        let can_be_name = |text: &str| {
            let is_right = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
            };
            !text.is_empty() && text.bytes().all(is_right)
        };
        if !can_be_name(namespace) || !can_be_name(name) {
            return Some(BTreeSet::new());
        }
        let path =
            format!("{PROCESSORS}/namespaces/{}/processors/{}", encoded(namespace), encoded(name));
        match self.cluster.send(&Outgoing::get(path)).await {
            Ok(_) => Some([format!("{namespace}/{name}").into()].into()),
            Err(refusal) if refusal.code == 404 => Some(BTreeSet::new()),
            Err(_) => None,
        }
    }

    /// Returns the Processors whose names, shortened for field managers, equal `owner`.
    async fn all_of(&self, owner: &str) -> Option<BTreeSet<Arc<str>>> {
        let place = self.namespace.as_ref();
        let place = place.map(|of| format!("/namespaces/{}", encoded(of))).unwrap_or_default();
        let mut found = BTreeSet::new();
        let mut pages = Pages::of(&format!("{PROCESSORS}{place}/processors"), None);
        loop {
            let list = Outgoing { metadata_only: true, ..Outgoing::get(pages.path()) };
            let list = self.cluster.send(&list).await.ok()?.body;
            for object in list.get("items")?.as_array()? {
                let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
                let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
                if manager::owner_of(namespace, name) == owner {
                    found.insert(format!("{namespace}/{name}").into());
                }
            }
            if !pages.turn(&list) {
                return Some(found);
            }
        }
    }
}

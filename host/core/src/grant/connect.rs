//! The clusters that a processor may use: those of which a declared read selects the Secret.

use std::sync::Arc;

use serde_json::Value;

use super::{Denied, Grant, Invalid, Readable, accepted, declared::ANY, numbered};
use crate::contract::{
    Description, Kind, ObjectRef, Verbs, bounds::text::cluster_secret, display_ref,
};

impl Grant {
    /// Fails unless a declared read selects the Secret that a cluster is named by, judged by its
    /// names alone. The home cluster needs none.
    pub fn may_connect(&self, cluster: &str) -> Result<(), Denied> {
        if cluster.is_empty() || self.secrets_of(cluster).next().is_some() {
            return Ok(());
        }
        let kind = Arc::new(secrets());
        let wanted = secret_of(cluster).as_ref().map_or_else(|| cluster.to_owned(), display_ref);
        let of_secrets = self.reads.iter().map(|read| &read.of).filter(|of| of.is_of(&kind));
        Err(Denied {
            wanted: format!("a read of {wanted}, by which a cluster is named,"),
            accepted: accepted("reads of Secrets", of_secrets.map(ToString::to_string)),
            missing: Verbs::empty(),
            kind,
        })
    }

    /// Returns whether a declared read selects the Secret of a cluster as it is, with its labels
    /// and fields.
    pub fn selects_secret(&self, cluster: &str, secret: &Value) -> bool {
        self.secrets_of(cluster).any(|read| read.of.holds(secret))
    }

    fn secrets_of(&self, cluster: &str) -> impl Iterator<Item = &Arc<Readable>> {
        let secret = secret_of(cluster);
        self.reads
            .iter()
            .filter(move |read| secret.as_ref().is_some_and(|secret| read.of.could_hold(secret)))
    }

    /// Fails for a description with a cluster that it must not use.
    pub(super) fn check_clusters(&self, description: &Description) -> Result<(), Invalid> {
        let (reconcilers, reads, writes) = description.declared();
        let reconcilers = numbered("reconcilers", reconcilers);
        let reconcilers = reconcilers.map(|(at, one)| (format!("{at}.of.cluster"), &one.of));
        let reads = numbered("reads", reads).map(|(at, one)| (format!("{at}.cluster"), one));
        let writes = numbered("writes", writes);
        let writes = writes.map(|(at, one)| (format!("{at}.of.cluster"), &one.of));
        let all = reconcilers.chain(reads).chain(writes);
        for (place, of) in all.filter(|(_, of)| &*of.kind.cluster != ANY) {
            let may = self.may_connect(&of.kind.cluster);
            may.map_err(|denied| Invalid::OtherCluster { place, denied })?;
        }
        Ok(())
    }
}

/// Returns the kind of the Secrets of the home cluster.
fn secrets() -> Kind {
    Kind::home("", "v1", "Secret")
}

/// Returns the Secret that a cluster is named by; `None` if the text names no other cluster.
pub fn secret_of(cluster: &str) -> Option<ObjectRef> {
    let (namespace, name, _) = cluster_secret(cluster)?;
    let namespace = Some(namespace.to_owned());
    Some(ObjectRef { kind: secrets().into(), namespace, name: name.to_owned() })
}

//! The Secret with the certificate.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use certificate::{Chain, chain::authorities};
use mortise_sdk::{
    Error, Host, Manifest, ObjectRef,
    kubernetes::Secret,
    object::{Metadata, Object as _},
};
use serde_json::{Map, Value, json};

use crate::config::Name;

/// The fields that are read of the Secret.
pub(crate) const FIELDS: [&str; 5] = [
    "data[\"ca.crt\"]",
    "data[\"next.crt\"]",
    "data[\"next.key\"]",
    "data[\"tls.crt\"]",
    "data[\"tls.key\"]",
];
/// The fields that are written of the Secret.
pub(crate) const WRITTEN: [&str; 7] = [
    "data[\"ca.crt\"]",
    "data[\"next.crt\"]",
    "data[\"next.key\"]",
    "data[\"tls.crt\"]",
    "data[\"tls.key\"]",
    "metadata.labels[\"kyma-project.io/module\"]",
    "metadata.ownerReferences",
];

/// A certificate for a server and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The server's certificate and its authority's, in PEM.
    pub chain: String,
    /// The server's private key, in PEM.
    pub key: String,
}

/// Prints the certificates, never the key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The pair that servers use: keys `tls.crt` and `tls.key`.
    pub current: Option<Pair>,
    /// The pair that follows it, while its authority is announced: `next.crt` and `next.key`.
    pub next: Option<Pair>,
    /// The authorities that clients have to trust, in PEM: `ca.crt`. A Secret of the original has
    /// none.
    pub bundle: Option<String>,
}

// === impl Stored ===

impl Stored {
    pub(crate) fn read(host: &Host, name: &Name) -> Result<Self, Error> {
        let secret = host.get::<Secret>(Some(&name.namespace), &name.name, &FIELDS)?;
        Ok(secret.map(|secret| Self::of(&secret)).unwrap_or_default())
    }

    fn of(secret: &Secret) -> Self {
        let text = |key: &str| String::from_utf8(STANDARD.decode(secret.data.get(key)?).ok()?).ok();
        let pair = |chain, key| Some(Pair { chain: text(chain)?, key: text(key)? });
        Self {
            current: pair("tls.crt", "tls.key"),
            next: pair("next.crt", "next.key"),
            bundle: text("ca.crt"),
        }
    }

    /// Returns the authority of the pair that servers use.
    pub(crate) fn authority(&self) -> Option<String> {
        Chain::read(&self.current.as_ref()?.chain).ok()?.authority()
    }

    /// Returns what clients have to trust so that they can use the current pair: the bundle, or, as
    /// in the original, the chain if there is no bundle for it. `None` if there is no pair.
    pub(crate) fn trusted(&self) -> Option<String> {
        let authority = self.authority()?;
        let bundle = self.bundle.as_ref().filter(|bundle| holds(bundle, &authority));
        bundle.or(self.current.as_ref().map(|pair| &pair.chain)).cloned()
    }

    /// Returns the Secret with this content. It belongs to no other object: the original's
    /// Deployment, which owned it, may go.
    pub(crate) fn manifest(&self, name: &Name) -> Manifest {
        let mut data = Map::new();
        let mut add = |key: &str, text: &str| {
            data.insert(key.to_owned(), Value::String(STANDARD.encode(text)));
        };
        for (pair, chain, key) in
            [(&self.current, "tls.crt", "tls.key"), (&self.next, "next.crt", "next.key")]
        {
            if let Some(pair) = pair {
                add(chain, &pair.chain);
                add(key, &pair.key);
            }
        }
        if let Some(bundle) = &self.bundle {
            add("ca.crt", bundle);
        }
        let of = ObjectRef::of::<Secret>(Some(&name.namespace), &name.name);
        let metadata = Metadata::new(&of.name)
            .namespace(&name.namespace)
            .label("kyma-project.io/module", "api-gateway");
        let secret = json!({"metadata": metadata, "data": data});
        Manifest::with_kind(&Secret::kind(), &secret).absent("metadata.ownerReferences")
    }
}

/// Returns whether a bundle in PEM holds an authority.
pub(crate) fn holds(bundle: &str, authority: &str) -> bool {
    authorities(bundle).is_ok_and(|held| held.iter().any(|held| held == authority))
}

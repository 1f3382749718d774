//! The kind that a new guest reconciles.

use mortise_core::contract::{
    self, Kind,
    bounds::text::{is_label, is_version},
};
use mortise_embedded_api::EmbeddedApi;
use mortise_host::cluster::Cluster;

use super::{Error, example};
use crate::local;

/// The default group of a guest's own kind.
const GROUP: &str = "example.com";

/// The kind that a new guest reconciles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    /// The kind's name in URLs.
    pub(super) plural: String,
    pub(super) origin: Origin,
}

/// The origin of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The guest's own kind: its CRD is made from the guest's types.
    Own,
    /// A kind that Kubernetes has.
    BuiltIn {
        /// True if objects of the kind are in namespaces.
        namespaced: bool,
    },
}

// === impl Subject ===

impl Subject {
    /// Returns the requested kind, or by default a kind of the guest's own with the guest's name.
    pub(super) async fn of(name: &str, kind: Option<&str>) -> Result<Self, Error> {
        let Some(text) = kind else {
            let kind = Kind::home(GROUP, "v1", camel_case(name));
            return Ok(Self::own(kind));
        };
        let kind = parse(text).ok_or_else(|| Error::Kind { text: text.to_owned() })?;
        let api = EmbeddedApi::new(mortise_embedded_api::Options::default());
        let cluster = Cluster::new(kube::Client::new(api.router(), "default"));
        let no_such_kind = |hint| Error::NoSuchKind { text: text.to_owned(), hint };
        match cluster.resolve(&kind).await {
            Ok(Some(_)) if !example::has(&kind.kind) => {
                Err(Error::NoExample { text: text.to_owned() })
            }
            Ok(Some(resource)) => Ok(Self {
                kind,
                plural: resource.plural.clone(),
                origin: Origin::BuiltIn { namespaced: resource.namespaced },
            }),
            Ok(None) if is_own_group(&kind.group) => Ok(Self::own(kind)),
            Ok(None) => Err(no_such_kind(hint(&api, &kind))),
            Err(unavailable) => Err(no_such_kind(format!(" ({unavailable})"))),
        }
    }

    fn own(kind: Kind) -> Self {
        Self { plural: local::plural(&kind), kind, origin: Origin::Own }
    }

    /// Returns the kind's `apiVersion`.
    pub(super) fn api_version(&self) -> String {
        contract::api_version(&self.kind)
    }
}

/// Parses `GROUP/VERSION/KIND`, or `VERSION/KIND` for the core group.
fn parse(text: &str) -> Option<Kind> {
    let (api_version, kind) = text.rsplit_once('/')?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let is_group = group.is_empty() && !text.starts_with('/') || group.split('.').all(is_label);
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.len() <= 63
        && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_group && is_version(version) && is_kind).then(|| Kind::home(group, version, kind))
}

/// Returns whether a CRD may have this group: it must be a domain, and `k8s.io` is reserved for
/// Kubernetes.
fn is_own_group(group: &str) -> bool {
    let reserved = ["k8s.io", "kubernetes.io"];
    group.contains('.')
        && !reserved.iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

fn hint(api: &EmbeddedApi, kind: &Kind) -> String {
    match api.preferred_version(&kind.group, &kind.kind) {
        Some(version) if kind.group.is_empty() => format!(", but `{version}/{}`", kind.kind),
        Some(version) => format!(", but `{}/{version}/{}`", kind.group, kind.kind),
        None => String::new(),
    }
}

/// Converts `my-guest` to a kind: `MyGuest`.
pub(super) fn camel_case(name: &str) -> String {
    name.split('-')
        .map(|part| {
            let mut letters = part.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_ascii_uppercase().to_string() + letters.as_str()
            })
        })
        .collect()
}

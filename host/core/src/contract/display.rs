//! The canonical form of kinds and objects in messages, conditions, log lines and commands.

use super::{Kind, ObjectRef};

/// Formats a kind: `ConfigMap v1`, `VirtualService networking.istio.io/v1`.
pub fn display_kind(kind: &Kind) -> String {
    format!("{} {}", kind.kind, api_version(kind))
}

/// Formats a kind in any version: `VirtualService networking.istio.io/*`.
pub fn display_kind_in_any_version(group: &str, kind: &str) -> String {
    display_kind(&Kind::home(group, "*", kind))
}

/// Formats a kind with namespace and name.
pub fn display_ref(object: &ObjectRef) -> String {
    let place = object
        .namespace
        .as_ref()
        .map_or_else(|| object.name.clone(), |namespace| format!("{namespace}/{}", object.name));
    let cluster = if object.kind.cluster.is_empty() {
        String::new()
    } else {
        format!(" in cluster `{}`", object.kind.cluster)
    };
    format!("{} `{place}`{cluster}", display_kind(&object.kind))
}

/// Returns the `apiVersion` of a kind's objects.
pub fn api_version(kind: &Kind) -> String {
    if kind.group.is_empty() {
        kind.version.clone()
    } else {
        format!("{}/{}", kind.group, kind.version)
    }
}

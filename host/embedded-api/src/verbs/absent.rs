//! Paths that a real server serves and this one refuses, since nothing runs behind it.

use crate::{Failure, request::ResourcePath, status::Named};

/// The refused paths: resource, subresource, what cannot be done, and what is missing.
const ABSENT: [(&str, &str, &str, &str); 8] = [
    ("pods", "attach", "cannot attach to a container", NO_CONTAINERS),
    ("pods", "ephemeralcontainers", "cannot add a container for debugging", NO_CONTAINERS),
    ("pods", "exec", "cannot run a command in a container", NO_CONTAINERS),
    ("pods", "log", "there are no logs", NO_CONTAINERS),
    ("pods", "portforward", "cannot forward ports to a pod", NO_CONTAINERS),
    ("pods", "proxy", "cannot connect to a pod", NO_CONTAINERS),
    ("services", "proxy", "cannot connect to a service", NO_CONTAINERS),
    ("nodes", "proxy", "cannot connect to a node", "the embedded API has no machines"),
];

const NO_CONTAINERS: &str = "the embedded API keeps pods as objects and runs no containers";

/// Returns the refusal of a path, if it is one of these.
pub(super) fn refusal(path: &ResourcePath) -> Option<Failure> {
    let subresource = path.subresource.split('/').next().unwrap_or_default();
    let (resource, _, what, why) = ABSENT.iter().find(|(resource, name, ..)| {
        path.group.is_empty() && path.resource == *resource && subresource == *name
    })?;
    Some(Failure::not_implemented(Named::new("", resource, &path.name), &format!("{what}: {why}")))
}
